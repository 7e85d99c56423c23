//! The part of a cell's text that a result shows: its head and its tail.
//!
//! Text of any length is folded in bounded memory. Cuts fall between lines where the text has lines, and between
//! characters where it has none.

/// Bytes of text that a result shows of a cell, and of a run.
pub const WINDOW_BYTES: usize = 50 << 10;
/// Lines of text that a result shows of a cell, and of a run.
pub const WINDOW_LINES: usize = 3_000;

/// Bytes that the line for what was left out may take.
const GAP_BYTES: usize = 100;
/// Bytes of a head and of a tail, so that both and the line between them fit into a window.
const HALF_BYTES: usize = (WINDOW_BYTES - GAP_BYTES) / 2;
/// Lines of a head and of a tail, likewise.
const HALF_LINES: usize = (WINDOW_LINES - 1) / 2;

/// How much of a text a result shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Which bound was passed.
    pub by: TruncatedBy,
    /// Bytes of the whole text.
    pub total_bytes: u64,
    /// Lines of the whole text.
    pub total_lines: u64,
    /// Bytes of it that are shown.
    pub output_bytes: u64,
    /// Lines of it that are shown.
    pub output_lines: u64,
}

/// The bound that made a text too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedBy {
    /// [`WINDOW_BYTES`]
    Bytes,
    /// [`WINDOW_LINES`]
    Lines,
}

impl TruncatedBy {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TruncatedBy::Bytes => "bytes",
            TruncatedBy::Lines => "lines",
        }
    }
}

/// A text as shown, and what is known of the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The text; where some was left out, a line says how much.
    pub text: String,
    /// Present when text was left out.
    pub truncation: Option<Truncation>,
}

/// Head and tail of a text that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// The first bytes, half a window at most.
    head: String,
    /// Whether the head has taken all it will take.
    head_is_full: bool,
    /// The last bytes: a window at least, two at most.
    tail: String,
    /// Bytes seen.
    bytes: u64,
    /// Line ends seen.
    newlines: u64,
}

impl Window {
    /// A window on this text.
    pub(super) fn of(text: &str) -> Window {
        let mut window = Window::default();
        window.push(text);
        window
    }

    /// Takes the next piece of the text.
    pub(super) fn push(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.newlines += count_newlines(text);
        let mut rest = text;
        if !self.head_is_full {
            let room = (WINDOW_BYTES / 2).saturating_sub(self.head.len());
            let (taken, left) = rest.split_at(rest.floor_char_boundary(room));
            self.head.push_str(taken);
            self.head_is_full = !left.is_empty();
            rest = left;
        }
        self.tail.push_str(&rest[rest.ceil_char_boundary(rest.len().saturating_sub(WINDOW_BYTES))..]);
        if self.tail.len() > 2 * WINDOW_BYTES {
            self.shrink();
        }
    }

    /// Adds `text` as lines of its own.
    pub(super) fn push_lines(&mut self, text: &str) {
        if !self.is_empty() && !self.ends_line() {
            self.push("\n");
        }
        self.push(text);
        if !text.ends_with('\n') {
            self.push("\n");
        }
    }

