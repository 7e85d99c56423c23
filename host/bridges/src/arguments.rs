//! Parser of a call's arguments: the tool receives exactly the value that was checked against the schema.
//!
//! A text that two parsers interpret differently gets past any check: of two members with the same name, one parser takes
//! the first and another the last; `1e1` is an integer to one and not to another. So a text is parsed here, refused if it
//! is ambiguous, and serialized anew for the callee.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum whole number up to which floating point numbers and integers are equivalent.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Parses arguments: one JSON value and nothing after it, without duplicate names in an object. A number without a fraction
/// is an integer, whatever its notation.
///
/// # Errors
/// The text is invalid: the reason in words.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    if text.starts_with('\u{feff}') {
        return Err("expected JSON, found a byte order mark".to_owned());
    }
    serde_json::from_str::<Plain>(text).map(|plain| plain.0).map_err(|error| {
        let reason = error.to_string();
        // Guests write nothing else that ends so: a text of theirs which is none of Unicode.
        if reason.contains("hex escape") {
            format!("a text has half of a surrogate pair, which is no character: {reason}")
        } else {
            reason
        }
    })
}

/// A value that every reader of JSON reads alike.
struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plain, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(Plain)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
            // A whole number of at most 53 bits.
            return Ok((value as i64).into());
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is too large"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Plain(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Plain(value))) = members.next_entry::<String, Plain>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the name {} stands twice in an object", Value::from(name))));
            }
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_is_what_was_read() {
        let check = |text: &str, expected: &str| assert_eq!(read(text).expect(text).to_string(), expected, "{text}");
        check(r#" { "b" : 1 , "a" : [ true , null , "x" ] } "#, r#"{"b":1,"a":[true,null,"x"]}"#);
        check("[1.0, 1e1, -0.0, 1.5, 1E-2]", "[1,10,0,1.5,0.01]");
        check(
            "[9007199254740993, 18446744073709551615, -9223372036854775808]",
            "[9007199254740993,18446744073709551615,-9223372036854775808]",
        );
        check(r#""\u0041\ud83e\udd80""#, "\"A🦀\"");
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in [
            r#"{"a": 99, "a": 1}"#,
            r#"{"a": 99, "\u0061": 1}"#,
            r#"[{"x": {"a": 1, "b": 2, "a": 3}}]"#,
            "\u{feff}{}",
            "{} {}",
            "{}x",
            "NaN",
            "[Infinity]",
            "1e999",
            "01",
            "{'a': 1}",
            r#""\ud800""#,
            "",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
