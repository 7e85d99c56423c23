//! Scopes of tokens, whatever a request is spelled like, and the end of what a token has opened that is not valid any more.

use std::{collections::BTreeSet, time::Instant};

use super::{tenants::Tenants, *};

/// Operations that a token may carry out that only looks. All others need more.
const LOOKS: [(&str, &str); 33] = [
    ("GET", "/v1/sessions"),
    ("GET", "/v1/sessions/{session}"),
    ("GET", "/v1/sessions/{session}/calls"),
    ("GET", "/v1/calls"),
    ("GET", "/v1/sessions/{session}/origins"),
    ("GET", "/v1/sessions/{session}/states"),
    ("GET", "/v1/sessions/{session}/files/{path}"),
    ("GET", "/v1/runs/{run}"),
    ("GET", "/v1/runs/{run}/events"),
    ("GET", "/v1/runs/{run}/outputs"),
    ("GET", "/v1/runs/{run}/outputs/{output}"),
    ("GET", "/v1/snapshots"),
    ("GET", "/v1/snapshots/{snapshot}"),
    ("GET", "/v1/artifacts"),
    ("GET", "/v1/artifacts/{artifact}"),
    ("GET", "/v1/datasets"),
    ("GET", "/v1/datasets/{dataset}"),
    ("GET", "/v1/datasets/{dataset}/rows"),
    ("GET", "/v1/tenant"),
    ("GET", "/v1/languages"),
    ("GET", "/jupyter/api/kernelspecs"),
    ("GET", "/jupyter/api/kernelspecs/{name}"),
    ("GET", "/jupyter/kernelspecs/{name}/logo-svg.svg"),
    ("GET", "/jupyter/api/kernels"),
    ("GET", "/jupyter/api/kernels/{id}"),
    ("GET", "/e2b/v2/sandboxes"),
    ("GET", "/e2b/sandboxes"),
    ("GET", "/e2b/sandboxes/{id}"),
    ("GET", "/e2b/sandboxes/{id}/metrics"),
    ("GET", "/e2b/snapshots"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
];

/// Operations that the interfaces for clients of others declare, from their source.
fn declared() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (prefix, file) in [("/jupyter/", "jupyter.rs"), ("/e2b/", "e2b.rs"), ("/e2b/", "e2b/control.rs")] {
        let text = std::fs::read_to_string(root().join("host/server/src").join(file)).expect("source");
        let before = all.len();
        for line in text.lines().map(str::trim) {
            let named: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            match (line.contains("Declared::look("), line.contains("Declared::act("), named.as_slice()) {
                (true, _, [path]) => all.push(("GET".to_owned(), format!("{prefix}{path}"))),
                (_, true, [method, path]) => all.push(((*method).to_owned(), format!("{prefix}{path}"))),
                _ => {}
            }
        }
        assert!(all.len() > before, "{file} declares nothing");
    }
    all
}

fn operations() -> Vec<(String, String)> {
    let mcp = ["GET", "POST", "DELETE"].map(|method| (method.to_owned(), "/mcp".to_owned()));
    super::tenants::operations().into_iter().chain(declared()).chain(mcp).collect()
}

/// Spellings of a path that a server might take for it, but for itself.
fn spellings(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let letters: Vec<char> = path.chars().collect();
    for (place, letter) in letters.iter().enumerate().skip(1) {
        let spelled = |text: &str| {
            let (before, behind) = (&letters[..place], &letters[place + 1..]);
            before.iter().collect::<String>() + text + &behind.iter().collect::<String>()
        };
        match letter {
            '/' => all.extend(["//", "/./", "/x/../", "/;/", "%2f", "%2F", ";/"].map(spelled)),
            letter if letter.is_ascii_alphanumeric() => {
                all.push(spelled(&format!("%{:02x}", u32::from(*letter))));
                // Twice encoded, and the other case.
                if place % 4 == 0 {
                    all.push(spelled(&format!("%25{:02x}", u32::from(*letter))));
                    all.push(spelled(&letter.to_uppercase().to_string()));
                }
            }
            _ => {}
        }
    }
    let every: String =
        path.chars().map(|c| if c == '/' { "/".into() } else { format!("%{:02X}", u32::from(c)) }).collect();
    let ends = ["/", "//", "/.", "/..", ";", ";x=1", "?x", "?token=x", "%2f", "%00", ".json", "%20"];
    all.push(every);
    all.push(format!("/{path}"));
    all.extend(ends.map(|end| format!("{path}{end}")));
    all
}

