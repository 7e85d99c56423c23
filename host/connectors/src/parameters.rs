//! Parameters of fetches, and the check of arguments.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use crate::error::{FetchError, FetchFault, near};

/// Maximum length of a text in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of values in a list.
pub(crate) const LIST_MAX: usize = 10_000;

/// A parameter of a fetch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameter {
    /// Name of the parameter in cells.
    pub name: String,
    /// Type of the argument.
    pub kind: ParameterKind,
    /// Description for people and models.
    pub description: String,
    /// True if the argument is a list of values of that type.
    pub is_list: bool,
    /// True if the argument is required.
    pub is_required: bool,
    /// Default value; null if there is none.
    pub default: Value,
    /// Allowed values; empty for any.
    pub choices: Vec<Value>,
    /// Minimum of a number, a date or a timestamp.
    pub min: Option<Value>,
    /// Maximum of a number, a date or a timestamp.
    pub max: Option<Value>,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the variants are named for what they are")]
pub enum ParameterKind {
    String,
    Integer,
    Number,
    Boolean,
    /// `2026-01-31`
    Date,
    /// `2026-01-31T12:00:00`, with or without an offset.
    Timestamp,
    /// An object: the parameters of free SQL.
    Object,
}

impl ParameterKind {
    /// All that a configuration may say.
    pub const ALL: [ParameterKind; 6] = [
        ParameterKind::String,
        ParameterKind::Integer,
        ParameterKind::Number,
        ParameterKind::Boolean,
        ParameterKind::Date,
        ParameterKind::Timestamp,
    ];

    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            ParameterKind::String => "string",
            ParameterKind::Integer => "integer",
            ParameterKind::Number => "number",
            ParameterKind::Boolean => "boolean",
            ParameterKind::Date => "date",
            ParameterKind::Timestamp => "timestamp",
            ParameterKind::Object => "object",
        }
    }

    /// Returns the value in the form for a source. Returns `None` if it does not have this type.
    fn read(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (ParameterKind::String, Value::String(text)) => {
                (text.len() <= TEXT_BYTES_MAX && !text.contains('\0')).then(|| value.clone())
            }
            (ParameterKind::Integer, Value::Number(number)) => whole(number).map(Value::from),
            (ParameterKind::Number, Value::Number(number)) => {
                // 1 and 1.0 are the same to a source.
                whole(number).map(Value::from).or_else(|| Number::from_f64(number.as_f64()?).map(Value::Number))
            }
            (ParameterKind::Boolean, Value::Bool(_)) | (ParameterKind::Object, Value::Object(_)) => Some(value.clone()),
            (ParameterKind::Date, Value::String(text)) => {
                // What Python and JavaScript make of a day may have midnight behind it.
                let (day, rest) = text.split_at_checked(10)?;
                if !rest.is_empty() && !rest.starts_with("T00:00:00") {
                    return None;
                }
                let day = NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()?;
                Some(day.format("%Y-%m-%d").to_string().into())
            }
            (ParameterKind::Timestamp, Value::String(text)) => timestamp(text).map(Value::from),
            _ => None,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            ParameterKind::String => "a text of at most 64 KiB",
            ParameterKind::Integer => "a whole number",
            ParameterKind::Number => "a number",
            ParameterKind::Boolean => "true or false",
            ParameterKind::Date => "a date, such as 2026-01-31",
            ParameterKind::Timestamp => "a moment, such as 2026-01-31T12:00:00Z",
            ParameterKind::Object => "an object",
        }
    }
}

fn whole(number: &Number) -> Option<i64> {
    let exact = |float: f64| {
        let is_whole = float.fract() == 0.0 && float.abs() < 9e15;
        #[allow(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
        is_whole.then_some(float as i64)
    };
    number.as_i64().or_else(|| number.as_f64().filter(|_| number.is_f64()).and_then(exact))
}

/// A moment in one form: with an offset in UTC, or without one.
fn timestamp(text: &str) -> Option<String> {
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Some(moment.to_utc().format("%Y-%m-%dT%H:%M:%S%.fZ").to_string());
    }
    let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
    let moment = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let moment = moment.or_else(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0));
    Some(moment?.format("%Y-%m-%dT%H:%M:%S%.f").to_string())
}

/// Orders two values of one kind.
fn is_less(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one < other,
        // Dates and moments in one form are in order as texts.
        _ => one.as_str() < other.as_str(),
    }
}

