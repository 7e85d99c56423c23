//! WebSockets: a request becomes a connection that carries frames both ways.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum_core::{body::Body, response::Response};
use cellar_core::budget::{Budget, Lease};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header, request::Parts};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::problem::Problem;

/// A connection that carries frames.
pub(crate) type WebSocket = WebSocketStream<Metered>;

/// Bytes of a message that are on nobody's account.
const FREE_BYTES: usize = 64 << 10;

/// A stream whose bytes are on a tenant's account from when they are read until their message is handed on.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TokioIo<Upgraded>,
    lease: Arc<Lease>,
    free: usize,
    /// Messages that were handed on, so that bytes are free again.
    handed_on: Arc<AtomicBool>,
}

/// Account of what is read from a WebSocket.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    lease: Arc<Lease>,
    handed_on: Arc<AtomicBool>,
}

impl Account {
    /// Takes over the bytes that were read so far, which are those of the messages that came.
    pub(crate) fn message(&self) -> Lease {
        self.handed_on.store(true, Ordering::Relaxed);
        self.lease.split()
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        if self.handed_on.swap(false, Ordering::Relaxed) {
            self.free = FREE_BYTES;
        }
        let read = into.filled().len().saturating_sub(before);
        let counted = read.saturating_sub(self.free);
        self.free = self.free.saturating_sub(read);
        // THREAT: T13
        if !self.lease.grow(counted) {
            return Poll::Ready(Err(io::Error::other("the tenant has as many bytes on their way in as it may")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// True if a header has a word among others.
fn has(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
}

/// The subprotocols that a client speaks.
pub(crate) fn speaks(headers: &HeaderMap, protocol: &str) -> bool {
    has(headers, header::SEC_WEBSOCKET_PROTOCOL, protocol)
}

/// Returns true if a request comes from no page of a browser, from a page of this machine, or from one of the host that
/// it is for.
pub(crate) fn is_own_origin(headers: &HeaderMap) -> bool {
    // THREAT: T04
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let Some(origin) = origin.to_str().ok().and_then(|origin| url::Url::parse(origin).ok()) else { return false };
    let is_local = match origin.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let of_url = |url: &url::Url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // A proxy may end TLS: the port that is usual is that of the origin's own scheme.
    let host = host.and_then(|host| url::Url::parse(&format!("{}://{host}", origin.scheme())).ok());
    let is_of_host = host.as_ref().and_then(of_url).is_some_and(|host| of_url(&origin) == Some(host));
    matches!(origin.scheme(), "http" | "https") && (is_local || is_of_host)
}

/// Makes a WebSocket of a request: the answer to it, and the connection, which comes once that was sent. `protocol` is the
/// subprotocol that is spoken, of those that the client speaks; messages may have so many bytes.
///
/// # Errors
/// The request asks for no WebSocket, or comes from a page of another origin.
pub(crate) fn upgrade(
    parts: Parts,
    protocol: Option<&'static str>,
    bytes_max: usize,
    budget: &Budget,
) -> Result<(Response, impl Future<Output = Option<(WebSocket, Account)>> + Send + use<>), Problem> {
    let headers = &parts.headers;
    if !is_own_origin(headers) {
        let detail = "a page of another origin may open no WebSocket here";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin", detail));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let is_asked = has(headers, header::CONNECTION, "upgrade")
        && has(headers, header::UPGRADE, "websocket")
        && headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let accepted = key.filter(|_| is_asked).and_then(|key| HeaderValue::from_str(&key).ok()).ok_or_else(|| {
        let detail = "a WebSocket is here, of version 13, and the request asks for none";
        Problem::new(StatusCode::UPGRADE_REQUIRED, "websocket", detail)
    })?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    if let Some(protocol) = protocol {
        answered.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    let lease = Arc::new(budget.take(0).ok_or_else(super::no_buffers)?);
    let upgraded = hyper::upgrade::on(Request::from_parts(parts, ()));
    let connection = async move {
        let upgraded =
            upgraded.await.inspect_err(|error| tracing::debug!(%error, "a WebSocket did not come about")).ok()?;
        let limits = WebSocketConfig::default().max_message_size(Some(bytes_max)).max_frame_size(Some(bytes_max));
        let account = Account { lease: lease.clone(), handed_on: Arc::default() };
        let stream = TokioIo::new(upgraded);
        let stream = Metered { stream, lease, free: FREE_BYTES, handed_on: account.handed_on.clone() };
        Some((WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await, account))
    };
    Ok((response, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_origins_open_nothing() {
        let check = |origin: &str| {
            let headers = [(header::ORIGIN, origin), (header::HOST, "cellar.example.com")];
            is_own_origin(
                &headers.map(|(name, value)| (name, HeaderValue::from_str(value).expect("text"))).into_iter().collect(),
            )
        };
        for origin in ["https://cellar.example.com", "http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"] {
            assert!(check(origin), "{origin}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "",
            "https://cellar.example.com.evil.example",
            "http://localhost.evil.example",
            "https://cellar.example.com:444",
            "file://localhost",
            "http://127.0.0.1.evil.example",
            "chrome-extension://localhost",
            "https://cellar.example.com@evil.example",
        ] {
            assert!(!check(origin), "{origin}");
        }
        assert!(is_own_origin(&HeaderMap::new()));
    }

    #[test]
    fn only_what_asks_for_a_websocket_becomes_one() {
        let check = |headers: &[(&str, &str)]| {
            let mut request = Request::builder();
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let parts = request.body(()).expect("a request").into_parts().0;
            upgrade(parts, Some("x"), 1, &Budget::new(1)).map(|(response, _)| response)
        };
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let answered = check(&whole).expect("a WebSocket");
        assert_eq!(answered.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            (answered.status().as_u16(), &answered.headers()["sec-websocket-protocol"]),
            (101, &"x".parse().expect("text"))
        );
        for missing in 0..whole.len() {
            let rest: Vec<_> = whole.iter().enumerate().filter(|(n, _)| *n != missing).map(|(_, pair)| *pair).collect();
            let refused = check(&rest).map(drop).expect_err("no WebSocket");
            assert_eq!(refused.status(), StatusCode::UPGRADE_REQUIRED);
        }
    }
}
