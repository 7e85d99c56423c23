"""`urllib.request` over the host's network bridge: the hosts that a session was granted, and no others."""

import email.message
import http.client
import io
import urllib.error
import urllib.request
import urllib.response

from _cellar_prelude.bridges import http as bridge
from _cellar_prelude.sandbox import BridgeError


class _Response(urllib.response.addinfourl):
    """What `urlopen` returns, with the attributes of `http.client.HTTPResponse` that programs use."""

    version = 11

    def __init__(self, status, url, headers, body):
        message = email.message.Message()
        for name, value in headers:
            message[name] = value
        super().__init__(io.BytesIO(body), message, url, status)
        self.msg = self.reason = http.client.responses.get(status, "")

    def getheader(self, name, default=None):
        """The value of one header; several are joined."""
        values = self.headers.get_all(name)
        return ", ".join(values) if values else default

    def getheaders(self):
        """All headers as pairs."""
        return list(self.headers.items())


class HostHandler(urllib.request.BaseHandler):
    """Sends requests through the host."""

    def http_open(self, request):
        """Also for `https`: the host does the encryption."""
        body = request.data
        if body is not None and not isinstance(body, (bytes, bytearray)):
            body = body.read() if hasattr(body, "read") else b"".join(body)
        headers = {**request.unredirected_hdrs, **request.headers}
        try:
            answer = bridge(request.get_method(), request.full_url, list(headers.items()), body and bytes(body))
        except BridgeError as error:
            raise urllib.error.URLError(str(error)) from None
        return _Response(*answer)

    https_open = http_open


def install():
    """Makes `urllib.request` use the host. Its own handlers want sockets."""
    urllib.request.HTTPHandler = urllib.request.HTTPSHandler = HostHandler
    # `build_opener` takes this name for a sign that HTTPS is there.
    if not hasattr(http.client, "HTTPSConnection"):
        http.client.HTTPSConnection = http.client.HTTPConnection
