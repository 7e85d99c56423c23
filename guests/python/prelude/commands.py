"""The few shell commands that there are: lines such as `!ls -l data | head -3`. Each is a function; programs are processes.

A command writes to the streams it is given and returns an exit status. One that is not there says so, and the cell goes on.
"""

import fnmatch
import glob
import importlib.metadata
import importlib.util
import io
import os
import re
import shlex
import shutil
import stat
import sys
import time

from _cellar_prelude import lacks

_NOT_FOUND = 127
# A line is cut into no more commands than this.
_COMMANDS_MAX = 100


class _Exit(Exception):
    """`exit` ends the shell with a status."""


class _Failed(Exception):
    """A command failed; its message is for standard error."""


def _options(arguments, flags, valued=""):
    """Splits (options, operands): letters of `flags`, and of `valued` with their value; `-10` is `n` with the value 10."""
    found, operands = {}, []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each == "--":
            operands += rest
            break
        if not each.startswith("-") or each == "-":
            operands.append(each)
        elif each[1:].isdigit() and "n" in valued:
            found["n"] = each[1:]
        elif each.startswith("--"):
            found[each[2:].partition("=")[0]] = each.partition("=")[2] or True
        else:
            for at, letter in enumerate(each[1:], 2):
                if letter in valued:
                    found[letter] = each[at:] or (rest.pop(0) if rest else "")
                    break
                if letter not in flags:
                    raise _Failed(f"invalid option -- '{letter}'")
                found[letter] = True
    return found, operands


def _texts(operands, stdin):
    """(name, text) of each file, or of standard input."""
    for name in operands or ["-"]:
        if name == "-":
            yield name, stdin.read()
        else:
            with open(name, encoding="utf-8", errors="replace") as file:
                yield name, file.read()


# --- Commands: (arguments, stdin, stdout, stderr) -> status or None


def _ls(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "la1hRtrAFdS")
    places = operands or ["."]
    for number, place in enumerate(places):
        is_folder = os.path.isdir(place) and "d" not in options
        names = sorted(os.listdir(place)) if is_folder else [place]
        if not is_folder:
            os.lstat(place)
        if is_folder and "a" not in options and "A" not in options:
            names = [name for name in names if not name.startswith(".")]
        path = (lambda name: os.path.join(place, name)) if is_folder else (lambda name: name)
        if "t" in options or "S" in options:
            key = (lambda name: os.lstat(path(name)).st_mtime) if "t" in options else (lambda name: os.lstat(path(name)).st_size)
            names.sort(key=key, reverse=True)
        if "r" in options:
            names.reverse()
        if len(places) > 1 and is_folder:
            out.write(f"{os.linesep if number else ''}{place}:\n")
        if "l" in options and is_folder:
            out.write(f"total {sum((os.lstat(path(name)).st_size + 1023) // 1024 for name in names)}\n")
        for name in names:
            if "l" not in options:
                out.write(f"{name}\n")
                continue
            found = os.lstat(path(name))
            when = time.strftime("%b %d %H:%M", time.localtime(found.st_mtime))
            size = _human(found.st_size) if "h" in options else found.st_size
            out.write(f"{stat.filemode(found.st_mode)} {found.st_nlink} user user {size:>8} {when} {name}\n")


def _human(size):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or unit == "G":
            return f"{size:.0f}{unit}" if unit == "" or size >= 10 else f"{size:.1f}{unit}"
        size /= 1024


def _cat(arguments, stdin, out, _err):
    options, operands = _options(arguments, "n")
    for _, text in _texts(operands, stdin):
        if "n" in options:
            text = "".join(f"{number:6}\t{line}" for number, line in enumerate(text.splitlines(True), 1))
        out.write(text)


def _echo(arguments, _stdin, out, _err):
    end = "\n"
    while arguments and arguments[0] in ("-n", "-e"):
        end = "" if arguments[0] == "-n" else end
        arguments = arguments[1:]
    out.write(" ".join(arguments) + end)


