//! The lines of `cellar stdio` over WebSockets: the very scripts, and what a server does besides.

use std::sync::mpsc::channel;

use tokio_tungstenite::tungstenite::{
    Message, WebSocket, client,
    client::IntoClientRequest,
    protocol::{Role, WebSocketConfig},
};

use super::*;
use crate::guests::stdio::{Talk, cases};

impl Served {
    /// Opens a WebSocket that speaks lines, if the server lets one.
    pub(super) fn socket(&self, token: &str, path: &str) -> Result<WebSocket<TcpStream>, u16> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().expect("a request");
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {token}").parse().expect("a header"));
        headers.insert("sec-websocket-protocol", "cellar.v1".parse().expect("a header"));
        match client(request, self.connect()) {
            Ok((socket, answer)) => {
                assert_eq!(answer.headers()["sec-websocket-protocol"], "cellar.v1");
                Ok(socket)
            }
            Err(tokio_tungstenite::tungstenite::HandshakeError::Failure(
                tokio_tungstenite::tungstenite::Error::Http(answer),
            )) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A conversation over one.
    pub(super) fn talk(&self, path: &str) -> Talk {
        let mut reading = self.socket(&self.token, path).expect("a WebSocket");
        let stream = reading.get_ref().try_clone().expect("a handle");
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let mut writing = WebSocket::from_raw_socket(stream, Role::Client, Some(config));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            while let Ok(message) = reading.read() {
                if let Message::Text(text) = message {
                    let _ = sender.send(serde_json::from_str(&text).expect("JSON"));
                }
            }
        });
        let closing = Closing(writing.get_ref().try_clone().expect("a handle"));
        let send = move |line: &str| {
            let _open = &closing;
            writing.send(Message::text(line)).expect("it reads");
        };
        Talk::over(send, answers)
    }
}

/// A connection that ends when this is dropped.
struct Closing(TcpStream);

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[test]
fn the_scripts_of_stdio() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    for case in cases() {
        served.talk("/v1/stdio").play(&case);
    }
}

#[test]
fn a_session_that_is_kept_is_that_of_requests_that_name_none() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({"tools": [{"name": "double"}], "input": true}));
    served.run(&session, "py", "x = 20");
    let mut talk = served.talk(&format!("/v1/sessions/{session}/stdio"));
    let send = |talk: &mut Talk, line: Value| talk.line(&line.to_string());
    send(
        &mut talk,
        json!({"type": "run", "id": "r", "cells": [{"language": "py", "code": "y = tool.double(n=x) + 2; y"}]}),
    );
    talk.expect(&json!({"type": "event", "id": "r", "event": {"type": "run_started", "session": session}}));
    talk.expect(
        &json!({"type": "call", "call": "$call", "session": session, "tool": "double", "arguments": {"n": 20}}),
    );
    // The same call waits for whoever asks over HTTP.
    let waiting = served.get(&format!("/v1/sessions/{session}/calls?wait=60")).json();
    let call = waiting["calls"][0]["call"].as_str().expect("a call").to_owned();
    send(&mut talk, json!({"type": "reply", "call": call, "result": 40}));
    talk.expect(&json!({"type": "result", "id": "r", "result": {"content": [{"text": "42"}]}}));
    send(&mut talk, json!({"type": "fork", "id": "f"}));
    talk.expect(&json!({"type": "opened", "id": "f", "session": "$fork"}));
    send(&mut talk, json!({"type": "sessions", "id": "list"}));
    talk.expect(&json!({"type": "sessions", "id": "list"}));
    talk.end();
    // What it did stays, and so does its fork.
    assert_eq!(served.run(&session, "py", "y"), "42");
    let listed = served.get("/v1/sessions").json();
    assert_eq!(listed["sessions"].as_array().expect("a list").len(), 2, "{listed}");
}

