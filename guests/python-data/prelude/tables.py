"""Tables that are displayed: as HTML, Markdown, JSON and text for whoever reads them, and as columns for the host to keep.

The JSON is a Tabular Data Resource (`application/vnd.dataresource+json`): the types of all columns, some records from the
beginning and the end, and counts of what was left out. The columns are buffers behind a small head, in the form that the
host's crate `cellar-tables` describes; the host makes a Parquet file of them and adds to the JSON where that is.
"""

import datetime
import itertools
import json
import math

from _cellar_prelude import display

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
# Columns that the host keeps.
COLUMNS = 2_000


class NotKept(Exception):
    """Why a table stays in the session alone."""


def begin():
    """Shows frames and series from now on."""
    global np, pd, DataFrameFormatter, SeriesFormatter
    import numpy as np
    import pandas as pd
    from pandas.io.formats.format import DataFrameFormatter, SeriesFormatter

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
    index = _index_cells(shown.tr_frame.index, names)
    if shown.is_truncated_horizontally:
        cells.insert(shown.tr_col_num, ["…"] * len(names))
    head, *body = ([*left, *map(_cell, right)] for left, right in zip(index, zip(*cells, strict=True), strict=True))
    if frame.columns.nlevels == 1 and shown.has_index_names:
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


def _index_cells(index, names):
    """What stands before the cells of each line; several levels are several columns."""
    if index.nlevels == 1:
        return [[_cell(name)] for name in names]
    above = [[""] * index.nlevels for _ in range(len(names) - len(index))]
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
    for level, label in enumerate(index.names):
        label = None if label is None else str(label)
        name = f"__index_level_{level}__" if label in taken else label
        taken.add(label)
        parts.append((name, label, index.get_level_values(level)))
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
    """The table's columns, as bytes; `NotKept` where the host would have none of it."""
    if len(frame.columns) > COLUMNS:
        raise NotKept(f"it has {len(frame.columns)} columns, at most {COLUMNS} are kept")
    if not len(frame.columns):
        raise NotKept("it has no columns")
    index = frame.index
    parts = _index_parts(frame)
    if parts:
        head = {"kind": "columns", "names": [label for _name, label, _values in parts]}
    else:
        name = None if index.name is None else str(index.name)
        head = {"kind": "range", "name": name, "start": index.start, "stop": index.stop, "step": index.step}
    frame_names = _names(frame)
    named = itertools.chain(
        ((name, values) for name, _label, values in parts),
        ((name, frame.iloc[:, place]) for place, name in enumerate(frame_names)),
    )
    described, buffers = [], []
    budget = {"bytes": bytes_max, "most": bytes_max, "objects": objects_max}
    for name, values in named:
        if len(frame) > budget["bytes"]:
            raise NotKept(_too_large(budget))
        kind, nullable, made = _column(values, budget)
        described.append({"name": name, "dtype": str(values.dtype)[:NAME], "nullable": nullable, "type": kind})
        budget["bytes"] -= sum(map(_size, made))
        if budget["bytes"] < 0:
            raise NotKept(_too_large(budget))
        buffers += made
    label = None if frame.columns.name is None else str(frame.columns.name)
    numbered = frame.columns.dtype.kind in "iu" and frame_names == [str(label) for label in frame.columns]
    text = json.dumps({"rows": len(frame), "index": head, "label": label, "numbered": numbered, "columns": described}).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *buffers])


def _too_large(budget):
    return f"its columns are larger than {budget['most'] >> 20} MiB"


def _size(buffer):
    return buffer.nbytes if isinstance(buffer, np.ndarray) else len(buffer)


def _flat(array, kind=None):
    """An array whose bytes are its values in order."""
    return np.ascontiguousarray(array if kind is None else array.astype(kind, copy=False))


