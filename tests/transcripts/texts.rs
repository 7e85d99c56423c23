//! Texts as transcripts show them.

use std::fmt::Write as _;

/// Text before an artifact's id, as one and as an agent's output, and the number of its digits.
const SCHEME_END: &str = "://";
const DIGITS: usize = 32;

/// Long output by its ends and length: enough to notice a change.
pub(crate) fn shown(text: &str) -> String {
    let text = &unkeyed(text);
    let count = text.chars().count();
    if count <= 2_000 {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(100).collect();
    let tail: String = text.chars().skip(count - 100).collect();
    format!("{head:?} … {tail:?} ({count} characters)")
}

/// A text without the ids of artifacts, which each session makes with a key of its own.
pub(crate) fn unkeyed(text: &str) -> String {
    let mut parts = text.split(SCHEME_END);
    let mut unkeyed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        unkeyed.push_str(SCHEME_END);
        match part.split_at_checked(DIGITS) {
            Some((id, rest)) if id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                unkeyed.push_str(&"0".repeat(DIGITS));
                unkeyed.push_str(rest);
            }
            _ => unkeyed.push_str(part),
        }
    }
    unkeyed
}

/// Says a line that repeats once, with its count.
pub(crate) fn collapse(text: &str) -> String {
    let mut collapsed = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut count = 1;
        while lines.next_if_eq(&line).is_some() {
            count += 1;
        }
        collapsed.push_str(line);
        // How far a cell comes that does one thing until it is stopped is a matter of chance.
        let _ = match count {
            1 => Ok(()),
            2..=1_000 => write!(collapsed, " ({count} times)"),
            _ => write!(collapsed, " (over 1000 times)"),
        };
        collapsed.push('\n');
    }
    collapsed
}
