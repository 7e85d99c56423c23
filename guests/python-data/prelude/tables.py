"""Tables that are displayed: as HTML, Markdown, JSON and text for whoever reads them, and as columns for the host to keep.

The JSON is a Tabular Data Resource (`application/vnd.dataresource+json`): the types of all columns, some records from the
beginning and the end, and counts of what was left out. The columns are buffers behind a small head, in the form that the
host's crate `cellar-tables` describes; the host makes a Parquet file of them and adds to the JSON where that is.
"""

import datetime
import decimal
import itertools
import json
import math
import uuid

from _cellar_prelude import labels
from _cellar_prelude.labels import NotKept
from _cellar_prelude.notebook import display

# The prelude is loaded before packages can be imported: `begin` does that.
np = pd = DataFrameFormatter = None

JSON_TYPE = "application/vnd.dataresource+json"
# Rows and columns of which the JSON has records; of more it has the first and the last.
RECORDS = 20
RECORD_FIELDS = 50
# Columns whose types the JSON tells of.
FIELDS = 500
# Characters of a text in a record, and of a column's name.
TEXT = 500
NAME = 200
# Values that are Python objects, which become columns one by one.
OBJECTS = 2_000_000
# What the host takes in one crossing is little more.
BYTES = display.TABLE_LIMIT
# Columns that the host keeps of a table that is displayed, and of one that becomes a file.
COLUMNS = 2_000
FILE_COLUMNS = 20_000
# Digits of a decimal that has 16 bytes, and of the longest.
DIGITS_SHORT, DIGITS_MAX = 38, 76
_NOT_A_TIME = -(1 << 63)
_A_DAY = datetime.date(1970, 1, 1).toordinal()


def begin():
    """Shows frames and series from now on."""
    global np, pd, DataFrameFormatter, SeriesFormatter
    import numpy as np
    import pandas as pd
    from pandas._config import config
    from pandas.io.formats.format import DataFrameFormatter, SeriesFormatter

    # As in Jupyter: without a kernel's shell, pandas takes this for a terminal, and leaves out the columns that are too many for one.
    columns = "display.max_columns"
    config._registered_options[columns] = config._registered_options[columns]._replace(defval=20)
    pd.reset_option(columns)

    display.additions.update({pd.DataFrame: represent, pd.Series: represent})


def represent(value):
    """A frame or a series by MIME type."""
    frame = value.to_frame() if isinstance(value, pd.Series) else value
    found = {"text/html": frame._repr_html_()}
    if not len(frame.columns) or not len(frame):
        found["text/markdown"] = repr(value)
    elif frame is value:
        found["text/markdown"] = _markdown(frame)
    else:
        found["text/markdown"] = _with_footer(value, _markdown(frame))
    found = {mime: data for mime, data in found.items() if data is not None}
    resource = _resource(frame)
    try:
        found[display.TABLE] = columns(frame)
    except NotKept as reason:
        resource["notice"] = f"not kept as a file: {reason}"
    except MemoryError:
        resource["notice"] = "not kept as a file: memory ran out"
    except Exception as error:  # noqa: BLE001 - a type that nobody thought of is no reason to show nothing
        resource["notice"] = f"not kept as a file: {type(error).__name__}: {_short(str(error), TEXT)}"
    found[JSON_TYPE] = resource
    return found


# Markdown


