"""HTTP over the host's bridge: the hosts that a session was granted, and no others.

`http.client` writes a request to its socket and reads the response from it. Here that socket is a `HttpSocket`, which
makes one call of what is written. All above it is the library's own: `urllib.request` with its handlers, `xmlrpc.client`,
and packages, of which `urllib3` (and so `requests`) and `httpcore` (and so `httpx`) are told of it when they are imported.

The host encrypts, checks certificates and undoes compression. It follows no redirect: a library that does makes another
call, which is checked as the first was.
"""

import contextlib
import contextvars
import http.client
import importlib
import io
import time
import urllib.request

from _cellar_prelude.calls.bridges import http as bridge
from _cellar_prelude.platform import absent, sockets
from _cellar_prelude.platform.sandbox import BridgeError, NetworkError

# The host has read the body whole and undone these.
_OF_TRANSPORT = frozenset(("connection", "content-length", "keep-alive", "transfer-encoding"))

_NO_PROXIES = "proxies are not used in this sandbox: the host sends requests itself"


class _Request:
    """An HTTP/1.1 request that is being written: bytes of one request, from a library that knows how to write them."""

    def __init__(self):
        self._written = bytearray()
        self._body_at = None
        self._headers = []

    def write(self, data):
        """Adds bytes; returns whether the request is complete."""
        self._written += data
        if self._body_at is None:
            end = self._written.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._read_head(self._written[:end].decode("latin-1"))
            self._body_at = end + 4
        return self._is_complete()

    def _read_head(self, head):
        first, *lines = head.split("\r\n")
        self.method, _, rest = first.partition(" ")
        self.target = rest.rpartition(" ")[0]
        for line in lines:
            name, _, value = line.partition(":")
            self._headers.append((name, value.strip(" \t")))

    def _header(self, wanted):
        return next((value for name, value in self._headers if name.lower() == wanted), None)

    def _is_complete(self):
        if self._header("transfer-encoding") is not None:
            # Chunks are looked at only where they may be all.
            return self._written.endswith(b"\r\n\r\n") and self._chunks() is not None
        return len(self._written) - self._body_at >= int(self._header("content-length") or 0)

    def _chunks(self):
        """The pieces of a body that is sent in chunks, or None when there are more to come."""
        pieces = []
        at = self._body_at
        while (end := self._written.find(b"\r\n", at)) >= 0:
            length = int(self._written[at:end].partition(b";")[0], 16)
            if length == 0:
                return pieces
            pieces.append(self._written[end + 2 : end + 2 + length])
            at = end + 2 + length + 2
        return None

    def _body(self):
        if self._header("transfer-encoding") is not None:
            return b"".join(self._chunks())
        return bytes(self._written[self._body_at :])

    def arguments(self, scheme, host, port):
        """The bridge's arguments, but for the time limit."""
        if not self.target.startswith("/"):
            raise NetworkError(_NO_PROXIES, "invalid")
        name = f"[{host}]" if ":" in host else host
        where = name if port == {"http": 80, "https": 443}[scheme] else f"{name}:{port}"
        headers = [(name, value) for name, value in self._headers if name.lower() not in _OF_TRANSPORT]
        return self.method, f"{scheme}://{where}{self.target}", headers, self._body() or None


def _as_http(method, answer):
    """The answer as a server would have written it."""
    status, _, headers, body = answer
    lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers if name.lower() not in _OF_TRANSPORT]
    length = len(body)
    if method == "HEAD":
        length = next((value for name, value in headers if name.lower() == "content-length"), None)
    if length is not None and status not in (204, 304):
        lines.append(f"Content-Length: {length}")
    lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1") + body


# Answers for `urlopen.aio`, which runs `urlopen` again for each of them; see there.
_answers = contextvars.ContextVar("answers", default=None)


class _Unanswered(BaseException):
    """A request for which there is no answer yet."""


def _ask(arguments):
    answers = _answers.get()
    if answers is None:
        return bridge(*arguments)
    answer = next(answers, None)
    if answer is None:
        raise _Unanswered(*arguments)
    if isinstance(answer, BridgeError):
        raise answer
    return answer


