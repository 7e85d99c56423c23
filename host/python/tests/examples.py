"""Runs the examples of the package's docstrings, and of the pages that it is given."""

import doctest
import importlib
import pkgutil
import sys

import cellar

names = ["cellar", *(f"cellar.{one.name}" for one in pkgutil.iter_modules(cellar.__path__) if not one.name.startswith("_"))]
results = [doctest.testmod(importlib.import_module(name)) for name in names]
results += [doctest.testfile(page, module_relative=False, optionflags=doctest.ELLIPSIS) for page in sys.argv[1:]]
tried, failed = sum(one.attempted for one in results), sum(one.failed for one in results)
print(f"{tried} examples, {failed} failed")
sys.exit(failed > 0 or tried < 20)
