//! The lines of `cellar stdio` over WebSockets, each a message: in sessions of the connection's own, and in one that is kept.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_config::Config;
use cellar_core::{budget::Lease, sync::lock};
use cellar_engine::{Language, Snapshot};
use cellar_hub::{Hub, Line, LineError, LineRead, Lines, OpenRequest, Place, SessionEntry};
use cellar_wire::{Answer as Told, Caller, Open, REQUEST_BYTES_MAX, Refusal};
use futures::{
    SinkExt, StreamExt,
    future::BoxFuture,
    stream::{self, SplitSink},
};
use http::StatusCode;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use crate::{
    http::{
        Call, State,
        websocket::{Account, WebSocket, speaks, upgrade},
    },
    problem::{Answer, Problem},
    tenant::{SentCalls, Tenant, minted, tightened},
};

/// The subprotocol.
pub(crate) const PROTOCOL: &str = "cellar.v1";
/// KiB of events that wait for one client, as they are before they are written as JSON.
const LINES_KIB_MAX: u32 = 8 << 10;
/// Requests of one client that were read and wait to be served.
const LINES_WAITING_MAX: usize = 2;
/// Lines that are sent together.
const LINES_AT_ONCE_MAX: usize = 64;
/// Interval of pings to a client.
const PING: Duration = Duration::from_secs(30);
/// Timeout of sending one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout of sending the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Shortest delay of a client that sends requests too often.
const PAUSE: Duration = Duration::from_millis(10);

/// `GET /v1/stdio`
pub(crate) async fn connect(call: Call) -> Answer {
    connect_to(call, None)
}

/// `GET /v1/sessions/{session}/stdio`, whose session is that of requests that name none.
pub(crate) async fn connect_session(call: Call, session: &str) -> Answer {
    call.tenant.session(session).await?;
    connect_to(call, Some(session.to_owned()))
}

fn connect_to(call: Call, session: Option<String>) -> Answer {
    let Call { state, tenant, grant, parts, .. } = call;
    // A client that names subprotocols knows what it wants.
    let names_some = parts.headers.contains_key(http::header::SEC_WEBSOCKET_PROTOCOL);
    if names_some && !speaks(&parts.headers, PROTOCOL) {
        let detail = format!("the subprotocol here is `{PROTOCOL}`");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "websocket", detail));
    }
    // A message that is only a little too large is answered; one that is much larger ends the connection.
    let (response, connection) =
        upgrade(parts, names_some.then_some(PROTOCOL), REQUEST_BYTES_MAX + (64 << 10), &tenant.buffers)?;
    let room = tenant.socket().ok_or_else(|| {
        Problem::limit("sockets", "so many clients are connected that there is no room for another", PING)
    })?;
    let permit = state.shares.take(&tenant.name)?;
    let passing = Arc::new(Passing { tenant: tenant.clone(), names: Mutex::default() });
    let place = Remote { state: state.clone(), tenant, session, passing: passing.clone() };
    tokio::spawn(async move {
        let mut revoked = std::pin::pin!(grant.revoked());
        tokio::select! {
            socket = connection => if let Some(socket) = socket {
                carry(socket, place, &state, revoked).await;
            },
            () = &mut revoked => {}
        }
        passing.end().await;
        drop((room, permit));
    });
    Ok(response)
}

