"""What an image has besides the language: nothing here. The data guest has a file of its own in the place of this one."""

# Cells that are run while the guest is baked, so that the code of a first such cell has run before.
CELLS = []


def names():
    """Imports what belongs to the image; the names of it that every cell knows."""
    return {"load_dataset": load_dataset, "publish_dataset": publish_dataset}


def load_dataset(name, /):
    """Says where datasets can be loaded."""
    raise NotImplementedError("load_dataset() gives a DataFrame, which this guest has not: use the guest python-data")


def publish_dataset(name, frame, /):
    """Says where datasets can be published."""
    raise NotImplementedError("publish_dataset() takes a DataFrame, which this guest has not: use the guest python-data")


def reseed(seed):
    """Makes random numbers of what belongs to the image others than those that would have come."""
