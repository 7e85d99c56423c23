//! Files, SQLite and interfaces over HTTP, of which some are out to do harm.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use cellar_connectors::{
    Bounds, Comparison, ConnectorOptions, Connectors, CsvOptions, FetchError, FetchFault, FetchOptions, FilesFetch,
    FilesPlace, Filter, HttpFetch, Kind, ObjectsOptions, Pages, Parameter, ParameterKind, SQL_FETCH, Secret, Sheet,
};
use cellar_tables::Batches;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

fn bounds() -> Bounds {
    Bounds { rows: 10_000, bytes: 4 << 20, timeout: Duration::from_secs(10), concurrency: 4 }
}

fn parameter(name: &str, kind: ParameterKind) -> Parameter {
    Parameter {
        name: name.to_owned(),
        kind,
        description: String::new(),
        is_list: false,
        is_required: false,
        default: Value::Null,
        choices: Vec::new(),
        min: None,
        max: None,
    }
}

fn options<T>(parameters: Vec<Parameter>, asks: T) -> FetchOptions<T> {
    FetchOptions { description: String::new(), parameters, columns: Vec::new(), asks }
}

fn connector(kind: Kind, bounds: Bounds) -> Connectors {
    let options = ConnectorOptions { description: String::new(), bounds, kind };
    Connectors::new(BTreeMap::from([("c".to_owned(), options)])).expect("a connector")
}

async fn fetch(connectors: &Connectors, name: &str, arguments: Value) -> Result<Batches, FetchError> {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    let canonical = connectors.check("c", name, arguments)?;
    connectors.fetch("c", name, canonical).await
}

fn all(rows: &Batches) -> Vec<Map<String, Value>> {
    let (head, tail) = rows.sample(1_000).expect("rows");
    let rows = |value: Value| serde_json::from_value::<Vec<Map<String, Value>>>(value).expect("objects");
    rows(head).into_iter().chain(rows(tail)).collect()
}

/// Handler of requests: returns the response to a path with its query, or handles the connection itself.
type Answer = dyn Fn(&str, &mut TcpStream) -> Option<String> + Send + Sync;

/// A server of HTTP that answers each request on a connection of its own, and how many there were.
fn server(
    answer: impl Fn(&str, &mut TcpStream) -> Option<String> + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (answer, count): (Arc<Answer>, _) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = answer.clone();
            thread::spawn(move || serve(stream, &*answer));
        }
    });
    (format!("http://{address}/v1"), count)
}

fn serve(mut stream: TcpStream, answer: &Answer) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let body = answer(&path, &mut stream)?;
    let length = body.len();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).ok()
}

/// A connector with one fetch `rows`.
fn http(url: &str, path: &str, pages: Pages, bounds: Bounds) -> Connectors {
    let asks = HttpFetch {
        path: path.to_owned(),
        query: vec![("q".to_owned(), "{q}".to_owned())],
        rows: "/data".to_owned(),
        pages,
    };
    let parameters = vec![parameter("name", ParameterKind::String), parameter("q", ParameterKind::String)];
    let fetches = BTreeMap::from([("rows".to_owned(), options(parameters, asks))]);
    let headers = vec![("authorization".to_owned(), Secret::Plain("Bearer s3cr3t-0f-th3-t3st".to_owned()))];
    connector(Kind::Http { url: Secret::Plain(url.to_owned()), headers, rate: None, fetches }, bounds)
}

fn cursor() -> Pages {
    Pages::Cursor { field: "/next".to_owned(), parameter: "cursor".to_owned() }
}

#[tokio::test]
async fn pages_are_followed_and_parameters_stay_where_they_belong() {
    let (url, _) = server(|path, _| {
        let next = if path.contains("cursor=2") { Value::Null } else { json!("2") };
        Some(json!({"data": [{"path": path, "n": 1}], "next": next}).to_string())
    });
    let connectors = http(&url, "users/{name}/x", cursor(), bounds());
    let rows = fetch(&connectors, "rows", json!({"name": "a/b?c#d%2F", "q": "x&cursor=9"})).await.expect("rows");
    let paths: Vec<Value> = all(&rows).into_iter().map(|mut row| row.remove("path").expect("a path")).collect();
    assert_eq!(
        paths,
        ["/v1/users/a%2Fb%3Fc%23d%252F/x?q=x%26cursor%3D9", "/v1/users/a%2Fb%3Fc%23d%252F/x?q=x%26cursor%3D9&cursor=2"]
    );
    for name in ["..", ".", "%2e%2e"] {
        let answer = fetch(&connectors, "rows", json!({"name": name})).await;
        match answer {
            Err(error) => assert_eq!((error.fault, name.contains('%')), (FetchFault::Invalid, false), "{error}"),
            Ok(rows) => assert_eq!(all(&rows)[0]["path"], "/v1/users/%252e%252e/x", "{name}"),
        }
    }
}

