//! `cellar serve`, asked over loopback by a client that sends what it likes.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    PATIENCE, cellar, cellar_with_guests, check_shape, config, eventually, now, on_a_free_port, root, run,
};

mod accounts;
mod afar;
mod approvals;
mod calls;
mod commands;
mod datasets;
mod described;
mod e2b;
mod granted;
mod hostile;
mod isolation;
mod jupyter;
mod kept;
mod lines;
mod mcp;
mod oauth;
mod operated;
mod proxy;
mod quotas;
mod scopes;
mod second;
mod states;
mod tar;
mod tenants;
mod workers;

/// A server, and the folder that it keeps its sessions in.
pub(super) struct Served {
    process: Child,
    pub(super) address: String,
    /// The lines that it began with.
    lines: Vec<String>,
    pub(super) token: String,
    /// Its configuration, where that was changed.
    _isolated: Option<tempfile::NamedTempFile>,
}

impl Served {
    pub(super) fn start(store: &Path, arguments: &[&str]) -> Served {
        // A line for each request would hide what a failed test says.
        Served::start_with(store, arguments, Stdio::inherit(), &[("CELLAR_LOG", "warn")])
    }

    /// The same, with somewhere else for what it logs, and further variables.
    fn start_with(store: &Path, arguments: &[&str], errors: Stdio, variables: &[(&str, &str)]) -> Served {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let isolated = workers::isolated(&mut arguments);
        let store = store.to_str().expect("text");
        let mut command = cellar_with_guests(["serve", "--listen", "127.0.0.1:0", "--store", store]);
        let mut process = command.args(arguments).envs(variables.to_vec()).stderr(errors).spawn().expect("starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut output = output.lines().map(|line| line.expect("a line"));
        let first = output.next().expect("it serves");
        if let Ok(told) = serde_json::from_str::<Value>(&first) {
            let [address, token] = ["address", "token"].map(|key| told[key].as_str().unwrap_or_default().to_owned());
            return Served { process, address, token, lines: vec![first], _isolated: isolated };
        }
        let lines: Vec<String> = std::iter::once(first).chain(output.take(2)).collect();
        assert_eq!(lines.len(), 3, "it does not serve");
        let address = lines[0].split_once("http://").and_then(|(_, rest)| rest.split_once(',')).expect("an address").0;
        let token = lines[1].strip_prefix("token: ").unwrap_or_default().to_owned();
        Served { process, address: address.to_owned(), token, lines, _isolated: isolated }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    /// Sends a request with the token of the server's own user.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.ask_as(&self.token, method, path, headers, body)
    }

    fn ask_as(&self, token: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        self.send(&mut stream, token, method, path, headers, body);
        Answer::read(stream)
    }
    fn send(
        &self,
        stream: &mut TcpStream,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        head += &format!("Authorization: Bearer {token}\r\nContent-Length: {}\r\n", body.len());
        head.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
        // One that is refused early may close before all is sent.
        let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }
    fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, &[], body.to_string().as_bytes())
    }

    /// A new session.
    fn session(&self, body: Value) -> String {
        let answer = self.post("/v1/sessions", body);
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["session"].as_str().expect("a name").to_owned()
    }

    /// Runs a cell, and returns the text of its result.
    fn run(&self, session: &str, language: &str, code: &str) -> String {
        let answer = self.post(&format!("/v1/sessions/{session}/runs"), cell(language, code));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let result = answer.json();
        check_shape("result", &result);
        result["content"][0]["text"].as_str().expect("text").to_owned()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().expect("kill");
        assert!(sent.success(), "{signal}");
    }

    /// Waits for its end, and returns its exit code.
    fn ended(mut self) -> Option<i32> {
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn cell(language: &str, code: &str) -> Value {
    json!({"cells": [{"language": language, "code": code}]})
}

/// Response of the server.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    /// Reads to the end of the connection.
    fn read(mut stream: TcpStream) -> Answer {
        let mut bytes = Vec::new();
        // A connection that is cut has said what it had to say.
        let _ = stream.read_to_end(&mut bytes);
        Answer::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        let mut body = bytes[end + 4..].to_vec();
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            body = dechunked(&body);
        }
        Answer { status, head, body }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a problem document, which must be one.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        assert_eq!(problem["type"], format!("urn:cellar:{}", problem["code"].as_str().expect("a code")));
        problem["code"].as_str().expect("a code").to_owned()
    }

    /// The JSON objects of a stream of lines.
    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).expect("text"), 16).expect("a size");
        let chunk = &bytes[end + 2..];
        if size == 0 || chunk.len() < size {
            body.extend_from_slice(&chunk[..size.min(chunk.len())]);
            break;
        }
        body.extend_from_slice(&chunk[..size]);
        bytes = chunk.get(size + 2..).unwrap_or_default();
    }
    body
}

