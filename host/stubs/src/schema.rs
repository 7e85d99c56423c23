//! JSON Schemas, read as types. Whatever is beyond the bounds, or is said in a way that types cannot, is any value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::words;

/// Schemas that are read of one, references followed.
const NODES_MAX: usize = 2_000;
const DEPTH_MAX: usize = 12;
const FIELDS_MAX: usize = 200;
const LITERALS_MAX: usize = 50;
const LITERAL_CHARACTERS: usize = 100;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Any,
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    /// One of these: texts, whole numbers and truth values.
    Literal(Vec<Value>),
    List(Box<Type>),
    Tuple(Vec<Type>),
    Map(Box<Type>),
    Object(Vec<Field>),
    Union(Vec<Type>),
    /// One of [`Shape::named`].
    Named(usize),
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) of: Type,
    pub(crate) is_required: bool,
    /// Its description in one line.
    pub(crate) about: String,
    pub(crate) default: Option<Value>,
}

/// A schema as types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) root: Type,
    /// Types that are referred to, with their names.
    pub(crate) named: Vec<(String, Type)>,
}

impl Shape {
    /// Reads a schema; none, or one that is no JSON, says nothing.
    pub(crate) fn of(text: Option<&str>) -> Shape {
        let value = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        let mut reader = Reader { root: &value, named: Vec::new(), places: BTreeMap::new(), nodes: NODES_MAX };
        let mut root = reader.read(&value, 0);
        let mut named = reader.named;
        for at in 0..named.len() {
            if is_itself(&named, at) {
                named[at].1 = Type::Any;
            }
        }
        if let Type::Named(at) = root {
            root = named.get(at).map_or(Type::Any, |(_, of)| of.clone());
        }
        Shape { root, named }
    }

    /// The arguments by their names; `None` if the schema does not say them so.
    pub(crate) fn fields(&self) -> Option<&[Field]> {
        if let Type::Object(fields) = &self.root { Some(fields) } else { None }
    }
}

/// Returns true if a named type is, without anything around it, itself.
fn is_itself(named: &[(String, Type)], at: usize) -> bool {
    fn bare(of: &Type, found: &mut Vec<usize>) {
        match of {
            Type::Named(at) => found.push(*at),
            Type::Union(members) => members.iter().for_each(|member| bare(member, found)),
            _ => {}
        }
    }
    let (mut open, mut seen) = (vec![at], Vec::new());
    while let Some(next) = open.pop() {
        let mut found = Vec::new();
        named.get(next).into_iter().for_each(|(_, of)| bare(of, &mut found));
        if found.contains(&at) {
            return true;
        }
        found.retain(|one| !seen.contains(one));
        seen.extend(&found);
        open.extend(found);
    }
    false
}

struct Reader<'a> {
    root: &'a Value,
    named: Vec<(String, Type)>,
    /// Numbers of the named types, by their references.
    places: BTreeMap<String, usize>,
    nodes: usize,
}

