//! Rows without values in tables of several parts, through each way that tables take into each guest: the values are known, and
//! compared one by one.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationMicrosecondArray, Float64Array,
    Int8Array, Int64Array, ListArray, RecordBatch, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    types::Int64Type,
};
use arrow_schema::{Field, Schema};
use cellar_tables::Batches;
use serde_json::{Value, json};

use crate::support::{cellar, result_of_run, run, text};

/// Rows of a file of more than one part: files are read 65,536 rows at a time.
const MANY: i64 = (1 << 16) + 9;

const CONFIG: &str = r#"
[datasets]
publish = true

[connectors.lake]
kind = "files"
folder = "lake"
fetches.first = { path = "first/*.parquet" }
fetches.last = { path = "last/*.parquet" }
fetches.many = { path = "many/*.parquet" }
"#;

/// Files of a fetch: how many rows each has, and which of them have no values but their number.
type Files = &'static [(i64, &'static [i64])];

const GAPS: [(&str, Files); 3] = [
    ("first", &[(4, &[1, 3]), (3, &[])]),
    ("last", &[(2, &[]), (3, &[2]), (2, &[])]),
    ("many", &[(MANY, &[MANY - 2])]),
];

/// Expected values in plain Python, by the number of the row; `check` reports the values that differ.
const PYTHON: &str = "
import datetime as dt
from decimal import Decimal
from zoneinfo import ZoneInfo

EXPECTED = {
    'n': lambda n: n,
    'small': lambda n: n % 100,
    'whole': lambda n: 2**60 + n,
    'real': lambda n: n / 4,
    'flag': lambda n: n % 2 == 0,
    'text': lambda n: f'{n} ø',
    'city': lambda n: ['Oslo', ''][n % 2],
    'data': lambda n: str(n).encode(),
    'day': lambda n: dt.date(1970, 1, 1) + dt.timedelta(n % 1000),
    'local': lambda n: dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=n),
    'zoned': lambda n: dt.datetime(1970, 1, 1, 1, microsecond=n, tzinfo=ZoneInfo('Europe/Oslo')),
    'span': lambda n: dt.timedelta(microseconds=n),
    'time': lambda n: dt.time(microsecond=n),
    'money': lambda n: Decimal(n) / 100,
    'list': lambda n: [n, n + 1],
}

def differences(columns, gaps):
    assert list(columns) == list(EXPECTED), list(columns)
    for name, values in columns.items():
        for n, value in enumerate(values):
            gone = value is None or value is missing(value)
            same = gone if n in gaps and name != 'n' else not gone and plain(value) == EXPECTED[name](n)
            if not same:
                yield name, n, value

def check(columns, gaps):
    return list(differences(columns, gaps))[:3] or f'{len(columns[\"n\"])} rows'
";

const PLAIN: &str = "
missing = lambda value: ...
plain = lambda value: value
def told(rows, gaps):
    return check({name: [row[name] for row in rows] for name in EXPECTED}, gaps)
";

const DATA: &str = "
missing = lambda value: value if pd.api.types.is_scalar(value) and pd.isna(value) else ...
plain = lambda value: list(value) if isinstance(value, (list, np.ndarray)) else value
def told(frame, gaps):
    return check({name: frame[name].tolist() for name in frame}, gaps)
";

const JAVASCRIPT: &str = "
const EXPECTED = {
  n: (n) => n,
  small: (n) => n % 100,
  whole: (n) => 2n ** 60n + BigInt(n),
  real: (n) => n / 4,
  flag: (n) => n % 2 === 0,
  text: (n) => `${n} ø`,
  city: (n) => ['Oslo', ''][n % 2],
  data: (n) => new TextEncoder().encode(n),
  day: (n) => new Date((n % 1000) * 86400000).toISOString().slice(0, 10),
  local: (n) => new Date(Math.floor(n / 1000)),
  zoned: (n) => new Date(Math.floor(n / 1000)),
  span: (n) => n / 1000,
  time: (n) => n === 0 ? '00:00:00' : `00:00:00.${`${n}`.padStart(6, '0').replace(/000$/, '')}`,
  money: (n) => (n / 100).toFixed(2),
  list: (n) => [n, n + 1],
};
const plain = (value) => typeof value === 'bigint' ? `${value}n` : value instanceof Date ? value.toISOString() : JSON.stringify(value);
function told(rows, gaps) {
  const found = [];
  for (const [name, expected] of Object.entries(EXPECTED)) {
    rows.forEach((row, n) => {
      const wanted = name !== 'n' && gaps.includes(n) ? null : expected(n);
      if (plain(row[name]) !== plain(wanted)) found.push(`${name} ${n} ${plain(row[name])} ${plain(wanted)}`);
    });
  }
  return found.length ? found.slice(0, 3).join() : `${rows.length} rows`;
}
";

