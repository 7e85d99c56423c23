"""Stands between meson and the compiler of the guests.

meson links every extension module into a shared library of its own. The guest has no such thing: all of them are linked
into it. So where a shared library is asked for, a list of what would have been in it is written in its place.
"""

import json
import os
import shlex
import sys

# What meson and the packages pass for other linkers, and what WebAssembly has no use for: it has no floating-point traps.
DROPPED = {"-fPIC", "-ftrapping-math", "-Wl,--as-needed", "-Wl,--no-undefined", "-Wl,--start-group", "-Wl,--end-group"}


def expand(arguments):
    """Replaces `@file` by the arguments in the file."""
    for argument in arguments:
        if argument.startswith("@") and os.path.exists(argument[1:]):
            with open(argument[1:], encoding="utf-8") as file:
                yield from expand(shlex.split(file.read()))
        else:
            yield argument


def main():
    language, *arguments = sys.argv[1:]
    if "-Wl,--version" in arguments:
        # meson asks which linker this is before it asks for anything else.
        print("LLD 22.1.8 (compatible with GNU linkers)")
        return
    arguments = list(expand(arguments))
    if "-shared" in arguments and "-c" not in arguments:
        output = arguments[arguments.index("-o") + 1]
        inputs = [os.path.abspath(name) for name in arguments if name.endswith((".o", ".a")) and name != output]
        with open(output, "w", encoding="utf-8") as file:
            json.dump(inputs, file)
        return
    zig = os.environ["CELLAR_ZIG"]
    if language in ("ar", "ranlib"):
        # meson would keep only the names of the objects in an archive that is not installed: `T`.
        os.execv(zig, [zig, language, *(name.replace("T", "") if name == "csrDT" else name for name in arguments)])
    arguments = [argument for argument in arguments if argument not in DROPPED]
    os.execv(zig, [zig, language, "-target", os.environ["CELLAR_TARGET"], "-fno-sanitize=all", *arguments])


main()
