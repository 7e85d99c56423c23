"""What processes of `multiprocessing` share: queues, pipes, locks, values and what a manager has; see `channels`.

Each is a box of messages that the host keeps, so that it is the same one in whichever process it is used. A lock is a box
with one message, which whoever holds the lock has taken out; a value is a box with the value in it.
"""

import base64
import operator
import os
import pickle
import queue
import struct
import threading
import time

import _cellar
from _cellar_prelude.platform import absent
from _cellar_prelude.processes import channels, pooling

# Under another name where a method has that of the type.
dict_ = dict
# How often somebody who waits looks whether anybody is left to wait for, in seconds.
_LOOK = 0.1


def _until(timeout):
    return None if timeout is None else time.monotonic() + max(0, timeout)


class Shared:
    """What crosses to processes by its state, its class being one of this module's."""

    def __reduce__(self):
        return _made_again, (type(self).__name__, self.__getstate__())

    def __setstate__(self, state):
        self.__dict__.update(state)


def _made_again(name, state):
    made = object.__new__(globals()[name])
    made.__setstate__(state)
    return made


class Box(Shared):
    """A queue of messages that processes share."""

    def __init__(self, room=None, *messages):
        self._number = channels.ask(_cellar.make_box, room)
        self._is_known = False
        for message in messages:
            self.put(message)

    def __del__(self):
        # Who else knows it may outlive whoever made it.
        if self.__dict__.get("_is_known") is False and "_number" in self.__dict__:
            try:
                channels.ask(_cellar.forget_channel, self._number)
            except Exception:  # noqa: BLE001 - it is forgotten when there are too many
                pass

    def __getstate__(self):
        self._is_known = True
        return {"_number": self._number, "_is_known": True}

    def put(self, value, until=None):
        """Adds a message; whether there was room for it in time."""
        text = base64.b64encode(_dumps(value)).decode("ascii")
        return channels.put(self._number, text, until)

    def take(self, until=None, keep=False):
        """(whether there was one in time, the first message)."""
        text = channels.take(self._number, keep, until)
        return (False, None) if text is None else (True, pickle.loads(base64.b64decode(text)))

    def take_while(self, is_hopeful):
        """The first message, however long it takes; raises RuntimeError when nobody can put one in any more."""
        while True:
            pooling.collect()
            found, value = self.take(time.monotonic() + _LOOK)
            if found:
                return value
            if not is_hopeful():
                found, value = self.take(time.monotonic())
                if found:
                    return value
                raise RuntimeError("deadlock: nothing is left that could end this wait: no process runs, and no other thread")

    def count(self):
        """How many messages there are."""
        return channels.ask(_cellar.count_messages, self._number)


def _dumps(value):
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _somebody_is_left():
    """Whether anybody but this thread could do something."""
    return pooling.is_process() or pooling.has_processes() or threading.active_count() > 1


# --- Queues


class Queue(Shared):
    """A queue of `multiprocessing`."""

    def __init__(self, maxsize=0, *, ctx=None):
        self._items = Box(maxsize if maxsize and maxsize > 0 else None)
        self._maxsize = maxsize
        self._open = Box(1, 0)
        self._is_closed = False

    def put(self, obj, block=True, timeout=None):
        """Adds an item."""
        if self._is_closed:
            raise ValueError(f"Queue {self!r} is closed")
        _change(self._open, lambda count: (count + 1, None))
        if not self._items.put(obj, _until(timeout if block else 0)):
            _change(self._open, lambda count: (count - 1, None))
            raise queue.Full

    def get(self, block=True, timeout=None):
        """Takes the first item."""
        if self._is_closed:
            raise ValueError(f"Queue {self!r} is closed")
        if block and timeout is None:
            return self._items.take_while(_somebody_is_left)
        pooling.collect()
        found, item = self._items.take(_until(timeout if block else 0))
        pooling.collect()
        if not found:
            raise queue.Empty
        return item

    def put_nowait(self, obj):
        """Adds an item, if there is room at once."""
        self.put(obj, False)

    def get_nowait(self):
        """Takes the first item, if there is one."""
        return self.get(False)

    def qsize(self):
        """How many items are in it."""
        return self._items.count()

    def empty(self):
        """Whether nothing is in it."""
        return self.qsize() == 0

    def full(self):
        """Whether nothing more fits in."""
        return 0 < self._maxsize <= self.qsize()

    def task_done(self):
        """Says that an item was dealt with."""

        def less(count):
            if count <= 0:
                raise ValueError("task_done() called too many times")
            return count - 1, None

        _change(self._open, less)

    def join(self):
        """Waits until every item was dealt with."""
        while _look_at(self._open) > 0:
            pooling.collect()
            time.sleep(_LOOK / 10)

    def close(self):
        """Says that this process puts nothing more in."""
        self._is_closed = True

    def join_thread(self):
        """What was put in is there at once."""

    cancel_join_thread = join_thread

    def __getstate__(self):
        return {**self.__dict__, "_is_closed": False}