/// Carries lines both ways, until the client or the server ends the connection, or its token is not valid any more.
async fn carry(
    (socket, account): (WebSocket, Account),
    place: Remote,
    state: &State,
    revoked: impl Future<Output = ()>,
) {
    let (mut sink, mut stream) = socket.split();
    let (tenant, session) = (place.tenant.clone(), place.session.clone());
    let (lines, mut queue) = Lines::new(place, Caller::Remote, LINES_KIB_MAX);
    let (requests, mut waiting) = mpsc::channel::<(io::Result<LineRead>, Lease)>(LINES_WAITING_MAX);
    let admitted = tenant.clone();
    let reading = async move {
        while let Some(Ok(message)) = stream.next().await {
            let bytes: Vec<u8> = match message {
                Message::Text(text) => text.as_bytes().to_vec(),
                Message::Binary(bytes) => bytes.into(),
                Message::Close(_) => return,
                // They are answered below this.
                _ => continue,
            };
            // Who asks too often is not refused: there is nobody else on this connection to be held up.
            while let Err(problem) = admitted.admit() {
                tokio::time::sleep(problem.retry_after().unwrap_or(PAUSE).max(PAUSE)).await;
            }
            let line = if bytes.len() > REQUEST_BYTES_MAX { LineRead::TooLong } else { LineRead::Whole(bytes) };
            if requests.send((Ok(line), account.message())).await.is_err() {
                return;
            }
        }
    };
    let writing = async {
        let mut ping = tokio::time::interval(PING);
        let mut is_over = std::pin::pin!(state.lifecycle.ended());
        let (mut changes, mut told) = (tenant.calls.changes(), SentCalls::default());
        loop {
            // Calls of the session that is kept are answered by whoever comes first.
            if let Some(session) = &session {
                for line in told.news(&tenant.calls, tenant.calls.of_session(session)) {
                    if !send(&mut sink, &line).await {
                        return CloseCode::Abnormal;
                    }
                }
            }
            tokio::select! {
                line = queue.recv() => match line {
                    Some(line) => {
                        if !send_all(&mut sink, line, &mut queue).await {
                            return CloseCode::Abnormal;
                        }
                    }
                    None => return CloseCode::Normal,
                },
                _ = changes.changed(), if session.is_some() => {}
                _ = ping.tick() => {
                    if !send_message(&mut sink, Message::Ping(Vec::new().into())).await {
                        return CloseCode::Abnormal;
                    }
                }
                () = &mut is_over => return CloseCode::Away,
            }
        }
    };
    let code = tokio::select! {
        // The runs of a client that has gone are cancelled, as soon as nobody follows them any more.
        () = reading => CloseCode::Normal,
        code = writing => code,
        // THREAT: T02
        () = revoked => CloseCode::Policy,
        _ = async { lines.serve(stream::poll_fn(move |cx| waiting.poll_recv(cx).map(|next| next.map(|(line, _)| line)))).await.ok(); std::future::pending::<()>().await } => CloseCode::Normal,
    };
    let goodbye = Message::Close(Some(CloseFrame { code, reason: "".into() }));
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, sink.send(goodbye)).await;
}

type Sink = SplitSink<WebSocket, Message>;

async fn send(sink: &mut Sink, line: &Told) -> bool {
    send_message(sink, message(line)).await
}

fn message(line: &Told) -> Message {
    Message::text(serde_json::to_string(line).unwrap_or_default())
}

/// Sends a line, together with those that are queued already.
async fn send_all(sink: &mut Sink, first: Line, queue: &mut mpsc::Receiver<Line>) -> bool {
    let others = std::iter::from_fn(|| queue.try_recv().ok());
    for Line { answer, .. } in std::iter::once(first).chain(others).take(LINES_AT_ONCE_MAX) {
        if !matches!(tokio::time::timeout(SEND_TIMEOUT, sink.feed(message(&answer))).await, Ok(Ok(()))) {
            return false;
        }
    }
    matches!(tokio::time::timeout(SEND_TIMEOUT, sink.flush()).await, Ok(Ok(())))
}

