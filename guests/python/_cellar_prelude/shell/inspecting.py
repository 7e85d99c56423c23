"""Shell commands that look into files: `file`, `od`, `xxd`, `hexdump` and `strings`."""

import json
import re
import struct

from _cellar_prelude.shell.lines import blobs, contents

# Bytes of a line of each dump.
_ROW = 16
# What files begin with, and what they are. Those of pictures say more.
_SIGNATURES = (
    (b"%PDF-", "PDF document, version {pdf}"), (b"PK\x03\x04", "Zip archive data, at least v2.0 to extract, compression method=deflate"),
    (b"\x1f\x8b", "gzip compressed data"), (b"BZh", "bzip2 compressed data, block size = 900k"), (b"\xfd7zXZ\x00", "XZ compressed data"),
    (b"SQLite format 3\x00", "SQLite 3.x database"), (b"\x7fELF", "ELF executable"), (b"\x00asm", "WebAssembly (wasm) binary module version 0x1 (MVP)"),
    (b"PAR1", "Apache Parquet"), (b"\x93NUMPY", "NumPy data file"), (b"RIFF", "RIFF (little-endian) data"), (b"<?xml", "XML 1.0 document, {text}"),
    (b"<!DOCTYPE html", "HTML document, {text}"), (b"<html", "HTML document, {text}"), (b"#!", "script, {text} executable"),
)  # fmt: skip
_PNG_KINDS = {0: "grayscale", 2: "RGB", 3: "colormap", 4: "gray+alpha", 6: "RGBA"}
_ESCAPES = {0: r"\0", 7: r"\a", 8: r"\b", 9: r"\t", 10: r"\n", 11: r"\v", 12: r"\f", 13: r"\r"}
# Ways of `hexdump`: bytes of a piece, how it is written, and the width of all pieces of a line.
_DUMPS = {"b": (1, " {:03o}", 64), "d": (2, "   {:05d}", 64), "o": (2, "  {:06o}", 64), "x": (2, "    {:04x}", 64)}
# Those of `od`: bytes of each item, its width, how it is shown.
_FORMS = {
    "c": (1, 4, lambda data: _ESCAPES.get(data[0]) or (chr(data[0]) if 32 <= data[0] < 127 else f"{data[0]:03o}")),
    "a": (1, 4, lambda data: chr(data[0]) if 32 < data[0] < 127 else "sp" if data[0] == 32 else "nl" if data[0] == 10 else f"{data[0]:03o}"),
    "x": (0, 0, lambda data: f"{int.from_bytes(data, 'little'):0{2 * len(data)}x}"),
    "o": (0, 0, lambda data: f"{int.from_bytes(data, 'little'):0{(8 * len(data) + 2) // 3}o}"),
    "u": (0, 0, lambda data: str(int.from_bytes(data, "little"))),
    "d": (0, 0, lambda data: str(int.from_bytes(data, "little", signed=True))),
    "f": (0, 0, lambda data: f"{struct.unpack('<f' if len(data) == 4 else '<d', data)[0]:.{7 if len(data) == 4 else 16}g}"),
}
_WIDTHS = {
    ("x", 1): 3, ("x", 2): 5, ("x", 4): 9, ("x", 8): 17, ("o", 1): 4, ("o", 2): 7, ("o", 4): 12, ("o", 8): 23, ("u", 1): 4, ("u", 2): 6,
    ("u", 4): 11, ("u", 8): 21, ("d", 1): 5, ("d", 2): 7, ("d", 4): 12, ("d", 8): 21, ("f", 4): 16, ("f", 8): 25,
}  # fmt: skip
_SIZES = {"C": 1, "S": 2, "I": 4, "L": 8, "F": 4, "D": 8}


def _read(name, stdin):
    return next(blobs([name], stdin))[1]


def _number(text):
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([bkKmM]?)", text)
    if match is None:
        raise ValueError(f"invalid number: {text}")
    return int(match[1], 0 if match[1][:2] in ("0x", "0X") else 10) * {"b": 512, "k": 1024, "K": 1024, "m": 1 << 20, "M": 1 << 20}.get(match[2], 1)


def _shown(data):
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _encoding(data):
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return None
        return "Unicode text, UTF-8 text"
    return None if re.search(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]", data) else "ASCII text"


def _described(data):
    """What `file` says of the content of a file."""
    if not data:
        return "empty"
    text = _encoding(data)
    for sign, said in _SIGNATURES:
        if data[: len(sign)].lower() == sign.lower():
            if sign == b"#!":
                program = data.partition(b"\n")[0].decode("utf-8", "replace").rpartition("/")[2].removeprefix("env ")
                return f"{'Python' if 'python' in program else 'Bourne-Again shell' if program == 'bash' else program} script, {text} executable"
            return said.format(text=text, pdf=data[5:8].decode("latin-1"))
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) > 28:
        width, height, depth, kind, _, _, woven = struct.unpack(">IIBBBBB", data[16:29])
        return f"PNG image data, {width} x {height}, {depth}-bit{'/color' if kind in (2, 6) else ''} {_PNG_KINDS.get(kind, '')}, {'interlaced' if woven else 'non-interlaced'}"
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG image data" + (", JFIF standard 1.01" if data[6:10] == b"JFIF" else "")
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return f"GIF image data, version {data[3:6].decode()}, {' x '.join(map(str, struct.unpack('<HH', data[6:10])))}"
    if data[257:262] == b"ustar":
        return "POSIX tar archive"
    if text is None:
        return "data"
    return _of_text(data.decode(), text)