# --- Pipes


class Connection(Shared):
    """One end of a pipe of objects."""

    def __init__(self, inbox, outbox):
        self._inbox, self._outbox = inbox, outbox
        self.readable, self.writable = inbox is not None, outbox is not None
        self.closed = False
        self._was_given = False

    def __getstate__(self):
        self._was_given = True
        return self.__dict__.copy()

    def _check(self, box, what):
        if self.closed:
            raise OSError("handle is closed")
        if box is None:
            raise OSError(f"connection is {what}-only")

    def send(self, obj):
        """Sends an object."""
        self._check(self._outbox, "read")
        self._outbox.put((_OBJECT, obj))

    def send_bytes(self, buf, offset=0, size=None):
        """Sends bytes."""
        self._check(self._outbox, "read")
        data = bytes(buf)[offset:]
        self._outbox.put((_BYTES, data if size is None else data[:size]))

    def _receive(self):
        self._check(self._inbox, "write")
        try:
            kind, value = self._inbox.take_while(_somebody_is_left)
        except RuntimeError:
            raise EOFError from None
        if kind is _END:
            self._inbox.put((_END, None))
            raise EOFError
        return kind, value

    def recv(self):
        """Waits for an object. Raises EOFError when there is nobody to send one any more."""
        kind, value = self._receive()
        return value if kind is _OBJECT else pickle.loads(value)

    def recv_bytes(self, maxlength=None):
        """Waits for bytes."""
        kind, value = self._receive()
        data = value if kind is _BYTES else _dumps(value)
        if maxlength is not None and len(data) > maxlength:
            raise OSError("bad message length")
        return data

    def poll(self, timeout=0.0):
        """Whether there is something to receive, now or within a time."""
        self._check(self._inbox, "write")
        pooling.collect()
        return self._inbox.take(_until(timeout), keep=True)[0]

    def close(self):
        """Closes this end. Whoever reads the other one is told so if it was given to no process."""
        if not self.closed:
            self.closed = True
            if self._outbox is not None and not self._was_given and not pooling.is_process():
                self._outbox.put((_END, None))

    def fileno(self):
        """It has a number that no other connection has."""
        self._check(self._inbox or self._outbox, "")
        return 1000 + (self._inbox or self._outbox)._number

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


_OBJECT, _BYTES, _END = 0, 1, 2


def pipe(duplex=True):
    """The two ends of a pipe: the first receives what is sent into the second, and with `duplex` the other way too."""
    there, back = Box(), Box() if duplex else None
    return Connection(there, back), Connection(back, there)


def wait(object_list, timeout=None):
    """Those of some connections and processes that are ready, once one is."""
    until = _until(timeout)
    while True:
        ready = [each for each in object_list if _is_ready(each)]
        if ready or (until is not None and time.monotonic() >= until):
            return ready
        time.sleep(_LOOK / 20)


def _is_ready(each):
    if isinstance(each, Connection):
        return each.poll()
    # The sentinel of a process is its number.
    pooling.collect()
    return not any(started.pid == each and started.returncode is None for started in pooling.started())


# --- Locks


# What a semaphore has at most, each a message that the host keeps.
_TOKENS_MAX = 10_000


