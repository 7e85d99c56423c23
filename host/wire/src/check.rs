//! Checks a document against what was expected, and names every fault by its path.
//!
//! A check goes on after a fault, so that one look at the messages is enough to mend a document. Read [`At`] first.

use std::{fmt, ops::RangeInclusive, time::Duration};

use cellar_core::{
    limits::{Limit, Unit},
    text::{list, nearest},
};
use cellar_secrets::quote;

use serde_json::Number;

use crate::json::Node;

/// Faults that one document is told about; more are counted.
const PROBLEMS_MAX: usize = 20;

/// A document that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Name of the refused input: "the run in `a.json`".
    pub what: String,
    /// One line for each fault, each with the path to it.
    pub problems: Vec<String>,
    /// Faults that are not listed.
    pub more: usize,
}

impl Invalid {
    /// The stable word for a document that was refused.
    pub const CODE: &'static str = "invalid";
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not valid", self.what)?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n  … and {more} more"),
        }
    }
}

/// The faults found so far.
#[derive(Debug, Default)]
pub struct Problems {
    lines: Vec<String>,
    more: usize,
}

impl Problems {
    /// Notes a fault.
    pub fn add(&mut self, path: &str, what: impl fmt::Display) {
        if self.lines.len() == PROBLEMS_MAX {
            self.more = self.more.saturating_add(1);
        } else if path.is_empty() {
            self.lines.push(what.to_string());
        } else {
            self.lines.push(format!("{path}: {what}"));
        }
    }

    /// The refusal of `what`.
    pub fn refusal(self, what: &str) -> Invalid {
        Invalid { what: what.to_owned(), problems: self.lines, more: self.more }
    }

    /// `value`, if the document had no fault.
    ///
    /// # Errors
    /// The refusal of `what`, with all faults.
    pub fn finish<T>(self, what: &str, value: Option<T>) -> Result<T, Invalid> {
        match value {
            Some(value) if self.lines.is_empty() => Ok(value),
            _ => Err(self.refusal(what)),
        }
    }
}

/// A value and the path to it.
#[derive(Clone, Debug)]
pub struct At<'a> {
    /// The value.
    pub node: &'a Node,
    /// Path of the value in the input.
    pub path: String,
}

/// The members of an object whose keys are fixed.
#[derive(Debug)]
pub struct Fields<'a> {
    path: String,
    members: &'a [(String, Node)],
}

impl<'a> At<'a> {
    /// The whole of a document; `path` is `$` for JSON and empty for TOML.
    pub fn root(node: &'a Node, path: &str) -> At<'a> {
        At { node, path: path.to_owned() }
    }

    /// Notes that something else was expected here.
    pub fn expected(&self, what: impl fmt::Display, problems: &mut Problems) {
        problems.add(&self.path, format_args!("expected {what}, found {}", self.found()));
    }

    /// Describes the value in a few words, for messages.
    pub fn found(&self) -> String {
        let container = if self.path.starts_with('$') { "object" } else { "table" };
        match self.node {
            Node::Null => "null".to_owned(),
            Node::Boolean(value) => value.to_string(),
            Node::Number(value) => value.to_string(),
            Node::Text(text) => quote(text),
            Node::Array(items) if items.is_empty() => "an empty array".to_owned(),
            Node::Array(_) => "an array".to_owned(),
            Node::Object(members) if members.is_empty() => format!("an empty {container}"),
            Node::Object(_) => format!("{} {container}", if container == "object" { "an" } else { "a" }),
            Node::Other(words) => (*words).to_owned(),
        }
    }

    /// A string.
    pub fn text(&self, problems: &mut Problems) -> Option<&'a str> {
        match self.node {
            Node::Text(text) => Some(text),
            _ => {
                self.expected("a string", problems);
                None
            }
        }
    }

