//! The part of a cell's text that a result shows: its head and its tail.
//!
//! Text of any length is folded in bounded memory. Cuts fall between lines, and between characters where whole lines would
//! fill less than half of the room.

use std::borrow::Cow;

use super::{
    OutputPolicy,
    line::Line,
    tokens::{self, COUNTED_BYTES_MAX},
};

/// Bytes of text that a result shows of a cell, and of a run.
pub const WINDOW_BYTES: usize = 50 << 10;
/// Lines of text that a result shows of a cell, and of a run.
pub const WINDOW_LINES: usize = 3_000;

/// Number of bytes of the end of a growing text that are retained for live readers.
pub const LIVE_TAIL_BYTES: usize = 100 << 10;

/// Maximum length in bytes of the line for an omitted part, without the reference to the rest.
const GAP_BYTES: usize = 100;
/// Maximum length in bytes of the reference to the rest.
const PLACE_BYTES_MAX: usize = 8 << 10;
/// Maximum length in bytes of a repeated headline; longer ones are cut.
const HEADLINE_BYTES_MAX: usize = 256;

/// Part of the window that a text may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) bytes: usize,
    pub(super) lines: usize,
}

impl Share {
    /// The whole window.
    pub(super) const WHOLE: Share = Share { bytes: WINDOW_BYTES, lines: WINDOW_LINES };

    /// Lines of a head and of a tail, without the lines for the omitted part and for a headline.
    fn half_lines(self) -> usize {
        (self.lines.saturating_sub(1) / 2).max(1)
    }
}

/// Divides a room among texts of these sizes: those that need little get it, the others the same each.
pub(super) fn divide(room: usize, sizes: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|place| sizes[*place]);
    let mut shares = vec![0; sizes.len()];
    let mut left = room;
    for (done, place) in order.iter().enumerate() {
        let equal = left.checked_div(sizes.len().saturating_sub(done)).unwrap_or(0);
        shares[*place] = sizes[*place].min(equal);
        left = left.saturating_sub(shares[*place]);
    }
    shares
}

/// Truncation of a text in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Limit that was exceeded.
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

/// Limit that a text exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TruncatedBy {
    /// [`WINDOW_BYTES`]
    Bytes,
    /// [`WINDOW_LINES`]
    Lines,
    /// [`TOKENS_MAX`](super::TOKENS_MAX)
    Tokens,
}

impl TruncatedBy {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TruncatedBy::Bytes => "bytes",
            TruncatedBy::Lines => "lines",
            TruncatedBy::Tokens => "tokens",
        }
    }
}

/// A text as shown, and information on the omitted rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Text; where a part was omitted, a line states its size.
    pub text: String,
    /// Truncation, if a part was omitted.
    pub truncation: Option<Truncation>,
    /// Lines in it that stand for omitted parts.
    pub(super) gaps: Vec<Gap>,
}

impl Shown {
    /// Creates a text without omitted parts.
    pub(super) fn whole(text: String) -> Shown {
        Shown { text, truncation: None, gaps: Vec::new() }
    }
}

/// A line that stands for an omitted part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Byte offset at which the line begins.
    pub(super) at: u64,
    /// Number of lines that it stands for, minus itself.
    pub(super) lines: i64,
    /// Number of bytes that it stands for, minus its own.
    pub(super) bytes: i64,
}

/// Head and tail of a text that arrives in pieces, as a terminal shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    settled: Settled,
    /// The line that it ends with.
    line: Line,
}

/// Head and tail of the text that can no longer be overwritten.
#[derive(Clone, Debug, Default)]
struct Settled {
    policy: OutputPolicy,
    /// The first bytes, as many as the policy shows at most.
    head: String,
    /// True if the head is full.
    head_is_full: bool,
    /// The last bytes: [`LIVE_TAIL_BYTES`] at least, twice that at most.
    tail: String,
    /// Bytes seen.
    bytes: u64,
    /// Line ends seen.
    newlines: u64,
    /// Lines in it that stand for parts that were omitted before.
    gaps: Vec<Gap>,
    /// Headlines in it, with the offset of each.
    headlines: Vec<(u64, String)>,
}

impl Window {
    pub(super) fn new(policy: OutputPolicy) -> Window {
        Window { settled: Settled { policy, ..Settled::default() }, line: Line::default() }
    }