/// A reader of server-sent events.
struct Events {
    lines: std::io::Lines<BufReader<TcpStream>>,
}

impl Events {
    fn new(stream: TcpStream) -> Events {
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().expect("an answer").expect("text");
        assert!(status.contains(" 200 "), "{status}");
        Events { lines }
    }

    /// The next event with its id; none when the stream has ended.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut id = String::new();
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(given) = line.strip_prefix("id: ") {
                id = given.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id, serde_json::from_str(data).expect("JSON")));
            }
        }
    }
}

#[test]
fn with_no_configuration_it_serves_its_own_user_and_says_so_in_three_lines() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    assert!(served.lines[0].ends_with("from this machine alone"), "{:?}", served.lines);
    assert!(served.token.starts_with("cel_"), "{:?}", served.lines);
    assert!(served.lines[2].ends_with(store.path().to_str().expect("text")), "{:?}", served.lines);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(served.ask_as("", "GET", path, &[], b"").status, 200, "{path}");
    }
    let answer = served.post("/v1/eval", cell("py", "6 * 7"));
    assert_eq!((answer.status, &answer.json()["content"][0]["text"]), (200, &json!("42")));
    let run = answer.header("cellar-run").expect("the run's id").to_owned();
    // A cell that raises is a result.
    let answer = served.post("/v1/eval", cell("js", "throw new Error('no')"));
    assert_eq!((answer.status, &answer.json()["isError"]), (200, &json!(true)));
    let languages = served.get("/v1/languages").json();
    assert_eq!(languages["languages"][0]["language"], "py", "{languages}");
    assert_eq!(served.get("/v1/tenant").json()["tenant"], "own");
    assert!(served.get("/metrics").text().contains("cellar_requests_total{tenant=\"own\",status=\"200\"}"));
    // What is refused.
    let refused = served.ask_as("cel_nothing", "GET", "/v1/tenant", &[], b"");
    assert_eq!((refused.status, refused.problem().as_str()), (401, "token"));
    assert!(refused.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{}", refused.head);
    let odd = served.post("/v1/eval", json!({"cells": [{"language": "Python", "code": 1}]}));
    assert_eq!((odd.status, odd.problem().as_str()), (400, "invalid"));
    assert_eq!(odd.json()["problems"][0]["path"], "$.cells[0].language", "{}", odd.text());
    assert!(odd.json()["problems"][0]["expected"].as_str().expect("words").contains("did you mean \"py\"?"));
    for (method, path) in [("GET", "/v1/none"), ("GET", "/v1/sessions/none"), ("GET", "/v1/runs/none"), ("GET", "/")] {
        let unknown = served.ask(method, path, &[], b"");
        assert_eq!((unknown.status, unknown.problem().as_str()), (404, "unknown"), "{path}");
    }
    assert_eq!(served.ask("PUT", "/v1/eval", &[], b"{}").status, 405);
    assert_eq!(served.get(&format!("/v1/runs/{run}")).json()["status"], "complete");
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
}

