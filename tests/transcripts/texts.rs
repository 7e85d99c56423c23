//! Texts as transcripts show them.

/// What an artifact's id stands behind, as one and as an agent's output, and how many digits it has.
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