    /// A window on this text.
    pub(super) fn of(text: &str) -> Window {
        let mut window = Window::default();
        window.push(text);
        window
    }

    /// Takes the next piece of the text.
    pub(super) fn push(&mut self, text: &str) {
        self.line.push(text, |settled| self.settled.push(settled));
    }

    /// Takes a text with lines that stand for omitted parts.
    pub(super) fn push_shown(&mut self, text: &str, gaps: impl IntoIterator<Item = Gap>) {
        self.settle();
        self.settled.push_shown(text, gaps);
    }

    /// Marks the next line as a headline of the text below it. If the line is omitted, but some of the text below it is
    /// shown, the line is repeated.
    pub(super) fn headline(&mut self, line: &str) {
        self.settle();
        let line = line[..line.floor_char_boundary(HEADLINE_BYTES_MAX)].to_owned();
        self.settled.headlines.push((self.settled.bytes, line));
    }

    /// Adds `text` as lines of its own.
    pub(super) fn push_lines(&mut self, text: &str) {
        if !self.is_empty() && !self.ends_line() {
            self.settle();
            self.push("\n");
        }
        self.push(text);
        if !text.ends_with('\n') {
            self.push("\n");
        }
    }

    /// Settles the current line: it can no longer be overwritten.
    fn settle(&mut self) {
        let line = self.line.take();
        self.settled.push(&line);
    }

    /// Returns the settled text, including the current line, as if the text ended here.
    fn whole(&self) -> Cow<'_, Settled> {
        if self.line.is_empty() {
            return Cow::Borrowed(&self.settled);
        }
        let mut whole = self.settled.clone();
        whole.push(&self.line.text());
        Cow::Owned(whole)
    }

    /// Bytes of the text that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.settled.kept_bytes().saturating_add(self.line.len())
    }

    /// Gives back memory that only a longer text would need.
    pub(super) fn shrink(&mut self) {
        self.settle();
        self.settled.shrink();
    }

    /// Returns the end of the text, at most `bytes` long, from the start of a line if possible.
    pub(super) fn live_tail(&self, bytes: usize) -> String {
        self.whole().live_tail(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.settled.bytes == 0 && self.line.is_empty()
    }

    fn ends_line(&self) -> bool {
        if self.line.is_empty() { self.settled.ends_line() } else { self.line.text().ends_with('\n') }
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.settled.bytes.saturating_add(self.line.len() as u64)
    }

    pub(super) fn total_lines(&self) -> u64 {
        if self.line.is_empty() {
            return self.settled.total_lines();
        }
        self.settled.newlines.saturating_add(self.line.lines())
    }

    /// The text as a result shows it. `place` tells where all of it is.
    pub(super) fn shown(&self, place: Option<&str>) -> Shown {
        self.whole().shown(place)
    }

    /// The head and the tail of the text, if it does not fit into this share of the window.
    pub(super) fn shown_within(&self, share: Share, place: Option<&str>) -> Shown {
        self.whole().shown_within(share, place)
    }
}

impl Settled {
    /// Takes the next piece of the text.
    fn push(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        self.newlines = self.newlines.saturating_add(count_newlines(text));
        let mut rest = text;
        if !self.head_is_full {
            let most = match self.policy {
                OutputPolicy::Window => WINDOW_BYTES / 2,
                OutputPolicy::Tokens => COUNTED_BYTES_MAX,
            };
            let room = most.saturating_sub(self.head.len());
            let (taken, left) = rest.split_at(rest.floor_char_boundary(room));
            self.head.push_str(taken);
            self.head_is_full = !left.is_empty();
            rest = left;
        }
        self.tail.push_str(&rest[rest.ceil_char_boundary(rest.len().saturating_sub(LIVE_TAIL_BYTES))..]);
        if self.tail.len() > 2 * LIVE_TAIL_BYTES {
            self.keep_tail(LIVE_TAIL_BYTES);
        }
    }

    /// Takes a text with lines that stand for omitted parts.
    fn push_shown(&mut self, text: &str, gaps: impl IntoIterator<Item = Gap>) {
        let at = self.bytes;
        self.gaps.extend(gaps.into_iter().map(|gap| Gap { at: at.saturating_add(gap.at), ..gap }));
        self.push(text);
    }

