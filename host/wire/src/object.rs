//! Objects that callers write. One table of members is what is read, what is checked and what the schema says.

use std::time::Duration;

use cellar_core::{
    cell::Language,
    limits::{CELLS_MAX, LIMITS, Limit, LimitSettings, TIMEOUT_MAX, TIMEOUT_MIN, Unit},
    origin::SEEN_MAX,
};
use schemars::{JsonSchema as _, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::{
    check::{At, Fields, Problems},
    json::Node,
    request::{CellJson, LANGUAGE_NAMES, Seconds, language},
    stdio::ToolJson,
};

/// An object whose keys are fixed.
#[derive(Debug)]
pub(crate) struct Object {
    /// Name of its schema, or of the type of line that it is.
    pub(crate) name: &'static str,
    about: &'static str,
    members: &'static [Member],
}

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    key: &'static str,
    /// Description; empty where the key says it all.
    about: &'static str,
    kind: Kind,
    /// Expectation that a message states where it is missing, if it may not be.
    required: Option<&'static str>,
}

/// Values that a member may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Any value.
    Any,
    /// Yes or no.
    Boolean,
    /// Yes, or no, which it is when absent.
    Flag,
    /// A string.
    Text(Text),
    /// A string, or null.
    TextOrNull(Text),
    /// A whole number in a range, in the format of a type. What is as large as the type may be has no maximum in the schema.
    Integer { least: u64, most: u64, format: &'static str },
    /// Seconds that a cell may take, with fractions.
    Timeout,
    /// Such a number, or null.
    IntegerOrNull { least: u64, most: u64, format: &'static str },
    /// The code or the name of a language.
    Language,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An object whose keys are free here.
    Entries,
    /// An object whose keys are free and whose values are strings.
    Texts,
    /// Limits by their keys in a `cellar.toml`.
    Limits,
    /// An array of cells.
    Cells,
    /// An array of tools.
    Tools,
    /// An array of pairs of a kind and a name.
    Seen,
}

/// Bounds of a string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    bytes_max: usize,
    /// It must have more than white space.
    is_filled: bool,
    /// The schema has its bounds.
    is_described: bool,
}

impl Text {
    pub(crate) const ANY: Text = Text { bytes_max: usize::MAX, is_filled: false, is_described: false };

    pub(crate) const fn at_most(self, bytes_max: usize) -> Text {
        Text { bytes_max, ..self }
    }

    pub(crate) const fn filled(self) -> Text {
        Text { is_filled: true, ..self }
    }

    pub(crate) const fn described(self) -> Text {
        Text { is_described: true, ..self }
    }

    pub(crate) fn read(self, at: &At<'_>, problems: &mut Problems) -> Option<String> {
        let text = if self.is_filled { at.filled_text(problems)? } else { at.text(problems)? };
        if text.len() > self.bytes_max {
            problems.add(&at.path, format_args!("expected at most {} bytes, found {}", self.bytes_max, text.len()));
            return None;
        }
        Some(text.to_owned())
    }
}

pub(crate) const fn member(key: &'static str, kind: Kind, about: &'static str) -> Member {
    Member { key, about, kind, required: None }
}

impl Member {
    /// The same, which may not be left out; `expected` says what it holds.
    pub(crate) const fn required(self, expected: &'static str) -> Member {
        Member { required: Some(expected), ..self }
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let integer =
            |kind: Value, least: u64, format: &str| json_schema!({"type": kind, "format": format, "minimum": least});
        let mut schema = match self.kind {
            Kind::Any => Schema::default(),
            Kind::Boolean | Kind::Flag => json_schema!({"type": "boolean"}),
            Kind::Text(_) | Kind::Language | Kind::Word(_) => json_schema!({"type": "string"}),
            Kind::TextOrNull(_) => json_schema!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            Kind::Integer { least, format, .. } => integer("integer".into(), least, format),
            Kind::Timeout => Seconds::json_schema(generator),
            Kind::IntegerOrNull { least, format, .. } => integer(["integer", "null"].as_slice().into(), least, format),
            Kind::Entries => json_schema!({"type": "object", "additionalProperties": true}),
            Kind::Texts => json_schema!({"type": "object", "additionalProperties": {"type": "string"}}),
            Kind::Limits => limits_schema(),
            Kind::Cells => generator.subschema_for::<Vec<CellJson>>(),
            Kind::Tools => generator.subschema_for::<Vec<ToolJson>>(),
            Kind::Seen => generator.subschema_for::<Vec<(String, String)>>(),
        };
        let mut add = |key: &str, value: Value| schema.insert(key.to_owned(), value);
        if !self.about.is_empty() {
            add("description", self.about.into());
        }
        match self.kind {
            Kind::Flag => drop(add("default", false.into())),
            Kind::Text(text) if text.is_described => {
                if text.is_filled {
                    add("minLength", 1.into());
                }
                add("maxLength", text.bytes_max.into());
            }
            Kind::Integer { most, .. } | Kind::IntegerOrNull { most, .. } if most != u64::from(u32::MAX) => {
                add("maximum", most.into());
            }
            Kind::Language => {
                let names: Vec<&str> = LANGUAGE_NAMES.iter().flat_map(|(_, names)| *names).collect();
                add("enum", names.into());
            }
            Kind::Word(words) => drop(add("enum", words.into())),
            Kind::Cells => {
                add("minItems", 1.into());
                add("maxItems", CELLS_MAX.into());
            }
            Kind::Seen => drop(add("maxItems", SEEN_MAX.into())),
            _ => {}
        }
        schema
    }
}