class _Semaphore(Shared):
    """What locks and semaphores have in common: as many messages in a box as may still be taken out."""

    _most = None

    def __init__(self, value=1, most=None):
        if not 0 <= value <= _TOKENS_MAX:
            raise ValueError(f"the value of a semaphore of multiprocessing is 0 to {_TOKENS_MAX} here, not {value}")
        self._most = most
        self._tokens = Box(None)
        for _ in range(value):
            self._tokens.put(None)

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_holder"}

    @property
    def _semlock(self):
        """What the library's own conditions ask."""
        return self

    def acquire(self, block=True, timeout=None):
        """Takes one; whether that was possible in time."""
        if block and timeout is None:
            self._tokens.take_while(_somebody_is_left)
            return True
        return self._tokens.take(_until(timeout if block else 0))[0]

    def release(self):
        """Gives one back."""
        if self._most is not None and self._tokens.count() >= self._most:
            raise ValueError("semaphore or lock released too many times")
        self._tokens.put(None)

    def get_value(self):
        """How many can be taken."""
        return self._tokens.count()

    def locked(self):
        """Whether none can be taken."""
        return self._tokens.count() == 0

    _get_value = get_value

    def _is_zero(self):
        return self._tokens.count() == 0

    def _is_mine(self):
        return self.__dict__.get("_holder") == (os.getpid(), threading.get_ident())

    def _count(self):
        return 1 if self._is_mine() else 0

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_error):
        self.release()

    def __repr__(self):
        return f"<{type(self).__name__}(value={self.get_value()})>"


class Semaphore(_Semaphore):
    """A semaphore."""


class BoundedSemaphore(_Semaphore):
    """A semaphore that never has more than at first."""

    def __init__(self, value=1):
        super().__init__(value, value)


class Lock(_Semaphore):
    """A lock."""

    def __init__(self):
        super().__init__(1, 1)

    def acquire(self, block=True, timeout=None):
        """Takes it; whether that was possible in time."""
        taken = super().acquire(block, timeout)
        if taken:
            self._holder = os.getpid(), threading.get_ident()
        return taken

    def release(self):
        """Gives it back."""
        self._holder = None
        super().release()

    def __repr__(self):
        owner = "None" if self.get_value() else "MainProcess" if self._is_mine() else "SomeOtherProcess"
        return f"<{type(self).__name__}(owner={owner})>"


class RLock(Lock):
    """A lock that its holder may take again."""

    _depth = 0

    def acquire(self, block=True, timeout=None):
        """Takes it; whether that was possible in time."""
        if self._is_mine():
            self._depth += 1
            return True
        if super().acquire(block, timeout):
            self._depth = 1
            return True
        return False

    def release(self):
        """Gives it back, once it was given back as often as it was taken."""
        if not self._is_mine():
            raise AssertionError("attempt to release recursive lock not owned by thread")
        self._depth -= 1
        if self._depth == 0:
            super().release()

    def _count(self):
        return self._depth if self._is_mine() else 0


class Barrier(Shared, threading.Barrier):
    """A barrier: the library's own, with its two numbers where every process sees them."""

    def __init__(self, parties, action=None, timeout=None, *, ctx):
        self._numbers = Box(1, (0, 0))
        self.__setstate__((parties, action, timeout, ctx.Condition(), self._numbers))

    def __setstate__(self, state):
        self._parties, self._action, self._timeout, self._cond, self._numbers = state

    def __getstate__(self):
        return self._parties, self._action, self._timeout, self._cond, self._numbers

    @property
    def _state(self):
        return _look_at(self._numbers)[0]

    @_state.setter
    def _state(self, value):
        _change(self._numbers, lambda both: ((value, both[1]), None))

    @property
    def _count(self):
        return _look_at(self._numbers)[1]

    @_count.setter
    def _count(self, value):
        _change(self._numbers, lambda both: ((both[0], value), None))


# --- Values


def _look_at(box):
    return box.take(keep=True)[1]


def _change(box, function):
    """Makes another value of that in a box; the second of what the function returns."""
    _, value = box.take()
    try:
        value, result = function(value)
    finally:
        box.put(value)
    return result


_INTEGERS = frozenset("bBhHiIlLqQ")
_FLOATS = frozenset("fd")
_WIDTHS = {"l": "q", "L": "Q"}


def _converter(kind):
    """(what makes a value be of a type, the value to begin with)."""
    code = kind if isinstance(kind, str) else getattr(kind, "_type_", None)
    if code in _INTEGERS:
        code = _WIDTHS.get(code, code)
        bits = 8 * struct.calcsize(code)
        is_signed = code.islower()

        def integer(value):
            value = operator.index(value) & ((1 << bits) - 1)
            return value - (1 << bits) if is_signed and value >> (bits - 1) else value

        return integer, 0
    if code in _FLOATS:
        return (lambda value: struct.unpack(code, struct.pack(code, value))[0]), 0.0
    if code == "?":
        return bool, False
    if code == "c":
        return bytes, b"\0"
    if code == "u":
        return str, "\0"
    raise TypeError(f"a shared value cannot be of the type {kind!r}: use a type code such as 'i' or 'd', or a Manager")


