//! Connections: their number, protocols, timeouts and ends.

use std::{convert::Infallible, future::Future, io, pin::Pin, sync::Arc, time::Duration};

use axum_core::body::Body;
use http::{HeaderValue, Request, Version, header};
use hyper::{
    body::{Body as HttpBody, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use super::{
    Respond, State, Traces,
    body::{Accompanied, Companion, Unwanted},
    connections::{Connection, Connections, UnderWay},
    stalls::{STALLED, Stalls},
    traces::Seen,
};

/// Timeout of the head of a request, from the moment that the connection is free for it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without requests after which a connection of HTTP/2 is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of pings on one, and time that an answer may take.
const PING: Duration = Duration::from_secs(20);
/// Headers of a request.
const HEADERS_MAX: usize = 100;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Requests of one connection of HTTP/2 that may be under way.
const STREAMS_MAX: u32 = 128;
/// Bytes of a response that are buffered for a stream of HTTP/2.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Pause before another connection is closed where there is still no room.
const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// Pause before the next connection is accepted when this process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Descriptors that are reserved for sessions, guests and stores.
const DESCRIPTORS_BESIDES: u64 = 4_096;
/// Interval of checks of a connection that has sent too few bytes to tell its protocol.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Beginning of a connection of HTTP/2. Nothing of HTTP/1 begins with as many of its bytes.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PREFACE_TOLD: usize = 3;

/// Listening state: that of the server, and the traces of its requests.
pub(crate) struct Listening {
    pub(crate) state: Arc<State>,
    pub(crate) traces: Traces,
    /// Connections that may be open; more wait.
    pub(crate) connections_max: usize,
}

/// Has `server` answer connections until the server is over and they have ended.
pub(crate) async fn accept(listening: Arc<Listening>, server: impl Respond, listener: TcpListener) {
    let most = connections_max(listening.connections_max);
    let permits = Arc::new(Semaphore::new(most));
    let open = Connections::new(most, listening.state.access.tenants());
    let mut connections = JoinSet::new();
    let mut is_over = std::pin::pin!(listening.state.lifecycle.ended());
    loop {
        let accepted = tokio::select! {
            () = &mut is_over => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let room = async {
                    loop {
                        if let Ok(permit) = permits.clone().try_acquire_owned() {
                            return permit;
                        }
                        open.make_room();
                        let freed = tokio::time::timeout(ROOM_PAUSE, permits.clone().acquire_owned()).await;
                        if let Ok(Ok(permit)) = freed {
                            return permit;
                        }
                    }
                };
                let permit = tokio::select! {
                    () = &mut is_over => break,
                    permit = room => permit,
                };
                let (listening, server, connection) = (listening.clone(), server.clone(), open.open());
                connections.spawn(async move {
                    tokio::select! {
                        () = serve(listening, server, stream, &connection) => {}
                        () = connection.ended() => {}
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                open.make_room();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Returns how many connections this process has descriptors for, at most `most`. Raises the limit of descriptors if it
/// can.
fn connections_max(most: usize) -> usize {
    let needed = u64::try_from(most).unwrap_or(u64::MAX).saturating_mul(2).saturating_add(DESCRIPTORS_BESIDES);
    let limit = getrlimit(Resource::Nofile);
    let there = limit.current.unwrap_or(u64::MAX);
    let wanted = limit.maximum.map_or(needed, |maximum| needed.min(maximum));
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    let there = if there < wanted && setrlimit(Resource::Nofile, raised).is_ok() { wanted } else { there };
    let room = usize::try_from(there.saturating_sub(DESCRIPTORS_BESIDES.min(there / 2)) / 2).unwrap_or(usize::MAX);
    if room < most {
        tracing::warn!(room, most, "this process may open too few files for as many connections as it may have");
    }
    most.min(room.max(1))
}

/// Serves a connection to its end.
async fn serve(listening: Arc<Listening>, server: impl Respond, stream: TcpStream, connection: &Connection) {
    // Small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    let is_second = match tokio::time::timeout(HEAD_TIMEOUT, speaks_second(&stream)).await {
        Ok(Ok(is_second)) => is_second,
        // It has said nothing, or has gone.
        _ => return,
    };
    let is_over = listening.state.lifecycle.ended();
    let stalls = Stalls::new(STALLED);
    let service = {
        let (connection, stalls) = (connection.clone(), stalls.clone());
        service_fn(move |request: Request<Incoming>| {
            let under_way = connection.begin();
            let stalls = (request.version() == Version::HTTP_2).then(|| stalls.clone());
            let answered = answer(listening.clone(), server.clone(), (connection.clone(), under_way), request);
            async {
                let answered = answered.await?;
                Ok::<_, Infallible>(match stalls {
                    Some(stalls) => answered.map(|body| Body::new(stalls.watch(body))),
                    None => answered,
                })
            }
        })
    };
    let ended = if is_second {
        let mut settings = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        settings
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .max_send_buf_size(SEND_BYTES_MAX)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let served = settings.serve_connection(TokioIo::new(stream), service);
        let done = async {
            tokio::select! {
                () = is_over => {}
                () = connection.idle_for(IDLE_TIMEOUT) => {}
            }
        };
        tokio::select! {
            ended = ended(served, done, |served| served.graceful_shutdown()) => ended,
            // The connection goes with the stream: there is no other way to be rid of what waits for its client.
            () = stalls.found() => return,
            () = unread(connection) => return,
        }
    } else {
        let mut settings = hyper::server::conn::http1::Builder::new();
        settings
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX);
        let served = settings.serve_connection(TokioIo::new(stream), service).with_upgrades();
        ended(served, is_over, |served| served.graceful_shutdown()).await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// Waits until a connection has been idle for too long, and was not closed since: what is left of its responses is not read.
async fn unread(connection: &Connection) {
    connection.idle_for(IDLE_TIMEOUT.saturating_add(STALLED)).await;
}

/// Waits for the end of a connection, which is asked to end when `done` comes.
async fn ended<C: Future<Output = Result<(), hyper::Error>>>(
    served: C,
    done: impl Future<Output = ()>,
    end: impl FnOnce(Pin<&mut C>),
) -> Result<(), hyper::Error> {
    let mut served = std::pin::pin!(served);
    tokio::select! {
        ended = served.as_mut() => ended,
        () = done => {
            end(served.as_mut());
            served.await
        }
    }
}

/// Returns true if a connection begins with the preface of HTTP/2.
async fn speaks_second(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE_TOLD];
    loop {
        stream.readable().await?;
        let there = match stream.peek(&mut first).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            there => there?,
        };
        if there == 0 || first[..there] != PREFACE[..there] {
            return Ok(false);
        }
        if there == PREFACE_TOLD {
            return Ok(true);
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Connection that carries a request, as an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    connection: Connection,
    /// True where nothing else is carried meanwhile.
    is_alone: bool,
}

impl Carried {
    /// Notes the tenant of the request, and returns the connection if it may be closed with the request.
    pub(crate) fn of_tenant(carried: Option<&Carried>, tenant: &str) -> Option<Connection> {
        let Carried { connection, is_alone } = carried?;
        connection.belongs_to(tenant);
        is_alone.then(|| connection.clone())
    }
}

async fn answer(
    listening: Arc<Listening>,
    server: impl Respond,
    (connection, under_way): (Connection, UnderWay),
    request: Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    // A stream of HTTP/2 says itself that the rest of its body is not wanted.
    let mut request = match request.version() {
        Version::HTTP_2 => request.map(Body::new),
        _ => request.map(|body| Body::new(Accompanied::new(body, Unwanted))),
    };
    // HTTP/2 has the host elsewhere.
    let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let (Some(host), false) = (host, request.headers().contains_key(header::HOST)) {
        request.headers_mut().insert(header::HOST, host);
    }
    let carried = Carried { connection, is_alone: request.version() != Version::HTTP_2 };
    request.extensions_mut().insert(carried);
    let seen = Seen::of(&request);
    let response = server.respond(request).await;
    let (route, took) = listening.traces.told(seen, &response);
    listening.state.metrics.took(route, took);
    // It is under way until the last of the answer was read, or was not wanted any more.
    Ok(response.map(|body| Body::new(Accompanied::new(body, under_way))))
}

impl<B: HttpBody> Companion<B> for UnderWay {}
