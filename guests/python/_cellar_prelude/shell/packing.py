"""Shell commands that pack and unpack files, and that fetch pages by the hosts that were granted."""

import bz2
import fnmatch
import gzip
import io
import itertools
import lzma
import os
import re
import stat
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib

from _cellar_prelude.shell.lines import blobs, contents, encoded

# Options of `curl` that have a value, and what of them is looked at.
_VALUED = {"X": "method", "H": "header", "d": "data", "o": "output", "u": "user", "A": "agent", "w": "write", "m": "limit", "e": "referer", "F": "form", "b": "cookie"}
_LONG = {
    "request": "X", "header": "H", "output": "o", "user": "u", "user-agent": "A",
    "write-out": "w", "max-time": "m", "connect-timeout": "m", "json": "json", "url": "url", "retry": "retry",
}  # fmt: skip


def _curl(arguments, stdin, out, err):
    given, headers, data, urls, flags = {}, [], [], [], set()
    arguments = list(arguments)
    while arguments:
        each = arguments.pop(0)
        if each.startswith("--"):
            name, equals, value = each[2:].partition("=")
            letter = _LONG.get(name)
            if name.startswith("data"):
                data.append(_posted(name, value if equals else arguments.pop(0), stdin))
                continue
            if letter is None:
                flags.add(name)
                continue
            value = value if equals else arguments.pop(0)
        elif each.startswith("-") and len(each) > 1:
            at = next((at for at, letter in enumerate(each[1:], 1) if letter in _VALUED), len(each))
            flags.update(each[1:at])
            if at == len(each):
                continue
            letter, value = each[at], each[at + 1 :] or arguments.pop(0)
        else:
            urls.append(each)
            continue
        if letter == "json":
            headers += ["Content-Type: application/json", "Accept: application/json"]
            data.append(_posted("data-binary", value, stdin))
        elif letter == "d":
            data.append(_posted("data", value, stdin))
        elif letter == "url":
            urls.append(value)
        else:
            given.update({letter: value}) if letter != "H" else headers.append(value)
    status = 0
    for url in urls:
        status = _fetched(url if "://" in url else f"http://{url}", given, headers, data, flags, out, err)
    return status


def _posted(name, text, stdin):
    """The bytes that an option of `curl` sends: those of a file behind `@`, of which `--data` leaves out the ends of lines."""
    if name == "data-urlencode":
        head, equals, value = text.rpartition("=")
        return f"{head}{equals}{urllib.parse.quote(encoded(value), safe='')}".encode()
    if not text.startswith("@") or name == "data-raw":
        return encoded(text)
    data = stdin.buffer.read() if text == "@-" else contents(text[1:])
    return data if name == "data-binary" else data.translate(None, b"\r\n\0")


def _fetched(url, given, headers, data, flags, out, err):
    body = b"&".join(data) if data and "G" not in flags and "get" not in flags else None
    if data and body is None:
        url += ("&" if "?" in url else "?") + b"&".join(data).decode()
    is_head = bool(flags & {"I", "head"})
    request = urllib.request.Request(url, data=body, method=given.get("X") or ("HEAD" if is_head else None))
    request.add_header("User-Agent", given.get("A", "curl/8.5.0"))
    request.add_header("Accept", "*/*")
    for each in headers:
        name, _, value = each.partition(":")
        request.add_header(name.strip(), value.strip())
    if "u" in given:
        import base64

        request.add_header("Authorization", "Basic " + base64.b64encode(given["u"].encode()).decode())
    try:
        answer = urllib.request.urlopen(request, timeout=float(given.get("m", 30)))
    except urllib.error.HTTPError as error:
        answer = error
    except (urllib.error.URLError, OSError, ValueError) as error:
        if not flags & {"s", "silent"} or flags & {"S", "show-error"}:
            err.write(f"curl: (7) {getattr(error, 'reason', error)}\n")
        return 7
    with answer:
        content = answer.read()
        if answer.status >= 400 and flags & {"f", "fail"}:
            err.write(f"curl: (22) The requested URL returned error: {answer.status}\n")
            return 22
        head = f"HTTP/1.1 {answer.status} {answer.reason}\n{''.join(f'{name}: {value}{chr(10)}' for name, value in answer.headers.items())}\n"
        place = given.get("o") or (os.path.basename(url.partition("?")[0]) if flags & {"O", "remote-name"} else None)
        if flags & {"i", "include"} or is_head:
            out.write(head)
        if place == "/dev/null":
            pass
        elif place and place != "-":
            with open(place, "wb") as file:
                file.write(content)
        elif not is_head:
            out.buffer.write(content)
        if "w" in given:
            said = {"http_code": answer.status, "response_code": answer.status, "size_download": len(content), "content_type": answer.headers.get("Content-Type", "")}
            text = given["w"]
            for name, value in said.items():
                text = text.replace(f"%{{{name}}}", str(value))
            out.write(text.replace("\\n", "\n"))
    return 0


