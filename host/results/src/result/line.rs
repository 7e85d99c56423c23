//! The last lines of a text, as a terminal shows them: a carriage return moves the cursor to the start of its line, escapes
//! of ECMA-48 move it and erase, and further text overwrites what is there.

use std::{borrow::Cow, collections::VecDeque};

/// Bytes of a line that can still be written over. A longer one stays as it is.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Lines that the cursor can still reach: progress bars stand below one another.
const ROWS_MAX: usize = 16;
/// Bytes of an escape that is not whole yet.
const ESCAPE_BYTES_MAX: usize = 16;

/// The lines that can still be overwritten, of which the last has not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The lines above the one with the cursor, that one, and those below.
    above: VecDeque<String>,
    text: String,
    below: VecDeque<String>,
    /// Position of the next character, in bytes.
    cursor: usize,
    /// Start of an escape that is not whole.
    escape: String,
}

impl Line {
    /// Takes the next piece of a text, and passes on the text that can no longer change.
    pub(super) fn push(&mut self, text: &str, mut settled: impl FnMut(&str)) {
        let joined;
        let mut text = if self.escape.is_empty() {
            text
        } else {
            joined = std::mem::take(&mut self.escape) + text;
            &joined
        };
        while let Some(place) = text.find(['\r', '\x1b']) {
            self.push_lines(&text[..place], &mut settled);
            let rest = &text[place..];
            if let Some(behind) = rest.strip_prefix('\r') {
                self.cursor = 0;
                text = behind;
                continue;
            }
            match escape(rest) {
                Escape::Cursor { length, action, count } => {
                    self.act(action, count);
                    text = &rest[length..];
                }
                Escape::Partial => {
                    rest.clone_into(&mut self.escape);
                    return;
                }
                Escape::Other(length) => {
                    self.write(&rest[..length], &mut settled);
                    text = &rest[length..];
                }
            }
        }
        self.push_lines(text, &mut settled);
    }

    /// Does what an escape says.
    fn act(&mut self, action: char, count: Option<usize>) {
        let times = count.unwrap_or(1).max(1);
        match action {
            'A' | 'F' => (0..times.min(ROWS_MAX)).for_each(|_| self.go_up()),
            'B' | 'E' => (0..times.min(ROWS_MAX)).for_each(|_| self.go_down()),
            'C' => self.cursor = self.position(self.column().saturating_add(times)),
            'D' => self.cursor = self.position(self.column().saturating_sub(times)),
            'G' => self.cursor = self.position(times.saturating_sub(1)),
            'J' if count.unwrap_or(0) == 0 => {
                self.text.truncate(self.cursor);
                self.below.clear();
            }
            'K' => match count.unwrap_or(0) {
                0 => self.text.truncate(self.cursor),
                1 => {
                    let end = self.cursor.min(self.text.len());
                    let blanks = " ".repeat(self.text[..end].chars().count());
                    self.text.replace_range(..end, &blanks);
                    self.cursor = blanks.len();
                }
                _ => {
                    self.cursor = self.column();
                    self.text.clear();
                }
            },
            _ => {}
        }
        if matches!(action, 'E' | 'F') {
            self.cursor = 0;
        }
    }

    fn go_up(&mut self) {
        if let Some(line) = self.above.pop_back() {
            let column = self.column();
            self.below.push_front(std::mem::replace(&mut self.text, line));
            self.cursor = self.position(column);
        }
    }

    fn go_down(&mut self) {
        if let Some(line) = self.below.pop_front() {
            let column = self.column();
            self.above.push_back(std::mem::replace(&mut self.text, line));
            self.cursor = self.position(column);
        }
    }

    /// Column of the cursor, in characters.
    fn column(&self) -> usize {
        let end = self.cursor.min(self.text.len());
        let beyond = self.cursor.saturating_sub(end);
        self.text[..end].chars().count().saturating_add(beyond)
    }

