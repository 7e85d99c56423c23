//! Requests to a server: of every interface, with bodies of every format that it reads.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cellar_bridges::NoDoors;
use cellar_config::{Folders, Overrides};
use cellar_engine::HostFolders;
use cellar_server::{Isolation, Server, ServerConfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    root,
    targets::{Answer, Try},
};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Time between two pieces of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// Stand in seeds for what differs from one run to the next.
const SESSION: &str = "SESSION";
const SANDBOX: &str = "SANDBOX";
const KERNEL: &str = "KERNEL";

/// A server in this process.
struct Served {
    _runtime: Runtime,
    _store: tempfile::TempDir,
    address: SocketAddr,
    token: String,
    /// Stand-ins, and what is sent for each.
    names: [(&'static str, String); 3],
}

impl Served {
    fn start() -> Served {
        let store = tempfile::tempdir().expect("a folder");
        let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from).or_else(HostFolders::user_cache);
        let guests = Some(root().join("target/guests"));
        let folders = Folders { guests, cache, store: Some(store.path().to_owned()) };
        let (config, token) = ServerConfig::new(&folders, &Overrides::default(), |_| {}).expect("a configuration");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let address = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let server = Server::open(config, Isolation::default(), Arc::new(NoDoors)).expect("a server");
            tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
            address
        });
        let token = token.expect("a token");
        let names = [(SESSION, String::new()), (SANDBOX, String::new()), (KERNEL, String::new())];
        let mut served = Served { _runtime: runtime, _store: store, address, token, names };
        for (at, (path, body, member)) in [
            ("/v1/sessions", json!({}), "session"),
            ("/e2b/v2/sandboxes", json!({"templateID": "base", "timeout": 3600}), "sandboxID"),
            ("/jupyter/api/kernels", json!({}), "id"),
        ]
        .into_iter()
        .enumerate()
        {
            let answer = served.answer(&seed("POST", path, "application/json", body.to_string().as_bytes()));
            let body = answer.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str::<Value>(body).ok());
            let name =
                body.as_ref().and_then(|body| body[member].as_str()).unwrap_or_else(|| panic!("{path}: {answer}"));
            served.names[at].1 = name.to_owned();
        }
        served
    }

    /// Sends a request, and returns the answer as far as it came.
    fn answer(&self, case: &[u8]) -> String {
        let at = case.windows(END_OF_HEAD.len()).position(|bytes| bytes == END_OF_HEAD);
        let (head, body) = case.split_at(at.map_or(case.len(), |at| at + END_OF_HEAD.len()));
        let mut head = String::from_utf8_lossy(head).trim_end().to_owned();
        for (stand_in, name) in &self.names {
            head = head.replace(stand_in, name);
        }
        let is_upgraded = head.to_ascii_lowercase().contains("upgrade:");
        if !is_upgraded {
            head += &format!("\r\nConnection: close\r\nContent-Length: {}", body.len());
        }
        head += &format!("\r\nHost: x\r\nAuthorization: Bearer {0}\r\nX-API-Key: {0}\r\n\r\n", self.token);
        let mut answer = Vec::new();
        let Ok(mut stream) = TcpStream::connect(self.address) else { return String::new() };
        // It may be refused before all is sent.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        if is_upgraded {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn seed(method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nContent-Type: {kind}\r\nE2b-Sandbox-Id: {SANDBOX}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A WebSocket that sends a text.
fn socket(path: &str, protocol: &str, text: &str) -> Vec<u8> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    let length = u16::try_from(text.len()).expect("a short text").to_be_bytes();
    // With a mask of zeros.
    [head.as_bytes(), &[0x81, 0x80 | 126], &length, &[0; 4], text.as_bytes(), &[0x88, 0x80, 0, 0, 0, 0]].concat()
}

fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in [("a.txt", "text"), ("folder/b.txt", "more")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes()).expect("a file");
    }
    archive.into_inner().expect("an archive")
}

fn enveloped(message: &Value) -> Vec<u8> {
    let message = message.to_string();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], message.as_bytes()].concat()
}

