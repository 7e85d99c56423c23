"""Stands in for the build backends of packages, so that `pip download` fetches source archives without running them.

`pip` asks the backend for a package's metadata before it keeps an archive. Every archive carries its own.
"""

import os
import shutil
import sys
from email import message_from_file


def prepare_metadata_for_build_wheel(folder, *_):
    with open("PKG-INFO", encoding="utf-8") as file:
        metadata = message_from_file(file)
    name = f"{metadata['Name'].replace('-', '_')}-{metadata['Version']}.dist-info"
    os.mkdir(os.path.join(folder, name))
    shutil.copy("PKG-INFO", os.path.join(folder, name, "METADATA"))
    return name


class _Backend:
    def build_wheel(self, *_):
        raise NotImplementedError("it is fetched for its sources, and not built here")


# A package may have a backend of its own that derives from the class of this method's object.
build_wheel = build_sdist = _Backend().build_wheel


def get_requires_for_build_wheel(*_):
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel

# Or one that hands on what setuptools' backend says that it has.
__all__ = ["build_wheel", "get_requires_for_build_wheel", "prepare_metadata_for_build_wheel"]


# What packages without a `pyproject.toml` ask for.
__legacy__ = sys.modules[__name__]
