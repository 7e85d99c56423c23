"""Text and tables out of documents. A file that is damaged, or is something else, is a ValueError that says so."""

import os
import posixpath
import zipfile
from xml.etree import ElementTree

_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_PRESENTATION = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_REFERENCE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
# A part of a presentation that unpacks to more is no slide that anybody has made.
_PART_BYTES_MAX = 64 << 20


def _unreadable(path, kind, why):
    return ValueError(f"{os.fspath(path)!r} cannot be read as {kind}: {why}")


def read_pdf_text(path, *, max_pages=None):
    """The text of a PDF, or of its first pages: pages are separated by a form feed."""
    import pypdf

    if max_pages is not None and max_pages < 1:
        raise ValueError(f"max_pages must be at least 1, or None for all pages, and not {max_pages!r}")
    with open(path, "rb") as file:
        try:
            reader = pypdf.PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise _unreadable(path, "a PDF", "it asks for a password")
            count = len(reader.pages) if max_pages is None else min(max_pages, len(reader.pages))
            return "\f".join(reader.pages[index].extract_text() for index in range(count))
        except pypdf.errors.DependencyError as error:
            raise _unreadable(path, "a PDF", "it is encrypted in a way that this sandbox has no code for") from error
        except (pypdf.errors.PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
            # What pypdf raises depends on what is damaged.
            raise _unreadable(path, "a PDF", f"it is damaged or not one ({error})") from error


def read_excel(path, sheet_name=0, **kw):
    """A sheet of a workbook as a DataFrame, or several by name: `pandas.read_excel`, with openpyxl."""
    import pandas

    with open(path, "rb") as file:
        try:
            return pandas.read_excel(file, sheet_name=sheet_name, engine=kw.pop("engine", "openpyxl"), **kw)
        except (zipfile.BadZipFile, zipfile.LargeZipFile, ElementTree.ParseError, EOFError, KeyError, OSError) as error:
            raise _unreadable(path, "a workbook", f"it is damaged or not an .xlsx ({error})") from error


def read_pptx_text(path):
    """The slides of a presentation in their order, each as `{"index": number from 1, "text": text}`."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return [
                    {"index": index, "text": _slide_text(_part(archive, name))}
                    for index, name in enumerate(_slides(archive), 1)
                ]
        except (zipfile.BadZipFile, zipfile.LargeZipFile, ElementTree.ParseError, EOFError, KeyError, OSError) as error:
            raise _unreadable(path, "a presentation", f"it is damaged or not a .pptx ({error})") from error


def _part(archive, name):
    if archive.getinfo(name).file_size > _PART_BYTES_MAX:
        raise OSError(f"its part {name!r} is too large")
    return ElementTree.fromstring(archive.read(name))


def _slides(archive):
    """Names of the parts that are slides, as the presentation orders them."""
    relations = _part(archive, "ppt/_rels/presentation.xml.rels")
    targets = {relation.get("Id"): relation.get("Target") for relation in relations.iter(f"{_RELATIONS}Relationship")}
    for slide in _part(archive, "ppt/presentation.xml").iter(f"{_PRESENTATION}sldId"):
        # Relative to the folder of the presentation, or absolute in the archive.
        yield posixpath.normpath(posixpath.join("/ppt", targets[slide.get(_REFERENCE)])).lstrip("/")


def _slide_text(slide):
    """The paragraphs of all shapes and tables, a line each; empty ones are left out."""
    lines = []
    for paragraph in slide.iter(f"{_DRAWING}p"):
        parts = {f"{_DRAWING}t": lambda part: part.text or "", f"{_DRAWING}br": lambda _: "\n"}
        line = "".join(parts[part.tag](part) for part in paragraph.iter() if part.tag in parts)
        if line.strip():
            lines.append(line)
    return "\n".join(lines)