/// A connection on which requests are sent one after the other.
struct Line {
    stream: BufReader<TcpStream>,
}

impl Line {
    /// The status of a request.
    fn status(&mut self, served: &Served, head: &str) -> u16 {
        if self.stream.get_mut().write_all(head.as_bytes()).is_err() {
            *self = Line { stream: BufReader::new(served.connect()) };
            self.stream.get_mut().write_all(head.as_bytes()).expect("it reads");
        }
        let (mut first, mut length, mut closes) = (String::new(), None, false);
        if self.stream.read_line(&mut first).unwrap_or_default() == 0 {
            *self = Line { stream: BufReader::new(served.connect()) };
            self.stream.get_mut().write_all(head.as_bytes()).expect("it reads");
            self.stream.read_line(&mut first).expect("an answer");
        }
        let status: u16 = first.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a head");
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            length = line.strip_prefix("content-length: ").and_then(|text| text.parse::<usize>().ok()).or(length);
            closes |= line == "connection: close";
        }
        let mut body = vec![0; length.unwrap_or_default()];
        let is_whole = !head.starts_with("HEAD") && self.stream.read_exact(&mut body).is_ok();
        if closes || status == 101 || length.is_none() && status != 204 || !is_whole && !head.starts_with("HEAD") {
            *self = Line { stream: BufReader::new(served.connect()) };
        }
        status
    }
}

#[test]
fn no_spelling_of_an_operation_gives_a_token_what_its_scope_does_not() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\n");
    let token = |scope: &str| tenants.token(&["new", "--tenant", "red", "--name", scope, "--scope", scope]);
    let (read, admin, metrics) = (token("read"), token("admin"), token("metrics"));
    let run = tenants.token(&["new", "--tenant", "red"]);
    let mut served = tenants.serve();
    served.token = run.clone();
    let session = served.session(json!({}));
    assert_eq!(served.run(&session, "py", "x = 6 * 7; x"), "42");
    let kernel = served.post("/jupyter/api/kernels", json!({})).json()["id"].as_str().expect("an id").to_owned();
    let sandbox = served.post("/e2b/v2/sandboxes", json!({})).json()["sandboxID"].as_str().expect("an id").to_owned();
    let concrete = |path: &str| {
        let id = if path.starts_with("/e2b/sandboxes") || path.starts_with("/e2b/v2") { &sandbox } else { &kernel };
        let path = path.replace("{session}", &session).replace("{id}", id).replace("{name}", "x");
        path.replace("{procedure}", "ListDir")
            .split('/')
            .map(|part| if part.starts_with('{') { "x" } else { part })
            .collect::<Vec<_>>()
            .join("/")
    };
    let looks: BTreeSet<(&str, &str)> = LOOKS.into_iter().collect();
    let mut line = Line { stream: BufReader::new(served.connect()) };
    let mut tried = 0;
    let (mut broken, mut found) = (Vec::new(), 0);
    for (method, path) in operations() {
        let is_admin = path.starts_with("/v1/admin");
        let is_look = looks.contains(&(method.as_str(), path.as_str()));
        let at = concrete(&path);
        // Tokens that may not.
        let mut weak = vec![("metrics", metrics.as_str()), ("none", "")];
        weak.extend((!is_look).then_some(("read", read.as_str())));
        weak.extend((!is_admin).then_some(("admin", admin.as_str())));
        weak.extend((is_admin || path == "/v1/calls/{call}").then_some(("run", run.as_str())));
        let others = ["POST", "HEAD", "PUT", "DELETE", "PATCH"].map(|other| (other, at.clone()));
        let spelled = std::iter::once(at.clone()).chain(spellings(&at)).map(|path| (method.as_str(), path));
        for (method, path) in spelled.chain(others.into_iter().filter(|(other, _)| *other == "HEAD" && method == "GET"))
        {
            for (scope, token) in &weak {
                let mut head = format!(
                    "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nE2b-Sandbox-Id: {sandbox}\r\n"
                );
                head += "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
                head += "X-HTTP-Method-Override: GET\r\nX-Original-URL: /v1/languages\r\nX-Rewrite-URL: /healthz\r\n";
                head += &format!("Authorization: Bearer {token}\r\n\r\n");
                let status = line.status(&served, &head);
                tried += 1;
                let is_refused = matches!(status, 401 | 403 | 404 | 405 | 501 | 502);
                // A path that says nothing is no operation, and neither is one that is no text.
                if !is_refused && !(status == 400 && (path.contains('\0') || path.contains("%00"))) {
                    broken.push(format!("{scope}: {method} {path}: {status}"));
                }
            }
        }
        // Each is there for whoever has the scope, so that the refusals are no accident.
        if is_look {
            let plain = format!("GET {at} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {read}\r\n\r\n");
            found += usize::from(matches!(line.status(&served, &plain), 200 | 404));
        }
    }
    assert!(broken.is_empty(), "of {tried}: {}", broken.join("\n"));
    assert!(tried > 5_000 && found > 20, "{tried} {found}");
    // An encoded letter is the letter, for whoever may.
    assert_eq!(served.get("/v1/%73essions").status, 200);
    assert_eq!(served.run(&session, "py", "x"), "42");
}