def _head(arguments, stdin, out, _err):
    options, operands = _options(arguments, "q", "nc")
    count = int(options.get("n", 10))
    for name, text in _texts(operands, stdin):
        if len(operands) > 1:
            out.write(f"==> {name} <==\n")
        out.write(text[: int(options["c"])] if "c" in options else "".join(text.splitlines(True)[:count]))


def _tail(arguments, stdin, out, _err):
    options, operands = _options(arguments, "q", "nc")
    count = str(options.get("n", 10))
    for _, text in _texts(operands, stdin):
        lines = text.splitlines(True)
        first = int(count) - 1 if count.startswith("+") else max(len(lines) - abs(int(count)), 0)
        out.write("".join(lines[first:]))


def _wc(arguments, stdin, out, _err):
    options, operands = _options(arguments, "lwcm")
    wanted = [letter for letter in "lwcm" if letter in options] or list("lwc")
    totals = dict.fromkeys(wanted, 0)
    for name, text in _texts(operands, stdin):
        counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode()), "m": len(text)}
        for letter in wanted:
            totals[letter] += counts[letter]
        out.write(" ".join([*(str(counts[letter]) for letter in wanted), *([name] if operands else [])]) + "\n")
    if len(operands) > 1:
        out.write(" ".join([*(str(totals[letter]) for letter in wanted), "total"]) + "\n")


def _mkdir(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "pv", "m")
    for name in operands:
        os.makedirs(name, exist_ok=True) if "p" in options else os.mkdir(name)


def _rm(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "rRfvid")
    for name in operands:
        if not os.path.lexists(name) and "f" in options:
            continue
        if os.path.isdir(name) and not os.path.islink(name):
            if "r" not in options and "R" not in options:
                raise _Failed(f"cannot remove '{name}': Is a directory")
            shutil.rmtree(name)
        else:
            os.remove(name)


def _cp(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "rRapfv")
    _each_to(operands, lambda source, target: _copy(source, target, options))


def _copy(source, target, options):
    if not os.path.isdir(source):
        shutil.copy(source, target)
    elif options.keys() & {"r", "R", "a"}:
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        raise _Failed(f"-r not specified; omitting directory '{source}'")


def _mv(arguments, _stdin, _out, _err):
    _each_to(_options(arguments, "fvn")[1], shutil.move)


def _each_to(operands, action):
    if len(operands) < 2:
        raise _Failed("missing file operand")
    *sources, target = operands
    for source in sources:
        action(source, os.path.join(target, os.path.basename(source.rstrip("/"))) if os.path.isdir(target) else target)


def _touch(arguments, _stdin, _out, _err):
    for name in _options(arguments, "acm")[1]:
        with open(name, "a"):
            os.utime(name)


def _grep(arguments, stdin, out, _err):
    options, operands = _options(arguments, "invcrRlEFHhowx", "em")
    pattern = options.get("e") or operands.pop(0)
    pattern = re.escape(pattern) if "F" in options else pattern
    pattern = rf"\b(?:{pattern})\b" if "w" in options else pattern
    wanted = re.compile(pattern, re.IGNORECASE if "i" in options else 0)
    if options.keys() & {"r", "R"}:
        operands = [path for place in operands or ["."] for path in _files(place)]
    found = False
    for name, text in _texts(operands, stdin):
        head = f"{name}:" if len(operands) > 1 or options.keys() & {"r", "R", "H"} else ""
        lines = [
            (number, line) for number, line in enumerate(text.splitlines(), 1) if bool(wanted.search(line)) != ("v" in options)
        ]
        found |= bool(lines)
        if "c" in options:
            out.write(f"{head}{len(lines)}\n")
        elif "l" in options:
            out.write(f"{name}\n" if lines else "")
        else:
            for number, line in lines:
                shown = [match[0] for match in wanted.finditer(line)] if "o" in options else [line]
                out.write("".join(f"{head}{f'{number}:' if 'n' in options else ''}{each}\n" for each in shown))
    return 0 if found else 1


def _files(place):
    if not os.path.isdir(place):
        return [place]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names)


