//! JSON as people read it: records as a table, everything else as a tree.

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Map, Value};

use super::words::{more_lines, one_line};
use crate::terminal::{Look, width};

const KEY: Style = AnsiColor::Blue.on_default();
const TEXT: Style = AnsiColor::Green.on_default();
const NUMBER: Style = AnsiColor::Cyan.on_default();
const DIM: Style = Style::new().dimmed();

/// Columns of a table; records with more are shown as a tree.
const COLUMNS_MAX: usize = 12;
/// Items of one list or object that are shown.
const ITEMS_MAX: usize = 50;
/// Levels that are shown.
const DEPTH_MAX: usize = 8;
/// Levels of a value that is shown on one line.
const FLAT_DEPTH_MAX: usize = 2;
/// Characters of one text that are shown.
const TEXT_CHARS_MAX: usize = 500;

/// Returns the lines of a JSON text for a terminal of so many columns, or `None` if it is not JSON.
pub(crate) fn lines(json: &str, look: Look, width: usize) -> Option<Vec<String>> {
    let value: Value = serde_json::from_str(json).ok()?;
    if let Some(table) = table(&value, look, width) {
        return Some(table);
    }
    let mut tree = Tree { look, width, lines: Vec::new() };
    tree.value("", "", &value, 0);
    Some(tree.lines)
}

