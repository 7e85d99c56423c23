"""`npm`, as far as it runs the scripts of a package."""

import json
import os

from _cellar_prelude.platform import lacks
from _cellar_prelude.shell import shell

_RUNS = frozenset(("run", "run-script", "rum", "urn"))
_SHORT = {"test": "test", "t": "test", "tst": "test", "start": "start", "stop": "stop", "restart": "restart"}
_INSTALLS = frozenset(("add", "ci", "clean-install", "i", "in", "install", "update", "up", "uninstall", "remove"))


def command(arguments, stdin, out, err):
    """`npm run NAME [-- ARGUMENT …]`, `npm test`, `npm start` and their like."""
    before, given = (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]) if "--" in arguments else (arguments, [])
    words = [each for each in before if not each.startswith("-")]
    flags = {each for each in before if each.startswith("-")}
    first = words[0] if words else ""
    if first in _INSTALLS:
        err.write(f"npm error: no packages are installed in this sandbox: {lacks.PACKAGES}\n")
        return 1
    if first not in _RUNS and first not in _SHORT:
        err.write(f"npm: this sandbox runs the scripts of package.json (npm run NAME, npm test, npm start), and not `npm {first}`\n")
        return 1
    folder = _folder_of_package(os.getcwd())
    if folder is None:
        err.write(f"npm error code ENOENT\nnpm error path {os.path.join(os.getcwd(), 'package.json')}\nnpm error there is no package.json\n")
        return 254
    try:
        with open(os.path.join(folder, "package.json"), encoding="utf-8") as file:
            package = json.load(file)
        scripts = {name: text for name, text in package.get("scripts", {}).items() if isinstance(text, str)}
    except (OSError, ValueError, AttributeError) as error:
        err.write(f"npm error code EJSONPARSE\nnpm error package.json: {error}\n")
        return 1
    if first in _RUNS and len(words) == 1:
        out.write("".join(f"  {name}\n    {text}\n" for name, text in scripts.items()))
        return 0
    name, given = (words[1], [*words[2:], *given]) if first in _RUNS else (_SHORT[first], [*words[1:], *given])
    if name not in scripts:
        if "--if-present" in flags:
            return 0
        err.write(f'npm error Missing script: "{name}"\nnpm error there are: {", ".join(scripts) or "none"}\n')
        return 1
    for each in (f"pre{name}", name, f"post{name}"):
        if each in scripts:
            is_quiet = bool(flags & {"-s", "--silent"})
            status = _script(package, folder, each, scripts[each], given if each == name else [], is_quiet, (stdin, out, err))
            if status:
                return status
    return 0


def _folder_of_package(folder):
    while not os.path.isfile(os.path.join(folder, "package.json")):
        if folder == "/":
            return None
        folder = os.path.dirname(folder)
    return folder


def _script(package, folder, name, text, given, is_quiet, streams):
    """Runs one script in a shell of its own; its exit status."""
    line = " ".join([text, *(shell._quoted(each) for each in given)])
    label = "@".join(str(package[key]) for key in ("name", "version") if package.get(key))
    if not is_quiet:
        streams[1].write(f"\n> {label} {name}\n> {line}\n\n" if label else f"\n> {name}\n> {line}\n\n")
    with shell._surroundings_kept():
        os.chdir(folder)
        named = {"npm_package_name": package.get("name", ""), "npm_package_version": package.get("version", "")}
        os.environ.update({"npm_lifecycle_event": name, "npm_lifecycle_script": text, **{key: str(value) for key, value in named.items()}})
        return shell.script(line, *streams, name="sh")