#[test]
fn a_session_keeps_names_and_is_looked_into() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    assert_eq!(served.run(&session, "py", "numbers = [1, 2, 3]\nsum(numbers)"), "6");
    assert_eq!(served.run(&session, "js", "const word = 'yes'; word.length"), "3");
    let place = format!("/v1/sessions/{session}");
    let variables = served.get(&format!("{place}/variables")).json();
    assert_eq!(variables["variables"][0]["name"], "numbers", "{variables}");
    let value = served.get(&format!("{place}/variables/numbers")).json();
    assert!(value["data"]["text/plain"].as_str().expect("text").contains("[1, 2, 3]"), "{value}");
    assert_eq!(served.get(&format!("{place}/variables/word?language=js")).status, 200);
    assert_eq!(served.get(&format!("{place}/variables/none")).problem(), "unknown");
    assert_eq!(served.get(&format!("{place}/variables?languag=js")).problem(), "request");
    let completed = served.post(&format!("{place}/complete"), json!({"language": "py", "code": "numb"})).json();
    assert_eq!(completed["items"][0]["text"], "numbers", "{completed}");
    let help = served.post(&format!("{place}/inspect"), json!({"language": "py", "code": "len"})).json();
    assert!(help["data"].is_object(), "{help}");
    // Snapshots, forks and what leads back.
    let snapshot = served.post(&format!("{place}/snapshots"), json!({})).json();
    let snapshot = snapshot["snapshot"].as_str().expect("an id");
    let fork = served.post(&format!("{place}/fork"), json!({})).json()["session"].as_str().expect("a name").to_owned();
    assert_eq!(served.run(&fork, "py", "numbers.append(4); len(numbers)"), "4");
    assert_eq!(served.run(&session, "py", "numbers.clear(); len(numbers)"), "0");
    assert_eq!(served.post(&format!("{place}/rewind"), json!({"snapshot": snapshot})).status, 204);
    assert_eq!(served.run(&session, "py", "len(numbers)"), "3");
    let second = served.session(json!({"snapshot": snapshot}));
    assert_eq!(served.run(&second, "js", "word"), "yes");
    assert_eq!(served.get("/v1/snapshots").json()["snapshots"][0]["snapshot"], snapshot);
    assert_eq!(served.ask("DELETE", &format!("/v1/snapshots/{snapshot}"), &[], b"").status, 204);
    assert_eq!(served.get(&format!("/v1/snapshots/{snapshot}")).problem(), "unknown");
    assert_eq!(served.post(&format!("{place}/hibernate"), json!({})).status, 204);
    assert_eq!(served.run(&session, "py", "len(numbers)"), "3");
    assert_eq!(served.post(&format!("{place}/reset"), json!({"language": "py"})).status, 204);
    assert!(served.run(&session, "py", "numbers").contains("NameError"));
    assert_eq!(served.ask("DELETE", &place, &[], b"").status, 204);
    assert_eq!(served.get(&place).problem(), "unknown");
    assert_eq!(served.post(&format!("{place}/runs"), cell("py", "1")).problem(), "unknown");
    let left = served.get("/v1/sessions").json();
    assert_eq!(left["sessions"].as_array().expect("a list").len(), 2, "{left}");
}

