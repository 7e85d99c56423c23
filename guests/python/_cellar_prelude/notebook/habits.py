"""Magics of how a session is set up: names of magics and commands, folders, stored values, choices."""

import ast
import builtins
import inspect
import os
import pathlib
import re
import sys

from _cellar_prelude.notebook import display, ipython, magics

UsageError = magics.UsageError
LINE_MAGICS, CELL_MAGICS = magics.LINE_MAGICS, magics.CELL_MAGICS


# --- Names

# Commands under names of their own, as they were given.
_aliases = {name: name for name in ("cat", "cp", "ls", "mkdir", "mv", "rm", "rmdir")} | {"ll": "ls -l"}


def _as_command(name):
    """What runs a command that has a name, with `%s` for a word each and `%l` for the whole line."""

    def run(text):
        command, words = _aliases[name], text.split()
        wanted = command.count("%s")
        if "%l" in command:
            line = command.replace("%l", text)
        elif len(words) < wanted:
            raise UsageError(f"Alias <{name}> requires {wanted} arguments, {len(words)} given.")
        else:
            for word in words[:wanted]:
                command = command.replace("%s", word, 1)
            line = " ".join([command, *words[wanted:]])
        magics.magic("!", line)

    run.__doc__ = f"Alias for `!{_aliases[name]}`"
    return run


def _alias(text):
    """Gives a command a name: `%alias NAME COMMAND`; without a name tells all."""
    if not text:
        print(f"Total number of aliases: {len(_aliases)}")
        return sorted(_aliases.items())
    name, _, command = text.partition(" ")
    if not command:
        if name not in _aliases:
            raise UsageError(f"{name} is not an alias")
        print(f"{name}: {_aliases[name]}")
        return None
    _aliases[name] = command.strip()
    LINE_MAGICS[name] = _as_command(name)
    return None


def _unalias(text):
    """Takes the name of a command away."""
    name = text.strip()
    if name not in _aliases:
        print(f"{name} is not an alias")
        return
    del _aliases[name]
    LINE_MAGICS.pop(name, None)


def _alias_magic(text):
    """Gives a magic another name: `%alias_magic [-l] [-c] [-p PARAMETERS] NAME TARGET`."""
    words, given = [], ""
    rest = magics.words(text)
    kinds = set()
    while rest:
        word = rest.pop(0)
        if word in ("-l", "--line", "-c", "--cell"):
            kinds.add(word.lstrip("-")[0])
        elif word in ("-p", "--params"):
            given = rest.pop(0) + " " if rest else ""
        else:
            words.append(word)
    if len(words) != 2:
        raise UsageError("%alias_magic takes a new name and the name of a magic")
    name, target = (word.lstrip("%") for word in words)
    is_told = False
    for kind, known, sign in (("l", LINE_MAGICS, "%"), ("c", CELL_MAGICS, "%%")):
        if target not in known or (kinds and kind not in kinds):
            continue
        known[name] = _with(known[target], given) if known[target] is not None and given else known[target]
        if target in magics.AROUND_MAGICS and kind == "c":
            magics.AROUND_MAGICS[name] = magics.AROUND_MAGICS[target]
        print(f"Created `{sign}{name}` as an alias for `{sign}{target}{' ' + given.strip() if given else ''}`.")
        is_told = True
    if not is_told:
        raise UsageError(f"magic function `%{target}` not found.")


def _with(function, given):
    return lambda text, *body: function(given + text, *body)


# --- Folders

_bookmarks = {}
_stack = []


def _short(path):
    """A path with `~` for the home."""
    home = os.path.expanduser("~")
    return path.replace(home, "~", 1) if path.startswith(home) else path


def _push_folder(text):
    """Changes the folder, and keeps the one before for `%popd`."""
    before = _short(os.getcwd())
    if text:
        LINE_MAGICS["cd"](text)
    _stack.insert(0, before)
    return _stack[:]


def _pop_folder(_text):
    """Goes back to the folder that `%pushd` has left."""
    if not _stack:
        raise UsageError("%popd on empty stack")
    top = _stack.pop(0)
    LINE_MAGICS["cd"](top)
    print("popd ->", top)


def _folders(_text):
    """The folders that `%popd` goes back to."""
    return _stack[:]


