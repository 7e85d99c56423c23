"""Names of columns and of rows, on their way through files whose columns have texts for names.

Numbers, moments and levels of them are written as pandas writes them with pyarrow, so that others read them as well. Whatever that
gives back otherwise is written besides, each name with its type, and read by `restored` alone.
"""

import ast
import datetime
import decimal

# Pandas metadata of a level of texts.
_TEXTS = {"pandas_type": "unicode", "numpy_type": "object"}


class NotKept(Exception):
    """Why a table stays in the session alone."""


def begin():
    """Takes in what is loaded later."""
    global np, pd
    import numpy as np
    import pandas as pd


def told(columns):
    """The names of columns as texts, what is said of each level, and what is said besides."""
    names = [*map(text, columns)]
    levels = [{"name": _name(name), **_level(labels)} for name, labels in zip(columns.names, each_level(columns), strict=True)]
    more = {}
    if any(not isinstance(name, (str, type(None))) for name in columns.names):
        more["column_names"] = [*map(_coded, columns.names)]
    if columns.nlevels == 1 and all(type(label) is str for label in columns) and not isinstance(columns.dtype, pd.CategoricalDtype):
        return names, levels, more
    if not _is_same(restored(names, levels, more), columns):
        levels = [{**level, **_TEXTS, "metadata": None} for level in levels]
        more["labels"] = [*map(_coded, columns)]
        more["dtypes"] = [str(labels.dtype) for labels in each_level(columns)]
        if isinstance(columns.dtype, pd.CategoricalDtype):
            more["categories"] = [*map(_coded, columns.categories)]
            more["ordered"] = bool(columns.ordered)
        if not _is_same(restored(names, levels, more), columns):
            raise NotKept(f"names of columns of the type {columns.dtype} cannot be kept: make texts of them with frame.columns.map(str)")
    return names, levels, more


def restored(names, levels, more):
    """The names of columns as they were before they became texts."""
    levels = [level if isinstance(level, dict) else {} for level in levels] or [{}]
    labels = more.get("labels")
    if isinstance(labels, list) and len(labels) == len(names):
        columns = _labels(labels, more, len(levels))
    elif len(levels) > 1:
        columns = _levels(names, levels)
    else:
        columns = _typed(pd.Index(names) if names else pd.Index([], dtype=object), levels[0])
    own = more.get("column_names")
    own = [*map(_label, own)] if isinstance(own, list) else [level.get("name") for level in levels]
    if len(own) == columns.nlevels:
        columns.names = own
    return columns


def row_names(index):
    """Notes the names of an index that are no texts."""
    if all(isinstance(name, (str, type(None))) for name in index.names):
        return {}
    return {"index_names": [*map(_coded, index.names)]}


def restored_rows(names, more):
    """The names of an index as they were."""
    own = more.get("index_names")
    return [*map(_label, own)] if isinstance(own, list) and len(own) == len(names) else names


def each_level(index):
    """The labels of each level. A level that is called by a number would be taken for the level of that number."""
    nameless = index.set_names([None] * index.nlevels)
    return [nameless.get_level_values(level) for level in range(index.nlevels)]


def text(label):
    """The name of a column in a file."""
    return str(tuple(map(str, label)) if type(label) is tuple else label)


def _name(name):
    return None if name is None else str(name)


def _is_same(found, columns):
    return (
        found.nlevels == columns.nlevels
        and found.equals(columns)
        and [*found.names] == [*columns.names]
        and all(one.dtype == other.dtype for one, other in zip(each_level(found), each_level(columns), strict=True))
    )


def _level(labels):
    """Describes a level as pandas does with pyarrow, where pyarrow restores it."""
    dtype = labels.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        return {"pandas_type": str(dtype), "numpy_type": str(dtype), "metadata": None}
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        return {"pandas_type": str(dtype), "numpy_type": str(dtype), "metadata": None}
    if isinstance(dtype, pd.DatetimeTZDtype):
        return {"pandas_type": "datetimetz", "numpy_type": f"datetime64[{dtype.unit}]", "metadata": {"timezone": str(dtype.tz)}}
    return {**_TEXTS, "metadata": None}


