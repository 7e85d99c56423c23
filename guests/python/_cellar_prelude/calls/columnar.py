"""Tables as the host hands them over: a head, then each column with its own, each head as JSON behind its length.

A column is its buffers: where some rows have no value, a byte for each row first, 0 for none; numbers; text as one offset
more than there are values, of 32 bits, and its bytes; categories and texts that repeat as a number for each row, and then the
texts. Lists are one offset more than there are lists, and then their items as a column; structures are their fields. Each buffer has the length that its type and its rows ask for: another one is an error, because it would give other rows
their values. What is here needs nothing but the standard library.
"""

import array
import datetime
import decimal
import json
import struct

import _cellar

# Letters of the module `array`, by the kind, the sign and the bytes of a number.
_LETTERS = {
    ("integer", True): {1: "b", 2: "h", 4: "i", 8: "q"},
    ("integer", False): {1: "B", 2: "H", 4: "I", 8: "Q"},
    ("float", True): {4: "f", 8: "d"},
}
_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime.datetime(1970, 1, 1)
_NOT_A_TIME = -(1 << 63)
_DAYS = datetime.date(1970, 1, 1).toordinal()
# Buffers of kinds that have not two.
_BUFFERS = {"boolean": 1, "integer": 1, "float": 1, "timestamp": 1, "duration": 1, "date": 1, "category": 3, "repeated": 3}
# Bytes of a value, where the kind alone says them.
_WIDTHS = {"boolean": 1, "timestamp": 8, "duration": 8, "date": 4}