#[tokio::test]
async fn a_source_that_never_ends_costs_so_many_rows_pages_and_seconds() {
    // Pages without end, each of them another one.
    let number = AtomicUsize::new(0);
    let (url, _) = server(move |_, _| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let rows: Vec<Value> = (0..1_000).map(|n| json!({"n": n})).collect();
        Some(json!({"data": rows, "next": number.to_string()}).to_string())
    });
    let error = fetch(&http(&url, "", cursor(), bounds()), "rows", json!({})).await.expect_err("endless");
    assert!(error.fault == FetchFault::Limit && error.message.contains("max_rows"), "{error}");
    // The same page again and again.
    let (url, count) = server(|_, _| Some(json!({"data": [], "next": "1"}).to_string()));
    let error = fetch(&http(&url, "", cursor(), bounds()), "rows", json!({})).await.expect_err("a circle");
    assert!(error.message.contains("leads to one before it"), "{error}");
    assert_eq!(count.load(Ordering::Relaxed), 2);
    // A gigabyte in one answer, of which little is read.
    let (url, _) = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n{\"data\": [\"");
        while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        None
    });
    let error = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect_err("large");
    assert!(error.fault == FetchFault::Limit && error.message.contains("max_mib"), "{error}");
    // Values without end in so few bytes that they would take a hundred times as much where they are read.
    let body = format!("{{\"data\": [{}{{}}]}}", "{\"\":0},".repeat(1_500_000));
    let (url, _) = server(move |_, _| Some(body.clone()));
    let wide = Bounds { rows: 5_000_000, bytes: 64 << 20, ..bounds() };
    let error = fetch(&http(&url, "", Pages::One, wide), "rows", json!({})).await.expect_err("many values");
    assert!(error.fault == FetchFault::Limit && error.message.contains("at most 4000000 are read"), "{error}");
    // A byte now and then.
    let (url, _) = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
        None
    });
    let error = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect_err("slow");
    assert!(error.fault == FetchFault::Limit && error.message.contains("timeout"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_table_is_said_to_be_none() {
    for (body, expected) in [
        ("<html>", "no JSON"),
        ("{\"data\": 1}", "a number where an array"),
        ("{\"rows\": []}", "nothing at `/data`"),
        ("{\"data\": [1, 2]}", "row 0 of the answer is a number"),
        ("{\"data\": [{\"a\": 1}, null]}", "row 1 of the answer is null"),
    ] {
        let (url, _) = server(move |_, _| Some(body.to_owned()));
        let error = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect_err(body);
        assert!(error.message.contains(expected), "{error}");
    }
    // Values of all sorts in one column are JSON, and objects without any are rows all the same.
    let (url, _) = server(|_, _| Some(json!({"data": [{"a": 1}, {"a": "x"}, {"a": [1]}, {}]}).to_string()));
    let rows = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect("rows");
    assert_eq!(rows.rows(), 4);
    // Very many columns.
    let row: Map<String, Value> = (0..5_000).map(|n| (format!("c{n}"), Value::from(n))).collect();
    let body = json!({"data": [row]}).to_string();
    let (url, _) = server(move |_, _| Some(body.clone()));
    let error = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect_err("wide");
    assert_eq!(error.fault, FetchFault::Limit, "{error}");
    // Very many rows of nothing, which take their place.
    let body = format!("{{\"data\": [{}{{\"b\": 1}}]}}", "{},".repeat(9_000));
    let wide: Map<String, Value> = (0..1_000).map(|n| (format!("c{n}"), Value::Null)).collect();
    let body = body.replace("{\"b\": 1}", &Value::Object(wide).to_string());
    let (url, _) = server(move |_, _| Some(body.clone()));
    let error = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect_err("sparse");
    assert!(error.fault == FetchFault::Limit && error.message.contains("max_mib"), "{error}");
}

#[tokio::test]
async fn credentials_go_to_their_server_alone_and_into_no_error() {
    let (other, elsewhere) = server(|_, _| Some("{\"data\": []}".to_owned()));
    let link = other.clone();
    let (url, _) = server(move |_, _| Some(json!({"data": [], "next": link}).to_string()));
    let pages = Pages::Link { field: Some("/next".to_owned()) };
    let error = fetch(&http(&url, "", pages, bounds()), "rows", json!({})).await.expect_err("another server");
    assert!(error.message.contains("at another server"), "{error}");
    let (url, _) = server(move |_, stream| {
        let _ = write!(stream, "HTTP/1.1 302 Found\r\nlocation: {other}\r\ncontent-length: 0\r\n\r\n");
        None
    });
    let error = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect_err("a redirect");
    assert!(error.message.contains("redirects are not followed"), "{error}");
    assert_eq!(elsewhere.load(Ordering::Relaxed), 0);
    let connectors = http("http://user:s3cr3t-0f-th3-t3st@127.0.0.1:1/", "", Pages::One, bounds());
    let error = fetch(&connectors, "rows", json!({})).await.expect_err("nobody there");
    assert!(!error.message.contains("s3cr3t") && !format!("{error:?}").contains("s3cr3t"), "{error}");
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let tries = AtomicUsize::new(0);
    let (url, count) = server(move |_, stream| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => {
            let _ = stream.write_all(
                b"HTTP/1.1 429 Too Many\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
            None
        }
        1 => None,
        _ => Some("{\"data\": [{\"a\": 1}]}".to_owned()),
    });
    let rows = fetch(&http(&url, "", Pages::One, bounds()), "rows", json!({})).await.expect("rows");
    assert_eq!((rows.rows(), count.load(Ordering::Relaxed)), (1, 3));
}

fn files(place: FilesPlace, path: &str, select: Option<&[&str]>, bounds: Bounds) -> Connectors {
    let asks = FilesFetch {
        path: path.to_owned(),
        format: None,
        select: select.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        filters: vec![
            Filter { column: "n".to_owned(), comparison: Comparison::GreaterOrEqual, parameter: "least".to_owned() },
            Filter { column: "n".to_owned(), comparison: Comparison::Equal, parameter: "is".to_owned() },
        ],
        csv: CsvOptions::default(),
        sheet: Sheet::default(),
    };
    let parameters = vec![parameter("least", ParameterKind::Integer), parameter("is", ParameterKind::Integer)];
    let fetches = BTreeMap::from([("rows".to_owned(), options(parameters, asks))]);
    connector(Kind::Files { place, fetches }, bounds)
}

/// A Parquet file with the numbers of a range, in groups of 1,000 rows.
fn parquet(file: &Path, numbers: std::ops::Range<i64>) {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(numbers.clone().map(|n| format!("row {n}"))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).expect("a batch");
    let properties = parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(1_000));
    let file = std::fs::File::create(file).expect("a file");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("closed");
}

fn lake() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let inner = folder.path().join("lake");
    std::fs::create_dir_all(inner.join("events")).expect("made");
    parquet(&inner.join("events/a.parquet"), 0..5_000);
    parquet(&inner.join("events/b.parquet"), 5_000..6_000);
    std::fs::write(inner.join("events/.hidden.parquet"), "no").expect("written");
    std::fs::write(inner.join("more.csv"), "n,t\n1,a\n2,\"b,\nc\"\n3,\n").expect("written");
    std::fs::write(inner.join("more.jsonl"), "{\"n\": 1, \"t\": [1]}\n\n{\"n\": 2}\n").expect("written");
    std::fs::write(folder.path().join("secret.csv"), "n\n1\n").expect("written");
    std::os::unix::fs::symlink("../secret.csv", inner.join("out.csv")).expect("a link");
    folder
}