def _markdown(frame):
    """The rows and columns that pandas would print, as a table."""
    limit = pd.get_option("display.max_rows") or len(frame)
    rows = pd.get_option("display.min_rows") if len(frame) > limit else limit
    columns = pd.get_option("display.max_columns") or 20
    shown = DataFrameFormatter(frame, max_rows=min(rows or limit, limit), max_cols=columns, show_dimensions=False)
    names, *cells = shown.get_strcols()
    index = _index_cells(shown.tr_frame.index, shown.tr_frame.columns, names)
    if shown.is_truncated_horizontally:
        cells.insert(shown.tr_col_num, ["…"] * len(names))
    head, *body = ([*left, *map(_cell, right)] for left, right in zip(index, zip(*cells, strict=True), strict=True))
    if frame.columns.nlevels == 1 and frame.columns.name is None and shown.has_index_names:
        # The names of the index stand in a line of their own, below those of the columns.
        levels = frame.index.nlevels
        named, *body = body
        head = [*named[:levels], *head[levels:]]
    if shown.is_truncated_vertically:
        body.insert(len(body) - len(shown.tr_frame) + shown.tr_row_num, ["…"] * len(head))
    lines = [head, ["---"] * len(head), *body]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{_shape(frame)}" if shown.is_truncated else text


def _with_footer(series, table):
    """What pandas prints below a series, such as its type, with the table: behind its rows where some are left out."""
    whole = table.endswith("|")
    footer = SeriesFormatter(series, name=True, length=not whole, dtype=True)._get_footer()
    if whole:
        return f"{footer}\n\n{table}"
    rows, _, size = table.rpartition("\n\n")
    return f"{rows}\n\n{footer}\n\n{size}" if rows else table


def _index_cells(index, columns, names):
    """What stands before the cells of each line; several levels are several columns.

    The names of the columns' levels stand before those in the last of them, as pandas has it.
    """
    if index.nlevels == 1:
        return [[_cell(name)] for name in names]
    above = [[""] * index.nlevels for _ in range(len(names) - len(index))]
    for line, name in zip(above, columns.names, strict=False):
        line[-1] = "" if name is None else _cell(str(name))
    if above and any(name is not None for name in index.names):
        above[-1] = ["" if name is None else _cell(str(name)) for name in index.names]
    return [*above, *([_cell(str(part)) for part in label] for label in index)]


def _cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def _shape(frame):
    return " × ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in zip(frame.shape, ("row", "column"), strict=True))


# JSON


def _resource(frame):
    """The table as a Tabular Data Resource."""
    parts = _index_parts(frame)
    keys = [_short(name, NAME) for name, _label, _values in parts]
    names = [*keys, *(_short(name, NAME) for name in _names(frame))]
    rows, columns = frame.shape
    places, picked = _ends(columns, RECORD_FIELDS), _ends(rows, RECORDS)
    few = frame.iloc[picked, places]
    shown = [(name, values.take(picked)) for name, (_, _, values) in zip(keys, parts, strict=True)]
    shown += [(names[len(keys) + place], few.iloc[:, number]) for number, place in enumerate(places)]
    made = [[_json_value(value) for value in values] for _name, values in shown]
    records = [dict(zip((name for name, _values in shown), row, strict=True)) for row in zip(*made, strict=True)]
    dtypes = [*(values.dtype for _, _, values in parts), *frame.dtypes.iloc[:FIELDS]]
    return {
        "profile": "tabular-data-resource",
        "schema": {
            "fields": [
                {"name": name, "type": _word(dtype), "dtype": str(dtype)[:NAME]}
                for name, dtype in zip(names, dtypes, strict=False)
            ],
            "primaryKey": keys,
        },
        "data": records,
        "rows": rows,
        "columns": columns,
        "rowsLeftOut": rows - len(picked),
        "columnsLeftOut": columns - len(places),
    }