/// The rows from a number on, of which some have no values.
fn batch(from: i64, count: i64, gaps: &[i64]) -> RecordBatch {
    let all = || from..from + count;
    let some = || all().map(|n| (!gaps.contains(&n)).then_some(n));
    let lists = some().map(|n| n.map(|n| [Some(n), Some(n + 1)]));
    let moments = || some().collect::<TimestampMicrosecondArray>();
    let texts = |text: fn(i64) -> String| some().map(|n| n.map(text)).collect::<StringArray>();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(all()))),
        ("small", Arc::new(some().map(|n| n.map(|n| (n % 100) as i8)).collect::<Int8Array>())),
        ("whole", Arc::new(some().map(|n| n.map(|n| (1 << 60) + n)).collect::<Int64Array>())),
        ("real", Arc::new(some().map(|n| n.map(|n| n as f64 / 4.0)).collect::<Float64Array>())),
        ("flag", Arc::new(some().map(|n| n.map(|n| n % 2 == 0)).collect::<BooleanArray>())),
        ("text", Arc::new(texts(|n| format!("{n} ø")))),
        ("city", Arc::new(texts(|n| if n % 2 == 0 { "Oslo".to_owned() } else { String::new() }))),
        ("data", Arc::new(some().map(|n| n.map(|n| n.to_string())).collect::<BinaryArray>())),
        ("day", Arc::new(some().map(|n| n.map(|n| (n % 1000) as i32)).collect::<Date32Array>())),
        ("local", Arc::new(moments())),
        ("zoned", Arc::new(moments().with_timezone("Europe/Oslo"))),
        ("span", Arc::new(some().collect::<DurationMicrosecondArray>())),
        ("time", Arc::new(some().collect::<Time64MicrosecondArray>())),
        ("money", {
            let cents = some().map(|n| n.map(i128::from)).collect::<Decimal128Array>();
            Arc::new(cents.with_precision_and_scale(20, 2).expect("it fits"))
        }),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
    ];
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).expect("a batch")
}

/// A folder with the files of all fetches and the configuration.
fn lake(folder: &Path) {
    fs::write(folder.join("cellar.toml"), CONFIG).expect("written");
    for (fetch, files) in GAPS {
        let place = folder.join("lake").join(fetch);
        fs::create_dir_all(&place).expect("a folder");
        let mut from = 0;
        for (number, (count, gaps)) in files.iter().enumerate() {
            let batch = batch(from, *count, gaps.iter().map(|gap| gap + from).collect::<Vec<_>>().as_slice());
            from += count;
            let file = File::create(place.join(format!("{number}.parquet"))).expect("a file");
            Batches::new(batch.schema(), vec![batch]).write_parquet(file).expect("written");
        }
    }
}

/// The numbers of all rows of a fetch without values, and how many rows it has.
fn gaps(fetch: usize) -> (Vec<i64>, i64) {
    let (mut from, mut found) = (0, Vec::new());
    for (count, gaps) in GAPS[fetch].1 {
        found.extend(gaps.iter().map(|gap| gap + from));
        from += count;
    }
    (found, from)
}

/// The lines that a run of a session prints.
fn lines(folder: &Path, guest: &str, language: &str, session: &str, cells: &[String]) -> Vec<String> {
    let cells: Vec<Value> = cells.iter().map(|code| json!({"language": language, "code": code})).collect();
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let mount = format!("{}:/lake", path("lake"));
    let flags = ["--guest", guest, "--config", &path("cellar.toml"), "--store", &path("store"), "--session", session];
    let flags = [&flags[..], &["--mount", &mount, "--timeout", "300"]].concat();
    let result = result_of_run(&json!({ "cells": cells }), &flags);
    assert!(result["error"].is_null(), "{}", text(&result));
    // The output of each cell stands below its number.
    let is_number =
        |line: &&str| line.is_empty() || (line.starts_with('[') && line.contains('/') && line.ends_with(']'));
    text(&result).lines().filter(|line| !is_number(line)).map(str::to_owned).collect()
}

