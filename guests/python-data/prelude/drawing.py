"""Charts as files, which the host draws: `chart.save("chart.png")`."""

import contextlib
import json
import math
import os
import struct
import sys
import tempfile

import _cellar
from _cellar_prelude.calls import bridges

_TYPES = {"png": "image/png", "svg": "image/svg+xml"}


def begin():
    """Has altair ask the host where it would ask a package that is machine code."""
    sys.modules["altair.utils.mimebundle"]._spec_to_mimebundle_with_engine = _draw


def _plain(value):
    """What JSON can say: nothing where there is no number."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(spec, format, mode="vega-lite", **_options):  # noqa: A002 - altair's own name
    """The chart by MIME type; of a PNG, what altair wants to know of it as well."""
    wanted = _TYPES.get(format)
    if wanted is None:
        raise ValueError(f"charts are not made as {format} in this sandbox: save them as .png, .svg, .html or .json")
    kind = "vega" if mode == "vega" else "vegalite"
    handle, path = tempfile.mkstemp()
    os.close(handle)
    try:
        text = json.dumps(_plain(spec))
        bridges.ask_tables(_cellar.TABLES_DRAW, f"application/vnd.{kind}.v5+json", text, wanted, path)
        with open(path, "rb") as file:
            data = file.read()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if format == "svg":
        return {wanted: data.decode()}
    width, height = struct.unpack(">II", data[16:24])
    return {wanted: data}, {wanted: {"width": width / 2, "height": height / 2}}