def _ends(count, limit):
    """Places of the first and the last of them."""
    if count <= limit:
        return list(range(count))
    return [*range(limit - limit // 2), *range(count - limit // 2, count)]


def _json_value(value):
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biuf" else value
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return _short(str(value), TEXT)


def _short(text, limit):
    return text if len(text) <= limit else f"{text[:limit]}… {len(text) - limit} more characters"


def _word(dtype):
    """What a data resource calls a type."""
    kind = getattr(dtype, "kind", "O")
    words = {"b": "boolean", "i": "integer", "u": "integer", "f": "number", "M": "datetime", "m": "duration"}
    if isinstance(dtype, pd.CategoricalDtype):
        return _word(dtype.categories.dtype)
    if isinstance(dtype, pd.StringDtype):
        return "string"
    return words.get(kind, "any")


# Columns for the host


def _index_parts(frame):
    """Name, label and values of what names the rows; nothing where that is numbers in steps.

    A label that something else has as well is no name, as pandas has it: columns keep theirs.
    """
    index = frame.index
    if isinstance(index, pd.RangeIndex):
        return []
    parts, taken = [], {None, *map(str, frame.columns)}
    for level, (label, values) in enumerate(zip(index.names, labels.each_level(index), strict=True)):
        label = None if label is None else str(label)
        name = f"__index_level_{level}__" if label in taken else label
        taken.add(label)
        parts.append((name, label, values))
    return parts


def _names(frame):
    """Names of the columns, each once, and none that names the rows."""
    taken = {name for name, _label, _values in _index_parts(frame)}
    names = []
    for label in frame.columns:
        name = wanted = str(label)
        for number in itertools.count(1):
            if name not in taken:
                break
            name = f"{wanted}.{number}"
        taken.add(name)
        names.append(name)
    return names


def columns(frame, bytes_max=BYTES, objects_max=OBJECTS):
    """The columns of a table that is displayed, as bytes; `NotKept` where the host would have none of it.

    They have the names that the display shows, which stand for the labels where a file restores those.
    """
    if not len(frame.columns):
        raise NotKept("it has no columns")
    names, head = _names(frame), {}
    try:
        told, levels, more = labels.told(frame.columns)
        if told == names:
            more.update(labels.row_names(frame.index))
            head = {"labels": levels, "more": more or None}
    except NotKept:
        pass
    return _columns(frame, names, head, COLUMNS, bytes_max, objects_max, is_shown=True)


def file_columns(frame, bytes_max, objects_max):
    """The columns of a table that becomes a file and comes back as it is."""
    if not frame.columns.is_unique:
        raise NotKept(f"Duplicate column names found: {[*frame.columns]}")
    names, levels, more = labels.told(frame.columns)
    taken = [*(name for name, _label, _values in _index_parts(frame)), *names]
    if len(set(taken)) < len(taken):
        twice = next(name for name in taken if taken.count(name) > 1)
        raise NotKept(f"two of its columns are called {twice!r} where names are texts: rename one")
    head = {"labels": levels}
    more.update(labels.row_names(frame.index))
    if more:
        head["more"] = more
    if frame.attrs:
        try:
            head["attrs"] = json.dumps(frame.attrs)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotKept(f"its attrs are no JSON ({error}): set frame.attrs = {{}}") from None
    return _columns(frame, names, head, FILE_COLUMNS, bytes_max, objects_max)


def _columns(frame, frame_names, said, columns_max, bytes_max, objects_max, is_shown=False):
    if len(frame.columns) > columns_max:
        raise NotKept(f"it has {len(frame.columns)} columns, at most {columns_max} are kept")
    index = frame.index
    parts = _index_parts(frame)
    if parts:
        head = {"kind": "columns", "names": [label for _name, label, _values in parts]}
    else:
        name = None if index.name is None else str(index.name)
        head = {"kind": "range", "name": name, "start": index.start, "stop": index.stop, "step": index.step}
    named = itertools.chain(
        ((name, values) for name, _label, values in parts),
        ((name, frame.iloc[:, place]) for place, name in enumerate(frame_names)),
    )
    described, buffers = [], []
    budget = {"bytes": bytes_max, "most": bytes_max, "objects": objects_max, "is_shown": is_shown}
    for name, values in named:
        if len(frame) > budget["bytes"]:
            raise NotKept(_too_large(budget))
        try:
            kind, made = _column(values, budget)
        except _Unfit as reason:
            raise NotKept(f"column {_short(name, NAME)!r} {reason}") from None
        described.append({"name": name, "dtype": str(values.dtype)[:NAME], **kind})
        budget["bytes"] -= sum(map(_size, made))
        if budget["bytes"] < 0:
            raise NotKept(_too_large(budget))
        buffers += made
    text = json.dumps({"rows": len(frame), "index": head, "columns": described, **said}).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *buffers])