    /// A string with something in it.
    pub fn filled_text(&self, problems: &mut Problems) -> Option<&'a str> {
        match self.node {
            Node::Text(text) if !text.trim().is_empty() => Some(text),
            _ => {
                self.expected("a string that is not empty", problems);
                None
            }
        }
    }

    /// Yes or no.
    pub fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        match self.node {
            Node::Boolean(value) => Some(*value),
            _ => {
                self.expected("true or false", problems);
                None
            }
        }
    }

    /// A whole number in a range.
    pub fn integer(&self, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let number = match self.node {
            Node::Number(number) => whole(number).filter(|number| range.contains(number)),
            _ => None,
        };
        if number.is_none() {
            let (least, most) = range.into_inner();
            self.expected(format_args!("an integer from {least} to {most}"), problems);
        }
        number
    }

    /// The setting of a limit.
    pub fn limit(&self, limit: &Limit, problems: &mut Problems) -> Option<u64> {
        if limit.unit != Unit::Seconds {
            return self.integer(limit.range.clone(), problems);
        }
        let number = match self.node {
            Node::Number(number) => number.as_f64().and_then(|number| limit.setting_of(number)),
            _ => None,
        };
        if number.is_none() {
            self.expected(format_args!("a number from {}", limit.range_in_words()), problems);
        }
        number
    }

    /// A time in seconds within a range.
    pub fn seconds(&self, range: RangeInclusive<Duration>, problems: &mut Problems) -> Option<Duration> {
        let number = match self.node {
            Node::Number(number) => number.as_f64().and_then(|number| Duration::try_from_secs_f64(number).ok()),
            _ => None,
        };
        let time = number.filter(|time| range.contains(time));
        if time.is_none() {
            let (least, most) = range.into_inner();
            let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
            self.expected(format_args!("a number from {least} to {most}"), problems);
        }
        time
    }

    /// The items of an array that is not empty.
    pub fn items(&self, of_what: &str, problems: &mut Problems) -> Option<Vec<At<'a>>> {
        match self.node {
            Node::Array(items) if !items.is_empty() => Some(
                items.iter().enumerate().map(|(n, node)| At { node, path: format!("{}[{n}]", self.path) }).collect(),
            ),
            _ => {
                self.expected(format_args!("an array of at least one {of_what}"), problems);
                None
            }
        }
    }

    /// The strings of an array that is not empty.
    pub fn texts(&self, of_what: &str, problems: &mut Problems) -> Option<Vec<String>> {
        let items = self.items(of_what, problems)?;
        let texts: Vec<_> = items.iter().filter_map(|item| item.text(problems)).map(str::to_owned).collect();
        (texts.len() == items.len()).then_some(texts)
    }

    /// The members of an object whose keys are `known`. Others, and repeated ones, are noted.
    pub fn fields(&self, known: &[&str], problems: &mut Problems) -> Option<Fields<'a>> {
        let Node::Object(members) = self.node else {
            let kind = if self.path.starts_with('$') { "an object" } else { "a table" };
            self.expected(format_args!("{kind} with {}", list(known)), problems);
            return None;
        };
        let fields = Fields { path: self.path.clone(), members };
        for (n, (key, _)) in members.iter().enumerate() {
            let path = child(&self.path, key);
            if !known.contains(&key.as_str()) {
                problems.add(&path, unknown(key, known));
            } else if members[..n].iter().any(|(earlier, _)| earlier == key) {
                problems.add(&path, "given twice");
            }
        }
        Some(fields)
    }

    /// The members of an object whose keys are free.
    pub fn entries(&self, problems: &mut Problems) -> Option<Vec<(&'a str, At<'a>)>> {
        match self.node {
            Node::Object(members) => Some(
                members.iter().map(|(key, node)| (key.as_str(), At { node, path: child(&self.path, key) })).collect(),
            ),
            _ => {
                self.expected(if self.path.starts_with('$') { "an object" } else { "a table" }, problems);
                None
            }
        }
    }
}

impl<'a> Fields<'a> {
    /// A member that may be left out.
    pub fn get(&self, key: &str) -> Option<At<'a>> {
        let (_, node) = self.members.iter().find(|(name, _)| name == key)?;
        Some(At { node, path: child(&self.path, key) })
    }

    /// A member that may not be left out; `expected` says what it holds.
    pub fn required(&self, key: &str, expected: &str, problems: &mut Problems) -> Option<At<'a>> {
        let at = self.get(key);
        if at.is_none() {
            problems.add(&child(&self.path, key), format_args!("expected {expected}, found nothing"));
        }
        at
    }
}

fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(name) => format!("unknown field, did you mean `{name}`?"),
        None if known.len() == 1 => format!("unknown field, only {} is known", list(known)),
        None => format!("unknown field, known are {}", list(known)),
    }
}

/// The path to a member.
fn child(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match (path.is_empty(), is_plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{}]", quote(key)),
    }
}

/// A number as a whole one. As in JSON Schema, 30.0 is an integer.
fn whole(number: &Number) -> Option<u64> {
    /// Beyond this not every integer has a floating-point number of its own.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=EXACT_MAX).contains(float))?;
        Some(float as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(child("$", "a"), "$.a");
        assert_eq!(child("", "tools"), "tools");
        assert_eq!(child("$.x", "a b\"\n"), "$.x[\"a b\\\"\\n\"]");
    }
}