def _sort(arguments, stdin, out, _err):
    options, operands = _options(arguments, "rnu", "kt")
    lines = [line for _, text in _texts(operands, stdin) for line in text.splitlines()]

    def key(line):
        if "k" in options:
            parts = line.split(options.get("t"))
            column = int(options["k"].split(",")[0].rstrip("nr")) - 1
            line = parts[column] if column < len(parts) else ""
        if "n" in options or "n" in str(options.get("k", "")):
            match = re.match(r"\s*-?\d+\.?\d*", line)
            return (float(match[0]) if match else 0.0, line)
        return (0.0, line)

    lines = sorted(set(lines) if "u" in options else lines, key=key, reverse="r" in options)
    out.write("".join(f"{line}\n" for line in lines))


def _uniq(arguments, stdin, out, _err):
    options, operands = _options(arguments, "cd")
    groups = []
    for _, text in _texts(operands, stdin):
        for line in text.splitlines():
            if groups and groups[-1][1] == line:
                groups[-1][0] += 1
            else:
                groups.append([1, line])
    for count, line in groups:
        if "d" not in options or count > 1:
            out.write(f"{count:7} {line}\n" if "c" in options else f"{line}\n")


def _find(arguments, _stdin, out, _err):
    places = []
    while arguments and not arguments[0].startswith("-"):
        places.append(arguments[0])
        arguments = arguments[1:]
    tests, depth = [], None
    while arguments:
        option, value = arguments[0], arguments[1] if len(arguments) > 1 else ""
        if option in ("-name", "-iname"):
            fold = str.lower if option == "-iname" else str
            tests.append(lambda path, value=value, fold=fold: fnmatch.fnmatchcase(fold(os.path.basename(path)), fold(value)))
        elif option == "-type":
            tests.append(os.path.isdir if value == "d" else os.path.isfile)
        elif option == "-maxdepth":
            depth = int(value)
        else:
            raise _Failed(f"unknown predicate `{option}'")
        arguments = arguments[2:]
    for place in places or ["."]:
        for folder, folders, names in os.walk(place):
            level = os.path.relpath(folder, place).count("/") + (folder != place)
            folders.sort()
            paths = [folder] if folder == place else []
            if depth is None or level < depth:
                paths += [os.path.join(folder, name) for name in sorted([*folders, *names])]
            else:
                folders.clear()
            out.write("".join(f"{path}\n" for path in paths if all(test(path) for test in tests)))


def _du(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "shk", "d")
    for place in operands or ["."]:
        size = sum(os.lstat(path).st_size for path in _files(place))
        out.write(f"{_human(size) if 'h' in options else (size + 1023) // 1024}\t{place}\n")


def _pip(arguments, _stdin, out, err):
    what = arguments[0] if arguments else ""
    if what in ("--version", "-V"):
        out.write("pip is not in this sandbox; what is there can be imported\n")
        return 0
    if what in ("list", "freeze"):
        found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
        out.write("".join(f"{name}=={version}\n" for name, version in sorted(found.items(), key=str)))
        return 0
    if what not in ("install", "show", "uninstall", "download"):
        raise _Failed(f"unknown command \"{what}\"")
    status, skip = 0, False
    for each in arguments[1:]:
        if skip or each.startswith("-"):
            skip = each in ("-r", "-t", "-i", "--index-url", "--extra-index-url", "--target", "--requirement")
            continue
        name = re.split(r"[\[<>=!~;@ ]", each)[0]
        module = lacks.IMPORTED_AS.get(name.lower(), name.replace("-", "_"))
        if _is_there(module):
            out.write(f"Requirement already satisfied: {each}\n")
            continue
        status = 1
        why = lacks.remedy(module) or "it is not in this sandbox, and " + lacks.PACKAGES
        err.write(f"ERROR: {each} cannot be installed: {why}\n")
    return status


def _is_there(module):
    for name in (module, module.lower()):
        try:
            if importlib.util.find_spec(name) is not None:
                return True
        except (ImportError, ValueError):
            continue
    return False


