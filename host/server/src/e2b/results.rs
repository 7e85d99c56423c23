//! Outputs of cells, in the form of E2B's clients.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_engine::mime::{MimeBundle, MimeData};
use serde_json::{Map, Value};

use super::charts;

/// Clients' names of the MIME types whose data they take as text.
const TEXTS: [(&str, &str); 9] = [
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/javascript", "javascript"),
    ("text/javascript", "javascript"),
];

/// A result, or something displayed besides.
pub(super) fn result(bundle: &MimeBundle, is_main: bool) -> Value {
    let mut result = Map::new();
    result.insert("type".to_owned(), "result".into());
    result.insert("is_main_result".to_owned(), is_main.into());
    let mut extra = Map::new();
    for (mime_type, data) in &bundle.0 {
        if mime_type == "text/plain" {
            let MimeData::Text(text) = data else { continue };
            let text = if is_main { unquoted(text) } else { text };
            result.insert("text".to_owned(), text.into());
        } else if let Some((_, name)) = TEXTS.iter().find(|(known, _)| known == mime_type) {
            result.insert((*name).to_owned(), text_of(data).into());
        } else if mime_type == "application/json" {
            result.insert("json".to_owned(), json_of(data));
        } else {
            let is_json = mime_type.ends_with("+json");
            if is_json
                && !result.contains_key("chart")
                && let MimeData::Text(text) = data
                && let Some(chart) = charts::chart(mime_type, text)
            {
                result.insert("chart".to_owned(), chart);
            }
            if mime_type == charts::FIGURE {
                continue;
            }
            extra.insert(mime_type.clone(), if is_json { json_of(data) } else { text_of(data).into() });
        }
    }
    if !extra.is_empty() {
        result.insert("extra".to_owned(), Value::Object(extra));
    }
    Value::Object(result)
}

/// Returns a text value without its quotes, as clients expect it.
fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

fn text_of(data: &MimeData) -> String {
    match data {
        MimeData::Text(text) => text.clone(),
        MimeData::Binary(bytes) => STANDARD.encode(bytes),
    }
}

fn json_of(data: &MimeData) -> Value {
    match data {
        MimeData::Text(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        MimeData::Binary(bytes) => STANDARD.encode(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_place() {
        let text = |name: &str, text: &str| (name.to_owned(), MimeData::Text(text.to_owned()));
        let bundle = MimeBundle(vec![
            text("text/plain", "'it'"),
            text("text/html", "<b>"),
            text("application/json", "{\"a\":1}"),
            ("image/png".to_owned(), MimeData::Binary(vec![1, 2])),
            text("application/x+json", "[1]"),
            text("text/csv", "a,b"),
        ]);
        let value = result(&bundle, true);
        assert_eq!(value["text"], "it");
        assert_eq!((&value["html"], &value["json"]["a"], &value["png"]), (&"<b>".into(), &1.into(), &"AQI=".into()));
        assert_eq!(value["extra"]["application/x+json"][0], 1);
        assert_eq!(value["extra"]["text/csv"], "a,b");
        assert_eq!(result(&bundle, false)["text"], "'it'");
    }

    #[test]
    fn only_whole_quotes_go() {
        for (text, without) in
            [("'a'", "a"), ("\"it's\"", "it's"), ("'", "'"), ("[1]", "[1]"), ("'a", "'a"), ("''", "")]
        {
            assert_eq!(unquoted(text), without);
        }
    }
}