/// Expected output of each fetch, in order.
fn expected(times: usize) -> Vec<String> {
    let each = (0..GAPS.len()).map(|fetch| format!("{} rows", gaps(fetch).1));
    each.flat_map(|line| vec![line; times]).collect()
}

#[test]
fn rows_that_are_fetched_keep_their_gaps_in_plain_python_and_javascript() {
    let folder = tempfile::tempdir().expect("a folder");
    lake(folder.path());
    // The next run reads fetched rows from the file that was kept of them.
    let python = |fetch: usize| format!("print(told(lake.{}(), {:?}))", GAPS[fetch].0, gaps(fetch).0);
    let javascript = |fetch: usize| format!("console.log(told(await lake.{}(), {:?}))", GAPS[fetch].0, gaps(fetch).0);
    for (language, begin, cell) in [
        ("py", [PYTHON, PLAIN].concat(), &python as &dyn Fn(usize) -> String),
        ("js", JAVASCRIPT.to_owned(), &javascript),
    ] {
        let cells: Vec<String> = (0..GAPS.len()).map(cell).collect();
        let guest = if language == "py" { "python" } else { "javascript" };
        let first = lines(folder.path(), guest, language, language, &[&[begin], &cells[..]].concat());
        assert_eq!(first, expected(1), "{language}, fetched");
        assert_eq!(lines(folder.path(), guest, language, language, &cells), expected(1), "{language}, fetched again");
    }
}

#[test]
fn tables_of_the_data_guest_keep_their_gaps() {
    let folder = tempfile::tempdir().expect("a folder");
    lake(folder.path());
    let cells = |of: &dyn Fn(&str, &[i64]) -> String| {
        (0..GAPS.len()).map(|fetch| of(GAPS[fetch].0, &gaps(fetch).0)).collect::<Vec<_>>()
    };
    let data = |cells: &[String]| lines(folder.path(), "python-data", "py", "data", cells);
    let fetched = cells(&|name, gaps| format!("{name} = lake.{name}()\nprint(told({name}, {gaps:?}))"));
    assert_eq!(data(&[&[[PYTHON, DATA].concat()], &fetched[..]].concat()), expected(1), "fetched");
    assert_eq!(data(&fetched), expected(1), "fetched again");
    let files = cells(&|name, gaps| {
        format!(
            "{name}.to_parquet('p')
print(told(pd.read_parquet('p'), {gaps:?}))
{name}.to_feather('f')
print(told(pd.read_feather('f'), {gaps:?}))
print(told(pd.read_parquet('/lake/{name}'), {gaps:?}))"
        )
    });
    assert_eq!(data(&files), expected(3), "files");
    let datasets = cells(&|name, gaps| {
        format!("print(publish_dataset('set_{name}', {name}))\nprint(told(load_dataset('set_{name}'), {gaps:?}))")
    });
    let published = expected(1).into_iter().flat_map(|line| ["1".to_owned(), line]).collect::<Vec<_>>();
    assert_eq!(data(&datasets), published, "datasets");
    // A file that somebody publishes, and a table that is shown.
    let (store, many) = (folder.path().join("store"), folder.path().join("lake/many/0.parquet"));
    let publish =
        ["dataset", "publish", "sent", many.to_str().expect("text"), "--store", store.to_str().expect("text")];
    let ended = run(&mut cellar(publish));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (gaps, rows) = gaps(2);
    let sent = data(&[format!("print(told(load_dataset('sent'), {gaps:?}))")]);
    assert_eq!(sent, [format!("{rows} rows")], "published by the command");
    let shown = data(&["text = pd.Series([None, *['ø'] * 65_540, None], dtype='str').to_frame('t')\ntext".to_owned()]);
    assert!(shown.last().is_some_and(|line| line.contains("65542 rows")), "{shown:?}");
}

