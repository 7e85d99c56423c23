"""What tables take on a 64-bit machine, where each reference has eight bytes, as `frame.info()` prints it."""

import sys

_REFERENCE = 8


def begin():
    """Has pandas count references as they are there."""
    from pandas._libs import lib
    from pandas.core.arrays._mixins import NDArrayBackedExtensionArray
    from pandas.core.arrays.string_ import StringArray
    from pandas.core.base import IndexOpsMixin

    IndexOpsMixin.nbytes = property(lambda self: _bytes_of(self._values), doc=IndexOpsMixin.nbytes.__doc__)
    NDArrayBackedExtensionArray.nbytes = property(lambda self: _bytes_of(self._ndarray), doc=NDArrayBackedExtensionArray.nbytes.__doc__)
    StringArray.memory_usage = _memory_usage
    lib.memory_usage_of_objects = memory_usage_of_objects


def _is_objects(values):
    return type(values).__name__ == "ndarray" and values.dtype == object


def _bytes_of(values):
    return values.size * _REFERENCE if _is_objects(values) else values.nbytes


def _memory_usage(self, deep=False):
    size = self.nbytes
    return size + memory_usage_of_objects(self._ndarray) if deep else size


def memory_usage_of_objects(values):
    """What the objects in an array take, each as often as it is there."""
    return sum(map(sys.getsizeof, values.ravel().tolist()))
