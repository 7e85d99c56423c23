//! The last line of a text, as a terminal shows it: a carriage return moves the cursor to its start, and further text
//! overwrites it.

/// Bytes of a line that can still be written over. A longer one stays as it is.
const LINE_BYTES_MAX: usize = 16 << 10;

/// A line that has not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    text: String,
    /// Position of the next character.
    cursor: usize,
}

impl Line {
    /// Takes the next piece of a text, and passes on the text that can no longer change.
    pub(super) fn push(&mut self, mut text: &str, mut settled: impl FnMut(&str)) {
        while let Some(place) = text.find('\r') {
            self.push_lines(&text[..place], &mut settled);
            self.cursor = 0;
            text = &text[place.saturating_add(1)..];
        }
        self.push_lines(text, &mut settled);
    }

    /// Takes a piece without carriage returns.
    fn push_lines(&mut self, text: &str, settled: &mut impl FnMut(&str)) {
        let Some(end) = text.find('\n') else { return self.write(text, settled) };
        self.write(&text[..end], settled);
        settled(&self.take());
        // The lines between the first and the last are whole.
        let last = text.rfind('\n').unwrap_or(end);
        settled(&text[end..=last]);
        self.write(&text[last.saturating_add(1)..], settled);
    }

    /// Writes a text without line ends from where the cursor is.
    fn write(&mut self, text: &str, settled: &mut impl FnMut(&str)) {
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
            _ if text.is_empty() => {}
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

    /// Returns the text of the line.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Takes the text of the line, which cannot be overwritten any more.
    pub(super) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let (mut line, mut all) = (Line::default(), String::new());
        pieces.into_iter().for_each(|piece| line.push(piece, |settled| all.push_str(settled)));
        all + line.text()
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
            ("abc\r\x1b[2Kd", "\x1b[2Kd"),
            ("100%|█████|\r  0%|     |", "  0%|     |"),
        ] {
            assert_eq!(shown([text]), expected, "{text:?}");
            let characters: Vec<String> = text.chars().map(String::from).collect();
            if !text.contains(['\x1b', '█', '日']) {
                assert_eq!(shown(characters.iter().map(String::as_str)), expected, "{text:?} in pieces");
            }
        }
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