def _column(values, budget):
    """The type of a column, whether its first buffer says where there are values, and its buffers."""
    dtype = values.dtype
    if isinstance(dtype, pd.SparseDtype):
        values = values.sparse.to_dense()
        dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf" and dtype.itemsize <= 8:
        return _number(dtype), False, [_flat(values.to_numpy())]
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        kind = {"kind": "timestamp", "zone": None} if dtype.kind == "M" else {"kind": "duration"}
        return {**kind, "unit": _unit(dtype)}, False, [_flat(values.to_numpy().view("i8"))]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return {"kind": "timestamp", "unit": dtype.unit, "zone": _zone(dtype.tz)}, False, [_flat(values.array.asi8)]
    if isinstance(dtype, pd.CategoricalDtype):
        return _category(values, budget)
    mask = getattr(values.array, "_mask", None)
    if isinstance(mask, np.ndarray):
        return _number(values.array._data.dtype), True, [_flat(~mask), _flat(values.array._data)]
    budget["objects"] -= len(values)
    if budget["objects"] < 0:
        raise NotKept("too many of its values are Python objects")
    return _objects(values)


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
    if not isinstance(offset, datetime.timedelta) or offset.total_seconds() % 60:
        return "UTC"
    minutes = round(offset.total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _category(values, budget):
    """Categories that are texts stay categories."""
    categories = values.dtype.categories
    if not all(isinstance(name, str) for name in categories):
        plain = pd.Series(values).astype(object)
        return _column(plain.infer_objects(), budget)
    array = values.array if isinstance(values, pd.Series) else values._data
    kind, _nullable, (offsets, text) = _text([*categories], None)
    kind = {"kind": "category", "count": len(categories), "bytes": kind["bytes"], "ordered": bool(values.dtype.ordered)}
    return kind, False, [_flat(array.codes, "<i4"), offsets, text]


def _objects(values):
    """Values that are Python objects: texts, bytes, dates, or whatever else as JSON."""
    missing = np.asarray(pd.isna(values))
    there = ~missing
    is_text = isinstance(values.dtype, pd.StringDtype)
    found = "string" if is_text else pd.api.types.infer_dtype(values, skipna=True)
    objects = np.asarray(values, dtype=object)

    def with_gaps(gap, convert=None):
        """The values in a list, converted, with `gap` where there is none."""
        if convert is not None:
            return [gap if gone else convert(item) for item, gone in zip(objects, missing, strict=True)]
        if not missing.any():
            return objects.tolist()
        full = objects.copy()
        full[missing] = gap
        return full.tolist()

    if found in ("string", "empty"):
        return _text(with_gaps(""), there)
    if found == "boolean":
        return {"kind": "boolean"}, True, [there, np.array(with_gaps(False), "?")]
    if found == "bytes":
        kind, nullable, made = _pieces(with_gaps(b""), there)
        return {"kind": "binary", **kind}, nullable, made
    if found == "date":
        epoch = datetime.date(1970, 1, 1).toordinal()
        return {"kind": "date"}, True, [there, np.array(with_gaps(0, lambda day: day.toordinal() - epoch), "<i4")]
    if found in ("period", "interval", "decimal", "complex", "time") or not isinstance(values.dtype, np.dtype):
        return _text(with_gaps("", str), there)
    kind, nullable, made = _text(with_gaps("", _json), there)
    return {**kind, "kind": "json"}, nullable, made


def _json(item):
    if isinstance(item, np.generic):
        item = item.item()
    try:
        return json.dumps(item, ensure_ascii=False, allow_nan=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(str(item), ensure_ascii=False)


def _text(texts, there):
    """Offsets and bytes of texts."""
    joined = "".join(texts)
    if joined.isascii():
        kind, nullable, made = _cut(joined.encode(), map(len, texts), len(texts), there)
    else:
        # Half of a surrogate pair has no bytes.
        kind, nullable, made = _pieces([text.encode("utf-8", "replace") for text in texts], there)
    return {"kind": "text", **kind}, nullable, made


def _pieces(pieces, there):
    return _cut(b"".join(pieces), map(len, pieces), len(pieces), there)


def _cut(joined, lengths, count, there):
    if len(joined) >= 2**31:
        raise NotKept("a column has more than 2 GiB of text")
    offsets = np.zeros(count + 1, "<i4")
    np.cumsum(np.fromiter(lengths, "<i4", count), out=offsets[1:])
    made = [offsets, joined] if there is None else [there, offsets, joined]
    return {"bytes": len(joined)}, there is not None, made