class _Unfit(NotKept):
    """Why a column cannot be kept as it is, and what to do about it."""


def _too_large(budget):
    return f"its columns are larger than {budget['most'] >> 20} MiB"


def _size(buffer):
    return buffer.nbytes if isinstance(buffer, np.ndarray) else len(buffer)


def _flat(array, kind=None):
    """An array whose bytes are its values in order."""
    return np.ascontiguousarray(array if kind is None else array.astype(kind, copy=False))


def _said(kind, there=None, **more):
    """Describes a column: its type, and whether its first buffer is a mask."""
    return {"type": kind, "nullable": there is not None, **more}


def _column(values, budget):
    """Describes a column, and makes its buffers."""
    dtype = values.dtype
    if isinstance(dtype, pd.SparseDtype):
        values = pd.Series(values).sparse.to_dense()
        dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf" and dtype.itemsize <= 8:
        return _said(_number(dtype)), [_flat(values.to_numpy())]
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        kind = {"kind": "timestamp", "zone": None} if dtype.kind == "M" else {"kind": "duration"}
        return _said({**kind, "unit": _unit(dtype)}), [_flat(values.to_numpy().view("i8"))]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _said({"kind": "timestamp", "unit": dtype.unit, "zone": _zone(dtype.tz)}), [_flat(values.array.asi8)]
    if isinstance(dtype, pd.CategoricalDtype):
        return _category(values, budget)
    if isinstance(dtype, pd.PeriodDtype):
        return _periods(values.array)
    if isinstance(dtype, pd.IntervalDtype):
        return _intervals(values.array, budget)
    mask = getattr(values.array, "_mask", None)
    if isinstance(mask, np.ndarray):
        there = _flat(~mask)
        return _said(_number(values.array._data.dtype), there), [there, _flat(values.array._data)]
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        raise _Unfit(f"is of the type {dtype}, which files of tables do not have: {_REMEDIES.get(dtype.kind, 'convert it')}")
    budget["objects"] -= len(values)
    if budget["objects"] < 0:
        raise NotKept("too many of its values are Python objects")
    return _objects(values, budget)


_REMEDIES = {"c": "keep .real and .imag apart", "f": 'use astype("float64")'}


def _number(dtype):
    if dtype.kind == "b":
        return {"kind": "boolean"}
    if dtype.kind == "f":
        return {"kind": "float", "bits": dtype.itemsize * 8}
    return {"kind": "integer", "bits": dtype.itemsize * 8, "signed": dtype.kind == "i"}


def _unit(dtype):
    return np.datetime_data(dtype)[0]


