"""The one engine of this process."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .errors import SandboxError

if TYPE_CHECKING:
    from ._cellar import Engine

__all__ = ["configure", "engine"]

_HERE = os.path.dirname(os.path.abspath(__file__))
# Engines by the process that they are of. Those of a parent stay, because their threads are not here to end them.
_engines: dict[int, Engine] = {}
_settings: dict[str, object] = {}


def configure(
    *, guests: str | os.PathLike[str] | None = None, cache: str | os.PathLike[str] | None = None, kernels: int | None = None
) -> None:
    """Says where the guests are, where compiled code is kept, and how many interpreters may be in memory at the same time.

    It has to be called before the first sandbox is opened. A program that was installed from a wheel needs none of it.
    """
    if os.getpid() in _engines:
        raise SandboxError("the engine has started already", "usage", "call configure before the first Sandbox")
    given: dict[str, object] = {"guests": guests, "cache": cache, "kernels": kernels}
    _settings.update({name: value for name, value in given.items() if value is not None})


def engine() -> Engine:
    """The engine of this process; it is started when it is first needed."""
    found = _engines.get(os.getpid())
    return found if found is not None else _start()


def _start() -> Engine:
    import atexit

    from ._cellar import Engine

    packed = os.path.join(_HERE, "_dist")
    guests = str(_settings.get("guests") or os.environ.get("CELLAR_GUESTS") or os.path.join(packed, "lib", "cellar", "guests"))
    cache = str(_settings.get("cache") or os.environ.get("CELLAR_CACHE") or "")
    if not cache:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        cache = os.path.join(home, "cellar")
    kernels = _settings.get("kernels")
    made = Engine(guests, cache, command(), _code_list(guests, packed), kernels if isinstance(kernels, int) else None)
    # Another thread may have been as fast.
    made = _engines.setdefault(os.getpid(), made)
    atexit.register(_end, os.getpid())
    return made


def command() -> str | None:
    """The path of the command `cellar` of this package."""
    program = os.environ.get("CELLAR_PROGRAM") or os.path.join(_HERE, "_dist", "bin", "cellar")
    return program if os.path.exists(program) else None


def _code_list(guests: str, packed: str) -> str | None:
    """The digest of the list of machine code, for the guests of the wheel."""
    if not guests.startswith(packed):
        return None
    try:
        with open(os.path.join(packed, "code.sha256.sha256"), encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def _end(process: int) -> None:
    if process == os.getpid() and (found := _engines.pop(process, None)) is not None:
        found.close()


def main() -> None:
    """Runs the command `cellar`."""
    program = command()
    if program is None:
        sys.exit("error: this package came without the command `cellar`")
    os.execv(program, [program, *sys.argv[1:]])