async fn holds_for_files(place: impl Fn() -> FilesPlace) {
    let asked = files(place(), "events/*.parquet", Some(&["t"]), bounds());
    let rows = fetch(&asked, "rows", json!({"least": 4_999})).await.expect("rows");
    let found = all(&rows);
    assert_eq!((rows.rows(), found[0]["t"].clone(), found[0].len()), (1_001, json!("row 4999"), 1));
    assert_eq!(fetch(&asked, "rows", json!({"is": 7})).await.expect("a row").rows(), 1);
    assert_eq!(fetch(&asked, "rows", json!({"is": -1})).await.expect("none").rows(), 0);
    assert_eq!(fetch(&asked, "rows", json!({})).await.expect("rows").rows(), 6_000);
    let few = Bounds { rows: 100, ..bounds() };
    let error = fetch(&files(place(), "events/*", None, few), "rows", json!({})).await.expect_err("too many");
    assert!(error.fault == FetchFault::Limit && error.message.contains("max_rows"), "{error}");
    let rows = fetch(&files(place(), "more.csv", None, bounds()), "rows", json!({"least": 2})).await.expect("rows");
    assert_eq!(all(&rows)[0]["t"], "b,\nc");
    let rows = fetch(&files(place(), "*.jsonl", None, bounds()), "rows", json!({})).await.expect("rows");
    assert_eq!(rows.rows(), 2);
    let error = fetch(&files(place(), "nothing/*", None, bounds()), "rows", json!({})).await.expect_err("no file");
    assert!(error.message.contains("there is no file `nothing/*`"), "{error}");
    assert_eq!(asked.probe("c").await.expect("there"), "rows: 2 files");
}

