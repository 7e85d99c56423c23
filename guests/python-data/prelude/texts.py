"""Columns of text whose texts are made when somebody first looks at them.

A table comes in buffers, and a column of numbers is one. A text has an object of its own besides: to make a million of them
takes longer than all else, and of most tables only some columns are looked at. So a `StringArray` may have buffers in the place of
its texts: it knows its length and its type, parts of it have parts of the buffers, and whoever asks for the rest has them read.
"""

import functools

import _cellar

# What pandas does in C, where texts are taken without asking for them.
_IN_C = ("__reduce__", "__reduce_cython__", "copy", "delete", "ravel", "repeat", "reshape", "swapaxes", "transpose")


class _Buffers:
    """The buffers of a column, or its texts once they were made."""

    def __init__(self, fill, *held):
        self.fill, self.held, self.made = fill, held, None

    def texts(self, rows, missing):
        """An array of objects, the same for all columns that share these buffers."""
        if self.made is None:
            made = np.empty(rows, object)
            self.fill(*self.held, missing, made)
            self.made, self.held = made, None
        return self.made

    def part(self, start, stop):
        """The buffers of some rows."""
        part = _Buffers(self.fill)
        if self.made is not None:
            part.made = self.made[start:stop]
        elif self.fill is _cellar.fill_repeated:
            codes, texts = self.held
            part.held = codes[start:stop], texts
        else:
            offsets, data, there = self.held
            offsets = offsets[start : stop + 1]
            part.held = offsets - offsets[0], data[offsets[0] : offsets[-1]], there[start:stop]
        return part


def begin():
    """Has pandas ask for texts that are not made yet."""
    global np, NDArrayBacked, StringArray
    import numpy as np
    from pandas._libs.arrays import NDArrayBacked
    from pandas.core.arrays.string_ import StringArray

    in_c = {name: getattr(StringArray, name) for name in _IN_C}
    getitem, view = StringArray.__getitem__, StringArray.view
    StringArray._buffers = None
    StringArray._ndarray = property(lambda self: NDArrayBacked._ndarray.__get__(_read(self)))
    StringArray.T = property(lambda self: NDArrayBacked.T.__get__(_read(self)))
    StringArray.__getitem__ = lambda self, key: getitem(self, key) if self._buffers is None else _item(self, key, getitem)
    StringArray.view = lambda self, dtype=None: self[:] if dtype is None and self._buffers is not None else view(self, dtype)
    for name, method in in_c.items():
        setattr(StringArray, name, _reading(method))


def by_offsets(offsets, data, there, dtype):
    """Texts by their offsets in bytes. Where a byte of `there` is 0 there is none; empty, it says that there are all."""
    return _unread(_Buffers(_cellar.fill_texts, offsets, data, there), max(len(offsets) - 1, 0), dtype)


def by_numbers(codes, texts, dtype):
    """Texts by their numbers in a list; -1 is none."""
    return _unread(_Buffers(_cellar.fill_repeated, codes, texts), len(codes), dtype)


def _unread(buffers, rows, dtype):
    # What stands in the place of the texts has their number, and none of them.
    array = StringArray._simple_new(np.broadcast_to(np.array(None, object), rows), dtype)
    array._buffers = buffers
    return array


def _read(array):
    """The array, once it has its texts."""
    buffers = array._buffers
    if buffers is not None:
        NDArrayBacked.__init__(array, buffers.texts(len(array), array.dtype.na_value), array.dtype)
        vars(array).pop("_buffers", None)
    return array


def _reading(method):
    return functools.wraps(method)(lambda self, *args, **kwargs: method(_read(self), *args, **kwargs))


def _item(array, key, getitem):
    """An item of an array that has no texts yet: rows side by side have none either."""
    rows = key[1] if isinstance(key, tuple) and len(key) == 2 and key[0] is ... else key
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        return getitem(array, key)
    start, stop, _step = rows.indices(len(array))
    count, buffers = max(stop - start, 0), array._buffers
    part = _unread(buffers if count == len(array) else buffers.part(start, start + count), count, array.dtype)
    part._readonly = array._readonly
    return part
