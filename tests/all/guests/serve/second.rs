//! HTTP/2, spoken by a client that resets what it does not want any more, and by curl.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

/// One connection.
struct Client<'a> {
    served: &'a Served,
    sender: SendRequest<Full<Bytes>>,
}

impl Client<'_> {
    async fn connect(served: &Served) -> Client<'_> {
        let stream = tokio::net::TcpStream::connect(&served.address).await.expect("it listens");
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        Client { served, sender }
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: &Value,
    ) -> hyper::Response<hyper::body::Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.served.address))
            .header("authorization", format!("Bearer {}", self.served.token))
            .header("accept", accept)
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a request");
        self.sender.clone().send_request(request).await.expect("an answer")
    }

    async fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.ask(method, path, "application/json", body).await;
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}: {body:?}"))
    }
}

#[test]
fn what_is_reset_is_cancelled_and_the_rest_of_the_connection_goes_on() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = Client::connect(&served).await;
        let session = client.json("POST", "/v1/sessions", &json!({})).await["session"].clone();
        let session = session.as_str().expect("a name");
        let runs = format!("/v1/sessions/{session}/runs");
        let code = "print('up', flush=True)\nwhile True: pass";
        let mut stream = client.ask("POST", &runs, "application/x-ndjson", &cell("py", code)).await;
        assert_eq!((stream.status().as_u16(), stream.version()), (200, hyper::Version::HTTP_2));
        let run = stream.headers()["location"].to_str().expect("a place").to_owned();
        let mut told = String::new();
        while !told.contains("\"up\\n\"") {
            let frame = stream.body_mut().frame().await.expect("more").expect("a frame");
            told.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
        }
        // Many at once on the same connection, while that one runs.
        let many = (0..50).map(|n| {
            let cell = cell("js", &format!("{n} * 2"));
            let client = &client;
            async move { client.json("POST", "/v1/eval", &cell).await["content"][0]["text"].clone() }
        });
        let texts = futures::future::join_all(many).await;
        assert!(
            texts.iter().enumerate().all(|(n, text)| text.as_str().map(str::parse) == Some(Ok(n * 2))),
            "{texts:?}"
        );
        // Dropping the answer resets its stream, and nothing else.
        drop(stream);
        let shown = loop {
            let shown = client.json("GET", &format!("{run}?wait=60"), &json!({})).await;
            if shown["status"] != "running" {
                break shown;
            }
        };
        assert_eq!(shown["result"]["details"]["cells"][0]["error"]["kind"], "interrupted", "{shown}");
    });
}

#[test]
fn curl_speaks_it_as_well() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--http2-prior-knowledge", "-w", " %{http_version}", "-d"])
        .arg(cell("py", "6 * 7").to_string());
    curl.args(["-H", &format!("Authorization: Bearer {}", served.token)])
        .arg(format!("http://{}/v1/eval", served.address));
    let said = String::from_utf8(curl.output().expect("curl starts").stdout).expect("text");
    assert!(said.contains("\"text\":\"42\"") && said.ends_with(" 2"), "{said}");
}

#[test]
fn requests_are_told_to_a_collector_and_logged_as_objects() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = collector.local_addr().expect("an address");
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in collector.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                if let Some(given) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = given.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let _ = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
            let _ = sender.send(serde_json::from_slice::<Value>(&body).expect("JSON"));
        }
    });
    let (_folder, path) = config(&format!("[server]\nlogs = \"json\"\ntraces = \"http://{address}/v1/traces\"\n"));
    let store = tempfile::tempdir().expect("a folder");
    let log = tempfile::NamedTempFile::new().expect("a file");
    let errors = Stdio::from(log.reopen().expect("a handle"));
    let served = Served::start_with(store.path(), &["--config", path.to_str().expect("text")], errors, &[]);
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let header = format!("00-{trace}-{parent}-01");
    served.ask("GET", "/v1/sessions/ses-secret", &[("traceparent", &header)], b"");
    let span = loop {
        let told = received.recv_timeout(PATIENCE).expect("spans");
        let spans = told["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
        if let Some(span) = spans.into_iter().find(|span| span["traceId"] == trace) {
            break span;
        }
    };
    assert_eq!(
        (&span["parentSpanId"], &span["name"]),
        (&json!(parent), &json!("GET /v1/sessions/{session}")),
        "{span}"
    );
    let has = |key: &str, value: Value| {
        span["attributes"].as_array().expect("attributes").contains(&json!({"key": key, "value": value}))
    };
    assert!(has("http.response.status_code", json!({"intValue": "404"})), "{span}");
    assert!(has("cellar.tenant", json!({"stringValue": "own"})), "{span}");
    // Not sampled is not told.
    served.ask("GET", "/v1/tenant", &[("traceparent", &format!("00-{trace}-{parent}-00"))], b"");
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    let lines = std::fs::read_to_string(log.path()).expect("the log");
    let requests: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|line| line["target"] == "cellar_server::requests")
        .collect();
    assert_eq!(requests.len(), 2, "{lines}");
    assert_eq!((&requests[0]["status"], &requests[0]["trace_id"]), (&json!(404), &json!(trace)), "{lines}");
    assert!(!lines.contains("ses-secret"), "{lines}");
}