def _of_text(content, text):
    if content.lstrip()[:1] in ("{", "["):
        try:
            json.loads(content)
        except ValueError:
            pass
        else:
            return "JSON text data"
    if re.search(r"^(import \w+|from [\w.]+ import |def \w+\(.*\):)", content, re.MULTILINE):
        return f"Python script, {text} executable"
    lines = content.splitlines()
    if len(lines) > 1 and lines[0].count(",") and len({line.count(",") for line in lines[:10]}) == 1:
        return f"CSV {text}"
    longest = max(map(len, lines), default=0)
    ends = ", with CRLF line terminators" if "\r\n" in content else "" if "\n" in content else ", with no line terminators"
    return text + (f", with very long lines ({longest})" if longest > 300 else "") + ends


def _rows(data, first, width=_ROW):
    for at in range(0, len(data), width):
        yield first + at, data[at : at + width]


def _od_rows(data, start, forms, base, is_all, width, is_shown, out):
    address = {"o": "{:07o}", "d": "{:07d}", "x": "{:06x}", "n": ""}[base]
    last, is_starred = None, False
    # Columns of several forms are as wide as the widest, for the bytes that they share.
    spans = [(size, max(width * (8 // size) for _, size, width in forms) // (8 // size)) for _, size, _ in forms]
    for at, row in _rows(data, start, width):
        if row == last and not is_all and len(row) == width:
            out.write("" if is_starred else "*\n")
            is_starred = True
            continue
        last, is_starred = row, False
        for number, ((letter, size, _), (_, room)) in enumerate(zip(forms, spans, strict=True)):
            items = [row[place : place + size].ljust(size, b"\0") for place in range(0, len(row), size)]
            head = address.format(at) if number == 0 else " " * len(address.format(at))
            shown = "".join(f"{_FORMS[letter][2](item):>{room}}" for item in items)
            out.write(head + (f"{shown:<{room * (width // size)}}  >{_shown(row)}<" if is_shown else shown) + "\n")
    if base != "n":
        out.write(address.format(start + len(data)) + "\n")


def _form(text):
    """(letter, bytes, width) of what `-t` asks for."""
    match = re.fullmatch(r"([acdfoux])(\d+|[CSILFD]?)z?", text)
    if match is None:
        raise ValueError(f"invalid type string '{text}'")
    letter = match[1]
    if letter in "ac":
        return letter, 1, 4
    size = _SIZES.get(match[2]) or int(match[2] or (8 if letter == "f" else 4))
    if (letter, size) not in _WIDTHS:
        raise ValueError(f"invalid type string '{text}'")
    return letter, size, _WIDTHS[letter, size]


def install(table, options_of, failed):
    """Adds the commands to a table; see `filters`."""

    def file(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "bikLz")
        width = max(map(len, operands), default=0)
        for name in operands:
            try:
                said = _described(stdin.buffer.read() if name == "-" else contents(name))
            except IsADirectoryError:
                said = "directory"
            except FileNotFoundError as error:
                said = f"cannot open `{name}' ({error.strerror})"
            out.write(f"{said}\n" if "b" in options else f"{name + ':':<{width + 1}} {said}\n")

    def od(arguments, stdin, out, _err):
        arguments, forms = list(arguments), []
        short = {"-c": "c", "-a": "a", "-b": "o1", "-x": "x2", "-o": "o2", "-d": "u2", "-h": "x2", "-s": "d2", "-i": "d4", "-f": "f4"}
        rest, given = [], {}
        while arguments:
            each = arguments.pop(0)
            if each in short:
                forms.append(_form(short[each]))
            elif match := re.match(r"-([tANj])(.*)|--(format|address-radix|read-bytes|skip-bytes)=(.*)", each):
                letter = match[1] or {"format": "t", "address-radix": "A", "read-bytes": "N", "skip-bytes": "j"}[match[3]]
                value = (match[4] if match[3] else match[2]) or arguments.pop(0)
                forms += [_form(part) for part in re.findall(r"[acdfoux](?:\d+|[CSILFD])?z?", value)] if letter == "t" else []
                given[letter] = value
            elif match := re.fullmatch(r"(?:-w|--width=)(\d*)", each):
                given["w"] = int(match[1] or 32)
            elif each in ("-v", "--output-duplicates"):
                given["v"] = True
            elif each == "-An":
                given["A"] = "n"
            elif re.fullmatch(r"-[cxabo]{2,}", each):
                forms += [_form(short[f"-{letter}"]) for letter in each[1:]]
            elif each.startswith("-") and each != "-":
                raise failed(f"invalid option -- '{each[1:]}'")
            else:
                rest.append(each)
        data = b"".join(data for _, data in blobs(rest, stdin))
        start = _number(given.get("j", "0"))
        data = data[start:] if "N" not in given else data[start : start + _number(given["N"])]
        width = given.get("w", _ROW)
        if not width or any(width % size for _, size, _ in forms):
            raise failed(f"invalid -w argument '{width}'")
        _od_rows(data, start, forms or [_form("o2")], given.get("A", "o"), given.get("v"), width, "z" in given.get("t", ""), out)

    def xxd(arguments, stdin, out, _err):
        options, operands = options_of([f"-{each[2:]}" if re.fullmatch(r"--?[pru]s?", each) and each.startswith("--") else each.replace("-ps", "-p") for each in arguments], "pruib", "lsgc")
        if "r" in options:
            text = _read(operands[0] if operands else "-", stdin).decode("ascii", "replace")
            lines = text.splitlines() if "p" in options else [re.split(r"\s{2,}", line.partition(":")[2].strip())[0] for line in text.splitlines()]
            data = bytes.fromhex(re.sub(r"\s", "", "".join(lines)))
            if len(operands) > 1:
                with open(operands[1], "wb") as target:
                    target.write(data)
            else:
                out.buffer.write(data)
            return
        data = _read(operands[0] if operands else "-", stdin)
        start = _number(options.get("s", "0"))
        data = data[start:] if "l" not in options else data[start : start + _number(options["l"])]
        show = str.upper if "u" in options else str
        if "p" in options:
            width = int(options.get("c", 30)) or len(data) or 1
            out.write("".join(f"{show(row.hex())}\n" for _, row in _rows(data, 0, width)))
            return
        if "i" in options:
            listed = "".join("  " + ", ".join(f"0x{byte:02x}" for byte in row) + (",\n" if at + 12 < len(data) else "\n") for at, row in _rows(data, 0, 12))
            name = re.sub(r"\W|^(?=\d)", "_", operands[0]) if operands and operands[0] != "-" else None
            out.write(f"unsigned char {name}[] = {{\n{listed}}};\nunsigned int {name}_len = {len(data)};\n" if name else listed)
            return
        columns = max(1, min(int(options.get("c", 6 if "b" in options else _ROW)), 256))
        group = int(options.get("g", 1 if "b" in options else 2)) or columns
        for at, row in _rows(data, start, columns):
            one = (lambda byte: f"{byte:08b}") if "b" in options else (lambda byte: show(f"{byte:02x}"))
            text = " ".join("".join(map(one, row[place : place + group])) for place in range(0, len(row), group))
            width = columns * (8 if "b" in options else 2) + (columns - 1) // group
            out.write(f"{at:08x}: {text:<{width}}  {_shown(row)}\n")

    def hexdump(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "Ccvxbdo", "ns", {"canonical": "C", "no-squeezing": "v", "length": "n", "skip": "s"})
        form = next((_DUMPS[letter] for letter in "bdox" if letter in options), None)
        data = b"".join(data for _, data in blobs(operands, stdin))
        start = _number(options.get("s", "0"))
        data = data[start:] if "n" not in options else data[start : start + _number(options["n"])]
        last, is_starred = None, False
        for at, row in _rows(data, start):
            if row == last and "v" not in options and len(row) == _ROW:
                out.write("" if is_starred else "*\n")
                is_starred = True
                continue
            last, is_starred = row, False
            if "C" in options:
                halves = "  ".join(" ".join(f"{byte:02x}" for byte in half) for half in (row[:8], row[8:]))
                out.write(f"{at:08x}  {halves:<48}  |{_shown(row)}|\n")
            elif "c" in options:
                out.write(f"{at:07x}" + "".join(f"{_FORMS['c'][2](bytes([byte])):>4}" for byte in row).ljust(64) + "\n")
            else:
                size, show, width = form or (2, " {:04x}", 40)
                pieces = [row[place : place + size].ljust(size, b"\0") for place in range(0, len(row), size)]
                out.write(f"{at:07x}" + "".join(show.format(int.from_bytes(piece, "little")) for piece in pieces).ljust(width) + "\n")
        if data:
            out.write(f"{start + len(data):08x}\n" if "C" in options else f"{start + len(data):07x}\n")

    def strings(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "a", "nt", {"all": "a", "bytes": "n", "radix": "t"})
        least = max(int(options.get("n", 4)), 1)
        if options.get("t", "d") not in ("d", "o", "x"):
            raise failed(f"invalid argument to -t: '{options['t']}'")
        place = f"{{:7{options['t']}}} " if "t" in options else ""
        for name in operands or ["-"]:
            found = re.finditer(rb"[\t\x20-\x7e]{%d,}" % least, _read(name, stdin))
            out.write("".join(f"{place.format(each.start())}{each[0].decode()}\n" for each in found))

    table.update({"file": file, "hexdump": hexdump, "od": od, "strings": strings, "xxd": xxd})