async fn send_message(sink: &mut Sink, message: Message) -> bool {
    matches!(tokio::time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}

/// Sessions that a connection has opened, by the hub's names. They end with the connection.
struct Passing {
    tenant: Arc<Tenant>,
    names: Mutex<Vec<String>>,
}

impl Passing {
    async fn end(&self) {
        let names = std::mem::take(&mut *lock(&self.names));
        for name in names {
            if let Ok(entry) = self.tenant.hub.session(&name) {
                [Language::Python, Language::JavaScript].into_iter().for_each(|language| entry.session.reset(language));
                let _ = self.tenant.hub.close(&name);
            }
        }
    }
}

/// Place of the lines of a client of the server.
struct Remote {
    state: Arc<State>,
    tenant: Arc<Tenant>,
    /// The session that is kept.
    session: Option<String>,
    passing: Arc<Passing>,
}

impl Remote {
    fn is_kept(&self, name: &str) -> bool {
        self.session.as_deref() == Some(name)
    }
}

impl From<Problem> for LineError {
    fn from(problem: Problem) -> LineError {
        let json = problem.json();
        LineError::Refused(Refusal { code: json.code.clone(), message: json.detail.clone(), hint: json.hint.clone() })
    }
}

impl Place for Remote {
    fn hub(&self) -> &Hub {
        &self.tenant.hub
    }

    fn default_session(&self) -> (String, Option<String>) {
        match &self.session {
            Some(name) => (name.clone(), Some(name.clone())),
            None => ("default".to_owned(), None),
        }
    }

    fn session_name(&self, _own: &str) -> String {
        let name = minted("ws");
        lock(&self.passing.names).push(name.clone());
        name
    }

    fn run_id(&self, _own: &str) -> String {
        minted("run")
    }

    fn admit(&self) -> Result<(), LineError> {
        Ok(self.state.lifecycle.admit()?)
    }

    fn session<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SessionEntry, LineError>> {
        Box::pin(async move {
            // One that is kept may be asleep.
            if self.is_kept(name) { Ok(self.tenant.session(name).await?) } else { Ok(self.tenant.hub.session(name)?) }
        })
    }

    fn fork<'a>(
        &'a self,
        from: &'a str,
        state: Option<&'a str>,
        named: Option<String>,
        unnamed: String,
    ) -> BoxFuture<'a, Result<(String, String), LineError>> {
        Box::pin(async move {
            if self.is_kept(from) {
                // That of a session that is kept is kept, by the name that it has for everybody.
                let name = match state {
                    Some(state) => self.tenant.branch(from, state, named).await?,
                    None => self.tenant.fork(from, named).await?,
                };
                return Ok((name.clone(), name));
            }
            let own = named.unwrap_or(unnamed);
            let new = Some(self.session_name(&own));
            let name = match state {
                Some(state) => self.tenant.hub.branch(from, state, new).await?,
                None => self.tenant.hub.fork(from, new).await?,
            };
            Ok((own, name))
        })
    }

    fn close<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), LineError>> {
        Box::pin(async move {
            match self.is_kept(name) {
                true => Ok(self.tenant.hub.put_away(name).await?),
                false => Ok(self.tenant.hub.close(name)?),
            }
        })
    }

    fn reply(&self, call: &str, result: &Result<String, String>) -> bool {
        self.session.as_deref().is_some_and(|session| self.tenant.calls.reply(session, call, result.clone()))
    }

    fn open(&self, open: Open<Config>) -> BoxFuture<'_, Result<OpenRequest, LineError>> {
        Box::pin(async move {
            let snapshot = match open.snapshot {
                Some(file) => Some(self.read_snapshot(file).await?),
                None => None,
            };
            let config = match &open.grants {
                Some(grants) => Some(tightened(self.tenant.hub.file(), grants)?),
                None => None,
            };
            let Open { input, tools, .. } = open;
            self.tenant.make_room("").await?;
            Ok(OpenRequest { config, input, tools, snapshot, ..OpenRequest::default() })
        })
    }

    fn read_snapshot(&self, file: PathBuf) -> BoxFuture<'_, Result<Snapshot, LineError>> {
        Box::pin(async move { Ok(self.tenant.snapshot(&file.to_string_lossy()).await?) })
    }

    fn write_snapshot(&self, snapshot: Snapshot, file: PathBuf) -> BoxFuture<'_, Result<(), LineError>> {
        Box::pin(async move {
            self.tenant.keep_snapshot(snapshot, file.to_string_lossy().into_owned()).await?;
            Ok(())
        })
    }

    fn refusal(&self, error: LineError) -> Refusal {
        let LineError::Hub(hub) = &error else {
            let hint = if let LineError::Refused(refusal) = &error { refusal.hint.clone() } else { None };
            return Refusal { code: error.code().to_owned(), message: error.to_string(), hint };
        };
        let problem = Problem::from(hub.clone());
        if problem.status().is_server_error() {
            // What went wrong here is no business of the caller.
            let json = problem.json();
            return Refusal { code: json.code.clone(), message: json.detail.clone(), hint: json.hint.clone() };
        }
        Refusal { code: error.code().to_owned(), message: error.to_string(), hint: hub.hint() }
    }
}
