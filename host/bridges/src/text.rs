//! Words of messages.

use crate::secrets::hide;

/// Characters of a found string that a message repeats.
const FOUND_CHARS_MAX: usize = 40;
/// Characters of a found list, or of another program's words, that a message repeats.
const CLIPPED_CHARS_MAX: usize = 200;

/// `text` in quotes, on one line, and not too long. Credentials are taken out before it is cut.
pub fn quote(text: &str) -> String {
    let text = hide(text);
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(FOUND_CHARS_MAX).flat_map(char::escape_debug).collect();
    let more = if characters.next().is_some() { "…" } else { "" };
    format!("\"{}{more}\"", start.replace("\\'", "'"))
}

/// An error and its causes on one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// `text` on one line, and not too long. Credentials are taken out before it is cut.
pub(crate) fn clip(text: &str) -> String {
    let text = hide(text);
    let mut characters = text.chars();
    let start: String =
        characters.by_ref().take(CLIPPED_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if characters.next().is_some() { start + "…" } else { start }
}

/// The name in `known` that `name` was probably meant to be.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let begins = |candidate: &&&str| lower.len() >= 3 && candidate.starts_with(&lower);
    if let Some(candidate) = known.iter().find(begins) {
        return Some(candidate);
    }
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(&lower, candidate), *candidate))
        .filter(|(distance, candidate)| {
            // Something of it must be right.
            *distance <= candidate.len().min(lower.len()).max(3) / 3 && *distance < lower.chars().count()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "`a`, `b` and `c`"
pub fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names() {
        let known = ["language", "code", "title", "timeout", "reset"];
        assert_eq!(nearest("codee", &known), Some("code"));
        assert_eq!(nearest("timeot", &known), Some("timeout"));
        assert_eq!(nearest("Language", &known), Some("language"));
        assert_eq!(nearest("lang", &known), Some("language"));
        assert_eq!(nearest("name", &known), None);
        assert_eq!(nearest("x", &known), None);
        assert_eq!(nearest("x", &["a"]), None);
    }

    #[test]
    fn quotes() {
        assert_eq!(quote(&"ü".repeat(50)), format!("\"{}…\"", "ü".repeat(40)));
        assert_eq!(quote("it's \u{1b}[31m"), "\"it's \\u{1b}[31m\"");
    }
}