class _Failed(io.RawIOBase):
    """A response that is not there. As with a real socket, whoever reads it finds out."""

    def __init__(self, failure):
        self._failure = failure

    def readable(self):
        return True

    def readinto(self, _buffer):
        raise self._failure


class HttpSocket:
    """A socket that is connected to a host by HTTP alone: one request goes in, one response comes out."""

    def __init__(self, scheme, host, port, timeout=None):
        self._place = scheme, host, port
        self.settimeout(timeout)
        self._request = _Request()
        self._response = None
        self._failure = None

    def with_tls(self):
        """The same, encrypted. The host does it."""
        return HttpSocket("https", *self._place[1:], self._timeout)

    def settimeout(self, timeout):
        """Bounds the calls to come. Libraries have objects of their own that stand for no timeout."""
        self._timeout = timeout if isinstance(timeout, (int, float)) else None

    def gettimeout(self):
        """Seconds, or None."""
        return self._timeout

    def setsockopt(self, *_option):
        """There are no options."""

    def fileno(self):
        """No descriptor."""
        return -1

    def sendall(self, data):
        """Writes a piece of a request; the last one makes the call."""
        if self._is_to_be_asked(data):
            with self._failing():
                self._take(_ask(self._arguments()))

    def send(self, data):
        """The same, for those who write until all is written."""
        self.sendall(data)
        return len(data)

    async def send_aio(self, data):
        """The awaitable form of `sendall`."""
        if self._is_to_be_asked(data):
            with self._failing():
                self._take(await bridge.aio(*self._arguments()))

    def _is_to_be_asked(self, data):
        return self._response is None and self._request.write(data)

    def _arguments(self):
        nanoseconds = None if self._timeout is None else int(self._timeout * 1e9)
        return *self._request.arguments(*self._place), nanoseconds

    def _take(self, answer):
        self._response = io.BytesIO(_as_http(self._request.method, answer))

    @contextlib.contextmanager
    def _failing(self):
        """Turns what fails in here into what those who know sockets expect."""
        began = time.monotonic()
        try:
            yield
        except NetworkError:
            raise
        except BridgeError as error:
            if error.kind == "limit" and self._timeout and time.monotonic() - began >= self._timeout:
                # Of a real socket it is reading that takes too long.
                self._failure = TimeoutError("timed out")
                return
            # Some look for an answer although writing failed.
            self._failure = NetworkError(str(error), error.kind, error.name)
            raise self._failure from None

    def _reader(self):
        if self._failure is not None:
            raise self._failure
        if self._response is None:
            raise NetworkError("the request is not complete: less was sent than its headers say", "invalid")
        return self._response

    def makefile(self, _mode="rb", *_args, **_kwargs):
        """The response."""
        return io.BufferedReader(_Failed(self._failure) if self._failure is not None else self._reader())

    def recv(self, size):
        """A piece of the response."""
        return self._reader().read(size)

    def shutdown(self, _how):
        """There is nothing to end."""

    def close(self):
        """There is nothing to give back."""


class HTTPSConnection(http.client.HTTPConnection):
    """`http.client.HTTPSConnection`, which that module makes only where there is TLS."""

    default_port = http.client.HTTPS_PORT
    _scheme = "https"

    def __init__(self, host, port=None, *, context=None, **options):
        super().__init__(host, port, **options)
        self._context = context


HTTPSConnection.__module__ = "http.client"


def _connect(self):
    """Connects to the host: not before a request is sent. A server of this kernel is reached without the host."""
    if self._scheme == "http" and sockets.has_server(self.host, self.port):
        self.sock = self._create_connection((self.host, self.port), self.timeout, self.source_address)
        return
    self.sock = HttpSocket(self._scheme, self.host, self.port, self.timeout)
    if self._tunnel_host:
        raise NetworkError(_NO_PROXIES, "invalid")