def _folder_history(_text):
    """Prints the folders that `%cd` has been to."""
    print("Directory history (kept in _dh)")
    for number, folder in enumerate(magics.names().get("_dh") or [pathlib.Path.cwd()]):
        print(f"{number}: {folder}")


def _bookmark(text):
    """Names a folder for `%cd -b NAME`: `%bookmark NAME [FOLDER]`, `%bookmark -l`, `-d NAME`, `-r`."""
    words = text.split()
    if words[:1] == ["-l"]:
        print("Current bookmarks:")
        width = max(map(len, _bookmarks), default=0)
        for name in sorted(_bookmarks):
            print(f"{name:<{width}} -> {_bookmarks[name]}")
    elif words[:1] == ["-r"]:
        _bookmarks.clear()
    elif words[:1] == ["-d"]:
        if not words[1:] or words[1] not in _bookmarks:
            raise UsageError("%bookmark -d: Can't delete bookmark '%s'" % " ".join(words[1:]))
        del _bookmarks[words[1]]
    elif not words:
        raise UsageError("%bookmark: You must specify the bookmark name")
    else:
        _bookmarks[words[0]] = os.path.expanduser(words[1]) if words[1:] else os.getcwd()


# --- Stored values

# Values that `%store` keeps while the session lives.
_stored = {}


def _store(text):
    """Keeps values for `%store -r` until the session ends: `%store NAME ...`, `-r [NAME ...]`, `-d NAME`, `-z`, `NAME > FILE`."""
    words = text.replace(">>", " >> ").split() if ">>" in text else text.replace(">", " > ").split()
    names = magics.names()
    if words[:1] == ["-z"]:
        _stored.clear()
    elif words[:1] == ["-d"]:
        if not words[1:] or words[1] not in _stored:
            raise UsageError(f"Can't delete variable '{' '.join(words[1:])}'")
        del _stored[words[1]]
    elif words[:1] == ["-r"]:
        for name in words[1:] or [*_stored]:
            if name in _stored:
                names[name] = _stored[name]
            else:
                print(f"no stored variable or alias {name}")
    elif not words:
        print("Stored variables and their in-db values:")
        width = max(map(len, _stored), default=0)
        for name in sorted(_stored):
            print(f"{name:<{width}} -> {repr(_stored[name])[:50]}")
    elif len(words) == 3 and words[1] in (">", ">>"):
        _store_in_file(eval(words[0], names), *words)
    else:
        for name in words:
            if name not in names:
                raise UsageError(f"Unknown variable '{name}'")
            _stored[name] = names[name]
            print(f"Stored '{name}' ({type(names[name]).__name__})")


def _store_in_file(value, name, sign, path):
    import pprint

    text = value if isinstance(value, str) else pprint.pformat(value)
    print(f"Writing '{name}' ({type(value).__name__}) to file '{path}'.")
    with open(os.path.expanduser(path), "a" if sign == ">>" else "w", encoding="utf-8") as file:
        file.write(text if text.endswith("\n") else text + "\n")


# --- Choices

# What `%config` knows besides the shell: functions of a name and a value that is set, and the values there are, by class.
configurable = magics.configurable
_SHELLS = ("InteractiveShell", "TerminalInteractiveShell", "ZMQInteractiveShell")
# What IPython's shell can be told, and changes nothing here.
_IGNORED = frozenset(
    """autocall autoindent automagic banner1 cache_size color_info colors confirm_exit debug display_page editing_mode
    enable_html_pager highlighting_style history_length logappend logfile logstart pdb quiet separate_in show_rewritten_input
    sphinxify_docstring term_title xmode warn_venv""".split()
)


def _set_of_shell(name, value):
    if name not in ipython.settings:
        if name not in _IGNORED:
            print(f"Config option `{name}` not recognized by `InteractiveShell`.", file=sys.stderr)
        return
    setattr(ipython.InteractiveShell, name, value)


for _name in _SHELLS:
    configurable[_name] = (_set_of_shell, ipython.settings)


