"""What this guest lacks, and what there is instead: the one table that messages are made from. The README prints it."""

import importlib.util

TOOLS = "call a tool that the host offers (tool.<name>(...); dir(tool) lists them)"
PROCESSES = "this sandbox has no processes of an operating system: subprocess starts python, node and shell commands"
COPIES = f"a kernel cannot copy or replace itself: subprocess starts python, node and shell commands, or {TOOLS}"
SOCKETS = (
    "sockets of this sandbox reach its own servers alone: use urllib.request when the session was granted network access, "
    f"or {TOOLS}"
)
NATIVE = f"C libraries cannot be loaded in this sandbox: use pure Python, or {TOOLS}"
TLS = f"TLS is not built in, for no socket leaves this sandbox: urllib.request sends https requests, or {TOOLS}"
LIMITS = "limits of this sandbox are set by its host"
TERMINAL = "there is no terminal in this sandbox: print(...) and display(...) show output, input(...) asks for it"
SCREEN = "there is no screen in this sandbox: display(...) shows images, SVG and HTML"
PACKAGES = (
    "the owner of the host adds packages in pure Python (cellar packages add NAME) and grants them to sessions "
    '(packages = ["NAME"] in their cellar.toml); `%pip install NAME` finds those that this session was granted'
)
DATA = "the guest `python-data` has it built in; the host chooses the guest of a session (--guest python-data)"

# Modules of the library that cannot be imported. Programs have learnt to do without most of them, because Windows lacks
# them too.
MODULES = {
    "_curses": TERMINAL,
    "_posixsubprocess": PROCESSES,
    "_tkinter": SCREEN,
    "curses": TERMINAL,
    "ensurepip": PACKAGES,
    "idlelib": SCREEN,
    "pip": PACKAGES,
    "readline": TERMINAL,
    "syslog": "there is no system log in this sandbox: use logging",
    "termios": TERMINAL,
    "tkinter": SCREEN,
    "turtle": SCREEN,
    "venv": PACKAGES,
}

_CHARTS = "for charts use altair: `import altair as alt`, then `alt.Chart(frame).mark_line().encode(x=..., y=...)`"
_NUMBERS = "use NumPy (np.linalg, np.fft, np.random, np.polyfit, np.interp) and the module statistics"
_FRAMES = "use pandas: `import pandas as pd`"
_PICTURES = "PIL reads and writes PNG, JPEG, JPEG 2000, WebP, TIFF, GIF and older formats, and neither HEIC nor AVIF"
_HTTP = "use urllib.request, which reaches the hosts that the session was granted"
_WORDS = "use re, collections.Counter and difflib for texts"
_PAGES = "pypdf reads PDF files, and so does read_pdf_text(path)"
_MADE_PAGES = "Matplotlib's savefig writes PDF files, and docx and pptx make documents"
_MAPS = "use NumPy for shapes, and altair's mark_geoshape for maps"
_STORES = "use Parquet (with pandas), np.savez (with NumPy) or sqlite3 for what is kept in files"
_SERVERS = "use http.server, whose servers are reached by the session's own clients"
_MODELS = "llm(prompt) asks a language model, where the host offers one"
_NATIVE_CODE = "it is machine code, and this sandbox runs WebAssembly"

