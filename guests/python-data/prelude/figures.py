"""Figures of Plotly as pictures. Plotly draws in browsers, of which there is none here: Matplotlib draws what a figure says, by
the figure's own places, colours and words. What it cannot draw stays a specification.
"""

import base64
import io
import re
import sys

from _cellar_prelude import figure_axes, figure_traces
from _cellar_prelude.platform import absent

# As the program that makes pictures of figures elsewhere has it.
WIDTH, HEIGHT = 700, 500
# Pixels of a side, and of a picture.
SIDE_MAX, SCALE_MAX = 8000, 8
_DPI = 100
_FORMATS = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "webp": "webp", "svg": "svg", "pdf": "pdf"}


class NotDrawn(ValueError):
    """What is in a figure that nothing here draws."""


def begin():
    """Has Plotly draw here once it is imported."""
    absent.CHANGED["plotly.io._renderers"] = _change_renderers
    absent.CHANGED["plotly.io._kaleido"] = _change_export


def _change_renderers(module):
    config = type(module.renderers)
    own = config._build_mime_bundle

    def _build_mime_bundle(self, fig_dict, renderers_string=None, **kwargs):
        bundle = own(self, fig_dict, renderers_string, **kwargs)
        if "application/vnd.plotly.v1+json" in bundle and "image/png" not in bundle:
            try:
                bundle["image/png"] = picture(fig_dict, "png")
                bundle["text/plain"] = f"Figure of plotly ({_kinds(fig_dict)})"
            except NotDrawn as reason:
                bundle["text/plain"] = (
                    f"Figure of plotly ({_kinds(fig_dict)}), which is not drawn here: {reason}; "
                    "fig.write_html('figure.html') keeps it, and charts of altair are drawn"
                )
        return bundle

    config._build_mime_bundle = _build_mime_bundle


def _kinds(figure):
    return ", ".join(sorted({trace.get("type", "scatter") for trace in figure.get("data", ())})) or "empty"


def _change_export(module):
    def to_image(fig, format=None, width=None, height=None, scale=None, validate=True, engine=None):  # noqa: A002 - Plotly's names
        """Convert a figure to a static image bytes string: png, jpg, webp, svg or pdf."""
        figure = module.validate_coerce_fig_to_dict(fig, validate)
        try:
            return picture(figure, format or module.defaults.default_format, width, height, scale)
        except NotDrawn as reason:
            raise ValueError(f"this figure is not drawn here: {reason}; fig.write_html keeps it as a page") from None

    to_image.__module__ = module.__name__
    module.to_image = to_image
    module.kaleido_available = lambda: True

    def write_images(fig, file, format=None, scale=None, width=None, height=None, validate=True):  # noqa: A002 - Plotly's names
        """Write several figures, each to its file."""
        wanted = {"fig": fig, "file": file, "format": format, "scale": scale, "width": width, "height": height, "validate": validate}
        many = max(len(each) for each in wanted.values() if isinstance(each, (list, tuple)))
        for number in range(many):
            one = {name: each[number] if isinstance(each, (list, tuple)) else each for name, each in wanted.items()}
            module.write_image(**one)

    module.write_images = write_images


def picture(figure, form, width=None, height=None, scale=None):
    """A figure, which is a dictionary, as the bytes of a picture; `NotDrawn` where it has what nothing here draws."""
    kind = _FORMATS.get(str(form).lower().removeprefix("."))
    if kind is None:
        raise ValueError(f"Invalid format '{form}': pictures of figures are made as {', '.join(_FORMATS)}")
    figure = _decoded(figure)
    layout = figure_axes.merged(figure.get("layout", {}))
    width, height = (int(given or layout.get(name) or usual) for given, name, usual in ((width, "width", WIDTH), (height, "height", HEIGHT)))
    scale = min(float(scale or 1), SCALE_MAX)
    if not 10 <= min(width, height) <= max(width, height) * scale <= SIDE_MAX:
        raise NotDrawn(f"a picture of {width} x {height} pixels")
    drawn = _draw(figure.get("data", ()), layout, width, height)
    made = io.BytesIO()
    matplotlib = sys.modules["matplotlib"]
    with matplotlib.rc_context({"svg.fonttype": "path"}):
        if kind == "webp":
            drawn.savefig(png := io.BytesIO(), format="png", dpi=_DPI * scale, facecolor=drawn.get_facecolor())
            sys.modules["PIL.Image"].open(png).save(made, "webp", lossless=True)
        else:
            drawn.savefig(made, format=kind, dpi=_DPI * scale, facecolor=drawn.get_facecolor())
    return made.getvalue()


def _decoded(value):
    """A figure without its packed arrays, which are text of base 64 for a browser."""
    if isinstance(value, dict):
        if "bdata" in value and "dtype" in value:
            numpy = sys.modules["numpy"]
            data = value["bdata"]
            array = numpy.frombuffer(base64.b64decode(data) if isinstance(data, str) else data, numpy.dtype(value["dtype"]))
            if value.get("shape") is not None:
                shape = value["shape"]
                array = array.reshape([int(each) for each in (shape.split(",") if isinstance(shape, str) else shape)])
            return array
        return {name: _decoded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(each, (dict, list, tuple)) for each in value[:4]):
        return [_decoded(each) for each in value]
    return value


def _draw(data, layout, width, height):
    """The figure of Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [dict(trace) for trace in data if trace.get("visible", True) is True]
    unknown = sorted({trace.get("type", "scatter") for trace in shown} - set(figure_traces.DRAWN))
    if unknown:
        raise NotDrawn(f"nothing here draws {', '.join(unknown)}")
    drawn = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    FigureCanvasAgg(drawn)
    drawn.set_facecolor(figure_axes.colour(layout.get("paper_bgcolor"), "white"))
    try:
        sheet = figure_axes.Sheet(drawn, layout, shown, width, height)
        for number, trace in enumerate(shown):
            trace["_number"] = number
            figure_traces.DRAWN[trace.get("type", "scatter")](sheet, trace)
        sheet.finish()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise NotDrawn(f"{type(error).__name__}: {re.sub(r'\s+', ' ', str(error))[:200]}") from error
    return drawn
