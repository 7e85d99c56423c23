//! Bodies, read in pieces, and companions that live as long as a body is read.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use crate::problem::Problem;

/// Bytes of a file that are read or written at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Timeout of the next piece of a body.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of an unread body that are drained, at most.
const UNWANTED_BYTES_MAX: usize = 256 << 20;
/// Time for which an unread body is drained, at most.
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the next piece of such a body.
const UNWANTED_PIECE_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the next piece of the body of a `what`: `PIECE_BYTES` or more, unless it is the last.
///
/// # Errors
/// The body stalls, or breaks off.
pub(crate) async fn next_piece(body: &mut axum_core::body::Body, what: &str) -> Result<Option<BytesMut>, Problem> {
    let mut gathered = BytesMut::new();
    while gathered.len() < PIECE_BYTES {
        let frame = tokio::time::timeout(PIECE_TIMEOUT, body.frame()).await.map_err(|_| {
            let detail = format!("the {what} did not go on to come for {} seconds", PIECE_TIMEOUT.as_secs());
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body-timeout", detail)
        })?;
        match frame {
            Some(Ok(frame)) => gathered.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Some(Err(_)) => return Err(Problem::bad("the body broke off")),
            None => break,
        }
    }
    Ok(Some(gathered).filter(|piece| !piece.is_empty()))
}

/// Companion of a body, which is dropped with it.
pub(crate) trait Companion<B: Body>: Unpin {
    /// Returns the last bytes to send in the place of an error; none to pass on the error.
    fn last(&mut self, _error: &B::Error) -> Option<Bytes> {
        None
    }

    /// Takes the rest of a body that nobody reads on.
    fn left(&mut self, _rest: B) {}
}

/// A body with its companion.
pub(crate) struct Accompanied<B: Body, C: Companion<B>> {
    /// The body; none when the companion has sent the last bytes.
    body: Option<B>,
    companion: C,
}

impl<B: Body, C: Companion<B>> Accompanied<B, C> {
    pub(crate) fn new(body: B, companion: C) -> Accompanied<B, C> {
        Accompanied { body: Some(body), companion }
    }
}

impl<B: Body<Data = Bytes> + Unpin, C: Companion<B>> Body for Accompanied<B, C> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Accompanied { body: place, companion } = &mut *self;
        let Some(body) = place else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Err(error))) = &polled
            && let Some(last) = companion.last(error)
        {
            *place = None;
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    // The length is told where it is known.
    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(B::size_hint).unwrap_or_default()
    }
}

impl<B: Body, C: Companion<B>> Drop for Accompanied<B, C> {
    fn drop(&mut self) {
        if let Some(rest) = self.body.take() {
            self.companion.left(rest);
        }
    }
}

/// Companion that drains the unread body of a request, within bounds. A client that is still writing finds its
/// connection open, and reads the response when it is done; with a closed connection it may never read it.
pub(crate) struct Unwanted;

impl Companion<Incoming> for Unwanted {
    fn left(&mut self, mut rest: Incoming) {
        if rest.is_end_stream() || rest.size_hint().lower() > UNWANTED_BYTES_MAX as u64 {
            return;
        }
        tokio::spawn(tokio::time::timeout(UNWANTED_TIMEOUT, async move {
            let mut left = UNWANTED_BYTES_MAX;
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(UNWANTED_PIECE_TIMEOUT, rest.frame()).await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    break;
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use futures::{FutureExt, stream};
    use http_body_util::{Full, StreamBody};

    use super::*;

    /// Notes what it is told, and says a last word once.
    struct Witness {
        last: Option<Bytes>,
        left: Rc<RefCell<Vec<&'static str>>>,
    }

    impl<B: Body> Companion<B> for Witness {
        fn last(&mut self, _error: &B::Error) -> Option<Bytes> {
            self.last.take()
        }

        fn left(&mut self, rest: B) {
            self.left.borrow_mut().push(if rest.is_end_stream() { "read" } else { "unread" });
        }
    }

    fn frames(body: &mut (impl Body<Data = Bytes, Error = &'static str> + Unpin)) -> Vec<Result<Bytes, &'static str>> {
        let next = |body: &mut _| BodyExt::frame(body).now_or_never().flatten();
        std::iter::from_fn(|| next(body))
            .map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_body_keeps_its_length_and_hands_over_what_is_left() {
        let left = Rc::new(RefCell::new(Vec::new()));
        let whole =
            || Accompanied::new(Full::new(Bytes::from_static(b"abc")), Witness { last: None, left: left.clone() });
        assert_eq!(whole().size_hint().exact(), Some(3));
        let mut read = whole();
        let piece = BodyExt::frame(&mut read).now_or_never().flatten().and_then(Result::ok);
        assert_eq!(piece.and_then(|frame| frame.into_data().ok()), Some(Bytes::from_static(b"abc")));
        drop(read);
        assert_eq!(*left.borrow(), ["unread", "read"]);
    }

    #[test]
    fn a_last_word_stands_for_an_error_and_nothing_comes_behind() {
        let body = |last: Option<Bytes>| {
            let pieces = [Ok(Frame::data(Bytes::from_static(b"a"))), Err("broken"), Ok(Frame::data(Bytes::new()))];
            Accompanied::new(StreamBody::new(stream::iter(pieces)), Witness { last, left: Rc::default() })
        };
        let word = Bytes::from_static(b"last");
        let mut told = body(Some(word.clone()));
        assert_eq!(frames(&mut told), [Ok(Bytes::from_static(b"a")), Ok(word)]);
        assert!(told.is_end_stream());
        assert_eq!(frames(&mut body(None))[1], Err("broken"));
    }

    #[tokio::test]
    async fn pieces_are_gathered() {
        let large = vec![7; PIECE_BYTES - 1];
        let pieces = [large, vec![1, 2], vec![3]].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        let mut body = axum_core::body::Body::from_stream(stream::iter(pieces));
        let mut lengths = Vec::new();
        while let Ok(Some(piece)) = next_piece(&mut body, "file").await {
            lengths.push(piece.len());
        }
        assert_eq!(lengths, [PIECE_BYTES + 1, 1]);
    }
}