#[test]
fn a_run_is_streamed_awaited_later_cancelled_and_answered() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({"input": true}));
    let runs = format!("/v1/sessions/{session}/runs");
    let body = cell("py", "print('one')\nprint('two')").to_string();
    let answer = served.ask("POST", &runs, &[("Accept", "application/x-ndjson")], body.as_bytes());
    let lines = answer.lines();
    lines.iter().for_each(|line| check_shape("line", line));
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().expect("a type")).collect();
    assert_eq!((types[0], types[types.len() - 2], types[types.len() - 1]), ("run_started", "run_finished", "result"));
    // Later.
    let answer =
        served.ask("POST", &runs, &[("Prefer", "respond-async")], cell("py", "input('name? ')").to_string().as_bytes());
    assert_eq!((answer.status, &answer.json()["status"]), (202, &json!("running")));
    let place = answer.header("location").expect("its place").to_owned();
    let run = format!("/v1/runs/{}", answer.json()["run"].as_str().expect("an id"));
    assert_eq!(place, run);
    let mut stream = served.connect();
    served.send(&mut stream, &served.token, "GET", &format!("{run}/events"), &[("Accept", "text/event-stream")], b"");
    let mut events = Events::new(stream);
    let request = loop {
        let (_, event) = events.next().expect("it asks");
        if event["type"] == "input_request" {
            break event["request_id"].as_str().expect("an id").to_owned();
        }
    };
    let answer = served.post(&format!("{run}/input"), json!({"request_id": request, "value": "Ada"}));
    assert_eq!(answer.status, 204, "{}", answer.text());
    let shown = served.get(&format!("{run}?wait=60")).json();
    assert_eq!((&shown["status"], &shown["result"]["content"][0]["text"]), (&json!("complete"), &json!("'Ada'")));
    assert_eq!(
        served.post(&format!("{run}/input"), json!({"request_id": request, "value": null})).problem(),
        "unknown"
    );
    // Cancelled.
    let answer = served.ask(
        "POST",
        &runs,
        &[("Prefer", "respond-async")],
        cell("py", "while True: pass").to_string().as_bytes(),
    );
    let run = format!("/v1/runs/{}", answer.json()["run"].as_str().expect("an id"));
    assert_eq!(served.get(&run).json()["status"], "running");
    assert_eq!(served.post(&format!("{run}/cancel"), json!({})).status, 204);
    let shown = served.get(&format!("{run}?wait=60")).json();
    assert_eq!(shown["result"]["details"]["cells"][0]["error"]["kind"], "interrupted", "{shown}");
    // A session goes with what runs in it.
    let answer = served.ask(
        "POST",
        &runs,
        &[("Prefer", "respond-async")],
        cell("py", "while True: pass").to_string().as_bytes(),
    );
    let run = format!("/v1/runs/{}", answer.json()["run"].as_str().expect("an id"));
    assert_eq!(served.ask("DELETE", &format!("/v1/sessions/{session}"), &[], b"").status, 204);
    assert_eq!((served.get(&runs.replace("/runs", "")).status, served.get(&run).status), (404, 404));
}

#[test]
fn a_stream_that_was_cut_goes_on_where_it_was_without_loss_or_repetition() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let code = "import asyncio\nfor n in range(40):\n    print(n)\n    await asyncio.sleep(0.01)";
    let body = cell("py", code).to_string();
    let mut stream = served.connect();
    let accept = [("Accept", "text/event-stream")];
    served.send(&mut stream, &served.token, "POST", &format!("/v1/sessions/{session}/runs"), &accept, body.as_bytes());
    let mut events = Events::new(stream);
    let mut seen = Vec::new();
    let mut cuts = 0;
    let last = loop {
        let Some((id, event)) = events.next() else { panic!("it ended without a result: {seen:?}") };
        if event["type"] == "result" {
            break (id, event);
        }
        assert_eq!(id.rsplit_once(':').expect("a place").1, event["seq"].to_string());
        seen.push(event["seq"].as_u64().expect("a number"));
        if seen.len() % 10 == 0 {
            cuts += 1;
            let (run, _) = id.split_once(':').expect("a run");
            let mut stream = served.connect();
            let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", id.as_str())];
            served.send(&mut stream, &served.token, "GET", &format!("/v1/runs/{run}/events"), &headers, b"");
            events = Events::new(stream);
        }
    };
    assert!(cuts >= 3, "{cuts}");
    assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(last.1["result"]["isError"], false);
    assert!(events.next().is_none(), "the stream ends behind its result");
    let (run, _) = last.0.split_once(':').expect("a run");
    let again = served.ask("GET", &format!("/v1/runs/{run}/events"), &[("Last-Event-ID", &last.0)], b"");
    assert_eq!(again.status, 204, "whoever has had all is told not to come again");
    let rest = served.get(&format!("/v1/runs/{run}/events?after=40")).lines();
    assert_eq!((&rest[0]["seq"], rest.last().map(|line| &line["type"])), (&json!(41), Some(&json!("result"))));
    assert_eq!(served.get(&format!("/v1/runs/{run}/events?after=run-x:1")).problem(), "request");
}

