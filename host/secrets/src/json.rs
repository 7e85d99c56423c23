//! Credentials in JSON texts, which stay JSON.

use serde_json::Value;

use crate::{HIDDEN, finder, forms::Finder, replaced};

pub(crate) fn clean_text(finder: &Finder, text: String) -> String {
    match replaced(finder, text.as_bytes()) {
        None => text,
        Some(cleaned) => String::from_utf8_lossy(&cleaned).into_owned(),
    }
}

/// A JSON text without credentials, and still one. Any letter may be written as `\u…`: then what it means counts.
pub fn hide_json(text: String) -> String {
    match finder() {
        Some(finder) => clean_json(&finder, text),
        None => text,
    }
}

pub(crate) fn clean_json(finder: &Finder, text: String) -> String {
    // A number may be written with an exponent, which hides its digits.
    let is_exponent = |pair: &[u8]| pair[0].is_ascii_digit() && matches!(pair[1], b'e' | b'E');
    let is_suspect = text.contains('\\') || finder.is_match(text.as_bytes());
    if !is_suspect && !text.as_bytes().windows(2).any(is_exponent) {
        return text;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return clean_text(finder, text) };
    if clean_value(finder, &mut value) { value.to_string() } else { text }
}

/// Takes credentials out of a value; whether there were any.
fn clean_value(finder: &Finder, value: &mut Value) -> bool {
    match value {
        Value::String(text) => match replaced(finder, text.as_bytes()) {
            Some(cleaned) => {
                *text = String::from_utf8_lossy(&cleaned).into_owned();
                true
            }
            None => false,
        },
        Value::Number(number) if is_number_of(finder, number) => {
            *value = Value::from(HIDDEN);
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |found, item| clean_value(finder, item) | found),
        Value::Object(fields) => {
            let mut found = fields.values_mut().fold(false, |found, item| clean_value(finder, item) | found);
            if fields.keys().any(|key| finder.is_match(key.as_bytes())) {
                found = true;
                *fields =
                    std::mem::take(fields).into_iter().map(|(key, item)| (clean_text(finder, key), item)).collect();
            }
            found
        }
        _ => false,
    }
}

/// Returns true if a number is a credential, in any notation.
fn is_number_of(finder: &Finder, number: &serde_json::Number) -> bool {
    let whole = number.as_f64().filter(|number| number.fract() == 0.0).map(|number| format!("{number:.0}"));
    finder.is_match(number.to_string().as_bytes()) || whole.is_some_and(|whole| finder.is_match(whole.as_bytes()))
}
