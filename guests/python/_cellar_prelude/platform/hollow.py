"""Modules that can be imported, so that programs which import them without need run, and whose use is refused."""

import asyncio
import enum
import os
import types


class _Hollow(types.ModuleType):
    """A module whose attributes are made when they are asked for."""

    def __init__(self, name, refuse):
        super().__init__(name, "Can be imported here, and not be used.")
        self._refuse = refuse
        self._fill()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        value = self._make(name)
        setattr(self, name, value)
        return value

    def _fill(self):
        """Sets what is there from the start."""

    def _missing(self, name):
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)


# --- ctypes


class _NativeType(type):
    """Types can be combined into others and inherited from: that is what modules do when they are imported."""

    def __mul__(cls, count):
        return _NativeType(f"{cls.__name__}_Array_{count}", (cls,), {})

    __rmul__ = __mul__

    def __call__(cls, *_args, **_kwargs):
        cls._refuse()


def _size_of(kind):
    """`ctypes.sizeof` of simple types and arrays of them, as on 64-bit Linux; None of others."""
    name, _, array = kind.__name__.partition("_Array_")
    size = _SIZES.get(name)
    for count in array.split("_Array_") if array else ():
        size = size and size * int(count)
    return size


class _Loader:
    """`cdll` and `pythonapi`: every function of every library is refused."""

    def __init__(self, refuse):
        self._refuse = refuse

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()


class Native(_Hollow):
    """`ctypes` and `ctypes.wintypes`."""

    _FUNCTIONS = frozenset(
        """ARRAY addressof alignment byref cast create_string_buffer create_unicode_buffer get_errno memmove memset pointer
        resize set_errno sizeof string_at wstring_at""".split()
    )
    _TYPES = frozenset(
        """Array BigEndianStructure BigEndianUnion CDLL LibraryLoader LittleEndianStructure LittleEndianUnion PyDLL Structure
        Union py_object""".split()
    )

    def _fill(self):
        self.DEFAULT_MODE = self.RTLD_LOCAL = 0
        self.RTLD_GLOBAL = 256
        self.ArgumentError = type("ArgumentError", (Exception,), {"__module__": "ctypes"})
        self.cdll = self.pydll = self.pythonapi = _Loader(self._refuse)
        self.POINTER = self.CFUNCTYPE = self.PYFUNCTYPE = lambda *_types, **_options: self._type("Pointer")

    def _type(self, name):
        return _NativeType(name, (), {"__module__": self.__name__, "_refuse": self._refuse})

    def _make(self, name):
        if name in ("sizeof", "alignment"):
            return lambda kind: _size_of(kind) if isinstance(kind, type) and _size_of(kind) else self._refuse()
        if name in self._FUNCTIONS:
            return self._refuse
        if name in self._TYPES or name.startswith("c_") or (self.__name__ == "ctypes.wintypes" and name.isupper()):
            return self._type(name)
        self._missing(name)


class NativeSearch(_Hollow):
    """`ctypes.util`: there is no library to find."""

    def _fill(self):
        self.find_library = lambda _name: None
        self.dllist = lambda: []

    def _make(self, name):
        self._missing(name)


