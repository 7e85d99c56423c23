//! Confinement of a tenant's worker, tested from inside: this program starts itself, becomes the worker of a tenant,
//! and tries what it must not do.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use cellar_config::{Folders, Overrides};
use cellar_server::ServerConfig;
use libtest_mimic::{Arguments, Trial};

/// The argument of the program inside.
const INSIDE: &str = "try-from-inside";

const TEXT: &str = r#"
secrets = ["./secret"]
[server]
isolate = "tenant"
[http]
allow = [{ host = "example.com" }]
[tools.id]
command = ["/usr/bin/id"]
[agents.task]
command = ["/usr/bin/id"]
[connectors.lake]
kind = "files"
folder = "lake"
fetches.all = { path = "*.csv" }
[artifacts]
remote = "REMOTE"
[tenants.red]
[tenants.blue]
weight = 400
"#;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().collect();
    if given.iter().any(|word| word == cellar_worker::HELP) {
        return if cellar_worker::help().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some([folder, port]) = given.iter().position(|word| word == INSIDE).and_then(|at| given.get(at + 1..)) {
        return inside(Path::new(folder), port.parse().expect("a port"));
    }
    let trials = vec![Trial::test("a_worker_reaches_what_is_its_tenants_and_nothing_else", || {
        a_worker_reaches_what_is_its_tenants_and_nothing_else();
        Ok(())
    })];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn configuration(folder: &Path) -> ServerConfig {
    let path = |name: &str| Some(folder.join(name));
    let folders = Folders { guests: path("guests"), cache: path("cache"), store: path("store") };
    let overrides = Overrides { config: path("cellar.toml"), ..Overrides::default() };
    ServerConfig::new(&folders, &overrides, |_| {}).expect("valid").0
}

/// Becomes the worker of a tenant and tries.
fn inside(folder: &Path, port: u16) -> ExitCode {
    let program = std::env::current_exe().expect("this program");
    cellar_worker::offer(program, Vec::new());
    let mut config = configuration(folder);
    let confined = config.confine_worker("red").expect("confined");
    assert!(confined.isolation.layers.landlock.is_some() && confined.isolation.layers.seccomp);
    let path = |name: &str| folder.join(name);
    let read = |path: PathBuf| fs::read(path).map(|_| ());
    let priority = rustix::process::getpriority_process(None).map_err(io::Error::from);
    let tried = [
        ("write its store", fs::write(path("store/.tenants/red/new"), "")),
        ("write its temporary folder", tempfile::NamedTempFile::new().map(|_| ())),
        ("read the guests", read(path("guests/file"))),
        ("read the cache", read(path("cache/file"))),
        ("write the cache", fs::write(path("cache/new"), "")),
        ("change the cache", fs::write(path("cache/file"), "")),
        ("read another's store", read(path("store/.tenants/blue/file"))),
        ("list the tenants", fs::read_dir(path("store/.tenants")).map(|_| ())),
        ("read the tokens", read(path("store/.tokens.json"))),
        ("read a credential", read(path("secret"))),
        ("read what a connector has", read(path("lake/file"))),
        ("read the remote store", read(path("remote/file"))),
        ("write the remote store", fs::write(path("remote/new"), "")),
        ("start a program", Command::new("/usr/bin/id").status().map(|_| ())),
        ("connect", TcpStream::connect(("127.0.0.1", port)).map(|_| ())),
        ("listen", TcpListener::bind("127.0.0.1:0").map(|_| ())),
        ("datagrams", UdpSocket::bind("127.0.0.1:0").map(|_| ())),
        ("connect locally", UnixStream::connect(path("store/.tenants/red/socket")).map(|_| ())),
        ("listen locally", UnixListener::bind(path("store/.tenants/red/own")).map(|_| ())),
        (
            "take processor time from others",
            priority.and_then(|nice| if nice > 0 { Err(ErrorKind::PermissionDenied.into()) } else { Ok(()) }),
        ),
    ];
    let mut out = io::stdout().lock();
    for (what, how) in tried {
        let how = how.map_or_else(|error| error.kind().to_string(), |()| "done".to_owned());
        writeln!(out, "{what}: {how}").expect("told");
    }
    ExitCode::SUCCESS
}

fn a_worker_reaches_what_is_its_tenants_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["guests", "cache", "store/.tenants/red", "store/.tenants/blue", "temporary", "lake", "remote"] {
        fs::create_dir_all(path(name)).expect("a folder");
        fs::write(path(name).join("file"), "text").expect("written");
    }
    fs::write(path("store/.tokens.json"), "{}").expect("written");
    fs::write(path("secret"), "a-credential-of-some-length").expect("written");
    let remote = format!("file://{}", path("remote").display());
    fs::write(path("cellar.toml"), TEXT.replace("REMOTE", &remote)).expect("written");
    let socket = UnixListener::bind(path("store/.tenants/red/socket")).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg(INSIDE).arg(folder.path()).arg(port).env("CELLAR_WORKER_FOLDER", path("temporary"));
    let ended = command.output().expect("started");
    drop((socket, listener));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).expect("text");
    let tried: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(": ")).collect();
    let done = ["write its store", "write its temporary folder", "read the guests", "read the cache"];
    assert_eq!(tried.len(), 20, "{text}");
    for (what, how) in tried {
        let expected = if done.contains(&what) { "done".to_owned() } else { ErrorKind::PermissionDenied.to_string() };
        assert_eq!(how, expected, "{what}");
    }
}
