//! JSON Schema, as tools and callers give it.

use serde_json::Value;

use crate::text::quote;

/// Faults that one message names.
const FAULTS_MAX: usize = 3;

/// Nodes that a schema from a cell may have once its references are written out: they bound the time of a check.
const NODES_MAX: usize = 10_000;
/// References that may lead to one another in a schema from a cell.
const REFERENCES_MAX: usize = 32;

/// A schema that values can be checked against. References to other documents are never fetched.
#[derive(Debug)]
pub struct Schema(jsonschema::Validator);

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        jsonschema::validator_for(schema).map(Schema).map_err(|error| error.to_string())
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
    /// The first faults, each with the path to it.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let faults: Vec<String> = self
            .0
            .iter_errors(value)
            .take(FAULTS_MAX)
            .map(|error| format!("{error} (at `${}`)", error.instance_path().as_str().replace('/', ".")))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

/// Walks a schema as if its references were written out, for as long as `left` lasts. `open` are those that led here.
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

/// Reads the answer of a model or an agent that was given a schema.
///
/// # Errors
/// Why it is not an object of that schema, in words.
pub(crate) fn object_of(schema: &Schema, answer: &Value) -> Result<String, String> {
    if !answer.is_object() {
        return Err(format!("expected a JSON object, found {}", quote(&answer.to_string())));
    }
    schema.check(answer)?;
    Ok(answer.to_string())
}
