//! Texts cut short, bytes as digits, errors with their causes, words of messages.

/// Longest prefix of `text` within `bytes` that ends between characters.
pub fn prefix(text: &str, bytes: u64) -> &str {
    &text[..text.floor_char_boundary(usize::try_from(bytes).unwrap_or(usize::MAX))]
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len().saturating_mul(2)), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An error and its causes in one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
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

/// Serde functions for shared text.
pub(crate) mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Arc::from)
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
}