fn seeds_of(seeds: &mut Vec<Vec<u8>>) {
    let json_to =
        |method: &str, path: &str, body: Value| seed(method, path, "application/json", body.to_string().as_bytes());
    let session = format!("/v1/sessions/{SESSION}");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "pattern": "^a+$"}}, "$defs": {"a": {"$ref": "#"}}});
    let tool = json!({"name": "add", "description": "adds", "schema": schema});
    seeds.extend([
        json_to("POST", "/v1/sessions", json!({"input": true, "idleAfter": 1, "tools": [tool]})),
        json_to("PATCH", &session, json!({"pinned": true})),
        json_to("POST", &format!("{session}/runs"), json!({"cells": []})),
        json_to("POST", &format!("{session}/complete"), json!({"language": "js", "code": "Ma", "cursor": 2})),
        json_to("POST", &format!("{session}/calls/c-1"), json!({"value": [1, 2.5, null, "text"]})),
        json_to("POST", &format!("{session}/rewind"), json!({"snapshot": "snap-1"})),
        seed("PUT", &format!("{session}/files/a%20b.txt"), "application/octet-stream", b"text"),
        seed("PUT", &format!("{session}/files/folder"), "application/x-tar", &archive()),
        seed("GET", &format!("{session}/files/folder?from=1&limit=2"), "text/plain", b""),
        seed("POST", "/v1/datasets/rates", "application/vnd.apache.parquet", b"PAR1\x15\x04\x15\x00PAR1"),
        seed("GET", "/v1/datasets?prefix=r&limit=3", "text/plain", b""),
    ]);
    let form = b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\ntext\r\n--XX--\r\n";
    let call = |name: &str, body: Value| json_to("POST", &format!("/e2b/filesystem.Filesystem/{name}"), body);
    let watch = enveloped(&json!({"path": "/home/user"}));
    seeds.extend([
        seed("POST", "/e2b/files?path=/home/user/a.txt&username=user", "multipart/form-data; boundary=XX", form),
        call("ListDir", json!({"path": "/home/user", "depth": 2})),
        call("Move", json!({"source": "/home/user/a.txt", "destination": "/home/user/b.txt"})),
        call("CreateWatcher", json!({"path": "/home/user", "recursive": true})),
        seed("POST", "/e2b/filesystem.Filesystem/WatchDir", "application/connect+json", &watch[..4]),
        json_to("POST", "/e2b/contexts", json!({"language": "python", "cwd": "/home/user"})),
        json_to(
            "POST",
            "/e2b/v2/sandboxes",
            json!({"templateID": "base", "metadata": {"a": "b"}, "envVars": {"A": "b"}}),
        ),
    ]);
    let header = json!({"msg_id": "m", "session": "s", "username": "u", "date": "", "msg_type": "kernel_info_request", "version": "5.3"});
    let message = json!({"header": header, "parent_header": {}, "metadata": {}, "content": {}, "buffers": [], "channel": "shell"});
    let line = json!({"type": "open", "session": "s", "config": {"limits": {"timeout": 1}}});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    seeds.extend([
        socket(&format!("/jupyter/api/kernels/{KERNEL}/channels?session_id=s"), "kernel", &message.to_string()),
        socket(
            &format!("/jupyter/api/kernels/{KERNEL}/channels"),
            "v1.kernel.websocket.jupyter.org",
            "\u{2}\0\0\0\0\0\0\0",
        ),
        socket("/v1/stdio", "cellar", &line.to_string()),
        json_to("POST", "/jupyter/api/kernels", json!({"name": "python3", "env": {"A": "b"}})),
        json_to("POST", "/mcp", initialize),
        seed(
            "GET",
            "/v1/tenant",
            "text/plain\r\nAuthorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOlsiYSJdfQ.AAAA",
            b"",
        ),
    ]);
}

/// Requests: each has an answer with a status that is not a fault of the server, and the server goes on.
pub(crate) fn requests(seeds: &mut Vec<Vec<u8>>) -> Try {
    seeds_of(seeds);
    let served = Served::start();
    let panics = Arc::new(AtomicUsize::new(0));
    let (counted, hook) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::Relaxed);
        hook(panic);
    }));
    let health = seed("GET", "/healthz", "text/plain", b"");
    Box::new(move |case| {
        let answer = served.answer(case);
        if panics.swap(0, Ordering::Relaxed) > 0 {
            return Err("a task of the server panicked".to_owned());
        }
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        if status == "500" {
            return Err(format!("a fault of the server: {answer}"));
        }
        if !served.answer(&health).starts_with("HTTP/1.1 200") {
            return Err("the server does not answer any more".to_owned());
        }
        Ok(match status.as_str() {
            "200" | "201" | "204" | "101" => Answer::Taken,
            _ => Answer::Refused(format!("{status} {}", answer.split_once("\r\n\r\n").map_or("", |(_, body)| body))),
        })
    })
}
