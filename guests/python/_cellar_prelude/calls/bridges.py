"""Functions that the host answers: tools, language models, agents, input, network.

Each has two forms. Called plainly it suspends the thread that calls until the answer is there. `.aio(...)` gives a coroutine:
the call is made when the coroutine starts, and other code runs while the answer is awaited. Plain calls at the top level
of a cell are rewritten to the second form, which needs no thread; see `rewrite`.
"""

import asyncio
import decimal
import inspect
import json
import sys

import _cellar
from _cellar_prelude.platform.loop import ReactorLoop
from _cellar_prelude.platform.sandbox import BridgeError, CallError, StdinNotImplementedError, ToolError

# No more calls than this are under way at a time, though the host takes them one after the other when they are many.
CALLS_MAX = 4096

# Calls that were started and are awaited: number -> future.
_pending = {}


def complete(number, ok, answer):
    """Delivers the end of a started call. An unknown number is one that was given up."""
    future = _pending.pop(number, None)
    if future is None or future.done():
        return
    if ok:
        future.set_result(answer)
    else:
        future.set_exception(CallError(*answer))


def are_pending():
    """Whether the answers of calls are awaited."""
    return bool(_pending)


def forget_calls():
    """Gives up all calls."""
    for number in list(_pending):
        _cellar.cancel(number)
    _pending.clear()


async def _start(*arguments):
    """Makes a call and waits for its end without holding anything else up."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, ReactorLoop):
        # The host tells the main thread of ends, which may be waiting for this very one.
        return await loop.run_in_executor(None, _cellar.call, *arguments)
    if loop.__dict__.get("nested"):
        # Answers come when the kernel is entered again, which cannot be while it is held.
        return _cellar.call(*arguments)
    if len(_pending) >= CALLS_MAX:
        raise CallError("limit", f"{CALLS_MAX} calls are under way and not answered: await some of them first")
    number = _cellar.start(*arguments)
    answer = _cellar.take_answer(number)
    if answer is not None:
        return answer
    future = loop.create_future()
    _pending[number] = future
    try:
        return await future
    except asyncio.CancelledError:
        if _pending.pop(number, None) is not None:
            _cellar.cancel(number)
        raise


def _answer(tag, payload):
    return from_json(payload) if tag == "json" else payload


def json_text(value, what):
    """Plain data as JSON; None stays None."""
    if value is None:
        return None
    text = _cellar.to_json(value)
    if text is not None:
        return text
    # One that failed half-way is not used again, and one in use is not taken: `_plain` may come here once more.
    encode = _encoders.pop() if _encoders else _make_encoder()
    try:
        text = "".join(encode(value, 0))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be plain data (JSON): {error}") from None
    _encoders.append(encode)
    return text


def from_json(text):
    """What `json.loads` makes of the host's JSON, which has no blanks around it."""
    value = _cellar.from_json(text)
    if value is not NotImplemented:
        return value
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else json.loads(text)


def _make_encoder():
    """What `json.dumps` would make for each text anew, which takes longer than most texts take."""
    return json.encoder.c_make_encoder({}, _plain, json.encoder.c_encode_basestring, None, ": ", ", ", False, False, False)


_encoders = []
# Digits of the whole numbers that decimals become: more than any column has.
_DIGITS_MAX = 40
_scan = json.scanner.c_make_scanner(json.JSONDecoder())


