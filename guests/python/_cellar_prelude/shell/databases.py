"""`sqlite3` as a command of the shell: statements, the usual commands with a point, and ways to show rows."""

import csv
import io
import itertools
import json
import re
import shlex
import sqlite3


def _read(name):
    with open(name, encoding="utf-8-sig", errors="replace") as file:
        return file.read()


def _cell(value, null=""):
    if value is None:
        return null
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        text = f"{value or 0.0:.15g}"
        return text if re.search(r"[.inf]", text) else text.replace("e", ".0e") if "e" in text else f"{text}.0"
    return str(value)


def _quoted(value):
    if value is None or isinstance(value, int | float):
        return _cell(value, "NULL")
    return f"X'{value.hex()}'" if isinstance(value, bytes) else "'" + value.replace("'", "''") + "'"


class _Sqlite:
    """One run of `sqlite3`: how it shows rows, and what it does."""

    def __init__(self, name, out, err):
        self._connection = sqlite3.connect(name, isolation_level=None)
        self._out, self._err = out, err
        self.mode, self.header, self.separator, self.null, self.status, self.is_ended = "list", None, None, "", 0, False

    def close(self):
        """Lets go of the database."""
        self._connection.close()

    def script(self, text):
        """Runs lines of commands with a point, and statements."""
        held = ""
        for line in text.splitlines(True):
            if not held.strip() and line.lstrip().startswith("."):
                self._dotted(line.strip())
            else:
                held += line
                if sqlite3.complete_statement(held):
                    self._statements(held)
                    held = ""
            if self.is_ended:
                return
        if held.strip():
            self._statements(held)

    def _statements(self, text):
        statement = ""
        for part in re.split(r"(?<=;)", text):
            statement += part
            if sqlite3.complete_statement(statement) or (part is text and statement.strip()):
                self._one(statement)
                statement = ""
        if statement.strip():
            self._one(statement)

    def _one(self, statement):
        if not re.sub(r"--[^\n]*|/\*.*?\*/|;", "", statement, flags=re.DOTALL).strip():
            return
        try:
            rows = self._connection.execute(statement)
            if rows.description is not None:
                self._show([each[0] for each in rows.description], rows)
        except (sqlite3.Error, sqlite3.Warning) as error:
            is_late = isinstance(error, sqlite3.IntegrityError)
            self._failed(f"Runtime error: {error} ({error.sqlite_errorcode & 0xFF})" if is_late else f"Error: in prepare, {error}")

    def _show(self, names, rows):
        mode = self.mode
        if mode in ("list", "csv", "tabs"):
            separator = self.separator or {"list": "|", "csv": ",", "tabs": "\t"}[mode]
            writer = csv.writer(self._out, delimiter=separator, lineterminator="\n") if mode == "csv" else None
            for row in itertools.chain([names] if self.header else [], rows):
                cells = [_cell(each, self.null) for each in row]
                writer.writerow(cells) if writer else self._out.write(separator.join(cells) + "\n")
        elif mode == "json":
            found = [dict(zip(names, row, strict=True)) for row in rows]
            if found:
                self._out.write("[" + ",\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":"), default=_cell) for each in found) + "]\n")
        elif mode == "line":
            width = max(5, *map(len, names))
            self._out.write("\n".join("".join(f"{name:>{width}} = {_cell(each, self.null)}\n" for name, each in zip(names, row, strict=True)) for row in rows))
        elif mode in ("insert", "quote"):
            for row in rows:
                values = ",".join(map(_quoted, row))
                self._out.write(f"INSERT INTO \"table\" VALUES({values});\n" if mode == "insert" else f"{values}\n")
        else:
            self._aligned(names, [[_cell(each, self.null) for each in row] for row in rows])

    def _aligned(self, names, rows):
        if not rows:
            return
        widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in zip(names, *rows, strict=True)]
        fit = lambda cells, sign: sign.join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))  # noqa: E731
        centred = [f"{name:^{width}}" if (width - len(name)) % 2 == 0 else f"{'':{(width - len(name)) // 2}}{name}".ljust(width) for name, width in zip(names, widths, strict=True)]
        if self.mode == "column":
            head = [names, ["-" * width for width in widths]] if self.header is not False else []
            self._out.write("".join(f"{fit(row, '  ')}\n" for row in [*head, *rows]))
            return
        signs = {"table": ("+", "-", "|"), "markdown": ("|", "-", "|"), "box": ("┼", "─", "│")}[self.mode]
        rule = lambda left, middle, right: left + middle.join(signs[1] * (width + 2) for width in widths) + right + "\n"  # noqa: E731
        line = lambda cells: f"{signs[2]} {fit(cells, f' {signs[2]} ')} {signs[2]}\n"  # noqa: E731
        edges = {"table": (("+", "+", "+"),) * 3, "markdown": (None, ("|", "|", "|"), None), "box": (("┌", "┬", "┐"), ("├", "┼", "┤"), ("└", "┴", "┘"))}[self.mode]
        top, under, bottom = (rule(*each) if each else "" for each in edges)
        self._out.write(top + line(centred) + under + "".join(map(line, rows)) + bottom)

    def _dotted(self, line):
        try:
            name, *words = shlex.split(line)
        except ValueError:
            name, *words = line.split()
        word = words[0] if words else ""
        if name in (".quit", ".exit", ".q"):
            self.is_ended = True
        elif name in (".headers", ".header"):
            self.header = word in ("on", "yes", "1")
        elif name == ".mode":
            if word not in ("list", "csv", "tabs", "json", "line", "insert", "quote", "column", "table", "markdown", "box"):
                self._failed(f'Error: mode should be one of: box column csv insert json line list markdown quote table tabs, not "{word}"')
            self.mode, self.separator = word or "list", None
        elif name == ".separator":
            self.separator = word.replace("\\t", "\t")
        elif name == ".nullvalue":
            self.null = word
        elif name in (".tables", ".schema", ".indexes", ".indices", ".databases", ".dump"):
            self._told(name, word)
        elif name == ".read":
            self.script(_read(word))
        elif name == ".import":
            self._import([each for each in words if not each.startswith("-")], "--csv" in words or self.mode == "csv", "--skip" in words)
        elif name == ".print":
            self._out.write(" ".join(words) + "\n")
        elif name not in (".timer", ".echo", ".bail", ".width", ".changes"):
            self._failed(f'Error: unknown command or invalid arguments:  "{name[1:]}".')

    def _failed(self, text):
        self._err.write(f"{text}\n")
        self.status = 1

    def _told(self, name, word):
        if name == ".dump":
            self._out.write("PRAGMA foreign_keys=OFF;\n" + "".join(f"{line}\n" for line in self._connection.iterdump()))
            return
        if name == ".databases":
            self._out.write("".join(f"{each[1]}: {each[2]} r/w\n" for each in self._connection.execute("PRAGMA database_list")))
            return
        kinds = {".tables": ("table", "view"), ".schema": ("table", "view", "index", "trigger")}.get(name, ("index",))
        rows = self._connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'" + (" ORDER BY name" if name != ".schema" else ""))
        found = [row for row in rows if row[0] in kinds and (not word or re.fullmatch(re.escape(word).replace("%", ".*"), row[2]))]
        if name == ".schema":
            self._out.write("".join(f"{row[3]};\n" for row in found if row[3]))
            return
        names = [row[1] for row in found]
        width = max(map(len, names), default=0)
        columns = max(1, 80 // (width + 2))
        height = -(-len(names) // columns)
        for row in range(height):
            self._out.write("  ".join(f"{each:<{width}}" for each in names[row::height]) + "\n")

    def _import(self, words, is_csv, is_skipped):
        name, table = words[:2]
        rows = list(csv.reader(io.StringIO(_read(name)), delimiter="," if is_csv else self.separator or "|"))
        quoted = '"' + table.replace('"', '""') + '"'
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            columns = ", ".join('"' + each.replace('"', '""') + '" TEXT' for each in rows.pop(0))
            self._connection.execute(f"CREATE TABLE {quoted}({columns})")
        elif is_skipped:
            rows.pop(0)
        if rows:
            self._connection.executemany(f"INSERT INTO {quoted} VALUES({', '.join('?' * len(rows[0]))})", rows)


def command(arguments, stdin, out, err):
    """`sqlite3`, as a command of the shell."""
    modes = {"csv", "column", "json", "line", "list", "box", "table", "markdown", "quote", "tabs", "insert"}
    settings, rest, given = {}, [], []
    arguments = list(arguments)
    while arguments:
        each = arguments.pop(0)
        name = each.lstrip("-")
        if not each.startswith("-"):
            rest.append(each)
        elif name in modes:
            settings["mode"] = name
        elif name in ("header", "noheader"):
            settings["header"] = name == "header"
        elif name in ("separator", "nullvalue", "cmd"):
            given.append(arguments.pop(0)) if name == "cmd" else settings.update({"null" if name == "nullvalue" else name: arguments.pop(0)})
        elif name == "version":
            out.write(f"{sqlite3.sqlite_version}\n")
            return 0
        elif name not in ("batch", "bail", "readonly", "safe"):
            err.write(f"sqlite3: Error: unknown option: {each}\n")
            return 1
    session = _Sqlite(rest[0] if rest else ":memory:", out, err)
    try:
        for name, value in settings.items():
            setattr(session, name, value)
        for text in [*given, *(rest[1:] or [stdin.read()])]:
            session.script(text)
    except sqlite3.Error as error:
        err.write(f"Error: {error}\n")
        return 1
    finally:
        session.close()
    return session.status
