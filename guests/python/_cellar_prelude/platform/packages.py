"""What `pip` and `micropip` do here: packages are granted by the host, so what is there is said to be there, and what is not
leads to the command that the owner of the host runs.
"""

import importlib.metadata
import importlib.util
import os
import re
import shlex
import types

from _cellar_prelude.platform import lacks

# Where the host mounts folders with installed packages. They do not change.
PACKAGES_FOLDER = "/packages/"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
# Options of pip that are followed by a value.
_VALUED = frozenset(
    """-c -d -e -f -i -t --cache-dir --constraint --dest --editable --extra-index-url --find-links --index-url --prefix
    --progress-bar --proxy --root --target --timeout --trusted-host --upgrade-strategy""".split()
)
# Bytes of a file of requirements.
_REQUIREMENTS_MAX = 1 << 20


class NotGranted(ValueError):
    """A package that cannot be imported, with what its owner can do."""


def _distribution(name):
    try:
        return importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _is_importable(module):
    for name in (module, module.lower()):
        try:
            if importlib.util.find_spec(name) is not None:
                return True
        except (ImportError, ValueError):
            continue
    return False


def look(requirement):
    """What `requirement` (`rich`, `requests[socks]>=2`) finds that can be imported: its version, or None of a module without.

    Raises `NotGranted` with what to do.
    """
    text = requirement.split(";")[0].strip()
    found = _NAME.match(text)
    if found is None or re.match(r"\s*(\[[^\]]*\])?\s*([<>=!~(].*)?$", text[found.end() :]) is None or text.endswith((".whl", ".gz", ".zip")):
        raise NotGranted(f"{requirement} cannot be installed: packages are named here, for files and addresses are not installed")
    name = found.group()
    distribution = _distribution(name)
    if distribution is not None:
        return distribution.version
    module = lacks.IMPORTED_AS.get(name.lower(), name.replace("-", "_"))
    if _is_importable(module):
        return None
    raise NotGranted(f"{text} cannot be installed: {_why(text, name, module)}")


def _why(text, name, module):
    remedy = lacks.remedy(module)
    if module.split(".")[0] in lacks.NATIVE_PACKAGES:
        return f"it has native code; {remedy or 'there is nothing like it in this sandbox'}"
    command = lacks.command(shlex.quote(text), name)
    return f"this session was not granted it: {command}" if remedy is None else f"{remedy}; or {command}"


def gone(name, path):
    """Why a module is not there of a package that was: its folder, which is in `path`, is not granted any more. None otherwise."""
    if not any(isinstance(folder, str) and folder.startswith(PACKAGES_FOLDER) and not os.path.isdir(folder) for folder in path):
        return None
    package = name.partition(".")[0]
    return f"the package `{package}`, which this session has imported, is not granted to it any more; {lacks.command(package, package)}"


def program(name):
    """What a program does that comes with a package, as Python's `-c` takes it; None when no package has one of this name."""
    if not _NAME.fullmatch(name):
        return None
    for each in importlib.metadata.entry_points(group="console_scripts", name=name):
        if _is_importable(each.module):
            first = each.attr.partition(".")[0]
            return f"import sys; sys.argv[0] = {name!r}; from {each.module} import {first}; sys.exit({each.attr}())"
    return None


def _requirements(arguments, read_file):
    """The requirements among the arguments of `pip install`."""
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each in ("-r", "--requirement") and rest:
            for line in read_file(rest.pop(0)).splitlines():
                line = line.split(" #")[0].strip()
                if line and not line.startswith(("#", "-")):
                    yield line
        elif each in _VALUED:
            del rest[:1]
        elif not each.startswith("-"):
            yield each


def _read_file(path):
    with open(path, encoding="utf-8") as file:
        return file.read(_REQUIREMENTS_MAX)


def _list(out):
    found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    out.write("".join(f"{name}=={version}\n" for name, version in sorted(found.items(), key=str)))


def _show(names, out, err):
    status = 0
    for name in names:
        found = _distribution(name) if _NAME.fullmatch(name) else None
        if found is None:
            err.write(f"WARNING: Package(s) not found: {name}\n")
            status = 1
            continue
        told = found.metadata
        requires = ", ".join(sorted(_NAME.match(each).group() for each in found.requires or () if "extra ==" not in each))
        out.write(f"Name: {told['Name']}\nVersion: {found.version}\nSummary: {told['Summary'] or ''}\n")
        out.write(f"Location: {found.locate_file('')}\nRequires: {requires}\n")
    return status


def _satisfied(requirement):
    version = look(requirement)
    pinned = re.search(r"===?\s*([\w.+!]+)\s*$", requirement)
    if version is not None and pinned is not None and pinned[1] != version:
        return f"{requirement}, with {version}, the version that there is"
    return f"{requirement} ({version})" if version is not None else requirement


def pip(arguments, out, err):
    """The command `pip`. Returns its exit status, or None for a command that it does not know."""
    what = arguments[0] if arguments else ""
    if what in ("--version", "-V"):
        out.write(f"pip is not in this sandbox; what is there can be imported. To have more, {lacks.PACKAGES}\n")
    elif what in ("list", "freeze"):
        _list(out)
    elif what == "show":
        return _show(arguments[1:], out, err)
    elif what in ("install", "download"):
        status, is_quiet = 0, any(re.fullmatch("-q+|--quiet", each) for each in arguments)
        for each in _requirements(arguments[1:], _read_file):
            try:
                said = f"Requirement already satisfied: {_satisfied(each)}\n"
                out.write("" if is_quiet else said)
            except NotGranted as error:
                err.write(f"ERROR: {error}\n")
                status = 1
        return status
    elif what == "uninstall":
        err.write("ERROR: the host grants packages, and cells cannot take them away\n")
        return 1
    elif what == "check":
        out.write("No broken requirements found.\n")
    else:
        return None
    return 0


# --- micropip


async def _install(requirements, keep_going=False, deps=True, **_options):
    """Finds packages that the session was granted, or that the guest has; a ValueError says what to do for others."""
    failed = []
    for each in [requirements] if isinstance(requirements, str) else list(requirements):
        try:
            look(str(each))
        except NotGranted as error:
            failed.append(str(error))
            if not keep_going:
                break
    if failed:
        raise ValueError("; ".join(failed))


def micropip(name, _refuse):
    """Makes the module `micropip`."""
    module = types.ModuleType(name, "Finds packages that this session was granted.")
    _install.__name__ = _install.__qualname__ = "install"
    module.install = _install
    module.list = lambda: {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return module
