"""Plots of Matplotlib, and pictures. What a cell has drawn is shown as in Jupyter: where it says `plt.show()`, and what it
has left open at its end; then it is closed.
"""

import contextlib
import io
import struct
import sys
import types
import zlib

from _cellar_prelude import chart_data
from _cellar_prelude.cells import cells
from _cellar_prelude.notebook import display, ipython, magics
from _cellar_prelude.platform import faults, streams

# What a figure can be shown as: MIME type, what Matplotlib calls it, and how much finer it is drawn.
_FORMATS = {
    "png": ("image/png", "png", 1),
    "png2x": ("image/png", "png", 2),
    "retina": ("image/png", "png", 2),
    "jpeg": ("image/jpeg", "jpeg", 1),
    "jpg": ("image/jpeg", "jpeg", 1),
    "svg": ("image/svg+xml", "svg", 1),
    "pdf": ("application/pdf", "pdf", 1),
}


# How figures are shown, under the names that Jupyter has for it.
_TIGHT = {"bbox_inches": "tight"}
_options = {"figure_formats": ("png",), "print_figure_kwargs": _TIGHT, "close_figures": True}

# Figures that the cell at hand has shown otherwise.
_shown = []


def begin():
    """Makes the modules that Jupyter has, and has Matplotlib draw with them."""
    global Gcf, Image, backend_agg, cbook, numpy, pyplot
    import matplotlib
    import numpy
    from matplotlib import cbook, pyplot
    from matplotlib._pylab_helpers import Gcf
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends import backend_agg, registry
    from matplotlib.figure import Figure
    from PIL import Image

    class FigureManager(FigureManagerBase):
        """Shows figures by displaying them."""

        def show(self):
            """Displays the figure, which stays open."""
            _show_one(self.canvas.figure)

        @classmethod
        def pyplot_show(cls, *, block=None):
            """Displays all open figures, and closes them."""
            show()

    class FigureCanvas(backend_agg.FigureCanvasAgg):
        """Draws into memory."""

    for each in (FigureManager, FigureCanvas):
        each.__module__ = "matplotlib_inline.backend_inline"
    # Scripts that ask for pictures without a screen want to see what they show all the same.
    backend_agg.FigureCanvasAgg.manager_class = FigureManager
    inline = types.ModuleType("matplotlib_inline.backend_inline", "Shows figures of Matplotlib in the output of cells.")
    inline.FigureCanvas, inline.FigureManager, inline.show = FigureCanvas, FigureManager, show
    inline.flush_figures, inline.set_matplotlib_formats = show_left, set_matplotlib_formats
    inline.set_matplotlib_close = set_matplotlib_close
    package = types.ModuleType("matplotlib_inline")
    package.backend_inline, package.__path__ = inline, []
    sys.modules.update({"matplotlib_inline": package, inline.__name__: inline})
    # Figures are drawn when they are shown, and not after each line of a shell.
    pyplot.install_repl_displayhook = _install_nothing
    known = registry.backend_registry
    known._name_to_module["inline"] = f"module://{inline.__name__}"
    known._backend_to_gui_framework["inline"] = "headless"
    known._loaded_entry_points = True
    matplotlib.use("inline")
    for params in (matplotlib.rcParamsDefault, matplotlib.rcParamsOrig):
        dict.__setitem__(params, "backend", "inline")
    display.additions[Figure] = _representations
    chart_data.begin()
    # A picture is shown as PNG, which loses nothing, where it can be.
    own = Image.Image._repr_jpeg_
    Image.Image._repr_jpeg_ = lambda self: own(self) if self.mode == "CMYK" else None
    cells.show_left = show_left
    magics.LINE_MAGICS["matplotlib"] = _choose_backend
    magics.configurable["InlineBackend"] = (_configure, _options)


def _install_nothing():
    """There is no shell that would draw figures while they are made."""


# --- Showing


def _representations(figure):
    """What is displayed of a figure."""
    _shown.append(figure)
    if not figure.axes and not figure.lines and not figure.texts:
        return {}
    found = {}
    for name in _options["figure_formats"]:
        mime, form, scale = _FORMATS[name]
        pixels = _cut_pixels(figure) if name == "png" and _options["print_figure_kwargs"] == _TIGHT else None
        if pixels is not None:
            found[mime] = _png(pixels, figure.dpi)
            continue
        made = io.BytesIO()
        # What a figure is shown with leaves its `dpi` as it is.
        options = {"dpi": figure.dpi * scale, **_colours(figure), **_options["print_figure_kwargs"]}
        figure.canvas.print_figure(made, format=form, **options)
        found[mime] = made.getvalue().decode() if form == "svg" else made.getvalue()
    chart = chart_data.represent(figure)
    if chart is not None:
        found[chart_data.TYPE] = chart
    return found


