//! JSON of guests that is made into values here: how many they may be, because each takes many times its text.

use serde_json::Value;

/// Values of a text that is made into a tree.
pub(super) const VALUES_MAX: usize = 100_000;

/// How many values a JSON text has, or a few more: members' names count.
pub(super) fn count(json: &str) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' | b'{' if !is_text => values = values.saturating_add(1),
            _ => {}
        }
    }
    values
}

/// The value of a text; none where that is no JSON, or has too many values.
pub(super) fn read(json: &str) -> Option<Value> {
    if count(json) > VALUES_MAX { None } else { serde_json::from_str(json).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_texts_are_not_looked_into() {
        let cases =
            [("1", 1), ("[]", 2), ("[1,2,3]", 4), (r#"{"a": [1, 2]}"#, 5), (r#""a,[\\\",{""#, 1), (r#"["\\",1]"#, 3)];
        for (json, expected) in cases {
            assert_eq!(count(json), expected, "{json}");
        }
        assert_eq!(read("[1]"), Some(serde_json::json!([1])));
        assert!(read(&format!("[{}0]", "0,".repeat(VALUES_MAX))).is_none() && read("[").is_none());
    }
}
