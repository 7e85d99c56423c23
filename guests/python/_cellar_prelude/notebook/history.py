"""What cells were and gave, as IPython keeps it: `In`, `_i`, `_ii`, `_iii`, `_i1`, …, and `Out`, `_`, `__`, `___`, `_1`, `_2`, …

Sessions are long: what is kept is bounded.
"""

from _cellar_prelude.platform import faults

# The number of the cell that makes the names a session begins with. It is no cell of the user's.
SEED = 0xFFFF_FFFF

# Sources and results of this many cells are kept, …
CELLS_KEPT = 1000
# … and sources of no more characters in all.
CHARACTERS_KEPT = 1024 * 1024
# What the sources of the cells before are bound to, the latest first.
_INPUTS = ("_i", "_ii", "_iii")

def renew():
    """Makes anew what holds all this. The last thing that baking does, so that it lies with what a session allocates."""
    global In, Out, _kept, _characters, _latest, _inputs
    # The source of each cell at its number; empty where there is none, or no more.
    In = [""]
    # Results by cell number.
    Out = {}
    # Numbers of the cells whose source is kept, oldest first, …
    _kept = []
    # … and how long they are in all.
    _characters = [0]
    # What `_`, `__` and `___` were last bound to. A user who binds one of them keeps it.
    _latest = ["", "", ""]
    # The sources of the last cells, the latest first.
    _inputs = ["", "", ""]


renew()


def remember(cell, source, names):
    """Keeps the source of a cell, and binds it and those before; forgets old ones when they are too many."""
    faults.remember(file_name(cell), source)
    if cell == SEED:
        return
    if not _characters or len(_latest) != 3 or len(_inputs) != 3:
        # A cell has emptied the lists that it could find, these among them.
        _characters[:] = [sum(map(len, In))]
        _latest[:] = [*_latest, "", "", ""][:3]
        _inputs[:] = [*_inputs, "", "", ""][:3]
    if len(In) <= cell:
        In.extend([""] * (cell + 1 - len(In)))
    names["_i"], names["_ii"], names["_iii"] = last, before, _ = _inputs
    _inputs[:] = source, last, before
    In[cell] = names[f"_i{cell}"] = source
    _kept.append(cell)
    _characters[0] += len(source)
    while len(_kept) > CELLS_KEPT or (_characters[0] > CHARACTERS_KEPT and len(_kept) > 1):
        oldest = _kept.pop(0)
        if oldest < len(In):
            _characters[0] -= len(In[oldest])
            if names.get(f"_i{oldest}") is In[oldest]:
                del names[f"_i{oldest}"]
            In[oldest] = ""
        faults.forget(file_name(oldest))


def sources():
    """File names and sources of cells, the latest first."""
    return ((file_name(cell), In[cell]) for cell in reversed(_kept))


def file_name(cell):
    """The name that a cell's code has in tracebacks."""
    return "<seed>" if cell == SEED else f"<cell {cell}>"


def keep(cell, value, names):
    """Binds the result of a cell to `_` and its kin."""
    if value is Out or cell == SEED:
        return
    Out[cell] = value
    names[f"_{cell}"] = value
    last, before, earlier = _latest
    _latest[:] = value, last, before
    bound = names.get
    if bound("_", last) is last and bound("__", before) is before and bound("___", earlier) is earlier:
        names["_"], names["__"], names["___"] = value, last, before
    if len(Out) > CELLS_KEPT:
        oldest = next(iter(Out))
        value = Out.pop(oldest)
        if names.get(f"_{oldest}") is value:
            del names[f"_{oldest}"]


def forget():
    """Forgets all cells."""
    In[:] = [""]
    Out.clear()
    _kept.clear()
    _characters[0] = 0
    _latest[:] = _inputs[:] = "", "", ""
    faults.forget_sources()


def fresh_names():
    """What a new namespace has of this."""
    return {"In": In, "Out": Out, "_ih": In, "_oh": Out, "_": "", "__": "", "___": "", **dict.fromkeys(_INPUTS, "")}
