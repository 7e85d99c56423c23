//! Performance of a server: cells over HTTP next to those of the library, sessions, neighbours that never rest, and
//! watchers. All over loopback, with clients of this process, which take their share of the same cores.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use cellar_engine::Language;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, Plan, trivial},
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[
    ("served cells", cells),
    ("served sessions", sessions),
    ("served next to loops", next_to_loops),
    ("served watchers", watchers),
];

/// Sessions whose cells run at once.
const AT_ONCE: [usize; 3] = [1, 8, 64];
/// Endless loops of another tenant.
const LOOPS: usize = 200;
/// Readers of one run.
const WATCHERS: usize = 1_000;
/// Targets in microseconds: the additional time of a cell over HTTP against the library, and the 99th percentile of one next to loops.
const OVER_HTTP: f64 = 150.0;
const NEXT_TO_LOOPS: f64 = 20_000.0;

/// A server of two tenants, with a client's token for each.
pub(crate) struct Server {
    pub(crate) process: Child,
    address: String,
    tokens: [String; 2],
    folder: TempDir,
}

impl Server {
    pub(crate) fn start(is_durable: bool) -> Server {
        let folder = TempDir::new().expect("a folder");
        let config = folder.path().join("cellar.toml");
        let server = format!("[server]\ndurable = {is_durable}\nconnections = 2000\n[host]\nkernels = 1000\n");
        std::fs::write(&config, server + "[tenants.a]\n[tenants.b]\n").expect("written");
        let command = |name: &str| {
            let mut command = Command::new(cellar_bench::command());
            command.arg(name).arg("--config").arg(&config).arg("--store").arg(folder.path().join("store"));
            command
        };
        let tokens = ["a", "b"].map(|tenant| {
            let made = command("token").args(["new", "--tenant", tenant]).output().expect("a token");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            String::from_utf8_lossy(&made.stdout).trim().to_owned()
        });
        let mut serve = command("serve");
        serve.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = serve.spawn().expect("a server");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("a line").expect("text");
        let address = first.split_once("http://").and_then(|(_, rest)| rest.split_once(',')).expect("an address").0;
        Server { process, address: address.to_owned(), tokens, folder }
    }

    pub(crate) fn client(&self, tenant: usize) -> Client {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_nodelay(true).expect("set");
        Client { stream: BufReader::new(stream), token: self.tokens[tenant].clone() }
    }

    /// A client whose first session has run a cell, and the millions of bytes that the server has then.
    pub(crate) fn warm(&self, language: Language) -> (Client, f64) {
        let mut client = self.client(0);
        let first = client.session();
        client.run(&first, language, trivial(language));
        (client, self.megabytes())
    }

    /// Bytes of memory that it has for itself, in millions.
    pub(crate) fn megabytes(&self) -> f64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id())).expect("it lives");
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("a line");
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
        kib * 1_024.0 / 1e6
    }
}