/// Reads until the connection ends, and returns what came.
fn read_out(mut stream: TcpStream) -> std::thread::JoinHandle<(String, bool)> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // One that is still open after so long runs into its timeout.
        let ended = match stream.read_to_end(&mut bytes) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        };
        (String::from_utf8_lossy(&bytes).into_owned(), ended)
    })
}

/// Head of a WebSocket's request.
fn upgrade(path: &str, token: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Opens one connection of each kind, and returns their names and readers.
fn open_all(
    served: &Served,
    token: &str,
    [session, kernel, sandbox]: [&str; 3],
    run: &str,
) -> Vec<(&'static str, std::thread::JoinHandle<(String, bool)>)> {
    let open = |head: String| {
        let mut stream = served.connect();
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.write_all(head.as_bytes()).expect("it reads");
        // Its first byte says that it was let through.
        stream.peek(&mut [0]).expect("an answer");
        stream
    };
    let plain = |method: &str, path: &str, headers: &str, body: &str| {
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let follow = plain("GET", &format!("/v1/runs/{run}/events"), "", "");
    let sse = plain("GET", &format!("/v1/runs/{run}/events"), "Accept: text/event-stream\r\n", "");
    let message = json!({"path": "/home/user"}).to_string();
    let length = u8::try_from(message.len()).expect("short");
    let envelope = format!("\0\0\0\0{}{message}", char::from(length));
    let headers = format!("E2b-Sandbox-Id: {sandbox}\r\nContent-Type: application/connect+json\r\n");
    let watch = plain("POST", "/e2b/filesystem.Filesystem/WatchDir", &headers, &envelope);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let accept = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
    let begun = served.ask_as(
        token,
        "POST",
        "/mcp",
        &[("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")],
        initialize.to_string().as_bytes(),
    );
    let mcp = begun.header("mcp-session-id").expect("a session").to_owned();
    let mcp = plain("GET", "/mcp", &format!("{accept}Mcp-Session-Id: {mcp}\r\n"), "");
    let mut all = vec![
        ("the kernel's WebSocket", open(upgrade(&format!("/jupyter/api/kernels/{kernel}/channels"), token))),
        ("the WebSocket of lines", open(upgrade("/v1/stdio", token))),
        ("that of a session", open(upgrade(&format!("/v1/sessions/{session}/stdio"), token))),
        ("lines of events", open(follow)),
        ("server-sent events", open(sse)),
        ("a watched folder", open(watch)),
        ("the stream of MCP", open(mcp)),
    ];
    // One that waits for a result, and one whose body does not come, have no answer yet.
    let mut waiting = served.connect();
    let body = json!({"cells": [{"language": "py", "code": "import asyncio; await asyncio.sleep(60)"}]}).to_string();
    waiting.write_all(plain("POST", "/v1/eval", "", &body).as_bytes()).expect("it reads");
    let mut stalled = served.connect();
    stalled
        .write_all(plain("POST", "/v1/eval", "", "").replace("Length: 0", "Length: 1000").as_bytes())
        .expect("it reads");
    for stream in [&waiting, &stalled] {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    }
    all.extend([("a request that waits", waiting), ("a body that stalls", stalled)]);
    all.into_iter().map(|(what, stream)| (what, read_out(stream))).collect()
}

fn ends_what_it_has_opened(end: impl FnOnce(&Tenants, &Served, &str), token: &[&str]) {
    let tenants = Tenants::new("[tenants.red]\n");
    let of = tenants.token(&[&["new", "--tenant", "red", "--name", "guest"], token].concat());
    let own = tenants.token(&["new", "--tenant", "red"]);
    let mut served = tenants.serve();
    served.token = own;
    let session = served.session(json!({}));
    let kernel = served.post("/jupyter/api/kernels", json!({})).json()["id"].as_str().expect("an id").to_owned();
    let sandbox = served.post("/e2b/v2/sandboxes", json!({})).json()["sandboxID"].as_str().expect("an id").to_owned();
    let body = cell("py", "import asyncio\nprint('on')\nwhile 'go' not in globals(): await asyncio.sleep(0.05)");
    let mut body = body;
    body["cells"][0]["timeout"] = json!(600);
    let path = format!("/v1/sessions/{session}/runs");
    let run = served.ask("POST", &path, &[("Prefer", "respond-async")], body.to_string().as_bytes());
    let run = run.json()["run"].as_str().expect("an id").to_owned();
    let open = open_all(&served, &of, [&session, &kernel, &sandbox], &run);
    end(&tenants, &served, &of);
    let since = Instant::now();
    let mut left = Vec::new();
    for (what, reader) in open {
        let (said, has_ended) = reader.join().expect("a reader");
        if !has_ended || said.contains("\"result\"") {
            left.push(format!("{what}: {said}"));
        }
    }
    assert!(left.is_empty(), "still open after {:?}: {}", since.elapsed(), left.join("\n"));
    // What the tenant has goes on for another token.
    served.run(&session, "py", "go = True");
    let ended = served.get(&format!("/v1/runs/{run}?wait=60"));
    assert_eq!(ended.json()["status"], "complete", "{}", ended.text());
}

#[test]
fn a_token_that_is_revoked_ends_what_it_has_opened() {
    let end = |tenants: &Tenants, served: &Served, token: &str| {
        tenants.token(&["revoke", token.split('_').nth(1).expect("an id")]);
        served.signal("-HUP");
    };
    ends_what_it_has_opened(end, &[]);
}

#[test]
fn a_token_that_expires_ends_what_it_has_opened() {
    // Its file says when: a command makes none that ends so soon.
    let end = |tenants: &Tenants, served: &Served, token: &str| {
        let file = tenants.store.path().join(".tokens.json");
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("JSON");
        let id = token.split('_').nth(1).expect("an id");
        let tokens = kept["tokens"].as_array_mut().expect("tokens");
        let own = tokens.iter_mut().find(|token| token["id"] == id).expect("it is there");
        own["expiresAt"] = json!(now() + 3);
        std::fs::write(&file, kept.to_string()).expect("written");
        served.signal("-HUP");
    };
    ends_what_it_has_opened(end, &["--days", "1"]);
}

/// A client that reads nothing is not polled: its connection ends all the same, and the run's reader with it.
#[test]
fn a_client_that_reads_nothing_loses_its_stream_with_its_token() {
    let tenants = Tenants::new("[tenants.red]\n");
    let guest = tenants.token(&["new", "--tenant", "red", "--name", "guest"]);
    let own = tenants.token(&["new", "--tenant", "red"]);
    let mut served = tenants.serve();
    served.token = own;
    let mut stream = served.connect();
    let code = "while True: print('x' * 1000)";
    let body = json!({"cells": [{"language": "py", "code": code, "timeout": 600}]}).to_string();
    let headers = [("Accept", "application/x-ndjson")];
    served.send(&mut stream, &guest, "POST", "/v1/eval", &headers, body.as_bytes());
    stream.peek(&mut [0]).expect("an answer");
    let under_way = || served.get("/v1/tenant").json()["runsUnderWay"].as_u64();
    assert_eq!(under_way(), Some(1));
    tenants.token(&["revoke", guest.split('_').nth(1).expect("an id")]);
    served.signal("-HUP");
    eventually("its run goes on", || (under_way() == Some(0)).then_some(()));
    assert!(!read_out(stream).join().expect("a reader").0.contains("\"result\""));
    assert_eq!(served.post("/v1/eval", cell("py", "1 + 1")).json()["content"][0]["text"], "2");
}