def _plain(value):
    """Things that are as good as plain data."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("M", "m", "V") and type(value).__module__ == "numpy":
        # Lists of these would have bare numbers.
        numpy = sys.modules["numpy"]
        if kind != "M" or numpy.isnat(value).any():
            raise TypeError(f"{'NaT' if kind == 'M' else value.dtype} is not JSON")
        return numpy.datetime_as_string(value).tolist()
    for name in ("tolist", "isoformat", "__fspath__"):
        method = getattr(value, name, None)
        if callable(method):
            made = method()
            if name == "isoformat" and made == "NaT":
                raise TypeError("NaT is not JSON")
            return made
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, decimal.Decimal):
        return _number(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _number(value):
    """A decimal number as one of JSON that is written with the same digits."""
    if value.is_finite():
        if value == value.to_integral_value() and value.adjusted() < _DIGITS_MAX:
            return int(value)
        number = float(value)
        if decimal.Decimal(repr(number)) == value:
            return number
    raise TypeError(f"{value} is no number of JSON: pass str(value)")


def _text(value, what):
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _option(value, what):
    return None if value is None else _text(value, what)


class Bridge:
    """A function that the host answers."""

    def __init__(self, name, prepare, error=BridgeError, finish=_answer):
        self.__name__ = self.__qualname__ = name
        self.__doc__ = prepare.__doc__
        self.__signature__ = inspect.signature(prepare)
        if inspect.isfunction(prepare):
            # As it is called in complaints about its arguments.
            prepare.__name__ = prepare.__qualname__ = name
        self._prepare = prepare
        self._error = error
        self._finish = finish

    def _request(self, args, kwargs):
        """What the host is asked."""
        return self._prepare(*args, **kwargs)

    def _fail(self, call_error):
        kind, message = call_error
        return self._error(message, kind, self.__name__)

    def __call__(self, /, *args, **kwargs):
        try:
            return self._finish(*_cellar.call(*self._request(args, kwargs)))
        except CallError as error:
            call_error = error.args
        return self._fail_with(call_error)

    def _fail_with(self, call_error):
        """Raises what a call raises that was made in place and failed."""
        failure = self._fail(call_error)
        # A call that was cancelled because the cell must stop is no failure of the call.
        _cellar.raise_if_stopped()
        raise failure

    async def aio(self, /, *args, **kwargs):
        """The awaitable form."""
        try:
            return self._finish(*await _start(*self._request(args, kwargs)))
        except CallError as error:
            failure = self._fail(error.args)
        raise failure

    def __repr__(self):
        return f"<function {self.__name__}{self.__signature__}>"


def _prepare_llm(prompt, *, model="default", system=None, schema=None):
    """Asks a language model once, without history or tools.

    `model` is a tier: "smol", "default" or "slow". With `schema`, a JSON Schema as a dict, the answer is an object that
    satisfies it; else it is text.
    """
    return (
        _cellar.LLM_CALL, _text(prompt, "prompt"), _text(model, "model"), _option(system, "system"), json_text(schema, "schema"),
    )


def _prepare_agent(prompt, *, agent_type="task", model=None, context=None, label=None, schema=None):
    """Has a sub-agent do a job; it may run cells in this session meanwhile.

    Returns its text, or with `schema` an object. `output(label)` reads that again; without a label, `output(agent_type)`.
    """
    return (
        _cellar.AGENTS_CALL, _text(prompt, "prompt"), _text(agent_type, "agent_type"), _option(model, "model"),
        _option(context, "context"), _option(label, "label"), json_text(schema, "schema"),
    )


def _prepare_input(prompt="", /):
    """Asks whoever watches the run for a line."""
    return (_cellar.INPUT_CALL, str(prompt))


class Input(Bridge):
    """`input`, which reads from `sys.stdin` when a program has put something else there."""

    def __init__(self):
        super().__init__("input", _prepare_input, _InputError, _finish_input)

    def __call__(self, prompt="", /):
        return super().__call__(prompt) if _is_own_stdin() else _read_line(prompt)

    async def aio(self, prompt="", /):
        """The awaitable form."""
        return await super().aio(prompt) if _is_own_stdin() else _read_line(prompt)


def _read_line(prompt):
    """What the interpreter's own `input` does."""
    sys.stdout.write(str(prompt))
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError("EOF when reading a line")
    return line.removesuffix("\n")


def _is_own_stdin():
    return sys.stdin is sys.__stdin__


