"""`runtime`: the primitives that the host has installed, in packs; `tools`: a search over all that cells may call.

Nothing is kept here: names are looked up by the host when they are called, so that a reset loses none. What
`runtime.pack.name` gives is a call, and the way to `runtime.pack.name.more`.
"""

import json

import _cellar
from _cellar_prelude.calls.bridges import Bridge, Granted, from_json, json_text


def _specs():
    """The specs of all primitives, by their names."""
    specs = {}
    for pack, version, about, primitives in _cellar.primitives():
        for member, description, schema, result in primitives:
            name = f"{pack}.{member}"
            specs[name] = {
                "name": name, "description": description,
                "pack": {"name": pack, "version": version, "description": about},
                "schema": _parsed(schema), "result": _parsed(result),
            }
    return specs


def _parsed(schema):
    try:
        return None if schema is None else json.loads(schema)
    except ValueError:
        return None


class Primitive(Granted):
    """One primitive of the host, or a pack of them."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = self._name = name
        self._finish = lambda _tag, payload: from_json(payload)

    @property
    def __signature__(self):
        raise AttributeError("__signature__")

    @property
    def __doc__(self):
        return _specs().get(self._name, {}).get("description")

    def _prepare(self, /, *args, **kwargs):
        if args:
            kwargs = self._named(args, kwargs)
        pack, _, name = self._name.partition(".")
        return _cellar.PRIMITIVES_CALL, pack, name, json_text(kwargs, f"the arguments of runtime.{self._name}")

    def _named(self, args, kwargs):
        """Gives arguments their names, which are those of the schema, in its order."""
        spec = _specs().get(self._name)
        # Whoever answers says that there is no such primitive.
        names = list(((spec or {}).get("schema") or {}).get("properties", ()))
        if spec is not None and len(args) > len(names):
            if len(args) == 1 and isinstance(args[0], dict):
                return {**args[0], **kwargs}
            raise TypeError(f"runtime.{self._name}() takes {len(names)} arguments without names, not {len(args)}")
        given = dict(zip(names, args))
        for name in given.keys() & kwargs.keys():
            raise TypeError(f"runtime.{self._name}() got multiple values for argument {name!r}")
        return {**given, **kwargs}

    def spec(self):
        """Name, description, and JSON Schema of the arguments and the result."""
        return runtime.get_primitive_spec(self._name)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Primitive(f"{self._name}.{name}")

    def __dir__(self):
        return _members(f"{self._name}.")

    def __repr__(self):
        return f"<runtime.{self._name}>"


def _members(start):
    return sorted({name.removeprefix(start).split(".")[0] for name in _specs() if name.startswith(start)})


class _Runtime:
    """`runtime`: what the host has installed."""

    def list_primitives(self):
        """Names of all primitives."""
        return sorted(_specs())

    def list_primitive_specs(self):
        """What `get_primitive_spec` tells, of all primitives."""
        return [spec for _, spec in sorted(_specs().items())]

    def get_primitive_spec(self, name):
        """Description of a primitive and its pack, and JSON Schema of the arguments and the result."""
        specs = _specs()
        if name not in specs:
            raise KeyError(f"no primitive {name!r}; runtime.list_primitives() names all: {', '.join(sorted(specs))}")
        return specs[name]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Primitive(name)

    def __getitem__(self, name):
        """For names that are not identifiers."""
        return Primitive(name)

    def __dir__(self):
        return [*_members(""), "get_primitive_spec", "list_primitive_specs", "list_primitives"]

    def __repr__(self):
        return f"<runtime: {', '.join(_members('')) or 'no packs'}>"


runtime = _Runtime()


class _Lines(list):
    """Signatures, shown one below the other."""

    def __repr__(self):
        return "\n".join(self)


class _Stub(str):
    """A stub, shown as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _prepare_search(query, /, *, limit=None):
    """Signatures of the tools, primitives and fetches that fit a text best, the best first."""
    given = {"query": query} if limit is None else {"query": query, "limit": limit}
    return _cellar.PRIMITIVES_CALL, "tools", "search", json_text(given, "the arguments of tools.search")


def _prepare_describe(name, /):
    """The stub of a tool, a primitive or a fetch: its signature, with its types and what it does."""
    return _cellar.PRIMITIVES_CALL, "tools", "describe", json_text({"name": name}, "the arguments of tools.describe")


class _Tools:
    """`tools`: finds what cells may call, by what it does."""

    search = Bridge("search", _prepare_search, finish=lambda _tag, payload: _Lines(from_json(payload)))
    describe = Bridge("describe", _prepare_describe, finish=lambda _tag, payload: _Stub(from_json(payload)))

    def __dir__(self):
        return ["describe", "search"]

    def __repr__(self):
        return "<tools: search(text), describe(name)>"


tools = _Tools()
