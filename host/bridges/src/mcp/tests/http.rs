//! The same server behind a URL: the SDK's service for streamable HTTP, on connections that the tests can cut.

use std::sync::Mutex;

use reqwest::Response as HttpResponse;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

use super::*;
use crate::http::HeaderTemplate;

/// Makes how a server is to behave.
type Config = fn() -> StreamableHttpServerConfig;
type Service = StreamableHttpService<Example, LocalSessionManager>;

/// A variable that every test has, in the place of a secret.
const SECRET: &str = "CARGO_MANIFEST_DIR";

/// Request of a client, without the body.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    headers: Vec<(String, String)>,
}

impl Seen {
    fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }
}

/// A server on a port of this machine; dropped, it and its connections are gone.
struct Served {
    port: u16,
    folder: PathBuf,
    seen: Arc<Mutex<Vec<Seen>>>,
    config: Config,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Served {
    async fn start(config: Config) -> Served {
        let folder = notes();
        let seen = Arc::default();
        let (port, accepting) = accept(0, &folder, &seen, config()).await;
        Served { port, folder, seen, config, accepting }
    }

    /// Cuts all connections and forgets all sessions.
    async fn restart(&mut self) {
        self.stop().await;
        (_, self.accepting) = accept(self.port, &self.folder, &self.seen, (self.config)()).await;
    }

    async fn stop(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    /// A client of it, with a credential.
    fn client(&self, timeout: Duration) -> Arc<Server> {
        let template = HeaderTemplate::parse(&format!("Bearer ${{{SECRET}}}")).expect("a template");
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        let transport = McpTransport::Http { url, headers: vec![("Authorization".to_owned(), template)] };
        Server::new("example".to_owned(), McpServer { transport, timeout, ..options() })
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(
    port: u16,
    folder: &std::path::Path,
    seen: &Arc<Mutex<Vec<Seen>>>,
    config: StreamableHttpServerConfig,
) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let notes = folder.to_owned();
    let service = Service::new(move || Ok(Example { notes: notes.clone() }), Arc::default(), config);
    let seen = seen.clone();
    let accepting = tokio::spawn(async move {
        // Ends, with all connections, when the task is aborted.
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, service.clone(), seen.clone()));
        }
    });
    (port, accepting)
}

/// Serves a connection until it is closed, as far as HTTP/1.1 is needed here.
async fn serve(stream: TcpStream, service: Service, seen: Arc<Mutex<Vec<Seen>>>) {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    while let Some((request, body)) = request(&mut input).await {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let method = request.method.parse().expect("a method");
        let mut asked = reqwest::Request::new(method, "http://127.0.0.1/mcp".parse().expect("a URL"));
        for (name, value) in &request.headers {
            let name: reqwest::header::HeaderName = name.parse().expect("a name");
            asked.headers_mut().append(name, value.parse().expect("a value"));
        }
        *asked.body_mut() = Some(body.into());
        let response = service.handle(asked.try_into().expect("a request")).await;
        if answer(response.map(reqwest::Body::wrap).into(), &mut input, &mut output).await.is_none() {
            break;
        }
    }
}

async fn request(input: &mut BufReader<OwnedReadHalf>) -> Option<(Seen, Vec<u8>)> {
    let mut line = String::new();
    input.read_line(&mut line).await.ok().filter(|count| *count > 0)?;
    let method = line.split(' ').next()?.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        input.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let seen = Seen { method, headers };
    let length = seen.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    input.read_exact(&mut body).await.ok()?;
    Some((seen, body))
}

/// Writes an answer, chunk by chunk as they come; none when the client has gone.
async fn answer(
    mut response: HttpResponse,
    input: &mut BufReader<OwnedReadHalf>,
    output: &mut OwnedWriteHalf,
) -> Option<()> {
    let mut head = format!("HTTP/1.1 {}\r\ntransfer-encoding: chunked\r\n", response.status());
    for (name, value) in response.headers().iter().filter(|(name, _)| *name != "content-length") {
        head += &format!("{name}: {}\r\n", value.to_str().expect("text"));
    }
    output.write_all(format!("{head}\r\n").as_bytes()).await.ok()?;
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk.ok()?,
            // The next request waits for this answer; what ends first is a client that has gone.
            next = input.fill_buf() => { next.ok().filter(|read| !read.is_empty())?; continue }
        };
        let Some(chunk) = chunk else { break };
        output.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.ok()?;
        output.write_all(&chunk).await.ok()?;
        output.write_all(b"\r\n").await.ok()?;
    }
    output.write_all(b"0\r\n\r\n").await.ok()
}