impl Parameter {
    /// Checks the declaration of the parameter, and normalizes its values.
    ///
    /// # Errors
    /// The declaration is invalid: the reason in words.
    pub fn check(&mut self) -> Result<(), String> {
        let kind = self.kind;
        let said = [("default", &mut self.default)].into_iter();
        let said = said.chain(self.min.as_mut().map(|value| ("min", value)));
        let said = said.chain(self.max.as_mut().map(|value| ("max", value)));
        let said = said.chain(self.choices.iter_mut().map(|value| ("choices", value)));
        for (what, value) in said {
            if value.is_null() {
                continue;
            }
            if what == "default" && self.is_list {
                continue;
            }
            *value = kind.read(value).ok_or_else(|| format!("`{what}` must be {}, not {value}", kind.expected()))?;
        }
        if !self.default.is_null() {
            self.default = self.read(&self.default).map_err(|expected| format!("`default` must be {expected}"))?;
        }
        Ok(())
    }

    /// # Errors
    /// What is wrong with it.
    fn within(&self, value: Value) -> Result<Value, String> {
        if !self.choices.is_empty() && !self.choices.contains(&value) {
            let choices: Vec<String> = self.choices.iter().map(Value::to_string).collect();
            return Err(format!("one of {}", choices.join(", ")));
        }
        if let Some(min) = self.min.as_ref().filter(|min| is_less(&value, min)) {
            return Err(format!("at least {min}"));
        }
        if let Some(max) = self.max.as_ref().filter(|max| is_less(max, &value)) {
            return Err(format!("at most {max}"));
        }
        Ok(value)
    }

    fn read(&self, value: &Value) -> Result<Value, String> {
        match value {
            Value::Array(items) if self.is_list => {
                if items.len() > LIST_MAX {
                    return Err(format!("a list of at most {LIST_MAX} values"));
                }
                let items = items.iter().map(|item| self.read_one(item));
                let items =
                    items.collect::<Result<Vec<_>, _>>().map_err(|expected| format!("a list, each {expected}"))?;
                Ok(Value::Array(items))
            }
            _ if self.is_list => Err(format!("a list, each {}", self.kind.expected())),
            value => self.read_one(value),
        }
    }

    fn read_one(&self, value: &Value) -> Result<Value, String> {
        let read = self.kind.read(value).ok_or_else(|| self.kind.expected().to_owned())?;
        self.within(read)
    }

    /// Its JSON Schema.
    fn schema(&self) -> Value {
        let mut schema = Map::new();
        let (kind, format) = match self.kind {
            ParameterKind::Date => ("string", Some("date")),
            ParameterKind::Timestamp => ("string", Some("date-time")),
            kind => (kind.as_str(), None),
        };
        schema.insert("type".to_owned(), kind.into());
        let mut add = |name: &str, value: Value| {
            if !value.is_null() {
                schema.insert(name.to_owned(), value);
            }
        };
        add("format", format.into());
        add("description", if self.description.is_empty() { Value::Null } else { self.description.clone().into() });
        add("enum", if self.choices.is_empty() { Value::Null } else { self.choices.clone().into() });
        add("minimum", self.min.clone().unwrap_or_default());
        add("maximum", self.max.clone().unwrap_or_default());
        if self.is_list {
            let mut list = Map::from_iter([("type".to_owned(), "array".into())]);
            list.extend(schema.shift_remove("description").map(|about| ("description".to_owned(), about)));
            list.insert("items".to_owned(), Value::Object(schema));
            schema = list;
        }
        if !self.default.is_null() {
            schema.insert("default".to_owned(), self.default.clone());
        }
        Value::Object(schema)
    }
}