class _Locked(Shared):
    """What a shared value has besides the value."""

    def __init__(self, lock, ctx):
        self._lock = ctx.RLock() if lock in (True, None) else lock

    def get_lock(self):
        """Its lock."""
        return self._lock

    def get_obj(self):
        """The value without the lock."""
        return self

    def acquire(self, block=True, timeout=None):
        """Takes its lock."""
        return self._lock.acquire(block, timeout)

    def release(self):
        """Gives its lock back."""
        self._lock.release()

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        self._lock.__exit__(*error)


class Value(_Locked):
    """A number that processes share."""

    def __init__(self, typecode_or_type, *args, lock=True, ctx):
        super().__init__(lock, ctx)
        self._kind = typecode_or_type
        convert, first = _converter(typecode_or_type)
        self._box = Box(1, convert(args[0]) if args else first)

    @property
    def value(self):
        """The number."""
        return _look_at(self._box)

    @value.setter
    def value(self, value):
        value = _converter(self._kind)[0](value)
        _change(self._box, lambda _: (value, None))

    def __repr__(self):
        return f"<Synchronized wrapper for {self._kind}({self.value!r})>"


class Array(_Locked):
    """Numbers that processes share."""

    def __init__(self, typecode_or_type, size_or_initializer, *, lock=True, ctx):
        super().__init__(lock, ctx)
        self._kind = typecode_or_type
        convert, first = _converter(typecode_or_type)
        if isinstance(size_or_initializer, int):
            values = [first] * size_or_initializer
        elif typecode_or_type == "c":
            values = [bytes([each]) for each in size_or_initializer]
        else:
            values = [convert(each) for each in size_or_initializer]
        self._length = len(values)
        self._box = Box(1, values)

    def __len__(self):
        return self._length

    def _all(self):
        return _look_at(self._box)

    def __getitem__(self, place):
        found = self._all()[place]
        return b"".join(found) if isinstance(place, slice) and self._kind == "c" else found

    def __setitem__(self, place, value):
        convert = _converter(self._kind)[0]
        if isinstance(place, slice):
            value = [bytes([each]) for each in value] if self._kind == "c" else [convert(each) for each in value]
            if len(value) != len(range(*place.indices(self._length))):
                raise ValueError("Can only assign sequence of same size")
        else:
            value = convert(value)

        def put(values):
            try:
                values[place] = value
            except IndexError:
                raise IndexError("invalid index") from None
            return values, None

        _change(self._box, put)

    def __iter__(self):
        return iter(self._all())

    @property
    def raw(self):
        """All bytes of an array of bytes."""
        return b"".join(self._all())

    @property
    def value(self):
        """The bytes of an array of bytes, up to the first zero."""
        return self.raw.split(b"\0", 1)[0]

    @value.setter
    def value(self, value):
        self[: len(value)] = value

    def __repr__(self):
        return f"<SynchronizedArray wrapper for {self._kind} array of {self._length}>"


# --- Managers


class _Proxy(Shared):
    """An object of a manager, which each process asks for what it has."""

    _exposed = ()
    _typeid = ""

    def __init__(self, value):
        self._box = Box(1, value)

    def _getvalue(self):
        """A copy of it."""
        return _look_at(self._box)

    def _callmethod(self, name, args=(), kwds={}):  # noqa: B006 - as the library has it
        def call(value):
            return value, getattr(value, name)(*args, **kwds)

        return _change(self._box, call)

    def __str__(self):
        return str(self._getvalue())

    def __repr__(self):
        return f"<{type(self).__name__} object, typeid {self._typeid!r} at {id(self):#x}>"

    def __deepcopy__(self, memo):
        return self._getvalue()


def _proxy(name, typeid, methods):
    """A class of proxies with these methods."""

    def method(name):
        def call(self, /, *args, **kwds):
            result = self._callmethod(name, args, kwds)
            return list(result) if name in ("keys", "values", "items") else result

        call.__name__ = name
        return call

    body = {each: method(each) for each in methods.split()}
    return type(name, (_Proxy,), {"__module__": "multiprocessing.managers", "_typeid": typeid, **body})


DictProxy = _proxy(
    "DictProxy", "dict",
    "__contains__ __delitem__ __getitem__ __len__ __setitem__ __or__ clear copy get items keys pop popitem setdefault update values",
)
DictProxy.__iter__ = lambda self: iter(self.keys())
ListProxy = _proxy(
    "ListProxy", "list",
    "__add__ __contains__ __delitem__ __getitem__ __len__ __mul__ __reversed__ __rmul__ __setitem__ append clear copy count extend "
    "index insert pop remove reverse sort",
)


