//! Responses that last as long as what authorised them: a token that is revoked, or expires, ends what it has opened.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum_core::{
    Error,
    body::Body,
    response::{IntoResponse, Response},
};
use cellar_core::sync::lock;
use futures::task::AtomicWaker;
use http::StatusCode;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::task::AbortHandle;

use super::{connections::Connection, shares::Permit};
use crate::access::{self, Grant};

/// Bytes of a response that is sent at once, whatever becomes of its authorisation.
const SMALL_BYTES: u64 = 256 << 10;
/// Time for which a connection whose client reads nothing may stay open when the response that it carries has ended.
const STALL: Duration = Duration::from_secs(2);

/// Has `work` answer a request for as long as its authorisation lasts, and ends the response with it.
pub(crate) async fn while_granted(
    grant: Grant,
    permit: Option<Permit>,
    connection: Option<Connection>,
    work: impl Future<Output = Response>,
) -> Response {
    // THREAT: T02
    let response = tokio::select! {
        response = work => response,
        () = grant.clone().revoked() => return access::unknown().into_response(),
    };
    let size = response.body().size_hint();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS || size.exact().is_some_and(|size| size <= SMALL_BYTES) {
        return response;
    }
    response.map(|body| Body::new(Lasting::new(body, grant, permit, connection)))
}

/// The body of a response, until its authorisation ends.
struct Lasting {
    shared: Arc<Shared>,
    size: SizeHint,
    watch: AbortHandle,
    _permit: Option<Permit>,
}

#[derive(Default)]
struct Shared {
    /// None when it has ended.
    body: Mutex<Option<Body>>,
    reader: AtomicWaker,
}

impl Lasting {
    fn new(body: Body, grant: Grant, permit: Option<Permit>, connection: Option<Connection>) -> Lasting {
        let size = body.size_hint();
        let shared = Arc::new(Shared { body: Mutex::new(Some(body)), reader: AtomicWaker::new() });
        let ended = shared.clone();
        let watch = tokio::spawn(async move {
            grant.revoked().await;
            // Whatever the body follows or reads is let go of here: a client that reads nothing does not poll it.
            let body = lock(&ended.body).take();
            drop(body);
            ended.reader.wake();
            tokio::time::sleep(STALL).await;
            if let Some(connection) = connection {
                connection.end();
            }
        });
        Lasting { shared, size, watch: watch.abort_handle(), _permit: permit }
    }
}

impl HttpBody for Lasting {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.shared.reader.register(context.waker());
        match &mut *lock(&self.shared.body) {
            Some(body) => Pin::new(body).poll_frame(context),
            // It is cut, so that nobody takes it for whole.
            None => Poll::Ready(Some(Err(Error::new(io::Error::other("the token is not valid any more"))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.shared.body).as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
