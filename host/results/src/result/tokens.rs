//! Long texts by their tokens, as models count them.

use crate::artifacts::ARTIFACT_SCHEME;

/// Tokens of a text that is shown whole.
pub const TOKENS_MAX: usize = 20_000;
/// Tokens that are shown of a longer one.
pub const TOKENS_SHOWN: usize = 4_096;
/// Maximum size in bytes of a text whose tokens are counted. A larger text always counts as long.
pub(super) const COUNTED_BYTES_MAX: usize = 256 << 10;

/// Bytes that are counted at once: the time of the tokenizer grows with the square of a word's length.
#[cfg(feature = "tokens")]
const PIECE_BYTES: usize = 1 << 10;

/// Returns the first [`TOKENS_SHOWN`] tokens of a text with more than [`TOKENS_MAX`], or of which this is only the
/// beginning. Tokens are counted with `o200k_base`.
pub(super) fn head_of_long(text: &str, is_beginning: bool) -> Option<&str> {
    // Every token has a byte at least. The tokenizer takes a moment to load.
    if !is_beginning && text.len() <= TOKENS_MAX {
        return None;
    }
    let (count, shown) = count(text);
    (is_beginning || count > TOKENS_MAX).then(|| &text[..shown])
}

/// Tokens of a text, no further than [`TOKENS_MAX`] are passed, and where the first [`TOKENS_SHOWN`] end.
#[cfg(feature = "tokens")]
fn count(text: &str) -> (usize, usize) {
    let tokenizer = tiktoken_rs::o200k_base_singleton();
    let (mut count, mut offset, mut shown) = (0_usize, 0_usize, text.len());
    while offset < text.len() {
        let rest = &text[offset..];
        let piece = &rest[..last_break(rest, PIECE_BYTES)];
        let tokens = tokenizer.encode_ordinary(piece);
        if (count..count.saturating_add(tokens.len())).contains(&TOKENS_SHOWN) {
            let before =
                tokenizer.decode_bytes(&tokens[..TOKENS_SHOWN.saturating_sub(count)]).map_or(0, |bytes| bytes.len());
            shown = text.floor_char_boundary(offset.saturating_add(before));
        }
        count = count.saturating_add(tokens.len());
        offset = offset.saturating_add(piece.len());
        if count > TOKENS_MAX {
            break;
        }
    }
    (count, shown)
}

/// Estimates the count in a build without a tokenizer: four bytes for each token.
#[cfg(not(feature = "tokens"))]
fn count(text: &str) -> (usize, usize) {
    const TOKEN_BYTES: usize = 4;
    (text.len().div_ceil(TOKEN_BYTES), text.floor_char_boundary(TOKENS_SHOWN * TOKEN_BYTES))
}

/// Estimates the tokens of a text, for whatever tokenizer its reader has, rather too many than too few: four letters or two digits
/// of a word are one, and so is every sign, and every other character.
pub fn estimated_tokens(text: &str) -> usize {
    const SPACE: u8 = 2;
    /// Class of a character, and how many of it make a token.
    fn class(character: char) -> (u8, usize) {
        match character {
            'a'..='z' | 'A'..='Z' => (0, 4),
            '0'..='9' => (1, 2),
            ' ' => (SPACE, 16),
            _ => (3, 1),
        }
    }
    let (mut tokens, mut run, mut last) = (0_usize, 0_usize, None);
    for character in text.chars() {
        let (kind, size) = class(character);
        run = if last == Some(kind) { run.saturating_add(1) } else { 1 };
        last = Some(kind);
        // A single space belongs to the word behind it.
        let first = if kind == SPACE { Some(2) } else { 1_usize.checked_rem(size) };
        tokens = tokens.saturating_add(usize::from(run.checked_rem(size) == first));
    }
    tokens
}

/// Returns the reminder to a model that only the first tokens of an output are shown. The URI is followed by nothing that
/// could be taken for a part of it.
pub(super) fn reminder(place: Option<&str>) -> String {
    let place = place.map_or_else(
        || ".".to_owned(),
        |place| {
            let uri = &place[place.rfind(ARTIFACT_SCHEME).unwrap_or_default()..];
            format!(
                "; {place}\nA cell reads it with tool.read(path=\"{uri}\", offset=1, limit=200), in JavaScript with \
                 await tool.read({{ path: \"{uri}\", offset: 1, limit: 200 }})."
            )
        },
    );
    format!(
        "<system-reminder>\nThe output has more than {TOKENS_MAX} tokens: its first {TOKENS_SHOWN} are shown{place}\n\
         </system-reminder>"
    )
}

/// Returns the position within the first `bytes` of a text at which to cut it: after a line, else before a word, else
/// between characters.
#[cfg(feature = "tokens")]
fn last_break(text: &str, bytes: usize) -> usize {
    let start = &text[..text.floor_char_boundary(bytes)];
    if start.len() == text.len() {
        return text.len();
    }
    let line = start.rfind('\n').map(|end| end.saturating_add(1));
    line.or_else(|| start.rfind(' ').filter(|end| *end > 0)).unwrap_or(start.len())
}

#[cfg(test)]
#[cfg(feature = "tokens")]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_not_below_what_a_tokenizer_counts() {
        let numbers: String =
            (0..500).map(|n| format!("{{\"id\": {n}, \"v\": {:.6}}}, ", f64::from(n) * 1.1)).collect();
        let hex: String = (0..500_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
        let words = "The quick brown fox jumps over the lazy dog.\n".repeat(50);
        let code = "    for name, value in items.items():\n        print(name, value[0])\n".repeat(50);
        for text in [numbers, hex, words, code, "世界は広い".repeat(100), "[]{}<>();:".repeat(100)] {
            let counted = tiktoken_rs::o200k_base_singleton().encode_ordinary(&text).len();
            let estimate = estimated_tokens(&text);
            assert!((counted..=4 * counted + 100).contains(&estimate), "{estimate} for {counted}: {}", &text[..20]);
        }
    }

    #[test]
    fn a_text_of_few_tokens_is_whole_however_many_bytes_it_has() {
        for text in ["", "a", &"word ".repeat(TOKENS_MAX - 100), &" ".repeat(200_000)] {
            assert_eq!(head_of_long(text, false), None, "{} bytes", text.len());
        }
    }

    #[test]
    fn the_head_of_a_long_one_has_as_many_tokens_as_it_should() {
        for unit in ["word ", "12\n", "é日本🦀", "zqx"] {
            let text = unit.repeat(24_000);
            let head = head_of_long(&text, false).expect(unit);
            assert!(text.starts_with(head));
            let count = tiktoken_rs::o200k_base_singleton().encode_ordinary(head).len();
            assert!(count.abs_diff(TOKENS_SHOWN) <= TOKENS_SHOWN / 50, "{unit:?}: {count}");
        }
    }

    #[test]
    fn one_endless_word_takes_no_endless_time() {
        for unit in ["a", " ", "\u{300}", "='"] {
            let text = unit.repeat(COUNTED_BYTES_MAX / unit.len());
            assert!(head_of_long(&text, true).is_some_and(|head| !head.is_empty()), "{unit:?}");
        }
    }
}