def _which(arguments, _stdin, out, _err):
    missing = [name for name in arguments if name not in _COMMANDS]
    out.write("".join(f"/usr/bin/{name}\n" for name in arguments if name in _COMMANDS))
    return int(bool(missing))


def _cd(arguments, _stdin, _out, _err):
    os.chdir(os.path.expanduser(arguments[0]) if arguments else os.environ.get("HOME", "/"))


def _leave(arguments, *_streams):
    raise _Exit(int(arguments[0]) if arguments and arguments[0].isdigit() else 0)


def _env(arguments, _stdin, out, _err):
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals:
            os.environ[name] = value
    if not arguments:
        out.write("".join(f"{name}={value}\n" for name, value in sorted(os.environ.items())))


def _write(text):
    return lambda _arguments, _stdin, out, _err: out.write(text()) and 0


_COMMANDS = {
    "cat": _cat,
    "cd": _cd,
    "cp": _cp,
    "date": _write(lambda: time.strftime("%a %b %d %H:%M:%S UTC %Y\n", time.gmtime())),
    "du": _du,
    "echo": _echo,
    "env": _env,
    "exit": _leave,
    "export": _env,
    "false": lambda *_: 1,
    "find": _find,
    "grep": _grep,
    "head": _head,
    "ls": _ls,
    "mkdir": _mkdir,
    "mv": _mv,
    "nproc": _write(lambda: "1\n"),
    "pip": _pip,
    "pip3": _pip,
    "pwd": _write(lambda: f"{os.getcwd()}\n"),
    "rm": _rm,
    "sleep": lambda arguments, *_: time.sleep(float(arguments[0])),
    "sort": _sort,
    "tail": _tail,
    "touch": _touch,
    "true": lambda *_: 0,
    "uname": _write(lambda: "Linux\n"),
    "uniq": _uniq,
    "wc": _wc,
    "which": _which,
    "whoami": _write(lambda: "user\n"),
}
_REMEDIES = {
    "apt": lacks.PACKAGES,
    "apt-get": lacks.PACKAGES,
    "conda": lacks.PACKAGES,
    "curl": "use urllib.request, if the session was granted the host",
    "tar": "use the module tarfile",
    "unzip": "use the module zipfile",
    "uv": lacks.PACKAGES,
    "wget": "use urllib.request, if the session was granted the host",
    "zip": "use the module zipfile",
}


def is_known(name):
    """Whether there is a command of this name."""
    return name in _COMMANDS


def remedy(name):
    """What there is instead of a command that is not there."""
    return _REMEDIES.get(name) or f"there are no programs in this sandbox but {', '.join(sorted(_COMMANDS))}"


def add_programs(run, names):
    """Adds programs, which `run` runs as processes, given their arguments with their names first."""
    for name in names:
        _COMMANDS[name] = lambda arguments, stdin, out, err, name=name: run([name, *arguments], stdin, out, err)


# --- Lines


def _split(line):
    """The words of a line and its operators, as (text, is operator) pairs; patterns and variables are expanded."""
    lexer = shlex.shlex(line, posix=False, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    pairs = []
    for token in lexer:
        if token and set(token) <= set("|&;<>"):
            pairs.append((token, True))
            continue
        if not token.startswith("'"):
            token = re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda match: os.environ.get(match[1] or match[2], ""), token)
        is_bare = not any(quote in token for quote in "'\"\\")
        text = token if is_bare else "".join(shlex.split(token)) if token.strip() else ""
        if is_bare and text.startswith("~"):
            text = os.path.expanduser(text)
        found = sorted(glob.glob(text)) if is_bare and any(sign in text for sign in "*?[") else []
        pairs += [(each, False) for each in found or [text]]
    return pairs


def run_words(words, stdin, out, err):
    """Runs one command; returns its exit status."""
    name = words[0].rpartition("/")[2]
    command = _COMMANDS.get(name)
    if command is None:
        err.write(f"{words[0]}: command not found: {remedy(name)}\n")
        return _NOT_FOUND
    try:
        return command(words[1:], stdin, out, err) or 0
    except _Failed as error:
        err.write(f"{name}: {error}\n")
    except OSError as error:
        err.write(f"{name}: {error.filename}: {error.strerror}\n" if error.filename else f"{name}: {error}\n")
    except (ValueError, IndexError, re.error) as error:
        err.write(f"{name}: {error}\n")
    return 1


