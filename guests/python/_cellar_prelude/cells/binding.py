"""The names that a cell binds at the top level, told to the host at its end where somebody asks for them.

The native half hears of every change of the namespace while a cell is traced, whatever makes it: assignments, imports,
`del`, `exec`, `globals()[...]`. It knows for which cell the code runs, so that cells that interleave are told apart, and what a
task does after its cell has ended is told of nobody.

Binding a name to the very object that it has changes nothing that could be heard of. Where the cell's own code does that
on every way through it, it counts; in a branch, a loop or a `try` that may not have run, it does not. A change of the object
itself, as `list.append` makes it, binds no name.
"""

import dis
import re

import _cellar

# Names that the prelude binds for cells, and those that Python keeps for itself.
_NOT_OF_CELLS = re.compile(r"_{1,3}|_\d+|_i{1,3}|_i\d+|In|Out|__\w+__")
# Bytes of code that is looked through; characters of a name that is told.
_CODE_MAX, _NAME_MAX = 1 << 16, 256

# The code of each cell that is traced.
_codes = {}


def begin(cell, names, body):
    """Traces a cell that is about to run this code."""
    _codes[cell] = body
    _cellar.trace_names(cell, names)


def forget():
    """Ends all tracing."""
    for cell in list(_codes):
        del _codes[cell]
        _cellar.traced_names(cell)


def end(cell, names, completed):
    """Tells the host what a cell has bound and deleted, if it is traced."""
    if cell not in _codes:
        return
    code = _codes.pop(cell)
    found = _cellar.traced_names(cell)
    if completed and code is not None and len(code.co_code) <= _CODE_MAX:
        found.update(_stored_always(code))
    found = sorted(name for name in found if len(name) <= _NAME_MAX and not _NOT_OF_CELLS.fullmatch(name))
    found = found[:4096]
    _cellar.bound(cell, [name for name in found if name in names], [name for name in found if name not in names])


def _stored_always(code):
    """Names that code binds on every way to its end."""
    stores, spans = [], []
    listing = dis.Bytecode(code)
    instructions = list(listing)
    at = {each.offset: each.opname for each in instructions}
    for each in instructions:
        if each.opname in ("STORE_NAME", "STORE_GLOBAL"):
            stores.append((each.offset, each.argval))
        elif each.jump_target is not None and each.jump_target > each.offset:
            spans.append((each.offset, each.jump_target))
    for entry in listing.exception_entries:
        # That around a whole coroutine only says what its StopIteration becomes.
        if at.get(entry.target) != "CALL_INTRINSIC_1":
            spans.append((entry.start, entry.end))
    return {name for offset, name in stores if not any(start <= offset < end for start, end in spans)}
