//! A document as it was written, with every key kept, repeated ones too.
//!
//! Ordinary maps forget what a reviewer of a request must see: that a key came twice. Read [`Node`] first.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::fmt;

use cellar_core::{
    limits::REQUEST_VALUES_MAX,
    mime::{json_values, wide_integer},
};
use cellar_secrets::quote;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// One value of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Null,
    Boolean(bool),
    Number(Number),
    Text(String),
    Array(Vec<Node>),
    /// Members in the order in which they were written.
    Object(Vec<(String, Node)>),
    /// A value that JSON does not have, in words.
    Other(&'static str),
}

/// Parses a JSON text: one value, nothing behind it, at most 128 levels deep.
///
/// # Errors
/// What was wrong and where, in words.
pub fn parse(bytes: &[u8]) -> Result<Node, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        let byte = bytes.get(offset).copied().unwrap_or_default();
        format!("expected UTF-8 text, found the byte 0x{byte:02x} at offset {offset}")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err("expected a JSON text, found nothing".to_owned());
    }
    // Few values need no counting: each has a byte at least.
    let values = if text.len() > REQUEST_VALUES_MAX { json_values(text.as_bytes()) } else { 0 };
    if values > REQUEST_VALUES_MAX {
        return Err(format!("expected at most {REQUEST_VALUES_MAX} values, found {values}"));
    }
    if let Some(number) = wide_integer(text) {
        return Err(format!("expected integers of at most 64 bits, since others are rounded, found {}", quote(number)));
    }
    serde_json::from_str(text).map_err(|error| format!("expected a JSON text: {error}"))
}

impl From<&Node> for serde_json::Value {
    fn from(node: &Node) -> serde_json::Value {
        match node {
            Node::Null | Node::Other(_) => serde_json::Value::Null,
            Node::Boolean(value) => (*value).into(),
            Node::Number(value) => value.clone().into(),
            Node::Text(value) => value.as_str().into(),
            Node::Array(items) => items.iter().map(serde_json::Value::from).collect(),
            Node::Object(members) => {
                members.iter().map(|(key, value)| (key.clone(), serde_json::Value::from(value))).collect()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Number::from_f64(value).map_or(Node::Null, Node::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Node::Object(members))
    }
}