def _config(text):
    """Tells or sets a choice: `%config Class.name = value`; those of `InteractiveShell` and of figures."""
    text = text.strip()
    if not text:
        print("Available objects for config:", *sorted(configurable), sep="\n    ")
        return None
    name, sign, value = re.fullmatch(r"([\w.]+)\s*(=?)\s*(.*)", text, re.DOTALL).groups() if re.match(r"[\w.]+", text) else (text, "", "")
    owner, dot, name = name.partition(".")
    if owner not in configurable or (not sign and value):
        if sign and dot:
            # Other parts of Jupyter are told things that change nothing here.
            return None
        raise UsageError(f"Invalid config statement: '{text}', should be in the form: Class.trait = value")
    set_one, values = configurable[owner]
    if not dot:
        print(f"{owner} options\n{'-' * (len(owner) + 8)}")
        for each in sorted(values):
            print(f"{owner}.{each}\n    Current: {values[each]!r}")
        return None
    if not sign:
        if name not in values:
            raise UsageError(f"{owner} has no option `{name}` here")
        return values[name]
    try:
        value = eval(value, magics.names())
    except Exception:  # noqa: BLE001 - words that are no expression are texts, as in IPython
        pass
    set_one(name, value)
    return None


def _pprint(_text):
    """Has values written over several lines, or not."""
    display.is_pretty[0] = not display.is_pretty[0]
    print(f"Pretty printing has been turned {'ON' if display.is_pretty[0] else 'OFF'}")


# What is on and off, under the names of its magics, and what is printed of it.
_switches = {"pdb": False, "automagic": True, "doctest_mode": False}


def _switch(name, on, off):
    def switch(text):
        wanted = text.strip().lower()
        _switches[name] = wanted in ("1", "on", "true") if wanted else not _switches[name]
        print(on if _switches[name] else off)

    return switch


def _page(text):
    """Prints a value."""
    raw = re.match(r"-r\b\s*", text)
    text = text[raw.end() :] if raw else text
    value = eval(text or "_", magics.names())
    print(str(value) if raw else display.pretty(value))


def _pylab(text):
    """Binds NumPy and Matplotlib's `pyplot`, and all of their names."""
    code = "import numpy, matplotlib\nfrom matplotlib import pylab, mlab, pyplot\nnp = numpy\nplt = pyplot\n"
    if "--no-import-all" not in text.split():
        code += "from matplotlib.pylab import *\nfrom numpy import *\n"
    exec(code, magics.names())
    print("%pylab is deprecated, use %matplotlib inline and import the required libraries.")
    print("Populating the interactive namespace from numpy and matplotlib")


def _unload_extension(text):
    """Takes away what an extension has made."""
    name = text.strip()
    unload = getattr(sys.modules.get(name), "unload_ipython_extension", None)
    if unload is not None:
        unload(magics.get_ipython())
    elif name in sys.modules or name in magics.EXTENSIONS:
        print(f"The {name} extension doesn't define how to unload it.")
    else:
        print(f"The {name} extension is not loaded.")


def _quick_reference(_text):
    """Prints what can be written besides Python, and which magics there are."""
    print(
        "name?, name??     what there is to know of an object, and its source; ?name does the same",
        "np.a*?            names that a pattern finds",
        "!command          runs a command of the shell; files = !ls keeps the lines that it prints",
        "%magic words      runs a magic; {expression} and $name are replaced by values",
        "%%magic words     runs a magic on the lines below",
        "_, __, _4, Out[4] values of cells; _i, _i4, In[4] their sources",
        "",
        sep="\n",
    )
    for known, sign in ((LINE_MAGICS, "%"), (CELL_MAGICS, "%%")):
        for name in sorted(known):
            said = inspect.getdoc(known[name] or magics.AROUND_MAGICS.get(name)) or ""
            print(f"{sign}{name}:\n    {said.splitlines()[0] if said else '...'}")


# --- What has nothing to work on here

_REFUSED = {
    "debug": "nobody can type commands for a debugger here: `%tb` prints the last traceback, and `sys.last_value` is the exception",
    "edit": "there is no editor here: `%%writefile FILE` writes a file, and `%run FILE` runs it",
    "connect_info": "no other client can connect to this kernel",
    "qtconsole": "no window can be opened here",
    "pastebin": "nothing can be published from here: `%save FILE 1-4` writes cells into a file",
    "man": "there are no manual pages here: `COMMAND --help` says what a command does",
    "logstart": "no log is written here: `%history -f FILE` writes the sources of cells into a file, `%notebook FILE` a notebook",
    "subshell": "a kernel has one shell here",
    "code_wrap": "cells are not wrapped here: a function with the code does the same",
    "sc": "`name = !command` keeps the lines that a command prints",
}
_REFUSED |= {"ed": _REFUSED["edit"]} | dict.fromkeys(("logstate", "logon", "logoff", "logstop"), _REFUSED["logstart"])


