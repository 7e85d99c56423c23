//! Artifacts and datasets in an object store, kept by a real server of its protocol that may die, lose things, change them or hang.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use cellar_connectors::{
    Bounds, Comparison, ConnectorOptions, Connectors, CsvOptions, FetchOptions, FilesFetch, FilesPlace, Filter, Kind,
    Objects, ObjectsOptions, Parameter, ParameterKind, Secret,
};
use cellar_tables::Batches;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::support::{PATIENCE, cellar, check_shape, on_a_free_port, root};

/// Access key in requests to the server, which accepts any.
const KEY: &str = "k3y-0f-th3-t3st-th4t-n0b0dy-t3lls";

/// A server of S3 with a bucket.
struct S3 {
    process: Child,
    port: u16,
}

impl S3 {
    fn start() -> S3 {
        let program = root().join("target/moto/bin/moto_server");
        assert!(program.exists(), "no server of S3 at `{}`; run `make packages` first", program.display());
        let start = |port: u16| {
            let mut command = Command::new(&program);
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).env("AWS_EC2_METADATA_DISABLED", "true");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
        };
        let (process, port) = on_a_free_port(start, S3::makes_bucket);
        S3 { process, port }
    }

    fn makes_bucket(port: u16) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
        let request = "PUT /bucket HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        asked.is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    fn options(&self, prefix: &str) -> ObjectsOptions {
        let plain = |text: String| Secret::Plain(text);
        let options = [
            ("endpoint", plain(format!("http://127.0.0.1:{}", self.port))),
            ("allow_http", plain("true".to_owned())),
            ("access_key_id", plain("reader".to_owned())),
            ("secret_access_key", Secret::Template("${CELLAR_TEST_S3_KEY}".to_owned())),
        ];
        let options = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        ObjectsOptions { url: format!("s3://bucket/{prefix}"), options }
    }

    /// Opens the objects below a prefix, for tests to change.
    fn objects(&self, prefix: &str) -> Objects {
        let mut options = self.options(prefix);
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), KEY).expect("written");
        options.options.insert("secret_access_key".to_owned(), Secret::File(file.path().to_owned()));
        options.open().expect("opened")
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A store whose remote is at this port.
struct Place {
    folder: TempDir,
    config: PathBuf,
}

impl Place {
    fn new(port: u16) -> Place {
        let folder = TempDir::new().expect("a folder");
        let place = Place { config: folder.path().join("cellar.toml"), folder };
        place.turn_to(port, "");
        place
    }

    fn turn_to(&self, port: u16, more: &str) {
        let text = format!(
            "[artifacts]\nremote = \"s3://bucket/kept\"\nremote_options = {{ endpoint = \"http://127.0.0.1:{port}\", allow_http = \"true\", access_key_id = \"reader\", secret_access_key_env = \"CELLAR_TEST_S3_KEY\"{more} }}\n"
        );
        fs::write(&self.config, text).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = cellar(arguments);
        command.arg("--config").arg(&self.config).arg("--store").arg(self.folder.path().join("store"));
        command.env("CELLAR_TEST_S3_KEY", KEY);
        command
    }

    /// Returns the output and the errors of a command, which must end with this code and must not show the credential.
    fn told(&self, arguments: &[&str], code: i32) -> (String, String) {
        let output = self.command(arguments).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {out}{errors}");
        assert!(!out.contains(KEY) && !errors.contains(KEY), "the credential is told: {out}{errors}");
        (out, errors)
    }

    fn json(&self, arguments: &[&str], code: i32, shape: &str) -> Value {
        let value = serde_json::from_str(&self.told(&[arguments, &["--json"]].concat(), code).0).expect("JSON");
        check_shape(shape, &value);
        value
    }

    /// Keeps bytes, and returns their id.
    fn put(&self, bytes: &[u8]) -> String {
        let file = self.folder.path().join("file");
        fs::write(&file, bytes).expect("written");
        let kept = self.json(&["artifact", "put", file.to_str().expect("text")], 0, "artifact");
        kept["id"].as_str().expect("an id").to_owned()
    }

    fn get(&self, id: &str) -> Vec<u8> {
        let file = self.folder.path().join("got");
        self.told(&["artifact", "get", id, file.to_str().expect("text")], 0);
        fs::read(file).expect("bytes")
    }

    fn object(&self, id: &str) -> PathBuf {
        self.folder.path().join("store/.artifacts/objects").join(id)
    }

    /// Damages an artifact as a bad disk does: as many bytes, and other ones.
    fn damage(&self, id: &str) {
        let mut bytes = fs::read(self.object(id)).expect("bytes");
        bytes[0] ^= 1;
        fs::write(self.object(id), bytes).expect("written");
    }
}

fn table(numbers: std::ops::Range<i64>) -> Batches {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(numbers.clone().map(|n| format!("row {n}"))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).expect("a batch");
    Batches::new(batch.schema(), vec![batch])
}