const PATIENCE: Duration = Duration::from_secs(30);

fn sessions() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
}

fn plain_json() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true)
}

#[tokio::test]
async fn every_request_has_the_headers_and_the_session() {
    let served = Served::start(sessions).await;
    let server = served.client(PATIENCE);
    assert_eq!(call(&server, "add", json!({"a": 1, "b": 2.5})).await, Ok(json!({"sum": 3.5})));
    drop(server);
    while !served.seen().iter().any(|seen| seen.method == "DELETE") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seen = served.seen();
    let secret = format!("Bearer {}", env!("CARGO_MANIFEST_DIR"));
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some(&secret)), "{seen:?}");
    let ids: Vec<Option<&str>> = seen.iter().map(|seen| seen.header("mcp-session-id")).collect();
    let first = ids.iter().position(Option::is_some).expect("a session");
    assert!(first > 0 && ids[first..].iter().all(|id| *id == ids[first]), "{ids:?}");
}

#[tokio::test]
async fn what_a_server_repeats_of_its_headers_is_not_told() {
    let served = Served::start(sessions).await;
    let server = served.client(PATIENCE);
    assert_eq!(call(&server, "leak", json!({})).await, Ok(json!("it is ***")));
    assert_eq!(call(&server, "leak", json!({"fail": 1})).await, Err("tool `leak` failed: it is ***".to_owned()));
}

#[tokio::test]
async fn a_server_without_sessions_that_answers_as_plain_json_will_do() {
    let served = Served::start(plain_json).await;
    let server = served.client(PATIENCE);
    assert_eq!(call(&server, "add", json!({"a": 1, "b": 2})).await, Ok(json!({"sum": 3.0})));
    assert_eq!(call(&server, "fail", json!({})).await, Err("tool `fail` failed: on purpose".to_owned()));
    assert!(served.seen().iter().all(|seen| seen.header("mcp-session-id").is_none()));
}

#[tokio::test]
async fn a_changed_list_is_told_on_a_stream_of_its_own() {
    let served = Served::start(sessions).await;
    let server = served.client(PATIENCE);
    assert_eq!(call(&server, "grown", json!({})).await, Err("no grown".to_owned()));
    assert_eq!(call(&server, "grow", json!({})).await, Ok(json!("grown")));
    while call(&server, "grown", json!({})).await == Err("no grown".to_owned()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(served.seen().iter().any(|seen| seen.method == "GET"));
}

#[tokio::test]
async fn a_slow_tool_is_given_up_and_a_dropped_call_cancelled() {
    let served = Served::start(sessions).await;
    let server = served.client(Duration::from_secs(3));
    let cancelled = served.folder.join("cancelled");
    let message = "tool `wait` did not answer within 3 s and was cancelled";
    assert_eq!(call(&server, "wait", json!({})).await, Err(message.to_owned()));
    until(cancelled.clone()).await;
    for note in ["waiting", "cancelled"] {
        std::fs::remove_file(served.folder.join(note)).expect("a note");
    }
    tokio::select! {
        result = call(&server, "wait", json!({})) => panic!("{result:?}"),
        () = until(served.folder.join("waiting")) => {}
    }
    until(cancelled).await;
    assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
}

#[tokio::test]
async fn a_server_that_restarts_has_its_sessions_opened_again() {
    let mut served = Served::start(sessions).await;
    let server = served.client(PATIENCE);
    assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
    served.restart().await;
    assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
}

#[tokio::test]
async fn a_call_whose_connection_breaks_fails_and_the_next_one_works() {
    let mut served = Served::start(sessions).await;
    let server = served.client(Duration::from_secs(3));
    let waiting = served.folder.join("waiting");
    let cut = async {
        until(waiting).await;
        served.restart().await;
    };
    let (result, ()) = futures::join!(call(&server, "wait", json!({})), cut);
    let message = result.expect_err("the answer is lost");
    assert!(message.contains("tool `wait`"), "{message}");
    assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
    served.stop().await;
    let message = call(&server, "text", json!({})).await.expect_err("nobody is there");
    assert_eq!(message, "MCP server `example`: tool `text`: Connection refused (os error 111)");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_taken_in() {
    let cases: [(Config, &str); 2] =
        [(sessions, "the answer is larger than 16 MiB"), (plain_json, "exceeded the maximum size of 16777216 bytes")];
    for (config, words) in cases {
        let served = Served::start(config).await;
        let server = served.client(PATIENCE);
        let message = call(&server, "flood", json!({})).await.expect_err("too large");
        assert!(message.contains("tool `flood`") && message.contains(words), "{message}");
        assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
    }
}
