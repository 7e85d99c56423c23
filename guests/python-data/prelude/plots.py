"""Plots of Matplotlib, and pictures. What a cell has drawn is shown as in Jupyter: where it says `plt.show()`, and what it
has left open at its end; then it is closed.
"""

import ast
import io
import re
import sys
import types

from _cellar_prelude import cells, display, faults, ipython, magics, streams

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
_options = {"figure_formats": ("png",), "print_figure_kwargs": {"bbox_inches": "tight"}, "close_figures": True}

# Figures that the cell at hand has shown otherwise.
_shown = []


def begin():
    """Makes the modules that Jupyter has, and has Matplotlib draw with them."""
    global Gcf, pyplot
    import matplotlib
    from matplotlib import pyplot
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
    # A picture is shown as PNG, which loses nothing, where it can be.
    own = Image.Image._repr_jpeg_
    Image.Image._repr_jpeg_ = lambda self: own(self) if self.mode == "CMYK" else None
    cells.show_left = show_left
    magics.LINE_MAGICS["matplotlib"] = _choose_backend
    magics.LINE_MAGICS["config"] = _configure


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
        made = io.BytesIO()
        # What a figure is drawn with is not what it is shown with: `figure.dpi` stays as it is.
        colours = {"facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor()}
        figure.canvas.print_figure(made, format=form, dpi=figure.dpi * scale, **colours, **_options["print_figure_kwargs"])
        found[mime] = made.getvalue().decode() if form == "svg" else made.getvalue()
    return found


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
    else:
        pyplot.switch_backend("agg" if name == "agg" else "inline")


def _configure(text):
    """`%config InlineBackend.figure_format = "svg"` and its kin; the rest of `%config` need not do anything."""
    found = re.fullmatch(r"\s*InlineBackend\.(\w+)\s*=\s*(.+?)\s*", text)
    if found is None:
        return
    name, value = found.groups()
    try:
        value = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        pass
    if name in ("figure_format", "figure_formats"):
        set_matplotlib_formats(*([value] if isinstance(value, str) else value))
    elif name == "close_figures":
        set_matplotlib_close(value)
    elif name == "print_figure_kwargs":
        _options["print_figure_kwargs"] = dict(value)
    elif name == "rc":
        pyplot.rcParams.update(value)
