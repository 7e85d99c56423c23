"""What `name?` and `name??` print of an object, laid out as IPython does; and the names that `name*?` finds."""

import ast
import builtins
import fnmatch
import inspect
import os
import re
import textwrap
import types

# Characters of a value's text that `name?` prints, half of them from its beginning.
_TEXT_MAX = 200
_SUBCLASSES_MAX = 10
# A signature that is longer has a line for each parameter.
_SIGNATURE_MAX = 75
# What a subject can be: a name with attributes and places.
SUBJECT = r"%{0,2}[A-Za-z_*][\w*]*(?:\.[\w*]+|\[-?\d+\])*"

_SIMPLE = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType)
# Documentation of types that says nothing of the object in question.
_OF_TYPES = {inspect.getdoc(kind) for kind in (types.ModuleType, types.FunctionType, types.MethodType, property)}


def describe(names, subject, is_detailed, magics):
    """Prints what there is to know about what a text stands for in a namespace."""
    if "*" in subject:
        print("\n".join(_matching(names, subject)))
        return
    if subject.lstrip("%") in magics and (subject.startswith("%") or subject not in names):
        magic = magics[subject.lstrip("%")]
        print(_laid_out([("Docstring", (magic and inspect.getdoc(magic)) or "<no docstring>")]))
        return
    try:
        value, space = _find(names, subject)
    except LookupError:
        print(f"Object `{subject}` not found.")
        return
    print(_laid_out(_fields(value, subject, space, is_detailed)))


def _find(names, subject):
    """The object, and the word for the namespace that its first name is in."""
    first, *parts = re.findall(r"[\w]+|\[-?\d+\]", subject)
    space = "Interactive" if first in names else "Python builtin"
    found = names[first] if first in names else vars(builtins)[first]
    for part in parts:
        # A property is told of itself, not its value.
        of_type = inspect.getattr_static(type(found), part, None)
        try:
            if part.startswith("["):
                found = found[int(part[1:-1])]
            else:
                found = of_type if isinstance(of_type, property) else getattr(found, part)
        except (AttributeError, TypeError):
            raise LookupError(part) from None
    return found, space


def _laid_out(fields):
    width = max(len(name) for name, _text in fields)
    lines = []
    for name, text in fields:
        text = text.strip("\n")
        lines.append(f"{name}:{' ' * (width - len(name))}" + ("\n" if "\n" in text else " ") + text)
    return "\n".join(lines)


def _fields(value, name, space, is_detailed):
    """The names and the texts of what is printed."""
    source = _source(value, name) if is_detailed else None
    said = _documentation(value) or "<no docstring>"
    # What the source says is not said twice.
    documentation = None if source is not None and _has_documentation(source, said) else said
    found = {"Docstring": documentation, "Source": source, "Type": type(value).__name__, "File": _file(value)}
    if isinstance(value, type):
        found |= _of_class(value, name)
        order = ["Signature", "Init signature", "Docstring", "Source" if source else "Init docstring", "File", "Type", "Subclasses"]
    else:
        found |= _of_instance(value, name, said, space, is_detailed)
        if isinstance(value, _SIMPLE):
            order = ["Signature", "Init signature", "Docstring", "Source" if source else "Init docstring", "File", "Type"]
        else:
            order = ["Signature", "Call signature", "Type", "String form", "Namespace", "Length", "File"]
            order += ["Source" if source else "Docstring", "Class docstring", "Init docstring", "Call docstring"]
    return [(field, found[field]) for field in order if found.get(field) is not None]


def _of_class(value, name):
    said = _documentation(value.__init__)
    names = [each.__name__ for each in type.__subclasses__(value)]
    more = ["..."] if len(names) >= _SUBCLASSES_MAX else []
    return {
        "Init signature": signature(value, name) or signature(value.__init__, name),
        "Init docstring": None if said == inspect.getdoc(object.__init__) else said,
        "Subclasses": ", ".join(names[:_SUBCLASSES_MAX] + more),
    }


