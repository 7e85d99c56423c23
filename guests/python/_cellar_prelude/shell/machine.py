"""Shell commands that ask for the machine, change files as a whole, or take lines as numbers and names."""

import calendar
import contextlib
import datetime
import graphlib
import math
import os
import random
import re
import shutil
import time

from _cellar_prelude.shell.lines import blobs, encoded, lines_of, texts

# Bytes and lines that a command makes of nothing, at most.
_BYTES_MAX = 1 << 30
_LINES_MAX = 1_000_000
_UNITS = {
    "": 1, "c": 1, "w": 2, "b": 512, "k": 1 << 10, "K": 1 << 10, "KiB": 1 << 10, "m": 1 << 20, "M": 1 << 20, "MiB": 1 << 20, "G": 1 << 30, "GiB": 1 << 30,
    "kB": 1000, "KB": 1000, "MB": 10**6, "GB": 10**9,
}  # fmt: skip


def size_of(text):
    """The bytes that a number with a unit stands for."""
    match = re.fullmatch(r"(\d+)([a-zA-Z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"invalid number: '{text}'")
    return int(match[1]) * _UNITS[match[2]]


def made_bytes(name, size):
    """The first bytes of a device that never ends, or None for what is none."""
    if name not in ("/dev/zero", "/dev/urandom", "/dev/random"):
        return None
    if size is None or size > _BYTES_MAX:
        raise ValueError(f"{name} never ends: ask for no more than {_BYTES_MAX} bytes of it")
    return bytes(size) if name == "/dev/zero" else os.urandom(size)


_SUMS = []


def _posix_sum(data):
    """The checksum of `cksum`, which is not that of zip archives."""
    if not _SUMS:
        for byte in range(256):
            value = byte << 24
            for _ in range(8):
                value = (value << 1 ^ 0x04C11DB7 if value & 0x80000000 else value << 1) & 0xFFFFFFFF
            _SUMS.append(value)
    value, size = 0, len(data)
    for byte in data + size.to_bytes((size.bit_length() + 7) // 8, "little"):
        value = value << 8 & 0xFFFFFFFF ^ _SUMS[value >> 24 ^ byte]
    return value ^ 0xFFFFFFFF


def _factors(number):
    found, each = [], 2
    while each * each <= number:
        while number % each == 0:
            found.append(each)
            number //= each
        each += 1 if each == 2 else 2
    return [*found, number] if number > 1 else found


def _human(number, base):
    units = ["", "K", "M", "G", "T", "P"]
    while abs(number) >= base and len(units) > 1:
        number /= base
        units.pop(0)
    if not units[0]:
        return f"{number:.0f}"
    # As in GNU's, what is left is rounded up.
    text = f"{math.ceil(number * 10) / 10:.1f}" if abs(number) < 10 else f"{math.ceil(number)}"
    return text + units[0]


def install(table, options_of, failed):
    """Adds the commands to a table; see `filters`."""

    def dd(arguments, stdin, out, err):
        given = dict(each.partition("=")[::2] for each in arguments)
        for name in given.keys() - {"bs", "ibs", "obs", "cbs", "count", "skip", "seek", "iseek", "oseek", "if", "of", "conv", "status", "iflag", "oflag"}:
            raise failed(f"unrecognized operand '{name}={given[name]}'")
        changes, flags = (set(filter(None, given.get(name, "").split(","))) for name in ("conv", "iflag"))
        writes = set(filter(None, given.get("oflag", "").split(",")))
        for bad in changes - {"notrunc", "ucase", "lcase", "swab", "sync", "noerror", "fsync", "fdatasync", "excl", "nocreat", "sparse"}:
            raise failed(f"invalid conversion: '{bad}'")
        for bad in (flags | writes) - {"count_bytes", "skip_bytes", "seek_bytes", "fullblock", "append", "direct", "sync", "dsync", "nonblock", "noatime", "nocache"}:
            raise failed(f"invalid input flag: '{bad}'" if bad in flags else f"invalid output flag: '{bad}'")

        def place(name, is_bytes, block):
            text = given.get(name, given.get(f"{'i' if name == 'skip' else 'o'}{name}", "0"))
            return size_of(text.removesuffix("B")) * (1 if is_bytes or text.endswith("B") else block)

        block = size_of(given.get("bs") or given.get("ibs") or "512")
        blocks_out = size_of(given.get("bs") or given.get("obs") or "512")
        wanted = place("count", "count_bytes" in flags, block) if "count" in given else None
        skip, seek = place("skip", "skip_bytes" in flags, block), place("seek", "seek_bytes" in writes, blocks_out)
        source = None if given.get("if") == "/dev/stdin" else given.get("if")
        if given.get("of") == "/dev/stdout":
            del given["of"]
        data = made_bytes(source, wanted) if source else None
        if data is None:
            with contextlib.ExitStack() as held:
                file = held.enter_context(open(source, "rb")) if source else stdin.buffer
                file.read(skip)
                data = file.read(-1 if wanted is None else wanted)
        read = len(data)
        if "swab" in changes:
            data = b"".join(data[at : at + 2][::-1] for at in range(0, len(data) - 1, 2)) + (data[-1:] if len(data) % 2 else b"")
        data = data.upper() if "ucase" in changes else data.lower() if "lcase" in changes else data
        data = data.ljust(-(-len(data) // block) * block, b"\0") if "sync" in changes else data
        if "of" in given and given["of"] != "/dev/null":
            keeps = ("notrunc" in changes or seek) and os.path.exists(given["of"])
            with open(given["of"], "ab" if "append" in writes else "r+b" if keeps else "wb") as file:
                if "append" not in writes:
                    file.seek(seek)
                    file.write(data)
                    file.truncate() if "notrunc" not in changes else None
                else:
                    file.write(data)
        elif "of" not in given:
            out.buffer.write(b"\0" * seek + data)
        if given.get("status") != "none":
            for size, unit, way in ((read, block, "in"), (len(data), blocks_out, "out")):
                err.write(f"{size // unit}+{int(size % unit > 0)} records {way}\n")
            err.write("" if given.get("status") == "noxfer" else f"{len(data)} bytes copied, 0.001 s, {_human(len(data) * 1000, 1000)}B/s\n")

    def truncate(arguments, _stdin, _out, _err):
        options, operands = options_of(arguments, "c", "s")
        text = options.get("s") or options.get("size") or "0"
        for name in operands:
            old = os.path.getsize(name) if os.path.exists(name) else 0
            number = size_of(text.lstrip("+-<>"))
            size = old + number if text[0] == "+" else max(old - number, 0) if text[0] == "-" else number
            with open(name, "ab") as file:
                file.truncate(size)

    def shuf(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "erz", "nio", {"echo": "e", "head-count": "n", "input-range": "i", "repeat": "r"})
        end = "\0" if "z" in options else "\n"
        if "i" in options:
            first, _, last = options["i"].partition("-")
            lines = list(map(str, range(int(first), min(int(last), int(first) + _LINES_MAX) + 1)))
        else:
            lines = operands if "e" in options else lines_of("".join(text for _, text in texts(operands, stdin)), end)
        count = int(options["n"]) if "n" in options else None
        if "r" in options:
            lines = random.choices(lines, k=min(count or _LINES_MAX, _LINES_MAX)) if lines else []
        else:
            random.shuffle(lines)
        data = encoded("".join(f"{line}{end}" for line in lines[:count]))
        if "o" in options:
            with open(options["o"], "wb") as file:
                file.write(data)
        else:
            out.buffer.write(data)

    def factor(arguments, stdin, out, _err):
        for each in arguments or stdin.read().split():
            if not each.isdigit() or len(each) > 15:
                raise failed(f"'{each}' is not a valid positive integer of at most 15 digits")
            out.write(f"{each}: {' '.join(map(str, _factors(int(each))))}".rstrip() + "\n")

    def numfmt(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "", "d")
        for each in operands or stdin.read().split():
            match = re.fullmatch(r"(-?[\d.]+)([KMGTP]?)i?", each)
            if match is None:
                raise failed(f"invalid number: '{each}'")
            base = 1024 if options.get("from") == "iec" else 1000
            number = float(match[1]) * base ** (" KMGTP".index(match[2]) if match[2] else 0)
            bases = {"iec": 1024, "iec-i": 1024, "si": 1000}
            out.write((_human(number, bases[options["to"]]) if options.get("to") in bases else f"{number:.0f}") + "\n")

    def tsort(arguments, stdin, out, _err):
        words = "".join(text for _, text in texts(arguments, stdin)).split()
        graph = graphlib.TopologicalSorter()
        for first, second in zip(words[::2], words[1::2], strict=False):
            graph.add(second, *([first] if first != second else []))
        out.write("".join(f"{each}\n" for each in graph.static_order()))

    def envsubst(_arguments, stdin, out, _err):
        out.write(re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda match: os.environ.get(match[1] or match[2], ""), stdin.read()))

    def iconv(arguments, stdin, out, err):
        options, operands = options_of(arguments, "cs", "fto", {"from-code": "f", "to-code": "t"})
        source, target = options.get("f", "utf-8"), options.get("t", "utf-8")
        ways = re.findall(r"//(TRANSLIT|IGNORE)", target)
        errors = "ignore" if "c" in options or "IGNORE" in ways else "replace" if "TRANSLIT" in ways else "strict"
        status, pieces = 0, []
        for _, data in blobs(operands, stdin):
            try:
                text = data.decode(source, "ignore" if errors == "ignore" else "strict")
            except UnicodeDecodeError as error:
                # Text before the fault is written all the same.
                text, status = data[: error.start].decode(source), 1
                err.write(f"iconv: illegal input sequence at position {error.start}\n")
            try:
                pieces.append(text.encode(target.partition("//")[0], errors))
            except UnicodeEncodeError as error:
                pieces.append(text[: error.start].encode(target.partition("//")[0]))
                err.write(f"iconv: cannot convert the character at position {error.start}\n")
                status = 1
        if "o" in options:
            with open(options["o"], "wb") as file:
                file.write(b"".join(pieces))
        else:
            out.buffer.write(b"".join(pieces))
        return status

    def cksum(arguments, stdin, out, _err):
        for name, data in blobs(options_of(arguments, "", longs={})[1], stdin):
            out.write(f"{_posix_sum(data)} {len(data)}{'' if name == '-' and not arguments else ' ' + name}\n")

    def cal(arguments, _stdin, out, _err):
        today, numbers = datetime.date.today(), [int(each) for each in arguments if each.isdigit()]
        month, year = (None, numbers[0]) if len(numbers) == 1 else numbers if numbers else (today.month, today.year)
        shown = calendar.TextCalendar(calendar.SUNDAY)
        out.write(shown.formatyear(year) if month is None else shown.formatmonth(year, month))

    def install_(arguments, _stdin, _out, _err):
        options, operands = options_of(arguments, "dDvc", "mog")
        if "d" in options:
            for name in operands:
                os.makedirs(name, exist_ok=True)
            return
        *sources, target = operands
        for name in sources:
            place = os.path.join(target, os.path.basename(name)) if os.path.isdir(target) else target
            os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
            shutil.copy(name, place)
            os.chmod(place, int(options.get("m", "755"), 8))

    def unlink(arguments, _stdin, _out, _err):
        os.unlink(arguments[0])

    def chown(arguments, _stdin, _out, _err):
        for name in options_of(arguments, "Rvfh")[1][1:]:
            os.lstat(name)

    def ps(arguments, _stdin, out, _err):
        flags, now = "".join(arguments), time.strftime("%H:%M")
        if "u" in flags:
            out.write("USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n")
            out.write(f"user     {os.getpid():>7}  0.0  0.0      0     0 ?        R    {now}   0:00 python3\n")
        elif "f" in flags:
            out.write(f"UID          PID    PPID  C STIME TTY          TIME CMD\nuser     {os.getpid():>7} {os.getppid():>7}  0 {now} ?        00:00:00 python3\n")
        else:
            out.write(f"    PID TTY          TIME CMD\n{os.getpid():>7} ?        00:00:00 python3\n")

    def uptime(_arguments, _stdin, out, _err):
        minutes = int(time.monotonic() // 60)
        out.write(f" {time.strftime('%H:%M:%S')} up {minutes // 60}:{minutes % 60:02},  0 users,  load average: 0.00, 0.00, 0.00\n")

    def tput(arguments, _stdin, out, _err):
        out.write({"cols": "80\n", "lines": "24\n", "colors": "8\n"}.get(arguments[0] if arguments else "", ""))

    def getconf(arguments, _stdin, out, _err):
        values = {"_NPROCESSORS_ONLN": 1, "_NPROCESSORS_CONF": 1, "PAGESIZE": 4096, "PAGE_SIZE": 4096, "LONG_BIT": 64, "ARG_MAX": 2097152}
        if not arguments or arguments[0] not in values:
            raise failed(f"Unrecognized variable `{' '.join(arguments)}'")
        out.write(f"{values[arguments[0]]}\n")

    def locale(_arguments, _stdin, out, _err):
        out.write("".join(f"{name}=C.UTF-8\n" for name in ("LANG", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_ALL")))

    def said(text):
        return lambda _arguments, _stdin, out, _err: out.write(text) and 0

    nothing = lambda *_: 0  # noqa: E731
    page = lambda arguments, *streams: table["cat"]([each for each in arguments if not each.startswith("-")], *streams)  # noqa: E731
    table.update({
        "arch": said("x86_64\n"), "cal": cal, "chgrp": chown, "chown": chown, "cksum": cksum, "dd": dd, "envsubst": envsubst, "factor": factor,
        "getconf": getconf, "groups": said("user\n"), "iconv": iconv, "install": install_, "less": page, "locale": locale, "more": page,
        "numfmt": numfmt, "pgrep": lambda *_: 1, "ps": ps, "shuf": shuf, "sync": nothing, "tput": tput, "truncate": truncate, "tsort": tsort,
        "tty": lambda _arguments, _stdin, out, _err: out.write("not a tty\n") and 1, "unlink": unlink, "uptime": uptime,
    })  # fmt: skip