    /// Position of a column in bytes; beyond the end of the line, there are blanks in between. No line gets that long by it.
    fn position(&self, column: usize) -> usize {
        match self.text.char_indices().nth(column) {
            Some((place, _)) => place,
            None => {
                let beyond = column.saturating_sub(self.text.chars().count());
                self.text.len().saturating_add(beyond).min(LINE_BYTES_MAX)
            }
        }
    }

    /// Takes a piece without carriage returns and escapes.
    fn push_lines(&mut self, mut text: &str, settled: &mut impl FnMut(&str)) {
        // Of many lines only the last can still be reached.
        if let Some((start, _)) = text.rmatch_indices('\n').nth(ROWS_MAX) {
            let (first, rest) = text.split_at(text.find('\n').unwrap_or(start));
            self.write(first, settled);
            settled(&self.take());
            let last = start.saturating_sub(first.len()).saturating_add(1);
            settled(&rest[..last]);
            text = &rest[last..];
        }
        while let Some(end) = text.find('\n') {
            self.write(&text[..end], settled);
            text = &text[end.saturating_add(1)..];
            self.end_line(settled);
        }
        self.write(text, settled);
    }

    fn end_line(&mut self, settled: &mut impl FnMut(&str)) {
        let next = self.below.pop_front().unwrap_or_default();
        self.above.push_back(std::mem::replace(&mut self.text, next));
        self.cursor = 0;
        if self.above.len() >= ROWS_MAX
            && let Some(mut line) = self.above.pop_front()
        {
            line.push('\n');
            settled(&line);
        }
    }

    /// Writes a text without line ends from where the cursor is.
    fn write(&mut self, text: &str, settled: &mut impl FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if self.cursor > self.text.len() {
            let blanks = self.cursor.saturating_sub(self.text.len());
            self.text.extend(std::iter::repeat_n(' ', blanks));
        }
        let end = self.cursor.saturating_add(text.len());
        let below = self.text.get(self.cursor..end.min(self.text.len()));
        // What is not one cell a byte may be erased as a whole: escapes of terminals mostly do so themselves.
        let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        match below {
            Some("") => self.text.push_str(text),
            Some(below) if is_plain(below) && is_plain(text) => {
                let (over, beyond) = text.split_at(below.len());
                self.text.replace_range(self.cursor..self.cursor.saturating_add(over.len()), over);
                self.text.push_str(beyond);
            }
            _ => {
                self.text.truncate(self.cursor);
                self.text.push_str(text);
            }
        }
        self.cursor = end;
        if self.text.len() > LINE_BYTES_MAX {
            settled(&self.take());
        }
    }

    /// Returns the text of the lines.
    pub(super) fn text(&self) -> Cow<'_, str> {
        if self.above.is_empty() && self.below.is_empty() && self.escape.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let mut whole = String::with_capacity(self.len());
        for line in &self.above {
            whole.push_str(line);
            whole.push('\n');
        }
        whole.push_str(&self.text);
        for line in &self.below {
            whole.push('\n');
            whole.push_str(line);
        }
        whole.push_str(&self.escape);
        Cow::Owned(whole)
    }

    /// Bytes of the text.
    pub(super) fn len(&self) -> usize {
        let others: usize = self.above.iter().chain(&self.below).map(|line| line.len().saturating_add(1)).sum();
        self.text.len().saturating_add(others).saturating_add(self.escape.len())
    }

    /// Lines of the text, the last of which may not have ended.
    pub(super) fn lines(&self) -> u64 {
        self.text().lines().count() as u64
    }

    /// Returns true if there is no text.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the text of the lines, which cannot be overwritten any more.
    pub(super) fn take(&mut self) -> String {
        let text = self.text().into_owned();
        *self = Line::default();
        text
    }
}

/// Beginning of a text that starts with the escape character.
enum Escape {
    /// An escape that moves the cursor or erases, and its parameter.
    Cursor { length: usize, action: char, count: Option<usize> },
    /// The start of one that goes on in the next piece.
    Partial,
    /// Anything else, which stays as it is.
    Other(usize),
}

