//! Long output, shown by its first and its last lines.

use std::collections::VecDeque;

use super::words::more_lines;

/// Longer lines are cut here while they are held back.
const HELD_LINE_BYTES_MAX: usize = 4_096;

/// Lets the first half of so many lines through at once, holds the rest back, and gives the last half at the end.
#[derive(Debug)]
pub(crate) struct Preview {
    /// `None` lets everything through.
    lines_max: Option<usize>,
    /// Line ends that went through.
    passed: usize,
    /// Last lines that were held back, without their ends.
    held: VecDeque<String>,
    /// Lines that were held back and then dropped.
    dropped: usize,
}

impl Preview {
    pub(crate) fn new(lines_max: Option<usize>) -> Preview {
        Preview { lines_max, passed: 0, held: VecDeque::new(), dropped: 0 }
    }

    /// Lines that go through as they come.
    fn head(lines_max: usize) -> usize {
        lines_max.div_ceil(2)
    }

    /// The part of `text` to show now.
    pub(crate) fn push<'a>(&mut self, text: &'a str) -> &'a str {
        let Some(lines_max) = self.lines_max else { return text };
        let head = Preview::head(lines_max);
        let mut end = 0_usize;
        for line in text.split_inclusive('\n') {
            if self.passed >= head {
                break;
            }
            end = end.saturating_add(line.len());
            self.passed = self.passed.saturating_add(usize::from(line.ends_with('\n')));
        }
        let (now, later) = text.split_at(end);
        for part in later.split_inclusive('\n') {
            self.hold(part, lines_max.saturating_sub(head));
        }
        now
    }

    /// Keeps a line, or the next part of one. The last one that is held is open.
    fn hold(&mut self, part: &str, tail: usize) {
        if self.held.is_empty() {
            self.held.push_back(String::new());
        }
        if let Some(open) = self.held.back_mut() {
            let room = HELD_LINE_BYTES_MAX.saturating_sub(open.len());
            let line = part.strip_suffix('\n').unwrap_or(part);
            open.push_str(&line[..line.floor_char_boundary(room)]);
        }
        if part.ends_with('\n') {
            self.held.push_back(String::new());
            // The open one does not count before there is something in it.
            if self.held.len() > tail.saturating_add(1) {
                self.held.pop_front();
                self.dropped = self.dropped.saturating_add(1);
            }
        }
    }

    /// Returns the latest line with text that is held back.
    pub(crate) fn last(&self) -> Option<&str> {
        self.held.iter().rev().map(String::as_str).find(|line| !line.trim().is_empty())
    }

    /// Returns the rest: a line that says how much is not shown, if any, and the last lines.
    pub(crate) fn finish(&mut self) -> (Option<String>, String) {
        let mut rest = String::new();
        let open = self.held.pop_back().unwrap_or_default();
        for line in self.held.drain(..) {
            rest.push_str(&line);
            rest.push('\n');
        }
        rest.push_str(&open);
        let dropped = std::mem::take(&mut self.dropped);
        self.passed = 0;
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
        let mut preview = Preview::new(lines_max);
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
    fn one_endless_line_is_held_in_bounded_memory() {
        let mut preview = Preview::new(Some(2));
        preview.push("1\n");
        for _ in 0..1_000 {
            preview.push(&"ü".repeat(1_000));
        }
        assert!(preview.last().is_some_and(|line| line.len() <= HELD_LINE_BYTES_MAX));
    }
}