def _zone(zone):
    """A name that is known everywhere; moments are in UTC whatever it is."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if name is not None:
        return name
    offset = zone.utcoffset(None)
    if isinstance(offset, datetime.timedelta) and not offset.total_seconds() % 60:
        minutes = round(offset.total_seconds() / 60)
        return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "UTC"
    # dateutil knows the file that it has read.
    name = str(getattr(zone, "_filename", "")).rpartition("zoneinfo/")[2]
    try:
        import zoneinfo

        return zoneinfo.ZoneInfo(name).key
    except (ValueError, OSError, KeyError):
        raise _Unfit(f"is in the time zone {zone!r}, which has no name: use .dt.tz_convert with one that has") from None


def _category(values, budget):
    """Categories that are texts stay categories."""
    categories = values.dtype.categories
    if not all(isinstance(name, str) for name in categories):
        plain = pd.Series(values).astype(object)
        return _column(plain.infer_objects(), budget)
    array = values.array if isinstance(values, pd.Series) else values._data
    kind, (offsets, text) = _text([*categories])
    kind = {"kind": "category", "count": len(categories), "bytes": kind["bytes"], "ordered": bool(values.dtype.ordered)}
    return _said(kind), [_flat(array.codes, "<i4"), offsets, text]


def _periods(array):
    """Numbers of periods since 1970, as pandas keeps them with pyarrow."""
    numbers = _flat(array.asi8)
    there = numbers != _NOT_A_TIME
    extension = {"name": "pandas.period", "metadata": json.dumps({"freq": array.freqstr})}
    return _said(_number(numbers.dtype), there, extension=extension), [there, numbers]


def _intervals(array, budget):
    """Their ends side by side, as pandas keeps them with pyarrow."""
    there = _flat(~array.isna())
    (left, left_made), (right, right_made) = (_column(pd.Series(end), budget) for end in (array.left, array.right))
    fields = [{"name": name, **end} for name, end in (("left", left), ("right", right))]
    extension = {"name": "pandas.interval", "metadata": json.dumps({"subtype": _arrow_name(left["type"]), "closed": array.closed})}
    return _said({"kind": "struct", "fields": fields}, there, extension=extension), [there, *left_made, *right_made]


def _arrow_name(kind):
    """Names a type of numbers or of moments as pyarrow does."""
    if kind["kind"] == "float":
        return {16: "halffloat", 32: "float", 64: "double"}[kind["bits"]]
    if kind["kind"] == "integer":
        return f"{'' if kind['signed'] else 'u'}int{kind['bits']}"
    zone = kind.get("zone")
    return f"{kind['kind']}[{kind['unit']}{'' if zone is None else f', tz={zone}'}]"


def _objects(values, budget):
    """Values that are Python objects, as the type that all of them have; JSON where that gives back the same."""
    objects = np.asarray(values, dtype=object)
    missing = _missing(values)
    there = ~missing
    if isinstance(values.dtype, pd.StringDtype):
        return _texts(_filled(objects, missing, ""), there)
    present = objects[there].tolist()
    kinds = set(map(type, present))
    if not kinds:
        return _said({"kind": "null"}), [np.zeros(len(objects), "?")]
    if all(issubclass(kind, str) for kind in kinds):
        return _texts(_filled(objects, missing, ""), there)
    if budget["is_shown"] and all(issubclass(kind, (np.dtype, pd.api.extensions.ExtensionDtype)) for kind in kinds):
        # `frame.dtypes` shows names of types.
        return _texts([str(item) if is_there else "" for item, is_there in zip(objects, there, strict=True)], there)
    if kinds <= {bool, np.bool_}:
        return _said({"kind": "boolean"}, there), [there, np.array(_filled(objects, missing, False), "?")]
    if kinds <= {bytes, bytearray, memoryview}:
        kind, made = _pieces([bytes(piece) for piece in _filled(objects, missing, b"")])
        return _said({"kind": "binary", **kind}, there), [there, *made]
    if kinds == {datetime.date}:
        days = _spread([day.toordinal() - _A_DAY for day in present], there, "<i4")
        return _said({"kind": "date"}, there), [there, days]
    if kinds == {datetime.time}:
        return _times(present, there)
    if decimal.Decimal in kinds and kinds <= {decimal.Decimal, int}:
        return _decimals(present, there)
    if kinds == {uuid.UUID}:
        data = np.zeros((len(objects), 16), "u1")
        data[there] = np.frombuffer(b"".join(each.bytes for each in present), "u1").reshape(-1, 16)
        return _said({"kind": "uuid"}, there), [there, data]
    if all(issubclass(kind, (int, float, np.integer, np.floating)) and not issubclass(kind, bool) for kind in kinds):
        found = _numbers(present, kinds)
        if found is not None:
            return _said(_number(found.dtype), there), [there, _spread(found, there, found.dtype)]
    if all(issubclass(kind, (datetime.datetime, np.datetime64)) for kind in kinds):
        return _column(_moments(present, there), budget)
    if all(issubclass(kind, (datetime.timedelta, np.timedelta64)) for kind in kinds):
        return _column(_durations(present, there), budget)
    if kinds == {pd.Period} or kinds == {pd.Interval}:
        return _column(_extended(objects, present, missing, kinds), budget)
    if kinds == {np.ndarray}:
        return _arrays(present, there)
    if len(kinds) == 1 and kinds <= {list, tuple, set, frozenset}:
        found = _lists(present, there, *kinds)
        if found is not None:
            return found
    kind, made = _text([_json(item) if is_there else "" for item, is_there in zip(objects, there, strict=True)])
    return _said({**kind, "kind": "json"}, there), [there, *made]


def _missing(values):
    try:
        return np.asarray(pd.isna(values))
    except decimal.InvalidOperation:
        raise _Unfit("has signalling NaNs among its decimals, which files of tables do not have") from None


def _filled(objects, missing, gap):
    """The values in a list, with `gap` where there is none."""
    if not missing.any():
        return objects.tolist()
    full = objects.copy()
    full[missing] = gap
    return full.tolist()


def _spread(present, there, dtype):
    """Values at their rows, and zeros between them."""
    full = np.zeros(len(there), dtype)
    full[there] = present
    return full


def _times(present, there):
    if any(time.tzinfo is not None for time in present):
        raise _Unfit("has times of day in time zones, which files of tables do not have: use time.replace(tzinfo=None)")
    micros = [((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond for time in present]
    return _said({"kind": "time"}, there), [there, _spread(micros, there, "<i8")]


def _decimals(present, there):
    """Multiples of the smallest power of ten that all of them are multiples of."""
    exact = [decimal.Decimal(number) for number in present]
    if not all(number.is_finite() for number in exact):
        raise _Unfit("has an infinite decimal, which files of tables do not have")
    scale = max(0, *(-number.as_tuple().exponent for number in exact))
    digits = max(1, scale, *(number.adjusted() + 1 + scale for number in exact if number))
    if digits > DIGITS_MAX:
        raise _Unfit(f"has decimals that need {digits} digits together, at most {DIGITS_MAX} are kept: round them, or make texts of them")
    width = 16 if digits <= DIGITS_SHORT else 32
    data = np.zeros((len(there), width), "u1")
    data[there] = np.frombuffer(b"".join(_scaled(number, scale).to_bytes(width, "little", signed=True) for number in exact), "u1").reshape(-1, width)
    return _said({"kind": "decimal", "precision": digits, "scale": scale}, there), [there, data]


def _scaled(number, scale):
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits)))
    # A zero may have any exponent.
    whole *= 10 ** (exponent + scale) if whole else 1
    return -whole if sign else whole


def _numbers(present, kinds):
    """Numbers as an array, or None where it would have others."""
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if kind is not None and issubclass(kind, np.generic):
        found = np.array(present)
        if found.dtype.itemsize > 8:
            raise _Unfit(f"has numbers of the type {found.dtype}, which files of tables do not have: {_REMEDIES['f']}")
        return found
    is_whole = all(issubclass(kind, (int, np.integer)) for kind in kinds)
    try:
        found = np.array(present, "i8" if is_whole else "f8")
    except OverflowError:
        return None
    return found if found.tolist() == [number.item() if isinstance(number, np.generic) else number for number in present] else None


def _moments(present, there):
    """Moments of one time zone, or of none, as pandas has them."""
    zones = {getattr(moment, "tzinfo", None) for moment in present}
    if len(zones) > 1:
        names = ", ".join(sorted(map(str, zones)))[:TEXT]
        raise _Unfit(f"has moments in several time zones ({names}): convert them with pd.to_datetime(…, utc=True)")
    return _timed(pd.DatetimeIndex, [pd.Timestamp(moment) for moment in present], there)


def _durations(present, there):
    return _timed(pd.TimedeltaIndex, [pd.Timedelta(duration) for duration in present], there)


def _timed(kind, present, there):
    """An index with what is there, in the unit that keeps all of it; pandas has microseconds for Python's own."""
    is_fine = any(each.nanoseconds if isinstance(each, pd.Timedelta) else each.nanosecond for each in present)
    try:
        found = kind([each.as_unit("ns" if is_fine else "us") for each in present])
    except (ValueError, OverflowError) as error:
        raise _Unfit(f"has times that are too far apart for their unit ({error})") from None
    full = np.full(len(there), _NOT_A_TIME, "i8")
    full[there] = found.asi8
    full = kind(full.view(f"{'M' if kind is pd.DatetimeIndex else 'm'}8[{found.unit}]"))
    zone = getattr(found, "tz", None)
    return pd.Series(full if zone is None else full.tz_localize("UTC").tz_convert(zone))