#[tokio::test]
async fn files_of_a_folder_are_one_table_and_nothing_outside_of_it_is_read() {
    let folder = lake();
    let inner = folder.path().join("lake");
    holds_for_files(|| FilesPlace::Folder(inner.clone())).await;
    for path in ["out.csv", "../secret.csv", "/etc/passwd"] {
        let asked = files(FilesPlace::Folder(inner.clone()), path, None, bounds());
        fetch(&asked, "rows", json!({})).await.expect_err(path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_object_store_are_read_as_those_of_a_folder() {
    let folder = lake();
    let url = format!("file://{}", folder.path().join("lake").display());
    holds_for_files(|| FilesPlace::Objects(ObjectsOptions { url: url.clone(), options: BTreeMap::new() })).await;
}

#[tokio::test]
async fn the_columns_of_a_large_file_that_are_read_side_by_side_stay_together() {
    let folder = TempDir::new().expect("a folder");
    let inner = folder.path().to_owned();
    parquet(&inner.join("a.parquet"), 0..200_000);
    let large = Bounds { rows: 300_000, bytes: 64 << 20, ..bounds() };
    let asked = |bounds| files(FilesPlace::Folder(inner.clone()), "*.parquet", None, bounds);
    let rows = fetch(&asked(large.clone()), "rows", json!({})).await.expect("rows");
    assert_eq!((rows.rows(), rows.columns().len()), (200_000, 2));
    for number in [0, 65_535, 65_536, 131_072, 199_999_usize] {
        let mut before = 0;
        let batch = rows.batches.iter().find(|batch| {
            before += batch.num_rows();
            number < before
        });
        let batch = batch.expect("a batch");
        let row = batch.slice(number - (before - batch.num_rows()), 1);
        let row = all(&Batches::new(rows.schema.clone(), vec![row]));
        assert_eq!((&row[0]["n"], &row[0]["t"]), (&json!(number), &json!(format!("row {number}"))));
    }
    for (bounds, word) in
        [(Bounds { rows: 199_999, ..large.clone() }, "max_rows"), (Bounds { bytes: 2 << 20, ..large }, "max_mib")]
    {
        let error = fetch(&asked(bounds), "rows", json!({})).await.expect_err("too much");
        assert!(error.fault == FetchFault::Limit && error.message.contains(word), "{error}");
    }
    let mut bytes = std::fs::read(inner.join("a.parquet")).expect("bytes");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 20_000].fill(0xff);
    std::fs::write(inner.join("a.parquet"), bytes).expect("written");
    let large = Bounds { rows: 300_000, bytes: 64 << 20, ..bounds() };
    let error = fetch(&asked(large), "rows", json!({})).await.expect_err("damaged");
    assert_eq!(error.fault, FetchFault::Failed, "{error}");
}

/// Rows as they are kept: what the file says of each chunk, and what it has.
fn kept(rows: &Batches) -> (Vec<String>, Batches) {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let mut file = tempfile::tempfile().expect("a file");
    rows.write_parquet(&mut file).expect("written");
    let reader = SerializedFileReader::new(file.try_clone().expect("the file")).expect("Parquet");
    let columns = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
    let said = columns.map(|column| format!("{} {}", column.column_path(), column.compression_codec()));
    (said.collect(), Batches::read_parquet(file).expect("rows"))
}

#[tokio::test]
async fn rows_of_whole_files_are_kept_by_the_pages_that_they_were_read_of() {
    use arrow_array::{ArrayRef, Int32Array, ListArray, RecordBatch, StringArray, types::Int64Type};
    use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).expect("a batch");
        let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW).build();
        let file = std::fs::File::create(folder.path().join(name)).expect("a file");
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
        writer.write(&batch).expect("written");
        writer.close().expect("closed");
    };
    let texts = |from: i32| -> ArrayRef {
        let text = |n: i32| (n % 5 != 0).then(|| format!("text {}", n % 3));
        Arc::new((from..from + 40_000).map(text).collect::<StringArray>())
    };
    let lists = |from: i64| -> ArrayRef {
        let list = |n: i64| (n % 4 != 0).then(|| (0..n % 4).map(Some).collect::<Vec<_>>());
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>((from..from + 40_000).map(list)))
    };
    let numbers = |from| -> ArrayRef { Arc::new(Int32Array::from_iter_values(from..from + 40_000)) };
    write("a.parquet", vec![("n", numbers(0)), ("l", lists(0)), ("more", numbers(7)), ("t", texts(0))]);
    write("b.parquet", vec![("t", texts(40_000)), ("n", numbers(40_000)), ("l", lists(40_000))]);
    let large = Bounds { rows: 300_000, bytes: 64 << 20, ..bounds() };
    let place = || FilesPlace::Folder(folder.path().to_owned());
    let asked = files(place(), "*.parquet", Some(&["t", "l", "n"]), large.clone());
    let rows = fetch(&asked, "rows", json!({})).await.expect("rows");
    let (said, again) = kept(&rows);
    let group = ["\"t\" LZ4_RAW", "\"l.list.item\" LZ4_RAW", "\"n\" LZ4_RAW"];
    assert_eq!(said, group.repeat(2), "the pages of both files");
    assert_eq!((again.rows(), again.columns()), (80_000, rows.columns()));
    assert_eq!(all(&again), all(&rows));
    let text = again.batches[0].schema().field(0).data_type().clone();
    assert_eq!(text, cellar_tables::repeating::kind(), "a kept file says of its texts that they repeat");
    // Other rows than those of the pages, and other texts, are written anew.
    let filtered = fetch(&asked, "rows", json!({"least": 1})).await.expect("rows");
    assert!(kept(&filtered).0.iter().all(|said| said.ends_with("SNAPPY")), "{:?}", kept(&filtered).0);
    let replaced = |batches: Vec<RecordBatch>| kept(&rows.clone().replaced(rows.schema.clone(), batches)).0;
    assert_eq!(replaced(rows.batches.clone()), said);
    assert!(replaced(rows.batches.iter().rev().cloned().collect()).iter().all(|said| said.ends_with("SNAPPY")));
    // So are numbers that are others than those of the file before.
    let wide: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..10));
    write("c.parquet", vec![("t", texts(0).slice(0, 10)), ("n", wide), ("l", lists(0).slice(0, 10))]);
    let (said, again) = kept(&fetch(&asked, "rows", json!({})).await.expect("rows"));
    assert!(said.iter().all(|said| said.ends_with("SNAPPY")), "{said:?}");
    assert_eq!((again.rows(), all(&again).last().expect("a row")["n"].clone()), (80_010, json!(9)));
}