class Lent:
    """A table that the host lends, as a file that can be read once."""

    def __init__(self, number, _bytes, _rows):
        self._number = number

    def readinto(self, buffer):
        """Fills a buffer, if the table has as much."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            taken = _cellar.take(self._number, view[filled:])
            if not taken:
                raise EOFError("the rows are not there any more: fetch them again")
            filled += taken
        return filled

    def read(self, length):
        """So many bytes."""
        data = bytearray(length)
        self.readinto(data)
        return data


def head(file):
    """What is said of a table, or of a column."""
    return json.loads(file.read(int.from_bytes(file.read(4), "little")))


def column(file, rows=None):
    """What is said of a column, which has as many rows as the others, if that is known."""
    said = head(file)
    if rows is not None and said["rows"] != rows:
        raise ValueError(f"column {said['name']!r} came with {said['rows']} rows, where the table has {rows}")
    wanted = _lengths(said, said["rows"])
    if wanted != said["buffers"]:
        raise ValueError(f"column {said['name']!r} came in buffers of {said['buffers']} bytes, where its {said['rows']} rows need {wanted}")
    return said


def _lengths(said, rows):
    """How many bytes the buffers of so many values have."""
    kind, mask = said["type"], [rows] if said["nullable"] else []
    name = kind["kind"]
    if name == "null":
        return mask
    if name in ("integer", "float"):
        return [*mask, rows * kind["bits"] // 8]
    if name in _WIDTHS:
        return [*mask, rows * _WIDTHS[name]]
    if name in ("category", "repeated"):
        return [*mask, 4 * rows, 4 * (kind["count"] + 1), kind["bytes"]]
    if name in ("list", "map"):
        return [*mask, 4 * (rows + 1), *_lengths(kind["item"], kind["count"])]
    if name == "struct":
        return [*mask, *(length for field in kind["fields"] for length in _lengths(field, rows))]
    return [*mask, 4 * (rows + 1), kind["bytes"]]


def texts(file, sizes):
    """The texts of a buffer of offsets and one of bytes."""
    return _cellar.texts(file.read(sizes[0]), file.read(sizes[1]))


def numbered(file, sizes):
    """Numbers of texts, and the texts that these are of."""
    return file.read(sizes[0]), texts(file, sizes[1:])


def pieces(file, sizes):
    """The texts of a buffer of offsets and one of bytes, as bytes."""
    offsets = _numbers(file, sizes[0], "i")
    data = file.read(sizes[1])
    return [bytes(data[start:end]) for start, end in zip(offsets, offsets[1:])]


def _numbers(file, length, letter):
    numbers = array.array(letter)
    numbers.frombytes(file.read(length))
    return numbers


def rows(file):
    """A table as a list of dicts."""
    said = head(file)
    names, columns = [], []
    for _ in range(said["columns"]):
        each = column(file, said["rows"])
        names.append(each["name"])
        columns.append(values(file, each, each["rows"], [*each["buffers"]]))
    if not columns:
        return [{} for _ in range(said["rows"] or 0)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values(file, said, rows, sizes):
    """The values of a column, or of what lies in one, as a list. It takes the sizes of their buffers."""
    there = file.read(sizes.pop(0)) if said["nullable"] else None
    found = _values(file, said["type"], rows, sizes)
    if (said.get("extension") or {}).get("name") == "arrow.uuid":
        import uuid

        found = [uuid.UUID(bytes=value) if len(value) == 16 else value for value in found]
    if there is not None:
        found = [value if is_there else None for value, is_there in zip(found, there, strict=True)]
    return found


def _values(file, kind, rows, sizes):
    name = kind["kind"]
    if name == "null":
        return [None] * rows
    if name in ("list", "map"):
        ends = _numbers(file, sizes.pop(0), "i")
        items = [*values(file, kind["item"], kind["count"], sizes)]
        if name == "map":
            items = [tuple(entry.values()) for entry in items]
        return [items[start:end] for start, end in zip(ends, ends[1:])]
    if name == "struct":
        names = [field["name"] for field in kind["fields"]]
        columns = [values(file, field, rows, sizes) for field in kind["fields"]]
        return [dict(zip(names, row)) for row in zip(*columns)] if columns else [{} for _ in range(rows)]
    own = [sizes.pop(0) for _ in range(_BUFFERS.get(name, 2))]
    return _flat(file, kind, own)


def _flat(file, kind, sizes):
    name = kind["kind"]
    if name == "boolean":
        return [value != 0 for value in file.read(sizes[0])]
    if name == "float" and kind["bits"] == 16:
        data = file.read(sizes[0])
        return struct.unpack(f"<{len(data) // 2}e", data)
    if name in ("integer", "float"):
        return _numbers(file, sizes[0], _LETTERS[name, kind.get("signed", True)][kind["bits"] // 8])
    if name == "timestamp":
        return _moments(_numbers(file, sizes[0], "q"), _A_SECOND[kind["unit"]], kind["zone"])
    if name == "duration":
        a_second = _A_SECOND[kind["unit"]]
        return [
            None if number == _NOT_A_TIME else datetime.timedelta(microseconds=number * 1_000_000 // a_second)
            for number in _numbers(file, sizes[0], "q")
        ]
    if name == "date":
        return [_day(number) for number in _numbers(file, sizes[0], "i")]
    if name in ("category", "repeated"):
        return _cellar.repeated(*numbered(file, sizes))
    if name == "binary":
        return pieces(file, sizes)
    found = texts(file, sizes)
    # Where there is no value, there is an empty text.
    convert = {"decimal": decimal.Decimal, "time": time, "json": json.loads}.get(name)
    return [convert(text) if text else None for text in found] if convert else found


def time(text):
    """A time of day, of which Python has microseconds."""
    if text[15:].strip("0"):
        raise ValueError(f"the time {text} is finer than a microsecond, which Python's times are not")
    return datetime.time.fromisoformat(text)


def _moments(numbers, a_second, zone):
    here = None
    if zone is not None:
        here = datetime.timezone.utc if zone in ("UTC", "+00:00") else _zone(zone)
    made = []
    for number in numbers:
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=number * 1_000_000 // a_second)
        except OverflowError:
            made.append(None)
            continue
        if number == _NOT_A_TIME:
            moment = None
        elif here is not None:
            moment = moment.replace(tzinfo=datetime.timezone.utc).astimezone(here)
        made.append(moment)
    return made


def _zone(name):
    import zoneinfo

    if name[:1] in "+-":
        hours, _, minutes = name[1:].partition(":")
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0))
        return datetime.timezone(-offset if name[0] == "-" else offset)
    return zoneinfo.ZoneInfo(name)


def _day(number):
    try:
        return datetime.date.fromordinal(_DAYS + number)
    except (OverflowError, ValueError):
        return None
