//! JSON Schema, as tools and callers give it.

use cellar_core::text::{list, nearest};
use cellar_secrets::{clip, quote};
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::Value;

/// Faults that one message names.
const FAULTS_MAX: usize = 3;

/// Nodes that a schema from a cell may have once its references are written out: they bound the time of a check.
const NODES_MAX: usize = 10_000;
/// References that may lead to one another in a schema from a cell.
const REFERENCES_MAX: usize = 32;

/// A schema that values can be checked against. References to other documents are never fetched.
#[derive(Debug)]
pub struct Schema {
    validator: jsonschema::Validator,
    /// Schema as given, from which messages take the known names.
    source: Value,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
        Ok(Schema { validator, source: schema.clone() })
    }

    /// Compiles a schema that came as a text, from a cell: it must describe an object, and checking it must be quick.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn of_object(text: &str) -> Result<(Value, Schema), String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let Some(members) = value.as_object() else {
            return Err("it must be a JSON object".to_owned());
        };
        if members.get("type").is_some_and(|kind| kind != "object") {
            return Err("it must describe an object: `\"type\": \"object\"`".to_owned());
        }
        write_out(&value, &value, &mut Vec::new(), &mut NODES_MAX.clone())?;
        let schema = Schema::compile(&value)?;
        Ok((value, schema))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first faults, each with the JSON Pointer to it, what was expected and what was found.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let mut errors = self.validator.iter_errors(value);
        let faults: Vec<String> = errors.by_ref().take(FAULTS_MAX).map(|error| self.fault(&error)).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    /// Describes one fault in words.
    fn fault(&self, error: &ValidationError<'_>) -> String {
        let place = error.instance_path().as_str();
        let expected = match error.kind() {
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                let known = self.known(error);
                let faults = unexpected.iter().take(FAULTS_MAX).map(|name| unknown(place, name, &known));
                return faults.collect::<Vec<_>>().join("; ");
            }
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                return format!("`{}`: expected a value, found nothing", child(place, name));
            }
            Kind::Type { kind: TypeKind::Single(kind) } => kind.to_string(),
            Kind::Type { kind: TypeKind::Multiple(kinds) } => {
                kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
            }
            Kind::Enum { options } => format!("one of {}", short(options)),
            Kind::Constant { expected_value } => short(expected_value),
            Kind::Minimum { limit } => format!("at least {limit}"),
            Kind::Maximum { limit } => format!("at most {limit}"),
            Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
            Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
            Kind::MinLength { limit } => format!("at least {limit} characters"),
            Kind::MaxLength { limit } => format!("at most {limit} characters"),
            Kind::MinItems { limit } => format!("at least {limit} items"),
            Kind::MaxItems { limit } => format!("at most {limit} items"),
            Kind::Pattern { pattern } => format!("text that matches {}", quote(pattern)),
            Kind::Format { format } => format!("text of the format `{format}`"),
            _ => return format!("`{}`: {}", root(place), error.masked_with("the value")),
        };
        format!("`{}`: expected {expected}, found {}", root(place), short(error.instance()))
    }

    /// Returns the names that are declared for the object with a fault.
    fn known(&self, error: &ValidationError<'_>) -> Vec<&str> {
        let (parent, _) = error.schema_path().as_str().rsplit_once('/').unwrap_or_default();
        let properties = self.source.pointer(parent).and_then(|schema| schema.get("properties"));
        properties.and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }
}

/// The JSON Pointer to a member.
fn child(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// A JSON Pointer as people read it: that of the whole is empty.
fn root(place: &str) -> &str {
    if place.is_empty() { "/" } else { place }
}

fn unknown(place: &str, name: &str, known: &[&str]) -> String {
    let path = child(place, name);
    match nearest(name, known) {
        Some(meant) => format!("`{path}`: unknown field, did you mean `{meant}`?"),
        None if known.is_empty() => format!("`{path}`: unknown field, none is known"),
        None => format!("`{path}`: unknown field, known are {}", list(known)),
    }
}

/// A value in a few words.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(_) | Value::Object(_) => clip(&value.to_string()),
        _ => value.to_string(),
    }
}

/// Walks a schema as if its references were expanded, until `left` is used up. `open` are the references that led here.
fn write_out<'a>(root: &'a Value, part: &'a Value, open: &mut Vec<&'a str>, left: &mut usize) -> Result<(), String> {
    *left = left.checked_sub(1).ok_or("it is too large with its references written out")?;
    match part {
        Value::Array(items) => items.iter().try_for_each(|item| write_out(root, item, open, left)),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| match (name.as_str(), member) {
            ("$ref", Value::String(reference)) => follow(root, reference, open, left),
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => Err(format!("`{name}` is not supported here")),
            _ => write_out(root, member, open, left),
        }),
        _ => Ok(()),
    }
}

fn follow<'a>(root: &'a Value, reference: &'a str, open: &mut Vec<&'a str>, left: &mut usize) -> Result<(), String> {
    let shown = quote(reference);
    let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
    let target = target.ok_or_else(|| format!("its reference {shown} leads nowhere in it"))?;
    if open.contains(&reference) || open.len() >= REFERENCES_MAX {
        return Err(format!("its reference {shown} leads back to itself, or too far"));
    }
    open.push(reference);
    write_out(root, target, open, left)?;
    open.pop();
    Ok(())
}

/// Checks the answer of a model or an agent against its schema, and returns it as JSON text.
///
/// # Errors
/// The answer is not an object of that schema: the reason in words.
pub(crate) fn object_of(schema: &Schema, answer: &Value) -> Result<String, String> {
    if !answer.is_object() {
        return Err(format!("expected a JSON object, found {}", quote(&answer.to_string())));
    }
    schema.check(answer)?;
    Ok(answer.to_string())
}