def _extended(objects, present, missing, kinds):
    """Periods of one frequency, or intervals that are closed on one side, as pandas has them."""
    if kinds == {pd.Period}:
        names = {period.freqstr for period in present}
        if len(names) > 1:
            raise _Unfit(f"has periods of several frequencies ({', '.join(sorted(names))[:TEXT]}): make texts of them, or give each a column")
        return pd.Series(pd.array([None if gone else item for item, gone in zip(objects, missing, strict=True)], f"period[{names.pop()}]"))
    sides = {interval.closed for interval in present}
    if len(sides) > 1:
        raise _Unfit(f"has intervals that are closed on different sides ({', '.join(sorted(sides))}): make texts of them")
    made = pd.arrays.IntervalArray(_nulled(objects, missing), closed=sides.pop())
    if [*made[~missing]] != present:
        raise _Unfit("has intervals of several types: make texts of them")
    return pd.Series(made)


def _nulled(objects, missing):
    full = objects.copy()
    full[missing] = np.nan
    return full


def _arrays(present, there):
    """Arrays of one dimension, as lists of their items."""
    if any(array.ndim != 1 for array in present):
        raise _Unfit("has arrays of several dimensions, which files of tables do not have: use array.tolist(), or array.ravel()")
    dtypes = {array.dtype for array in present}
    try:
        dtype = dtypes.pop() if len(dtypes) == 1 else np.result_type(*dtypes)
    except TypeError:
        raise _Unfit(f"has arrays of several types ({', '.join(sorted(map(str, dtypes)))}): use astype") from None
    known = dtype.kind in "biuf" and dtype.itemsize <= 8 or dtype.kind in "mM" and _unit(dtype) in ("s", "ms", "us", "ns")
    if dtype.kind in "UTO" or not known:
        flat = [item for array in present for item in array.tolist()]
        if dtype.kind not in "UTO" or not all(item is None or type(item) is str for item in flat):
            raise _Unfit(f"has arrays of the type {dtype}, which files of tables do not have: use array.tolist(), or astype")
        gaps = np.array([item is not None for item in flat], "?")
        kind, made = _text(["" if item is None else item for item in flat])
        return _listed(present, there, _said(kind, gaps), [gaps, *made])
    joined = np.concatenate([array.astype(dtype.newbyteorder("="), copy=False) for array in present])
    if len(dtypes) and not all(np.array_equal(array.astype(dtype).astype(array.dtype), array, equal_nan=array.dtype.kind == "f") for array in present):
        raise _Unfit(f"has arrays of several types that {dtype} does not hold: use astype")
    if dtype.kind in "mM":
        kind = {"kind": "timestamp", "zone": None} if dtype.kind == "M" else {"kind": "duration"}
        return _listed(present, there, _said({**kind, "unit": _unit(dtype)}), [_flat(joined.view("i8"))])
    return _listed(present, there, _said(_number(dtype)), [_flat(joined)])


