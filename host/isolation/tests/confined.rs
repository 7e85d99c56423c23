//! Tests of a confined process from inside: this program starts itself, confines itself, and tries what it may do.

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

use cellar_isolation::{InForce, Needs, available, confine};
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// The argument of the program inside.
const INSIDE: &str = "try-from-inside";

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().collect();
    if let Some([folder, needs, port]) = given.iter().position(|word| word == INSIDE).and_then(|at| given.get(at + 1..))
    {
        return inside(Path::new(folder), needs, port.parse().expect("a port"));
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("what_is_not_needed_is_denied", || checked(nothing_needed)),
        Trial::test("whoever_connects_may_do_that_and_no_more", || checked(connecting)),
        Trial::test("whoever_makes_local_sockets_may_do_that_and_no_more", || checked(local_sockets)),
        Trial::test("without_it_everything_can_be_done", || checked(unconfined)),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn checked(check: fn()) -> Result<(), libtest_mimic::Failed> {
    let available = available();
    assert!(available.landlock.is_some() && available.seccomp, "this kernel cannot confine: {available:?}");
    check();
    Ok(())
}

/// Attempts and their results.
type Tried = BTreeMap<String, String>;

/// Runs all attempts in a process with these needs.
fn tried(needs: &str) -> Tried {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["read", "write", "other"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
        fs::write(folder.path().join(name).join("file"), "text").expect("written");
    }
    std::os::unix::fs::symlink("../other/file", folder.path().join("read/link")).expect("a link");
    let socket = UnixListener::bind(folder.path().join("write/socket")).expect("a socket");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let program = std::env::current_exe().expect("this program");
    let ended = Command::new(program).arg(INSIDE).arg(folder.path()).arg(needs).arg(port.to_string()).output();
    drop((socket, listener));
    let ended = ended.expect("started");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).expect("text");
    text.lines().filter_map(|line| line.split_once(": ")).map(|(what, how)| (what.to_owned(), how.to_owned())).collect()
}

/// Confines this process and tries.
fn inside(folder: &Path, needs: &str, port: u16) -> ExitCode {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let path = |name: &str| folder.join(name);
    if needs != "unconfined" {
        let needs = Needs {
            read: vec![path("read"), path("missing")],
            write: vec![path("write")],
            connects: needs == "connects",
            local_sockets: needs == "local-sockets",
        };
        let InForce { landlock, seccomp } = confine(&needs, true).expect("confined");
        assert!(landlock.is_some() && seccomp);
    }
    // What is started inherits all of it, as threads do.
    let tries = std::thread::spawn({
        let folder = folder.to_owned();
        move || attempts(&folder, port)
    });
    let mut out = io::stdout().lock();
    for (what, how) in tries.join().expect("threads work") {
        let how = match how {
            Ok(()) => "done".to_owned(),
            Err(error) => error.kind().to_string(),
        };
        writeln!(out, "{what}: {how}").expect("told");
    }
    let connected = listening.local_addr().map(|_| ());
    writeln!(out, "listen on: {}", if connected.is_ok() { "done" } else { "failed" }).expect("told");
    ExitCode::SUCCESS
}

