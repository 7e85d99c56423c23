"""Datasets: tables that are published under a name, and loaded in other sessions of the store.

The host has the rows. What passes are columns, in temporary files of the session, as with files of tables.
"""

import builtins

import _cellar
from _cellar_prelude.calls import bridges, published
from _cellar_prelude.calls.published import LoadDatasetError, PublishDatasetError, list_datasets
from _cellar_prelude.cells import binding


def begin():
    """Takes in what is loaded later."""
    global formats, pd, tables
    import pandas as pd
    from _cellar_prelude import formats, tables


def load_dataset(name, version=None, /):
    """A version of a dataset, the latest unless one is named, as a DataFrame."""
    version = published.check("load_dataset", name, version)
    with formats._temporary() as made:
        published.ask(_cellar.TABLES_LOAD, name, version, made)
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
            _name, version, _artifact, _rows = bridges.ask_tables(_cellar.TABLES_PUBLISH, name, given, binding.read_by_current())
            return version
        except OSError as error:
            raise PublishDatasetError(str(error)) from None


for _function in (load_dataset, publish_dataset):
    # Pools send it to their processes by its name, where all cells have it.
    _function.__module__ = "builtins"
    setattr(builtins, _function.__name__, _function)
