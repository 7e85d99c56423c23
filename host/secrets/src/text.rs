//! Texts that messages repeat, without credentials.

use crate::hide;

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

/// `text` on one line, and not too long. Credentials are taken out before it is cut.
pub fn clip(text: &str) -> String {
    let text = hide(text);
    let mut characters = text.chars();
    let start: String =
        characters.by_ref().take(CLIPPED_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if characters.next().is_some() { start + "…" } else { start }
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