impl Reader<'_> {
    fn read(&mut self, schema: &Value, depth: usize) -> Type {
        let Value::Object(schema) = schema else { return Type::Any };
        let Some(left) = self.nodes.checked_sub(1).filter(|_| depth < DEPTH_MAX) else { return Type::Any };
        self.nodes = left;
        let inner = depth.saturating_add(1);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(reference, inner);
        }
        let of = if let Some(value) = schema.get("const") {
            literal(std::slice::from_ref(value))
        } else if let Some(Value::Array(values)) = schema.get("enum") {
            literal(values)
        } else if let Some(Value::Array(all)) = schema.get("allOf") {
            self.merged(schema, all, inner)
        } else if let (Some(Value::Array(some)), false) =
            (schema.get("anyOf").or_else(|| schema.get("oneOf")), schema.contains_key("properties"))
        {
            union(some.iter().take(LITERALS_MAX).map(|one| self.read(one, inner)).collect())
        } else {
            self.of_kinds(schema, inner)
        };
        if schema.get("nullable") == Some(&Value::Bool(true)) { union(vec![of, Type::Null]) } else { of }
    }

    fn of_kinds(&mut self, schema: &Map<String, Value>, depth: usize) -> Type {
        match schema.get("type") {
            Some(Value::String(kind)) => self.of_kind(kind, schema, depth),
            Some(Value::Array(kinds)) => {
                let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).take(8).collect();
                union(kinds.into_iter().map(|kind| self.of_kind(kind, schema, depth)).collect())
            }
            _ if schema.contains_key("properties") => self.object(schema, depth),
            _ if schema.contains_key("items") || schema.contains_key("prefixItems") => self.array(schema, depth),
            _ => Type::Any,
        }
    }

    fn of_kind(&mut self, kind: &str, schema: &Map<String, Value>, depth: usize) -> Type {
        match kind {
            "string" => Type::Text,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            "null" => Type::Null,
            "array" => self.array(schema, depth),
            "object" => self.object(schema, depth),
            _ => Type::Any,
        }
    }

    fn array(&mut self, schema: &Map<String, Value>, depth: usize) -> Type {
        if let Some(Value::Array(items)) = schema.get("prefixItems") {
            let is_whole = schema.get("items") == Some(&Value::Bool(false))
                || schema.get("maxItems").and_then(Value::as_u64) == u64::try_from(items.len()).ok();
            if is_whole && !items.is_empty() {
                return Type::Tuple(items.iter().take(LITERALS_MAX).map(|item| self.read(item, depth)).collect());
            }
            return Type::List(Box::new(Type::Any));
        }
        let item = schema.get("items").map_or(Type::Any, |items| self.read(items, depth));
        Type::List(Box::new(item))
    }

    fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> Type {
        let properties =
            schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty());
        let Some(properties) = properties else {
            return match schema.get("additionalProperties") {
                Some(Value::Bool(false)) => Type::Object(Vec::new()),
                Some(more @ Value::Object(_)) => Type::Map(Box::new(self.read(more, depth))),
                // Arguments of which nothing more is said are none; a value may be any object.
                _ if depth == 1 && schema.contains_key("properties") => Type::Object(Vec::new()),
                _ => Type::Map(Box::new(Type::Any)),
            };
        };
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = properties.iter().take(FIELDS_MAX).map(|(name, property)| Field {
            name: name.clone(),
            of: self.read(property, depth),
            is_required: required.contains(&name.as_str()),
            about: about(property),
            default: property.get("default").filter(|value| is_short(value)).cloned(),
        });
        Type::Object(fields.collect())
    }

    /// A value that is all of these: the members of all objects together, or else the first that says something.
    fn merged(&mut self, schema: &Map<String, Value>, all: &[Value], depth: usize) -> Type {
        let mut parts: Vec<Type> = all.iter().take(LITERALS_MAX).map(|one| self.read(one, depth)).collect();
        parts.push(self.of_kinds(schema, depth));
        let mut fields: Vec<Field> = Vec::new();
        let mut other = None;
        for part in parts {
            let part = match part {
                Type::Named(at) => self.named.get(at).map_or(Type::Any, |(_, of)| of.clone()),
                part => part,
            };
            match part {
                Type::Object(more) => {
                    for field in more {
                        match fields.iter_mut().find(|known| known.name == field.name) {
                            Some(known) => *known = field,
                            None => fields.push(field),
                        }
                    }
                }
                Type::Any => {}
                part => other = other.or(Some(part)),
            }
        }
        match (fields.is_empty(), other) {
            (false, _) => {
                let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
                let required: Vec<&str> = required.filter_map(Value::as_str).collect();
                fields.truncate(FIELDS_MAX);
                fields.iter_mut().for_each(|field| field.is_required |= required.contains(&field.name.as_str()));
                Type::Object(fields)
            }
            (true, Some(other)) => other,
            (true, None) => Type::Any,
        }
    }

    fn referred(&mut self, reference: &str, depth: usize) -> Type {
        if let Some(at) = self.places.get(reference) {
            let known = self.named.get(*at).map(|(_, of)| of).filter(|of| is_plain(of));
            return known.cloned().unwrap_or(Type::Named(*at));
        }
        let Some(target) = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) else {
            return Type::Any;
        };
        let at = self.named.len();
        self.places.insert(reference.to_owned(), at);
        let name = reference.rsplit(['/', '#']).next().unwrap_or_default();
        self.named.push((if name.is_empty() { "Arguments".to_owned() } else { name.to_owned() }, Type::Any));
        let of = self.read(target, depth);
        if let Some(place) = self.named.get_mut(at) {
            place.1 = of.clone();
        }
        // What is as short as its name needs none.
        if of == Type::Any || is_plain(&of) { of } else { Type::Named(at) }
    }
}

/// Returns the union of types, each once.
fn union(types: Vec<Type>) -> Type {
    let (mut members, mut values): (Vec<Type>, Vec<Value>) = (Vec::new(), Vec::new());
    for of in types {
        match of {
            Type::Union(inner) => inner.into_iter().for_each(|one| {
                if !members.contains(&one) {
                    members.push(one)
                }
            }),
            Type::Literal(more) => more.into_iter().for_each(|one| {
                if !values.contains(&one) {
                    values.push(one)
                }
            }),
            of if members.contains(&of) => {}
            of => members.push(of),
        }
    }
    if !values.is_empty() {
        members.insert(0, Type::Literal(values));
    }
    if members.is_empty() || members.contains(&Type::Any) {
        return Type::Any;
    }
    if members.len() == 1 { members.remove(0) } else { Type::Union(members) }
}

fn literal(values: &[Value]) -> Type {
    let (mut literals, mut types) = (Vec::new(), Vec::new());
    for value in values {
        match value {
            Value::Null => types.push(Type::Null),
            Value::String(text) if text.chars().count() > LITERAL_CHARACTERS => types.push(Type::Text),
            // A literal of Python is no fraction.
            Value::Number(number) if number.is_f64() => types.push(Type::Number),
            Value::String(_) | Value::Bool(_) | Value::Number(_) => literals.push(value.clone()),
            _ => types.push(Type::Any),
        }
    }
    if literals.len() > LITERALS_MAX {
        let kind = |value: &Value| match value {
            Value::String(_) => Type::Text,
            Value::Bool(_) => Type::Boolean,
            _ => Type::Integer,
        };
        types.extend(literals.iter().map(kind));
    } else if !literals.is_empty() {
        types.push(Type::Literal(literals));
    }
    union(types)
}

fn is_plain(of: &Type) -> bool {
    matches!(of, Type::Null | Type::Boolean | Type::Integer | Type::Number | Type::Text)
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().count() <= LITERAL_CHARACTERS,
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    }
}

/// The description of a property, with its format.
fn about(property: &Value) -> String {
    let said = |key: &str| property.get(key).and_then(Value::as_str).map(words::whole).unwrap_or_default();
    let (description, format) = (said("description"), said("format"));
    match (description.is_empty(), format.is_empty()) {
        (_, true) => description,
        (true, false) => format,
        (false, false) => format!("{description} ({format})"),
    }
}