def _lists(present, there, container):
    """Lists whose items are of one type; None where JSON has to say of each what it is."""
    if container in (set, frozenset):
        present = [sorted(items, key=repr) for items in present]
    flat = [*itertools.chain.from_iterable(present)]
    kinds = set(map(type, flat))
    said = None
    if not kinds:
        said, made = _said({"kind": "null"}), [b""]
    elif kinds == {str}:
        said, made = _text(flat)
        said = _said(said)
    elif len(kinds) == 1 and kinds <= {bool, int, float}:
        try:
            items = np.array(flat, {bool: "?", int: "i8", float: "f8"}[kinds.pop()])
            said, made = _said(_number(items.dtype)), [items]
        except OverflowError:
            pass
    if said is None:
        if container is list:
            return None
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise _Unfit(f"has values of the type {container.__name__} with items of the types {names}: use lists, or items of one type")
    return _listed(present, there, said, made, container=container.__name__)


def _listed(present, there, item, made, **more):
    """Lists: where each ends, and the items of all."""
    lengths = np.zeros(len(there), "i8")
    lengths[there] = [len(items) for items in present]
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] >= 2**31:
        raise _Unfit("has lists with more than 2,147,483,647 items together")
    offsets = np.zeros(len(there) + 1, "<i4")
    offsets[1:] = ends
    return _said({"kind": "list", "count": int(offsets[-1]), "item": item}, there, **more), [there, offsets, *made]


