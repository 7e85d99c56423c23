"""Tables cross as Arrow."""

import os

import pytest

from cellar import Sandbox, SandboxError

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def data():
    try:
        s = Sandbox(data=True)
        s.run("1").check()
    except SandboxError as error:
        pytest.skip(str(error))
    with s:
        yield s


def frame():
    return pandas.DataFrame({
        "n": [1, 2, 3], "x": [0.5, None, float("inf")], "text": ["a", "é", None],
        "when": pandas.to_datetime(["2020-01-01", "2021-02-03", None]), "flag": [True, False, True],
    })


def test_a_frame_of_pandas_goes_in_and_out(data):
    given = frame()
    data["df"] = given
    assert data.run("df.shape, str(df['when'].dtype)[:10], df['n'].sum()").text.startswith("((3, 5), 'datetime64', ")
    pandas.testing.assert_frame_equal(data["df"], given, check_dtype=False)
    data.run("by = df.groupby('flag')['n'].sum().to_frame()").check()
    assert data["by"].to_dict() == {"n": {False: 2, True: 4}}
    data.run("series = df['n'] * 2").check()
    assert data["series"]["n"].tolist() == [2, 4, 6]
    assert data.files.list("/workspace/.cellar") == []


def test_a_frame_of_polars_goes_in_and_out(data):
    data["df"] = polars.DataFrame({"n": [1, 2], "text": ["a", "b"]})
    assert data.run("list(df['text']), int(df['n'].sum())").text == "(['a', 'b'], 3)"
    assert data.get("df", frame="polars")["n"].to_list() == [1, 2]
    table = data.get("df", frame="pyarrow")
    assert table.column_names == ["n", "text"]
    data["again"] = table
    assert data.run("again.equals(df)").text == "True"


def test_a_sandbox_without_pandas_says_so():
    with Sandbox() as s, pytest.raises(Exception, match="pandas"):
        s["df"] = frame()