#[test]
fn a_run_ends_when_its_reader_goes_away_and_goes_on_where_that_was_said() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let runs = format!("/v1/sessions/{session}/runs");
    let begin = |on_disconnect: &str, code: &str, shutdown: Shutdown| {
        let mut body = cell("py", code);
        body["onDisconnect"] = on_disconnect.into();
        let mut stream = served.connect();
        let accept = [("Accept", "text/event-stream")];
        served.send(&mut stream, &served.token, "POST", &runs, &accept, body.to_string().as_bytes());
        let mut events = Events::new(stream.try_clone().expect("a handle"));
        let (id, _) = events.next().expect("it begins");
        stream.shutdown(shutdown).expect("it goes away");
        format!("/v1/runs/{}", id.split_once(':').expect("a run").0)
    };
    let code = "import asyncio\nawait asyncio.sleep(8)\n'done'";
    let stopped = begin("cancel", code, Shutdown::Both);
    let half = begin("cancel", code, Shutdown::Write);
    let kept = begin("continue", code, Shutdown::Both);
    let result = |run: &str| served.get(&format!("{run}?wait=60")).json();
    for run in [stopped, half] {
        let shown = result(&run);
        assert_eq!(shown["result"]["details"]["cells"][0]["error"]["kind"], "interrupted", "{shown}");
    }
    assert_eq!(result(&kept)["result"]["content"][0]["text"], "'done'");
}

#[test]
fn a_request_with_a_key_is_carried_out_once() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let key = [("Idempotency-Key", "k-1")];
    let first = served.ask("POST", "/v1/sessions", &key, b"{}").json();
    let second = served.ask("POST", "/v1/sessions", &key, b"{}").json();
    assert_eq!(first["session"], second["session"]);
    let other = served.ask("POST", "/v1/sessions", &key, br#"{"input": true}"#);
    assert_eq!((other.status, other.problem().as_str()), (422, "idempotency-mismatch"));
    let runs = format!("/v1/sessions/{}/runs", first["session"].as_str().expect("a name"));
    let body = cell("py", "count = globals().get('count', 0) + 1\ncount").to_string();
    let key = [("Idempotency-Key", "k-2")];
    let texts: Vec<Value> =
        (0..3).map(|_| served.ask("POST", &runs, &key, body.as_bytes()).json()["content"][0]["text"].clone()).collect();
    assert_eq!(texts, ["1", "1", "1"]);
    // One that was refused may be repeated with the same key.
    let key = [("Idempotency-Key", "k-3")];
    assert_eq!(served.ask("POST", "/v1/sessions/none/runs", &key, body.as_bytes()).status, 404);
    assert_eq!(served.ask("POST", &runs, &key, body.as_bytes()).json()["content"][0]["text"], "2");
}