# Packages that programs often import and that are not there: what there is instead. Those in `_OF_DATA` are in the other
# guest, and so is what some remedies name.
_OF_DATA = frozenset(
    """PIL altair anyio attr attrs bs4 certifi charset_normalizer contourpy cssselect cycler dateutil docx et_xmlfile fontTools h11
    html5lib httpcore httpx idna iniconfig isympy jinja2 jsonschema kiwisolver lxml markdown markdown_it markupsafe matplotlib
    mdurl mpmath narwhals networkx numpy openpyxl packaging pandas patsy plotly pluggy pptx py pygments pylab pyparsing pypdf
    pyrsistent pytest pytz regex requests rich seaborn six soupsieve sympy tabulate tqdm typing_extensions urllib3 webencodings
    xlsxwriter yaml""".split()
)
_INSTEAD = {
    "aiohttp": f"{_HTTP}; `await urllib.request.urlopen.aio(url)` lets others run meanwhile",
    "bokeh": _CHARTS,
    "bs4": "use html.parser, or display(HTML(text)), which is shown as Markdown too",
    "cryptography": "use hashlib, hmac and secrets",
    "cv2": "use PIL and NumPy for pictures",
    "duckdb": "use sqlite3, or pandas",
    "fastparquet": "pandas reads and writes Parquet and Feather without it: pd.read_parquet, frame.to_parquet, pd.read_feather, frame.to_feather",
    "httpx": _HTTP,
    "ipywidgets": "nothing answers widgets in this sandbox: display(...) shows what there is",
    "joblib": "use concurrent.futures, multiprocessing.Pool and pickle",
    "lxml": "use xml.etree.ElementTree for XML, and html.parser for HTML",
    "numba": "use NumPy's functions of whole arrays",
    "orjson": "use json",
    "pillow_avif": _PICTURES,
    "pillow_heif": _PICTURES,
    "psutil": "limits of this sandbox are set by its host; time.process_time() tells what was used",
    "psycopg2": f"databases are reached by the host: {TOOLS}; sqlite3 is built in",
    "pyarrow": "pandas reads and writes Parquet and Feather without it: pd.read_parquet, frame.to_parquet, pd.read_feather, frame.to_feather",
    "pydantic": "use dataclasses, or typing.TypedDict",
    "requests": _HTTP,
    "selenium": f"there is no browser in this sandbox: {TOOLS}",
    "sklearn": f"{_NUMBERS}; np.linalg.lstsq fits linear models",
    "skimage": "use PIL and NumPy for pictures",
    "sqlalchemy": "use sqlite3",
    "statsmodels": f"{_NUMBERS}; np.linalg.lstsq fits linear models",
    "sympy": "use fractions, decimal and math",
    "tqdm": "print progress now and then",
    "chardet": "charset_normalizer.from_bytes(data).best() guesses encodings, where it is there; try 'utf-8', then 'cp1252' or 'gb18030'",
    "dotenv": "os.environ has what the session was given; a file of settings is read by a loop over its lines",
    "google": "there are no clients of Google, and this is not Colab: files lie in the session's folders, and display(...) shows results",
    "pypandoc": f"there is no pandoc in this sandbox; {_MADE_PAGES}",
    "pytesseract": f"nothing here reads text off pictures: {TOOLS}",
    "qrcode": "it is pure Python, so that the host can add it",
    "weasyprint": _MADE_PAGES,
    "wordcloud": "count words with collections.Counter, and draw them with Matplotlib's text(x, y, word, fontsize=…)",
    "yaml": "use json or tomllib",
    "yfinance": f"{_HTTP}, or by a source of data that the host connects",
}
for _text, _packages in {
    _NUMBERS: "catboost cvxpy jax keras lightgbm numexpr scipy tensorflow torch xgboost",
    _FRAMES: "dask modin polars pyspark",
    _WORDS: "Levenshtein fuzzywuzzy nltk rapidfuzz spacy thefuzz",
    _PAGES: "PyPDF2 fitz pdfplumber",
    _MADE_PAGES: "fpdf reportlab",
    _SERVERS: "django fastapi flask",
    _MAPS: "folium geopandas shapely",
    _STORES: "h5py tables",
    _MODELS: "anthropic langchain openai transformers",
}.items():
    _INSTEAD.update(dict.fromkeys(_packages.split(), _text))
# Those that have native code, so that no host can grant them.
NATIVE_PACKAGES = frozenset(
    """Levenshtein PIL aiohttp catboost contourpy cryptography cv2 cvxpy duckdb fastparquet fitz geopandas h5py jax keras kiwisolver lightgbm
    lxml matplotlib numba numexpr numpy orjson pandas pillow_avif pillow_heif polars psutil psycopg2 pyarrow pydantic rapidfuzz regex scipy
    shapely skimage sklearn spacy statsmodels tables tensorflow tokenizers torch transformers xgboost yaml""".split()
)
# Names of packages as they are installed, where they are imported by others.
IMPORTED_AS = {
    "beautifulsoup4": "bs4",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "pillow-avif-plugin": "pillow_avif",
    "pillow-heif": "pillow_heif",
    "psycopg2-binary": "psycopg2",
    "python-dateutil": "dateutil",
    "python-docx": "docx",
    "python-pptx": "pptx",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}


# Words of remedies, and the packages of the data guest that they stand for.
_IN_THE_OTHER = (("altair", "altair"), ("NumPy", "numpy"), ("PIL", "PIL"), ("pandas", "pandas"), ("Matplotlib", "matplotlib"), ("pypdf", "pypdf"))


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def remedy(name):
    """What there is instead of a module that is not there, or None when nothing is known of it."""
    if name in MODULES:
        return MODULES[name]
    text = _INSTEAD.get(name)
    if name in _OF_DATA:
        return DATA if text is None else f"it is not in this sandbox; {text}; {DATA}"
    if text is None:
        return None
    for word, package in _IN_THE_OTHER:
        if word in text and not _is_there(package):
            text += f" (in the guest `python-data`, which the host chooses)"
            break
    return f"it is not in this sandbox; {text}"


def command(text, name):
    """What the owner of the host does so that sessions have a package."""
    return f"the owner of the host runs `cellar packages add {text}` and grants it with packages = [\"{name}\"] in the session's cellar.toml"


def packages():
    """Names of the packages that are known not to be there."""
    return sorted(_INSTEAD)