fn parquet(path: &Path, numbers: std::ops::Range<i64>) {
    table(numbers).write_parquet(fs::File::create(path).expect("a file")).expect("written");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn artifacts_go_to_an_object_store_and_heal_from_it() {
    let server = S3::start();
    let here = Place::new(server.port);
    let small = here.put(b"small");
    // Larger than what is sent at once.
    let bytes: Vec<u8> = (0_u32..20 << 20).map(|place| u8::try_from(place % 251).expect("a byte")).collect();
    let large = here.put(&bytes);
    here.json(&["artifact", "push"], 0, "pushed");
    assert_eq!(here.json(&["artifact", "verify", "--remote"], 0, "verified")["sound"], 2);
    fs::remove_file(here.object(&small)).expect("lost");
    here.damage(&large);
    assert_eq!(here.get(&small), b"small");
    assert!(here.get(&large) == bytes);
    here.damage(&small);
    assert_eq!(here.json(&["artifact", "verify"], 0, "verified")["healed"], json!([small]));
    // The remote loses one copy, and another is changed there.
    let (runtime, objects) = (runtime(), server.objects("kept"));
    let changed = here.folder.path().join("changed");
    fs::write(&changed, "other").expect("written");
    runtime.block_on(objects.upload(&format!("objects/{small}"), &changed)).expect("changed");
    runtime.block_on(objects.remove(&format!("objects/{large}"))).expect("removed");
    let verified = here.json(&["artifact", "verify", "--remote"], 0, "verified");
    assert_eq!((verified["sound"].clone(), verified["sent"].as_array().map(Vec::len)), (json!(2), Some(2)));
    // Both copies are damaged.
    runtime.block_on(objects.upload(&format!("objects/{small}"), &changed)).expect("changed");
    here.damage(&small);
    let (_, error) = here.told(&["artifact", "get", &small], 3);
    assert!(error.contains("is damaged, and no good copy of it is found"), "{error}");
    assert_eq!(here.json(&["artifact", "verify"], 3, "verified")["lost"], json!([small]));
    assert!(here.folder.path().join("store/.artifacts/quarantine").join(&small).exists());
    assert_eq!(here.put(b"small"), small);
    here.json(&["artifact", "push"], 0, "pushed");
    assert_eq!(here.get(&small), b"small");
    // What is removed here is removed there.
    here.told(&["artifact", "rm", &large], 0);
    here.json(&["artifact", "push"], 0, "pushed");
    let there = runtime.block_on(objects.list("")).expect("listed");
    assert_eq!(there.iter().filter(|key| key.contains(&large)).count(), 0, "{there:?}");
}

#[test]
fn datasets_and_artifacts_are_found_on_another_machine() {
    let server = S3::start();
    let (here, there) = (Place::new(server.port), Place::new(server.port));
    let rows = here.folder.path().join("rows.parquet");
    let file = rows.to_str().expect("text");
    for number in 1..=2 {
        parquet(&rows, 0..number);
        here.json(&["dataset", "publish", "prices", file], 0, "dataset");
    }
    let kept = here.put(b"kept");
    here.json(&["artifact", "push"], 0, "pushed");
    let out = there.folder.path().join("out");
    there.told(&["dataset", "get", "prices", out.to_str().expect("text")], 0);
    assert_eq!(fs::read(&out).expect("rows"), fs::read(&rows).expect("rows"));
    assert_eq!(there.json(&["dataset", "show", "prices"], 0, "datasets").as_array().map(Vec::len), Some(2));
    assert_eq!(there.get(&kept), b"kept", "by its whole id");
    // One who starts with nothing but the address.
    let third = Place::new(server.port);
    let pulled = third.json(&["artifact", "pull", "--all"], 0, "pulled");
    assert_eq!((pulled["versions"].clone(), pulled["artifacts"].clone()), (json!(2), json!(3)));
    assert_eq!(third.json(&["artifact", "verify"], 0, "verified")["sound"], 3);
    third.told(&["dataset", "rm", "prices"], 0);
    third.json(&["artifact", "push"], 0, "pushed");
    let (_, error) = Place::new(server.port).told(&["dataset", "show", "prices"], 2);
    assert!(error.contains("no dataset `prices` is published"), "{error}");
}

#[test]
fn a_process_that_is_killed_loses_nothing_that_it_was_to_send() {
    // Takes connections, and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let place = Place::new(silent.local_addr().expect("an address").port());
    let file = place.folder.path().join("file");
    fs::write(&file, "kept").expect("written");
    let mut put = place.command(&["artifact", "put", file.to_str().expect("text")]).spawn().expect("it runs");
    let mut uri = String::new();
    BufReader::new(put.stdout.take().expect("a pipe")).read_line(&mut uri).expect("an id");
    put.kill().expect("killed");
    put.wait().expect("it ended");
    let id = uri.trim().strip_prefix("artifact://").expect("an id").to_owned();
    let server = S3::start();
    place.turn_to(server.port, "");
    assert_eq!(place.json(&["artifact", "push"], 0, "pushed"), json!({"sent": 1, "queued": 0}));
    assert_eq!(Place::new(server.port).get(&id), b"kept");
}

#[test]
fn a_server_that_is_dead_or_hangs_costs_what_needs_it_and_nothing_else() {
    let mut server = S3::start();
    let place = Place::new(server.port);
    let kept = place.put(b"kept");
    place.json(&["artifact", "push"], 0, "pushed");
    fs::remove_file(place.object(&kept)).expect("lost");
    server.stop();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    for port in [server.port, silent.local_addr().expect("an address").port()] {
        place.turn_to(port, ", read_timeout = \"1s\", timeout = \"2s\"");
        let began = Instant::now();
        let (_, error) = place.told(&["artifact", "get", &kept], 3);
        assert!(error.contains("remote store of artifacts"), "{error}");
        let other = place.put(format!("other {port}").as_bytes());
        assert_eq!(place.get(&other), format!("other {port}").as_bytes());
        let (_, error) = place.told(&["artifact", "push"], 3);
        assert!(error.contains("cannot be reached") || error.contains("in time"), "{error}");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    }
    let again = S3::start();
    place.turn_to(again.port, "");
    assert_eq!(place.json(&["artifact", "push"], 0, "pushed")["queued"], 0);
    assert_eq!(Place::new(again.port).json(&["artifact", "pull", "--all"], 0, "pulled")["artifacts"], 2);
}

#[test]
fn files_of_an_object_store_are_rows_of_a_connector() {
    let mut server = S3::start();
    let (runtime, objects) = (runtime(), server.objects("lake"));
    let folder = TempDir::new().expect("a folder");
    for (name, numbers) in [("a", 0..50_000), ("b", 50_000..60_000)] {
        let file = folder.path().join(name);
        parquet(&file, numbers);
        runtime.block_on(objects.upload(&format!("events/2026/{name}.parquet"), &file)).expect("kept");
    }
    fs::write(folder.path().join("c"), "n,t\n1,a\n").expect("written");
    runtime.block_on(objects.upload("events/c.csv", &folder.path().join("c"))).expect("kept");
    let key = folder.path().join("key");
    fs::write(&key, KEY).expect("written");
    let mut options = server.options("lake");
    options.options.insert("secret_access_key".to_owned(), Secret::File(key));
    options.options.insert("read_timeout".to_owned(), Secret::Plain("1s".to_owned()));
    let parameter = Parameter {
        name: "least".to_owned(),
        kind: ParameterKind::Integer,
        description: String::new(),
        is_list: false,
        is_required: false,
        default: Value::Null,
        choices: Vec::new(),
        min: None,
        max: None,
    };
    let least =
        Filter { column: "n".to_owned(), comparison: Comparison::GreaterOrEqual, parameter: "least".to_owned() };
    let fetch = |path: &str| FetchOptions {
        description: String::new(),
        parameters: vec![parameter.clone()],
        columns: Vec::new(),
        asks: FilesFetch {
            path: path.to_owned(),
            format: None,
            select: Some(vec!["t".to_owned()]),
            filters: vec![least.clone()],
            csv: CsvOptions::default(),
            sheet: cellar_connectors::Sheet::default(),
        },
    };
    let fetches = ["events/*/*.parquet", "events/*.csv"].map(fetch);
    let fetches: BTreeMap<_, _> = ["events", "more"].map(str::to_owned).into_iter().zip(fetches).collect();
    let kind = Kind::Files { place: FilesPlace::Objects(options), fetches };
    let bounds = Bounds { timeout: Duration::from_secs(60), ..Bounds::default() };
    let connector = ConnectorOptions { description: String::new(), bounds, kind };
    let connectors = Connectors::new(BTreeMap::from([("lake".to_owned(), connector)])).expect("a connector");
    let ask = |name: &str, arguments: Value| {
        let Value::Object(arguments): Value = arguments else { panic!("no object") };
        let arguments: Map<String, Value> = connectors.check("lake", name, arguments).expect("arguments");
        runtime.block_on(connectors.fetch("lake", name, arguments))
    };
    let rows = ask("events", json!({"least": 49_999})).expect("rows");
    assert_eq!((rows.rows(), rows.columns().len()), (10_001, 1));
    assert_eq!(ask("events", json!({})).expect("rows").rows(), 60_000);
    assert_eq!(ask("more", json!({})).expect("rows").rows(), 1);
    assert_eq!(runtime.block_on(connectors.probe("lake")).expect("there"), "events: 2 files, more: 1 files");
    server.stop();
    let error = ask("more", json!({})).expect_err("the server is gone");
    assert!(error.message.contains("the object store fails") && !error.message.contains(KEY), "{error}");
}
