"""Sockets of one kernel: its servers and its clients reach each other, and nothing reaches out or in.

This is `_socket` and `select` in Python, below the library's own `socket`, `selectors`, `socketserver`, `http.server` and
asyncio. Connections are buffers; whoever waits for one lets the other threads run. It comes before the library's modules.
"""

import _datetime
import collections
import errno
import os
import sys
import threading
import time
import types

from _cellar_prelude.platform import lacks

# What is sent and was not read is kept up to so many bytes a connection; more waits, as it does on a network.
_ROOM = 1 << 18
# Sockets that are open at once, connections that wait to be accepted, and packets that wait to be read.
_OPEN_MAX = 1000
_BACKLOG_MAX = 128
_PACKETS_MAX = 256
# Descriptors of sockets are numbers that no file has.
_FIRST = 1000
# Ports that are chosen where a program leaves the choice, as Linux has them.
_PORTS = range(32768, 61000)

_CONSTANTS = """
AF_UNSPEC 0 AF_UNIX 1 AF_INET 2 AF_INET6 10 SOCK_STREAM 1 SOCK_DGRAM 2 SOCK_RAW 3 SOCK_NONBLOCK 2048 SOCK_CLOEXEC 524288
SOL_SOCKET 1 SOL_IP 0 SOL_TCP 6 SOL_UDP 17 SO_DEBUG 1 SO_REUSEADDR 2 SO_TYPE 3 SO_ERROR 4 SO_DONTROUTE 5 SO_BROADCAST 6
SO_SNDBUF 7 SO_RCVBUF 8 SO_KEEPALIVE 9 SO_OOBINLINE 10 SO_LINGER 13 SO_REUSEPORT 15 SO_RCVTIMEO 20 SO_SNDTIMEO 21
SO_ACCEPTCONN 30 SO_PROTOCOL 38 SO_DOMAIN 39 SOMAXCONN 4096 SHUT_RD 0 SHUT_WR 1 SHUT_RDWR 2
IPPROTO_IP 0 IPPROTO_ICMP 1 IPPROTO_TCP 6 IPPROTO_UDP 17 IPPROTO_IPV6 41 IPPROTO_RAW 255 IPV6_V6ONLY 26 IP_TTL 2 IP_TOS 1
IP_MULTICAST_TTL 33 IP_MULTICAST_LOOP 34 IP_ADD_MEMBERSHIP 35 TCP_NODELAY 1 TCP_MAXSEG 2 TCP_KEEPIDLE 4 TCP_KEEPINTVL 5
TCP_KEEPCNT 6 TCP_QUICKACK 12 MSG_OOB 1 MSG_PEEK 2 MSG_DONTROUTE 4 MSG_DONTWAIT 64 MSG_WAITALL 256 MSG_NOSIGNAL 16384
AI_PASSIVE 1 AI_CANONNAME 2 AI_NUMERICHOST 4 AI_V4MAPPED 8 AI_ALL 16 AI_ADDRCONFIG 32 AI_NUMERICSERV 1024
EAI_BADFLAGS -1 EAI_NONAME -2 EAI_AGAIN -3 EAI_FAIL -4 EAI_FAMILY -6 EAI_SOCKTYPE -7 EAI_SERVICE -8 EAI_MEMORY -10
NI_NUMERICHOST 1 NI_NUMERICSERV 2 NI_NOFQDN 4 NI_NAMEREQD 8 NI_DGRAM 16 NI_MAXHOST 1025 NI_MAXSERV 32
INADDR_ANY 0 INADDR_BROADCAST 4294967295 INADDR_LOOPBACK 2130706433 INADDR_NONE 4294967295
""".split()
_VALUES = {name: int(value) for name, value in zip(_CONSTANTS[::2], _CONSTANTS[1::2])}
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
SOCK_STREAM, SOCK_DGRAM = 1, 2
_MSG_PEEK, _MSG_DONTWAIT, _MSG_WAITALL = 2, 64, 256
_SERVICES = {
    "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "http": 80, "pop3": 110, "ntp": 123, "imap2": 143,
    "imap": 143, "https": 443, "imaps": 993, "pop3s": 995, "mysql": 3306, "postgresql": 5432,
}
_PROTOCOLS = {"ip": 0, "icmp": 1, "tcp": 6, "udp": 17, "ipv6": 41}