#[test]
fn who_comes_over_the_network_names_no_files_and_grants_nothing() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let mut talk = served.talk("/v1/stdio");
    let asks = [
        (json!({"workspace": "/etc"}), "$.workspace"),
        (json!({"grants": {"mounts": {"/x": "/etc"}}}), "$.grants.mounts"),
        (json!({"grants": {"tools": {"sh": {"command": ["sh"]}}}}), "$.grants.tools"),
        (json!({"grants": {"http": {"allow": [{"host": "*"}]}}}), "$.grants.http"),
        (json!({"grants": {"secrets": ["/etc/shadow"]}}), "$.grants.secrets"),
        (json!({"grants": {"session": {"python": {"source": "/etc/passwd"}}}}), "$.grants.session.python"),
        (json!({"grants": {"audit": {"file": "/tmp/audit"}}}), "$.grants.audit"),
        (json!({"grants": {"limits": {"memory_mib": 4096}}}), "$.grants.limits.memory_mib"),
        (json!({"snapshot": "../.tokens.json"}), "$.snapshot"),
        (json!({"snapshot": "/etc/passwd"}), "$.snapshot"),
    ];
    for (ask, path) in asks {
        let mut ask = ask;
        ask["type"] = "open".into();
        ask["id"] = path.into();
        talk.line(&ask.to_string());
        talk.expect(&json!({"type": "error", "id": path, "error": {}}));
    }
    // None of them has opened anything.
    talk.line(r#"{"type": "sessions", "id": "none"}"#);
    talk.expect(&json!({"type": "sessions", "id": "none", "sessions": []}));
    talk.line(r#"{"type": "snapshot", "id": "out", "file": "../../escaped"}"#);
    talk.expect(&json!({"type": "error", "id": "out", "error": {"code": "invalid"}}));
    talk.end();
    assert_eq!(served.socket("cel_wrong", "/v1/stdio").map(drop), Err(401));
    assert_eq!(served.socket(&served.token, "/v1/sessions/nobody/stdio").map(drop), Err(404));
    assert_eq!(served.get("/v1/stdio").status, 426);
}

#[test]
fn tenants_find_nothing_of_each_other_over_websockets() {
    let tenants = tenants::Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let mut served = tenants.serve();
    served.token = red;
    let session = served.session(json!({}));
    served.run(&session, "py", "secret = 1");
    let snapshot = served.post(&format!("/v1/sessions/{session}/snapshots"), json!({})).json()["snapshot"].clone();
    served.token = blue;
    assert_eq!(served.socket(&served.token, &format!("/v1/sessions/{session}/stdio")).map(drop), Err(404));
    let mut talk = served.talk("/v1/stdio");
    talk.line(r#"{"type": "sessions", "id": "list"}"#);
    talk.expect(&json!({"type": "sessions", "id": "list", "sessions": []}));
    // What is another's is refused as what does not exist.
    let nobodys = json!("snap-0123456789abcdefghijkl");
    let told: Vec<String> = [(&snapshot, "theirs"), (&nobodys, "nobodys")]
        .into_iter()
        .map(|(snapshot, id)| {
            talk.line(&json!({"type": "open", "id": id, "snapshot": snapshot}).to_string());
            let mut answer = talk.answer().expect("an answer");
            while answer["id"] != id {
                answer = talk.answer().expect("an answer");
            }
            assert_eq!(answer["type"], "error", "{answer}");
            answer["error"].to_string().replace(snapshot.as_str().expect("a name"), "it")
        })
        .collect();
    assert_eq!(told[0], told[1]);
    let run = json!({"type": "run", "id": "r", "session": session, "cells": [{"language": "py", "code": "secret"}]});
    talk.line(&run.to_string());
    talk.expect(&json!({"type": "error", "id": "r", "error": {}}));
    talk.end();
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let mut talk = served.talk("/v1/stdio");
    talk.line(r#"{"type": "run", "id": "r", "cells": [{"language": "py", "code": "while True: pass"}]}"#);
    talk.expect(&json!({"type": "event", "id": "r", "event": {"type": "cell_started"}}));
    drop(talk);
    // Its run is cancelled, and its session goes.
    eventually("no session and no run is left", || {
        let counted = served.get("/metrics").text();
        let is_gone = |what: &str| counted.contains(&format!("{what}{{tenant=\"own\"}} 0"));
        (is_gone("cellar_sessions_open") && is_gone("cellar_runs_under_way")).then_some(())
    });
}
