//! MIME bundles: one displayed value in several representations.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Bytes that a value of JSON counts besides its text, where readers make values of it.
const JSON_VALUE_BYTES: usize = 64;
/// Characters that a result shows of the print of a value.
pub const VALUE_CHARACTERS_MAX: usize = 4_000;

/// A table in a few records, with the types of its columns: Frictionless Data's Tabular Data Resource, as pandas has it.
pub const RESOURCE_TYPE: &str = "application/vnd.dataresource+json";

/// One representation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MimeData {
    /// For text types, `application/json` and its kin.
    Text(String),
    /// For binary types. Becomes base64 on the wire.
    Binary(Vec<u8>),
}

impl MimeData {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            MimeData::Text(text) => text.len(),
            MimeData::Binary(bytes) => bytes.len(),
        }
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Representations of one value by MIME type, in the order in which the guest gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MimeBundle(pub Vec<(String, MimeData)>);

impl MimeBundle {
    /// The representation of this type.
    pub fn get(&self, mime_type: &str) -> Option<&MimeData> {
        self.0.iter().find(|(name, _)| name == mime_type).map(|(_, data)| data)
    }

    /// The text of this type, when it is there and is text.
    pub fn text(&self, mime_type: &str) -> Option<&str> {
        match self.get(mime_type)? {
            MimeData::Text(text) => Some(text),
            MimeData::Binary(_) => None,
        }
    }

    /// Bytes of all representations together, names included.
    pub fn size_bytes(&self) -> usize {
        self.0.iter().map(|(name, data)| name.len().saturating_add(data.len())).sum()
    }

    /// Values of all JSON in it. Reads it.
    pub fn json_values(&self) -> usize {
        let values = |(mime_type, data): &(String, MimeData)| match data {
            MimeData::Text(text) if is_json(mime_type) => json_values(text.as_bytes()),
            _ => 0,
        };
        self.0.iter().map(values).sum()
    }

    /// Bytes that it takes, at most a few times, where its JSON is made into values. Reads that.
    pub fn weight_bytes(&self) -> usize {
        self.size_bytes().saturating_add(self.json_values().saturating_mul(JSON_VALUE_BYTES))
    }

    /// The image of a bundle: a raster one where there is one.
    pub fn image(&self) -> Option<Image<'_>> {
        let images = || self.0.iter().filter(|(mime_type, _)| mime_type.starts_with("image/"));
        let (mime_type, data) = images().find(|(mime_type, _)| mime_type != "image/svg+xml").or(images().next())?;
        Some(Image { mime_type, data })
    }

    /// The JSON text of a bundle. Of the types derived from JSON only those count that no image stands for.
    pub fn json(&self) -> Option<&str> {
        self.text("application/json").or_else(|| {
            let is_derived = |name: &str| name.starts_with("application/") && name.ends_with("+json");
            let (name, _) = self.0.iter().find(|(name, _)| is_derived(name))?;
            self.image().is_none().then(|| self.text(name)).flatten()
        })
    }

    /// The Markdown of a bundle.
    pub fn markdown(&self) -> Option<&str> {
        self.text("text/markdown")
    }

    /// Returns the text that a bundle adds to the text of a result: its Markdown, else the value as its language prints it,
    /// unless an image stands for it, or that print only names a type and JSON says more. A formula whose plain text only
    /// names its type is shown as its LaTeX source.
    pub fn visible_text(&self) -> Option<&str> {
        if let Some(markdown) = self.markdown() {
            return Some(markdown);
        }
        if self.image().is_some() {
            return None;
        }
        // `<Chart object>` only names a type, and says less than what else there is.
        let is_name = |text: &&str| text.starts_with('<') && text.ends_with('>');
        let plain = self.text("text/plain");
        match plain.filter(is_name) {
            Some(_) if self.json().is_some() => None,
            Some(name) => self.text("text/latex").or(Some(name)),
            None => plain.or(self.text("text/latex")).or_else(|| self.only_text()),
        }
    }

    /// Returns the text of a bundle that has no other form for a reader of text, as it was written: HTML, CSV or any other
    /// text type.
    fn only_text(&self) -> Option<&str> {
        let (name, _) = self.0.iter().find(|(name, _)| name.starts_with("text/"))?;
        self.json().is_none().then(|| self.text(name)).flatten()
    }

    /// [`visible_text`](MimeBundle::visible_text) as a result shows it: of a value's print the first
    /// [`VALUE_CHARACTERS_MAX`] characters, and how many more there are. Markdown is written to be read, and shown whole.
    pub fn shown_text(&self) -> Option<Cow<'_, str>> {
        let text = self.visible_text()?;
        if self.markdown().is_some() {
            return Some(text.into());
        }
        Some(match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
            None => text.into(),
            Some((end, _)) => {
                let more = text[end..].chars().count();
                format!("{}… ({more} more characters of this value are not shown)", &text[..end]).into()
            }
        })
    }

    /// Returns true if [`shown_text`](MimeBundle::shown_text) is only a part of the text.
    pub fn is_cut(&self) -> bool {
        let text = self.visible_text().filter(|_| self.markdown().is_none());
        text.is_some_and(|text| text.len() > VALUE_CHARACTERS_MAX && text.chars().nth(VALUE_CHARACTERS_MAX).is_some())
    }

    /// Returns true if the bundle has more than plain text.
    pub fn is_structured(&self) -> bool {
        self.0.iter().any(|(mime_type, _)| mime_type != "text/plain")
    }
}

