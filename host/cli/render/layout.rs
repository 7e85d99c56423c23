//! Layout of lines, so that nothing that a cell prints looks like a line of the transcript's own.
//!
//! Lines of the transcript begin in the first column. What cells print and show is indented, also where a line is broken
//! because the terminal ends, and where a carriage return takes the cell back to the start of its line.

use crate::terminal::{char_width, color_length};

/// Indentation of the text of cells.
pub(crate) const INDENT: &str = "  ";
/// Columns between the places that a tab leads to.
const TAB: usize = 8;

/// Breaks text into lines that fit, and indents them.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Columns of the terminal; `None` for a file, whose lines have no end.
    columns: Option<usize>,
    /// Columns of the line so far; `None` at its start.
    column: Option<usize>,
    /// The cell went back to the start of a line that has text.
    has_returned: bool,
}

impl Layout {
    pub(crate) fn new(columns: Option<usize>) -> Layout {
        Layout { columns, column: None, has_returned: false }
    }

    /// Returns true if the text so far ended with its line.
    pub(crate) fn is_line_start(&self) -> bool {
        self.column.is_none() && !self.has_returned
    }

    /// The next part of a cell's text, which has no controls but lines, tabs, carriage returns and colours.
    pub(crate) fn cell(&mut self, text: &str) -> String {
        self.lay(text)
    }

    /// A whole line of the transcript's own. Only where it is broken is it indented.
    pub(crate) fn own(&mut self, line: &str) -> String {
        self.column = Some(0);
        let laid = self.lay(line);
        self.column = None;
        laid + "\n"
    }

    fn lay(&mut self, text: &str) -> String {
        let mut laid = String::with_capacity(text.len().saturating_add(text.len() / 16).saturating_add(INDENT.len()));
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            if let Some(length) = color_length(rest) {
                laid.push_str(&rest[..length]);
                rest = &rest[length..];
                continue;
            }
            let behind = &rest[character.len_utf8()..];
            match character {
                '\n' => {
                    laid.push('\n');
                    self.column = None;
                    self.has_returned = false;
                }
                // Both together end a line.
                '\r' if behind.starts_with('\n') => {}
                '\r' => {
                    laid.push('\r');
                    self.has_returned = !self.is_line_start();
                    self.column = None;
                }
                _ => self.character(character, &mut laid),
            }
            rest = behind;
        }
        laid
    }

    fn character(&mut self, character: char, laid: &mut String) {
        let mut column = self.column.unwrap_or_else(|| {
            laid.push_str(INDENT);
            INDENT.len()
        });
        let after = |column: usize| match character {
            '\t' => (column / TAB).saturating_add(1).saturating_mul(TAB),
            other => column.saturating_add(char_width(other)),
        };
        if self.columns.is_some_and(|columns| after(column) > columns) {
            laid.push('\n');
            laid.push_str(INDENT);
            column = INDENT.len();
        }
        laid.push(character);
        self.has_returned = false;
        self.column = Some(after(column));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(columns: Option<usize>, parts: &[&str], expected: &str) {
        let mut layout = Layout::new(columns);
        let laid: String = parts.iter().map(|part| layout.cell(part)).collect();
        assert_eq!(laid, expected, "{parts:?}");
    }

    #[test]
    fn every_line_of_a_cell_is_indented() {
        check(None, &["a\n\nb", "c\n"], "  a\n\n  bc\n");
        check(None, &["50 %", "\r51 %\r\n", "done"], "  50 %\r  51 %\n  done");
        check(None, &["\u{1b}[31m✓ 12 ms\u{1b}[0m\n"], "\u{1b}[31m  ✓ 12 ms\u{1b}[0m\n");
    }

    #[test]
    fn a_line_is_broken_where_the_terminal_ends() {
        check(Some(6), &["abcdefg", "hi\n"], "  abcd\n  efgh\n  i\n");
        check(Some(6), &["漢字漢\n"], "  漢字\n  漢\n");
        check(Some(10), &["a\tb\tc"], "  a\tb\n  \tc");
        let spaces = format!("{}✓ 12 ms\n", " ".repeat(18));
        check(Some(20), &[&spaces], &format!("  {}\n  ✓ 12 ms\n", " ".repeat(18)));
    }

    #[test]
    fn a_line_that_was_gone_back_to_is_not_at_its_start() {
        let mut layout = Layout::new(None);
        assert_eq!((layout.cell("\r"), layout.is_line_start()), ("\r".to_owned(), true));
        assert_eq!((layout.cell("a\r"), layout.is_line_start()), ("  a\r".to_owned(), false));
    }

    #[test]
    fn lines_of_the_transcript_begin_in_the_first_column() {
        let mut layout = Layout::new(Some(6));
        assert_eq!(layout.own("✗ abcdef"), "✗ abcd\n  ef\n");
        assert!(layout.is_line_start());
    }
}
