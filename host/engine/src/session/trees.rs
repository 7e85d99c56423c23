//! JSON of guests that is made into values here: how many they may be, because each takes many times its text.

use cellar_core::mime::json_values;
use serde_json::Value;

/// Values of a text that is made into a tree.
pub(crate) const VALUES_MAX: usize = 100_000;

/// Counts the values of a JSON text, or slightly more.
pub(crate) fn count(json: &str) -> usize {
    json_values(json.as_bytes())
}

/// The value of a text; none where that is no JSON, or has too many values.
pub(crate) fn read(json: &str) -> Option<Value> {
    if count(json) > VALUES_MAX { None } else { serde_json::from_str(json).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_too_many_values_is_not_read() {
        assert_eq!(read("[1]"), Some(serde_json::json!([1])));
        assert!(read(&format!("[{}0]", "0,".repeat(VALUES_MAX))).is_none() && read("[").is_none());
    }
}
