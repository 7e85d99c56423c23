"""HTML as basic Markdown, for readers that show no HTML."""

import contextlib
import re
import sys
from html import unescape

from _cellar_prelude.platform.sandbox import VENDORED_FOLDER

# HTML of more characters than this is not converted, which would take seconds.
LIMIT = 256 * 1024

# What the conversion imports. Cells find their own packages of these names, or none.
_PACKAGES = ("bs4", "markdownify", "six", "soupsieve", "typing_extensions")


# The modules of those packages, by name.
_modules = {}


def _hide():
    """Takes the packages out of what is imported, and returns them."""
    found = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in _PACKAGES}
    for name in found:
        del sys.modules[name]
    return found


@contextlib.contextmanager
def _visible():
    """Makes the vendored packages the imported ones, for the functions of theirs that import."""
    theirs = _hide()
    sys.modules.update(_modules)
    sys.path.insert(0, VENDORED_FOLDER)
    try:
        yield
    finally:
        sys.path.remove(VENDORED_FOLDER)
        _modules.update(_hide())
        sys.modules.update(theirs)


with _visible():
    import bs4.builder
    from markdownify import MarkdownConverter

# Warnings about odd HTML are meant for who wrote the parser's caller.
bs4.builder.DetectsXMLParsedAsHTML._warn = classmethod(lambda cls, stacklevel=0: None)


# How pages name the language of a block of code.
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source|brush:)[-_ ]?([\w+#.-]+)\Z")
# Classes of blocks that are no languages.
_NO_LANGUAGES = ("highlight", "codehilite", "code", "hljs", "sourceCode", "literal-block", "prettyprint", "notranslate")


def _language(block):
    """The language of a block of code, as its class or that of the element in it says; empty when neither does."""
    for each in (block.find("code"), block, block.parent):
        classes = [] if each is None else each.get("class") or []
        for name in classes:
            found = _LANGUAGE.match(name)
            if found:
                return found[1]
        if "sourceCode" in classes:
            return next((name for name in classes if name not in _NO_LANGUAGES), "")
    return ""


class _Converter(MarkdownConverter):
    class Options(MarkdownConverter.DefaultOptions):
        heading_style = "atx"
        bullets = "-"
        escape_asterisks = escape_underscores = False
        # Every table has a head in Markdown.
        table_infer_header = True
        code_language_callback = staticmethod(lambda el: _language(el))

    def _nothing(self, el, text, parent_tags):
        return ""

    convert_script = convert_style = convert_head = convert_template = _nothing

    def convert_img(self, el, text, parent_tags):
        """An image in the page itself is no use as a link."""
        if (el.attrs.get("src") or "").startswith("data:"):
            return el.attrs.get("alt") or ""
        return super().convert_img(el, text, parent_tags)

    def convert_td(self, el, text, parent_tags):
        return super().convert_td(el, text.replace("|", "\\|"), parent_tags)

    def convert_th(self, el, text, parent_tags):
        return super().convert_th(el, text.replace("|", "\\|"), parent_tags)


# What ends an open element whose end tag was left out: the elements that begin behind it.
_ENDED_BY = {
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "td": {"td", "th", "tr", "tbody", "thead", "tfoot"},
    "th": {"td", "th", "tr", "tbody", "thead", "tfoot"},
    "tr": {"tr", "tbody", "thead", "tfoot"},
    "thead": {"tbody", "tfoot"},
    "tbody": {"tbody", "tfoot"},
    "option": {"option", "optgroup"},
    "p": set("address article blockquote div dl footer form h1 h2 h3 h4 h5 h6 header hr ol p pre section table ul".split()),
}
# Elements that end none outside of themselves.
_WALLS = {"ul", "ol", "dl", "table", "select", "div", "blockquote"}
_VOID = set("area base br col embed hr img input link meta param source track wbr".split())
_TAG = re.compile(r"<!--.*?-->|<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>", re.DOTALL)


def _with_end_tags(html):
    """The same with the end tags that HTML lets its authors leave out, which the parser does not know to add."""
    stack, out, position = [], [], 0

    def end(place):
        out.extend(f"</{name}>" for name in reversed(stack[place:]))
        del stack[place:]

    for found in _TAG.finditer(html):
        out.append(html[position : found.start()])
        position = found.end()
        name = (found[2] or "").lower()
        if not name or name in _VOID or found[3].endswith("/"):
            out.append(found[0])
        elif found[1]:
            # One that was never open is none.
            if name in stack:
                end(len(stack) - 1 - stack[::-1].index(name))
        else:
            place = len(stack)
            while place > 0 and stack[place - 1] not in _WALLS:
                place -= 1
            ended = (at for at in range(place, len(stack)) if name in _ENDED_BY.get(stack[at], ()))
            end(next(ended, len(stack)))
            out.append(found[0])
            stack.append(name)
    out.append(html[position:])
    end(0)
    return "".join(out)


def html_to_markdown(html):
    """The text of a page with basic marks; None for a page that is too long."""
    if len(html) > LIMIT:
        return None
    with _visible():
        try:
            # Inside an element nothing is taken for a file name or an address.
            return _Converter().convert(f"<div>{_with_end_tags(html)}</div>").strip()
        except RecursionError:
            # Elements that lie too deep in each other: their text alone.
            return " ".join(unescape(_TAG.sub(" ", html)).split())


def modules():
    """The modules that the conversion uses, which cells do not see."""
    return list(_modules.values())
