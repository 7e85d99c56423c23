"""Functions of the program as tools of cells: what cells are told of them, and what is made of their arguments."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, cast, get_args, get_origin

__all__ = ["Tool"]

Json = Any

_PLAIN: dict[object, dict[str, Json]] = {
    int: {"type": "integer"}, float: {"type": "number"}, str: {"type": "string"}, bool: {"type": "boolean"},
    type(None): {"type": "null"}, Any: {}, object: {}, list: {"type": "array"}, dict: {"type": "object"},
}


class Tool:
    """A function that cells call as `tool.NAME(...)`.

    The schema of its arguments is that of its annotations, and its description is its docstring, whose section `Args:` describes
    the arguments. Arguments that do not fit are refused before it is called.

    >>> def add(a: int, b: int = 1) -> int:
    ...     '''Adds two numbers.
    ...
    ...     Args:
    ...         a: the first
    ...     '''
    ...     return a + b
    >>> Tool(add).schema["properties"]["a"]
    {'type': 'integer', 'description': 'the first'}
    >>> Tool(add).schema["required"]
    ['a']
    """

    __slots__ = ("_models", "description", "function", "is_async", "name", "schema")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        schema: Mapping[str, Json] | None = None,
    ) -> None:
        import inspect

        self.function = function
        self.name: str = name or str(getattr(function, "__name__", ""))
        if not self.name.isidentifier():
            raise ValueError(f"a tool needs a name: {function!r} has none; say Tool(function, name=...)")
        said, arguments = _described(inspect.getdoc(function) or "")
        self.description: str = said if description is None else description
        self._models: dict[str, Any] = {}
        self.schema: dict[str, Json] = dict(schema) if schema is not None else self._schema(arguments)
        self.is_async: bool = is_async(function)

    def _schema(self, described: Mapping[str, str]) -> dict[str, Json]:
        import inspect

        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
        except (NameError, TypeError):
            hints = {}
        properties: dict[str, Json] = {}
        required: list[str] = []
        definitions: dict[str, Json] = {}
        is_open = False
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                is_open = True
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise ValueError(f"tool `{self.name}`: `{parameter.name}` cannot be given by its name")
            hint = hints.get(parameter.name, Any)
            one = _schema_of(hint, definitions)
            if _is_model(hint):
                self._models[parameter.name] = hint
            if parameter.name in described:
                one = {**one, "description": described[parameter.name]}
            if parameter.default is parameter.empty:
                required.append(parameter.name)
            elif isinstance(parameter.default, (int, float, str, bool)):
                one = {**one, "default": parameter.default}
            properties[parameter.name] = one
        schema: dict[str, Json] = {"type": "object", "properties": properties, "required": required}
        schema["additionalProperties"] = is_open
        if definitions:
            schema["$defs"] = definitions
        return schema

    def call(self, given: dict[str, Json]) -> Any:
        """Calls the function with the arguments of a call: models of Pydantic where those are wanted."""
        for name, model in self._models.items():
            if name in given:
                given[name] = model.model_validate(given[name])
        return self.function(**given)


def is_async(function: Callable[..., Any]) -> bool:
    """True for coroutine functions, and for objects that are called like one."""
    import inspect

    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)
    return inspect.iscoroutinefunction(called)


def tool_of(given: Callable[..., Any] | Tool) -> Tool:
    """Makes a tool of a function."""
    return given if isinstance(given, Tool) else Tool(given)


def plain(value: Any) -> Json:
    """Makes JSON of what JSON itself does not know: models, data classes, sets, and the numbers of NumPy."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, (set, frozenset, tuple)):
        return list(cast("Iterable[Any]", value))
    convert = getattr(value, "tolist", None) or getattr(value, "isoformat", None)
    if convert is not None:
        return convert()
    raise TypeError(f"{type(value).__name__} is no JSON")


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "model_validate") and hasattr(hint, "model_json_schema")


def _schema_of(hint: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    try:
        if hint in _PLAIN:
            return _PLAIN[hint]
    except TypeError:
        return {}
    if _is_model(hint):
        schema: dict[str, Json] = hint.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(schema.pop("$defs", {}))
        return schema
    origin, parameters = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        texts = [text for text in parameters[1:] if isinstance(text, str)]
        schema = _schema_of(parameters[0], definitions)
        return {**schema, "description": texts[0]} if texts else schema
    if origin is Literal:
        return {"enum": list(parameters)}
    if origin is Union or origin is types.UnionType:
        return {"anyOf": [_schema_of(one, definitions) for one in parameters]}
    if origin in (list, set, frozenset) or (isinstance(origin, type) and issubclass(origin, Sequence) and origin is not tuple):
        return {"type": "array", "items": _schema_of(parameters[0], definitions) if parameters else {}}
    if origin is tuple:
        if len(parameters) == 2 and parameters[1] is Ellipsis:
            return {"type": "array", "items": _schema_of(parameters[0], definitions)}
        items = [_schema_of(one, definitions) for one in parameters]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(parameters[1], definitions) if parameters else {}}
    members: Mapping[str, Any] | None = getattr(hint, "__members__", None)
    if isinstance(hint, type) and members is not None:
        return {"enum": [member.value for member in members.values()]}
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None:
        try:
            schema = pydantic.TypeAdapter(hint).json_schema(ref_template="#/$defs/{model}")
        except Exception:  # noqa: BLE001 - a type that it does not know is any value here
            return {}
        definitions.update(schema.pop("$defs", {}))
        return schema
    return {}


def _described(text: str) -> tuple[str, dict[str, str]]:
    """Description of a function and of its arguments, from its docstring."""
    import re

    parameter = re.compile(r"\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
    lines = text.splitlines()
    sections = ("Args:", "Arguments:", "Parameters:")
    start = next((at for at, line in enumerate(lines) if line.strip() in sections), len(lines))
    arguments: dict[str, str] = {}
    name = None
    for line in lines[start + 1 :]:
        if line.strip() and not line[0].isspace():
            break
        found = parameter.match(line)
        if found:
            name, said = found.groups()
            arguments[name] = said.strip()
        elif name is not None and line.strip():
            arguments[name] += " " + line.strip()
    return "\n".join(lines[:start]).strip(), arguments