/// Returns the JSON Schema of the parameters of a fetch.
pub(crate) fn schema(parameters: &[Parameter]) -> Value {
    let properties: Map<String, Value> =
        parameters.iter().map(|parameter| (parameter.name.clone(), parameter.schema())).collect();
    let required = parameters.iter().filter(|parameter| parameter.is_required);
    let required: Vec<&str> = required.map(|parameter| parameter.name.as_str()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

impl crate::FetchSpec {
    /// Returns the JSON Schema of its parameters.
    pub fn schema(&self) -> Value {
        schema(&self.parameters)
    }
}

/// Normalizes a name, so that the conventions of languages compare equal: `seriesId` and `series_id`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// The arguments of a fetch in their canonical form.
pub(crate) fn canonical(
    name: &str,
    parameters: &[Parameter],
    given: Map<String, Value>,
) -> Result<Map<String, Value>, FetchError> {
    let invalid = |message: String| FetchError::new(FetchFault::Invalid, format!("{name}: {message}"));
    let mut found: Map<String, Value> = Map::new();
    for (key, value) in given {
        let known = parameters.iter().find(|parameter| parameter.name == key);
        let known = known.or_else(|| parameters.iter().find(|parameter| plain(&parameter.name) == plain(&key)));
        let Some(parameter) = known else {
            let names = near(&key, parameters.iter().map(|parameter| parameter.name.as_str()));
            let none = if parameters.is_empty() { "; it takes none" } else { "" };
            return Err(invalid(format!("there is no parameter `{key}`{names}{none}")));
        };
        if value.is_null() && !parameter.is_required {
            continue;
        }
        let read = parameter.read(&value).map_err(|expected| {
            let shown: String = value.to_string().chars().take(80).collect();
            invalid(format!("`{}` must be {expected}, not {shown}", parameter.name))
        })?;
        if found.insert(parameter.name.clone(), read).is_some() {
            return Err(invalid(format!("`{}` is given twice", parameter.name)));
        }
    }
    let mut canonical = Map::new();
    let mut sorted: Vec<&Parameter> = parameters.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    for parameter in sorted {
        let value = match found.remove(&parameter.name) {
            Some(value) => value,
            None if parameter.is_required => {
                return Err(invalid(format!("`{}` must be given: {}", parameter.name, parameter.kind.expected())));
            }
            None => parameter.default.clone(),
        };
        canonical.insert(parameter.name.clone(), value);
    }
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, kind: ParameterKind, default: Value) -> Parameter {
        Parameter {
            name: name.to_owned(),
            kind,
            description: String::new(),
            is_list: false,
            is_required: default.is_null(),
            default,
            choices: Vec::new(),
            min: None,
            max: None,
        }
    }

    fn read(parameters: &[Parameter], given: Value) -> Result<String, String> {
        let Value::Object(given) = given else { panic!("no object") };
        let canonical = canonical("x.y", parameters, given).map_err(|error| error.message)?;
        Ok(Value::Object(canonical).to_string())
    }

    #[test]
    fn what_means_the_same_has_one_form() {
        let parameters = [
            parameter("since", ParameterKind::Timestamp, json!("2020-01-01")),
            parameter("count", ParameterKind::Integer, json!(3)),
            parameter("series_id", ParameterKind::String, Value::Null),
        ];
        let expected = r#"{"count":3,"series_id":"a","since":"2026-01-01T00:00:00Z"}"#;
        for given in [
            json!({"series_id": "a", "since": "2026-01-01T00:00:00Z"}),
            json!({"since": "2026-01-01T01:00:00+01:00", "count": 3.0, "seriesId": "a"}),
        ] {
            assert_eq!(read(&parameters, given).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn lists_are_checked_value_by_value() {
        let mut ids = parameter("ids", ParameterKind::Integer, Value::Null);
        ids.is_list = true;
        ids.max = Some(json!(9));
        let parameters = [ids];
        assert_eq!(read(&parameters, json!({"ids": [1, 2.0]})).as_deref(), Ok(r#"{"ids":[1,2]}"#));
        assert_eq!(read(&parameters, json!({"ids": []})).as_deref(), Ok(r#"{"ids":[]}"#));
        for (given, message) in [
            (json!({"ids": 1}), "x.y: `ids` must be a list, each a whole number, not 1"),
            (json!({"ids": [1, "a"]}), "x.y: `ids` must be a list, each a whole number, not [1,\"a\"]"),
            (json!({"ids": [10]}), "x.y: `ids` must be a list, each at most 9, not [10]"),
            (json!({"ids": [[1]]}), "x.y: `ids` must be a list, each a whole number, not [[1]]"),
        ] {
            assert_eq!(read(&parameters, given).as_ref().map_err(String::as_str), Err(message));
        }
        let schema = schema(&parameters);
        assert_eq!(schema["properties"]["ids"], json!({"type": "array", "items": {"type": "integer", "maximum": 9}}));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut bounded = parameter("count", ParameterKind::Integer, json!(3));
        bounded.max = Some(json!(10));
        let mut chosen = parameter("state", ParameterKind::String, json!("open"));
        chosen.choices = vec![json!("open"), json!("paid")];
        let parameters = [bounded, chosen, parameter("day", ParameterKind::Date, Value::Null)];
        for (given, message) in [
            (json!({}), "x.y: `day` must be given: a date, such as 2026-01-31"),
            (json!({"day": "2026-02-30"}), "x.y: `day` must be a date, such as 2026-01-31, not \"2026-02-30\""),
            (json!({"day": "2026-01-01", "count": 11}), "x.y: `count` must be at most 10, not 11"),
            (json!({"day": "2026-01-01", "count": "1; drop"}), "x.y: `count` must be a whole number, not \"1; drop\""),
            (
                json!({"day": "2026-01-01", "state": "new"}),
                "x.y: `state` must be one of \"open\", \"paid\", not \"new\"",
            ),
            (json!({"dai": 1}), "x.y: there is no parameter `dai`; did you mean `day`; known are: count, state, day"),
        ] {
            assert_eq!(read(&parameters, given).as_ref().map_err(String::as_str), Err(message));
        }
    }
}