# Held while anything here is looked at or changed, and told of each change.
_changed = threading.Condition()
# What descriptors stand for, and who has a port or a path: by (what a socket sends, port or path).
_open = {}
_bound = {}
_default_timeout = None


class gaierror(OSError):  # noqa: N801 - the library's name
    """A name that has no address."""


class herror(OSError):  # noqa: N801 - the library's name
    """An address that has no name."""


for _each in (gaierror, herror):
    _each.__module__ = "socket"


def _failure(number):
    return OSError(number, os.strerror(number))


class _End:
    """One end of a connection, or a server's: what a descriptor stands for."""

    __slots__ = (
        "arrived", "backlog", "backlog_max", "can_write", "family", "has_ended", "is_reset", "kind", "local", "options",
        "packets", "peer", "peer_name", "place", "proto",
    )

    def __init__(self, family, kind, proto):
        self.family, self.kind, self.proto = family, kind, proto
        self.local = self.peer = self.peer_name = self.backlog = self.place = None
        self.backlog_max = 0
        self.arrived, self.packets = bytearray(), collections.deque()
        self.has_ended = self.is_reset = False
        self.can_write = True
        self.options = {}

    def is_readable(self):
        """Whether reading, or accepting, does not wait."""
        if self.backlog is not None:
            return bool(self.backlog)
        if self.kind == SOCK_DGRAM:
            return bool(self.packets)
        return bool(self.arrived) or self.has_ended or self.is_reset

    def is_writable(self):
        """Whether writing does not wait."""
        if self.kind == SOCK_DGRAM:
            return True
        peer = self.peer
        return self.peer_name is not None and (peer is None or not self.can_write or len(peer.arrived) < _ROOM)

    def end(self):
        """Ends the connection, and gives the port back."""
        if self.place is not None and _bound.get(self.place) is self:
            del _bound[self.place]
        for end in self.backlog or ():
            end.end()
        self.backlog = None
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.has_ended = True
            peer.is_reset = peer.is_reset or bool(self.arrived)
            peer.peer = None
        self.can_write = False
        self.has_ended = True


def _enter(end):
    """Gives an end a descriptor."""
    if len(_open) >= _OPEN_MAX:
        raise _failure(errno.EMFILE)
    number = _FIRST
    while number in _open:
        number += 1
    _open[number] = end
    return number


def _find(number):
    end = _open.get(number)
    if end is None:
        raise _failure(errno.EBADF)
    return end


# --- Names and addresses

_LOCAL = ("", "localhost", "0.0.0.0", "::", "::1", "cellar", "localhost.localdomain", "ip6-localhost")


def is_local(host):
    """Whether a host is this machine."""
    return host in _LOCAL or (isinstance(host, str) and host.startswith("127.") and _is_address(host))


def has_server(host, port):
    """Whether a server of this kernel has a port of a host."""
    if not is_local(host):
        return False
    end = _bound.get((SOCK_STREAM, port))
    return end is not None and end.backlog is not None


def _is_address(text):
    parts = text.split(".")
    return len(parts) == 4 and all(part.isascii() and part.isdigit() and int(part) < 256 for part in parts)


def _numeric(host, family):
    """The address of a host."""
    if host is None or host in ("localhost", "cellar", "localhost.localdomain", "ip6-localhost"):
        return "::1" if family == AF_INET6 else "127.0.0.1"
    if host == "" or host == "<broadcast>":
        return "::" if family == AF_INET6 else "0.0.0.0"
    if _is_address(host) or ":" in host:
        return host
    raise gaierror(-3, f"Temporary failure in name resolution: {host!r} has no address here, for {lacks.SOCKETS}")


