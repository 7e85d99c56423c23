"""The names that a cell binds and reads at the top level, told to the host at its end where somebody asks for them.

The native half hears of every change of the namespace while a cell is traced, whatever makes it: assignments, imports,
`del`, `exec`, `globals()[...]`. It knows for which cell the code runs, so that cells that interleave are told apart, and what a
task does after its cell has ended is told of nobody.

Binding a name to the very object that it has changes nothing that could be heard of. Where the cell's own code does that
on every way through it, it counts; in a branch, a loop or a `try` that may not have run, it does not. A change of the object
itself, as `list.append` makes it, binds no name.
"""

import dis
import re
import sys

import _cellar

# Names that the prelude binds for cells, and those that Python keeps for itself.
_NOT_OF_CELLS = re.compile(r"_{1,3}|_\d+|_i{1,3}|_i\d+|In|Out|__\w+__")
# Bytes of code that is looked through; characters of a name that is told; names that are told; functions that are looked through.
_CODE_MAX, _NAME_MAX, _NAMES_MAX, _FUNCTIONS_MAX = 1 << 16, 256, 4096, 500

# The code of each cell that is traced: its statements, and its last expression. The namespace of cells.
_codes = {}
_names = vars(sys.modules["__main__"])


def begin(cell, body, last):
    """Traces a cell that is about to run this code."""
    _codes[cell] = body, last
    _cellar.trace_names(cell, _names)


def forget():
    """Ends all tracing."""
    for cell in list(_codes):
        del _codes[cell]
        _cellar.traced_names(cell)


def end(cell, completed):
    """Tells the host what a cell has bound and deleted, if it is traced."""
    if cell not in _codes:
        return
    code, last = _codes.pop(cell)
    found = _cellar.traced_names(cell)
    if completed and code is not None and len(code.co_code) <= _CODE_MAX:
        found.update(_stored_always(code))
    found = sorted(name for name in found if len(name) <= _NAME_MAX and not _NOT_OF_CELLS.fullmatch(name))
    left_out = max(len(found) - _NAMES_MAX, 0)
    found = found[:_NAMES_MAX]
    bound, deleted = [name for name in found if name in _names], [name for name in found if name not in _names]
    _cellar.bound(cell, bound, deleted, _read(code, last) if found else [], left_out)


def read_by_current():
    """Names that the cell whose code runs reads, if it is traced."""
    return _read(*_codes.get(_cellar.cell.get(0), (None, None)))


def _read(*codes):
    """Names at the top level that code reads, and that the functions of cells read which it names."""
    found, ahead, seen = set(), [(code, True) for code in codes if code is not None], 0
    while ahead and seen < _FUNCTIONS_MAX:
        code, is_cell = ahead.pop()
        seen += 1
        if len(code.co_code) > _CODE_MAX:
            continue
        new = _loaded(code, is_cell) - found
        found |= new
        for name in new:
            value = _names.get(name)
            inner = getattr(value, "__wrapped__", value)
            if getattr(inner, "__globals__", None) is _names and hasattr(inner, "__code__"):
                ahead.append((inner.__code__, False))
        ahead.extend((each, False) for each in code.co_consts if hasattr(each, "co_code"))
    return sorted(name for name in found if len(name) <= _NAME_MAX and not _NOT_OF_CELLS.fullmatch(name))[:_NAMES_MAX]


def _loaded(code, is_cell):
    """Names at the top level that code loads. What a cell binds on every way before it loads it is its own."""
    own = _stored_always(code) if is_cell else set()
    found, bound = set(), set()
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_NAME", "STORE_GLOBAL"):
            bound.add(each.argval)
        elif each.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS") and not (each.argval in own and each.argval in bound):
            found.add(each.argval)
    return found


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
