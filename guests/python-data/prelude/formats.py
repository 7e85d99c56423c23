"""Files of Parquet and Feather, for pandas' own functions. The host reads and writes them, in a process that it can kill;
what passes between the two are columns, in temporary files of the session.
"""

import contextlib
import decimal
import errno
import itertools
import json
import operator
import os
import sys
import tempfile
import urllib.parse

import _cellar
from _cellar_prelude.calls import bridges, columnar, connectors

# Bytes of columns, and values that are Python objects, of a table that becomes a file.
BYTES = 512 << 20
OBJECTS = 20_000_000

_COMPRESSIONS = {
    "parquet": ("snappy", "gzip", "zstd", "lz4"),
    "feather": ("lz4", "zstd"),
}
_OPERATORS = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge,
}


def begin():
    """Takes the place of the packages that pandas would use."""
    global np, pd, get_handle, labels, tables, texts
    import numpy as np
    import pandas as pd
    from _cellar_prelude import labels, tables, texts
    from pandas.io.common import get_handle

    connectors.use(_fetched)

    sys.modules["pandas.io.parquet"].get_engine = _get_engine
    for name in ("pandas", "pandas.io.api", "pandas.io.feather_format"):
        sys.modules[name].read_feather = read_feather
    sys.modules["pandas.io.feather_format"].to_feather = to_feather


def _get_engine(engine):
    if engine not in ("auto", "pyarrow", "fastparquet"):
        raise ValueError("engine must be one of 'pyarrow', 'fastparquet'")
    return Parquet()


class Parquet:
    """What pandas calls an engine."""

    def write(
        self, df, path, compression="snappy", index=None, storage_options=None, partition_cols=None, filesystem=None, **options
    ):
        if not isinstance(df, pd.DataFrame):
            raise ValueError("to_parquet only supports IO with DataFrames")
        _refuse(filesystem=filesystem)
        frame = df
        if index is False:
            frame = df.reset_index(drop=True)
        elif index and isinstance(df.index, pd.RangeIndex):
            frame = df.set_axis(pd.Index(df.index.to_numpy(), name=df.index.name))
        partition_cols = partition_cols or options.get("partition_on")
        if not partition_cols:
            _write("parquet", frame, path, compression, storage_options)
            return
        names = [partition_cols] if isinstance(partition_cols, str) else list(partition_cols)
        for values, part in frame.groupby(names, observed=True, dropna=False):
            folder = os.path.join(path, *(f"{_quoted(name)}={_key(value)}" for name, value in zip(names, values, strict=True)))
            os.makedirs(folder, exist_ok=True)
            _write("parquet", part.drop(columns=names), os.path.join(folder, "part-0.parquet"), compression, None)

    def read(
        self, path, columns=None, filters=None, storage_options=None, dtype_backend=None, filesystem=None,
        to_pandas_kwargs=None, **_options,
    ):
        _refuse(filesystem=filesystem)
        wanted = None if columns is None else [labels.text(name) for name in columns]
        groups = _groups(filters)
        if wanted is not None:
            tested = [labels.text(name) for group in groups for name, _operator, _value in group]
            wanted = list(dict.fromkeys([*wanted, *tested]))
        if _is_local(path) and os.path.isdir(path):
            frame = _dataset(os.fspath(path), wanted, storage_options)
        else:
            frame = _read("parquet", path, wanted, storage_options)
        if groups:
            ranged = isinstance(frame.index, pd.RangeIndex)
            kept = np.zeros(len(frame), bool)
            for group in groups:
                kept |= np.logical_and.reduce([_test(frame, *each) for each in group])
            frame = frame[kept]
            if ranged:
                frame = frame.reset_index(drop=True)
        return _backed(frame if columns is None else _chosen(frame, columns), dtype_backend)


def read_feather(path, columns=None, use_threads=True, storage_options=None, dtype_backend=None):
    """Load a feather-format object from the file path."""
    frame = _read("feather", path, None if columns is None else [labels.text(name) for name in columns], storage_options)
    return _backed(frame if columns is None else _chosen(frame, columns), dtype_backend)


def _chosen(frame, columns):
    """The columns in an order, each by its name or by the text that it is in the file."""
    places = {labels.text(label): place for place, label in enumerate(frame.columns)}
    return frame.iloc[:, [places[labels.text(name)] for name in columns]]