def _checked(family, address, does):
    """The place that an address names: a host and a port, or a path."""
    if family == AF_UNIX:
        path = os.fsdecode(address)
        return path if path.startswith("\0") else os.path.abspath(path)
    if not isinstance(address, tuple):
        raise TypeError(f"{does}(): AF_INET address must be tuple, not {type(address).__name__}")
    if len(address) < 2:
        raise TypeError("AF_INET address must be a pair (host, port)")
    host, port = address[:2]
    if isinstance(host, (bytes, bytearray)):
        host = host.decode("ascii")
    if not isinstance(port, int):
        raise TypeError(f"'{type(port).__name__}' object cannot be interpreted as an integer")
    if not 0 <= port <= 65535:
        raise OverflowError(f"{does}(): port must be 0-65535.")
    return _numeric(host, family), port


def _as_address(family, host, port):
    return (host, port, 0, 0) if family == AF_INET6 else (host, port)


def _take_port(end, host, port):
    if port == 0:
        port = next((each for each in _PORTS if (end.kind, each) not in _bound), None)
        if port is None:
            raise _failure(errno.EADDRINUSE)
    elif (end.kind, port) in _bound:
        raise _failure(errno.EADDRINUSE)
    end.place = end.kind, port
    _bound[end.place] = end
    end.local = _as_address(end.family, host, port)


def _near(host):
    """The address that this machine is reached by from another of its own."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002 - the library's name
    """Resolve host and port into list of address info entries."""
    if isinstance(host, (bytes, bytearray)):
        host = host.decode("ascii")
    if isinstance(port, (bytes, str)):
        text = port.decode() if isinstance(port, bytes) else port
        if not text.isdigit() and text not in _SERVICES:
            raise gaierror(-8, "Servname not supported for ai_socktype")
        port = int(text) if text.isdigit() else _SERVICES[text]
    if host is None and flags & _VALUES["AI_PASSIVE"]:
        host = ""
    six = family == AF_INET6 or (isinstance(host, str) and ":" in host)
    family = AF_INET6 if six else AF_INET
    address = _as_address(family, _numeric(host, family), port or 0)
    kinds = [(SOCK_STREAM, 6), (SOCK_DGRAM, 17), (3, 0)]
    return [
        (family, kind, proto or own, "", address) for kind, own in kinds
        if type in (0, kind) and proto in (0, own)
    ]


def gethostbyname(host, /):
    """Return the IP address (a string of the form '255.255.255.255') for a host."""
    return _numeric(host, AF_INET)


def gethostbyname_ex(host, /):
    """Return the true host name, a list of aliases, and a list of IP addresses."""
    return host, [], [_numeric(host, AF_INET)]


def gethostbyaddr(host, /):
    """Return the true host name, a list of aliases, and a list of IP addresses, for a host."""
    address = _numeric(host, AF_INET)
    if not is_local(address):
        raise herror(1, "Unknown host")
    return "localhost", [], [address]


def gethostname():
    """Return the current host name."""
    return "localhost"


def getnameinfo(address, flags, /):
    """Get host and port for a sockaddr."""
    host, port = address[:2]
    is_number = flags & _VALUES["NI_NUMERICHOST"] or not is_local(host)
    service = next((name for name, number in _SERVICES.items() if number == port), None)
    return host if is_number else "localhost", str(port) if flags & _VALUES["NI_NUMERICSERV"] else service or str(port)


def getservbyname(name, protocol="tcp", /):
    """Return a port number from a service name and protocol name."""
    if name not in _SERVICES:
        raise OSError("service/proto not found")
    return _SERVICES[name]


def getservbyport(port, protocol="tcp", /):
    """Return the service name from a port number and protocol name."""
    for name, number in _SERVICES.items():
        if number == port:
            return name
    raise OSError("port/proto not found")


def getprotobyname(name, /):
    """Return the protocol number for the named protocol."""
    if name not in _PROTOCOLS:
        raise OSError("protocol not found")
    return _PROTOCOLS[name]


def _swap(bits, does):
    def swap(value, /):
        if value < 0:
            raise OverflowError(f"{does}: can't convert negative Python int to C {bits}-bit unsigned integer")
        if value >> bits:
            raise OverflowError(f"{does}: Python int too large to convert to C {bits}-bit unsigned integer")
        return int.from_bytes(value.to_bytes(bits // 8, "little"), "big")

    swap.__name__ = swap.__qualname__ = does
    return swap


def inet_aton(text, /):
    """Convert an IP address in string format (123.45.67.89) to the 32-bit packed binary format."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 4 or not all(part.isascii() and part.isdigit() for part in parts):
        raise OSError("illegal IP address string passed to inet_aton")
    *first, last = map(int, parts)
    width = 4 - len(first)
    if any(part > 255 for part in first) or last >> 8 * width:
        raise OSError("illegal IP address string passed to inet_aton")
    return bytes(first) + last.to_bytes(width)


