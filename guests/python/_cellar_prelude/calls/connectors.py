"""Connectors: sources of data that the host holds. Each is a name of cells; what can be fetched from it are its members.

`warehouse.orders(since="2026-01-01")` and `warehouse["orders"](…)` give rows: a DataFrame where there is pandas, else a list
of dicts. The host checks the arguments, remembers what was fetched, and asks the source again with `refresh=True`.
"""

import json
import re

import _cellar
from _cellar_prelude.calls import columnar
from _cellar_prelude.calls.bridges import Granted, json_text, named_arguments

# What a connector has besides its fetches.
MEMBERS = frozenset({"aio", "spec"})

# The connectors that the session was granted, by their names; and what makes rows of what the host hands over.
_granted = {}
_makers = [columnar.rows]


def use(maker):
    """Makes rows in another way: `maker` is given a file with columns."""
    _makers[:] = [maker]


def grant(granted, cell_names):
    """Binds the names of connectors for cells."""
    if list(_granted) == granted:
        return
    for name, connector in _granted.items():
        if cell_names.get(name) is connector:
            del cell_names[name]
    _granted.clear()
    _granted.update({name: Connector(name) for name in granted})
    cell_names.update(_granted)


def names():
    """The connectors by their names."""
    return dict(_granted)


def granted():
    """The names of the connectors."""
    return _granted.keys()


def is_mentioned(source):
    """Whether a cell has the name of a connector in it."""
    if not _granted:
        return False
    return "connectors" in source or any(re.search(rf"\b{name}\b", source) for name in _granted)


def _specs():
    """What the host says of each fetch, by its name with that of its connector."""
    return {
        f"{connector}.{name}": {
            "description": description, "connector": {"name": connector, "description": about},
            "schema": json.loads(schema), "columns": columns,
        }
        for connector, about, fetches in _cellar.fetches()
        for name, description, schema, columns in fetches
    }


def _fetch_spec(name, said):
    """One fetch, for people and models."""
    schema = said["schema"] or {}
    required = schema.get("required", ())
    parameters = {
        parameter: {**about, "required": parameter in required}
        for parameter, about in schema.get("properties", {}).items()
    }
    return {
        "name": name, "description": said["description"], "parameters": parameters,
        "columns": dict(said["columns"]),
    }


class Fetch(Granted):
    """One fetch of a connector."""

    def __init__(self, connector, name):
        self.__name__ = self.__qualname__ = f"{connector}.{name}"

    @property
    def __signature__(self):
        raise AttributeError("__signature__")

    @property
    def __doc__(self):
        return _specs().get(self.__name__, {}).get("description")

    def _prepare(self, /, *args, refresh=False, **kwargs):
        if args:
            said = _specs().get(self.__name__)
            kwargs = named_arguments(self.__name__, args, kwargs, said["schema"] if said else None)
        connector, _, name = self.__name__.partition(".")
        arguments = json_text(kwargs, f"the arguments of {self.__name__}")
        return _cellar.FETCHES_CALL, connector, name, arguments, bool(refresh)

    def _finish(self, _tag, table):
        return _makers[0](columnar.Lent(*table))

    def _fail(self, call_error):
        failure = super()._fail(call_error)
        # What is wrong is in the source or in the arguments, which the message tells.
        failure.without_frames = True
        return failure

    def spec(self):
        """What it gives, its parameters and its columns."""
        connector, _, name = self.__name__.partition(".")
        said = _specs().get(self.__name__)
        if said is None:
            raise KeyError(f"{connector!r} has no fetch {name!r}; {connector}.spec() tells of all")
        return _fetch_spec(name, said)

    def __repr__(self):
        return f"<fetch {self.__name__}: {self.__name__}.spec() tells what it takes>"


class Connector:
    """A source of data: its members are what can be fetched."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Fetch(self.__name__, name)

    def __getitem__(self, name):
        """For names that are not identifiers."""
        if not isinstance(name, str):
            raise TypeError(f"{self.__name__}[…] takes the name of a fetch, not {type(name).__name__}")
        return Fetch(self.__name__, name)

    def __dir__(self):
        return ["spec", *self.spec()["fetches"]]

    def spec(self):
        """What can be fetched, with parameters and columns."""
        return _by_connector()[self.__name__]

    def __repr__(self):
        return f"<connector {self.__name__}: {', '.join(self.spec()['fetches']) or 'it has no fetches'}>"


def _by_connector():
    found = {name: {"name": name, "description": "", "fetches": {}} for name in _granted}
    for whole, said in _specs().items():
        of, _, name = whole.partition(".")
        if of in found:
            found[of]["description"] = said["connector"]["description"]
            found[of]["fetches"][name] = _fetch_spec(name, said)
    return found


class _Connectors:
    """`connectors`: called, it lists the sources with what can be fetched; each is a member."""

    def __call__(self):
        """The connectors of this session: by their names, what can be fetched, with parameters and columns."""
        return _by_connector()

    def __getattr__(self, name):
        if name not in _granted:
            raise AttributeError(f"no connector {name!r} is granted; {self!r}")
        return _granted[name]

    def __getitem__(self, name):
        if name not in _granted:
            raise KeyError(f"no connector {name!r} is granted; {self!r}")
        return _granted[name]

    def __iter__(self):
        return iter(list(_granted))

    def __len__(self):
        return len(_granted)

    def __dir__(self):
        return list(_granted)

    def __repr__(self):
        return f"<connectors: {', '.join(_granted) or 'none granted'}>"


connectors = _Connectors()