class HTTPSHandler(urllib.request.AbstractHTTPHandler):
    """`urllib.request.HTTPSHandler`, which that module makes only where there is TLS."""

    def __init__(self, debuglevel=None, context=None, check_hostname=None):
        super().__init__(debuglevel)

    def https_open(self, request):
        """The host checks certificates whatever the context says."""
        return self.do_open(http.client.HTTPSConnection, request)

    https_request = urllib.request.AbstractHTTPHandler.do_request_


HTTPSHandler.__module__ = "urllib.request"


async def _urlopen_aio(url, data=None, timeout=None, **options):
    """`urlopen`, awaited: other code runs while the answer is on its way.

    The library's function runs anew for each answer, redirects for example, and is given those that came before.
    """
    if hasattr(data, "read"):
        data = data.read()
    answers = []
    while True:
        token = _answers.set(iter(answers))
        try:
            return urllib.request.urlopen(url, data, timeout, **options)
        except _Unanswered as missing:
            arguments = missing.args
        finally:
            _answers.reset(token)
        try:
            answers.append(await bridge.aio(*arguments))
        except BridgeError as error:
            answers.append(error)


# --- Packages, which are changed when they are imported


def _change_urllib3(module):
    """`urllib3.connection`, which `requests` uses too."""

    own = module.HTTPConnection._new_conn

    def new_connection(self):
        if sockets.has_server(self.host, self.port):
            return own(self)
        return HttpSocket("http", self.host, self.port, self.timeout)

    def connect(self):
        if self._tunnel_host:
            raise NetworkError(_NO_PROXIES, "invalid")
        self.sock = HttpSocket("https", self.host, self.port, self.timeout)
        self.is_verified = True

    module.HTTPConnection._new_conn = new_connection
    module.HTTPSConnection.connect = connect


def _change_httpcore(module):
    """`httpcore._backends.sync`, which `httpx` uses too."""

    own = module.SyncBackend.connect_tcp

    def connect_tcp(self, host, port, timeout=None, **options):
        if sockets.has_server(host, port):
            return own(self, host, port, timeout=timeout, **options)
        return module.SyncStream(HttpSocket("http", host, port, timeout))

    module.SyncBackend.connect_tcp = connect_tcp


def _change_async_httpcore(module):
    """`httpcore._backends.auto`, which `httpx.AsyncClient` uses."""
    errors = importlib.import_module("httpcore._exceptions")
    base = importlib.import_module("httpcore._backends.base").AsyncNetworkStream

    class Stream(base):
        """A stream over a `HttpSocket`."""

        def __init__(self, sock):
            self._sock = sock

        async def read(self, max_bytes, timeout=None):
            with errors.map_exceptions({TimeoutError: errors.ReadTimeout, OSError: errors.ReadError}):
                return self._sock.recv(max_bytes)

        async def write(self, buffer, timeout=None):
            with errors.map_exceptions({TimeoutError: errors.WriteTimeout, OSError: errors.WriteError}):
                self._sock.settimeout(timeout)
                await self._sock.send_aio(buffer)

        async def aclose(self):
            """There is nothing to give back."""

        async def start_tls(self, ssl_context, server_hostname=None, timeout=None):
            return Stream(self._sock.with_tls())

        def get_extra_info(self, info):
            return True if info == "is_readable" else None

    own = module.AutoBackend.connect_tcp

    async def connect_tcp(self, host, port, timeout=None, **options):
        if sockets.has_server(host, port):
            return await own(self, host, port, timeout=timeout, **options)
        return Stream(HttpSocket("http", host, port, timeout))

    module.AutoBackend.connect_tcp = connect_tcp


def install():
    """Makes the library use the host, and packages when they are imported."""
    http.client.HTTPConnection._scheme = "http"
    http.client.HTTPConnection.connect = _connect
    http.client.HTTPSConnection = HTTPSConnection
    urllib.request.HTTPSHandler = HTTPSHandler
    urllib.request.urlopen.aio = _urlopen_aio
    absent.CHANGED |= {
        "httpcore._backends.auto": _change_async_httpcore,
        "httpcore._backends.sync": _change_httpcore,
        "urllib3.connection": _change_urllib3,
    }
