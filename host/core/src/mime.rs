//! MIME bundles: one displayed value in several representations.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Bytes that a value of JSON counts besides its text, where readers make values of it.
const JSON_VALUE_BYTES: usize = 64;
/// Characters that a result shows of the print of a value.
pub const VALUE_CHARACTERS_MAX: usize = 4_000;
/// Characters of its end among them.
const VALUE_TAIL_CHARACTERS: usize = 400;

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

    /// [`visible_text`](MimeBundle::visible_text) as a result shows it: of a value's print its beginning and its end,
    /// [`VALUE_CHARACTERS_MAX`] characters together, and how much was left out between them, by the guest as well. Markdown is
    /// written to be read, and shown whole.
    pub fn shown_text(&self) -> Option<Cow<'_, str>> {
        let text = self.visible_text()?;
        if self.markdown().is_some() {
            return Some(text.into());
        }
        if text.char_indices().nth(VALUE_CHARACTERS_MAX).is_none() {
            return Some(text.into());
        }
        let place = |at: Option<(usize, char)>| at.map_or(text.len(), |(place, _)| place);
        let head = place(text.char_indices().nth(VALUE_CHARACTERS_MAX.saturating_sub(VALUE_TAIL_CHARACTERS)));
        let tail = place(text.char_indices().nth_back(VALUE_TAIL_CHARACTERS.saturating_sub(1)));
        let left_out = left_out_of(&text[head..tail]);
        Some(format!("{}\n… {left_out} left out …\n{}", &text[..head], &text[tail..]).into())
    }

    /// Returns true if [`shown_text`](MimeBundle::shown_text) is only a part of the text.
    pub fn is_cut(&self) -> bool {
        let text = self.visible_text().filter(|_| self.markdown().is_none());
        text.is_some_and(|text| text.len() > VALUE_CHARACTERS_MAX && text.chars().nth(VALUE_CHARACTERS_MAX).is_some())
    }

    /// Returns true if the text says less than the value has: it is cut, or its printer has left something out and says so, as in
    /// `... 99000 more items`.
    pub fn is_shortened(&self) -> bool {
        let text = self.visible_text().filter(|_| self.markdown().is_none()).unwrap_or_default();
        let says_so = |(at, mark): (usize, &str)| {
            let rest = text[at.saturating_add(mark.len())..].trim_start_matches(|each: char| each.is_ascii_digit());
            [" more item", " more character", " more propert"].iter().any(|what| rest.starts_with(what))
        };
        self.is_cut() || text.match_indices("... ").any(says_so) || text.contains(" characters left out …")
    }

    /// Returns true if the bundle has more than plain text.
    pub fn is_structured(&self) -> bool {
        self.0.iter().any(|(mime_type, _)| mime_type != "text/plain")
    }
}

/// Says how much a part of a value's print stands for: its characters, with those that the guest has left out in it, and the items that
/// its printer has counted there.
fn left_out_of(part: &str) -> String {
    /// The number that ends or begins a text.
    fn number(digits: impl Iterator<Item = char>) -> String {
        digits.take_while(char::is_ascii_digit).collect()
    }
    let mut characters = part.chars().count();
    for (at, _) in part.match_indices(" characters left out") {
        let digits: String = number(part[..at].chars().rev()).chars().rev().collect();
        characters = characters.saturating_add(digits.parse().unwrap_or(0));
    }
    let mut items = 0_usize;
    for (at, mark) in part.match_indices("... ") {
        let digits = number(part[at.saturating_add(mark.len())..].chars());
        let end = at.saturating_add(mark.len()).saturating_add(digits.len());
        if part[end..].starts_with(" more item") {
            items = items.saturating_add(digits.parse().unwrap_or(0));
        }
    }
    match items {
        0 => format!("{characters} characters"),
        _ => format!("{characters} characters and {items} further items"),
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
    fn a_value_of_which_something_is_left_out_is_told_from_a_whole_one() {
        let is_shortened = |text: &str| {
            let data = vec![("text/plain".to_owned(), MimeData::Text(text.to_owned()))];
            MimeBundle(data).is_shortened()
        };
        for text in
            ["[1,\n ... 99000 more items]", "[ 1, ... 1 more item ]", "'a'... 20 more characters", &"x".repeat(4_001)]
        {
            assert!(is_shortened(text), "{text}");
        }
        for text in ["[1, 2]", "... and so on", "'... 3 items'", &"x".repeat(4_000)] {
            assert!(!is_shortened(text), "{text}");
        }
    }

    #[test]
    fn a_long_value_says_all_that_is_left_out_of_it() {
        let shown = |text: String| {
            let bundle = MimeBundle(vec![("text/plain".to_owned(), MimeData::Text(text))]);
            bundle.shown_text().map(|text| text.into_owned()).unwrap_or_default()
        };
        assert_eq!(shown("é".repeat(VALUE_CHARACTERS_MAX)), "é".repeat(VALUE_CHARACTERS_MAX));
        let cut = shown(format!("[{}\n ... 99000 more items]", "1, ".repeat(2_000)));
        assert!(cut.starts_with("[1, ") && cut.ends_with("1, \n ... 99000 more items]"), "{cut}");
        assert!(cut.contains("\n… 2024 characters left out …\n"), "{cut}");
        let twice = shown(format!("{}\n… 500 characters left out …\n{}", "a".repeat(5_000), "b".repeat(5_000)));
        let print = 10_000 + "\n… 500 characters left out …\n".chars().count();
        assert!(twice.contains(&format!("… {} characters left out …", print - 4_000 + 500)), "{twice}");
        let nested =
            shown(format!("[[{}... 7 more items], [{}... 8 more items]]", "1, ".repeat(2_000), "2, ".repeat(2_000)));
        assert!(nested.contains(" characters and 7 further items left out"), "{nested}");
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
