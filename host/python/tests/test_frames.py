"""Tables cross as Arrow."""

import datetime
import decimal

import pytest

from cellar import CellFailed, Sandbox, SandboxError
from conftest import served

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module", params=["here", "server"])
def data(request, tmp_path_factory):
    """A sandbox with pandas, in this process and on a server."""
    if request.param == "here":
        try:
            s = Sandbox(data=True)
            s.run("1").check()
        except SandboxError as error:
            pytest.skip(str(error))
        with s:
            yield s
        return
    folder = tmp_path_factory.mktemp("data")
    (folder / "cellar.toml").write_text('[session]\nguests = ["python-data"]\n')
    with served(folder / "store", "--config", str(folder / "cellar.toml")) as at, Sandbox.connect(*at) as s:
        try:
            s.run("import pandas").check()
        except (CellFailed, SandboxError) as error:
            pytest.skip(str(error))
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


@pytest.mark.parametrize("column", [
    pyarrow.array([1, None, 2**60 + 1], pyarrow.int64()),
    pyarrow.array([1, 2**64 - 1, 3], pyarrow.uint64()),
    pyarrow.array([True, None, False]),
    pyarrow.array(["a", None, "é"]),
    pyarrow.array([b"\0", None, b"x"]),
    pyarrow.array([0, None, 10**15], pyarrow.timestamp("us", "Europe/Berlin")),
    pyarrow.array([0, None, 10**18 + 1], pyarrow.timestamp("ns")),
    pyarrow.array([datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1)]),
    pyarrow.array([datetime.time(1, 2, 3), None, None]),
    pyarrow.array([1, None, 3], pyarrow.duration("ns")),
    pyarrow.array(["x", "y", "x"]).dictionary_encode(),
    pyarrow.array([[1, 2], None, []], pyarrow.list_(pyarrow.int64())),
], ids=lambda column: str(column.type))
def test_columns_come_back_as_they_went(data, column):
    data["t"] = pyarrow.table({"c": column})
    back = data.get("t", frame="pyarrow")["c"].combine_chunks()
    assert (back.type, back.to_pylist()) == (column.type, column.to_pylist())


def test_values_come_back_whatever_the_width_of_their_type(data):
    exact = [decimal.Decimal("1.10"), None, decimal.Decimal("-3.25")]
    data["t"] = pyarrow.table({"c": pyarrow.array(exact, pyarrow.decimal128(10, 2))})
    assert data.get("t", frame="pyarrow")["c"].to_pylist() == exact


@pytest.mark.parametrize("column", [
    pyarrow.array([{"a": 1}, None]), pyarrow.array([2**64 - 1, None], pyarrow.uint64()),
], ids=lambda column: str(column.type))
def test_columns_that_no_table_takes_out_are_refused_by_name(data, column):
    data["t"] = pyarrow.table({"fine": [1, 2], "odd": column})
    with pytest.raises(CellFailed, match="column `odd`"):
        data["t"]
    assert data.files.list("/workspace/.cellar") == []


def test_whatever_has_the_interface_of_arrow_goes_in(data):
    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pyarrow.table({"n": [1, 2]}).__arrow_c_stream__(requested_schema)

    data["t"] = Stream()
    assert data.run("t['n'].tolist()").json == [1, 2]


def test_a_sandbox_without_pandas_says_so():
    with Sandbox() as s, pytest.raises(Exception, match="pandas"):
        s["df"] = frame()
