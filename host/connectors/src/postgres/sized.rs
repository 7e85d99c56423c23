//! Connections to PostgreSQL whose messages have a bound: a row that is too large is not read.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use cellar_core::budget::{Budget, Lease};
use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Bytes before the contents of a message: its kind, and its length without the kind.
const HEAD_BYTES: usize = 5;
/// Bytes of a message that are on nobody's account.
const FREE_BYTES: usize = 64 << 10;
/// Message of the error that a message beyond the bound is.
pub(super) const TOO_LARGE: &str = "a row of the database has more bytes than a fetch may have";
/// Message of the error that a message beyond the budget is.
pub(super) const NO_BUDGET: &str = "the rows that are read at once have as many bytes as they may";

/// Bound that a connection was closed for.
pub(super) type Fault = Arc<OnceLock<&'static str>>;

/// A stream of messages of a server, of `most` bytes each, on the account of a budget.
#[derive(Debug)]
pub(super) struct Sized<S> {
    stream: S,
    most: usize,
    lease: Lease,
    /// Bound that was reached: a client is told only that its connection was closed.
    fault: Fault,
    /// Head of the message that is being read, as far as it came.
    head: Vec<u8>,
    /// Bytes of its contents that are still to come.
    left: usize,
}

impl<S> Sized<S> {
    pub(super) fn new(stream: S, most: usize, budget: &Budget, fault: Fault) -> io::Result<Sized<S>> {
        let lease = budget.take(0).ok_or_else(|| io::Error::other(NO_BUDGET))?;
        Ok(Sized { stream, most, lease, fault, head: Vec::with_capacity(HEAD_BYTES), left: 0 })
    }

    /// Follows the messages in what was read.
    fn follow(&mut self, mut read: &[u8]) -> io::Result<()> {
        while !read.is_empty() {
            let of_contents = self.left.min(read.len());
            self.left = self.left.saturating_sub(of_contents);
            read = read.get(of_contents..).unwrap_or_default();
            let Some((first, rest)) = read.split_first() else { break };
            if self.head.is_empty() {
                self.lease.shrink(0);
            }
            self.head.push(*first);
            read = rest;
            if let [_, a, b, c, d] = *self.head {
                self.head.clear();
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                self.left = length.saturating_sub(HEAD_BYTES - 1);
                // THREAT: T14
                let fault = match self.left > self.most {
                    true => Some(TOO_LARGE),
                    false if self.lease.grow(self.left.saturating_sub(FREE_BYTES)) => None,
                    false => Some(NO_BUDGET),
                };
                if let Some(fault) = fault {
                    return Err(io::Error::other(*self.fault.get_or_init(|| fault)));
                }
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Sized<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready(self.follow(into.filled().get(before..).unwrap_or_default()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Sized<S> {
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

impl<S: TlsStream + Unpin> TlsStream for Sized<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// Makes connections with TLS whose messages have a bound.
#[derive(Clone)]
pub(super) struct SizedTls<M> {
    pub(super) tls: M,
    pub(super) most: usize,
    pub(super) budget: Budget,
    pub(super) fault: Fault,
}

impl<S, M: MakeTlsConnect<S>> MakeTlsConnect<S> for SizedTls<M>
where
    <M::TlsConnect as TlsConnect<S>>::Future: Send + 'static,
    M::Stream: 'static,
{
    type Stream = Sized<M::Stream>;
    type TlsConnect = SizedTls<M::TlsConnect>;
    type Error = M::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, M::Error> {
        let tls = self.tls.make_tls_connect(domain)?;
        Ok(SizedTls { tls, most: self.most, budget: self.budget.clone(), fault: self.fault.clone() })
    }
}

impl<S, C: TlsConnect<S>> TlsConnect<S> for SizedTls<C>
where
    C::Future: Send + 'static,
    C::Stream: 'static,
{
    type Stream = Sized<C::Stream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Self::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let SizedTls { tls, most, budget, fault } = self;
        tls.connect(stream)
            .map(move |stream| Ok(Sized::new(stream.map_err(Into::into)?, most, &budget, fault)?))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(pieces: usize, sizes: &[u32]) -> Result<usize, String> {
        let mut sent = Vec::new();
        for size in sizes {
            sent.push(b'D');
            sent.extend((size + 4).to_be_bytes());
            sent.extend(std::iter::repeat_n(0, usize::try_from(*size).expect("small").min(1_000)));
        }
        let budget = Budget::new(1 << 20);
        let mut stream = Sized::new(&sent[..], 1_000, &budget, Fault::default()).expect("a stream");
        let (mut all, mut piece) = (0, vec![0; pieces]);
        loop {
            match stream.read(&mut piece).await.map_err(|error| error.to_string())? {
                0 => break,
                count => all += count,
            }
        }
        assert!(budget.used() <= 1_000);
        Ok(all)
    }

    #[tokio::test]
    async fn a_message_beyond_the_bound_is_not_read_wherever_its_head_is_cut() {
        for pieces in [1, 3, 5, 7, 4_096] {
            assert_eq!(read(pieces, &[0, 1, 1_000, 5, 999]).await, Ok(5 * 5 + 2_005));
            assert_eq!(read(pieces, &[3, 1_001]).await, Err(TOO_LARGE.to_owned()));
            assert_eq!(read(pieces, &[u32::MAX - 4]).await, Err(TOO_LARGE.to_owned()));
        }
    }
}