#[tokio::test]
async fn damaged_and_very_large_files_cost_their_own_fetch() {
    let folder = TempDir::new().expect("a folder");
    let inner = folder.path().to_owned();
    parquet(&inner.join("a.parquet"), 0..5_000);
    let whole = std::fs::read(inner.join("a.parquet")).expect("bytes");
    let place = || FilesPlace::Folder(inner.clone());
    for (place_of_fault, length) in [(10, whole.len()), (whole.len() - 40, whole.len()), (0, whole.len() / 2), (0, 3)] {
        let mut bytes = whole.clone();
        bytes[place_of_fault..].iter_mut().take(30).for_each(|byte| *byte = 0xff);
        std::fs::write(inner.join("a.parquet"), &bytes[..length]).expect("written");
        let error = fetch(&files(place(), "a.parquet", None, bounds()), "rows", json!({})).await.expect_err("damaged");
        assert_eq!(error.fault, FetchFault::Failed, "{error}");
    }
    // One value that is larger than all that a fetch may have.
    let mut csv = std::fs::File::create(inner.join("a.csv")).expect("a file");
    csv.write_all(b"n,t\n1,\"").expect("written");
    (0..64).for_each(|_| csv.write_all(&[b'x'; 1 << 20]).expect("written"));
    csv.write_all(b"\"\n").expect("written");
    let error = fetch(&files(place(), "a.csv", None, bounds()), "rows", json!({})).await.expect_err("large");
    assert!(error.message.contains("more bytes than the fetch may have"), "{error}");
}

