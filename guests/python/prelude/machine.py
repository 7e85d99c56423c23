"""Shell commands that ask for the machine, change files as a whole, or take lines as numbers and names."""

import calendar
import datetime
import graphlib
import math
import os
import random
import re
import shutil
import time
import zlib

from _cellar_prelude.lines import lines_of

# Bytes and lines that a command makes of nothing, at most.
_BYTES_MAX = 1 << 30
_LINES_MAX = 1_000_000
_UNITS = {"": 1, "c": 1, "b": 512, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "kB": 1000, "KB": 1000, "MB": 10**6, "GB": 10**9}


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


def install(table, options_of, texts_of, failed):
    """Adds the commands to a table; see `filters`."""

    def dd(arguments, stdin, out, err):
        given = dict(each.partition("=")[::2] for each in arguments)
        block, count = size_of(given.get("bs", "512")), given.get("count")
        wanted = None if count is None else block * size_of(count)
        skip = block * size_of(given.get("skip", "0"))
        source = given.get("if")
        data = made_bytes(source, wanted) if source else stdin.read().encode("utf-8", "surrogateescape")
        if data is None:
            with open(source, "rb") as file:
                file.seek(skip)
                data = file.read(-1 if wanted is None else wanted)
        elif wanted is not None:
            data = data[:wanted]
        if "of" in given and given["of"] != "/dev/null":
            keeps = "notrunc" in given.get("conv", "") and os.path.exists(given["of"])
            with open(given["of"], "r+b" if keeps else "wb") as file:
                file.seek(block * size_of(given.get("seek", "0")))
                file.write(data)
        elif "of" not in given:
            out.write(data.decode("utf-8", "surrogateescape"))
        if given.get("status") != "none":
            whole, part = divmod(len(data), block)
            records = f"{whole}+{int(part > 0)} records"
            err.write(f"{records} in\n{records} out\n{len(data)} bytes copied, 0.001 s, {_human(len(data) * 1000, 1000)}B/s\n")

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
        options, operands = options_of(arguments, "er", "ni")
        if "i" in options:
            first, _, last = options["i"].partition("-")
            lines = list(map(str, range(int(first), min(int(last), int(first) + _LINES_MAX) + 1)))
        else:
            lines = operands if "e" in options else lines_of("".join(text for _, text in texts_of(operands, stdin)))
        count = int(options["n"]) if "n" in options else None
        if "r" in options:
            lines = random.choices(lines, k=min(count or _LINES_MAX, _LINES_MAX)) if lines else []
        else:
            random.shuffle(lines)
        out.write("".join(f"{line}\n" for line in lines[:count]))

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
        words = "".join(text for _, text in texts_of(arguments, stdin)).split()
        graph = graphlib.TopologicalSorter()
        for first, second in zip(words[::2], words[1::2], strict=False):
            graph.add(second, *([first] if first != second else []))
        out.write("".join(f"{each}\n" for each in graph.static_order()))

    def envsubst(_arguments, stdin, out, _err):
        out.write(re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda match: os.environ.get(match[1] or match[2], ""), stdin.read()))

    def iconv(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "cs", "fto")
        source, target = (options.get(letter) or options.get(word) or "utf-8" for letter, word in (("f", "from-code"), ("t", "to-code")))
        ways = re.findall(r"//(TRANSLIT|IGNORE)", target)
        for name in operands or ["-"]:
            data = stdin.read().encode("utf-8", "surrogateescape") if name == "-" else _read(name)
            text = data.decode(source)
            errors = "ignore" if "c" in options or "IGNORE" in ways else "replace" if "TRANSLIT" in ways else "strict"
            changed = text.encode(target.partition("//")[0], errors)
            if "o" in options:
                with open(options["o"], "wb") as file:
                    file.write(changed)
            else:
                out.write(changed.decode("utf-8", "surrogateescape"))

    def cksum(arguments, stdin, out, _err):
        for name in arguments or ["-"]:
            data = stdin.read().encode("utf-8", "surrogateescape") if name == "-" else _read(name)
            out.write(f"{zlib.crc32(data)} {len(data)}{'' if name == '-' else ' ' + name}\n")

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


def _read(name):
    with open(name, "rb") as file:
        return file.read()
