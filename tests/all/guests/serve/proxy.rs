//! Behind nginx, as Debian has it, which keeps connections to the server and sends requests of many clients over each.

use super::{tenants::Tenants, *};

/// Time for which a connection that stays open is read.
const SILENCE: Duration = Duration::from_millis(1_500);

/// nginx in front of a server, with a folder of its own.
struct Proxy {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Proxy {
    fn start(served: &Served) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().display();
        let address = &served.address;
        let text = |port: u16| {
            format!(
                "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log stderr crit;\nevents {{}}\nhttp {{\n\
                 access_log off;\nclient_body_temp_path {at}/a;\nproxy_temp_path {at}/b;\nfastcgi_temp_path {at}/c;\n\
                 uwsgi_temp_path {at}/d;\nscgi_temp_path {at}/e;\nclient_max_body_size 0;\n\
                 map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n\
                 upstream cellar {{ server {address}; keepalive 1; }}\n\
                 server {{ listen 127.0.0.1:{port};\nlocation / {{ proxy_pass http://cellar; proxy_http_version 1.1;\n\
                 proxy_set_header Host $host; proxy_set_header Upgrade $http_upgrade;\n\
                 proxy_set_header Connection $connection_upgrade; proxy_read_timeout 1h; }} }} }}\n"
            )
        };
        let path = folder.path().join("nginx.conf");
        let nginx = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let start = |port: u16| {
            std::fs::write(&path, text(port)).expect("written");
            let process = Command::new(nginx).arg("-c").arg(&path).arg("-p").arg(folder.path()).spawn();
            process.expect("nginx starts; `make setup` installs it")
        };
        let (process, port) = on_a_free_port(start, |port| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Proxy { process, address: format!("127.0.0.1:{port}"), _folder: folder }
    }

    /// Sends these bytes, and reads to the end.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(SILENCE)).expect("a timeout");
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn streams_and_websockets_pass_as_they_come() {
    let store = tempfile::tempdir().expect("a folder");
    let mut served = Served::start(store.path(), &[]);
    let proxy = Proxy::start(&served);
    let direct = std::mem::replace(&mut served.address, proxy.address.clone());
    let session = served.session(json!({"input": true}));
    let path = format!("/v1/sessions/{session}/runs");
    let mut stream = served.connect();
    let accept = [("Accept", "text/event-stream")];
    served.send(
        &mut stream,
        &served.token,
        "POST",
        &path,
        &accept,
        cell("py", "input('now? ')").to_string().as_bytes(),
    );
    let mut events = Events::new(stream);
    // The request for input is read while the cell waits for its answer.
    let (place, asked) = loop {
        let (id, event) = events.next().expect("more");
        if event["type"] == "input_request" {
            break (id.split(':').next().expect("a run").to_owned(), event["request_id"].clone());
        }
    };
    let answer = served.post(&format!("/v1/runs/{place}/input"), json!({"request_id": asked, "value": "yes"}));
    assert_eq!(answer.status, 204, "{}", answer.text());
    let last = std::iter::from_fn(|| events.next()).last().expect("a result").1;
    assert_eq!(last["result"]["content"][0]["text"], "'yes'", "{last}");
    let mut talk = served.talk(&format!("/v1/sessions/{session}/stdio"));
    talk.line(r#"{"type": "run", "id": "r", "cells": [{"language": "js", "code": "6 * 7"}]}"#);
    talk.expect(&json!({"type": "result", "id": "r", "result": {"content": [{"text": "42"}]}}));
    talk.end();
    served.address = direct;
}

#[test]
fn no_request_is_hidden_in_another() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let blue = tenants.token(&["new", "--tenant", "blue"]);
    let served = tenants.serve();
    let proxy = Proxy::start(&served);
    let hidden = format!("GET /v1/tenant HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {red}\r\nX: ");
    let in_chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let ask = |headers: &str, body: &str| {
        format!("POST /v1/eval HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {red}\r\n{headers}\r\n{body}")
    };
    let length = hidden.len();
    let tricks = [
        ask(
            &format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", 5 + length),
            &format!("0\r\n\r\n{hidden}"),
        ),
        ask("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", &in_chunk),
        ask("Content-Length: 4\r\nTransfer-Encoding : chunked\r\n", &in_chunk),
        ask("Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n", &in_chunk),
        ask("Content-Length: 4\r\nTransfer-Encoding:\tchunked\r\n", &in_chunk),
        ask("Content-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n", &in_chunk),
        ask("Content-Length: 4\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", &in_chunk),
        ask("Content-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n", &in_chunk),
        ask("Content-Length: 4\r\nX: y\nTransfer-Encoding: chunked\r\n", &in_chunk),
        ask(&format!("Content-Length: 0\r\nContent-Length: {length}\r\n"), &hidden),
        ask(&format!("Content-Length: 0, {length}\r\n"), &hidden),
        ask("Content-Length: +0\r\n", &hidden),
        ask("Content-Length: 0x0\r\n", &hidden),
        ask(&format!("Content-Length: -{length}\r\n"), &hidden),
        ask("Content-Length: 2\r\nConnection: Content-Length\r\n", &format!("{{}}{hidden}")),
        ask(
            "Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n",
            &format!("{{}}{hidden}"),
        ),
        ask("Transfer-Encoding: chunked\r\n", &format!("2;x=\"\n\"\r\n{{}}\r\n0\r\nContent-Length: 9\r\n\r\n{hidden}")),
        ask("Transfer-Encoding: chunked\r\n", &format!("00000000000000002\r\n{{}}\r\n0\r\n\r\n{hidden}")),
        ask("Transfer-Encoding: chunked\r\n", &format!("fffffffffffffffff\r\n{hidden}")),
    ];
    for trick in tricks {
        // Straight and through the proxy, and always followed by somebody else on the connection that the proxy keeps.
        let through = proxy.raw(trick.as_bytes());
        assert!(!through.contains("\"blue\""), "{trick}: {through}");
        for _ in 0..3 {
            let request = format!(
                "GET /v1/tenant HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {blue}\r\n\r\n"
            );
            let answer = proxy.raw(request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"blue\""), "{trick}: {answer}");
            assert!(!answer.contains("\"red\""), "{trick}: {answer}");
        }
        let mut stream = served.connect();
        stream.set_read_timeout(Some(SILENCE)).expect("a timeout");
        let _ = stream.write_all(trick.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        // What is told its length in two ways is refused, and what comes behind is a request of its own or nothing.
        let is_told_twice = trick.contains("Content-Length") && trick.to_lowercase().contains("chunked");
        let is_refused = !text.contains("HTTP/1.1 200") || !text.contains("\"red\"");
        assert!(!is_told_twice || is_refused, "{trick}: {text}");
    }
}