def _of_instance(value, name, said, space, is_detailed):
    found = {"Signature": signature(value, name), "String form": _text(value, is_detailed)}
    found["Namespace"] = None if space == "Interactive" else space
    try:
        found["Length"] = str(len(value))
    except Exception:  # noqa: BLE001 - a length that cannot be told is not told
        pass
    of_class = _documentation(value.__class__)
    if of_class not in _OF_TYPES and of_class != said:
        found["Class docstring"] = of_class
    for field, method, own in (("Init docstring", "__init__", object), ("Call docstring", "__call__", types.FunctionType)):
        if field == "Call docstring" and (isinstance(value, _SIMPLE) or not callable(value)):
            continue
        told = _documentation(getattr(value, method, ""))
        if told != inspect.getdoc(getattr(own, method)):
            found[field] = told
    if callable(value) and not isinstance(value, _SIMPLE):
        called = signature(getattr(value, "__call__", None), name)
        if called != found["Signature"]:
            found["Call signature"] = called
    return found


def _documentation(value):
    try:
        return inspect.getdoc(value)
    except Exception:  # noqa: BLE001 - objects answer for attributes as they like
        return None


def _text(value, is_whole):
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - what cannot be written down is left out
        return None
    if not is_whole and len(text) > _TEXT_MAX:
        half = (_TEXT_MAX - 5) // 2
        text = f"{text[:half]} <...> {text[-half:]}"
        text = ("\n" + " " * len("string_form")).join(line.strip() for line in text.split("\n"))
    return text


def signature(value, name):
    """How it is called, or None."""
    if not callable(value):
        return None
    try:
        found = inspect.signature(value)
    except Exception:  # noqa: BLE001 - not everything that can be called says how
        return None
    whole = str(found.replace(return_annotation=inspect.Signature.empty))
    parts = _parameters(found)
    if len(name) + sum(len(part) + 2 for part in parts) > _SIGNATURE_MAX:
        whole = "(\n" + "".join(f"    {part},\n" for part in parts) + ")"
    if found.return_annotation is not inspect.Signature.empty:
        whole += f" -> {inspect.formatannotation(found.return_annotation)}"
    return name + whole


def _parameters(signature):
    """The parameters as texts, with the marks between their kinds."""
    found, was_positional, is_marked = [], False, False
    for each in signature.parameters.values():
        if was_positional and each.kind is not each.POSITIONAL_ONLY:
            found.append("/")
        was_positional = each.kind is each.POSITIONAL_ONLY
        if each.kind is each.KEYWORD_ONLY and not is_marked:
            found.append("*")
        is_marked = is_marked or each.kind in (each.VAR_POSITIONAL, each.KEYWORD_ONLY)
        found.append(str(each))
    return [*found, "/"] if was_positional else found


def _unwrapped(value):
    try:
        return inspect.unwrap(value)
    except Exception:  # noqa: BLE001 - some objects have every attribute
        return value


def _file(value):
    """Where it is defined, or its type is."""
    value = _unwrapped(value)
    for each in (value, getattr(value, "__class__", None)):
        if isinstance(each, type) and each.__module__ == "__main__":
            # Classes of cells are of no file, as IPython has it.
            continue
        try:
            path = inspect.getsourcefile(each) or inspect.getfile(each)
        except (OSError, TypeError):
            continue
        return path if path.startswith("<") else os.path.abspath(path)
    return None


def _source(value, name):
    if isinstance(value, property):
        parts = []
        for word in ("fget", "fset", "fdel"):
            function = getattr(value, word)
            if function is not None:
                parts += [f"# {name}.{word}", textwrap.dedent(_source(function, name) or "")]
        return "\n".join(parts).rstrip()
    value = _unwrapped(value)
    for each in (value, getattr(value, "__class__", None)):
        try:
            return inspect.getsource(each).rstrip()
        except TypeError:
            continue
        except Exception:  # noqa: BLE001 - sources go away
            return None
    return None


def _has_documentation(source, said):
    try:
        (node,) = ast.parse(textwrap.dedent(source)).body
        return ast.get_docstring(node) == said
    except Exception:  # noqa: BLE001 - a source need not be a whole statement
        return False


def _matching(names, pattern):
    """The names that a pattern of names finds, in order."""
    *parents, last = pattern.split(".")
    if parents:
        try:
            value, _space = _find(names, ".".join(parents))
        except LookupError:
            return []
        known = dir(value)
    else:
        known = {*names, *vars(builtins)}
    shown = (name for name in known if name.startswith("__") or not name.startswith("_"))
    prefix = "".join(f"{parent}." for parent in parents)
    return [prefix + name for name in sorted(shown) if fnmatch.fnmatchcase(name, last)]
