"""What an image has besides the language: datasets as lists of dicts. The data guest has a file of its own in the place of this one."""

from _cellar_prelude.calls import published

# Cells that are run while the guest is baked, so that the code of a first such cell has run before.
CELLS = []


def names():
    """Imports what belongs to the image; the names of it that every cell knows."""
    return {
        "load_dataset": published.load_dataset,
        "list_datasets": published.list_datasets,
        "publish_dataset": publish_dataset,
        "LoadDatasetError": published.LoadDatasetError,
    }


def publish_dataset(name, frame, /):
    """Says where datasets can be published."""
    raise NotImplementedError("publish_dataset() takes a DataFrame, which this guest has not: use the guest python-data")


def reseed(seed):
    """Makes random numbers of what belongs to the image others than those that would have come."""