    /// Gives back memory that only a longer text would need.
    pub(super) fn shrink(&mut self) {
        let start = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(WINDOW_BYTES));
        self.tail.drain(..start);
        self.tail.shrink_to(WINDOW_BYTES);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn ends_line(&self) -> bool {
        let last = if self.tail.is_empty() { &self.head } else { &self.tail };
        last.ends_with('\n')
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn total_lines(&self) -> u64 {
        self.newlines + u64::from(!self.is_empty() && !self.ends_line())
    }

    /// The text as a result shows it.
    pub(super) fn shown(&self) -> Shown {
        let retained = (self.head.len() + self.tail.len()) as u64;
        let lines = self.total_lines();
        let too_many_bytes = self.bytes > WINDOW_BYTES as u64;
        if !too_many_bytes && lines <= WINDOW_LINES as u64 {
            return Shown { text: [self.head.as_str(), self.tail.as_str()].concat(), truncation: None };
        }
        let whole = (retained == self.bytes).then(|| [self.head.as_str(), self.tail.as_str()].concat());
        let head = first_lines(whole.as_deref().unwrap_or(&self.head));
        let tail = last_lines(whole.as_deref().unwrap_or(&self.tail));
        let output_bytes = (head.len() + tail.len()) as u64;
        let output_lines = (line_count(head) + line_count(tail)).min(lines);
        let truncation = Truncation {
            by: if too_many_bytes { TruncatedBy::Bytes } else { TruncatedBy::Lines },
            total_bytes: self.bytes,
            total_lines: lines,
            output_bytes,
            output_lines,
        };
        let break_after_head = if head.ends_with('\n') { "" } else { "\n" };
        let gap = gap_line(lines - output_lines, self.bytes - output_bytes);
        Shown { text: format!("{head}{break_after_head}{gap}\n{tail}"), truncation: Some(truncation) }
    }
}

/// The line that stands for what was left out.
fn gap_line(lines: u64, bytes: u64) -> String {
    match lines {
        0 => format!("[… {bytes} bytes left out …]"),
        1 => format!("[… 1 line, {bytes} bytes left out …]"),
        _ => format!("[… {lines} lines, {bytes} bytes left out …]"),
    }
}

/// The first half of a window: whole lines where there are any.
fn first_lines(text: &str) -> &str {
    let cut = &text[..text.floor_char_boundary(HALF_BYTES)];
    if let Some((end, _)) = cut.match_indices('\n').nth(HALF_LINES - 1) {
        return &cut[..=end];
    }
    match cut.rfind('\n') {
        Some(end) => &cut[..=end],
        None => cut,
    }
}

/// The second half of a window: whole lines where there are any.
fn last_lines(text: &str) -> &str {
    let cut = &text[text.ceil_char_boundary(text.len().saturating_sub(HALF_BYTES))..];
    // The line end that closes the text opens no line of its own.
    let body = cut.strip_suffix('\n').unwrap_or(cut);
    if let Some((end, _)) = body.rmatch_indices('\n').nth(HALF_LINES - 1) {
        return &cut[end + 1..];
    }
    match body.find('\n') {
        Some(end) => &cut[end + 1..],
        None => cut,
    }
}

fn count_newlines(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

fn line_count(text: &str) -> u64 {
    count_newlines(text) + u64::from(!text.is_empty() && !text.ends_with('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Window {
        let mut window = Window::default();
        pieces.into_iter().for_each(|piece| window.push(piece));
        window
    }

    #[test]
    fn a_text_that_fits_is_shown_whole() {
        let line = "x".repeat(1023) + "\n";
        let shown = fold(std::iter::repeat_n(line.as_str(), 50)).shown();
        assert_eq!(shown, Shown { text: line.repeat(50), truncation: None });
    }

    #[test]
    fn too_many_bytes_leave_head_and_tail_on_line_boundaries() {
        let lines: Vec<String> = (0..20_000).map(|n| format!("line {n}\n")).collect();
        let shown = fold(lines.iter().map(String::as_str)).shown();
        let truncation = shown.truncation.expect("truncated");
        assert_eq!(truncation.by, TruncatedBy::Bytes);
        assert_eq!(truncation.total_lines, 20_000);
        assert_eq!(truncation.total_bytes, lines.iter().map(|line| line.len() as u64).sum::<u64>());
        assert!(shown.text.starts_with("line 0\nline 1\n"), "head");
        assert!(shown.text.ends_with("line 19999\n"), "tail");
        assert!(shown.text.len() < WINDOW_BYTES + 100);
        let shown_lines: Vec<&str> = shown.text.lines().collect();
        assert_eq!(shown_lines.len() as u64, truncation.output_lines + 1);
        let left_out = truncation.total_lines - truncation.output_lines;
        assert!(shown.text.contains(&format!("[… {left_out} lines, ")), "{left_out}");
        assert!(shown_lines.iter().all(|line| line.starts_with("line ") || line.starts_with("[… ")));
    }

    #[test]
    fn too_many_lines_leave_the_first_and_the_last() {
        let text: String = (0..3_001).map(|n| format!("{n}\n")).collect();
        let shown = fold([text.as_str()]).shown();
        let truncation = shown.truncation.expect("truncated");
        assert_eq!((truncation.by, truncation.output_lines), (TruncatedBy::Lines, 2_998));
        assert!(shown.text.contains("1498\n[… 3 lines, 15 bytes left out …]\n1502\n"));
    }

    #[test]
    fn what_is_shown_fits_into_a_window() {
        for line in ["\n", "ab\n", "0123456789\n", "é日本🦀"] {
            let text = line.repeat(100_000);
            let shown = fold([text.as_str()]).shown().text;
            assert_eq!(fold([shown.as_str()]).shown().truncation, None, "{line:?}");
        }
    }

    #[test]
    fn exactly_the_window_is_whole() {
        let text = "a\n".repeat(WINDOW_LINES);
        assert_eq!(fold([text.as_str()]).shown().truncation, None);
        let text = "a".repeat(WINDOW_BYTES);
        assert_eq!(fold([text.as_str()]).shown(), Shown { text, truncation: None });
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let shown = fold(std::iter::repeat_n("é日本🦀", 20_000)).shown();
        assert!(shown.truncation.is_some());
        assert!(shown.text.starts_with("é日本🦀") && shown.text.ends_with("é日本🦀"));
        assert!(shown.text.len() <= WINDOW_BYTES + 64);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut window = Window::default();
        let megabyte = "0123456789abcdef".repeat(1 << 16);
        for _ in 0..64 {
            window.push(&megabyte);
            assert!(window.head.len() + window.tail.len() <= 3 * WINDOW_BYTES);
        }
        assert_eq!(window.total_bytes(), 64 << 20);
    }

    #[test]
    fn pieces_of_any_size_fold_alike() {
        let text: String = (0..9_000).map(|n| format!("{n}\tü\n")).collect();
        let whole = fold([text.as_str()]).shown();
        let characters: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(fold(characters.iter().map(String::as_str)).shown(), whole);
    }

    #[test]
    fn lines_of_their_own() {
        let mut window = fold(["half"]);
        window.push_lines("whole");
        window.push("rest");
        assert_eq!(window.shown().text, "half\nwhole\nrest");
    }
}
