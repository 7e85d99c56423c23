//! Output of a program, either limited in size or cut to its end.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use cellar_core::sync::lock;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    async_trait,
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamError, StreamResult},
};

/// Bytes that are taken in one write.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Policy on output beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// Stop the program.
    Whole,
    /// Drop the beginning.
    End,
}

/// One of a program's two output streams. Clones share the stream.
#[derive(Clone, Debug)]
pub(crate) struct Printed {
    keep: Keep,
    bytes_max: usize,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Printed {
    /// Creates a stream that is retained as a whole, up to a maximum size.
    pub(crate) fn whole(bytes_max: usize) -> Printed {
        Printed { keep: Keep::Whole, bytes_max, bytes: Arc::default() }
    }

    /// A stream of which only the last bytes are kept.
    pub(crate) fn end(bytes_max: usize) -> Printed {
        Printed { keep: Keep::End, bytes_max, bytes: Arc::default() }
    }

    /// Takes the retained output, and leaves it empty.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *lock(&self.bytes))
    }

    /// Returns true if the output exceeded the limit.
    pub(crate) fn is_over(&self) -> bool {
        self.keep == Keep::Whole && lock(&self.bytes).len() > self.bytes_max
    }

    /// Appends printed bytes. Returns true if there may be more.
    fn add(&self, printed: &[u8]) -> bool {
        let mut bytes = lock(&self.bytes);
        match self.keep {
            Keep::Whole => {
                // A byte too many is kept, so that it is seen.
                let room = self.bytes_max.saturating_add(1).saturating_sub(bytes.len());
                bytes.extend_from_slice(&printed[..printed.len().min(room)]);
                bytes.len() <= self.bytes_max
            }
            Keep::End => {
                let end = &printed[printed.len().saturating_sub(self.bytes_max)..];
                let excess = bytes.len().saturating_add(end.len()).saturating_sub(self.bytes_max);
                bytes.drain(..excess);
                bytes.extend_from_slice(end);
                true
            }
        }
    }
}

fn too_much() -> io::Error {
    io::Error::other("the output is too long")
}

#[async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Printed {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if self.add(&bytes) { Ok(()) } else { Err(StreamError::Trap(too_much().into())) }
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

impl AsyncWrite for Printed {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(if self.add(bytes) { Ok(bytes.len()) } else { Err(too_much()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_whole_has_a_bound() {
        let printed = Printed::whole(4);
        assert!(printed.add(b"abcd") && !printed.is_over());
        assert!(!printed.add(b"efgh") && printed.is_over());
        assert_eq!(printed.take(), b"abcde");
    }

    #[test]
    fn of_the_other_the_end_is_kept() {
        let printed = Printed::end(4);
        for (more, kept) in [("ab", "ab"), ("cd", "abcd"), ("e", "bcde"), ("0123456789", "6789")] {
            assert!(printed.add(more.as_bytes()));
            assert_eq!(*lock(&printed.bytes), kept.as_bytes());
        }
    }
}
