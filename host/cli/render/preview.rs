//! Long output, shown by its first and its last lines.

use std::collections::VecDeque;

use super::words::more_lines;
use crate::terminal::{char_width, color_length};

/// Longer lines are cut here while they are held back, where rows have no end.
const HELD_LINE_BYTES_MAX: usize = 4_096;

/// Lets the first half of so many rows through at once, holds the rest back, and gives the last half at the end. A line that is wider
/// than the terminal has several rows.
#[derive(Debug)]
pub(crate) struct Preview {
    /// `None` lets everything through.
    lines_max: Option<usize>,
    /// Columns of a row; `None` where a line is a row.
    columns: Option<usize>,
    /// Columns of the last row so far.
    column: usize,
    /// Rows that went through.
    passed: usize,
    /// Last rows that were held back.
    held: VecDeque<Row>,
    /// Rows that were held back and then dropped.
    dropped: usize,
}

/// A row that is held back.
#[derive(Debug, Default)]
struct Row {
    /// Its text, without the end of its line.
    text: String,
    /// The line ends with it.
    ends_line: bool,
}

impl Preview {
    pub(crate) fn new(lines_max: Option<usize>, columns: Option<usize>) -> Preview {
        Preview { lines_max, columns, column: 0, passed: 0, held: VecDeque::new(), dropped: 0 }
    }

    /// Rows that go through as they come.
    fn head(lines_max: usize) -> usize {
        lines_max.div_ceil(2)
    }

    /// Length of the rest of the first row of `text`, with the end of its line, and whether the row is over.
    fn row(&mut self, text: &str) -> (usize, bool) {
        let mut at = 0_usize;
        while let Some(character) = text[at..].chars().next() {
            let length = color_length(&text[at..]);
            if length.is_none() && character == '\n' {
                self.column = 0;
                return (at.saturating_add(1), true);
            }
            let columns = if length.is_none() { char_width(character) } else { 0 };
            let is_over = self.columns.is_some_and(|most| self.column.saturating_add(columns) > most.max(1));
            if is_over && self.column > 0 {
                self.column = 0;
                return (at, true);
            }
            self.column = if character == '\r' { 0 } else { self.column.saturating_add(columns) };
            at = at.saturating_add(length.unwrap_or(character.len_utf8()));
        }
        (at, false)
    }

    /// The part of `text` to show now.
    pub(crate) fn push<'a>(&mut self, text: &'a str) -> &'a str {
        let Some(lines_max) = self.lines_max else { return text };
        let head = Preview::head(lines_max);
        let mut end = 0_usize;
        while self.passed < head && end < text.len() {
            let (length, is_over) = self.row(&text[end..]);
            end = end.saturating_add(length);
            self.passed = self.passed.saturating_add(usize::from(is_over));
        }
        let (now, mut later) = text.split_at(end);
        while !later.is_empty() {
            let (length, is_over) = self.row(later);
            self.hold(&later[..length], is_over, lines_max.saturating_sub(head));
            later = &later[length..];
        }
        now
    }

    /// Keeps a row, or the next part of one. The last one that is held is open.
    fn hold(&mut self, part: &str, is_over: bool, tail: usize) {
        if self.held.is_empty() {
            self.held.push_back(Row::default());
        }
        if let Some(open) = self.held.back_mut() {
            let room = HELD_LINE_BYTES_MAX.saturating_sub(open.text.len());
            let line = part.strip_suffix('\n').unwrap_or(part);
            open.text.push_str(&line[..line.floor_char_boundary(room)]);
            open.ends_line = part.ends_with('\n');
        }
        if is_over {
            self.held.push_back(Row::default());
            // The open one does not count before there is something in it.
            if self.held.len() > tail.saturating_add(1) {
                self.held.pop_front();
                self.dropped = self.dropped.saturating_add(1);
            }
        }
    }

    /// Returns the latest row with text that is held back.
    pub(crate) fn last(&self) -> Option<&str> {
        self.held.iter().rev().map(|row| row.text.as_str()).find(|line| !line.trim().is_empty())
    }

    /// Returns the rest: a line that says how much is not shown, if any, and the last rows.
    pub(crate) fn finish(&mut self) -> (Option<String>, String) {
        let mut rest = String::new();
        for row in self.held.drain(..) {
            rest.push_str(&row.text);
            if row.ends_line {
                rest.push('\n');
            }
        }
        let dropped = std::mem::take(&mut self.dropped);
        (self.passed, self.column) = (0, 0);
        ((dropped > 0).then(|| more_lines(dropped)), rest)
    }
}

/// The first lines of a text that has come whole, and a line that says how much is missing.
pub(crate) fn first_lines(lines: Vec<String>, lines_max: Option<usize>) -> (Vec<String>, Option<String>) {
    let more = lines_max.map_or(0, |max| lines.len().saturating_sub(max));
    // One line more is no longer than the line that stands for it.
    if more <= 1 {
        return (lines, None);
    }
    let shown = lines.len().saturating_sub(more);
    (lines.into_iter().take(shown).collect(), Some(more_lines(more)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines_max: Option<usize>, chunks: &[&str], now: &str, note: Option<&str>, rest: &str) {
        let mut preview = Preview::new(lines_max, Some(80));
        let shown: String = chunks.iter().map(|chunk| preview.push(chunk)).collect();
        assert_eq!(shown, now, "{chunks:?}");
        assert_eq!(preview.finish(), (note.map(str::to_owned), rest.to_owned()), "{chunks:?}");
    }

    #[test]
    fn short_output_is_shown_whole() {
        check(None, &["1\n2\n", "3\n4"], "1\n2\n3\n4", None, "");
        check(Some(4), &["1\n2", "\n3\n4\n"], "1\n2\n", None, "3\n4\n");
        check(Some(4), &["1\n2\n3"], "1\n2\n", None, "3");
        check(Some(4), &["1\n2\n3\n4\n"], "1\n2\n", None, "3\n4\n");
    }

    #[test]
    fn long_output_keeps_its_ends() {
        check(Some(4), &["1\n2\n3\n4\n", "5\n6\n"], "1\n2\n", Some("… 2 more lines"), "5\n6\n");
        let lines: Vec<String> = (1..=100).map(|n| format!("{n}\n")).collect();
        let chunks: Vec<&str> = lines.iter().map(String::as_str).collect();
        check(Some(4), &chunks, "1\n2\n", Some("… 96 more lines"), "99\n100\n");
    }

    #[test]
    fn a_wide_line_has_as_many_rows_as_it_takes() {
        let wide = "z".repeat(8_000);
        let mut preview = Preview::new(Some(10), Some(80));
        assert_eq!(preview.push(&wide), &wide[..400]);
        let (note, rest) = preview.finish();
        assert_eq!((note.as_deref(), rest.len()), (Some("… 89 more lines"), 480));
        // Colours take no columns, and are not cut.
        let mut preview = Preview::new(Some(4), Some(4));
        assert_eq!(preview.push("\u{1b}[31mab漢c\u{1b}[0mde\nfghijklmnopqrst"), "\u{1b}[31mab漢c\u{1b}[0mde\n");
        assert_eq!(preview.finish(), (Some("… 1 more line".to_owned()), "jklmnopqrst".to_owned()));
    }

    #[test]
    fn one_endless_line_is_held_in_bounded_memory() {
        let mut preview = Preview::new(Some(2), None);
        preview.push("1\n");
        for _ in 0..1_000 {
            preview.push(&"ü".repeat(1_000));
        }
        assert!(preview.last().is_some_and(|line| line.len() <= HELD_LINE_BYTES_MAX));
    }
}