def _wget(arguments, stdin, out, err):
    place, urls, arguments = None, [], list(arguments)
    while arguments:
        each = arguments.pop(0)
        if each.startswith("-O") or each in ("-qO", "-qO-"):
            place = "-" if each in ("-qO-", "-O-") else arguments.pop(0) if each in ("-O", "-qO") else each[2:]
        elif each == "--output-document":
            place = arguments.pop(0)
        elif not each.startswith("-"):
            urls.append(each)
    for url in urls:
        name = place or os.path.basename(url.partition("?")[0].partition("://")[2].rstrip("/")) or "index.html"
        status = _curl(["-sSfL", url, *([] if name == "-" else ["-o", name])], stdin, out, err)
        if status:
            return 8
    return 0


# Bytes of the dictionary of `xz`, at most.
_DICTIONARY_MAX = 8 << 20
# Ways to compress, by the options of `tar` and by the ends of names.
_WAYS = {"z": "gz", "j": "bz2", "J": "xz"}
_TAR = {
    "create": "c", "extract": "x", "get": "x", "list": "t", "append": "r", "file": "f", "directory": "C", "gzip": "z", "gunzip": "z", "bzip2": "j", "xz": "J",
    "verbose": "v", "to-stdout": "O", "auto-compress": "a", "exclude": "exclude=", "strip-components": "strip-components=", "files-from": "T",
    "dereference": "h", "absolute-names": "P", "preserve-permissions": "p", "keep-old-files": "k", "touch": "m", "no-same-owner": "o",
    "owner": "owner=", "group": "group=", "mode": "mode=", "mtime": "mtime=", "sort": "sort=", "format": "format=", "numeric-owner": "numeric-owner",
    "no-recursion": "no-recursion", "overwrite": "overwrite", "wildcards": "wildcards",
}  # fmt: skip
# Faults of what is no archive, or a damaged one.
_DAMAGES = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def _damage(error):
    return "unexpected end of file" if isinstance(error, EOFError) else "this does not look like a tar archive" if "\n" in str(error) else str(error)


class _Packer:
    """`gzip` and its kin: how bytes are packed and unpacked, and how files are named."""

    def __init__(self, name, suffixes, magic, pack, unpack, says):
        self.name, self.suffixes, self.magic = name, suffixes, magic
        self.pack, self._unpack, self._says = pack, unpack, says

    def unpacked(self, data):
        """(the bytes as far as they can be unpacked, why not all of them can). Members that follow each other are one."""
        if not data.startswith(self.magic):
            return b"", self._says if data or self.name == "bzip2" else "unexpected end of file"
        pieces = []
        while data.startswith(self.magic):
            member = self._unpack()
            try:
                # A piece at a time, so that what comes before a damage is had.
                for at in range(0, len(data), 1 << 16):
                    pieces.append(member.decompress(data[at : at + (1 << 16)]))
                    if member.eof:
                        data = member.unused_data + data[at + (1 << 16) :]
                        break
            except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
                return b"".join(pieces), f"compressed data is corrupt ({error})"
            if not member.eof:
                return b"".join(pieces), "unexpected end of file"
        rest = data.strip(b"\0")
        return b"".join(pieces), "decompression OK, trailing garbage ignored" if rest and self.name == "gzip" else "trailing garbage" if rest else None


