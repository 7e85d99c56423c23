"""What programs mostly ask of `pyarrow`: tables that are read from files of Parquet and Feather and written to them. They are
frames of pandas within, and the host reads and writes the files.
"""

import sys
import types

from _cellar_prelude.platform import absent

_REST = "what stands here for pyarrow has tables, and files of Parquet and Feather; pandas does the rest: pd.read_parquet, frame.to_parquet"


def begin():
    """Has the modules made once a cell imports them."""
    makers = {"pyarrow": _arrow, "pyarrow.parquet": _parquet, "pyarrow.feather": _feather}
    for name, make in makers.items():
        absent.offer(name, make)


class ChunkedArray:
    """A column of a table."""

    def __init__(self, series):
        self._series = series

    def to_pandas(self):
        """The column as a series of pandas."""
        return self._series.copy()

    def to_numpy(self):
        """The column as an array of NumPy."""
        return self._series.to_numpy()

    def to_pylist(self):
        """The values of the column, None for those that are missing."""
        return _values(self._series)

    def __iter__(self):
        return iter(self.to_pylist())

    def __len__(self):
        return len(self._series)

    def __getitem__(self, place):
        return self.to_pylist()[place]


class Table:
    """A table of columns."""

    def __init__(self, frame):
        if not isinstance(frame, sys.modules["pandas"].DataFrame):
            raise TypeError("Do not call Table's constructor directly, use one of the `Table.from_*` functions instead.")
        self._frame = frame

    @classmethod
    def from_pandas(cls, df, schema=None, preserve_index=None, **_options):
        """Makes a table of a frame of pandas."""
        _refuse(schema=schema)
        if preserve_index is False:
            df = df.reset_index(drop=True)
        return cls(df.copy())

    @classmethod
    def from_pydict(cls, mapping, schema=None, metadata=None):
        """Makes a table of columns by their names."""
        _refuse(schema=schema, metadata=metadata)
        columns = {name: values._series if isinstance(values, ChunkedArray) else values for name, values in mapping.items()}
        return cls(sys.modules["pandas"].DataFrame(columns))

    @classmethod
    def from_pylist(cls, mapping, schema=None, metadata=None):
        """Makes a table of rows, each a dictionary."""
        _refuse(schema=schema, metadata=metadata)
        return cls(sys.modules["pandas"].DataFrame(mapping))

    @property
    def column_names(self):
        """The names of the columns."""
        return [str(name) for name in self._frame.columns]

    @property
    def num_rows(self):
        """The number of rows."""
        return len(self._frame)

    @property
    def num_columns(self):
        """The number of columns."""
        return self._frame.shape[1]

    @property
    def shape(self):
        """The numbers of rows and of columns."""
        return self._frame.shape

    @property
    def columns(self):
        """The columns, in their order."""
        return [self.column(place) for place in range(self.num_columns)]

    def column(self, i):
        """One column, by its name or its place."""
        frame = self._frame
        return ChunkedArray(frame.iloc[:, i] if isinstance(i, int) else frame[i])

    def select(self, columns):
        """The table with these columns alone."""
        return Table(self._frame.iloc[:, list(columns)] if all(isinstance(name, int) for name in columns) else self._frame[list(columns)])

    def slice(self, offset=0, length=None):
        """The rows from a place on."""
        return Table(self._frame.iloc[offset : None if length is None else offset + length])

    def to_pandas(self, **_options):
        """The table as a frame of pandas."""
        return self._frame.copy()

    def to_pydict(self):
        """The columns by their names, as lists."""
        return {name: _values(self._frame.iloc[:, place]) for place, name in enumerate(self.column_names)}

    def to_pylist(self):
        """The rows, each a dictionary."""
        columns = self.to_pydict()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def equals(self, other):
        """True if the other table has the same columns with the same values."""
        return self._frame.equals(other._frame)

    def __len__(self):
        return len(self._frame)

    def __getitem__(self, i):
        return self.slice(i.start or 0, None if i.stop is None else i.stop - (i.start or 0)) if isinstance(i, slice) else self.column(i)

    def __repr__(self):
        types = "\n".join(f"{name}: {kind}" for name, kind in zip(self.column_names, self._frame.dtypes, strict=True))
        return f"pyarrow.Table\n{types}\n----\n{self._frame.head(5).to_string()}"


def _values(series):
    values = series.astype(object).where(series.notna(), None).tolist() if series.dtype != object else series.tolist()
    return [None if value is sys.modules["pandas"].NA else value for value in values]


def _refuse(**options):
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(f"`{name}`: {_REST}")


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} in this sandbox: {_REST}", name=name, obj=self)


def _arrow(name, _refusal):
    module = _Module(name)
    module.Table, module.ChunkedArray = Table, ChunkedArray

    def table(data, names=None, schema=None, metadata=None):
        """Makes a table of a frame, or of columns by their names."""
        if names is not None:
            data = dict(zip(names, data, strict=True))
        return Table.from_pydict(data, schema, metadata) if isinstance(data, dict) else Table.from_pandas(data, schema)

    def concat_tables(tables, **_options):
        """The rows of several tables."""
        return Table(sys.modules["pandas"].concat([one._frame for one in tables], ignore_index=True))

    module.table, module.concat_tables = table, concat_tables
    return module


def _parquet(name, _refusal):
    module = _Module(name)
    pandas = sys.modules["pandas"]

    def read_table(source, columns=None, filters=None, filesystem=None, **_options):
        """Reads a table from a file of Parquet, or from a folder of such files."""
        return Table(pandas.read_parquet(source, columns=columns, filters=filters, filesystem=filesystem))

    def write_table(table, where, compression="snappy", **_options):
        """Writes a table to a file of Parquet."""
        table._frame.to_parquet(where, compression=None if compression in (None, "NONE", "none") else compression.lower())

    class ParquetFile:
        """One file of Parquet."""

        def __init__(self, source, **_options):
            self._source = source

        def read(self, columns=None, **_options):
            """Reads the table."""
            return read_table(self._source, columns)

    module.read_table = module.read_pandas = read_table
    module.write_table, module.ParquetFile = write_table, ParquetFile
    return module


def _feather(name, _refusal):
    module = _Module(name)
    pandas = sys.modules["pandas"]
    module.read_feather = lambda source, columns=None, **_options: pandas.read_feather(source, columns=columns)
    module.read_table = lambda source, columns=None, **_options: Table(pandas.read_feather(source, columns=columns))

    def write_feather(df, dest, compression=None, **_options):
        """Writes a table or a frame to a file of Feather."""
        frame = df._frame if isinstance(df, Table) else df
        frame.to_feather(dest, compression=compression or "lz4")

    module.write_feather = write_feather
    return module
