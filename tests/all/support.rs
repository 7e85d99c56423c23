//! Runs the `cellar` that was built with these tests.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io::Write,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
    time::{Duration, Instant, SystemTime},
};

use cellar_engine::config::Stops;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Longest time to wait for an event, on a machine with other work as well. Less than the time after which a test is ended.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `look` finds something.
///
/// # Panics
/// `what` has not come within [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Seconds since the epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs()
}

/// A server that cannot choose its port itself, and the port that it was given.
///
/// A port that is free now may be taken before the server listens: another is tried when the server ends.
///
/// # Panics
/// None has answered within [`PATIENCE`].
pub(crate) fn on_a_free_port(
    mut start: impl FnMut(u16) -> Child,
    mut answers: impl FnMut(u16) -> bool,
) -> (Child, u16) {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let mut server = start(port);
        while began.elapsed() < PATIENCE && server.try_wait().expect("its state").is_none() {
            if answers(port) {
                return (server, port);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = server.kill();
        let _ = server.wait();
    }
    panic!("no server answers");
}

/// The checkout; commands run there, so that paths in messages are relative.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the way to stop guests: with `CELLAR_STOPS`, each test of the engine can run with safepoints as well.
pub(crate) fn stops() -> Stops {
    let name = std::env::var("CELLAR_STOPS");
    name.map_or_else(|_| Stops::default(), |name| Stops::from_name(&name).expect("the name of a way to stop guests"))
}

/// A command line under test, in an environment that grants nothing by itself.
pub(crate) fn cellar<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command
        .args(arguments)
        .current_dir(root())
        .env("CELLAR_GUESTS", root().join("target/guests"))
        .env("NO_COLOR", "1")
        .env_remove("CELLAR_SESSION_SOCKET")
        .env_remove("CELLAR_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The same, where the guests must be there.
pub(crate) fn cellar_with_guests<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    for guest in ["python", "javascript"] {
        let component = root().join("target/guests").join(guest).join("guest.wasm");
        assert!(component.exists(), "no guest at `{}`; run `make guests` first", component.display());
    }
    cellar(arguments)
}

/// Fails with every fault of a value that does not fit the schema of this name, as it is checked in.
pub(crate) fn check_shape(shape: &str, value: &Value) {
    static SHAPES: LazyLock<HashMap<String, jsonschema::Validator>> = LazyLock::new(|| {
        let text = std::fs::read_to_string(root().join("fixtures/wire/schema.json")).expect("the schemas");
        let schemas: HashMap<String, Value> = serde_json::from_str(&text).expect("JSON");
        let compiled = |schema: &Value| jsonschema::validator_for(schema).expect("a schema");
        schemas.iter().map(|(name, schema)| (name.clone(), compiled(schema))).collect()
    });
    let faults: Vec<String> = SHAPES[shape].iter_errors(value).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "no {shape}: {value}\n{}", faults.join("\n"));
}

/// Node as the clients need it that are written for it.
pub(crate) fn node() -> PathBuf {
    let node = root().join("target/node/node");
    assert!(node.exists(), "no Node at `{}`; run `make packages` first", node.display());
    node
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("standard output is text"),
            stderr: String::from_utf8(output.stderr).expect("standard error is text"),
        }
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    command.output().expect("cellar starts").into()
}

/// Runs a command to its end, with `input` on its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Ended {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("cellar starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its input may close it early.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("cellar ends").into()
}

/// The folder where guests are baked, and other things are kept.
pub(crate) fn cache() -> PathBuf {
    let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from);
    cache.or_else(|| dirs::cache_dir().map(|cache| cache.join("cellar"))).expect("a cache folder")
}

/// A folder with the Python packages that a file of requirements pins, installed unless the cache has it.
pub(crate) fn python_packages(name: &str, requirements: &str) -> PathBuf {
    let cache = cache();
    let requirements = root().join(requirements);
    let digest = format!("{:x}", Sha256::digest(std::fs::read(&requirements).expect("requirements")));
    let folder = cache.join("oracle").join(format!("{name}-{}", &digest[..16]));
    if folder.exists() {
        return folder;
    }
    std::fs::create_dir_all(cache.join("oracle")).expect("a folder");
    let work = tempfile::tempdir_in(cache.join("oracle")).expect("a folder");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip.args(["--no-compile", "--only-binary", ":all:", "--python-version", "3.13", "--requirement"]);
    pip.arg(requirements).arg("--target").arg(work.path());
    let ended = pip.stdin(Stdio::null()).output().expect("python3 starts");
    assert!(ended.status.success(), "pip: {}", String::from_utf8_lossy(&ended.stderr));
    // Another test may have been faster.
    if std::fs::rename(work.path(), &folder).is_ok() {
        let _ = work.keep();
    }
    folder
}

/// The native Python that a guest is compared with.
pub(crate) fn native_python(guest: &str) -> String {
    let guests = Path::new(env!("CARGO_BIN_EXE_cellar")).with_file_name("cellar-guests");
    let ended = run(Command::new(guests).args(["native", guest]).current_dir(root()).stdout(Stdio::piped()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.stdout.trim().to_owned()
}

/// Runs cells of one language, given by their source, and returns the result as JSON.
pub(crate) fn result_of(language: &str, cells: &[&str], flags: &[&str]) -> Value {
    let cells: Vec<Value> = cells.iter().map(|code| serde_json::json!({"language": language, "code": code})).collect();
    result_of_run(&serde_json::json!({ "cells": cells }), flags)
}

/// Runs a run and returns its result.
pub(crate) fn result_of_run(request: &Value, flags: &[&str]) -> Value {
    let mut command = cellar_with_guests(["run", "-", "--json"].iter().chain(flags));
    let ended = run_with_input(&mut command, request.to_string().as_bytes());
    assert!(ended.code <= 1, "exit code {}: {}", ended.code, ended.stderr);
    let result = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stdout));
    check_shape("result", &result);
    result
}

/// The combined text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("text")
}

/// `O_NONBLOCK` of Linux.
const NOT_WAITING: i32 = 0o4000;

/// A pipe that a process of a test holds open as long as it lives.
pub(crate) struct Held {
    /// Path that the process opens to write.
    pub(crate) path: PathBuf,
    reader: std::thread::JoinHandle<std::io::Result<Vec<u8>>>,
}

impl Held {
    pub(crate) fn new(path: PathBuf) -> Held {
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read(path)
        });
        Held { path, reader }
    }

    /// Waits until all processes have ended that have opened the pipe.
    pub(crate) fn until_gone(self) {
        // Where no process came to open it, the reader would wait for ever.
        let mut writer = std::fs::File::options();
        drop(writer.write(true).custom_flags(NOT_WAITING).open(&self.path));
        self.reader.join().expect("no panic").expect("the pipe is read");
        std::fs::remove_file(&self.path).expect("removed");
    }
}

/// A configuration file, in a folder of its own, that names the scripts in `fixtures/bridges`.
pub(crate) fn config(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cellar.toml");
    let scripts = root().join("fixtures/bridges");
    std::fs::write(&path, text.replace("SCRIPTS", &scripts.display().to_string())).expect("written");
    (folder, path)
}
