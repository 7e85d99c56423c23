"""Fonts: a text in any living script has characters in plots, whichever font it asks for, and fonts go by their names.

Matplotlib's own have Latin, Greek, Cyrillic, Arabic and Hebrew. Those of Noto are looked into once a text has others.
"""

import dataclasses
import logging
import os
import re
import sys

# What a font is asked for by elsewhere, by what is here in its place.
_CJK = (
    "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans CJK TC", "Noto Sans CJK HK", "Noto Sans SC", "Noto Sans TC", "Noto Sans JP", "Noto Sans KR",
    "Source Han Sans SC", "Source Han Sans CN", "Source Han Sans", "SimHei", "SimSun", "NSimSun", "KaiTi", "FangSong", "Microsoft YaHei", "Microsoft JhengHei",
    "PingFang SC", "PingFang TC", "PingFang HK", "Heiti SC", "Heiti TC", "STHeiti", "STSong", "Songti SC", "Hiragino Sans GB", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Droid Sans Fallback", "AR PL UMing CN", "Arial Unicode MS", "MS Gothic", "MS Mincho", "Meiryo", "Yu Gothic", "Yu Mincho",
    "Hiragino Sans", "Hiragino Kaku Gothic ProN", "Hiragino Maru Gothic Pro", "IPAexGothic", "IPAGothic", "IPAPGothic", "TakaoGothic", "TakaoPGothic",
    "VL Gothic", "Malgun Gothic", "NanumGothic", "NanumBarunGothic", "Nanum Gothic", "AppleGothic", "Apple SD Gothic Neo", "Gulim", "Dotum", "Batang", "UnDotum",
)  # fmt: skip
_ALIASES = {
    "Noto Sans CJK SC": _CJK,
    "Noto Sans Devanagari": ("Mangal", "Lohit Devanagari", "Nirmala UI", "Kohinoor Devanagari"),
    "Noto Sans Thai": ("Tahoma Thai", "Sarabun", "TH Sarabun New", "Loma", "Garuda", "Leelawadee UI"),
}
# The characters of each font, beyond those that Matplotlib's own have.
_SCRIPTS = {
    "NotoSansCJK-Regular.otf": "\u1100-\u11ff\u2e80-\u319f\u31a0-\ua48f\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef",
    "NotoSansDevanagari-Regular.ttf": "\u0900-\u097f\ua8e0-\ua8ff\u1cd0-\u1cff",
    "NotoSansBengali-Regular.ttf": "\u0980-\u09ff",
    "NotoSansGurmukhi-Regular.ttf": "\u0a00-\u0a7f",
    "NotoSansGujarati-Regular.ttf": "\u0a80-\u0aff",
    "NotoSansOriya-Regular.ttf": "\u0b00-\u0b7f",
    "NotoSansTamil-Regular.ttf": "\u0b80-\u0bff",
    "NotoSansTelugu-Regular.ttf": "\u0c00-\u0c7f",
    "NotoSansKannada-Regular.ttf": "\u0c80-\u0cff",
    "NotoSansMalayalam-Regular.ttf": "\u0d00-\u0d7f",
    "NotoSansSinhala-Regular.ttf": "\u0d80-\u0dff",
    "NotoSansThai-Regular.ttf": "\u0e00-\u0e7f",
    "NotoSansLao-Regular.ttf": "\u0e80-\u0eff",
    "NotoSansMyanmar-Regular.ttf": "\u1000-\u109f",
    "NotoSansEthiopic-Regular.ttf": "\u1200-\u139f",
    "NotoSansKhmer-Regular.ttf": "\u1780-\u17ff\u19e0-\u19ff",
    "NotoSansArabic-Regular.ttf": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "NotoSans-Regular.ttf": "\u20a0-\u20cf\u1e00-\u1fff",
    "NotoSansSymbols2-Regular.ttf": "\u2300-\u2bff\U0001f000-\U0001faff",
}
# Fonts of other systems, by those that are like them.
_LIKE = {
    "arial": "DejaVuSans", "arialbd": "DejaVuSans-Bold", "arial bold": "DejaVuSans-Bold", "ariali": "DejaVuSans-Oblique", "helvetica": "DejaVuSans", "verdana": "DejaVuSans",
    "tahoma": "DejaVuSans", "calibri": "DejaVuSans", "segoeui": "DejaVuSans", "roboto-regular": "DejaVuSans", "roboto-bold": "DejaVuSans-Bold", "opensans-regular": "DejaVuSans",
    "liberationsans-regular": "DejaVuSans", "liberationsans-bold": "DejaVuSans-Bold", "freesans": "DejaVuSans", "freesansbold": "DejaVuSans-Bold", "ubuntu-r": "DejaVuSans",
    "times": "DejaVuSerif", "times new roman": "DejaVuSerif", "timesbd": "DejaVuSerif-Bold", "georgia": "DejaVuSerif", "liberationserif-regular": "DejaVuSerif",
    "cour": "DejaVuSansMono", "courier new": "DejaVuSansMono", "consola": "DejaVuSansMono", "liberationmono-regular": "DejaVuSansMono", "menlo": "DejaVuSansMono", "monaco": "DejaVuSansMono",
    "simhei": "NotoSansCJK-Regular", "simsun": "NotoSansCJK-Regular", "msyh": "NotoSansCJK-Regular", "msyhbd": "NotoSansCJK-Regular", "msjh": "NotoSansCJK-Regular", "wqy-microhei": "NotoSansCJK-Regular",
    "wqy-zenhei": "NotoSansCJK-Regular", "notosanscjksc-regular": "NotoSansCJK-Regular", "notosanscjkjp-regular": "NotoSansCJK-Regular", "notosanscjkkr-regular": "NotoSansCJK-Regular",
    "notosanssc-regular": "NotoSansCJK-Regular", "notosansjp-regular": "NotoSansCJK-Regular", "notosanskr-regular": "NotoSansCJK-Regular", "notosanscjk-bold": "NotoSansCJK-Regular",
    "malgun": "NotoSansCJK-Regular", "nanumgothic": "NotoSansCJK-Regular", "gulim": "NotoSansCJK-Regular", "meiryo": "NotoSansCJK-Regular", "msgothic": "NotoSansCJK-Regular",
    "ipaexg": "NotoSansCJK-Regular", "ipag": "NotoSansCJK-Regular", "droidsansfallback": "NotoSansCJK-Regular", "droidsansfallbackfull": "NotoSansCJK-Regular", "arialuni": "NotoSansCJK-Regular", "mangal": "NotoSansDevanagari-Regular",
}  # fmt: skip