/// Returns true if data of this MIME type is JSON.
pub fn is_json(mime_type: &str) -> bool {
    mime_type == "application/json" || mime_type.ends_with("+json")
}

/// Counts the values of a JSON text, or slightly more: members' names count. A value takes many times its text in a tree, so
/// check this count before parsing untrusted text into a tree.
pub fn json_values(json: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in json {
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

/// Returns the first number of a JSON text that a parser would round: an integer of more than 64 bits that has no exact
/// floating-point value either.
pub fn wide_integer(json: &str) -> Option<&str> {
    let (mut place, mut is_text) = (0_usize, false);
    while let Some(byte) = json.as_bytes().get(place) {
        let length = match byte {
            b'\\' if is_text => 2,
            b'-' | b'0'..=b'9' if !is_text => {
                let rest = json.get(place..)?;
                let end = rest.find(|each: char| !each.is_ascii_digit() && !"+-.eE".contains(each));
                let number = rest.get(..end.unwrap_or(rest.len()))?;
                if is_wide(number) {
                    return Some(number);
                }
                number.len()
            }
            _ => {
                is_text ^= *byte == b'"';
                1
            }
        };
        place = place.saturating_add(length);
    }
    None
}

fn is_wide(number: &str) -> bool {
    /// All integers of fewer have less than 64 bits.
    const DIGITS: usize = 19;
    /// JavaScript writes a floating-point number below this as an integer, with the digits that tell it from others.
    const SHORT_MAX: f64 = 1e21;
    let is_integer = number.len() >= DIGITS && !number.contains(['.', 'e', 'E']);
    if !is_integer || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return false;
    }
    let is_said_by = |float: f64| {
        float.is_finite()
            && (format!("{float:.0}") == number || (float.abs() < SHORT_MAX && float.to_string() == number))
    };
    !number.parse().is_ok_and(is_said_by)
}

/// An image that a cell displayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// `image/png` and its kin.
    pub mime_type: &'a str,
    /// Its file; text for a vector image, or where a cell gave base64.
    pub data: &'a MimeData,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_weighs_what_its_values_take() {
        let bundle =
            |mime_type: &str, text: &str| MimeBundle(vec![(mime_type.to_owned(), MimeData::Text(text.to_owned()))]);
        for mime_type in ["application/json", "application/vnd.vega.v5+json"] {
            let small = bundle(mime_type, "[0,0,0]");
            assert_eq!((small.json_values(), small.weight_bytes()), (4, small.size_bytes() + 4 * JSON_VALUE_BYTES));
        }
        let text = bundle("text/plain", "[0,0,0]");
        assert_eq!((text.json_values(), text.weight_bytes()), (0, text.size_bytes()));
    }

    #[test]
    fn integers_that_would_be_rounded_are_found() {
        for (json, expected) in [
            ("[1, -2, 18446744073709551615, -9223372036854775808]", None),
            ("[18446744073709551616, 100000000000000000000, 73786976294838210000, -1180591620717411303424]", None),
            ("[1e400, 12345678901234567890123.5, 12345678901234567890e3]", None),
            (r#"{"12345678901234567890123": "12345678901234567890123\\\"12345678901234567890123"}"#, None),
            ("18446744073709551617", Some("18446744073709551617")),
            (r#"{"a": [0, {"b": -9223372036854775809}]}"#, Some("-9223372036854775809")),
            (r#"["\\", 73786976294838206465]"#, Some("73786976294838206465")),
        ] {
            assert_eq!(wide_integer(json), expected, "{json}");
        }
        let long = "9".repeat(400);
        assert_eq!(wide_integer(&long), Some(long.as_str()));
    }

    #[test]
    fn values_are_counted_and_texts_are_not_looked_into() {
        let cases =
            [("1", 1), ("[]", 2), ("[1,2,3]", 4), (r#"{"a": [1, 2]}"#, 5), (r#""a,[\",{""#, 1), (r#"["\\",1]"#, 3)];
        for (json, expected) in cases {
            assert_eq!(json_values(json.as_bytes()), expected, "{json}");
        }
    }
}
