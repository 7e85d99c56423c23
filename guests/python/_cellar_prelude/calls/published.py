"""Datasets: tables that are published under a name, version by version, for all sessions of a store."""

import builtins

import _cellar
from _cellar_prelude.calls import bridges, columnar


class LoadDatasetError(KeyError):
    """A dataset that cannot be loaded: there is none of the name, or whoever made the run has not seen it."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


class PublishDatasetError(RuntimeError):
    """A table that cannot be published as a dataset."""


for _error in (LoadDatasetError, PublishDatasetError):
    # It is found there when it comes back from another process.
    _error.__module__ = "builtins"
    setattr(builtins, _error.__name__, _error)


def check(what, name, version):
    """Refuses what names no version of a dataset."""
    if not isinstance(name, str):
        raise TypeError(f"{what}() takes the name of a dataset, not {type(name).__name__}")
    if version is not None and (isinstance(version, bool) or not hasattr(version, "__index__")):
        raise TypeError(f"{what}() takes the number of a version, not {type(version).__name__}")
    if version is not None and version.__index__() < 1:
        raise ValueError(f"versions have numbers from 1, not {version}")
    return None if version is None else version.__index__()


def ask(call, /, *arguments):
    """Asks the host for a dataset."""
    try:
        return bridges.ask_tables(call, *arguments)
    except OSError as error:
        raise LoadDatasetError(str(error)) from None


def load_dataset(name, version=None, /):
    """A version of a dataset, the latest unless one is named, as a list of dicts."""
    version = check("load_dataset", name, version)
    return columnar.rows(columnar.Lent(*ask(_cellar.TABLES_READ, name, version)))


def list_datasets(name=None, /):
    """The datasets that can be loaded, each with its latest version; with a name, the versions of that one, the oldest first."""
    if name is not None:
        check("list_datasets", name, None)
    return bridges.from_json(ask(_cellar.TABLES_LIST, name))


for _function in (load_dataset, list_datasets):
    # Pools send it to their processes by its name, where all cells have it.
    _function.__module__ = "builtins"
    setattr(builtins, _function.__name__, _function)