# Paths of the fonts that texts have needed, in the order of the table.
_needed = []
_said = set()


def begin():
    """Has Matplotlib and Pillow find fonts."""
    global _folder, _others, _patterns
    from matplotlib import cbook, font_manager, text
    from PIL import ImageFont

    _folder = str(cbook._get_data_path("fonts/ttf"))
    _patterns = [(os.path.join(_folder, name), re.compile(f"[{characters}]")) for name, characters in _SCRIPTS.items()]
    _others = re.compile(f"[{''.join(_SCRIPTS.values())}]")
    known = font_manager.fontManager
    for name, others in _ALIASES.items():
        entry = next(each for each in known.ttflist if each.name == name)
        known.ttflist.extend(dataclasses.replace(entry, name=other) for other in others)
    manager = type(known)
    find = manager._find_fonts_by_props

    def _find_fonts_by_props(self, prop, fontext="ttf", *args, **options):
        found = find(self, prop, fontext, *args, **options)
        return found + [path for path in _needed if path not in found] if _needed and fontext == "ttf" else found

    manager._find_fonts_by_props = _find_fonts_by_props
    set_text = text.Text.set_text

    def own_set_text(self, s):
        set_text(self, s)
        if not self._text.isascii() and _others.search(self._text):
            _note(self._text)

    own_set_text.__doc__, own_set_text.__name__ = set_text.__doc__, "set_text"
    text.Text.set_text = own_set_text
    logging.getLogger("matplotlib.font_manager").addFilter(_once)
    ImageFont.truetype = _truetype(ImageFont.truetype)


def _note(words):
    needed = [path for path, pattern in _patterns if path in _needed or pattern.search(words)]
    if len(needed) > len(_needed):
        _needed[:] = needed


def _once(record):
    """Says that a font was not found once, and not for each text."""
    words = record.getMessage()
    if words in _said:
        return False
    if len(_said) < 1000:
        _said.add(words)
    return True


def _named(font):
    """The path of a font that goes by this name or path elsewhere; None where there is none like it."""
    if not isinstance(font, (str, os.PathLike)) or os.path.exists(font):
        return None
    stem = os.path.basename(os.fspath(font))
    stem = re.sub(r"\.(ttf|ttc|otf|pfb|dfont)$", "", stem, flags=re.IGNORECASE)
    files = {os.path.splitext(name)[0].casefold(): name for name in os.listdir(_folder)}
    key = stem.casefold()
    for each in (key, key.replace(" ", ""), f"{key.replace(' ', '')}-regular", _LIKE.get(key, "").casefold()):
        if each in files:
            return os.path.join(_folder, files[each])
    manager = sys.modules["matplotlib.font_manager"].fontManager
    return next((entry.fname for entry in manager.ttflist if entry.name.casefold() == key and entry.style == "normal" and entry.weight in (400, "normal")), None)


def _truetype(own):
    def truetype(font, size=10, index=0, encoding="", layout_engine=None):
        path = _named(font)
        return own(font if path is None else path, size, 0 if path is not None else index, encoding, layout_engine)

    truetype.__doc__ = own.__doc__
    truetype.__module__, truetype.__qualname__ = own.__module__, "truetype"
    return truetype