def _typed(texts, level):
    """Names of one level by what is said of it; texts where that makes no sense."""
    pandas_type, numpy_type, said = (level.get(key) for key in ("pandas_type", "numpy_type", "metadata"))
    try:
        if pandas_type == "datetimetz":
            moments = pd.to_datetime(texts, utc=True, format="ISO8601").tz_convert(said["timezone"])
            return moments.as_unit(np.datetime_data(np.dtype(numpy_type))[0])
        if isinstance(numpy_type, str) and numpy_type.startswith("datetime64["):
            return pd.to_datetime(texts, format="ISO8601").as_unit(np.datetime_data(np.dtype(numpy_type))[0])
        if pandas_type == "bytes":
            return pd.Index([text.encode() for text in texts], dtype=object)
        if pandas_type == "decimal":
            return pd.Index([decimal.Decimal(text) for text in texts], dtype=object)
        if isinstance(numpy_type, str) and np.dtype(numpy_type).kind in "iuf":
            return texts.astype(numpy_type)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        pass
    return texts


def _levels(names, levels):
    if not names:
        return pd.MultiIndex.from_arrays([[]] * len(levels))
    try:
        labels = [ast.literal_eval(name) for name in names]
        if all(type(label) is tuple and len(label) == len(levels) for label in labels):
            each = zip(*labels, strict=True)
            return pd.MultiIndex.from_arrays([_typed(pd.Index(texts), level) for texts, level in zip(each, levels, strict=True)])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    return pd.Index(names)


def _labels(coded, more, count):
    labels = [*map(_label, coded)]
    if "categories" in more:
        categories = pd.Index([*map(_label, more["categories"])])
        return pd.CategoricalIndex(labels, categories=categories, ordered=more.get("ordered"))
    dtypes = more.get("dtypes") or [None] * count
    if count == 1:
        return _as(pd.Index(labels, tupleize_cols=False), dtypes[0])
    if not labels:
        return pd.MultiIndex.from_arrays([_as(pd.Index([]), dtype) for dtype in dtypes])
    arrays = zip(*labels, strict=True)
    return pd.MultiIndex.from_arrays([_as(pd.Index(array, tupleize_cols=False), dtype) for array, dtype in zip(arrays, dtypes, strict=True)])


def _as(index, dtype):
    try:
        return index if dtype is None or str(index.dtype) == dtype else index.astype(dtype)
    except (TypeError, ValueError):
        return index


# Names one by one: JSON where that has the same, or else an object of one key, the type.


def _coded(label):
    if isinstance(label, np.generic):
        label = label.item() if label.dtype.kind in "biufU" else pd.Timestamp(label) if label.dtype.kind == "M" else label
    if label is None or type(label) in (str, bool, int):
        return label
    if label is pd.NaT or label is pd.NA:
        return {"missing": "NaT" if label is pd.NaT else "NA"}
    if type(label) is float:
        return {"float": repr(label)}
    if type(label) is tuple:
        return {"tuple": [*map(_coded, label)]}
    if isinstance(label, pd.Timestamp):
        return {"timestamp": [label.value if label.unit == "ns" else label._value, label.unit, None if label.tz is None else str(label.tz)]}
    if isinstance(label, pd.Timedelta):
        return {"timedelta": [label._value, label.unit]}
    if isinstance(label, pd.Period):
        return {"period": [label.ordinal, label.freqstr]}
    if isinstance(label, pd.Interval):
        return {"interval": [_coded(label.left), _coded(label.right), label.closed]}
    if type(label) is datetime.date:
        return {"date": label.isoformat()}
    if type(label) is decimal.Decimal:
        return {"decimal": str(label)}
    if type(label) is bytes:
        return {"bytes": label.hex()}
    raise NotKept(f"a name that is a {type(label).__name__}, {str(label)[:100]!r}, cannot be kept: make a text of it")


def _label(coded):
    if not isinstance(coded, dict):
        return coded
    ((kind, said),) = coded.items()
    if kind == "timestamp":
        value, unit, zone = said
        return pd.Timestamp(np.datetime64(value, unit)) if zone is None else pd.Timestamp(np.datetime64(value, unit)).tz_localize("UTC").tz_convert(zone)
    if kind == "interval":
        left, right, closed = said
        return pd.Interval(_label(left), _label(right), closed=closed)
    make = {
        "missing": lambda said: pd.NaT if said == "NaT" else pd.NA,
        "float": float,
        "tuple": lambda said: tuple(map(_label, said)),
        "timedelta": lambda said: pd.Timedelta(np.timedelta64(*said)),
        "period": lambda said: pd.Period(ordinal=said[0], freq=said[1]),
        "date": datetime.date.fromisoformat,
        "decimal": decimal.Decimal,
        "bytes": bytes.fromhex,
    }[kind]
    return make(said)
