//! JSON Schema, as tools and callers give it.

use serde_json::Value;

/// Faults that one message names.
const FAULTS_MAX: usize = 3;

/// A schema that values can be checked against. References to other documents are never fetched.
pub(crate) struct Schema(jsonschema::Validator);

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn compile(schema: &Value) -> Result<Schema, String> {
        jsonschema::validator_for(schema).map(Schema).map_err(|error| error.to_string())
    }

    /// Compiles a schema that came as a text, from a cell: it must describe an object.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn of_object(text: &str) -> Result<(Value, Schema), String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let Some(members) = value.as_object() else {
            return Err("it must be a JSON object".to_owned());
        };
        if members.get("type").is_some_and(|kind| kind != "object") {
            return Err("it must describe an object: `\"type\": \"object\"`".to_owned());
        }
        let schema = Schema::compile(&value)?;
        Ok((value, schema))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first faults, each with the path to it.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let faults: Vec<String> = self
            .0
            .iter_errors(value)
            .take(FAULTS_MAX)
            .map(|error| format!("{error} (at `${}`)", error.instance_path().as_str().replace('/', ".")))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

/// Reads the answer of a model or an agent that was given a schema.
///
/// # Errors
/// Why it is not an object of that schema, in words.
pub(crate) fn object_of(schema: &Schema, answer: &Value) -> Result<String, String> {
    if !answer.is_object() {
        return Err(format!("expected a JSON object, found {}", crate::check::quote(&answer.to_string())));
    }
    schema.check(answer)?;
    Ok(answer.to_string())
}