    /// Bytes of the text that are kept.
    fn kept_bytes(&self) -> usize {
        self.head.len().saturating_add(self.tail.len())
    }

    /// Gives back memory that only a longer text would need.
    fn shrink(&mut self) {
        self.keep_tail(WINDOW_BYTES);
        self.tail.shrink_to_fit();
        self.head.shrink_to_fit();
    }

    fn keep_tail(&mut self, bytes: usize) {
        let start = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(bytes));
        self.tail.drain(..start);
    }

    /// Returns the end of the text, at most `bytes` long, from the start of a line if possible.
    fn live_tail(&self, bytes: usize) -> String {
        let from_head = bytes.saturating_sub(self.tail.len());
        let is_whole = self.bytes == self.kept_bytes() as u64;
        let head = if is_whole { last_bytes(&self.head, from_head) } else { "" };
        let text = [head, last_bytes(&self.tail, bytes)].concat();
        match text.find('\n') {
            Some(end) if (text.len() as u64) < self.bytes && end.saturating_add(1) < text.len() => {
                text[end.saturating_add(1)..].to_owned()
            }
            _ => text,
        }
    }

    fn ends_line(&self) -> bool {
        let last = if self.tail.is_empty() { &self.head } else { &self.tail };
        last.ends_with('\n')
    }

    fn total_lines(&self) -> u64 {
        self.newlines.saturating_add(u64::from(self.bytes > 0 && !self.ends_line()))
    }

    /// The text as a result shows it. `place` tells where all of it is.
    fn shown(&self, place: Option<&str>) -> Shown {
        match self.policy {
            OutputPolicy::Window => self.shown_within(Share::WHOLE, place),
            OutputPolicy::Tokens => self.shown_tokens(place),
        }
    }

    /// The first tokens of a text with many.
    fn shown_tokens(&self, place: Option<&str>) -> Shown {
        let is_whole = self.bytes == self.kept_bytes() as u64;
        let whole = if is_whole { Cow::Owned([self.head.as_str(), &self.tail].concat()) } else { (&self.head).into() };
        let Some(head) = tokens::head_of_long(&whole, !is_whole) else {
            return Shown::whole(whole.into_owned());
        };
        let truncation = Truncation {
            by: TruncatedBy::Tokens,
            total_bytes: self.bytes,
            total_lines: self.total_lines(),
            output_bytes: head.len() as u64,
            output_lines: line_count(head),
        };
        let text = format!("{head}\n\n{}", tokens::reminder(place));
        Shown { text, truncation: Some(truncation), gaps: Vec::new() }
    }

    /// The head and the tail of a long text.
    fn shown_within(&self, share: Share, place: Option<&str>) -> Shown {
        let retained = self.kept_bytes() as u64;
        let lines = self.total_lines();
        let too_many_bytes = self.bytes > share.bytes as u64;
        if !too_many_bytes && lines <= share.lines as u64 {
            let text = [self.head.as_str(), self.tail.as_str()].concat();
            return Shown { text, truncation: None, gaps: self.gaps.clone() };
        }
        let whole = (retained == self.bytes).then(|| [self.head.as_str(), self.tail.as_str()].concat());
        let place = place.map(|place| format!("; {place}")).filter(|place| place.len() <= PLACE_BYTES_MAX);
        let place = place.unwrap_or_default();
        let longest = self.headlines.iter().map(|(_, line)| line.len().saturating_add(1)).max().unwrap_or_default();
        let half_bytes = share.bytes.saturating_sub(GAP_BYTES).saturating_sub(place.len()).saturating_sub(longest) / 2;
        // What is within one of the limits is cut by the other alone.
        let half_bytes = if too_many_bytes { half_bytes } else { share.bytes };
        let half_lines = if lines > share.lines as u64 { share.half_lines() } else { usize::MAX };
        let head = first_lines(whole.as_deref().unwrap_or(&self.head), half_bytes, half_lines);
        let tail = last_lines(whole.as_deref().unwrap_or(&self.tail), half_bytes, half_lines);
        let (head_end, tail_start) = (head.len() as u64, self.bytes.saturating_sub(tail.len() as u64));
        let headline = self.headlines.iter().rfind(|(at, _)| *at < tail_start).filter(|(at, _)| *at >= head_end);
        let headline = headline.map(|(_, line)| format!("{line}\n")).unwrap_or_default();
        let output_bytes = head.len().saturating_add(headline.len()).saturating_add(tail.len()) as u64;
        let output_lines = [line_count(&headline), line_count(tail)]
            .into_iter()
            .fold(line_count(head), u64::saturating_add)
            .min(lines);
        let truncation = Truncation {
            // The limit that let no more through, where both are exceeded.
            by: match too_many_bytes && line_count(head).min(line_count(tail)) < half_lines as u64 {
                true => TruncatedBy::Bytes,
                false => TruncatedBy::Lines,
            },
            total_bytes: self.bytes,
            total_lines: lines,
            output_bytes,
            output_lines,
        };
        let break_after_head = if head.ends_with('\n') { "" } else { "\n" };
        // What a line stood for that is left out itself is left out twice, and told of once.
        let inner = self.gaps.iter().filter(|gap| (head_end..tail_start).contains(&gap.at));
        let (more_lines, more_bytes) = inner
            .fold((0, 0), |sum, gap| (i64::saturating_add(sum.0, gap.lines), i64::saturating_add(sum.1, gap.bytes)));
        let left_lines = lines.saturating_sub(output_lines).saturating_add_signed(more_lines);
        let left_bytes = self.bytes.saturating_sub(output_bytes).saturating_add_signed(more_bytes);
        let gap = gap_line(left_lines, left_bytes, &place);
        let gap_bytes = break_after_head.len().saturating_add(gap.len()).saturating_add(1) as u64;
        let own = Gap {
            at: head_end.saturating_add(break_after_head.len() as u64),
            lines: signed(left_lines).saturating_sub(1),
            bytes: signed(left_bytes).saturating_sub(signed(gap_bytes)),
        };
        let in_head = self.gaps.iter().filter(|gap| gap.at < head_end).copied();
        let in_tail = self.gaps.iter().filter(|gap| gap.at >= tail_start);
        let before_tail = head_end.saturating_add(gap_bytes).saturating_add(headline.len() as u64);
        let in_tail =
            in_tail.map(|gap| Gap { at: gap.at.saturating_sub(tail_start).saturating_add(before_tail), ..*gap });
        let gaps = in_head.chain([own]).chain(in_tail).collect();
        Shown { text: format!("{head}{break_after_head}{gap}\n{headline}{tail}"), truncation: Some(truncation), gaps }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the line that stands for an omitted part.
fn gap_line(lines: u64, bytes: u64, place: &str) -> String {
    match lines {
        0 => format!("[… {bytes} bytes left out{place} …]"),
        1 => format!("[… 1 line, {bytes} bytes left out{place} …]"),
        _ => format!("[… {lines} lines, {bytes} bytes left out{place} …]"),
    }
}

/// The first half of a window: whole lines, unless they would fill less than half of it.
fn first_lines(text: &str, half_bytes: usize, half_lines: usize) -> &str {
    let cut = &text[..text.floor_char_boundary(half_bytes)];
    if let Some((end, _)) = cut.match_indices('\n').nth(half_lines.saturating_sub(1)) {
        return &cut[..=end];
    }
    match cut.rfind('\n') {
        Some(end) if end >= cut.len() / 2 => &cut[..=end],
        _ => cut,
    }
}

/// The second half of a window: whole lines, unless they would fill less than half of it.
fn last_lines(text: &str, half_bytes: usize, half_lines: usize) -> &str {
    let cut = last_bytes(text, half_bytes);
    // The line end that closes the text opens no line of its own.
    let body = cut.strip_suffix('\n').unwrap_or(cut);
    if let Some((end, _)) = body.rmatch_indices('\n').nth(half_lines.saturating_sub(1)) {
        return &cut[end.saturating_add(1)..];
    }
    match body.find('\n') {
        Some(end) if end < body.len() / 2 => &cut[end.saturating_add(1)..],
        _ => cut,
    }
}

/// The end of a text, `bytes` long at most.
fn last_bytes(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

fn count_newlines(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

fn line_count(text: &str) -> u64 {
    count_newlines(text).saturating_add(u64::from(!text.is_empty() && !text.ends_with('\n')))
}

#[cfg(test)]
mod tests;