/// Records with the same flat fields.
fn table(value: &Value, look: Look, width: usize) -> Option<Vec<String>> {
    let records: Vec<&Map<String, Value>> = value.as_array()?.iter().map(Value::as_object).collect::<Option<_>>()?;
    let fields: Vec<&String> = records.first()?.keys().collect();
    let is_record = |record: &&Map<String, Value>| {
        record.len() == fields.len()
            && fields
                .iter()
                .all(|field| record.get(*field).is_some_and(|value| !value.is_object() && !value.is_array()))
    };
    if records.len() < 2 || !(1..=COLUMNS_MAX).contains(&fields.len()) || !records.iter().all(is_record) {
        return None;
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    table.set_header(fields.iter().map(|field| one_line(field)));
    for record in records.iter().take(ITEMS_MAX) {
        table.add_row(record.values().map(|value| match value {
            Value::String(text) => one_line(&cut(text)),
            other => other.to_string(),
        }));
    }
    let mut lines: Vec<String> = table.lines().collect();
    let more = records.len().saturating_sub(ITEMS_MAX);
    if more > 0 {
        lines.push(look.paint(DIM, &more_lines(more)));
    }
    Some(lines)
}

/// A tree, a value a line; what fits on one line stays on it.
struct Tree {
    look: Look,
    width: usize,
    lines: Vec<String>,
}

impl Tree {
    /// Adds a value behind `label`, its parts behind `indent`.
    fn value(&mut self, indent: &str, label: &str, value: &Value, depth: usize) {
        let flat = self.flat(value, FLAT_DEPTH_MAX);
        let visible = width(indent).saturating_add(width(label));
        if let Some((text, chars)) = flat
            && (visible.saturating_add(chars) <= self.width || !(value.is_object() || value.is_array()))
        {
            self.lines.push(format!("{label}{text}"));
            return;
        }
        let parts: Vec<(String, &Value)> = match value {
            Value::Array(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
            Value::Object(fields) => fields.iter().map(|(name, item)| (one_line(name), item)).collect(),
            _ => Vec::new(),
        };
        let count = parts.len();
        let plural = if count == 1 { "" } else { "s" };
        let what = match value.is_array() {
            true => format!("[{count} item{plural}]"),
            false => format!("{{{count} field{plural}}}"),
        };
        self.lines.push(format!("{label}{}", self.look.paint(DIM, &what)));
        if depth == DEPTH_MAX {
            return;
        }
        let shown = if count > ITEMS_MAX { ITEMS_MAX - 1 } else { count };
        for (place, (name, item)) in parts.into_iter().take(shown).enumerate() {
            let is_last = place.saturating_add(1) == count;
            let branch = self.look.paint(DIM, &format!("{indent}{}", if is_last { "└─ " } else { "├─ " }));
            let label = format!("{branch}{}: ", self.look.paint(KEY, &name));
            let indent = format!("{indent}{}", if is_last { "   " } else { "│  " });
            self.value(&indent, &label, item, depth.saturating_add(1));
        }
        if shown < count {
            self.lines.push(self.look.paint(DIM, &format!("{indent}└─ … {} more", count.saturating_sub(shown))));
        }
    }

    /// A value on one line with its length, if it is no deeper than `depth` and has few parts.
    fn flat(&self, value: &Value, depth: usize) -> Option<(String, usize)> {
        let join = |parts: Vec<(String, usize)>, open: &str, close: &str| {
            let chars = parts.iter().fold(2_usize, |sum, (_, chars)| sum.saturating_add(*chars).saturating_add(2));
            let texts: Vec<String> = parts.into_iter().map(|(text, _)| text).collect();
            (format!("{open}{}{close}", texts.join(", ")), chars)
        };
        match value {
            Value::Array(items) if depth > 0 && items.len() <= ITEMS_MAX => {
                let items: Option<Vec<_>> = items.iter().map(|item| self.flat(item, depth.saturating_sub(1))).collect();
                Some(join(items?, "[", "]"))
            }
            Value::Object(fields) if depth > 0 && fields.len() <= ITEMS_MAX => {
                let field = |(name, value): (&String, &Value)| {
                    let (text, chars) = self.flat(value, depth.saturating_sub(1))?;
                    let name = one_line(name);
                    Some((
                        format!("{}: {text}", self.look.paint(KEY, &name)),
                        chars.saturating_add(width(&name)).saturating_add(2),
                    ))
                };
                let fields: Option<Vec<_>> = fields.iter().map(field).collect();
                Some(join(fields?, "{", "}"))
            }
            other => self.leaf(other),
        }
    }

    /// A value without parts.
    fn leaf(&self, value: &Value) -> Option<(String, usize)> {
        let (style, text) = match value {
            Value::Null | Value::Bool(_) => (DIM, value.to_string()),
            Value::Number(number) => (NUMBER, number.to_string()),
            Value::String(text) => (TEXT, Value::from(cut(text)).to_string()),
            Value::Array(items) if items.is_empty() => (DIM, "[]".to_owned()),
            Value::Object(fields) if fields.is_empty() => (DIM, "{}".to_owned()),
            Value::Array(_) | Value::Object(_) => return None,
        };
        // JSON escapes the control characters below space, and no others.
        let text = one_line(&text);
        let chars = width(&text);
        Some((self.look.paint(style, &text), chars))
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look { has_colors: false, is_terminal: true };

    fn check(json: &str, width: usize, expected: &[&str]) {
        assert_eq!(lines(json, PLAIN, width).expect("JSON"), expected, "{json}");
    }

    #[test]
    fn what_fits_stays_on_a_line() {
        check("[1, 2, {}]", 80, &["[1, 2, {}]"]);
        check(r#"{"a": 1, "b": "x\ny"}"#, 80, &[r#"{a: 1, b: "x\ny"}"#]);
        check("null", 80, &["null"]);
    }

    #[test]
    fn what_does_not_fit_is_a_tree() {
        check(
            r#"{"name": "Ada", "born": {"year": 1815, "place": ["London", ["a"]]}, "tags": []}"#,
            80,
            &[
                "{3 fields}",
                "├─ name: \"Ada\"",
                "├─ born: {2 fields}",
                "│  ├─ year: 1815",
                "│  └─ place: [\"London\", [\"a\"]]",
                "└─ tags: []",
            ],
        );
        let many = format!("{:?}", (0..200).collect::<Vec<_>>());
        let found = lines(&many, PLAIN, 80).expect("JSON");
        assert_eq!((found.len(), found[50].as_str()), (51, "└─ … 151 more"));
    }

    #[test]
    fn records_are_a_table() {
        let found = lines(r#"[{"city": "Oslo", "people": 700000}, {"city": "Bergen", "people": 290000}]"#, PLAIN, 60);
        let text = found.expect("JSON").join("\n");
        assert!(text.contains("city") && text.contains("Bergen") && !text.contains('{'), "{text}");
    }

    #[test]
    fn deep_and_hostile_values_stay_small() {
        let deep = format!("{}1{}", "[[1],".repeat(60), "]".repeat(60));
        assert!(lines(&deep, PLAIN, 80).expect("JSON").len() < 40);
        assert_eq!(lines("\"\\u001b[2J\u{9b}31m\"", PLAIN, 80).expect("JSON"), ["\"\\u001b[2J\\u{9b}31m\""]);
        assert!(lines("{", PLAIN, 80).is_none());
    }
}
