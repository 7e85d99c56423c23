//! Bytes of streams as texts: what is no UTF-8 stands there as characters of private use, as guests write and read it.

use std::borrow::Cow;

/// Character that stands for the byte 0; only bytes from 0x80 on are written so.
const FIRST: u32 = 0x10_ff00;
/// First character that is such a byte.
const ESCAPES: char = '\u{10ff80}';

/// Returns the text that stands for these bytes.
pub fn escape_bytes(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.contains(|character| character >= ESCAPES)
    {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(bytes.len().saturating_mul(2));
    let escape = |escaped: &mut String, bytes: &[u8]| {
        escaped.extend(bytes.iter().filter_map(|byte| char::from_u32(FIRST | u32::from(*byte))));
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                ESCAPES.. => escape(&mut escaped, character.encode_utf8(&mut [0; 4]).as_bytes()),
                character => escaped.push(character),
            }
        }
        escape(&mut escaped, chunk.invalid());
    }
    Cow::Owned(escaped)
}

/// Returns the bytes that a text stands for.
pub fn unescape_text(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(|character| character >= ESCAPES) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ESCAPES.. => bytes.push(u32::from(character).to_le_bytes()[0]),
            character => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"plain", "é😀\u{10ff80}\u{10ffff}".as_bytes(), &[0xf4, 0x8f, 0xbe], b""] {
            assert_eq!(unescape_text(&escape_bytes(bytes)), bytes, "{bytes:?}");
        }
        assert_eq!(escape_bytes(&[b'a', 0xff]), "a\u{10ffff}");
    }
}