def _json(item):
    """A value as JSON, if that gives the same back."""
    try:
        text = json.dumps(item, ensure_ascii=False, default=_item)
        if json.loads(text) == item or _is_json(item):
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    raise _Unfit(f"has a value {_kind_of(item)}, which cannot be kept as it is: {_short(repr(item), NAME)}; make a text or a number of it")


def _item(item):
    if isinstance(item, (np.bool_, np.integer, np.floating)) and item.dtype.itemsize <= 8:
        return item.item()
    raise TypeError


def _is_json(item):
    """Tells whether JSON holds the value exactly. NaN does not equal itself, so types are compared."""
    if isinstance(item, dict):
        return all(type(key) is str for key in item) and all(map(_is_json, item.values()))
    if isinstance(item, list):
        return all(map(_is_json, item))
    return item is None or isinstance(item, (str, int, float, np.bool_, np.integer, np.floating))


def _kind_of(item):
    """The part of a value that JSON has no word for."""
    if isinstance(item, dict):
        keys = [key for key in item if type(key) is not str]
        if keys:
            return f"with a key of the type {type(keys[0]).__name__}"
    inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    part = next((part for part in inner if not _is_json(part)), None)
    return f"of the type {type(item).__name__}" if part is None else f"with a part {_kind_of(part)}"


def _texts(texts, there):
    kind, made = _text(texts)
    return _said(kind, there), [there, *made]


def _text(texts):
    """Describes texts, and makes their offsets and bytes."""
    joined = "".join(texts)
    if joined.isascii():
        kind, made = _cut(joined.encode(), map(len, texts), len(texts))
    else:
        try:
            kind, made = _pieces([text.encode() for text in texts])
        except UnicodeEncodeError:
            raise _Unfit("has half of a surrogate pair in a text, which no file has: use text.encode('utf-8', 'replace').decode()") from None
    return {"kind": "text", **kind}, made


def _pieces(pieces):
    return _cut(b"".join(pieces), map(len, pieces), len(pieces))


def _cut(joined, lengths, count):
    if len(joined) >= 2**31:
        raise _Unfit("has more than 2 GiB of text")
    offsets = np.zeros(count + 1, "<i4")
    np.cumsum(np.fromiter(lengths, "<i4", count), out=offsets[1:])
    return {"bytes": len(joined)}, [offsets, joined]
