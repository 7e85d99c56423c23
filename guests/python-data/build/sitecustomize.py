"""Makes the native Python that builds the packages describe the guest's Python to meson, which asks it for headers."""

import os
import sysconfig

_get_paths = sysconfig.get_paths
_get_path = sysconfig.get_path
_HEADERS = dict.fromkeys(["include", "platinclude"], os.environ["CELLAR_PYTHON_HEADERS"])


def get_paths(*arguments, **options):
    return {**_get_paths(*arguments, **options), **_HEADERS}


def get_path(name, *arguments, **options):
    return _HEADERS.get(name) or _get_path(name, *arguments, **options)


sysconfig.get_paths = get_paths
sysconfig.get_path = get_path