/// Tables of one column and three rows, the first as it should be: what is said of the column, and its buffers in hexadecimal.
const TABLES: &str = r#"[
  [{"rows": 3, "nullable": true, "type": {"kind": "boolean"}}, "010001", "010000"],
  [{"rows": 3, "nullable": true, "type": {"kind": "boolean"}}, "010000000100", "010000"],
  [{"rows": 3, "nullable": false, "type": {"kind": "integer", "bits": 16, "signed": true}}, "01000200"],
  [{"rows": 3, "nullable": false, "type": {"kind": "text", "bytes": 2}}, "000000000100000002000000", "6162"],
  [{"rows": 2, "nullable": false, "type": {"kind": "boolean"}}, "0100"]
]"#;
const REFUSED: [&str; 4] = [
    "column 'a' came in buffers of [6, 3] bytes, where its 3 rows need [3, 3]",
    "column 'a' came in buffers of [4] bytes, where its 3 rows need [6]",
    "column 'a' came in buffers of [12, 2] bytes, where its 3 rows need [16, 2]",
    "column 'a' came with 2 rows, where the table has 3",
];

/// The reader of the prelude, of which no more than these tables need is there.
const PYTHON_READER: &str = "
import io, json, sys, types
sys.modules['_cellar'] = types.ModuleType('_cellar')
names = {}
exec(SOURCE, names)
def head(said):
    text = json.dumps(said).encode()
    return len(text).to_bytes(4, 'little') + text
for said, *buffers in json.loads(TABLES):
    buffers = [bytes.fromhex(buffer) for buffer in buffers]
    said = head({**said, 'name': 'a', 'buffers': [len(buffer) for buffer in buffers]})
    try:
        print(names['rows'](io.BytesIO(b''.join([head({'columns': 1, 'rows': 3, 'pandas': None}), said, *buffers]))))
    except ValueError as error:
        print(error)
";

/// The reader of the prelude, with a host that hands these tables over.
const JAVASCRIPT_READER: &str = "
let bytes, at, read;
const kit = {
  define: (object, name, value) => Object.defineProperty(object, name, { value, configurable: true, writable: true }),
  bridge: (name, asked, rows) => { read = rows; return () => {}; },
  transparent: (value) => value,
  granted: () => [],
};
const host = { connectors: () => ['fake'], take: (table, length) => bytes.subarray(at, (at += length)) };
(0, eval)(SOURCE)(host, kit);
kit.bindConnectors();
globalThis.fake.any;
const head = (said) => {
  const text = new TextEncoder().encode(JSON.stringify(said));
  return [...new Uint8Array(new Uint32Array([text.length]).buffer), ...text];
};
for (const [said, ...buffers] of JSON.parse(TABLES)) {
  const parts = buffers.map((buffer) => buffer.match(/../g).map((byte) => parseInt(byte, 16)));
  const column = head({ ...said, name: 'a', buffers: parts.map((part) => part.length) });
  bytes = new Uint8Array([...head({ columns: 1, rows: 3, pandas: null }), ...column, ...parts.flat()]);
  at = 0;
  try {
    console.log(JSON.stringify(read({ table: 1, bytes: bytes.length })));
  } catch (error) {
    console.log(error.message.replace(/,(?! )/g, ', '));
  }
}
";

/// Buffers of another length than rows need would give other rows their values.
#[test]
fn buffers_of_another_length_are_errors_in_each_guest() {
    let python = json!(include_str!("../../../guests/python/_cellar_prelude/calls/columnar.py"));
    let python = format!("SOURCE = {python}\nTABLES = r'''{TABLES}'''\n{PYTHON_READER}");
    let javascript = json!(include_str!("../../../guests/javascript/prelude/connectors.js"));
    let javascript = format!("const TABLES = `{TABLES}`, SOURCE = {javascript};\n{JAVASCRIPT_READER}");
    for (guest, language, code, whole) in [
        ("python", "py", &python, "[{'a': True}, {'a': None}, {'a': False}]"),
        ("python-data", "py", &python, "[{'a': True}, {'a': None}, {'a': False}]"),
        ("javascript", "js", &javascript, r#"[{"a":true},{"a":null},{"a":false}]"#),
    ] {
        let result = result_of_run(&json!({"cells": [{"language": language, "code": code}]}), &["--guest", guest]);
        let lines: Vec<&str> = text(&result).lines().collect();
        assert_eq!(lines, [&[whole], &REFUSED[..]].concat(), "{guest}");
    }
}