class _InputError(StdinNotImplementedError):
    """Made from (message, kind, name); the kind decides the class."""

    def __new__(cls, message, kind, _name):
        if kind in ("denied", "unknown"):
            return StdinNotImplementedError("Kernel requested stdin; interactive input is not supported")
        return TimeoutError(message) if kind == "limit" else EOFError(message)


def ask_session(function, /, *arguments):
    """Calls what every session answers, whatever it was granted. What it refuses is an OSError."""
    try:
        return function(*arguments)
    except CallError as error:
        _kind, message = error.args
    # A call that was cancelled because the cell must stop is no failure of the call.
    _cellar.raise_if_stopped()
    raise OSError(message)


def ask_tables(call, /, *arguments):
    """Makes a call of the interface `tables`."""
    _tag, payload = ask_session(_cellar.call, call, *arguments)
    return payload


def named_arguments(what, args, kwargs, schema):
    """Gives arguments their names, which are those of the schema's properties, in its order."""
    names = list((schema or {}).get("properties", ()))
    if schema is not None and len(args) > len(names):
        raise TypeError(f"{what}() takes {len(names)} arguments without names, not {len(args)}")
    if schema is None:
        raise TypeError(f"{what}() takes keyword arguments only")
    given = dict(zip(names, args))
    for name in given.keys() & kwargs.keys():
        raise TypeError(f"{what}() got multiple values for argument {name!r}")
    return {**given, **kwargs}


class Granted(Bridge):
    """One of many things that the host grants under a name, which its failures tell."""

    def _fail(self, call_error):
        kind, message = call_error
        if self.__name__ not in message:
            message = f"{self.__name__}: {message}"
        return ToolError(message, kind, self.__name__)


class Tool(_cellar.Tool, Granted):
    """One tool of the host, as a function of keyword arguments."""

    _call = Granted.__call__

    def __init__(self, name):
        self._tool = name
        self._what = f"the arguments of tool.{name}"
        super().__init__(name, self._prepare_tool, ToolError)

    def _prepare_tool(self, /, *args, **kwargs):
        """Calls a tool of the host. Arguments are passed by keyword, or in the order of its schema."""
        return self._request(args, kwargs)

    def _request(self, args, kwargs):
        if len(args) == 1 and isinstance(args[0], dict):
            kwargs = {**args[0], **kwargs}
        elif args:
            schema = next((schema for name, _, schema in _cellar.granted() if name == self._tool), None)
            kwargs = named_arguments(f"tool.{self._tool}", args, kwargs, json.loads(schema) if schema else None)
        return _cellar.TOOLS_CALL, self._tool, json_text(kwargs, self._what)

    def spec(self):
        """Name, description and JSON Schema of the arguments."""
        return _tool_spec(self._tool)

    @property
    def schema(self):
        """JSON Schema of the arguments, or None."""
        return self.spec()["schema"]


def _tool_spec(name):
    for known, description, schema in _cellar.granted():
        if known == name:
            schema = json.loads(schema) if schema is not None else None
            return {"name": name, "description": description, "schema": schema}
    raise KeyError(f"no tool {name!r}; dir(tool) names all")


class _Tools:
    """`tool`: every attribute is a tool of the host."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Tool(name)
        self.__dict__[name] = made
        return made

    def __getitem__(self, name):
        """For names that are not identifiers."""
        return self.__dict__.get(name) or getattr(self, name)

    def __dir__(self):
        return [name for name, _, _ in _cellar.granted()]

    def __repr__(self):
        return f"<tools: {', '.join(self.__dir__()) or 'none granted'}>"


def _finish_input(_tag, payload):
    return payload


def _prepare_http(method, url, headers, body, timeout):
    """One request to a host that the session was granted; `timeout` in nanoseconds, or None."""
    text = "".join(f"{name}\0{value}\0" for name, value in headers)
    return (_cellar.HTTP_CALL, method, url, text, body, timeout)


tool = _Tools()
llm = Bridge("llm", _prepare_llm)
agent = Bridge("agent", _prepare_agent)
input_ = Input()
http = Bridge("http", _prepare_http)