#[tokio::test]
async fn csv_is_read_as_it_is_said_to_be_written() {
    let folder = TempDir::new().expect("a folder");
    let read = async |name: &str, bytes: &[u8], csv: CsvOptions| {
        std::fs::write(folder.path().join(name), bytes).expect("written");
        let asks = FilesFetch {
            path: name.to_owned(),
            format: None,
            select: None,
            filters: Vec::new(),
            csv,
            sheet: Sheet::default(),
        };
        let fetches = BTreeMap::from([("rows".to_owned(), options(Vec::new(), asks))]);
        let place = FilesPlace::Folder(folder.path().to_owned());
        fetch(&connector(Kind::Files { place, fetches }, bounds()), "rows", json!({})).await
    };
    let german = CsvOptions { separator: Some(b';'), has_decimal_comma: true, encoding: None };
    let text = "Ort;Preis;Menge;Nummer\nKöln;1.234,50;1;1,2,3\nMünchen;-0,5;;b\n";
    let latin = CsvOptions { encoding: CsvOptions::encoding("latin-1"), ..german };
    let as_latin: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin 1")).collect();
    let wide = CsvOptions { encoding: CsvOptions::encoding("utf-16"), ..german };
    let as_wide: Vec<u8> = std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    for (bytes, csv) in [(text.as_bytes(), german), (&marked, german), (&as_latin, latin), (&as_wide, wide)] {
        let found = all(&read("a.csv", bytes, csv).await.expect("rows"));
        assert_eq!(
            Value::from(found[0].clone()),
            json!({"Ort": "Köln", "Preis": 1234.5, "Menge": 1, "Nummer": "1,2,3"})
        );
        assert_eq!((&found[1]["Ort"], &found[1]["Preis"]), (&json!("München"), &json!(-0.5)));
    }
    // What stops to be such a number is no silent null.
    let later = format!("a\n{}x\n", "1,5\n".repeat(20_000));
    let csv = CsvOptions { separator: Some(b';'), ..german };
    let error = read("b.csv", later.as_bytes(), csv).await.expect_err("a text among numbers");
    assert!(error.message.contains("column `a` has numbers with a decimal comma, and others"), "{error}");
    // Without any of that it is read as before.
    let usual = read("c.csv", b"\xef\xbb\xbfa,b\n1.5,x\n", CsvOptions::default()).await.expect("rows");
    assert_eq!(Value::from(all(&usual)[0].clone()), json!({"a": 1.5, "b": "x"}));
}

#[tokio::test]
async fn lists_are_parameters() {
    let folder = lake();
    let list = |name: &str| Parameter { is_list: true, ..parameter(name, ParameterKind::Integer) };
    let filter = |comparison| Filter { column: "n".to_owned(), comparison, parameter: "ids".to_owned() };
    for (comparison, expected) in [(Comparison::Equal, [3, 0]), (Comparison::NotEqual, [5_997, 6_000])] {
        let asks = FilesFetch {
            path: "events/*.parquet".to_owned(),
            format: None,
            select: None,
            filters: vec![filter(comparison)],
            csv: CsvOptions::default(),
            sheet: Sheet::default(),
        };
        let fetches = BTreeMap::from([("rows".to_owned(), options(vec![list("ids")], asks))]);
        let place = FilesPlace::Folder(folder.path().join("lake"));
        let asked = connector(Kind::Files { place, fetches }, bounds());
        for (ids, expected) in [json!([7, 7, 4_999, 5_000]), json!([])].into_iter().zip(expected) {
            assert_eq!(fetch(&asked, "rows", json!({"ids": ids})).await.expect("rows").rows(), expected);
        }
    }
    let file = folder.path().join("ledger.db");
    let made = rusqlite::Connection::open(&file).expect("a file");
    made.execute_batch("create table t (id integer, note text); insert into t values (1, 'a'), (2, 'b'), (3, null);")
        .expect("a table");
    let query = "select * from t where id in (:ids)".to_owned();
    let fetches = BTreeMap::from([("t".to_owned(), options(vec![list("ids")], query))]);
    let asked = connector(Kind::Sqlite { file, sql: true, fetches }, bounds());
    for (ids, expected) in [(json!([1, 3, 9]), 2), (json!([]), 0)] {
        assert_eq!(fetch(&asked, "t", json!({"ids": ids})).await.expect("rows").rows(), expected);
    }
    let error = fetch(&asked, "t", json!({"ids": ["1); drop table t"]})).await.expect_err("a text");
    assert_eq!(error.fault, FetchFault::Invalid, "{error}");
    for (test, notes, expected) in [
        ("note in (:notes)", json!(["a", "x') or 1=1 --"]), 1),
        ("note not in :notes", json!(["a"]), 1),
        ("id = any(:notes)", json!([2, 3]), 2),
        ("id in (select value from json_each(:notes))", json!([2]), 1),
    ] {
        let asked_for = json!({"query": format!("select * from t where {test}"), "parameters": {"notes": notes}});
        assert_eq!(fetch(&asked, SQL_FETCH, asked_for).await.expect(test).rows(), expected, "{test}");
    }
}