def _cut_pixels(figure):
    """What `print_figure` draws of a figure where it cuts it to what is on it; None where Agg does not draw it.

    `print_figure` draws twice: to know where things are, and then what lies there. Here the first drawing is cut, unless
    something reaches beyond it.
    """
    canvas = figure.canvas
    if not isinstance(canvas, backend_agg.FigureCanvasAgg):
        return None
    with cbook._setattr_cm(canvas, _is_saving=True):
        canvas.draw()
    with _kept_ticks(figure):
        box = figure.get_tightbbox(canvas.get_renderer()).padded(pyplot.rcParams["savefig.pad_inches"])
    pixels = numpy.asarray(canvas.buffer_rgba())
    left, bottom = (round(each * figure.dpi) for each in box.p0)
    width, height = (int(each * figure.dpi) for each in box.size)
    top = pixels.shape[0] - bottom - height
    if min(left, bottom, top) >= 0 and left + width <= pixels.shape[1]:
        return pixels[top : top + height, left : left + width]
    made = io.BytesIO()
    canvas.print_figure(made, format="rgba", dpi=figure.dpi, bbox_inches=box, **_colours(figure))
    return numpy.frombuffer(made.getvalue(), numpy.uint8).reshape(-1, width, 4)


def _colours(figure):
    """What a figure is drawn with is not what `savefig` would draw it with."""
    return {"facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor()}


@contextlib.contextmanager
def _kept_ticks(figure):
    """Has the axes of a figure that was just drawn look for their ticks once, and not whenever somebody asks for them."""
    # Where there are three dimensions, looking for ticks moves them from where they were drawn.
    flat = [axes for axes in figure.get_axes() if not hasattr(axes, "zaxis")]
    every = [axis for axes in flat for axis in axes._axis_map.values()]
    try:
        for axis in every:
            axis._update_ticks = lambda ticks=axis._update_ticks(): ticks
        yield
    finally:
        for axis in every:
            axis.__dict__.pop("_update_ticks", None)


def _png(pixels, dpi):
    """A PNG of red, green, blue and opacity."""
    pixels = numpy.ascontiguousarray(pixels)
    height, width, _ = pixels.shape
    words = pixels.view(numpy.uint32)
    if 10 * numpy.count_nonzero(words[:, 1:] == words[:, :-1]) < 9 * words.size:
        # Photographs and shades are smaller after Pillow's filters, which take most of the time of writing a plot.
        made = io.BytesIO()
        Image.fromarray(pixels).save(made, "png", dpi=(dpi, dpi))
        return made.getvalue()
    rows = numpy.zeros((height, 1 + 4 * width), numpy.uint8)
    rows[:, 1:] = pixels.reshape(height, 4 * width)
    density = round(dpi / 0.0254)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
        (b"pHYs", struct.pack(">IIB", density, density, 1)),
        (b"IDAT", zlib.compress(rows, 4)),
        (b"IEND", b""),
    ]
    chunks = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _show_one(figure):
    ipython.display(figure)


def show(close=None, block=None):
    """Displays all open figures in the order in which they were made, and closes them."""
    try:
        for manager in Gcf.get_all_fig_managers():
            _show_one(manager.canvas.figure)
    finally:
        if _options["close_figures"] if close is None else close:
            pyplot.close("all")


def show_left():
    """Displays what a cell has drawn and not shown, at its end."""
    if not Gcf.figs or not _options["close_figures"] or pyplot.get_backend().lower() == "agg":
        if _shown:
            _shown.clear()
        return
    try:
        for manager in Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if not any(figure is each for each in _shown):
                _show_one(figure)
    except Exception as error:  # noqa: BLE001 - told; what is shown at the end does not fail the cell
        streams.tell(f"what was drawn cannot be shown:\n{faults.format_exception(error)}")
    finally:
        _shown.clear()
        pyplot.close("all")


# --- What Jupyter lets its users choose


def set_matplotlib_formats(*formats, **print_figure_kwargs):
    """Shows figures in these formats: any of png, retina, jpeg, svg and pdf."""
    unknown = sorted({*formats} - {*_FORMATS})
    if unknown:
        raise ValueError(f"figures are shown as {', '.join(sorted(_FORMATS))}, not as {', '.join(map(str, unknown))}")
    _options["figure_formats"] = tuple(formats) or ("png",)
    if print_figure_kwargs:
        _options["print_figure_kwargs"] = print_figure_kwargs


def set_matplotlib_close(close=True):
    """Says whether figures are shown and closed at the end of a cell."""
    _options["close_figures"] = bool(close)


def _choose_backend(text):
    """`%matplotlib`: figures are shown in the output, whichever screen is asked for."""
    name = next((word for word in text.split() if not word.startswith("-")), "inline").lower()
    if "--list" in text.split() or "-l" in text.split():
        print("Available matplotlib backends: ['inline', 'agg']")
        return
    pyplot.switch_backend("agg" if name == "agg" else "inline")
    if not text.strip():
        print("Using matplotlib backend: module://matplotlib_inline.backend_inline")


def _configure(name, value):
    """`%config InlineBackend.figure_format = "svg"` and its kin."""
    if name in ("figure_format", "figure_formats"):
        set_matplotlib_formats(*([value] if isinstance(value, str) else value))
    elif name == "close_figures":
        set_matplotlib_close(value)
    elif name == "print_figure_kwargs":
        _options["print_figure_kwargs"] = dict(value)
    elif name == "rc":
        pyplot.rcParams.update(value)
