"""Values that go into a sandbox and come out of it: tables as Arrow, all else as JSON."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, cast

from .errors import SandboxError
from .tools import plain

Json = Any

_FOLDER = "/workspace/.cellar"


def is_frame(value: object) -> bool:
    """True for what hands over its columns by the Arrow C data interface: frames of pandas and polars, tables of pyarrow."""
    return hasattr(value, "__arrow_c_stream__")


def new_path() -> str:
    """A path in the sandbox that nothing has."""
    return f"{_FOLDER}/{os.urandom(16).hex()}"


def feather_of(frame: Any) -> bytes:
    """A frame as an Arrow file, with its columns as they lie in memory."""
    if type(frame).__module__.startswith("polars"):
        from io import BytesIO

        out = BytesIO()
        frame.write_ipc(out, compression="uncompressed", compat_level=_compat())
        return out.getvalue()
    pyarrow = _pyarrow()
    table = pyarrow.Table.from_pandas(frame) if type(frame).__module__.startswith("pandas") else pyarrow.table(frame)
    sink = pyarrow.BufferOutputStream()
    with _pyarrow("pyarrow.ipc").new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _compat() -> Any:
    # Strings in the form that every reader of Arrow knows.
    return import_module("polars").CompatLevel.oldest()


def _pyarrow(part: str = "pyarrow") -> Any:
    try:
        return import_module(part)
    except ImportError:
        raise SandboxError("tables need `pyarrow`", "usage", "pip install 'cellar-sandbox[arrow]'") from None


def taking_in(name: str, path: str) -> str:
    """The source of a cell that makes a DataFrame of an Arrow file, and removes that."""
    return (
        f"{name} = (lambda pandas, os: (pandas.read_feather({path!r}), os.remove({path!r}))[0])"
        f"(__import__('pandas'), __import__('os'))"
    )


def binding(name: str, value: Any) -> str:
    """The source of a cell that binds a value."""
    import json

    text = json.dumps(value, default=plain, allow_nan=False)
    return f"{name} = __import__('json').loads({text!r})"


def giving_out(name: str, path: str) -> str:
    """The source of a cell that displays what a name has: as JSON, or as the kind of Arrow file that it has written.

    Columns of which the file would have something else are refused: structures, and integers of more than 64 bits with a sign.
    """
    return f"""(lambda value, os: (
    {{"value": value}} if type(value).__module__.split(".")[0] != "pandas"
    else (
        os.makedirs({_FOLDER!r}, exist_ok=True),
        (value := value.to_frame(value.name or "value") if hasattr(value, "to_frame") and not hasattr(value, "columns") else value),
        (odd := [
            str(value.columns[at]) for at, kind in enumerate(value.dtypes) if kind == object and any(
                isinstance(one, dict) or (isinstance(one, int) and not -2**63 <= one < 2**63) for one in value.iloc[:, at]
            )
        ]),
        odd and (_ for _ in ()).throw(TypeError(
            f"column `{{odd[0]}}` has structures or integers beyond 64 bits, which no table takes out of a sandbox"
        )),
        ({{"file": "feather"}}, value.to_feather({path!r}, compression="uncompressed"))[0]
        if type(value.index).__name__ == "RangeIndex" and value.index.start == 0 and value.index.step == 1
        else ({{"file": "parquet"}}, value.to_parquet({path!r}))[0],
    )[-1]
))({name}, __import__("os"))"""


def shown(name: str, value: Json) -> dict[str, Json]:
    """Value that such a cell has displayed."""
    if not isinstance(value, dict):
        raise SandboxError(f"`{name}` is neither a table nor JSON")
    return cast("dict[str, Json]", value)


def frame_of(data: bytes, kind: str, wanted: str | None) -> Any:
    """A frame of pandas or polars, or a table of pyarrow, of an Arrow or Parquet file."""
    for library in (wanted,) if wanted is not None else ("pandas", "polars", "pyarrow"):
        try:
            found: Any = import_module(library)
        except ImportError:
            continue
        if library == "polars":
            return found.read_ipc(data) if kind == "feather" else found.read_parquet(data)
        buffer = _pyarrow().BufferReader(data)
        if kind == "feather":
            table = _pyarrow("pyarrow.ipc").open_file(buffer).read_all()
        else:
            table = _pyarrow("pyarrow.parquet").read_table(buffer)
        return table.to_pandas() if library == "pandas" else table
    raise SandboxError(f"tables need {wanted or 'pandas, polars or pyarrow'}", "usage", "pip install 'cellar-sandbox[arrow]'")