def _in_place(name):
    def change(self, value):
        def apply(values):
            return getattr(values, name)(value), None

        _change(self._box, apply)
        return self

    return change


ListProxy.__iadd__, ListProxy.__imul__ = _in_place("__iadd__"), _in_place("__imul__")
ListProxy.__iter__ = lambda self: iter(self._getvalue())
DictProxy.__ior__ = _in_place("__ior__")


class Namespace(_Proxy):
    """Attributes that processes share."""

    _typeid = "Namespace"

    def __init__(self, /, **names):
        super().__init__(names)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._getvalue()[name]
        except KeyError:
            raise AttributeError(f"'Namespace' object has no attribute {name!r}") from None

    def __setattr__(self, name, value):
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            _change(self._box, lambda names: ({**names, name: value}, None))

    def __delattr__(self, name):
        _change(self._box, lambda names: ({key: each for key, each in names.items() if key != name}, None))

    def __str__(self):
        return f"Namespace({', '.join(f'{name}={value!r}' for name, value in sorted(self._getvalue().items()))})"


class Manager(Shared):
    """What `multiprocessing.Manager()` gives. There is no process behind it: the host keeps what it makes."""

    def __init__(self, ctx):
        self._ctx = ctx

    def __getstate__(self):
        raise TypeError("Pickling a Manager object is not possible: hand on what it has made")

    def start(self, *_args, **_kwds):
        """It is there already."""

    shutdown = join = connect = start

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        """What it has made stays for whoever has it."""

    def dict(self, /, *args, **kwds):
        """A shared dict."""
        return DictProxy(dict_(*args, **kwds))

    def list(self, values=(), /):
        """A shared list."""
        return ListProxy([*values])

    def Namespace(self, /, **names):
        """Shared attributes."""
        return Namespace(**names)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._ctx, name)


# --- In the place of the library's


def _own_context(module):
    """Makes what `multiprocessing` shares what these are."""
    pooling.change_context(module)
    own = {
        "Queue": lambda self, maxsize=0: Queue(maxsize),
        "JoinableQueue": lambda self, maxsize=0: Queue(maxsize),
        "SimpleQueue": lambda self: Queue(),
        "Pipe": lambda self, duplex=True: pipe(duplex),
        "Lock": lambda self: Lock(),
        "RLock": lambda self: RLock(),
        "Semaphore": lambda self, value=1: Semaphore(value),
        "BoundedSemaphore": lambda self, value=1: BoundedSemaphore(value),
        "Barrier": lambda self, parties, action=None, timeout=None: Barrier(parties, action, timeout, ctx=self.get_context()),
        "Value": lambda self, kind, *args, lock=True: Value(kind, *args, lock=lock, ctx=self.get_context()),
        "Array": lambda self, kind, size, *, lock=True: Array(kind, size, lock=lock, ctx=self.get_context()),
        "RawValue": lambda self, kind, *args: Value(kind, *args, ctx=self.get_context()),
        "RawArray": lambda self, kind, size: Array(kind, size, ctx=self.get_context()),
        "Manager": lambda self: Manager(self.get_context()),
    }
    for name, function in own.items():
        function.__name__ = name
        function.__qualname__ = f"BaseContext.{name}"
        function.__module__ = "multiprocessing.context"
        setattr(module.BaseContext, name, function)
    # What is pickled goes to a process, whenever that happens.
    module.assert_spawning = lambda _value: None


def _own_connection(module):
    module.Connection, module.Pipe, module.wait = Connection, pipe, wait


absent.CHANGED.update({"multiprocessing.connection": _own_connection, "multiprocessing.context": _own_context})


def install():
    """Lets processes share what these are."""
    import multiprocessing.spawn

    multiprocessing.spawn._made_again = _made_again
    _made_again.__module__ = "multiprocessing.spawn"
    for module, classes in (
        ("multiprocessing.managers", (Manager, Namespace)),
        ("multiprocessing.connection", (Connection,)),
        ("multiprocessing.queues", (Queue,)),
        ("multiprocessing.synchronize", (Lock, RLock, Semaphore, BoundedSemaphore, Barrier)),
        ("multiprocessing.sharedctypes", (Value, Array)),
    ):
        for each in classes:
            each.__module__ = module
