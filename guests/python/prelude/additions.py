"""What an image has besides the language: nothing here. The data guest has a file of its own in the place of this one."""

# Cells that are run while the guest is baked, so that the code of a first such cell has run before.
CELLS = []


def names():
    """Imports what belongs to the image; the names of it that every cell knows."""
    return {}


def reseed(seed):
    """Makes random numbers of what belongs to the image others than those that would have come."""