#[test]
fn files_go_in_and_out_whole() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let files = format!("/v1/sessions/{session}/files");
    let data: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let put = served.ask("PUT", &format!("{files}/a/b%20c.bin"), &[], &data);
    assert_eq!(put.status, 201, "{}", put.text());
    let text = served.run(&session, "py", "import os; os.path.getsize('a/b c.bin')");
    assert_eq!(text, "700000");
    let got = served.get(&format!("{files}/a/b%20c.bin"));
    assert!(got.status == 200 && got.body == data);
    let etag = got.header("etag").expect("a tag").to_owned();
    let part = served.ask("GET", &format!("{files}/a/b%20c.bin"), &[("Range", "bytes=300000-300009")], b"");
    assert_eq!((part.status, part.body.as_slice()), (206, &data[300_000..300_010]));
    assert_eq!(part.header("content-range"), Some("bytes 300000-300009/700000"));
    let beyond = served.ask("GET", &format!("{files}/a/b%20c.bin"), &[("Range", "bytes=700000-")], b"");
    assert_eq!(beyond.status, 416);
    let head = served.ask("HEAD", &format!("{files}/a/b%20c.bin"), &[], b"");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("700000"), 0));
    let same = served.ask("GET", &format!("{files}/a/b%20c.bin"), &[("If-None-Match", &etag)], b"");
    assert_eq!(same.status, 304);
    // Changes that take a condition.
    let stale = served.ask("PUT", &format!("{files}/a/b%20c.bin"), &[("If-Match", "\"other\"")], b"new");
    assert_eq!((stale.status, stale.problem().as_str()), (412, "precondition"));
    let taken = served.ask("PUT", &format!("{files}/a/b%20c.bin"), &[("If-None-Match", "*")], b"new");
    assert_eq!(taken.status, 412);
    let changed = served.ask("PUT", &format!("{files}/a/b%20c.bin"), &[("If-Match", &etag)], b"new");
    assert_eq!(changed.status, 204, "{}", changed.text());
    let listed = served.get(&format!("{files}/a")).json();
    assert_eq!(
        (&listed["entries"][0]["name"], &listed["entries"][0]["size"]),
        (&json!("b c.bin"), &json!(3)),
        "{listed}"
    );
    assert_eq!(listed["entries"].as_array().expect("a list").len(), 1, "no part is left: {listed}");
    assert_eq!(served.ask("DELETE", &format!("{files}/a"), &[], b"").status, 409);
    assert_eq!(served.ask("DELETE", &format!("{files}/a/b%20c.bin"), &[], b"").status, 204);
    assert_eq!(served.ask("DELETE", &format!("{files}/a"), &[], b"").status, 204);
    assert_eq!(served.get(&files).json()["entries"], json!([]));
    // One that breaks off leaves what was there, and no part.
    assert_eq!(served.ask("PUT", &format!("{files}/x"), &[], b"old").status, 201);
    let mut stream = served.connect();
    let head = format!(
        "PUT {files}/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 1000000\r\n\r\n",
        served.token
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&data[..400_000])).expect("it reads");
    drop(stream);
    let listed = || served.get(&files).json()["entries"].as_array().expect("a list").len();
    while listed() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(served.get(&format!("{files}/x")).text(), "old");
}

#[test]
fn what_was_acknowledged_is_back_after_a_kill() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    // The command line has the guests of its configuration.
    let first = served.session(json!({"guest": "python"}));
    let second = served.session(json!({"input": true}));
    for n in 1..=5 {
        served.run(&first, "py", &format!("count = {n}; open('file', 'w').write('{n}')"));
    }
    served.run(&second, "js", "let count = 7");
    served.signal("-KILL");
    served.ended();
    let served = Served::start(store.path(), &[]);
    let listed = served.get("/v1/sessions").json();
    assert_eq!(listed["sessions"].as_array().expect("a list").len(), 2, "{listed}");
    assert_eq!(served.run(&first, "py", "count, open('file').read()"), "(5, '5')");
    assert_eq!(served.run(&second, "js", "count"), "7");
    assert_eq!(served.get(&format!("/v1/sessions/{second}")).json()["input"], true);
    // The command line reaches the same sessions once they are free.
    served.run(&first, "py", "count = 6");
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    let store = store.path().to_str().expect("text");
    let ended = run(&mut cellar(["eval", "-l", "py", "--store", store, "--session", &first, "count"]));
    assert_eq!(ended.stdout.trim(), "6", "{}", ended.stderr);
}

#[test]
fn told_to_stop_it_waits_for_what_runs_and_refuses_what_is_new() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let mut stream = served.connect();
    let body = cell("py", "import asyncio\nprint('begun')\nawait asyncio.sleep(3)\nx = 'kept'\nx").to_string();
    let accept = [("Accept", "text/event-stream")];
    served.send(&mut stream, &served.token, "POST", &format!("/v1/sessions/{session}/runs"), &accept, body.as_bytes());
    let mut events = Events::new(stream);
    while events.next().expect("it begins").1["type"] != "stdout" {}
    served.signal("-TERM");
    while served.get("/readyz").status == 200 {}
    let refused = served.post("/v1/eval", cell("py", "1"));
    assert_eq!((refused.status, refused.problem().as_str()), (503, "draining"));
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    let result = std::iter::from_fn(|| events.next()).last().expect("a result").1;
    assert_eq!(result["result"]["isError"], false, "{result}");
    assert_eq!(served.ended(), Some(0));
    let served = Served::start(store.path(), &[]);
    assert_eq!(served.run(&session, "py", "x"), "'kept'");
}
