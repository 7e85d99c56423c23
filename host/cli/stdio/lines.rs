//! Lines of standard input, each of a bounded size.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::{
    check::{Invalid, Problems},
    wire::REQUEST_BYTES_MAX,
};

/// A line, or that there was one.
pub(super) enum LineRead {
    /// Without its end.
    Whole(Vec<u8>),
    /// More than a request may have; it was skipped.
    TooLong,
}

/// See the module's documentation.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    /// What of the next line was read.
    start: Vec<u8>,
    is_too_long: bool,
    count: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines { input: BufReader::new(input), start: Vec::new(), is_too_long: false, count: 0 }
    }

    /// The number of the line that was returned last, from 1.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The next line; `None` at the end. A last line needs no end.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read is kept.
    pub(super) async fn next(&mut self) -> io::Result<Option<LineRead>> {
        loop {
            let read = self.input.fill_buf().await?;
            let (end, is_end) = match read.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end, true),
                None => (read.len(), read.is_empty()),
            };
            let is_over = read.is_empty();
            if self.start.len() + end > REQUEST_BYTES_MAX {
                self.is_too_long = true;
                self.start = Vec::new();
            } else if !self.is_too_long {
                self.start.extend_from_slice(&read[..end]);
            }
            let consumed = end + usize::from(is_end && !is_over);
            self.input.consume(consumed);
            if is_over && self.start.is_empty() && !self.is_too_long {
                return Ok(None);
            }
            if is_end {
                self.count += 1;
                let line = std::mem::take(&mut self.start);
                let was_too_long = std::mem::take(&mut self.is_too_long);
                return Ok(Some(if was_too_long { LineRead::TooLong } else { LineRead::Whole(line) }));
            }
        }
    }
}

/// The refusal of a line that was skipped.
pub(super) fn too_long(number: u64) -> Invalid {
    let mut problems = Problems::default();
    problems.add("$", format_args!("expected at most {REQUEST_BYTES_MAX} bytes"));
    problems.refusal(&format!("line {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(input: &[u8]) -> Vec<Option<usize>> {
        let mut lines = Lines::new(input);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.expect("reads") {
            read.push(match line {
                LineRead::Whole(line) => Some(line.len()),
                LineRead::TooLong => None,
            });
        }
        assert_eq!(lines.count(), read.len() as u64);
        read
    }

    #[tokio::test]
    async fn lines_end_with_a_newline_or_the_input() {
        assert_eq!(read(b"").await, []);
        assert_eq!(read(b"a\n\nbc").await, [Some(1), Some(0), Some(2)]);
        assert_eq!(read(b"a\n").await, [Some(1)]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped() {
        let mut input = vec![b'x'; REQUEST_BYTES_MAX + 1];
        input.extend_from_slice(b"\nnext\n");
        assert_eq!(read(&input).await, [None, Some(4)]);
        input.truncate(REQUEST_BYTES_MAX + 1);
        assert_eq!(read(&input).await, [None]);
    }
}
