//! Lines of standard input, each of a bounded size.

use std::io::{self, BufRead};

use cellar_wire::{
    REQUEST_BYTES_MAX,
    check::{Invalid, Problems},
};
use tokio::sync::mpsc;

/// Lines that were read and wait to be served.
const LINES_WAITING_MAX: usize = 16;

/// A line, or that there was one.
pub(super) enum LineRead {
    /// Without its end.
    Whole(Vec<u8>),
    /// More than a request may have; it was skipped.
    TooLong,
}

/// Reads standard input to its end. A thread of its own waits for the caller, so that no task does; it ends with the
/// input, or with the process.
pub(super) fn read() -> mpsc::Receiver<io::Result<LineRead>> {
    let (sender, lines) = mpsc::channel(LINES_WAITING_MAX);
    std::thread::spawn(move || {
        let mut lines = Lines::new(io::stdin().lock());
        while let Some(line) = lines.next().transpose() {
            let is_error = line.is_err();
            if sender.blocking_send(line).is_err() || is_error {
                return;
            }
        }
    });
    lines
}

/// Splits what is read into lines.
struct Lines<R>(R);

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Lines<R> {
        Lines(input)
    }

    /// The next line; `None` at the end. A last line needs no end.
    fn next(&mut self) -> io::Result<Option<LineRead>> {
        let (mut line, mut is_too_long, mut is_begun) = (Vec::new(), false, false);
        loop {
            let read = match self.0.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let (end, is_end) = match newline(read) {
                Some(end) => (end, true),
                None => (read.len(), read.is_empty()),
            };
            if read.is_empty() && !is_begun {
                return Ok(None);
            }
            is_begun = true;
            if line.len() + end > REQUEST_BYTES_MAX {
                is_too_long = true;
                line = Vec::new();
            } else if !is_too_long {
                line.extend_from_slice(&read[..end]);
            }
            let consumed = end + usize::from(is_end && !read.is_empty());
            self.0.consume(consumed);
            if is_end {
                return Ok(Some(if is_too_long { LineRead::TooLong } else { LineRead::Whole(line) }));
            }
        }
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
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

    fn read(input: &[u8]) -> Vec<Option<usize>> {
        let mut lines = Lines::new(input);
        let mut read = Vec::new();
        while let Some(line) = lines.next().expect("reads") {
            read.push(match line {
                LineRead::Whole(line) => Some(line.len()),
                LineRead::TooLong => None,
            });
        }
        read
    }

    #[test]
    fn lines_end_with_a_newline_or_the_input() {
        assert_eq!(read(b""), []);
        assert_eq!(read(b"a\n\nbc"), [Some(1), Some(0), Some(2)]);
        assert_eq!(read(b"a\n"), [Some(1)]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let mut input = vec![b'x'; REQUEST_BYTES_MAX + 1];
        input.extend_from_slice(b"\nnext\n");
        assert_eq!(read(&input), [None, Some(4)]);
        input.truncate(REQUEST_BYTES_MAX + 1);
        assert_eq!(read(&input), [None]);
    }
}