def _run_one(words, stdin, out, err):
    """Runs one command with the variables that are set before it."""
    before = dict(os.environ)
    count = next((number for number, word in enumerate(words) if not re.fullmatch(r"\w+=.*", word, re.DOTALL)), len(words))
    try:
        os.environ.update(word.split("=", 1) for word in words[:count])
        return run_words(words[count:], stdin, out, err) if count < len(words) else 0
    finally:
        if 0 < count < len(words):
            os.environ.clear()
            os.environ.update(before)


class _Line:
    """Commands with what joins them."""

    def __init__(self, stdin, out, err):
        self._stdin, self._out, self._err = stdin, out, err
        self.status = 0

    def run(self, pairs):
        """Runs them; the exit status of the last is the line's."""
        words, piped, skipped = [], None, False
        for text, is_operator in [*pairs[: _COMMANDS_MAX * 20], (";", True)]:
            if not is_operator or text[0] in "<>":
                words.append((text, is_operator))
                continue
            if text == "|":
                piped = io.StringIO(self._captured(words, piped)) if not skipped else None
            else:
                if words and not skipped:
                    self._plain(words, piped, self._out)
                piped = None
                skipped = (text == "&&" and self.status != 0) or (text == "||" and self.status == 0)
            words = []
        return self.status

    def _captured(self, words, piped):
        held = io.StringIO()
        self._plain(words, piped, held)
        return held.getvalue()

    def _plain(self, words, piped, out):
        """One command with its redirections."""
        arguments, files, err, stdin = [], [], self._err, piped or self._stdin
        words = list(words)
        try:
            while words:
                text, is_operator = words.pop(0)
                if not is_operator:
                    arguments.append(text)
                    continue
                number = arguments.pop() if arguments and arguments[-1] in ("1", "2") else "1"
                if text == ">&":
                    words.pop(0)
                    out, err = (out, out) if number == "2" else (err, err)
                    continue
                name = words.pop(0)[0]
                if text == "<":
                    stdin = open(name, encoding="utf-8")
                    files.append(stdin)
                    continue
                file = io.StringIO() if name == "/dev/null" else open(name, "a" if text == ">>" else "w", encoding="utf-8")
                files.append(file)
                if number == "2":
                    err = file
                else:
                    out = file
            if arguments:
                self.status = _run_one(arguments, stdin, out, err)
        except OSError as error:
            self._err.write(f"{error.filename}: {error.strerror}\n")
            self.status = 1
        finally:
            for file in files:
                file.close()


def run(line, out, err, stdin=None):
    """Runs a line of commands; returns its exit status."""
    try:
        pairs = _split(line)
    except ValueError as error:
        err.write(f"{error}\n")
        return 2
    try:
        return _Line(stdin or io.StringIO(), out, err).run(pairs)
    except _Exit as end:
        return end.args[0]


def run_apart(line, out, err):
    """The same for a line whose changes of folder are its own, as those of a shell of its own would be."""
    folder = os.getcwd()
    try:
        return run(line, out, err)
    finally:
        if os.getcwd() != folder:
            os.chdir(folder)


def capture(line, err):
    """(exit status, text) of a line of commands."""
    out = io.StringIO()
    status = run_apart(line, out, err)
    return status, out.getvalue()


def script(text, stdin, out, err, filled=str):
    """Runs lines of commands; returns the exit status of the last. `filled` makes the text to run of each line."""
    status, stops = 0, False
    for line in text.replace("\\\n", "").splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "set":
            stops = stops or any(word.startswith("-") and "e" in word for word in words[1:])
        elif words[0] == "exit":
            return int(words[1]) if len(words) > 1 and words[1].isdigit() else status
        else:
            status = run(filled(line), out, err, stdin)
            if stops and status:
                break
    return status
