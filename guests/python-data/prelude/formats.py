"""Files of Parquet and Feather, for pandas' own functions. The host reads and writes them, in a process that it can kill;
what passes between the two are columns, in temporary files of the session.
"""

import contextlib
import datetime
import decimal
import errno
import json
import operator
import os
import sys
import tempfile

from _cellar_prelude import bridges, columnar, connectors

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
    global np, pd, get_handle, tables, texts
    import numpy as np
    import pandas as pd
    from _cellar_prelude import tables, texts
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
        for values, part in frame.groupby(names, observed=True):
            folder = os.path.join(path, *(f"{name}={value}" for name, value in zip(names, values, strict=True)))
            os.makedirs(folder, exist_ok=True)
            _write("parquet", part.drop(columns=names), os.path.join(folder, "part-0.parquet"), compression, None)

    def read(
        self, path, columns=None, filters=None, storage_options=None, dtype_backend=None, filesystem=None,
        to_pandas_kwargs=None, **_options,
    ):
        _refuse(filesystem=filesystem)
        wanted = None if columns is None else list(columns)
        groups = _groups(filters)
        if wanted is not None:
            tested = [name for group in groups for name, _operator, _value in group]
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
        if columns is not None:
            frame = frame[list(columns)]
        return _backed(frame, dtype_backend)


def read_feather(path, columns=None, use_threads=True, storage_options=None, dtype_backend=None):
    """Load a feather-format object from the file path."""
    frame = _read("feather", path, None if columns is None else list(columns), storage_options)
    return _backed(frame if columns is None else frame[list(columns)], dtype_backend)


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
        data = tables.columns(frame, BYTES, OBJECTS)
    except tables.NotKept as reason:
        raise ValueError(f"the table cannot be written as a {form} file: {reason}") from None
    request = {"direction": "write", "format": form, "compression": compression}
    with _temporary() as given:
        with open(given, "wb") as file:
            file.write(data)
        del data
        if _is_local(path):
            target = os.path.abspath(os.path.expanduser(os.fspath(path)))
            if not os.path.isdir(os.path.dirname(target)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
            bridges.ask_session("cellar.convert", **{"from": given, "to": target, "request": request})
            return
        with _temporary() as made:
            bridges.ask_session("cellar.convert", **{"from": given, "to": made, "request": request})
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
    request = {"direction": "read", "format": form, "columns": columns}
    with _temporary() as made:
        try:
            bridges.ask_session("cellar.convert", **{"from": path, "to": made, "request": request})
        except OSError as error:
            raise ValueError(str(error)) from None
        with open(made, "rb") as file:
            return take(file)


def _dataset(folder, columns, storage_options):
    """The files of a folder as one table; folders that are called `name=value` make a column."""
    frames = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        parts = [part.split("=", 1) for part in os.path.relpath(parent, folder).split(os.sep) if "=" in part]
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
    try:
        return int(text)
    except ValueError:
        return text


def _pandas(head):
    """What pandas, or somebody else for pandas, has said of the table; believed as far as it makes sense."""
    try:
        known = json.loads(head["pandas"])
    except (TypeError, ValueError, RecursionError):
        known = {}
    known = known if isinstance(known, dict) else {}
    parts = {name: known.get(name) for name in ("index_columns", "columns", "column_indexes")}
    return {name: [*filter(None, part)] if isinstance(part, list) else [] for name, part in parts.items()}


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
    rows = rows or 0
    frame = pd.DataFrame(dict(enumerate(columns)), index=pd.RangeIndex(rows), copy=False)
    frame.columns = pd.Index(names) if names else pd.Index([], dtype=object)
    frame = _indexed(frame, known["index_columns"], said)
    label = next((each for each in known["column_indexes"] if isinstance(each, dict)), {})
    if label.get("numpy_type") == "int64" and all(name.lstrip("-").isdigit() for name in frame.columns):
        frame.columns = frame.columns.astype("int64")
    name = label.get("name")
    if isinstance(name, str):
        frame.columns.name = name
    return frame


def _indexed(frame, index_columns, said):
    """The table with what names its rows."""
    ranges = [each for each in index_columns if isinstance(each, dict) and each.get("kind") == "range"]
    if ranges:
        bounds = [ranges[0].get(key) for key in ("start", "stop", "step")]
        if all(isinstance(bound, int) for bound in bounds) and bounds[2] and len(range(*bounds)) == len(frame):
            frame.index = pd.RangeIndex(*bounds, name=ranges[0].get("name"))
        return frame
    there = [name for name in index_columns if isinstance(name, str) and (frame.columns == name).sum() == 1]
    if there:
        frame = frame.set_index(there)
        frame.index.names = [said.get(name, {}).get("name", name) for name in there]
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
    kind, sizes = column["type"], list(column["buffers"])
    there = _take(file, sizes.pop(0), "?") if column["nullable"] else None
    name = kind["kind"]
    if is_exact and there is not None and name in ("boolean", "integer"):
        numpy_type = "boolean"
    if name == "boolean":
        return _number(_take(file, sizes[0], "?"), there, numpy_type)
    if name in ("integer", "float"):
        letter = "f" if name == "float" else "i" if kind["signed"] else "u"
        return _number(_take(file, sizes[0], f"<{letter}{kind['bits'] // 8}"), there, numpy_type)
    if name == "timestamp":
        moments = pd.DatetimeIndex(_take(file, sizes[0], "<i8").view(f"M8[{kind['unit']}]"))
        return moments if kind["zone"] is None else moments.tz_localize("UTC").tz_convert(kind["zone"])
    if name == "duration":
        return pd.TimedeltaIndex(_take(file, sizes[0], "<i8").view(f"m8[{kind['unit']}]"))
    if name == "date":
        days = _take(file, sizes[0], "<i4").astype("M8[D]").astype(object)
        return _gaps(days, there)
    if name == "category":
        codes = _take(file, sizes[0], "<i4")
        return pd.Categorical.from_codes(codes, _strings(file, sizes[1:]), ordered=kind["ordered"])
    if name == "null":
        return np.full(column["rows"], None, object)
    if name == "repeated":
        return _repeated(_take(file, sizes[0], "<i4"), columnar.texts(file, sizes[1:]), numpy_type)
    if name == "binary":
        return _gaps(_objects(columnar.pieces(file, sizes)), there)
    if name == "text":
        found = _strings(file, sizes, there, numpy_type)
        # Objects that are all None are no texts.
        is_none = numpy_type == "object" and there is not None and not there.any()
        return np.full(column["rows"], None, object) if is_none else found
    found = columnar.texts(file, sizes)
    convert = {"decimal": decimal.Decimal, "time": datetime.time.fromisoformat, "json": json.loads}[name]
    valid = there if there is not None else [True] * len(found)
    return _objects([convert(text) if is_there else None for text, is_there in zip(found, valid, strict=True)])


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
    values = values if values.dtype.kind == "f" else values.astype("f8")
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
