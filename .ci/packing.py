"""Parts that the packages for other languages share: `.ci/wheel` and `.ci/npm`. Files are as old as the commit (SOURCE_DATE_EPOCH), and
CELLAR_DIST_LEVEL is how hard they are compressed."""

import hashlib
import os
import pathlib
import subprocess
import tempfile
import time

root = pathlib.Path(__file__).parent.parent
level = min(int(os.environ.get("CELLAR_DIST_LEVEL", "9")), 9)
epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315532800)


def stripped(module):
    """The bytes of a module of machine code, without its symbols."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "module"
        subprocess.run(["strip", "-o", out, module], check=True)
        return out.read_bytes()


def tree_files(folder):
    """The files of a folder: path in it, bytes, and true for what can be run."""
    folder = pathlib.Path(folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield str(path.relative_to(folder)), path.read_bytes(), os.access(path, os.X_OK)


def engine_files(tree):
    """The command, the guests and the licences of the folder TREE that `.ci/install` leaves, as they lie beside a module."""
    tree = pathlib.Path(tree)
    yield "bin/cellar", (tree / "bin/cellar").read_bytes(), True
    for path, data, executable in tree_files(tree / "lib"):
        yield f"lib/{path}", data, executable
    notice = tree / "share/doc/cellar/NOTICE"
    if notice.exists():
        yield "NOTICE", notice.read_bytes(), False
    yield list_digest(tree)


def list_digest(tree):
    """The file by which the engine knows the code that came with it."""
    listed = hashlib.sha256((pathlib.Path(tree) / "lib/cellar/guests/code.sha256").read_bytes()).hexdigest()
    return "code.sha256.sha256", f"{listed}\n".encode(), False
