"""Datasets: tables that are published under a name, and loaded in other sessions of the store.

The host has the rows. What passes are columns, in temporary files of the session, as with files of tables.
"""

import _cellar
from _cellar_prelude.calls import bridges


class LoadDatasetError(KeyError):
    """A dataset that cannot be loaded: there is none of the name, or whoever made the run has not seen it."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


class PublishDatasetError(RuntimeError):
    """A table that cannot be published as a dataset."""


for _error in (LoadDatasetError, PublishDatasetError):
    _error.__module__ = "builtins"


def begin():
    """Takes in what is loaded later."""
    global formats, pd, tables
    import pandas as pd
    from _cellar_prelude import formats, tables


def load_dataset(name, /):
    """The latest version of a dataset as a DataFrame."""
    if not isinstance(name, str):
        raise TypeError(f"load_dataset() takes the name of a dataset, not {type(name).__name__}")
    with formats._temporary() as made:
        try:
            bridges.ask_tables(_cellar.TABLES_LOAD, name, made)
        except OSError as error:
            raise LoadDatasetError(str(error)) from None
        with open(made, "rb") as file:
            return formats._frame(file)


def publish_dataset(name, frame, /):
    """Publishes a DataFrame as the next version of a dataset; the number of that version."""
    if not isinstance(name, str) or not isinstance(frame, pd.DataFrame):
        raise TypeError("publish_dataset() takes the name of a dataset and a DataFrame")
    try:
        data = tables.file_columns(frame, formats.BYTES, formats.OBJECTS)
    except tables.NotKept as reason:
        raise PublishDatasetError(f"the table cannot be published: {reason}") from None
    with formats._temporary() as given:
        with open(given, "wb") as file:
            file.write(data)
        del data
        try:
            _name, version, _artifact, _rows = bridges.ask_tables(_cellar.TABLES_PUBLISH, name, given)
            return version
        except OSError as error:
            raise PublishDatasetError(str(error)) from None
