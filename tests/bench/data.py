"""What people do with arrays and tables. Each returns something small that tells whether the work was done."""

import io

import numpy as np
import pandas as pd

_random = np.random.default_rng(7)
_numbers = _random.normal(size=1_000_000)
_others = _random.normal(size=1_000_000)
_integers = _random.integers(0, 1_000_000, 1_000_000)
_square = _random.normal(size=(512, 512))
_signal = _random.normal(size=1 << 18)
_frame = pd.DataFrame(
    {
        "key": _random.integers(0, 1_000, 200_000),
        "city": _random.choice(["Oslo", "Bergen", "Lima", "Quito"], 200_000),
        "value": _numbers[:200_000],
        "count": _integers[:200_000],
    }
)
_places = pd.DataFrame({"key": np.arange(1_000), "weight": _others[:1_000]})
_text = _frame.head(50_000).to_csv(index=False)


def _elementwise():
    return round(float(np.sqrt(np.abs(_numbers * 2 + _others)).mean()), 6)


def _transcendental():
    return round(float((np.exp(-_numbers * _numbers) + np.sin(_others)).mean()), 6)


def _reductions():
    return round(float(_numbers.sum() + _numbers.std() + _numbers.max() + np.median(_numbers[:100_000])), 6)


def _sort():
    return round(float(np.sort(_numbers)[1_000] + np.sort(_integers)[1_000]), 6)


def _argsort():
    return int(np.argsort(_numbers)[0] + np.argsort(_integers, kind="stable")[-1])


def _matmul():
    return round(float(np.trace(_square @ _square)), 4)


def _solve():
    return round(float(np.linalg.solve(_square[:256, :256], _square[:256, 0]).sum()), 4)


def _fft():
    return round(float(np.abs(np.fft.rfft(_signal)).mean()), 6)


def _groupby():
    means = _frame.groupby("key")["value"].agg(["mean", "sum", "count"])
    cities = _frame.groupby("city")["count"].median()
    return round(float(means["mean"].sum() + cities.sum()), 4)


def _merge():
    merged = _frame.merge(_places, on="key")
    return round(float((merged["value"] * merged["weight"]).sum()), 4)


def _pivot():
    return round(float(_frame.pivot_table(index="key", columns="city", values="value", aggfunc="mean").sum().sum()), 4)


def _read_csv():
    return len(pd.read_csv(io.StringIO(_text)))


def _to_csv():
    return len(_frame.head(20_000).to_csv(index=False))


def _strings():
    return int(_frame["city"].str.upper().str.contains("O").sum())


LOOPS = {
    "elementwise": _elementwise,
    "transcendental": _transcendental,
    "reductions": _reductions,
    "sort": _sort,
    "argsort": _argsort,
    "matmul": _matmul,
    "solve": _solve,
    "fft": _fft,
    "groupby": _groupby,
    "merge": _merge,
    "pivot": _pivot,
    "read_csv": _read_csv,
    "to_csv": _to_csv,
    "strings": _strings,
}
