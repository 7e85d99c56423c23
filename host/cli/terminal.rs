//! Filter for output to terminals: it passes text and colours, and nothing that controls the terminal.
//!
//! Everything that the program writes to standard output and standard error leaves through this file. Cells print what
//! they like, and files, names and messages are what others made them. On a terminal, escape sequences set its title, write
//! to the clipboard or forge what was on the screen, and bidirectional controls let a line read as something else. Read
//! [`Cleaner`] first, which is for what cells print, then [`escaped`], which is for names and messages.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal, Read, Write},
};

mod streams;

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use unicode_width::UnicodeWidthChar;

pub(crate) use streams::{Input, Output};

/// Characters of a colour sequence; longer ones are dropped.
const COLOR_CHARS_MAX: usize = 32;

/// Columns of a terminal that does not tell, and the fewest and most for layouts.
const COLUMNS: usize = 100;
const COLUMNS_MIN: usize = 20;
const COLUMNS_MAX: usize = 400;

/// Bytes of a file that are shown at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Capabilities of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Colours are wanted: a terminal, and no `NO_COLOR`.
    pub(crate) has_colors: bool,
    /// A person's terminal, which must be kept from harm.
    pub(crate) is_terminal: bool,
}

impl Look {
    /// The look of standard output.
    pub(crate) fn of_stdout() -> Look {
        let stdout = io::stdout();
        Look { has_colors: AutoStream::choice(&stdout) != ColorChoice::Never, is_terminal: stdout.is_terminal() }
    }

    /// Returns true if standard input is a terminal, where a person may type.
    pub(crate) fn is_stdin_terminal() -> bool {
        io::stdin().is_terminal()
    }

    /// The look of standard error.
    pub(crate) fn of_stderr() -> Look {
        let stderr = io::stderr();
        Look { has_colors: AutoStream::choice(&stderr) != ColorChoice::Never, is_terminal: stderr.is_terminal() }
    }

    /// `text` in a style, where there are colours.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.has_colors { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Columns of the terminal, as `COLUMNS` or the terminal itself says.
pub(crate) fn columns() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    // A terminal whose size nobody has set says 0.
    let asked =
        || crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0);
    named.or_else(asked).unwrap_or(COLUMNS).clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// Returns true for a character that controls a terminal or hides what a line says: controls (C0, DEL, C1), line
/// separators, and characters that change the direction of text.
pub(crate) fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}'
        )
}

/// Returns `text` on one line, with every harmful character written as `\u{1b}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, |_| false)
}

/// Returns the same, but keeps its lines and tabs.
pub(crate) fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_but(text, |character| matches!(character, '\n' | '\t'))
}

fn escaped_but(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |character: char| is_harmful(character) && !is_kept(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len().saturating_add(16));
    for character in text.chars() {
        match is_escaped(character) {
            true => kept.extend(character.escape_unicode()),
            false => kept.push(character),
        }
    }
    Cow::Owned(kept)
}

/// `text` with lines, tabs and colours, and with everything else that is harmful escaped.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| is_harmful(character) && !matches!(character, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len().saturating_add(16));
    let mut rest = text;
    while let Some(start) = rest.find('\u{1b}') {
        let (before, behind) = rest.split_at(start);
        kept.push_str(&escaped_lines(before));
        let length = color_length(behind);
        match length {
            Some(length) => kept.push_str(&behind[..length]),
            None => kept.push_str("\\u{1b}"),
        }
        rest = &behind[length.unwrap_or(1)..];
    }
    kept.push_str(&escaped_lines(rest));
    Cow::Owned(kept)
}

/// Bytes of the colour sequence that `text` begins with, if it does.
pub(crate) fn color_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !matches!(c, '0'..='9' | ';' | ':'))?;
    (end <= COLOR_CHARS_MAX && parameters[end..].starts_with('m')).then_some(end.saturating_add(3))
}

/// JSON with every harmful character escaped as JSON has it, which means the same.
fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| is_harmful(character) && character != '\n';
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut kept = String::with_capacity(json.len().saturating_add(16));
    for character in json.chars() {
        match is_escaped(character) {
            // All of them lie below the characters that take two units. Writing to a string does not fail.
            true => drop(write!(kept, "\\u{:04x}", u32::from(character))),
            false => kept.push(character),
        }
    }
    Cow::Owned(kept)
}

/// Columns that text takes, colours apart.
pub(crate) fn width(text: &str) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.chars().map(char_width).sum()
}

/// Returns the columns that a character takes. One that must not reach a terminal counts as if it were shown.
pub(crate) fn char_width(character: char) -> usize {
    character.width().unwrap_or(1)
}

/// `text` and the spaces that fill it up to so many columns.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Writes text for people to standard output, without harmful characters.
///
/// # Errors
/// It cannot be written.
pub(crate) fn say(text: &str) -> io::Result<()> {
    write_stdout(harmless(text).as_bytes())
}

/// Writes text for people to standard error, without harmful characters, and with colours where they are wanted.
pub(crate) fn tell(text: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = anstream::stderr().write_all(harmless(text).as_bytes());
}

