"""HTML as basic Markdown, for readers that show no HTML."""

from html.parser import HTMLParser

_BLOCKS = {"p", "div", "section", "article", "header", "footer", "figure", "figcaption", "main", "dl", "dd", "dt", "form"}
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "del": "~~", "s": "~~"}
_SILENT = {"script", "style", "head", "template"}


class _Converter(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts = []
        self.lists = []
        self.rows = None
        self.links = []
        self.silent = 0
        self.pre = 0

    def break_to(self, lines):
        """Ends the line, leaving `lines - 1` empty ones."""
        text = "".join(self.parts[-3:])
        have = len(text) - len(text.rstrip("\n"))
        if self.parts and have < lines:
            self.parts.append("\n" * (lines - have))

    def handle_starttag(self, tag, attrs):
        if tag in _SILENT:
            self.silent += 1
        elif tag in _MARKS:
            if not (tag == "code" and self.pre):
                self.parts.append(_MARKS[tag])
        elif tag in _BLOCKS or tag == "blockquote":
            self.break_to(2)
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.break_to(2)
            self.parts.append("#" * int(tag[1]) + " ")
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "hr":
            self.break_to(2)
            self.parts.append("---\n\n")
        elif tag == "pre":
            self.break_to(2)
            self.parts.append("```\n")
            self.pre += 1
        elif tag in ("ul", "ol"):
            self.break_to(1 if self.lists else 2)
            self.lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self.start_item()
        elif tag == "a":
            self.links.append(dict(attrs).get("href"))
            self.parts.append("[")
        elif tag == "img":
            names = dict(attrs)
            self.parts.append(f"![{names.get('alt') or ''}]({(names.get('src') or '')[:200]})")
        elif tag == "table":
            self.break_to(2)
            self.rows = []
        elif tag == "tr" and self.rows is not None:
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append(len(self.parts))

    def start_item(self):
        self.break_to(1)
        indent = "  " * max(len(self.lists) - 1, 0)
        if self.lists and self.lists[-1] is not None:
            self.lists[-1] += 1
            self.parts.append(f"{indent}{self.lists[-1]}. ")
        else:
            self.parts.append(f"{indent}- ")

    def handle_endtag(self, tag):
        if tag in _SILENT:
            self.silent = max(self.silent - 1, 0)
        elif tag in _MARKS:
            if not (tag == "code" and self.pre):
                self.parts.append(_MARKS[tag])
        elif tag in _BLOCKS or tag == "blockquote" or (len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()):
            self.break_to(2)
        elif tag == "pre":
            self.pre = max(self.pre - 1, 0)
            self.break_to(1)
            self.parts.append("```\n\n")
        elif tag in ("ul", "ol") and self.lists:
            self.lists.pop()
            self.break_to(1 if self.lists else 2)
        elif tag == "a" and self.links:
            target = self.links.pop()
            self.parts.append(f"]({target})" if target else "]")
        elif tag in ("td", "th") and self.rows and self.rows[-1] and isinstance(self.rows[-1][-1], int):
            start = self.rows[-1][-1]
            cell = " ".join("".join(self.parts[start:]).split()).replace("|", "\\|")
            del self.parts[start:]
            self.rows[-1][-1] = cell
        elif tag == "table" and self.rows is not None:
            self.end_table()

    def end_table(self):
        rows = [[cell if isinstance(cell, str) else "" for cell in row] for row in self.rows if row]
        self.rows = None
        if not rows:
            return
        width = max(len(row) for row in rows)
        rows = [row + [""] * (width - len(row)) for row in rows]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|" + " --- |" * width)
        self.parts.append("\n".join(lines) + "\n\n")

    def handle_data(self, data):
        if self.silent:
            return
        if self.pre:
            self.parts.append(data)
            return
        text = " ".join(data.split())
        if not text:
            if data and self.parts and not self.parts[-1].endswith(("\n", " ")) and "\n" not in data:
                self.parts.append(" ")
            return
        before = " " if data[0].isspace() and self.parts and not self.parts[-1].endswith(("\n", " ")) else ""
        after = " " if data[-1].isspace() else ""
        self.parts.append(before + text + after)


def html_to_markdown(html):
    """Headings, emphasis, lists, links, code and tables; everything else as its text."""
    converter = _Converter()
    converter.feed(html)
    converter.close()
    lines = "".join(converter.parts).splitlines()
    text = "\n".join(line.rstrip() for line in lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip()