def _gzip_pack(data, level):
    return gzip.compress(data, level, mtime=0)


def _xz_pack(data, level, form=lzma.FORMAT_XZ, method=lzma.FILTER_LZMA2):
    # The dictionary of the highest levels takes more memory than there is, and none need be larger than the data.
    room = max(4096, min(len(data), _DICTIONARY_MAX))
    return lzma.compress(data, form, filters=[{"id": method, "preset": level, "dict_size": room}])


def _lzma_pack(data, level):
    return _xz_pack(data, level, lzma.FORMAT_ALONE, lzma.FILTER_LZMA1)


_PACKERS = (
    _Packer("gzip", (".gz", ".tgz", "-gz", ".z"), b"\x1f\x8b", _gzip_pack, lambda: zlib.decompressobj(31), "not in gzip format"),
    _Packer("bzip2", (".bz2", ".tbz2", ".tbz", ".bz"), b"BZh", bz2.compress, bz2.BZ2Decompressor, "not a bzip2 file"),
    _Packer("xz", (".xz", ".txz"), b"\xfd7zXZ\0", _xz_pack, lzma.LZMADecompressor, "File format not recognized"),
    _Packer("lzma", (".lzma", ".tlz"), b"\x5d\0", _lzma_pack, lzma.LZMADecompressor, "File format not recognized"),
)
_PACKING = {
    "stdout": "c", "to-stdout": "c", "decompress": "d", "uncompress": "d", "compress": "compress", "test": "t", "list": "l", "no-name": "n", "name": "N", "fast": "1",
    "best": "9", "suffix": "S", "rsyncable": "rsyncable", "extreme": "e", "threads": "T", "format": "F", "recursive": "r", "check": "C", "small": "s", "keep": "k",
}  # fmt: skip