impl Server {
    /// Returns the folder of its store.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Client {
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let (token, length) = (&self.token, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n{headers}");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes()).expect("sent");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    /// The status of an answer, and the length of its body where that is told.
    pub(crate) fn head(&mut self) -> (u16, Option<usize>) {
        let status = self.line().split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut length = None;
        loop {
            let line = self.line().to_lowercase();
            match line.split_once(": ") {
                None => return (status, length),
                Some(("content-length", bytes)) => length = bytes.parse().ok(),
                Some(_) => {}
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Value {
        self.send(method, path, headers, body);
        let (status, length) = self.head();
        let mut bytes = vec![0; length.unwrap_or_default()];
        self.stream.read_exact(&mut bytes).expect("a body");
        assert!((200..300).contains(&status), "{method} {path}: {status} {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// A new session.
    pub(crate) fn session(&mut self) -> String {
        self.ask("POST", "/v1/sessions", "", "{}")["session"].as_str().expect("a name").to_owned()
    }

    /// Runs a cell that succeeds.
    pub(crate) fn run(&mut self, session: &str, language: Language, code: &str) {
        let result = self.result(session, language, code);
        assert_eq!(result["isError"], false, "{result}");
    }

    /// Runs a cell that fails.
    pub(crate) fn fail(&mut self, session: &str, language: Language, code: &str) {
        let result = self.result(session, language, code);
        assert_eq!(result["isError"], true, "{result}");
    }

    fn result(&mut self, session: &str, language: Language, code: &str) -> Value {
        let body = json!({"cells": [{"language": language.code(), "code": code}]}).to_string();
        self.ask("POST", &format!("/v1/sessions/{session}/runs"), "", &body)
    }

    /// Starts a cell that never ends, and returns its run.
    pub(crate) fn start(&mut self, session: &str, code: &str) -> String {
        let body = json!({"cells": [{"language": "js", "code": code, "timeout": 600}]}).to_string();
        let path = format!("/v1/sessions/{session}/runs");
        self.ask("POST", &path, "Prefer: respond-async\r\n", &body)["run"].as_str().expect("an id").to_owned()
    }
}

/// Describes whether a server keeps results.
fn kept(is_durable: bool) -> &'static str {
    if is_durable { "kept" } else { "not kept" }
}

/// Cells of sessions that are warm: of one, as its caller sees it, and of many at once.
fn cells(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let (title, code) = (language.title(), trivial(language));
        let lab = Lab::open(plan, language);
        let session = lab.session();
        let here = plan.sample(&format!("{title}: a cell of the library"), || lab.time(&session, code));
        for is_durable in [false, true] {
            let server = Server::start(is_durable);
            let mut client = server.client(0);
            let session = client.session();
            client.run(&session, language, code);
            let what = format!("{title}: a cell over HTTP, results {}", kept(is_durable));
            let there = plan.sample(&what, || {
                let began = Instant::now();
                client.run(&session, language, code);
                began.elapsed()
            });
            let target = (!is_durable).then(|| here.best() + OVER_HTTP);
            lines.push(Line::time(what, &there, target));
            for count in AT_ONCE {
                let rates = rates(plan, &server, language, count);
                let sessions = if count == 1 { "session" } else { "sessions" };
                let what =
                    format!("{title}: cells a second over HTTP, {count} {sessions}, results {}", kept(is_durable));
                let best = rates.iter().copied().fold(0.0, f64::max);
                lines.push(Line::new(what, Unit::PerSecond, best, median(rates), None));
            }
        }
    }
    lines
}

/// Cells a second of so many sessions, each with a connection of its own, in each of some rounds.
fn rates(plan: &Plan, server: &Server, language: Language, count: usize) -> Vec<f64> {
    let (time, rounds) = (plan.pick(Duration::from_secs(2), Duration::from_millis(500)), plan.pick(5, 2));
    let mut clients: Vec<(Client, String)> = (0..count)
        .map(|_| {
            let mut client = server.client(0);
            let session = client.session();
            client.run(&session, language, trivial(language));
            (client, session)
        })
        .collect();
    let round = |clients: &mut Vec<(Client, String)>| {
        let (ended, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let began = Instant::now();
        thread::scope(|scope| {
            for (client, session) in clients {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        client.run(session, language, trivial(language));
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(time);
            is_over.store(true, Ordering::Relaxed);
        });
        ended.into_inner() as f64 / began.elapsed().as_secs_f64()
    };
    (0..rounds).map(|_| round(&mut clients)).collect()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures sessions: their creation, their first result, and their memory while idle and while asleep.
fn sessions(plan: &Plan) -> Vec<Line> {
    let count = plan.pick(500, 50);
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let (title, code) = (language.title(), trivial(language));
        let server = Server::start(true);
        let (mut client, before) = server.warm(language);
        let (mut made, mut used, mut names) = (Samples::default(), Samples::default(), Vec::new());
        for _ in 0..count {
            let began = Instant::now();
            let session = client.session();
            made.push(began.elapsed());
            client.run(&session, language, code);
            used.push(began.elapsed());
            names.push(session);
        }
        let each = |after: f64| (after - before) / count as f64;
        let awake = each(server.megabytes());
        names.iter().for_each(|name| drop(client.ask("POST", &format!("/v1/sessions/{name}/hibernate"), "", "")));
        let asleep = each(server.megabytes());
        let line = |what: &str, figure: f64| {
            Line::new(format!("{title}: memory of a served session that {what}"), Unit::Megabytes, figure, figure, None)
        };
        lines.push(Line::time(format!("{title}: a session over HTTP"), &made, None));
        lines.push(Line::time(format!("{title}: a session over HTTP and its first result, kept"), &used, None));
        lines.extend([line("is idle", awake), line("sleeps", asleep)]);
    }
    lines
}

/// The 99th percentile of a small cell of one tenant, alone and next to endless loops of another one.
fn next_to_loops(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for is_durable in [false, true] {
        let server = Server::start(is_durable);
        let mut client = server.client(0);
        let session = client.session();
        client.run(&session, Language::JavaScript, "1 + 1");
        let mut line = |what: &str, target: Option<f64>| {
            let mut rounds = Samples::default();
            for _ in 0..plan.pick(5, 2) {
                rounds.push(percentile(plan, &mut client, &session));
            }
            let what = format!("99th percentile of a cell over HTTP {what}, results {}", kept(is_durable));
            lines.push(Line::time(what, &rounds, target));
        };
        line("alone", None);
        let mut other = server.client(1);
        for _ in 0..LOOPS {
            let looping = other.session();
            other.start(&looping, "while (true);");
        }
        line(&format!("next to {LOOPS} endless loops"), (!is_durable).then_some(NEXT_TO_LOOPS));
    }
    lines
}

/// Returns the 99th percentile of the time of cells that come now and then.
fn percentile(plan: &Plan, client: &mut Client, session: &str) -> Duration {
    let mut times: Vec<Duration> = (0..plan.pick(300, 100))
        .map(|_| {
            thread::sleep(Duration::from_millis(5));
            let began = Instant::now();
            client.run(session, Language::JavaScript, "1 + 1");
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Very many readers of one run: how long its end takes to reach the last of them, and what each takes.
fn watchers(plan: &Plan) -> Vec<Line> {
    let server = Server::start(false);
    let mut client = server.client(0);
    let mut ends = Samples::default();
    let mut memory = Vec::new();
    for _ in 0..plan.pick(5, 1) {
        let session = client.session();
        let run = client.start(&session, "await new Promise(() => {})");
        let before = server.megabytes();
        let mut readers: Vec<Client> = (0..WATCHERS).map(|_| server.client(0)).collect();
        for reader in &mut readers {
            reader.send("GET", &format!("/v1/runs/{run}/events"), "Accept: text/event-stream\r\n", "");
            assert_eq!(reader.head().0, 200);
            while !reader.line().contains("cell_started") {}
        }
        memory.push((server.megabytes() - before) / WATCHERS as f64);
        let began = Instant::now();
        client.ask("POST", &format!("/v1/runs/{run}/cancel"), "", "");
        for reader in &mut readers {
            while !reader.line().contains("run_finished") {}
        }
        ends.push(began.elapsed());
    }
    let best = memory.iter().copied().fold(f64::INFINITY, f64::min);
    vec![
        Line::time(format!("the end of a run, to the last of {WATCHERS} watchers"), &ends, None),
        Line::new("memory of a watcher", Unit::Megabytes, best, median(memory), None),
    ]
}