fn attempts(folder: &Path, port: u16) -> Vec<(&'static str, io::Result<()>)> {
    let path = |name: &str| folder.join(name);
    let parent = rustix::process::getppid().expect("a parent");
    let of_parent = |name: &str| PathBuf::from(format!("/proc/{parent}/{name}"));
    let read = |path: PathBuf| fs::read(path).map(|_| ());
    let errno = |done: Result<(), rustix::io::Errno>| done.map_err(io::Error::from);
    let mut tried = vec![
        ("read what is read", read(path("read/file"))),
        ("list what is read", fs::read_dir(path("read")).map(|_| ())),
        ("write what is read", fs::write(path("read/file"), "")),
        ("make beside what is read", fs::write(path("read/new"), "")),
        ("read by a link", read(path("read/link"))),
        ("read by dots", read(path("read/../other/file"))),
        ("read others", read(path("other/file"))),
        ("read passwords", read("/etc/passwd".into())),
        ("read memory of others", fs::File::open(of_parent("mem")).map(|_| ())),
        ("read variables of others", read(of_parent("environ"))),
        ("read own pagemap", fs::File::open("/proc/self/pagemap").map(|_| ())),
        ("write what is written", fs::write(path("write/new"), "text")),
        ("make a folder", fs::create_dir(path("write/folder"))),
        ("rename", fs::rename(path("write/new"), path("write/folder/new"))),
        ("link to others", fs::hard_link(path("other/file"), path("write/hard"))),
        ("remove", fs::remove_file(path("write/folder/new"))),
        ("truncate others", fs::OpenOptions::new().write(true).truncate(true).open(path("other/file")).map(|_| ())),
        ("make a named pipe", errno(named_pipe(&path("write/pipe")))),
        ("start a program", Command::new("/bin/true").status().map(|_| ())),
        ("connect", TcpStream::connect(("127.0.0.1", port)).map(|_| ())),
        ("listen", TcpListener::bind("127.0.0.1:0").map(|_| ())),
        ("datagrams", UdpSocket::bind("127.0.0.1:0").map(|_| ())),
        ("connect locally", UnixStream::connect(path("write/socket")).map(|_| ())),
        ("listen locally", UnixListener::bind(path("write/own")).map(|_| ())),
        ("a pair of sockets", UnixStream::pair().map(|_| ())),
        ("a pipe", io::pipe().map(|_| ())),
        ("signal others", errno(kill_process(parent, Signal::WINCH))),
        ("hold others", pidfd_open(parent, PidfdFlags::empty()).map(|_| ()).map_err(io::Error::from)),
        ("change root", errno(rustix::process::chroot("/"))),
    ];
    let own = Pid::from_raw(i32::try_from(std::process::id()).expect("a number")).expect("a process");
    tried.push(("signal itself", errno(kill_process(own, Signal::WINCH))));
    tried
}

fn named_pipe(path: &Path) -> Result<(), rustix::io::Errno> {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
}

const DONE_ALWAYS: [&str; 10] = [
    "read what is read",
    "list what is read",
    "read own pagemap",
    "write what is written",
    "make a folder",
    "rename",
    "remove",
    "a pair of sockets",
    "a pipe",
    "listen on",
];

/// Everything else that was done. What was not was denied, and did not fail by chance.
fn done(tried: &Tried) -> Vec<&str> {
    for what in DONE_ALWAYS {
        assert_eq!(tried.get(what).map(String::as_str), Some("done"), "{what}");
    }
    let denied = ErrorKind::PermissionDenied.to_string();
    let others = tried.iter().filter(|(what, _)| !DONE_ALWAYS.contains(&what.as_str()));
    let others: Vec<_> = others.collect();
    for (what, how) in &others {
        // A link from a folder that may not be read to one that may be written would cross a border.
        assert!(**how == "done" || **how == denied || *how == "cross-device link or rename", "{what}: {how}");
    }
    others.into_iter().filter(|(_, how)| *how == "done").map(|(what, _)| what.as_str()).collect()
}

fn nothing_needed() {
    assert_eq!(done(&tried("nothing")), Vec::<&str>::new());
}

fn connecting() {
    assert_eq!(done(&tried("connects")), ["connect", "datagrams"]);
}

fn local_sockets() {
    assert_eq!(done(&tried("local-sockets")), ["listen locally"]);
}

/// Checks that an unconfined process can do all this: else the other tests would prove nothing.
fn unconfined() {
    let tried = tried("unconfined");
    for (what, how) in &tried {
        // These need privileges that whoever runs the tests may not have.
        let is_privileged = ["change root", "read memory of others"].contains(&what.as_str());
        assert!(how == "done" || is_privileged, "{what}: {how}");
    }
}