def to_feather(df, path, storage_options=None, compression="lz4", **_options):
    """Write a DataFrame to the binary Feather format."""
    if not isinstance(df, pd.DataFrame):
        raise ValueError("feather only support IO with DataFrames")
    if not df.index.equals(pd.RangeIndex(len(df))) or df.index.name is not None:
        raise ValueError(
            "feather does not support serializing a non-default index for the index; "
            "you can .reset_index() to make the index into column(s)"
        )
    _write("feather", df, path, compression, storage_options)


def _refuse(**options):
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(f"`{name}` needs pyarrow, which is not in this sandbox: give a path or a file")


def _is_local(path):
    return isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)


@contextlib.contextmanager
def _temporary():
    handle, path = tempfile.mkstemp()
    os.close(handle)
    try:
        yield path
    finally:
        # The host leaves nothing of a file that it could not finish.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


# Writing


def _write(form, frame, path, compression, storage_options):
    compression = None if compression is None else str(compression).lower()
    compression = None if compression in ("none", "uncompressed") else compression
    if compression is not None and compression not in _COMPRESSIONS[form]:
        known = ", ".join(map(repr, _COMPRESSIONS[form]))
        raise ValueError(f"{compression!r} is no compression of {form} files here: {known} and None are")
    try:
        data = tables.file_columns(frame, BYTES, OBJECTS)
    except tables.NotKept as reason:
        raise ValueError(f"the table cannot be written as a {form} file: {reason}") from None
    how = "write", form, None, compression
    with _temporary() as given:
        with open(given, "wb") as file:
            file.write(data)
        del data
        if _is_local(path):
            target = os.path.abspath(os.path.expanduser(os.fspath(path)))
            if not os.path.isdir(os.path.dirname(target)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
            bridges.ask_tables(_cellar.TABLES_CONVERT, given, target, *how)
            return
        with _temporary() as made:
            bridges.ask_tables(_cellar.TABLES_CONVERT, given, made, *how)
            with open(made, "rb") as file, get_handle(path, "wb", storage_options=storage_options, is_text=False) as handles:
                handles.handle.write(file.read())


# Reading


def _read(form, path, columns, storage_options):
    if _is_local(path):
        path = os.path.expanduser(os.fspath(path))
        open(path, "rb").close()
        return _read_file(form, os.path.abspath(path), columns)
    with _temporary() as copy:
        with get_handle(path, "rb", storage_options=storage_options, is_text=False) as handles, open(copy, "wb") as file:
            file.write(handles.handle.read())
        return _read_file(form, copy, columns)


def _read_file(form, path, columns):
    if columns is not None:
        # What names the rows comes along, as it does with pyarrow.
        known = _ask(form, path, [], lambda file: _pandas(columnar.head(file)))
        columns = [*dict.fromkeys([*columns, *(name for name in known["index_columns"] if isinstance(name, str))])]
    return _ask(form, path, columns, _frame)


def _ask(form, path, columns, take):
    with _temporary() as made:
        try:
            bridges.ask_tables(_cellar.TABLES_CONVERT, path, made, "read", form, columns, None)
        except OSError as error:
            raise ValueError(str(error)) from None
        with open(made, "rb") as file:
            return take(file)


# The folder of rows that have no value in a column of folders.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def _quoted(text):
    return urllib.parse.quote(str(text), safe=" !\"#$&'()*+,;<>?@[]^`{|}~")


def _key(value):
    return _NO_VALUE if pd.isna(value) else _quoted(value)


def _dataset(folder, columns, storage_options):
    """The files of a folder as one table; folders that are called `name=value` make a column."""
    frames = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        parts = [part.split("=", 1) for part in os.path.relpath(parent, folder).split(os.sep) if "=" in part]
        parts = [(urllib.parse.unquote(name), value) for name, value in parts]
        for name in sorted(names):
            if name.startswith((".", "_")):
                continue
            own = None if columns is None else [column for column in columns if column not in dict(parts)]
            frame = _read("parquet", os.path.join(parent, name), own, storage_options)
            frames.append(frame.assign(**{key: _value(value) for key, value in parts}))
    if not frames:
        raise FileNotFoundError(errno.ENOENT, "there are no Parquet files in this folder", folder)
    whole = pd.concat(frames, ignore_index=all(isinstance(frame.index, pd.RangeIndex) for frame in frames))
    for key in dict(parts):
        whole[key] = whole[key].astype("category")
    return whole


def _value(text):
    if text == _NO_VALUE:
        return None
    try:
        return int(text)
    except ValueError:
        return urllib.parse.unquote(text)


def _pandas(head):
    """What pandas, or somebody else for pandas, has said of the table; believed as far as it makes sense."""
    try:
        known = json.loads(head["pandas"])
    except (TypeError, ValueError, RecursionError):
        known = {}
    known = known if isinstance(known, dict) else {}
    parts = {name: known.get(name) for name in ("index_columns", "columns", "column_indexes")}
    more = known.get("cellar")
    found = {name: [*filter(None, part)] if isinstance(part, list) else [] for name, part in parts.items()}
    return {**found, "more": more if isinstance(more, dict) else {}}


def _fetched(file):
    """What a connector gave: whole numbers stay whole where some are missing."""
    return _frame(file, is_exact=True)


def _frame(file, is_exact=False):
    head = columnar.head(file)
    known = _pandas(head)
    said = {each.get("field_name", each.get("name")): each for each in known["columns"] if isinstance(each, dict)}
    names, columns, rows = [], [], head["rows"]
    for _ in range(head["columns"]):
        column = columnar.column(file, rows)
        rows = column["rows"]
        names.append(column["name"])
        numpy_type = said.get(column["name"], {}).get("numpy_type")
        columns.append(_column(file, column, numpy_type if isinstance(numpy_type, str) else "", is_exact))
    frame = pd.DataFrame(dict(enumerate(columns)), index=pd.RangeIndex(_counted(rows, names, known)), copy=False)
    frame.columns = pd.Index(names) if names else pd.Index([], dtype=object)
    frame = _indexed(frame, known, said)
    if known["column_indexes"] or known["more"]:
        frame.columns = _restored([*frame.columns], known)
    frame.attrs.update(_attrs(head))
    return frame


def _counted(rows, names, known):
    """Counts the rows. The number of rows of a file without columns stands in its pandas metadata alone."""
    for each in known["index_columns"]:
        if not names and isinstance(each, dict) and each.get("kind") == "range":
            bounds = [each.get(key) for key in ("start", "stop", "step")]
            if all(isinstance(bound, int) for bound in bounds) and bounds[2]:
                return len(range(*bounds))
    return rows or 0


def _restored(names, known):
    """The names of the columns as the table had them; texts where what is said of them makes no sense."""
    more = known["more"]
    try:
        if isinstance(more.get("labels"), list):
            # Of those that the file has, some may have been read.
            every = [each["field_name"] for each in known["columns"] if each["field_name"] not in known["index_columns"]]
            by_name = dict(zip(every, more["labels"], strict=True))
            more = {**more, "labels": [by_name[name] for name in names]}
        return labels.restored(names, known["column_indexes"], more)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        return pd.Index(names)


def _attrs(head):
    try:
        found = json.loads(head["attrs"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _indexed(frame, known, said):
    """The table with what names its rows."""
    index_columns = known["index_columns"]
    ranges = [each for each in index_columns if isinstance(each, dict) and each.get("kind") == "range"]
    if ranges:
        bounds = [ranges[0].get(key) for key in ("start", "stop", "step")]
        if all(isinstance(bound, int) for bound in bounds) and bounds[2] and len(range(*bounds)) == len(frame):
            frame.index = pd.RangeIndex(*bounds)
            frame.index.names = labels.restored_rows([ranges[0].get("name")], known["more"])
        return frame
    there = [name for name in index_columns if isinstance(name, str) and (frame.columns == name).sum() == 1]
    if there:
        frame = frame.set_index(there)
        names = [said.get(name, {}).get("name", name) for name in there]
        frame.index.names = labels.restored_rows(names, known["more"])
    return frame


def _take(file, length, dtype):
    """A buffer of the file, which may be written to."""
    array = np.empty(length // np.dtype(dtype).itemsize, dtype)
    view = memoryview(array).cast("B")
    while len(view):
        count = file.readinto(view)
        if not count:
            raise EOFError("the columns of the table end too early")
        view = view[count:]
    return array


def _column(file, column, numpy_type, is_exact):
    extension, sizes = column.get("extension") or {}, list(column["buffers"])
    kind = column["type"]["kind"]
    if extension.get("name") == "arrow.uuid" or kind in ("list", "map", "struct") and (is_exact or column.get("container")):
        found = columnar.values(file, column, column["rows"], sizes)
        make = {"tuple": tuple, "set": set, "frozenset": frozenset}.get(column.get("container"))
        return _objects([each if each is None or make is None else make(each) for each in found])
    if extension.get("name") in ("pandas.period", "pandas.interval"):
        made = _extended(file, column, sizes, extension)
        if made is not None:
            return made
    return _part(file, column, column["rows"], sizes, numpy_type, is_exact)


def _extended(file, column, sizes, extension):
    """Periods and intervals, of which the file has numbers and structures."""
    kind = column["type"]
    try:
        said = json.loads(extension["metadata"])
        if extension["name"] == "pandas.period":
            dtype = pd.PeriodDtype(said["freq"])
        else:
            closed = {"left": "left", "right": "right", "both": "both", "neither": "neither"}[said["closed"]]
    except (KeyError, TypeError, ValueError):
        return None
    if extension["name"] == "pandas.period":
        if kind != {"kind": "integer", "bits": 64, "signed": True}:
            return None
        there = _take(file, sizes.pop(0), "?") if column["nullable"] else None
        numbers = _take(file, sizes.pop(0), "<i8")
        if there is not None:
            numbers[~there] = pd.NaT._value
        return pd.arrays.PeriodArray(numbers, dtype=dtype)
    if kind["kind"] != "struct" or [field["name"] for field in kind["fields"]] != ["left", "right"]:
        return None
    there = _take(file, sizes.pop(0), "?") if column["nullable"] else None
    left, right = (_part(file, field, column["rows"], sizes) for field in kind["fields"])
    if there is not None and not there.all():
        # Whole numbers have no word for none.
        left, right = (pd.Index(end) if end.dtype.kind not in "iu" else pd.Index(end.astype("f8")) for end in (left, right))
        left, right = (end.where(there) for end in (left, right))
    return pd.arrays.IntervalArray.from_arrays(left, right, closed=closed)


def _part(file, column, rows, sizes, numpy_type="", is_exact=False):
    """The values of a column, or of what lies in one. It takes the sizes of their buffers."""
    kind = column["type"]
    name = kind["kind"]
    there = _take(file, sizes.pop(0), "?") if column["nullable"] else None
    if name in ("list", "map"):
        return _gaps(_lists(file, kind, sizes), there)
    if name == "struct":
        return _gaps(_structures(file, kind, rows, sizes), there)
    if is_exact and there is not None and name in ("boolean", "integer"):
        numpy_type = "boolean"
    if name == "boolean":
        return _number(_take(file, sizes.pop(0), "?"), there, numpy_type)
    if name in ("integer", "float"):
        letter = "f" if name == "float" else "i" if kind["signed"] else "u"
        return _number(_take(file, sizes.pop(0), f"<{letter}{kind['bits'] // 8}"), there, numpy_type)
    if name == "timestamp":
        moments = pd.DatetimeIndex(_take(file, sizes.pop(0), "<i8").view(f"M8[{kind['unit']}]"))
        return moments if kind["zone"] is None else moments.tz_localize("UTC").tz_convert(kind["zone"])
    if name == "duration":
        return pd.TimedeltaIndex(_take(file, sizes.pop(0), "<i8").view(f"m8[{kind['unit']}]"))
    if name == "date":
        return _gaps(_days(_take(file, sizes.pop(0), "<i4"), there), there)
    if name == "null":
        return np.full(rows, None, object)
    if name == "category":
        codes = _take(file, sizes.pop(0), "<i4")
        return pd.Categorical.from_codes(codes, _strings(file, [sizes.pop(0), sizes.pop(0)]), ordered=kind["ordered"])
    if name == "repeated":
        codes = _take(file, sizes.pop(0), "<i4")
        return _repeated(codes, columnar.texts(file, [sizes.pop(0), sizes.pop(0)]), numpy_type)
    own = [sizes.pop(0), sizes.pop(0)]
    if name == "binary":
        return _gaps(_objects(columnar.pieces(file, own)), there)
    if name == "text":
        found = _strings(file, own, there, numpy_type)
        # Objects that are all None are no texts.
        is_none = numpy_type == "object" and there is not None and not there.any()
        return np.full(rows, None, object) if is_none else found
    found = columnar.texts(file, own)
    convert = {"decimal": decimal.Decimal, "time": columnar.time, "json": json.loads}[name]
    valid = there if there is not None else [True] * len(found)
    return _objects([convert(text) if is_there else None for text, is_there in zip(found, valid, strict=True)])


def _lists(file, kind, sizes):
    """Arrays, as pyarrow gives them; of maps lists of pairs."""
    ends = _take(file, sizes.pop(0), "<i4").tolist()
    item = kind["item"]
    if item["type"]["kind"] in ("boolean", "integer", "float", "duration", "list", "map", "struct") or item["type"].get("zone", "") is None:
        items = _part(file, item, kind["count"], sizes)
        items = items if isinstance(items, np.ndarray) else items.to_numpy()
    else:
        items = _objects(columnar.values(file, item, kind["count"], sizes))
    if kind["kind"] == "map":
        return _objects([[tuple(entry.values()) for entry in items[start:end]] for start, end in itertools.pairwise(ends)])
    return _objects([items[start:end] for start, end in itertools.pairwise(ends)])


def _structures(file, kind, rows, sizes):
    """Dicts of Python's own values, and of arrays where a field has lists."""
    columns = []
    for field in kind["fields"]:
        is_flat = field["type"]["kind"] not in ("list", "map", "struct")
        columns.append(columnar.values(file, field, rows, sizes) if is_flat else _part(file, field, rows, sizes))
    names = [field["name"] for field in kind["fields"]]
    return _objects([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if columns else [{} for _ in range(rows)])


def _days(numbers, there):
    """Days as Python has them, which begin with the year 1."""
    found = numbers.astype("M8[D]").astype(object)
    real = found if there is None else found[there]
    if any(type(day) is int for day in real):
        far = next(day for day in real if type(day) is int)
        raise ValueError(f"a column has a day {far:,} days from 1970, which Python's dates do not reach: read it as a text or a number")
    return found


def _number(values, there, numpy_type):
    own = numpy_type[:1].isupper() or numpy_type == "boolean"
    if own:
        mask = np.zeros(len(values), bool) if there is None else ~there
        kinds = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
        return kinds.get(values.dtype.kind, pd.arrays.IntegerArray)(values, mask)
    if there is None:
        return values
    if values.dtype.kind == "b":
        return _gaps(values.astype(object), there)
    if values.dtype.kind != "f":
        floats = values.astype("f8")
        if (floats[there].astype(object) != values[there].astype(object)).any():
            # Numbers that a float does not have stay what they are.
            return _gaps(values.astype(object), there)
        values = floats
    values[~there] = np.nan
    return values


def _gaps(values, there):
    if there is not None:
        values[~there] = None
    return values


def _objects(values):
    # Lists of one length would become an array of two dimensions otherwise.
    return np.fromiter(values, object, len(values))


def _text_dtype(numpy_type):
    return pd.api.types.pandas_dtype("string" if numpy_type.startswith("string") else "str")


def _repeated(codes, known, numpy_type):
    """Texts by their numbers, as pandas holds them; objects that are all None are no texts."""
    if numpy_type == "object" and not known:
        return np.full(len(codes), None, object)
    return texts.by_numbers(codes, known, _text_dtype(numpy_type))


def _strings(file, sizes, there=None, numpy_type=""):
    """The texts of a buffer of offsets and one of bytes, as pandas holds them."""
    offsets, data = _take(file, sizes[0], "<i4"), _take(file, sizes[1], "u1")
    return texts.by_offsets(offsets, data, b"" if there is None else there, _text_dtype(numpy_type))


def _backed(frame, dtype_backend):
    if dtype_backend == "numpy_nullable":
        return frame.convert_dtypes()
    if dtype_backend == "pyarrow":
        raise ImportError("types of pyarrow are not in this sandbox: leave out dtype_backend, or say 'numpy_nullable'")
    return frame


# Filters


def _groups(filters):
    """Tests of columns, all of which hold in one group at least."""
    if not filters:
        return []
    if isinstance(filters, tuple):
        filters = [filters]
    if not isinstance(filters, list):
        raise TypeError("filters are lists of (column, operator, value) in this sandbox")
    return [list(group) for group in filters] if isinstance(filters[0], list) else [list(filters)]


def _test(frame, name, test, value):
    if name in frame.columns:
        column = frame[name]
    elif name in frame.index.names:
        column = frame.index.get_level_values(name).to_series(index=frame.index)
    else:
        raise ValueError(f"No match for FieldRef.Name({name}) in {list(frame.columns)}")
    if test == "in":
        return column.isin(list(value)).to_numpy()
    if test == "not in":
        return (~column.isin(list(value))).to_numpy()
    if test not in _OPERATORS:
        raise ValueError(f"{test!r} is not an operator of filters: {', '.join(_OPERATORS)}, in, not in")
    return np.asarray(_OPERATORS[test](column, value).fillna(False), dtype=bool)