def install(table, options_of, failed, moment):
    """Adds the commands to a table; see `filters`. `moment` gives the seconds that a date of `date -d` means."""

    def labels(options):
        """Attributes that options of `tar` give all members."""
        found = {}
        try:
            if "mtime" in options:
                found["mtime"] = int(moment(options["mtime"], time.time()))
            if "mode" in options:
                found["mode"] = int(options["mode"], 8)
        except ValueError:
            raise failed(f"{options.get('mtime', options.get('mode'))}: a date such as 2026-01-31 or @0, and a mode in octal digits, are what is understood here") from None
        for option, name, number in (("owner", "uname", "uid"), ("group", "gname", "gid")):
            text, _, own = options.get(option, "").partition(":")
            if text.isdigit():
                found |= {name: "", number: int(text)}
            elif text:
                found |= {name: text, number: int(own)} if own.isdigit() else {name: text}
        return found

    def tar(arguments, stdin, out, err):
        arguments = list(arguments)
        if arguments and not arguments[0].startswith("-"):
            # Values of the letters of old stand behind all of them.
            letters, rest = arguments[0], arguments[1:]
            arguments = [part for letter in letters for part in ([f"-{letter}", rest.pop(0)] if letter in "fCT" and rest else [f"-{letter}"])] + rest
        # The folder holds for the names behind it.
        folder, placed, rest, excluded = ".", [], [], []
        while arguments:
            each = arguments.pop(0)
            if each in ("-C", "--directory") or each.startswith(("--directory=", "-C")):
                folder = os.path.join(folder, each.partition("=")[2] if "=" in each and each.startswith("--") else each[2:] if each[:2] == "-C" and each[2:] else arguments.pop(0))
            elif each.startswith("--exclude"):
                excluded.append(each.partition("=")[2] if "=" in each else arguments.pop(0))
            elif each in ("-f", "-T", "--file", "--files-from"):
                rest += [each, arguments.pop(0)]
            elif re.fullmatch(r"-[a-zA-Z]*[fT]", each):
                rest += [each, arguments.pop(0)]
            elif each.startswith("-") and each != "-":
                rest.append(each)
            else:
                placed.append((folder, each))
        options, _ = options_of(rest, "cxtrzjJvpOahPkmo", "fT", _TAR)
        if "T" in options:
            placed += [(folder, each) for each in next(blobs([options["T"]], stdin))[1].decode("utf-8", "surrogateescape").splitlines()]
        ways = [letter for letter in "cxtr" if letter in options]
        if len(ways) != 1:
            raise failed("You must specify one of the '-Acdtrux', '--delete' or '--test-label' options" if not ways else "You may not specify more than one '-Acdtrux', '--delete' or  '--test-label' option")
        name = {"/dev/stdout": "-", "/dev/stdin": "-"}.get(options.get("f", "-"), options.get("f", "-"))
        said = err if "O" in options or (name == "-" and ways == ["c"]) else out
        try:
            if ways[0] in "cr":
                return packed(ways[0], name, placed, options, excluded, out, said, err)
            return unpacked(ways[0], name, folder, placed, options, excluded, stdin, out, said, err)
        except _DAMAGES as error:
            raise failed(f"{name}: {_damage(error)}") from None

    def packed(way, name, placed, options, excluded, out, said, err):
        if not placed:
            raise failed("Cowardly refusing to create an empty archive")
        kind = next((_WAYS[letter] for letter in "zjJ" if letter in options), "")
        if "a" in options:
            kind = next((each for end, each in ((".gz", "gz"), (".tgz", "gz"), (".bz2", "bz2"), (".xz", "xz")) if name.endswith(end)), "")
        target, status, given = io.BytesIO() if name == "-" else None, 0, labels(options)
        mode = "a" if way == "r" else f"w:{kind}"
        with tarfile.open(None if target else name, mode, fileobj=target, format=tarfile.GNU_FORMAT, dereference="h" in options) as archive:

            def taken(member):
                parts = [member.name, *itertools.accumulate(reversed(member.name.split("/")), lambda tail, head: f"{head}/{tail}")]
                return None if any(fnmatch.fnmatchcase(part, each.rstrip("/")) for part in parts for each in excluded) else member.replace(**given, deep=False)

            for folder, each in placed:
                if not os.path.lexists(os.path.join(folder, each)):
                    err.write(f"tar: {each}: Cannot stat: No such file or directory\n")
                    status = 2
                    continue
                known = each if "P" in options else each.lstrip("/")
                archive.add(os.path.join(folder, each), arcname=known or ".", recursive="no-recursion" not in options, filter=taken)
            if "v" in options:
                said.write("".join(f"{each.name}{'/' if each.isdir() else ''}\n" for each in archive.getmembers()))
        if target:
            out.buffer.write(target.getvalue())
        if status:
            err.write("tar: Exiting with failure status due to previous errors\n")
        return status

    def unpacked(way, name, folder, placed, options, excluded, stdin, out, said, err):
        source = io.BytesIO(stdin.buffer.read()) if name == "-" else None
        operands = [each.rstrip("/") for _, each in placed]
        cut = int(options.get("strip-components", 0))
        with tarfile.open(None if source else name, "r:*", fileobj=source) as archive:
            found = set()
            members = []
            for each in archive:
                fits = [one for one in operands if each.name == one or each.name.startswith(f"{one}/") or ("wildcards" in options and fnmatch.fnmatchcase(each.name, one))]
                found.update(fits)
                if (fits or not operands) and not any(fnmatch.fnmatchcase(each.name, one) or fnmatch.fnmatchcase(os.path.basename(each.name), one) for one in excluded):
                    members.append(each)
            shown = "".join((f"{_long(each, 'numeric-owner' in options)}\n" if "v" in options and way == "t" else f"{each.name}{'/' if each.isdir() else ''}\n") for each in members)
            if way == "t" or "v" in options:
                said.write(shown)
            if "O" in options:
                for each in members if way == "x" else ():
                    if each.isfile():
                        out.buffer.write(archive.extractfile(each).read())
            elif way == "x":
                for each in members:
                    parts = each.name.split("/")[cut:]
                    if cut and not "/".join(parts):
                        continue
                    member = each.replace(name="/".join(parts)) if cut else each
                    if "k" in options and member.isfile() and os.path.exists(os.path.join(folder, member.name)):
                        err.write(f"tar: {member.name}: Cannot open: File exists\n")
                        found.discard(member.name)
                        continue
                    archive.extract(member, folder, filter="data")
        missing = [each for each in operands if each not in found]
        for each in missing:
            err.write(f"tar: {each}: Not found in archive\n")
        if missing:
            err.write("tar: Exiting with failure status due to previous errors\n")
        return 2 if missing else 0

    def zip_(arguments, stdin, out, _err):
        options, (name, *operands) = options_of(arguments, "rqj0123456789", "x", {"quiet": "q", "junk-paths": "j", "recurse-paths": "r"})
        is_shown = name == "-"
        name = name if "." in os.path.basename(name) or is_shown else f"{name}.zip"
        paths = []
        for each in operands:
            if each != "-" and not os.path.lexists(each):
                continue
            paths.append(each)
            if os.path.isdir(each) and "r" in options:
                paths += sorted(os.path.join(folder, one) for folder, inner, files in os.walk(each) for one in [*inner, *files])
        if not paths:
            raise failed(f"error: Nothing to do! ({name})")
        target = io.BytesIO() if is_shown else name
        with zipfile.ZipFile(target, "a" if not is_shown and os.path.exists(name) else "w", zipfile.ZIP_STORED if "0" in options else zipfile.ZIP_DEFLATED) as archive:
            for path in paths:
                if path == "-":
                    archive.writestr("-", stdin.buffer.read())
                else:
                    archive.write(path, os.path.basename(path) if "j" in options else path)
                out.write("" if "q" in options or is_shown else f"  adding: {path}{'/' if os.path.isdir(path) else ''}\n")
        if is_shown:
            out.buffer.write(target.getvalue())

    def unzip(arguments, _stdin, out, err):
        options, operands = options_of(arguments, "loqnptj", "d")
        try:
            archive = zipfile.ZipFile(operands[0] if os.path.exists(operands[0]) else f"{operands[0]}.zip")
        except zipfile.BadZipFile:
            err.write(f"unzip: {operands[0]}: End-of-central-directory signature not found\n")
            return 9
        with archive:
            names = [each for each in archive.namelist() if len(operands) == 1 or any(fnmatch.fnmatchcase(each, one) for one in operands[1:])]
            missing = [each for each in operands[1:] if not any(fnmatch.fnmatchcase(name, each) for name in names)]
            if "l" in options:
                rows = [archive.getinfo(name) for name in names]
                out.write(f"Archive:  {operands[0]}\n  Length      Date    Time    Name\n---------  ---------- -----   ----\n")
                for row in rows:
                    when = "{:04}-{:02}-{:02} {:02}:{:02}".format(*row.date_time[:5])
                    out.write(f"{row.file_size:9}  {when}   {row.filename}\n")
                out.write(f"---------                     -------\n{sum(row.file_size for row in rows):9}                     {len(rows)} file{'s' * (len(rows) != 1)}\n")
            elif "t" in options:
                if (damaged := archive.testzip()) is not None:
                    raise failed(f"bad CRC in {damaged}")
                tested = "".join(f"    testing: {name:<24} OK\n" for name in names)
                out.write(f"Archive:  {operands[0]}\n{tested}No errors detected in compressed data of {operands[0]}.\n")
            elif "p" in options:
                for name in names:
                    out.buffer.write(archive.read(name))
            else:
                kept = [name for name in names if not ("n" in options and os.path.exists(os.path.join(options.get("d", "."), name)))]
                archive.extractall(options.get("d", "."), kept)
                out.write("" if "q" in options else f"Archive:  {operands[0]}\n" + "".join(f"  inflating: {name}\n" for name in kept))
        for each in missing:
            err.write(f"caution: filename not matched:  {each}\n")
        return 11 if missing else 0

    def packer(way, before=""):
        def run(arguments, stdin, out, err):
            options, operands = options_of([*([before] if before else []), *arguments], "dkcfqvnNtrlezs0123456789", "STFMC", _PACKING)
            unpacks, status = bool(options.keys() & {"d", "t"}), 0
            unknown = {"l", "F", "r"} & options.keys()
            if unknown and not ("F" in options and options["F"] in (way.name, "auto")):
                raise failed(f"invalid option -- '{min(unknown)}'")
            level = int(max((each for each in options if each.isdigit()), default="6" if way.name != "bzip2" else "9"))
            suffix = "." + options["S"].lstrip(".") if "S" in options else way.suffixes[0]

            def say(name, text, code=1):
                nonlocal status
                err.write(f"{way.name}: {name}: {text}\n")
                status = max(status, code)

            for name in operands or ["-"]:
                shown = "stdin" if name == "-" else name
                try:
                    data = stdin.buffer.read() if name == "-" else contents(name)
                except IsADirectoryError:
                    say(shown, "is a directory -- ignored", 2)
                    continue
                except OSError as error:
                    say(shown, error.strerror)
                    continue
                writes, target = name != "-" and "c" not in options and "t" not in options, name + suffix
                if writes and unpacks:
                    end = next((end for end in (suffix, *way.suffixes) if name.endswith(end) and name != end), None)
                    if end is None:
                        say(shown, "unknown suffix -- ignored", 2)
                        continue
                    target = name.removesuffix(end) + (".tar" if end[1] == "t" else "")
                elif writes and name.endswith(way.suffixes):
                    say(shown, f"already has {suffix} suffix -- unchanged", 2)
                    continue
                if writes and os.path.exists(target) and "f" not in options:
                    say(target, "already exists; not overwritten", 2)
                    continue
                made, fault = way.unpacked(data) if unpacks else (way.pack(data, max(level, 1) if way.name != "xz" else level), None)
                if unpacks and "f" in options and "c" in options and fault == way._says:
                    made, fault = data, None
                is_warning = fault is not None and "trailing" in fault and way.name == "gzip"
                if fault is not None:
                    say(shown, fault, 2 if is_warning or way.name == "bzip2" else 1)
                if "t" in options:
                    continue
                if not writes:
                    out.buffer.write(made)
                elif fault is None or is_warning:
                    with open(target, "wb") as file:
                        file.write(made)
                    if "k" not in options:
                        os.remove(name)
            return status

        return run

    for way in _PACKERS:
        short = {"gzip": "z", "bzip2": "bz", "xz": "xz", "lzma": "lz"}[way.name]
        names = {"gzip": "gunzip", "bzip2": "bunzip2", "xz": "unxz", "lzma": "unlzma"}
        table[way.name], table[names[way.name]], table[f"{short}cat"] = packer(way), packer(way, "-d"), packer(way, "-dc")
    table.update({"curl": _curl, "tar": tar, "unzip": unzip, "wget": _wget, "zip": zip_})


def _long(member, is_numeric):
    """A member as `tar tv` shows it."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(member.mtime))
    owner = f"{member.uid}/{member.gid}" if is_numeric else f"{member.uname or member.uid}/{member.gname or member.gid}"
    link = f" -> {member.linkname}" if member.issym() else f" link to {member.linkname}" if member.islnk() else ""
    return f"{stat.filemode(member.mode | _KINDS.get(member.type, 0))} {owner} {member.size:>{max(18 - len(owner), 1)}} {when} {member.name}{'/' if member.isdir() else ''}{link}"


_KINDS = {tarfile.REGTYPE: stat.S_IFREG, tarfile.AREGTYPE: stat.S_IFREG, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.LNKTYPE: stat.S_IFREG}
