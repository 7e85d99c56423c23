"""What is in the image of every kernel: modules that cost nothing to import, and code that has run before."""

import importlib

MODULES = """
_strptime abc argparse array ast asyncio base64 binascii bisect builtins bz2 cProfile calendar cmath cmd code codecs
collections collections.abc colorsys concurrent.futures concurrent.futures.thread configparser contextlib contextvars
copy copyreg csv dataclasses datetime decimal difflib dis doctest email email.message email.mime.multipart
email.mime.text email.parser encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1 encodings.utf_16 enum
errno filecmp fileinput fnmatch fractions ftplib functools getopt getpass glob graphlib gzip hashlib heapq hmac html
html.parser http http.client http.cookies http.server imaplib importlib importlib.metadata importlib.resources
importlib.util inspect io ipaddress itertools json keyword linecache locale logging logging.config logging.handlers
lzma mailbox marshal math mimetypes multiprocessing numbers operator optparse os pathlib pdb pickle pickletools
pkgutil platform plistlib posixpath pprint profile pstats queue quopri random re reprlib rlcompleter runpy sched
secrets select selectors shelve shlex shutil signal smtplib socket sqlite3 stat statistics string string.templatelib
stringprep struct subprocess symtable sys sysconfig tarfile tempfile textwrap threading time timeit token tokenize
tomllib trace traceback types typing unicodedata unittest unittest.mock urllib urllib.error urllib.parse
urllib.request uuid warnings wave weakref xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client zipfile zlib
zoneinfo
""".split()

# CPython specialises code after a few runs.
ROUNDS = 12

# What first cells are like. Run as cell 0, whose output goes nowhere. These are run again when a kernel is kept ready,
# where each costs memory of its own.
FIRST_CELLS = ["1 + 1", "x = 1\nx"]

# More of them, run while the guest is baked.
CELLS = [
    "print('', 1)",
    "for i in range(50):\n    pass",
    "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(8)",
    "import asyncio\nawait asyncio.sleep(0)",
    "{'a': [1]}",
]


def import_modules():
    """Imports what exists of the list: some modules depend on how CPython was built."""
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
