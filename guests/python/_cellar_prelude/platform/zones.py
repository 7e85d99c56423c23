"""Local time: the zone that `TZ` names decides what clocks show, as `tzset` has it.

The C library here knows UTC alone. The spans of a zone come from the database that `zoneinfo` reads, or from a rule such as
`EST5EDT,M3.2.0,M11.1.0`, and are handed to `zones.c`.
"""

import contextlib
import os
import re
import time

import _cellar

# Rules are followed until this year.
_LAST_YEAR = 2500
_DATABASE = "/usr/share/zoneinfo/"
# As the C library has an unknown zone: UTC, under the letters that the name begins with.
_UTC = (None, b"", [])

# What a rule begins with: the letters of its zone, and how far that is from UTC.
_RULE = re.compile(r"(<[^>]+>|[A-Za-z]{3,})[-+]?[0-9]")

_current = None
_known = {}


def _from_rule(text, starts, spans, kinds):
    """Appends the spans that a rule makes from the last one on, or from 1900."""
    import datetime
    from zoneinfo import _zoneinfo

    def number(info):
        kind = (int(info.utcoff.total_seconds()), bool(info.dstoff), info.tzname)
        if kind not in kinds:
            kinds.append(kind)
        return kinds.index(kind)

    rule = _zoneinfo._parse_tz_str(text)
    if isinstance(rule, _zoneinfo._ttinfo):
        spans.append(number(rule)) if not spans else None
        return
    first = datetime.datetime.fromtimestamp(starts[-1], datetime.UTC).year if starts else 1900
    summer, winter = number(rule.dst), number(rule.std)
    if not spans:
        spans.append(winter)
    for year in range(first, _LAST_YEAR):
        begin, end = rule.transitions(year)
        changes = [(begin - kinds[winter][0], summer), (end - kinds[summer][0], winter)]
        for at, kind in sorted(changes):
            if not starts or at > starts[-1]:
                starts.append(at)
                spans.append(kind)


def _table(name):
    """The spans of what `TZ` says: when they begin, what holds in each, and the kinds of that."""
    from zoneinfo import _common

    name = name.removeprefix(":").removeprefix(_DATABASE)
    if name in ("", "UTC", "Etc/UTC", "localtime"):
        return _UTC
    starts, spans, kinds = [], [], []
    try:
        with _common.load_tzdata(name) as file:
            indices, times, offsets, summers, letters, rule = _common.load_data(file)
    except (OSError, ValueError, LookupError):
        indices, rule = None, name.encode()
        if not _RULE.match(name):
            return [], b"\0", [(0, False, re.match("[A-Za-z]*", name)[0] or "UTC")]
    try:
        if indices is not None:
            kinds = list(dict.fromkeys(zip(offsets, map(bool, summers), letters, strict=True)))
            place = [kinds.index(kind) for kind in zip(offsets, map(bool, summers), letters, strict=True)]
            # What holds before the first change is the first kind that is no summer time.
            spans = [next((index for index in place if not kinds[index][1]), place[0]), *(place[index] for index in indices)]
            starts = list(times)
        if rule:
            _from_rule(rule.decode(), starts, spans, kinds)
    except (ValueError, UnicodeError, OverflowError):
        return _UTC
    return starts, bytes(spans), kinds


def _apply(name):
    global _current
    if name not in _known:
        if len(_known) > 16:
            _known.clear()
        _known[name] = _table(name or "")
    _cellar.set_zone(*_known[name])
    _current = name


def tzset():
    """Makes local time that of the environment variable `TZ`."""
    _apply(os.environ.get("TZ"))
    # As CPython takes them: from the first days and the middle of this year.
    year = time.gmtime().tm_year
    halves = [time.localtime(time.mktime((year, month, 1, 12, 0, 0, 0, 0, -1))) for month in (1, 7)]
    winter, summer = sorted(halves, key=lambda half: half.tm_gmtoff)
    is_two = winter.tm_gmtoff != summer.tm_gmtoff
    time.tzname = (winter.tm_zone, summer.tm_zone)
    time.timezone, time.altzone, time.daylight = -winter.tm_gmtoff, -summer.tm_gmtoff, int(is_two)


def configure():
    """Follows the environment of a new session. Without a `TZ`, as it was baked, there is nothing to do."""
    if os.environ.get("TZ") != _current:
        tzset()


@contextlib.contextmanager
def of_environment():
    """Has clocks show what `TZ` says now, as they do in a program that is started: for commands of the shell."""
    before, now = _current, os.environ.get("TZ")
    if now == before:
        yield
        return
    _apply(now)
    try:
        yield
    finally:
        _apply(before)


def install():
    """Gives `time` its `tzset`."""
    time.tzset = tzset