#[tokio::test]
async fn sqlite_is_only_read_and_ends_in_time() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("ledger.db");
    let made = rusqlite::Connection::open(&file).expect("a file");
    made.execute_batch(
        "create table t (id integer primary key, day date, seen timestamp, is_open boolean, note text, data blob);
         insert into t values (1, '2026-01-31', '2026-01-31T12:00:00Z', 1, 'zażółć', x'00ff'), (2, null, null, 0, null, null);",
    )
    .expect("a table");
    drop(made);
    let query = "select * from t where id >= :least and (note = :note or :note is null) order by id".to_owned();
    let parameters = vec![parameter("least", ParameterKind::Integer), parameter("note", ParameterKind::String)];
    let fetches = BTreeMap::from([("t".to_owned(), options(parameters, query))]);
    let connectors = connector(Kind::Sqlite { file: file.clone(), sql: true, fetches }, bounds());
    let sql = |query: &str| {
        let (connectors, query) = (connectors.clone(), query.to_owned());
        async move { fetch(&connectors, SQL_FETCH, json!({"query": query})).await }
    };
    let rows = fetch(&connectors, "t", json!({"least": 1})).await.expect("rows");
    let types: Vec<String> = rows.columns().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!((rows.rows(), types[0].as_str(), types[3].as_str()), (2, "int64", "bool"));
    assert!(types[1].starts_with("date") && types[2].starts_with("timestamp"), "{types:?}");
    for note in ["' or 1=1 --", "zażółć'; drop table t; --"] {
        assert_eq!(fetch(&connectors, "t", json!({"least": 1, "note": note})).await.expect("none").rows(), 0);
    }
    for query in [
        "insert into t (id) values (3)",
        "select 1; delete from t",
        "with x as (select 1) delete from t",
        "pragma journal_mode = delete",
        "pragma writable_schema = 1",
        "attach '/tmp/x' as y",
        "vacuum into '/tmp/x'",
    ] {
        let error = sql(query).await.expect_err(query);
        assert_eq!(error.fault, FetchFault::Denied, "{query}: {error}");
    }
    sql("select load_extension('x')").await.expect_err("no extension");
    // What fits no column is an error, and never another value.
    let error = sql("select x'00ff' as a union all select 'b'").await.expect_err("bytes and texts");
    assert!(error.message.contains("column `a` has bytes beside values of other types"), "{error}");
    let rows = sql("select 9007199254740993 as a union all select 0.5").await.expect("rows");
    assert_eq!(all(&rows)[0]["a"], "9007199254740993");
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n";
    let error = sql(endless).await.expect_err("endless");
    assert!(error.fault == FetchFault::Limit && error.message.contains("timeout"), "{error}");
    let error = sql("with recursive n(i) as (select 1 union all select i + 1 from n) select i from n").await;
    assert!(error.expect_err("many").message.contains("max_rows"));
    let error = sql("select zeroblob(1000000000)").await.expect_err("large");
    assert!(!error.message.contains(folder.path().to_str().expect("a path")), "{error}");
    assert_eq!(sql("select count(*) as n from t").await.map(|rows| all(&rows)[0]["n"].clone()).expect("n"), 2);
    let many = (0..100).map(|_| fetch(&connectors, "t", json!({"least": 1})));
    for rows in futures::future::join_all(many).await {
        assert_eq!(rows.expect("rows").rows(), 2);
    }
}
