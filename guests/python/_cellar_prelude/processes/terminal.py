"""A shell at a terminal: it writes a prompt, reads a line, runs it, and does so again.

The host has the line being edited, echoes it and hands it over when it is whole; see `terminal.rs` of the server. What ends
input and what says how large the terminal is come in the same pipe, as bytes that nobody types.
"""

import ast
import io
import os
import re

import _cellar
from _cellar_prelude.processes import channels
from _cellar_prelude.shell import shell
from _cellar_prelude.shell.arithmetic import Bad
from _cellar_prelude.shell.lines import Stream
from _cellar_prelude.shell.shell_syntax import Reader, Unreadable, tokens

# Ends one reading, as Ctrl-D does.
_END = b"\x04"
# A change of size: rows and columns.
_SIZE = re.compile(rb"\0(\d{1,5}) (\d{1,5})\n")
# Characters of what a shell is told to go on from; one that has more goes on from its folder and its environment.
_STATE_MAX = 1 << 20
_HERE = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_PROMPT = r"\u@\h:\w\$ "


class Typed(io.RawIOBase):
    """The lines of a terminal, one by one, so that nothing is kept back of those that others read."""

    name = "<stdin>"

    def __init__(self, pipe):
        self.pipe, self.has_ended, self._kept = pipe, False, b""

    def readable(self):
        return True

    def take_in(self, data, has_ended):
        """Takes in what was taken out of the pipe."""
        self._kept = _SIZE.sub(_resize, self._kept + data)
        self.has_ended = self.has_ended or has_ended

    def has_piece(self):
        """Whether something can be read at once."""
        return bool(self._kept)

    def piece(self, size=1 << 16):
        """The next line, as far as there is one; nothing where input ends."""
        if self._kept.startswith(_END):
            self._kept = self._kept[1:]
            return b""
        line = self._kept[: self._kept.find(b"\n") + 1] or self._kept
        line = line.partition(_END)[0][:size]
        self._kept = self._kept[len(line) :]
        return line

    def readinto(self, buffer):
        while not self._kept and not self.has_ended:
            _, found = channels.transfer(out_of=[self.pipe])
            for _, data, has_ended in found:
                self.take_in(data, has_ended)
        piece = self.piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _resize(match):
    os.environ["LINES"], os.environ["COLUMNS"] = match[1].decode(), match[2].decode()
    return b""


def run(order, stdin, out, err):
    """Runs the shell of a terminal to its end; its exit status."""
    terminal = shell.Shell()
    if order.get("state"):
        _go_on(terminal, ast.literal_eval(order["state"]))
    streams = shell._Streams(stdin, out, err)
    text = ""
    while True:
        if not text:
            _cellar.process_reply(_state_of(terminal))
        out.write(_prompt(terminal, "PS2", "> ") if text else _prompt(terminal, "PS1", _PROMPT))
        line = stdin.readline()
        text += line
        if line and _is_cut_off(text):
            continue
        try:
            if not line:
                out.write("exit\n")
                raise shell.Exit(terminal.status)
            terminal.told(text, streams)
        except shell.Exit as end:
            return terminal.run(f"(exit {end.args[0]})", Stream(), out, err)
        text = ""


def _is_cut_off(text):
    """Whether a command goes on in the next line."""
    if text.endswith("\\\n"):
        return True
    if any(match[2] not in text.split("\n")[1:] for match in _HERE.finditer(text)):
        return True
    try:
        for _ in Reader(tokens(text)).lines():
            continue
    except Unreadable as error:
        return "end of file" in str(error) or "unexpected EOF" in str(error)
    except (Bad, RecursionError):
        return False
    return False


def _state_of(terminal):
    """What another shell goes on from when this one is interrupted, as a literal."""
    own = {name: getattr(terminal, name) for name in ("scopes", "kinds", "functions", "arguments", "folders")}
    state = {"folder": os.getcwd(), "environment": dict(os.environ), **own, "options": sorted(terminal.options)}
    text = repr(state)
    return text if len(text) <= _STATE_MAX else repr({name: state[name] for name in ("folder", "environment")})


def _go_on(terminal, state):
    os.chdir(state.pop("folder"))
    os.environ.clear()
    os.environ.update(state.pop("environment"))
    terminal.options = set(state.pop("options", ()))
    for name, value in state.items():
        setattr(terminal, name, value)
    # As that of a command that was interrupted.
    terminal.status = 130


def _prompt(terminal, name, usual):
    folder, home = os.getcwd(), os.environ.get("HOME", "/")
    shown = "~" + folder[len(home) :] if folder == home or folder.startswith(home.rstrip("/") + "/") else folder
    signs = {"u": "user", "h": "sandbox", "w": shown, "W": os.path.basename(shown) or shown, "$": "$", "n": "\n", "e": "\033", "[": "", "]": ""}
    prompt = terminal.find(name)
    return re.sub(r"\\(.)", lambda match: signs.get(match[1], match[0]), prompt if isinstance(prompt, str) else usual)
