//! Words of messages.

/// Characters of a found string that a message repeats.
const FOUND_CHARS_MAX: usize = 40;

/// `text` in quotes, on one line, and not too long.
pub fn quote(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes() {
        assert_eq!(quote(&"ü".repeat(50)), format!("\"{}…\"", "ü".repeat(40)));
        assert_eq!(quote("it's \u{1b}[31m"), "\"it's \\u{1b}[31m\"");
    }
}