/// Writes JSON to standard output. A terminal gets it with every harmful character escaped.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write_json(json: &str) -> io::Result<()> {
    match Look::of_stdout().is_terminal {
        true => write_stdout(escaped_json(json).as_bytes()),
        false => write_stdout(json.as_bytes()),
    }
}

/// Writes bytes to standard output as they are: data that no terminal reads, and sequences that this program made.
///
/// # Errors
/// They cannot be written.
pub(crate) fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Writes text that a [`Cleaner`] of standard error let through.
pub(crate) fn write_stderr(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody is left to tell when standard error is closed.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes a file to standard output: as it is where no terminal reads it, or where that is wanted, and cleaned otherwise.
///
/// # Errors
/// It cannot be read or written.
pub(crate) fn copy(from: &mut impl Read, is_raw: bool) -> io::Result<()> {
    let look = Look::of_stdout();
    if is_raw || !look.is_terminal {
        return io::copy(from, &mut io::stdout().lock()).map(drop);
    }
    let mut cleaner = Cleaner::new(look);
    let (mut piece, mut kept) = (vec![0; PIECE_BYTES], 0_usize);
    loop {
        let read = from.read(&mut piece[kept..])?;
        let bytes = &piece[..kept.saturating_add(read)];
        let mut text = String::new();
        let mut begun = 0_usize;
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(&cleaner.clean(chunk.valid()));
            // A character that the piece cut in two goes on in the next one.
            if chunks.peek().is_none() && read > 0 && chunk.invalid().len() < 4 && bytes.ends_with(chunk.invalid()) {
                begun = chunk.invalid().len();
            } else {
                text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
            }
        }
        write_stdout(text.as_bytes())?;
        if read == 0 {
            return write_stdout(cleaner.finish().as_bytes());
        }
        let end = bytes.len();
        piece.copy_within(end.saturating_sub(begun)..end, 0);
        kept = begun;
    }
}

/// Standard output of a transcript, whose text has been laid out and cleaned.
#[derive(Debug)]
pub(crate) struct Transcribed;

impl Write for Transcribed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Standard error for log lines: each comes as one piece, and leaves without the credentials of bridges.
#[derive(Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let line_text = cellar_secrets::hide(&String::from_utf8_lossy(line)).into_owned();
        io::stderr().write_all(harmless(&line_text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Filter of a stream of text for a terminal. Colours stay; other sequences of a terminal's protocol with which
/// programs move the cursor are dropped; everything else that is harmful is escaped. Sequences may be cut anywhere.
#[derive(Debug)]
pub(crate) struct Cleaner {
    look: Look,
    state: State,
    /// A colour is on.
    is_colored: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Text,
    /// Behind an escape character.
    Escape,
    /// In a control sequence, with its parameters so far; without them when it is to be dropped.
    Sequence(Option<String>),
}

impl Cleaner {
    pub(crate) fn new(look: Look) -> Cleaner {
        Cleaner { look, state: State::Text, is_colored: false }
    }

    /// The next part of the text, as it may be written. Unchanged where no terminal reads it.
    pub(crate) fn clean(&mut self, text: &str) -> String {
        if !self.look.is_terminal {
            return text.to_owned();
        }
        let mut kept = String::with_capacity(text.len());
        for character in text.chars() {
            self.take(character, &mut kept);
        }
        kept
    }

    /// Ends the text, and returns the sequence that resets a colour that it left on.
    pub(crate) fn finish(&mut self) -> &'static str {
        self.state = State::Text;
        if std::mem::take(&mut self.is_colored) { "\u{1b}[0m" } else { "" }
    }

    fn take(&mut self, character: char, kept: &mut String) {
        self.state = match (std::mem::replace(&mut self.state, State::Text), character) {
            (State::Escape, '[') => State::Sequence(Some(String::new())),
            (State::Sequence(Some(parameters)), 'm') => {
                if self.look.has_colors {
                    self.is_colored = !matches!(parameters.as_str(), "" | "0");
                    kept.push_str(&format!("\u{1b}[{parameters}m"));
                }
                State::Text
            }
            (State::Sequence(Some(mut parameters)), '0'..='9' | ';' | ':') if parameters.len() < COLOR_CHARS_MAX => {
                parameters.push(character);
                State::Sequence(Some(parameters))
            }
            // The last character of a sequence is in this range; all others stand for sequences that are dropped.
            (State::Sequence(_), '@'..='~') => State::Text,
            (State::Sequence(_), ' '..='?') => State::Sequence(None),
            // Another sequence begins, or the text goes on: what had begun was none.
            (state, '\u{1b}') => {
                if state == State::Escape {
                    kept.push_str("\\u{1b}");
                }
                State::Escape
            }
            (state, character) => {
                if state == State::Escape {
                    kept.push_str("\\u{1b}");
                }
                match is_harmful(character) && !matches!(character, '\n' | '\t' | '\r') {
                    true => kept.extend(character.escape_unicode()),
                    false => kept.push(character),
                }
                State::Text
            }
        };
    }
}

#[cfg(test)]
mod tests;
