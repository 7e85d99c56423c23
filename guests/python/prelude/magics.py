"""What IPython adds to Python's syntax: help with `name?` works; magics and shell commands say what to use instead."""

import ast
import re

_HELP = re.compile(r"\s*(?:\?{1,2}\s*(?P<after>[\w.]+)|(?P<before>[\w.]+)\s*\?{1,2})\s*(?:#.*)?$", re.DOTALL)
_MAGIC = re.compile(r"\s*(?:[\w.,\s]+=\s*)?(?P<sign>%%?|!!?)\s*(?P<name>[\w./~-]+)?")

_PROCESSES = "no processes can be started in this sandbox"
_PACKAGES = (
    "packages cannot be installed from a cell: what is not in the standard library must be granted to the session as a "
    "folder of packages"
)
_MAGICS = {
    "autoreload": "nothing is needed: `import` reads modules of the workspace again when they have changed",
    "bash": f"{_PROCESSES}: use Python, or a tool that the host offers (dir(tool))",
    "capture": "use contextlib.redirect_stdout",
    "cd": "use os.chdir(path)",
    "conda": _PACKAGES,
    "debug": "print what you need to know: there is no terminal for a debugger",
    "env": "use env() to list, env(name) to read, env(name, value) to set",
    "file": "use write(path, text)",
    "html": "use display(HTML(text)), with `from IPython.display import HTML`",
    "latex": "use display(Latex(text)), with `from IPython.display import Latex`",
    "load_ext": "remove the line: there are no extensions",
    "ls": "use tree(path) or os.listdir(path)",
    "markdown": "use display(Markdown(text)), with `from IPython.display import Markdown`",
    "matplotlib": "remove the line: figures are shown with display(figure)",
    "pip": _PACKAGES,
    "prun": "use cProfile.run(code)",
    "pwd": "use os.getcwd()",
    "run": "use runpy.run_path(path)",
    "time": "use time.perf_counter() before and after",
    "timeit": "use timeit.timeit(function, number=1000), with `import timeit`",
    "who": "use dir()",
    "whos": "use dir()",
    "writefile": "use write(path, text)",
}
_MAGICS |= dict.fromkeys(("sh", "script", "system", "sx", "perl", "ruby", "cmd"), _MAGICS["bash"])
_MAGICS |= dict.fromkeys(("mamba", "uv"), _PACKAGES)
_COMMANDS = {
    "cat": "use read(path)",
    "cd": _MAGICS["cd"],
    "cp": "use shutil.copy(source, target)",
    "curl": "use urllib.request, if the session was granted the host",
    "echo": "use print()",
    "find": "use tree(path) or pathlib.Path(path).rglob(pattern)",
    "grep": "use read(path) and the module re",
    "head": "use read(path, limit=10)",
    "ls": _MAGICS["ls"],
    "mkdir": "use os.makedirs(path)",
    "mv": "use shutil.move(source, target)",
    "pip": _PACKAGES,
    "pwd": _MAGICS["pwd"],
    "python": "run the code in a cell",
    "rm": "use os.remove(path) or shutil.rmtree(path)",
    "tail": "use read(path).splitlines()[-10:]",
    "touch": "use pathlib.Path(path).touch()",
    "unzip": "use the module zipfile",
    "wc": "use len(read(path).splitlines())",
    "wget": "use urllib.request, if the session was granted the host",
}
_COMMANDS |= {"pip3": _PACKAGES, "conda": _PACKAGES, "uv": _PACKAGES, "apt": _PACKAGES, "apt-get": _PACKAGES}
_COMMANDS |= {"python3": _COMMANDS["python"], "tar": "use the module tarfile"}


def help_call(source, filename):
    """The code of a call of `help` when the cell is `name?` or `?name`, else None."""
    match = _HELP.match(source)
    if match is None:
        return None
    group = "after" if match["after"] else "before"
    line = 1 + source.count("\n", 0, match.start(group))
    column = match.start(group) - (source.rfind("\n", 0, match.start(group)) + 1)
    try:
        subject = ast.parse(match[group], mode="eval").body
    except SyntaxError:
        return None
    for node in ast.walk(subject):
        if isinstance(node, ast.expr):
            node.lineno = node.end_lineno = line
            node.col_offset += column
            node.end_col_offset += column
    call = ast.Call(ast.Name("help", ast.Load()), [subject], [])
    expression = ast.Expression(ast.copy_location(call, subject))
    return compile(ast.fix_missing_locations(expression), filename, "eval")


def explain(error, source, filename):
    """Says in a syntax error what to use instead of a magic or a shell command, if one is at its place."""
    if error.filename != filename or error.lineno is None:
        return
    lines = source.split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), 1)
    for number in (error.lineno, first):
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        if _HELP.match(line) and number == error.lineno:
            error.msg = f"help as in `{line.strip()}` must be a cell of its own; use help(name)"
            return
        match = _MAGIC.match(line)
        if match is None or (number != error.lineno and match["sign"] != "%%"):
            continue
        sign, name = match["sign"], match["name"] or ""
        if sign[0] == "%":
            remedy = _MAGICS.get(name.lower(), "use Python instead")
            what = f"`{sign}{name}` is an IPython magic, and cells are plain Python"
        else:
            remedy = _COMMANDS.get(name.rpartition("/")[2], f"{_PROCESSES}: use Python, or a tool of the host (dir(tool))")
            what = f"`{sign}{name}` is a shell command, and cells are plain Python"
        error.msg = f"{what}; {remedy}"
        error.lineno = error.end_lineno = number
        error.offset = match.start("sign") + 1
        error.end_offset = len(line.rstrip()) + 1
        error.text = line
        return
