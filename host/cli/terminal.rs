//! What may reach a terminal: text and colours, and nothing that steers it.
//!
//! Cells print what they like. On a terminal, escape sequences can set its title, write to the clipboard or forge what
//! was on the screen, so all but colours are dropped. Read [`Cleaner`] first.

use std::io::{self, IsTerminal};

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;

/// Characters of a colour sequence; longer ones are dropped.
const COLOR_CHARS_MAX: usize = 32;

/// Columns where nobody says how many there are, and the fewest and most that layouts are made for.
const COLUMNS: usize = 100;
const COLUMNS_MIN: usize = 20;
const COLUMNS_MAX: usize = 400;

/// What a stream can show.
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

    /// Whether a person may type.
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
    let asked = || crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns));
    named.or_else(asked).unwrap_or(COLUMNS).clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// Takes out of a stream of text what a terminal must not get. Sequences may be cut anywhere.
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
    /// In a string for the terminal, up to a bell or an escape and a backslash.
    String,
    StringEscape,
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

    /// What ends a colour that the text left on.
    pub(crate) fn finish(&mut self) -> &'static str {
        self.state = State::Text;
        if std::mem::take(&mut self.is_colored) { "\u{1b}[0m" } else { "" }
    }

    fn take(&mut self, character: char, kept: &mut String) {
        self.state = match (std::mem::replace(&mut self.state, State::Text), character) {
            (State::String, '\u{7}') | (State::StringEscape, '\\') => State::Text,
            (State::String, '\u{1b}') => State::StringEscape,
            (State::String | State::StringEscape, _) => State::String,
            (_, '\u{1b}') => State::Escape,
            (State::Escape, '[') => State::Sequence(Some(String::new())),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::String,
            (State::Escape, _) => State::Text,
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
            (State::Sequence(_), _) => State::Sequence(None),
            (State::Text, character) => {
                if matches!(character, '\n' | '\t' | '\r') || !character.is_control() {
                    kept.push(character);
                }
                State::Text
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let look = Look { has_colors: true, is_terminal: true };
        assert_eq!(Cleaner::new(look).clean(text), expected, "{text:?}");
        let mut cleaner = Cleaner::new(look);
        let one_by_one: String = text.chars().map(|c| cleaner.clean(&c.to_string())).collect();
        assert_eq!(one_by_one, expected, "{text:?} one by one");
    }

    #[test]
    fn text_and_colours_stay() {
        check("a\tb\r\nü🦀", "a\tb\r\nü🦀");
        check("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m");
    }

    #[test]
    fn what_steers_a_terminal_goes() {
        check("a\u{1b}[2Jb\u{1b}[10;20Hc", "abc");
        check("a\u{1b}]0;title\u{7}b\u{1b}]52;c;aGk=\u{1b}\\c", "abc");
        check("\u{1b}P1$r\u{1b}\\x\u{8}\u{0}\u{9b}31m\u{7f}y", "x31my");
        check("\u{1b}[?25lx\u{1b}[>4;1my\u{1b}[999999999999999999999999999999999999999mz", "xyz");
    }

    #[test]
    fn files_get_every_byte() {
        let mut cleaner = Cleaner::new(Look { has_colors: false, is_terminal: false });
        assert_eq!(cleaner.clean("\u{1b}[2J\u{0}"), "\u{1b}[2J\u{0}");
    }
}