impl Object {
    pub(crate) const fn new(name: &'static str, about: &'static str, members: &'static [Member]) -> Object {
        Object { name, about, members }
    }

    /// Its members in a value. Keys that are not known, and repeated ones, are noted; `type` is, where there is a tag.
    pub(crate) fn read<'a>(
        &'static self,
        at: &At<'a>,
        tag: Option<&'static str>,
        problems: &mut Problems,
    ) -> Option<Members<'a>> {
        let known: Vec<&str> = tag.into_iter().chain(self.members.iter().map(|member| member.key)).collect();
        Some(Members { fields: at.fields(&known, problems)?, object: self })
    }

    /// Its schema; with a tag, a member that has its name.
    pub(crate) fn schema(&self, tag: Option<&'static str>, generator: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        let mut required: Vec<&str> = tag.into_iter().collect();
        if let Some(tag) = tag {
            properties.insert(tag.to_owned(), serde_json::json!({"type": "string", "const": self.name}));
        }
        for member in self.members {
            properties.insert(member.key.to_owned(), member.schema(generator).into());
            required.extend(member.required.map(|_| member.key));
        }
        let mut schema = json_schema!({"type": "object", "additionalProperties": false, "properties": properties});
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema.insert("description".to_owned(), self.about.into());
        schema
    }
}

/// Members of an object that is read.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    fields: Fields<'a>,
    object: &'static Object,
}

impl<'a> Members<'a> {
    /// A member. A missing one that may not be missing is noted.
    pub(crate) fn get(&self, key: &str, problems: &mut Problems) -> Option<At<'a>> {
        match self.object.members.iter().find(|member| member.key == key)?.required {
            Some(expected) => self.fields.required(key, expected, problems),
            None => self.fields.get(key),
        }
    }

    /// A string within its bounds; `None` for null where that may be.
    pub(crate) fn text(&self, key: &str, problems: &mut Problems) -> Option<String> {
        let at = self.get(key, problems)?;
        match self.kind(key)? {
            Kind::TextOrNull(_) if *at.node == Node::Null => None,
            Kind::Text(text) | Kind::TextOrNull(text) => text.read(&at, problems),
            _ => None,
        }
    }

    /// Yes or no.
    pub(crate) fn boolean(&self, key: &str, problems: &mut Problems) -> Option<bool> {
        self.get(key, problems)?.boolean(problems)
    }

    /// A whole number in its range; `None` for null where that may be.
    pub(crate) fn integer(&self, key: &str, problems: &mut Problems) -> Option<u64> {
        let at = self.get(key, problems)?;
        match self.kind(key)? {
            Kind::IntegerOrNull { .. } if *at.node == Node::Null => None,
            Kind::Integer { least, most, .. } | Kind::IntegerOrNull { least, most, .. } => {
                at.integer(least..=most, problems)
            }
            _ => None,
        }
    }

    /// Seconds that a cell may take.
    pub(crate) fn timeout(&self, key: &str, problems: &mut Problems) -> Option<Duration> {
        self.get(key, problems)?.seconds(TIMEOUT_MIN..=TIMEOUT_MAX, problems)
    }

    /// One of the words that are known.
    pub(crate) fn word(&self, key: &str, problems: &mut Problems) -> Option<&'static str> {
        let at = self.get(key, problems)?;
        let Kind::Word(words) = self.kind(key)? else { return None };
        let found = words.iter().find(|word| matches!(at.node, Node::Text(text) if text == *word));
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            at.expected(words.join(" or "), problems);
        }
        found.copied()
    }

    /// Limits by their keys. Those that are absent or wrong are not set.
    pub(crate) fn limits(&self, key: &str, problems: &mut Problems) -> LimitSettings {
        let mut settings = LimitSettings::default();
        let Some(at) = self.get(key, problems) else { return settings };
        let known: Vec<&str> = LIMITS.iter().map(|limit| limit.key).collect();
        let Some(fields) = at.fields(&known, problems) else { return settings };
        for limit in LIMITS {
            let number = fields.get(limit.key).and_then(|at| at.limit(limit, problems));
            *limit.setting_mut(&mut settings) = number;
        }
        settings
    }

    /// An object of those of these members that are there; `None` if none is.
    pub(crate) fn gathered(&self, keys: &[&str], problems: &mut Problems) -> Option<Node> {
        let found = keys.iter().filter_map(|key| Some(((*key).to_owned(), self.get(key, problems)?.node.clone())));
        let found: Vec<(String, Node)> = found.collect();
        (!found.is_empty()).then_some(Node::Object(found))
    }

    /// A language.
    pub(crate) fn language(&self, key: &str, problems: &mut Problems) -> Option<Language> {
        language(&self.get(key, problems)?, problems)
    }

    fn kind(&self, key: &str) -> Option<Kind> {
        self.object.members.iter().find(|member| member.key == key).map(|member| member.kind)
    }
}

/// Schema of limits by their keys.
fn limits_schema() -> Schema {
    let of = |limit: &Limit| {
        let (least, most) = (limit.in_unit(*limit.range.start()), limit.in_unit(*limit.range.end()));
        let kind = if limit.unit == Unit::Seconds { "number" } else { "integer" };
        let schema = serde_json::json!({
            "type": kind, "minimum": least, "maximum": most, "description": limit.meaning,
        });
        (limit.key.to_owned(), schema)
    };
    let properties: Map<String, Value> = LIMITS.iter().map(of).collect();
    json_schema!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// Types in schemas that objects describe.
macro_rules! described {
    ($($type:ty: $object:ident),+) => { $(
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $object.name.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $object.schema(None, generator)
            }
        }
    )+ };
}

pub(crate) use described;