_SIZES = {
    "c_bool": 1, "c_byte": 1, "c_char": 1, "c_ubyte": 1, "c_short": 2, "c_ushort": 2, "c_int": 4, "c_uint": 4, "c_float": 4,
    "c_wchar": 4, "c_long": 8, "c_ulong": 8, "c_longlong": 8, "c_ulonglong": 8, "c_double": 8, "c_size_t": 8, "c_ssize_t": 8,
    "c_void_p": 8, "c_char_p": 8, "c_wchar_p": 8, "c_longdouble": 16, "py_object": 8, "Pointer": 8, "c_time_t": 8,
    **{f"c_{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


# --- nest_asyncio


def nest(loop=None):
    """`nest_asyncio.apply`: from now on `asyncio.run` and `run_until_complete` run within the loop that runs already."""
    (loop or asyncio.get_running_loop()).is_nested = True


class Nesting(_Hollow):
    """`nest_asyncio`."""

    def _fill(self):
        self.apply = nest

    def _make(self, name):
        self._missing(name)


# --- ssl


class _TlsError(OSError):
    library = reason = None


_TlsError.__name__ = _TlsError.__qualname__ = "SSLError"
_TlsError.__module__ = "ssl"


class VerifyMode(enum.IntEnum):
    """`ssl.VerifyMode`."""

    CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED = range(3)


class TLSVersion(enum.IntEnum):
    """`ssl.TLSVersion`."""

    MINIMUM_SUPPORTED, SSLv3, TLSv1, TLSv1_1, TLSv1_2, TLSv1_3, MAXIMUM_SUPPORTED = -2, 768, 769, 770, 771, 772, -1


class _TlsContext:
    """`ssl.SSLContext`: takes what clients set. It is the host that encrypts, and that checks certificates, always."""

    def __init__(self, protocol=0):
        self.protocol = protocol
        self.check_hostname = True
        self.verify_mode = VerifyMode.CERT_REQUIRED
        self.options = self.verify_flags = 0
        self.minimum_version, self.maximum_version = TLSVersion.MINIMUM_SUPPORTED, TLSVersion.MAXIMUM_SUPPORTED

    def _ignore(self, *_args, **_options):
        """Nothing here depends on it."""

    load_verify_locations = load_default_certs = set_default_verify_paths = set_ciphers = set_alpn_protocols = _ignore

    def wrap_socket(self, sock, **_options):
        """Encrypts what goes through the host; there are no other sockets."""
        return sock.with_tls() if hasattr(sock, "with_tls") else self._refuse()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()


class Tls(_Hollow):
    """`ssl`: its exceptions can be caught and its constants compared."""

    _ERRORS = "SSLEOFError SSLSyscallError SSLWantReadError SSLWantWriteError SSLZeroReturnError".split()
    _CLASSES = frozenset("MemoryBIO SSLObject SSLSession SSLSocket".split())
    _FUNCTIONS = frozenset(
        """DER_cert_to_PEM_cert PEM_cert_to_DER_cert cert_time_to_seconds get_default_verify_paths
        get_server_certificate wrap_socket""".split()
    )

    def _fill(self):
        self.SSLError = _TlsError
        for name in self._ERRORS:
            setattr(self, name, type(name, (_TlsError,), {"__module__": "ssl"}))
        self.SSLCertVerificationError = type("SSLCertVerificationError", (_TlsError, ValueError), {"__module__": "ssl"})
        self.CertificateError = self.SSLCertVerificationError
        self.VerifyMode, self.TLSVersion = VerifyMode, TLSVersion
        vars(self).update(VerifyMode.__members__)
        self.SSLContext = type("SSLContext", (_TlsContext,), {"__module__": "ssl", "_refuse": staticmethod(self._refuse)})
        self.create_default_context = lambda *_args, **_options: self.SSLContext()
        self._create_default_https_context = self._create_stdlib_context = self.create_default_context
        self._create_unverified_context = self.create_default_context
        # Programs want a version that they know, when they are imported.
        self.OPENSSL_VERSION = "OpenSSL 3.0.0 (not in this sandbox)"
        self.OPENSSL_VERSION_INFO = (3, 0, 0, 0, 0)
        self.OPENSSL_VERSION_NUMBER = 0x30000000
        self.RAND_bytes = os.urandom
        self.RAND_status = lambda: True

    def _make(self, name):
        if name in self._FUNCTIONS:
            return self._refuse
        if name in self._CLASSES:
            refuse = self._refuse
            return type(name, (), {"__module__": "ssl", "__init__": refuse})
        if name.startswith("HAS_"):
            return False
        if name.startswith(("OP_", "PROTOCOL_", "VERIFY_", "ALERT_", "CHANNEL_BINDING")):
            return 0
        self._missing(name)
