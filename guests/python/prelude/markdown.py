"""HTML as basic Markdown, for readers that show no HTML."""

import contextlib
import sys

from _cellar_prelude.sandbox import VENDORED_FOLDER

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


class _Converter(MarkdownConverter):
    class Options(MarkdownConverter.DefaultOptions):
        heading_style = "atx"
        bullets = "-"
        escape_asterisks = escape_underscores = False
        # Every table has a head in Markdown.
        table_infer_header = True

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


def html_to_markdown(html):
    """The text of a page with basic marks; None for a page that is too long."""
    if len(html) > LIMIT:
        return None
    with _visible():
        # Inside an element nothing is taken for a file name or an address.
        return _Converter().convert(f"<div>{html}</div>").strip()


def modules():
    """The modules that the conversion uses, which cells do not see."""
    return list(_modules.values())
