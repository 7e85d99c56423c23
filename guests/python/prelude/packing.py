"""Shell commands that pack and unpack files, and that fetch pages by the hosts that were granted."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile

# Options of `curl` that have a value, and what of them is looked at.
_VALUED = {"X": "method", "H": "header", "d": "data", "o": "output", "u": "user", "A": "agent", "w": "write", "m": "limit", "e": "referer", "F": "form", "b": "cookie"}
_LONG = {
    "request": "X", "header": "H", "data": "d", "data-raw": "d", "data-binary": "d", "output": "o", "user": "u", "user-agent": "A",
    "write-out": "w", "max-time": "m", "connect-timeout": "m", "json": "json", "url": "url", "retry": "retry",
}  # fmt: skip


def _curl(arguments, _stdin, out, err):
    given, headers, data, urls, flags = {}, [], [], [], set()
    arguments = list(arguments)
    while arguments:
        each = arguments.pop(0)
        if each.startswith("--"):
            name, equals, value = each[2:].partition("=")
            letter = _LONG.get(name)
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
            data.append(value)
        elif letter == "url":
            urls.append(value)
        else:
            kept = {"H": headers, "d": data}.get(letter)
            given.update({letter: value}) if kept is None else kept.append(value)
    status = 0
    for url in urls:
        status = _fetched(url if "://" in url else f"http://{url}", given, headers, data, flags, out, err)
    return status


def _fetched(url, given, headers, data, flags, out, err):
    parts = [_read(each[1:]) if each.startswith("@") else each.encode() for each in data]
    body = b"&".join(parts) if data and "G" not in flags and "get" not in flags else None
    if data and body is None:
        url += ("&" if "?" in url else "?") + b"&".join(parts).decode()
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
        elif place:
            with open(place, "wb") as file:
                file.write(content)
        elif not is_head:
            out.write(content.decode("utf-8", "surrogateescape"))
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


def _read(name):
    with open(name, "rb") as file:
        return file.read()


def install(table, options_of, failed):
    """Adds the commands to a table; see `filters`."""

    def tar(arguments, _stdin, out, _err):
        arguments = list(arguments)
        if arguments and not arguments[0].startswith("-"):
            arguments[0] = f"-{arguments[0]}"
        options, operands = options_of(arguments, "cxtzjJvp", "fC")
        name, folder = options.get("f"), options.get("C", ".")
        if not name:
            raise failed("an archive is read from and written to a file: -f NAME")
        if "c" in options:
            kind = "gz" if "z" in options or name.endswith(("gz",)) else "bz2" if "j" in options else "xz" if "J" in options else ""
            with tarfile.open(name, f"w:{kind}") as archive:
                for each in operands:
                    archive.add(os.path.join(folder, each), arcname=each.lstrip("/"))
                out.write("".join(f"{each}\n" for each in archive.getnames()) if "v" in options else "")
            return
        with tarfile.open(name) as archive:
            if "t" in options:
                out.write("".join(f"{each.name}{'/' if each.isdir() else ''}\n" for each in archive))
                return
            members = [each for each in archive if not operands or any(each.name == name or each.name.startswith(f"{name}/") for name in operands)]
            archive.extractall(folder, members=members, filter="data")
            out.write("".join(f"{each.name}\n" for each in members) if "v" in options else "")

    def zip_(arguments, _stdin, out, _err):
        options, (name, *operands) = options_of(arguments, "rqj9")
        name = name if name.endswith(".zip") else f"{name}.zip"
        paths = []
        for each in operands:
            paths.append(each)
            if os.path.isdir(each) and "r" in options:
                paths += sorted(os.path.join(folder, one) for folder, inner, files in os.walk(each) for one in [*inner, *files])
        with zipfile.ZipFile(name, "a" if os.path.exists(name) else "w", zipfile.ZIP_DEFLATED) as archive:
            for path in paths:
                archive.write(path, os.path.basename(path) if "j" in options else path)
                out.write("" if "q" in options else f"  adding: {path}{'/' if os.path.isdir(path) else ''}\n")

    def unzip(arguments, _stdin, out, _err):
        options, operands = options_of(arguments, "loqnpt", "d")
        with zipfile.ZipFile(operands[0]) as archive:
            names = [each for each in archive.namelist() if len(operands) == 1 or each in operands[1:]]
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
                out.write("".join(archive.read(name).decode("utf-8", "surrogateescape") for name in names))
            else:
                archive.extractall(options.get("d", "."), names)
                out.write("" if "q" in options else f"Archive:  {operands[0]}\n" + "".join(f"  inflating: {name}\n" for name in names))

    def packer(module, suffix):
        def run(arguments, stdin, out, _err):
            options, operands = options_of(arguments, "dkcf123456789v")
            for name in operands:
                unpacks = "d" in options
                target = name.removesuffix(suffix) if unpacks else name + suffix
                if unpacks and target == name:
                    raise failed(f"{name}: unknown suffix -- ignored")
                data = module.decompress(_read(name)) if unpacks else module.compress(_read(name))
                if "c" in options:
                    out.write(data.decode("utf-8", "surrogateescape"))
                    continue
                with open(target, "wb") as file:
                    shutil.copyfileobj(io.BytesIO(data), file)
                if "k" not in options:
                    os.remove(name)

        return run

    def unpacker(name):
        return lambda arguments, *streams: table[name](["-d", *arguments], *streams)

    table.update({
        "bzip2": packer(bz2, ".bz2"), "curl": _curl, "gunzip": unpacker("gzip"), "gzip": packer(gzip, ".gz"), "tar": tar, "unzip": unzip,
        "wget": _wget, "xz": packer(lzma, ".xz"), "zcat": lambda arguments, *streams: table["gzip"](["-dc", *arguments], *streams), "zip": zip_,
    })  # fmt: skip
