//! Responses of a connection whose client takes no more of them: with HTTP/2, it opens no window for a stream, and nothing else notices.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use cellar_core::sync::lock;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Instant;

/// Time for which a client may take nothing of a response of which there is more.
pub(super) const STALLED: Duration = Duration::from_secs(60);
/// Looks in that time.
const LOOKS: u32 = 12;
/// Mark of a response that waits for the server, and not for its client.
const SERVER: u64 = u64::MAX;

/// Responses of one connection.
#[derive(Debug)]
pub(super) struct Stalls {
    began: Instant,
    /// Time that a client may take nothing.
    patience: Duration,
    /// Time since when each response waits for its client, in milliseconds.
    open: Mutex<Vec<Weak<AtomicU64>>>,
}

impl Stalls {
    pub(super) fn new(patience: Duration) -> Arc<Stalls> {
        Arc::new(Stalls { began: Instant::now(), patience, open: Mutex::default() })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(SERVER).min(SERVER.saturating_sub(1))
    }

    /// Watches the body of a response.
    pub(super) fn watch<B: Body>(self: &Arc<Stalls>, body: B) -> Watched<B> {
        let since = Arc::new(AtomicU64::new(self.now()));
        let mut open = lock(&self.open);
        open.retain(|each| each.strong_count() > 0);
        open.push(Arc::downgrade(&since));
        Watched { body, since, stalls: self.clone() }
    }

    /// Waits until a client has taken nothing of a response for too long.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn found(&self) {
        // THREAT: T23
        loop {
            tokio::time::sleep(self.patience.checked_div(LOOKS).unwrap_or(self.patience)).await;
            let latest = self.now().saturating_sub(u64::try_from(self.patience.as_millis()).unwrap_or(SERVER));
            let is_stalled = |since: Arc<AtomicU64>| since.load(Ordering::Relaxed) < latest;
            if lock(&self.open).iter().filter_map(Weak::upgrade).any(is_stalled) {
                return;
            }
        }
    }
}

/// A body that notes whether its reader or its writer is waited for.
#[derive(Debug)]
pub(super) struct Watched<B> {
    body: B,
    since: Arc<AtomicU64>,
    stalls: Arc<Stalls>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let since = if polled.is_pending() { SERVER } else { self.stalls.now() };
        self.since.store(since, Ordering::Relaxed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::{BodyExt, Full, StreamBody};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    use super::*;

    /// Serves one response, whose client has a window of so many bytes and reads on if it `reads`. Returns the time after which the
    /// client was found to take nothing; none if it has all.
    async fn served(window: u32, reads: bool, patience: Duration) -> Option<Duration> {
        let (here, there) = tokio::io::duplex(1 << 20);
        let stalls = Stalls::new(patience);
        let watched = stalls.clone();
        let service = service_fn(move |_request: Request<hyper::body::Incoming>| {
            let body = watched.watch(Full::new(Bytes::from(vec![b'x'; 4 << 20])));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(here), service));
        let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(window).initial_connection_window_size(1 << 20);
        let (mut sender, connection) =
            client.handshake::<_, Full<Bytes>>(TokioIo::new(there)).await.expect("a connection");
        tokio::spawn(connection);
        let began = Instant::now();
        let request = Request::get("http://localhost/").body(Full::default()).expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        let read = async {
            match reads {
                true => response.into_body().collect().await.expect("all of it").to_bytes().len(),
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stalls.found() => Some(began.elapsed()),
            length = read => {
                assert_eq!(length, 4 << 20);
                None
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_opens_no_window_is_found_within_a_bound() {
        let patience = Duration::from_millis(200);
        for window in [1, 65_535] {
            let found = tokio::time::timeout(STALLED, served(window, false, patience)).await.expect("within a bound");
            assert!(found.is_some_and(|found| found >= patience), "{window}: {found:?}");
        }
        assert_eq!(served(65_535, true, STALLED).await, None);
    }

    #[tokio::test]
    async fn a_stream_whose_server_has_nothing_to_say_is_not_stalled() {
        let stalls = Stalls::new(Duration::from_millis(50));
        let silent = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut body = stalls.watch(silent);
        assert!(futures::poll!(std::pin::pin!(body.frame())).is_pending());
        assert!(tokio::time::timeout(Duration::from_millis(500), stalls.found()).await.is_err());
    }
}
