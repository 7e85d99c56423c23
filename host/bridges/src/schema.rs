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

/// Bytes of a schema that is not the operator's.
const BYTES_MAX: usize = 1 << 20;
/// Nodes that such a schema may have once its references are written out: they bound the time of a check.
const NODES_MAX: usize = 10_000;
/// References that may lead to one another in it.
const REFERENCES_MAX: usize = 32;
/// Patterns in it, and the bytes that one may take when it is compiled.
const PATTERNS_MAX: usize = 64;
const PATTERN_BYTES: usize = 256 << 10;
/// Steps that one match of a pattern may go back.
const BACKTRACK_MAX: usize = 10_000;
/// Steps of a check, estimated: nodes of the schema for each node of the value. A step takes some ten nanoseconds.
const STEPS_MAX: usize = 16 << 20;
/// Steps of a check whose faults are told; each step may leave one.
const STEPS_TOLD_MAX: usize = 256 << 10;
/// Steps of a pattern.
const PATTERN_STEPS: usize = 1_000;
/// Bytes of texts that count as one node of a value.
const TEXT_BYTES: usize = 64;

/// A schema that values can be checked against. References to other documents are never fetched.
#[derive(Debug)]
pub struct Schema {
    validator: jsonschema::Validator,
    /// Schema as given, from which messages take the known names.
    source: Value,
    /// Nodes once its references are written out; 0 for a schema of the operator's, whose checks have no bound.
    nodes: usize,
}

impl Schema {
    /// Compiles a schema of the operator's.
    ///
    /// # Errors
    /// The fault of the schema, in words.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
        Ok(Schema { validator, source: schema.clone(), nodes: 0 })
    }

    /// Compiles a schema of a caller's, a cell's or a server's: compiling and checking it take bounded time and memory.
    ///
    /// # Errors
    /// The fault of the schema, in words.
    pub(crate) fn bounded(text: &str) -> Result<Schema, String> {
        // THREAT: T12
        if text.len() > BYTES_MAX {
            return Err(format!("it has {} bytes, at most {BYTES_MAX} are allowed", text.len()));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        Schema::within_bounds(value)
    }

    fn within_bounds(value: Value) -> Result<Schema, String> {
        let mut walk = Walk { root: &value, left: NODES_MAX, patterns: 0, open: Vec::new() };
        walk.write_out(&value)?;
        let patterns = walk.patterns.saturating_mul(PATTERN_STEPS);
        let nodes = NODES_MAX.saturating_sub(walk.left).saturating_add(patterns).max(1);
        let patterns = jsonschema::PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACK_MAX)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES);
        let options = jsonschema::options().with_pattern_options(patterns);
        let validator = options.build(&value).map_err(|error| error.to_string())?;
        Ok(Schema { validator, source: value, nodes })
    }

    /// Compiles a schema that came as a text, from a cell: it must describe an object, and checking it must be quick.
    ///
    /// # Errors
    /// The fault of the schema, in words.
    pub fn of_object(text: &str) -> Result<(Value, Schema), String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let Some(members) = value.as_object() else {
            return Err("it must be a JSON object".to_owned());
        };
        if members.get("type").is_some_and(|kind| kind != "object") {
            return Err("it must describe an object: `\"type\": \"object\"`".to_owned());
        }
        let schema = Schema::within_bounds(value.clone())?;
        Ok((value, schema))
    }

    /// Returns the steps that checking a value takes, estimated from above where the schema is bounded.
    pub(crate) fn steps(&self, value: &Value) -> usize {
        self.nodes.max(1).saturating_mul(weight(value))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first faults, each with the JSON Pointer to it, what was expected and what was found; or the value is too large
    /// to be checked.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let steps = if self.nodes == 0 { 0 } else { self.steps(value) };
        if steps > STEPS_MAX {
            return Err("the value and the schema are too large to be checked against one another".to_owned());
        }
        // Faults are not gathered of what is large: each takes memory.
        if steps > STEPS_TOLD_MAX {
            return if self.validator.is_valid(value) {
                Ok(())
            } else {
                Err("a large value that does not fit".to_owned())
            };
        }
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

/// Nodes of a value, with those that its texts count as.
fn weight(value: &Value) -> usize {
    let text = |text: &str| text.len() / TEXT_BYTES;
    match value {
        Value::Array(items) => items.iter().map(weight).fold(1, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| weight(member).saturating_add(1).saturating_add(text(name)))
            .fold(1, usize::saturating_add),
        Value::String(of) => text(of).saturating_add(1),
        _ => 1,
    }
}

/// Walk over a schema as if its references were expanded.
struct Walk<'a> {
    root: &'a Value,
    /// Nodes that may follow.
    left: usize,
    patterns: usize,
    /// References that led here.
    open: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn write_out(&mut self, part: &'a Value) -> Result<(), String> {
        self.left = self.left.checked_sub(1).ok_or("it is too large with its references written out")?;
        match part {
            Value::Array(items) => items.iter().try_for_each(|item| self.write_out(item)),
            Value::Object(members) => members.iter().try_for_each(|(name, member)| match (name.as_str(), member) {
                ("$ref", Value::String(reference)) => self.follow(reference),
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => Err(format!("`{name}` is not supported here")),
                ("pattern", Value::String(_)) => self.patterns(1),
                ("patternProperties", Value::Object(members)) => {
                    self.patterns(members.len())?;
                    self.write_out(member)
                }
                _ => self.write_out(member),
            }),
            _ => Ok(()),
        }
    }

    fn patterns(&mut self, more: usize) -> Result<(), String> {
        self.patterns = self.patterns.saturating_add(more);
        let most = format!("it has more than {PATTERNS_MAX} patterns with its references written out");
        if self.patterns > PATTERNS_MAX { Err(most) } else { Ok(()) }
    }

    fn follow(&mut self, reference: &'a str) -> Result<(), String> {
        let shown = quote(reference);
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let target = target.ok_or_else(|| format!("its reference {shown} leads nowhere in it"))?;
        if self.open.contains(&reference) || self.open.len() >= REFERENCES_MAX {
            return Err(format!("its reference {shown} leads back to itself, or too far"));
        }
        self.open.push(reference);
        self.write_out(target)?;
        self.open.pop();
        Ok(())
    }
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
