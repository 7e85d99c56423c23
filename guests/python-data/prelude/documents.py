"""Text and tables out of documents. A file that is damaged, or is something else, is a ValueError that says so."""

import inspect
import logging
import os
import posixpath
import sys
import types
import zipfile
from xml.etree import ElementTree

from _cellar_prelude import aes
from _cellar_prelude.platform import absent

_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_PRESENTATION = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_REFERENCE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
# A document whose parts unpack to more than this, in bytes, would fill the memory of a kernel. A part that has more bytes
# than its archive says is damaged.
_UNPACKED_BYTES_MAX = 128 << 20

# What is wrong with a document is said in an exception, or is no matter.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)


def begin():
    """Offers pypdf by the name that it had before, and gives it AES."""
    aes.begin()
    absent.offer("PyPDF2", _older)
    absent.offer("PyPDF2.errors", _older)


def _older(name, _refusal):
    """`PyPDF2`, whose last version has the names of pypdf's first one."""
    import pypdf

    for known, module in list(sys.modules.items()):
        if known.startswith("pypdf."):
            sys.modules[f"PyPDF2{known.removeprefix('pypdf')}"] = module
    module = types.ModuleType(name)
    module.__dict__.update({key: value for key, value in vars(pypdf).items() if key not in vars(module)})
    module.PdfMerger = pypdf.PdfWriter
    for gone, instead in _GONE.items():
        setattr(module, gone, _removed(gone, instead))
    return module


# Names of PyPDF2 before its last version, and what it says to use.
_GONE = {"PdfFileReader": "PdfReader", "PdfFileWriter": "PdfWriter", "PdfFileMerger": "PdfMerger"}


def _removed(name, instead):
    def refuse(*_args, **_options):
        errors = sys.modules["pypdf.errors"]
        raise errors.DeprecationError(f"{name} is deprecated and was removed in PyPDF2 3.0.0. Use {instead} instead.")

    return refuse


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
            is_locked = reader.is_encrypted and not reader.decrypt("")
            if not is_locked:
                count = len(reader.pages) if max_pages is None else min(max_pages, len(reader.pages))
                return "\f".join(reader.pages[index].extract_text() for index in range(count))
        except MemoryError:
            raise
        except pypdf.errors.DependencyError as error:
            why = "it is encrypted in a way that this sandbox has no code for; save it without a password"
            raise _unreadable(path, "a PDF", why) from error
        except Exception as error:
            # What pypdf raises depends on what is damaged.
            raise _unreadable(path, "a PDF", f"it is damaged or not one ({error})") from error
    raise _unreadable(path, "a PDF", "it asks for a password; save it without one")


def read_excel(path, sheet_name=0, **kw):
    """A sheet of a workbook as a DataFrame, or several by name: `pandas.read_excel`, with openpyxl."""
    import pandas

    with open(path, "rb") as file:
        _check_archive(path, file, "a workbook", "an .xlsx", "xl/workbook.xml")
        kw.setdefault("engine", "openpyxl")
        # What it is asked in the wrong way for is no damage.
        inspect.signature(pandas.read_excel).bind(file, sheet_name, **kw)
        try:
            return pandas.read_excel(file, sheet_name=sheet_name, **kw)
        except (MemoryError, ValueError):
            # There is no such sheet or column, or a value is not what it shall be.
            raise
        except Exception as error:
            raise _unreadable(path, "a workbook", f"it is damaged ({error})") from error


def read_pptx_text(path):
    """The slides of a presentation in their order, each as `{"index": number from 1, "text": text}`."""
    with open(path, "rb") as file:
        _check_archive(path, file, "a presentation", "a .pptx", "ppt/presentation.xml")
        try:
            with zipfile.ZipFile(file) as archive:
                return [
                    {"index": index, "text": _slide_text(_part(archive, name))}
                    for index, name in enumerate(_slides(archive), 1)
                ]
        except MemoryError:
            raise
        except Exception as error:
            raise _unreadable(path, "a presentation", f"it is damaged ({error})") from error


def _check_archive(path, file, kind, what, needed):
    """That the file is an archive of a bounded size, with the part that makes it what it is to be."""
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError) as error:
        old = file.seek(0) == 0 and file.read(4) == b"\xd0\xcf\x11\xe0"
        why = "it is of the format before 2007, or has a password" if old else f"it is damaged or not {what} ({error})"
        raise _unreadable(path, kind, why) from error
    if needed not in {part.filename for part in parts}:
        raise _unreadable(path, kind, f"it is not {what}: it has no part {needed!r}")
    if any(part.flag_bits & 1 for part in parts):
        raise _unreadable(path, kind, "it has a password; save it without one")
    size = sum(part.file_size for part in parts)
    if size > _UNPACKED_BYTES_MAX:
        raise _unreadable(path, kind, f"it unpacks to {size} bytes, at most {_UNPACKED_BYTES_MAX} are read")
    file.seek(0)


def _part(archive, name):
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
    texts = {f"{_DRAWING}t": lambda part: part.text or "", f"{_DRAWING}br": lambda _: "\n"}
    lines = []
    for paragraph in slide.iter(f"{_DRAWING}p"):
        line = "".join(texts[part.tag](part) for part in paragraph.iter() if part.tag in texts)
        if line.strip():
            lines.append(line)
    return "\n".join(lines)
