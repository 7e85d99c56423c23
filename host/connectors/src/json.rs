//! Rows out of JSON.

use std::{collections::HashMap, time::Instant};

use cellar_tables::Batches;
use serde_json::Value as Json;

use crate::{
    Bounds,
    error::FetchError,
    rows::{ColumnKind, Hint, Rows, Value},
};

/// The rows of an array of objects: a column for each member that any of them has, in the order in which they come up. Its
/// type is that of its values; what is mixed or nested is JSON.
///
/// # Errors
/// What is there is no such array, or is past the bounds.
pub fn rows_of_json(rows: Vec<Json>, bounds: &Bounds, deadline: Instant) -> Result<Batches, FetchError> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut names: Vec<String> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let Json::Object(members) = row else {
            let what = kind_of(row);
            return Err(FetchError::failed(format!(
                "row {number} of the answer is {what}, where an object was expected"
            )));
        };
        for name in members.keys() {
            if !places.contains_key(name) {
                places.insert(name.clone(), names.len());
                names.push(name.clone());
            }
        }
    }
    let columns = names.iter().map(|name| (name.clone(), ColumnKind::ByValues(Hint::None)));
    let mut gathered = Rows::new(columns, bounds, deadline)?;
    for row in rows {
        let mut values = vec![Value::Null; names.len()];
        if let Json::Object(members) = row {
            for (name, value) in members {
                if let Some(place) = places.get(&name).and_then(|place| values.get_mut(*place)) {
                    *place = value_of(value);
                }
            }
        }
        gathered.push(values)?;
    }
    gathered.finish()
}

/// One value.
pub(crate) fn value_of(value: Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Boolean(value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::Integer(value),
            (None, Some(value)) => Value::Unsigned(value),
            _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::Text(text),
        nested => Value::Json(nested),
    }
}

/// What a value is, in words.
pub(crate) fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}
