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

    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    /// Waits for what is found, for a time that is long beside the patience.
    async fn is_found(stalls: &Stalls, within: Duration) -> bool {
        tokio::time::timeout(within, stalls.found()).await.is_ok()
    }

    #[tokio::test]
    async fn a_client_that_opens_no_window_is_found_within_a_bound() {
        let frames = || stream::iter((0..3).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))));
        let stalls = Stalls::new(PATIENCE);
        // Nothing is asked of a body while there is no window.
        let mut body = stalls.watch(StreamBody::new(frames()));
        assert!(is_found(&stalls, STALLED).await);
        // A piece was taken, and no further one.
        assert!(body.frame().await.is_some());
        assert!(is_found(&stalls, STALLED).await);
        drop(body);
        assert!(!is_found(&stalls, 10 * PATIENCE).await, "it has ended");
    }

    #[tokio::test]
    async fn a_stream_whose_server_has_nothing_to_say_is_not_stalled() {
        let stalls = Stalls::new(PATIENCE);
        let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut body = stalls.watch(silent);
        assert!(futures::poll!(std::pin::pin!(body.frame())).is_pending());
        assert!(!is_found(&stalls, 10 * PATIENCE).await);
    }
}