fn escape(text: &str) -> Escape {
    let Some(rest) = text.get(1..).filter(|rest| !rest.is_empty()) else { return Escape::Partial };
    let Some(parameters) = rest.strip_prefix('[') else { return Escape::Other(1) };
    let Some(end) = parameters.find(|character: char| !(character.is_ascii_digit() || matches!(character, ';' | '?')))
    else {
        return if text.len() < ESCAPE_BYTES_MAX { Escape::Partial } else { Escape::Other(1) };
    };
    let (count, action) = (&parameters[..end], parameters[end..].chars().next().unwrap_or_default());
    let length = end.saturating_add(2).saturating_add(action.len_utf8());
    match action {
        'A'..='G' | 'J' | 'K' if count.len() < 6 => Escape::Cursor { length, action, count: count.parse().ok() },
        // Whether the cursor is seen.
        'h' | 'l' if count == "?25" => Escape::Cursor { length, action, count: None },
        _ => Escape::Other(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let (mut line, mut all) = (Line::default(), String::new());
        pieces.into_iter().for_each(|piece| line.push(piece, |settled| all.push_str(settled)));
        all + &line.text()
    }

    #[test]
    fn a_carriage_return_goes_back_to_the_start_of_its_line() {
        for (text, expected) in [
            ("a\rb", "b"),
            ("abc\rX", "Xbc"),
            ("abc\rX\n", "Xbc\n"),
            ("progress 1\rprogress 2\rprogress 3\ndone", "progress 3\ndone"),
            ("first\nsecond\rS\nthird", "first\nSecond\nthird"),
            ("a\r\nb\r\n", "a\nb\n"),
            ("abc\r", "abc"),
            ("\r\r", ""),
            ("wide 日本\rx", "xide 日本"),
            ("日本\rx", "x"),
            ("abc\r\x1b[2Kd", "d"),
            ("100%|█████|\r  0%|     |", "  0%|     |"),
            ("outer 0\n\rinner 0\x1b[A\n\rinner 1\x1b[A\router 1\n\n", "outer 1\ninner 1\n"),
            ("a\nb\nc\x1b[2A\rX\x1b[2BY", "X\nb\ncY"),
            ("a\x1b[5A\rb", "b"),
            ("step 1\x1b[2K\x1b[1Gstep 2", "step 2"),
            ("abcdef\x1b[3D\x1b[K", "abc"),
            ("a\x1b[3Cb", "a   b"),
            ("a\nb\nc\x1b[2F\x1b[J-", "-"),
            ("\x1b[?25lbusy\x1b[?25h", "busy"),
            ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ] {
            assert_eq!(shown([text]), expected, "{text:?}");
            let characters: Vec<String> = text.chars().map(String::from).collect();
            if !text.contains(['█', '日']) {
                assert_eq!(shown(characters.iter().map(String::as_str)), expected, "{text:?} in pieces");
            }
        }
    }

    #[test]
    fn lines_far_above_stay_as_they_are() {
        let text = (0..100).map(|number| format!("{number}\n")).collect::<String>();
        assert_eq!(shown([text.as_str()]), text);
        assert_eq!(shown(text.split_inclusive('\n')), text);
        // The cursor reaches the first of those that are kept, and no further.
        let up = shown([text.as_str(), "\x1b[99A\rX"]);
        assert_eq!(up.lines().filter(|line| line.contains('X')).count(), 1);
        assert_eq!(up.lines().count(), 100);
    }

    #[test]
    fn a_long_line_is_handed_on() {
        let mut line = Line::default();
        let mut bytes = 0;
        for _ in 0..1_000 {
            line.push(&"x".repeat(1_000), |settled| bytes += settled.len());
            assert!(line.text().len() <= LINE_BYTES_MAX);
        }
        assert_eq!(bytes + line.text().len(), 1_000_000);
    }
}
