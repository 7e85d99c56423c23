"""Names of the environment that look like credentials: whoever asks for one that is not set is told why there is none."""

import os
import re
import sys

from _cellar_prelude.platform import streams
from _cellar_prelude.platform.sandbox import is_user_file

_CREDENTIAL = re.compile(
    r"(?i)password|passwd|passphrase|secret|credential|api_?key|access_?key|private_?key|(?:^|_)(?:token|tokens|key|pat|pass|auth|dsn)$"
    r"|(?:^|_)(?:database|db|postgres|postgresql|mysql|redis|mongo|mongodb)_(?:url|uri)$|connection_string|_token_"
)
# What has been told already.
_told = set()


def _reason(name):
    return (
        f"{name} is not set: cells get no credentials, the host keeps them and uses them for cells, by connectors, tools, models and granted "
        f"hosts; ask for that, or have the variable granted under [environment] if it is none"
    )


class _CredentialError(KeyError):
    """A credential that cells do not get."""

    def __str__(self):
        return _reason(self.args[0])

    def __reduce__(self):
        return KeyError, self.args


_CredentialError.__name__ = _CredentialError.__qualname__ = "KeyError"
_CredentialError.__module__ = "builtins"


class _Environment(os._Environ):
    """The environment, which says of credentials why they are not there."""

    def __getitem__(self, name):
        try:
            return super().__getitem__(name)
        except KeyError:
            if not (isinstance(name, str) and _CREDENTIAL.search(name)):
                raise
        raise _CredentialError(name) from None

    def get(self, name, default=None):
        """The value of a variable, or the default. Told once is why a credential has none, if no default is given."""
        try:
            return super().__getitem__(name)
        except KeyError:
            if default is None and isinstance(name, str) and _CREDENTIAL.search(name):
                _tell(name)
            return default


def _tell(name):
    """Tells cells, but no library that only looks whether something is there."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == os.getenv.__code__.co_filename:
        frame = frame.f_back
    if frame is None or name in _told or not is_user_file(frame.f_code.co_filename) or "/site-packages/" in frame.f_code.co_filename:
        return
    _told.add(name)
    streams.tell(_reason(name))


def install():
    """Has the environment tell from now on."""
    _Environment.__name__ = _Environment.__qualname__ = "_Environ"
    _Environment.__module__ = "os"
    os.environ.__class__ = _Environment


def forget():
    """Tells of all once more."""
    _told.clear()