def inet_ntoa(packed, /):
    """Convert an IP address from 32-bit packed binary format to string format."""
    if len(packed) != 4:
        raise OSError("packed IP wrong length")
    return ".".join(map(str, bytes(packed)))


def inet_pton(family, text, /):
    """Convert an IP address from string format to a packed string suitable for use with low-level network functions."""
    import ipaddress

    kind = {AF_INET: ipaddress.IPv4Address, AF_INET6: ipaddress.IPv6Address}.get(family)
    if kind is None:
        raise _failure(errno.EAFNOSUPPORT)
    try:
        return kind(text).packed
    except ValueError:
        raise OSError("illegal IP address string passed to inet_pton") from None


def inet_ntop(family, packed, /):
    """Convert a packed IP address of the given family to string format."""
    import ipaddress

    if family not in (AF_INET, AF_INET6):
        raise ValueError(f"unknown address family {family}")
    if len(packed) != (4 if family == AF_INET else 16):
        raise ValueError("invalid length of packed IP address string")
    return str(ipaddress.ip_address(bytes(packed)))


# --- Sockets


class socket:  # noqa: N801 - the library's name
    """A socket of this kernel; the library's own class is made of it."""

    __slots__ = ("_end", "_number", "_timeout")

    def __init__(self, family=AF_INET, type=SOCK_STREAM, proto=0, fileno=None):  # noqa: A002
        global _default_timeout
        if fileno is not None:
            if isinstance(fileno, float) or not isinstance(fileno, int):
                raise TypeError(f"'{fileno.__class__.__name__}' object cannot be interpreted as an integer")
            if fileno < 0:
                raise ValueError("negative file descriptor")
            self._end, self._number = _find(fileno), fileno
        else:
            family, kind = (AF_INET if family == -1 else int(family)), (SOCK_STREAM if type == -1 else int(type))
            kind &= ~(_VALUES["SOCK_NONBLOCK"] | _VALUES["SOCK_CLOEXEC"])
            if family not in (AF_UNIX, AF_INET, AF_INET6):
                raise _failure(errno.EAFNOSUPPORT)
            if kind not in (SOCK_STREAM, SOCK_DGRAM):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            self._end = _End(family, kind, max(proto, 0))
            with _changed:
                self._number = _enter(self._end)
        self._timeout = _default_timeout

    def __del__(self):
        if getattr(self, "_number", -1) >= 0:
            socket.close(self)

    def _must_be_open(self):
        if self._number < 0:
            raise _failure(errno.EBADF)
        return self._end

    def _wait(self, is_ready, flags=0):
        """Waits until something is so, for as long as the socket's timeout says. With the lock held."""
        if is_ready():
            return
        if self._timeout == 0 or flags & _MSG_DONTWAIT:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if not _changed.wait_for(lambda: self._number < 0 or is_ready(), self._timeout):
            raise TimeoutError("timed out")
        self._must_be_open()

    # What it is

    family = property(lambda self: self._end.family)
    type = property(lambda self: self._end.kind)
    proto = property(lambda self: self._end.proto)

    def fileno(self):
        """The descriptor; -1 of a closed socket."""
        return self._number

    def getsockname(self):
        """The own address."""
        end = self._must_be_open()
        if end.local is None:
            return "" if end.family == AF_UNIX else _as_address(end.family, _numeric("", end.family), 0)
        return end.local

    def getpeername(self):
        """The address of the other side."""
        end = self._must_be_open()
        if end.peer_name is None:
            raise _failure(errno.ENOTCONN)
        return end.peer_name

    def gettimeout(self):
        """Seconds, or None."""
        return self._timeout

    timeout = property(gettimeout)

    def settimeout(self, timeout, /):
        """Bounds how long it waits; None for ever, 0 not at all."""
        if timeout is not None:
            if not isinstance(timeout, (int, float)):
                timeout = timeout.__float__() if hasattr(timeout, "__float__") else int(timeout)
            if timeout < 0:
                raise ValueError("Timeout value out of range")
            timeout = float(timeout)
        self._timeout = timeout

    def setblocking(self, flag, /):
        """Has it wait, or not."""
        self._timeout = None if flag else 0.0

    def getblocking(self):
        """Whether it waits."""
        return self._timeout != 0

    def setsockopt(self, level, name, value, length=None, /):
        """Keeps an option. None of them changes anything here."""
        self._must_be_open().options[level, name] = value

    def getsockopt(self, level, name, size=0, /):
        """An option."""
        end = self._must_be_open()
        if level == _VALUES["SOL_SOCKET"]:
            known = {
                "SO_TYPE": end.kind, "SO_ERROR": 0, "SO_DOMAIN": end.family, "SO_PROTOCOL": end.proto,
                "SO_ACCEPTCONN": int(end.backlog is not None),
            }
            for option, value in known.items():
                if _VALUES[option] == name:
                    return value
            if name in (_VALUES["SO_RCVBUF"], _VALUES["SO_SNDBUF"]):
                return end.options.get((level, name), _ROOM)
        value = end.options.get((level, name), 0)
        if size:
            return bytes(value if isinstance(value, (bytes, bytearray)) else int(value).to_bytes(4, "little"))[:size]
        return int(value) if isinstance(value, int) else value

    # Servers

    def bind(self, address, /):
        """Gives it an address."""
        with _changed:
            end = self._must_be_open()
            where = _checked(end.family, address, "bind")
            if end.place is not None:
                raise _failure(errno.EINVAL)
            if end.family == AF_UNIX:
                if not where.startswith("\0"):
                    try:
                        # A file stands for it, as elsewhere, until a program removes that.
                        open(where, "x").close()
                    except FileExistsError:
                        raise _failure(errno.EADDRINUSE) from None
                end.place, end.local = (end.kind, where), address
                _bound[end.place] = end
                return
            host, port = where
            if not is_local(host) and not (end.kind == SOCK_DGRAM and host.startswith("224.")):
                raise _failure(errno.EADDRNOTAVAIL)
            _take_port(end, host, port)

    def listen(self, backlog=_BACKLOG_MAX, /):
        """Has it take connections."""
        with _changed:
            end = self._must_be_open()
            if end.kind != SOCK_STREAM:
                raise _failure(errno.EOPNOTSUPP)
            if end.place is None:
                _take_port(end, _numeric("", end.family), 0)
            if end.backlog is None:
                end.backlog = collections.deque()
            end.backlog_max = min(max(backlog, 1), _BACKLOG_MAX)

    def _accept(self):
        with _changed:
            end = self._must_be_open()
            if end.backlog is None:
                raise _failure(errno.EINVAL)
            self._wait(end.is_readable)
            taken = end.backlog.popleft()
            _changed.notify_all()
            return _enter(taken), taken.peer_name

    # Clients

    def connect(self, address, /):
        """Connects it to a server of this kernel."""
        with _changed:
            end = self._must_be_open()
            where = _checked(end.family, address, "connect")
            if end.kind == SOCK_DGRAM:
                end.peer_name = address if end.family == AF_UNIX else _as_address(end.family, *where)
                return
            if end.peer_name is not None:
                raise _failure(errno.EISCONN)
            if end.family != AF_UNIX and not is_local(where[0]):
                raise OSError(errno.ENETUNREACH, f"{os.strerror(errno.ENETUNREACH)}: {lacks.SOCKETS}")
            key = where if end.family == AF_UNIX else where[1]
            server = _bound.get((SOCK_STREAM, key))
            if server is None and end.family == AF_UNIX and not os.path.exists(where):
                raise _failure(errno.ENOENT)
            if server is None or server.backlog is None:
                raise _failure(errno.ECONNREFUSED)
            self._wait(lambda: server.backlog is None or len(server.backlog) < server.backlog_max)
            if server.backlog is None:
                raise _failure(errno.ECONNREFUSED)
            other = _End(end.family, end.kind, end.proto)
            if end.family == AF_UNIX:
                end.local = end.local or ""
                end.peer_name = other.local = address
            else:
                if end.place is None:
                    _take_port(end, _near(where[0]), 0)
                end.peer_name = other.local = _as_address(end.family, _near(where[0]), where[1])
            other.peer_name = end.local
            end.peer, other.peer = other, end
            server.backlog.append(other)
            _changed.notify_all()

    def connect_ex(self, address, /):
        """The same; returns the number of the error instead of raising it."""
        try:
            self.connect(address)
        except gaierror:
            raise
        except TimeoutError:
            return errno.EAGAIN
        except OSError as error:
            return error.errno
        return 0

    # What is sent and read

    def send(self, data, flags=0, /):
        """Sends as much as there is room for; returns how much that was."""
        data = memoryview(data).cast("B")
        with _changed:
            end = self._must_be_open()
            if end.kind == SOCK_DGRAM:
                if end.peer_name is None:
                    raise _failure(errno.EDESTADDRREQ)
                return self._post(bytes(data), end.peer_name)
            if end.peer_name is None:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) if not end.can_write else _failure(errno.ENOTCONN)
            self._wait(end.is_writable, flags)
            if end.is_reset:
                end.is_reset = False
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            if end.peer is None and end.can_write and end.family != AF_UNIX:
                # That the other side is gone is found out by sending something, as on a network.
                end.can_write = False
                return len(data)
            if end.peer is None or not end.can_write:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            piece = data[: _ROOM - len(end.peer.arrived)]
            if not end.peer.has_ended:
                end.peer.arrived += piece
            _changed.notify_all()
            return len(piece)

    def sendall(self, data, flags=0, /):
        """Sends all of it."""
        rest = memoryview(data).cast("B")
        if not rest:
            self._must_be_open()
        while rest:
            rest = rest[self.send(rest, flags) :]

    def sendmsg(self, buffers, ancillary=(), flags=0, address=None, /):
        """Sends what is in some buffers."""
        data = b"".join(bytes(each) for each in buffers)
        return self.send(data, flags) if address is None else self.sendto(data, address)

    def sendto(self, data, *rest):
        """Sends a packet to an address."""
        end = self._must_be_open()
        if end.kind != SOCK_DGRAM:
            return self.send(data)
        where = _checked(end.family, rest[-1], "sendto")
        with _changed:
            return self._post(bytes(data), rest[-1] if end.family == AF_UNIX else _as_address(end.family, *where))

    def _post(self, data, address):
        end = self._end
        if len(data) > 65507:
            raise _failure(errno.EMSGSIZE)
        if end.place is None and end.family != AF_UNIX:
            _take_port(end, _near(address[0]) if is_local(address[0]) else "0.0.0.0", 0)
        if end.family != AF_UNIX and not is_local(address[0]) and not address[0].startswith("224."):
            raise OSError(errno.ENETUNREACH, f"{os.strerror(errno.ENETUNREACH)}: {lacks.SOCKETS}")
        key = os.path.abspath(os.fsdecode(address)) if end.family == AF_UNIX else address[1]
        other = end.peer if end.peer is not None else _bound.get((SOCK_DGRAM, key))
        if other is not None and len(other.packets) < _PACKETS_MAX:
            local = end.local
            if local is not None and end.family != AF_UNIX:
                local = _as_address(end.family, _near(local[0]), local[1])
            other.packets.append((data, local))
            _changed.notify_all()
        return len(data)

    def recv(self, size, flags=0, /):
        """What has arrived, up to so many bytes; nothing when the other side has ended."""
        return self._receive(size, flags)[0]

    def _receive(self, size, flags=0):
        if size < 0:
            raise ValueError("negative buffersize in recv")
        with _changed:
            end = self._must_be_open()
            if end.kind == SOCK_DGRAM:
                self._wait(end.is_readable, flags)
                data, address = end.packets[0] if flags & _MSG_PEEK else end.packets.popleft()
                return data[:size], address
            if end.peer_name is None:
                raise _failure(errno.ENOTCONN)
            self._wait(lambda: end.is_readable() and (
                not flags & _MSG_WAITALL or len(end.arrived) >= min(size, _ROOM) or end.has_ended
            ), flags)
            if end.is_reset and not end.arrived:
                end.is_reset = False
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            data = bytes(end.arrived[:size])
            if not flags & _MSG_PEEK:
                del end.arrived[:size]
                _changed.notify_all()
            return data, None

    def recv_into(self, buffer, size=0, flags=0):
        """The same, into a buffer; returns how much it was."""
        view = memoryview(buffer).cast("B")
        data = self.recv(size or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def recvfrom(self, size, flags=0, /):
        """What has arrived, and from where."""
        return self._receive(size, flags)

    def recvfrom_into(self, buffer, size=0, flags=0):
        """The same, into a buffer."""
        view = memoryview(buffer).cast("B")
        data, address = self._receive(size or len(view), flags)
        view[: len(data)] = data
        return len(data), address

    def recvmsg(self, size, ancillary_size=0, flags=0, /):
        """What has arrived; there is never more to it."""
        data, address = self._receive(size, flags)
        return data, [], 0, address

    # Its end

    def shutdown(self, how, /):
        """Ends one direction of the connection, or both."""
        with _changed:
            end = self._must_be_open()
            if end.peer_name is None:
                raise _failure(errno.ENOTCONN)
            if how in (1, 2):
                end.can_write = False
                if end.peer is not None:
                    end.peer.has_ended = True
            if how in (0, 2):
                end.has_ended = True
            _changed.notify_all()

    def close(self):
        """Closes it."""
        number, self._number = self._number, -1
        if number >= 0 and number in _open:
            close(number)

    def detach(self):
        """Gives the descriptor up without closing it."""
        number, self._number = self._number, -1
        return number


socket.__module__ = "_socket"


def close(number, /):
    """Closes a descriptor of a socket."""
    with _changed:
        end = _find(number)
        del _open[number]
        if all(each is not end for each in _open.values()):
            end.end()
        _changed.notify_all()


def dup(number, /):
    """Another descriptor for the same socket."""
    with _changed:
        return _enter(_find(number))


def socketpair(family=AF_UNIX, type=SOCK_STREAM, proto=0, /):  # noqa: A002
    """Create a pair of socket objects that are connected to each other."""
    one, two = socket(family, type, proto), socket(family, type, proto)
    name = "" if family == AF_UNIX else _as_address(family, "127.0.0.1", 0)
    for end, other in ((one._end, two._end), (two._end, one._end)):
        end.peer, end.peer_name, end.local = other, name, name
    return one, two


def getdefaulttimeout():
    """Return the default timeout in seconds (float) for new socket objects."""
    return _default_timeout


def setdefaulttimeout(timeout, /):
    """Set the default timeout in seconds (float) for new socket objects."""
    global _default_timeout
    if timeout is not None and timeout < 0:
        raise ValueError("Timeout value out of range")
    _default_timeout = None if timeout is None else float(timeout)


# --- select

POLLIN, POLLPRI, POLLOUT, POLLERR, POLLHUP, POLLNVAL = 1, 2, 4, 8, 16, 32


def _number_of(item):
    number = item if isinstance(item, int) else item.fileno()
    if not isinstance(number, int):
        raise TypeError("argument must be an int, or have a fileno() method.")
    if number < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({number})")
    return number


def _can(number, writes):
    """Whether a descriptor is ready. Files always are."""
    end = _open.get(number)
    if end is None:
        if number >= _FIRST:
            raise _failure(errno.EBADF)
        return True
    return end.is_writable() if writes else end.is_readable()


def _wait_for(look, timeout):
    """What `look` finds, once it finds something or the time is over."""
    with _changed:
        found = look()
        if any(found) or timeout == 0:
            return found
        until = None if timeout is None else time.monotonic() + timeout
        while not any(found):
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            _changed.wait(left)
            found = look()
        return found


def select(rlist, wlist, xlist, timeout=None, /):
    """Wait until one or more file descriptors are ready for some kind of I/O."""
    reads, writes = ([(each, _number_of(each)) for each in given] for given in (rlist, wlist))
    if timeout is not None and timeout < 0:
        raise ValueError("timeout must be non-negative")

    def look():
        return [each for each, number in reads if _can(number, False)], [each for each, number in writes if _can(number, True)]

    return *_wait_for(look, timeout), []


class poll:  # noqa: N801 - the library's name
    """`select.poll`."""

    def __init__(self):
        self._masks = {}

    def register(self, fd, eventmask=POLLIN | POLLPRI | POLLOUT, /):
        """Watches a descriptor."""
        self._masks[_number_of(fd)] = eventmask

    def modify(self, fd, eventmask, /):
        """Watches it for something else."""
        if _number_of(fd) not in self._masks:
            raise _failure(errno.ENOENT)
        self._masks[_number_of(fd)] = eventmask

    def unregister(self, fd, /):
        """Watches it no more."""
        del self._masks[_number_of(fd)]

    def _look(self):
        found = []
        for number, mask in self._masks.items():
            if number >= _FIRST and number not in _open:
                found.append((number, POLLNVAL))
                continue
            events = (mask & POLLIN and _can(number, False) and POLLIN) | (mask & POLLOUT and _can(number, True) and POLLOUT)
            end = _open.get(number)
            if end is not None and end.backlog is None and end.kind == SOCK_STREAM and end.has_ended and end.peer is None:
                events |= POLLHUP
            if events:
                found.append((number, events))
        return found

    def poll(self, timeout=None, /):
        """The descriptors that are ready, after so many milliseconds at most."""
        return _wait_for(self._look, None if timeout is None or timeout < 0 else timeout / 1000)


poll.__module__ = "select"


def make_selector(base):
    """The selector of event loops, which can also be woken; of the library's class for selectors."""

    class Selector(base):
        """Tells which of the sockets that a loop watches are ready."""

        _is_rung = False

        def ring(self):
            """Ends the wait, or the next one."""
            with _changed:
                self._is_rung = True
                _changed.notify_all()

        def _look(self):
            found = []
            for key in list(self._fd_to_key.values()):
                if key.fd >= _FIRST and key.fd not in _open:
                    continue
                events = (1 if key.events & 1 and _can(key.fd, False) else 0) | (2 if key.events & 2 and _can(key.fd, True) else 0)
                if events:
                    found.append((key, events))
            return found

        def select(self, timeout=None):
            """The sockets that are ready, after so many seconds at most."""
            found = _wait_for(lambda: [self._look(), self._is_rung], None if timeout is None else max(timeout, 0))[0]
            self._is_rung = False
            return found

    return Selector


def _module(name, **members):
    made = types.ModuleType(name)
    for member, value in members.items():
        if isinstance(value, types.FunctionType):
            value.__module__ = name
        setattr(made, member, value)
    sys.modules[name] = made


_module(
    "_socket",
    **_VALUES,
    **{function.__name__: function for function in (
        close, dup, getaddrinfo, getdefaulttimeout, gethostbyaddr, gethostbyname, gethostbyname_ex, gethostname, getnameinfo,
        getprotobyname, getservbyname, getservbyport, inet_aton, inet_ntoa, inet_ntop, inet_pton, setdefaulttimeout, socketpair,
        _swap(16, "ntohs"), _swap(16, "htons"), _swap(32, "ntohl"), _swap(32, "htonl"),
    )},
    error=OSError, timeout=TimeoutError, gaierror=gaierror, herror=herror, socket=socket, SocketType=socket, has_ipv6=True,
    # `types` takes the class of capsules from here.
    CAPI=_datetime.datetime_CAPI, if_nameindex=lambda: [(1, "lo")],
    if_nametoindex=lambda name, /: {"lo": 1}[name],
)
_module(
    "select", select=select, poll=poll, error=OSError, POLLIN=POLLIN, POLLPRI=POLLPRI, POLLOUT=POLLOUT, POLLERR=POLLERR,
    POLLHUP=POLLHUP, POLLNVAL=POLLNVAL, PIPE_BUF=4096,
)