def _refuse(name, reason, sign="%"):
    def refuse(_text, _body=None):
        raise UsageError(f"`{sign}{name}` does nothing in this sandbox: {reason}")

    refuse.__doc__ = f"Not here: {reason}."
    return refuse


def _program(name):
    def run(_text, _body):
        raise UsageError(f"Couldn't find program: '{name}'. Cells run `%%bash`, `%%python` and `%%script node`.")

    return run


def _say(text):
    return lambda _text: print(text)


LINE_MAGICS.update({name: _refuse(name, reason) for name, reason in _REFUSED.items()})
LINE_MAGICS.update(
    {
        "alias": _alias,
        "alias_magic": _alias_magic,
        "autoawait": _say("IPython autoawait is `on`, and set to use `asyncio`"),
        "autocall": _say("Automatic calling is: OFF"),
        "automagic": _switch(
            "automagic",
            "\nAutomagic is ON, % prefix IS NOT needed for line magics.",
            "\nAutomagic is OFF, % prefix IS needed for line magics.",
        ),
        "bookmark": _bookmark,
        "clear": lambda _text: ipython.InteractiveShell.display_pub.clear_output(),
        "config": _config,
        "dhist": _folder_history,
        "dirs": _folders,
        "doctest_mode": _switch(
            "doctest_mode",
            "Exception reporting mode: Plain\nDoctest mode is: ON",
            "Exception reporting mode: Context\nDoctest mode is: OFF",
        ),
        "killbgscripts": _say("All background processes were killed."),
        "less": LINE_MAGICS["pycat"],
        "magic": _quick_reference,
        "more": LINE_MAGICS["pycat"],
        "page": _page,
        "pdb": _switch("pdb", "Automatic pdb calling has been turned ON", "Automatic pdb calling has been turned OFF"),
        "popd": _pop_folder,
        "pprint": _pprint,
        "pushd": _push_folder,
        "pylab": _pylab,
        "quickref": _quick_reference,
        "rehashx": lambda _text: None,
        "store": _store,
        "unalias": _unalias,
        "unload_ext": _unload_extension,
    }
)
for _name in ("mamba", "micromamba"):
    LINE_MAGICS[_name] = LINE_MAGICS["pip"]
CELL_MAGICS.update({name: _program(name) for name in ("perl", "ruby", "pypy", "python2")})
CELL_MAGICS.update({name: _refuse(name, _REFUSED[name], "%%") for name in ("debug", "code_wrap")})
magics.bookmarks = _bookmarks


# --- Values of all expressions: `InteractiveShell.ast_node_interactivity`

_SHOW = "__cellar_show__"


class _Showing(ast.NodeTransformer):
    """Has the value of each expression that is a statement shown, but in functions and classes."""

    def visit_Expr(self, node):  # noqa: N802 - the name that `ast` asks for
        call = ast.Call(ast.Name(_SHOW, ast.Load()), [node.value], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(ast.copy_location(call, node.value)), node))

    def _leave(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _leave


def show_more(tree):
    """Changes what a cell shows, if it is to show anything but its last expression; whether it did."""
    wanted = ipython.settings["ast_node_interactivity"]
    last = tree.body[-1] if tree.body else None
    if wanted == "all":
        _Showing().visit(tree)
    elif wanted == "none" and last is not None:
        tree.body.append(ast.copy_location(ast.Pass(), last))
    elif wanted == "last_expr_or_assign" and isinstance(last, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        target = last.targets[0] if isinstance(last, ast.Assign) else last.target
        if isinstance(target, ast.Name):
            name = ast.Expr(ast.Name(target.id, ast.Load()))
            tree.body.append(ast.fix_missing_locations(ast.copy_location(name, last)))
    else:
        return False
    return True


def begin(show):
    """Says what shows a value."""
    setattr(builtins, _SHOW, show)


def forget():
    """Makes everything as it was when the session began."""
    ipython.settings.update(ipython.FIRST_SETTINGS)
    display.is_pretty[0] = True
    for each in (_bookmarks, _stored, _stack):
        each.clear()
