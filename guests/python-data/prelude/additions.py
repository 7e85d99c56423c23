"""What the data guest has besides the language: arrays, tables, charts and documents."""

import importlib
import sys
import types

_MODULES = """
numpy numpy.char numpy.fft numpy.lib.stride_tricks numpy.linalg numpy.ma numpy.polynomial numpy.random numpy.rec
numpy.strings numpy.testing pandas pandas.api.types pandas.plotting pandas.testing pandas.tseries.offsets
dateutil dateutil.parser dateutil.relativedelta dateutil.rrule dateutil.tz pytz
altair openpyxl pypdf
PIL.Image PIL.ImageDraw PIL.ImageFont PIL.ImageFilter PIL.ImageOps PIL.ImageEnhance PIL.PngImagePlugin PIL.JpegImagePlugin
matplotlib matplotlib.pyplot matplotlib.dates matplotlib.backends.backend_svg matplotlib.animation mpl_toolkits.mplot3d
pandas.plotting._matplotlib
""".split()

# Cells that are run while the guest is baked, so that the code of a first such cell has run before.
CELLS = [
    "np.arange(6).reshape(2, 3).sum(axis=0)",
    "np.random.default_rng(0).normal(size=3).mean()",
    "frame = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y'], 'c': [0.5, None]})\nframe",
    "frame.set_index('b').c",
    "print(frame.describe())",
    "frame.groupby('b').a.agg(['sum', 'mean'])",
    "frame.merge(frame, on='b').pivot_table(index='b', values='a_x')",
    "import io\npd.read_csv(io.StringIO(frame.to_csv(index=False)))",
    "pd.Series(pd.date_range('2024-01-01', periods=3)).dt.day_name()",
    "alt.Chart(frame).mark_bar().encode(x='a', y='b')",
    "plt.plot([1, 2, 3], label='a')\nplt.title('t')\nplt.xlabel('x')\nplt.legend()\nplt.show()",
    "fig, axes = plt.subplots(1, 2, figsize=(6, 3))\naxes[0].bar(['a', 'b'], [1, 2])\naxes[1].hist(np.arange(9), bins=3)\nfig.tight_layout()\nplt.show()",
    "plt.scatter([1, 2], [3, 4], c=[0, 1])\nplt.colorbar()\nplt.grid(True)",
    "plt.imshow(np.eye(3))\nplt.show()",
    "frame.plot(x='b', y='a', kind='bar')",
    "alt.Chart(frame).mark_line().encode(alt.X('a:Q').title('a'), alt.Y('sum(c):Q'), color='b:N').properties(title='c')",
]


def names():
    """Imports what belongs to the image; the names of it that every cell knows."""
    from datetime import datetime, timedelta, timezone

    from _cellar_prelude import arrow, datasets, documents, drawing, figures, fonts, formats, labels, plots, ranks, sizes, tables, texts
    from _cellar_prelude.platform import likeness

    modules = {name: importlib.import_module(name) for name in _MODULES}
    # `from numpy import *` takes what this names, and there is no compiler of Fortran here.
    modules["numpy"].__all__ = [name for name in modules["numpy"].__all__ if name not in ("f2py", "distutils")]
    # It has a stand-in for what it asks of ctypes, such as the addresses of arrays, where there is none.
    sys.modules["numpy._core._internal"].ctypes = None
    # The largest number stands for a choice there, which C code reads as 32 bits; cells are told of another one.
    sys.modules["numpy._core.arrayprint"].sys = types.SimpleNamespace(maxsize=sys.maxsize)
    # Charts are displayed as specifications, which the host draws. Their text would tell how to set up a notebook.
    display = importlib.import_module("altair.vegalite.v5.display")
    display.DEFAULT_DISPLAY = display.DEFAULT_DISPLAY.partition("\n")[0]
    modules["altair"].renderers.enable("mimetype")
    numpy = modules["numpy"]
    # What they take on a 64-bit machine; see `likeness.size_of`.
    scalars = {numpy.int8(1): 25, numpy.int64(1): 32, numpy.uint64(2): 32, numpy.float64(0.5): 32, numpy.complex128(1j): 48, numpy.str_("ab"): 67}
    likeness.add_sizes([(numpy.ndarray, numpy.zeros(()), 104), (numpy.generic, numpy.int8(1), 25)])
    likeness.add_sizes((type(value), value, size) for value, size in scalars.items())
    sizes.begin()
    labels.begin()
    tables.begin()
    texts.begin()
    formats.begin()
    arrow.begin()
    documents.begin()
    datasets.begin()
    drawing.begin()
    plots.begin()
    fonts.begin()
    figures.begin()
    ranks.begin()
    _explain_absent_packages()
    return {
        "np": modules["numpy"],
        "pd": modules["pandas"],
        "alt": modules["altair"],
        "plt": modules["matplotlib.pyplot"],
        "datetime": datetime,
        "timedelta": timedelta,
        "timezone": timezone,
        "read_pdf_text": documents.read_pdf_text,
        "read_excel": documents.read_excel,
        "read_pptx_text": documents.read_pptx_text,
        "load_dataset": datasets.load_dataset,
        "list_datasets": datasets.list_datasets,
        "publish_dataset": datasets.publish_dataset,
        "LoadDatasetError": datasets.LoadDatasetError,
    }


def _explain_absent_packages():
    """Has pandas say what there is instead of packages that it would install."""
    from _cellar_prelude.platform import lacks

    optional = sys.modules["pandas.compat._optional"]
    own = optional.import_optional_dependency

    def import_optional_dependency(name, extra="", *args, **options):
        """Imports a package that pandas can do without, or says what there is instead."""
        try:
            if name.partition(".")[0] == "pyarrow":
                # What stands for it serves cells, and not pandas.
                raise ImportError(name)
            return own(name, extra, *args, **options)
        except ImportError:
            remedy = lacks.remedy(name.partition(".")[0])
            if remedy is None:
                raise
            raise ImportError(f"`{name}` is needed for this: {remedy}", name=name) from None

    for module in list(sys.modules.values()):
        if getattr(module, "import_optional_dependency", None) is own:
            module.import_optional_dependency = import_optional_dependency


def reseed(seed):
    """Makes random numbers of the old generator, of which there is one, others than those that would have come."""
    sys.modules["numpy.random"].seed(seed & 0xFFFFFFFF)
