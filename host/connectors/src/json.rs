//! Rows out of JSON.

use std::{collections::HashMap, time::Instant};

use cellar_core::{limits::REQUEST_VALUES_MAX, mime::json_values};
use cellar_tables::Batches;
use serde_json::Value as Json;

use crate::{
    Bounds,
    error::{FetchError, FetchFault},
    rows::{COLUMNS_MAX, ColumnKind, Hint, Rows, Value, too_many_bytes, too_many_rows},
};

/// Values of the JSON of one answer, or of one line of a file: until its rows are columns, each may take 200 bytes.
const VALUES_MAX: usize = 4 * REQUEST_VALUES_MAX;

/// Parses the JSON of a source. `what` describes it in words.
///
/// # Errors
/// The text is not JSON, or has too many values.
pub(crate) fn read(what: &str, bytes: &[u8]) -> Result<Json, FetchError> {
    let values = if bytes.len() > VALUES_MAX { json_values(bytes) } else { 0 };
    if values > VALUES_MAX {
        let message = format!(
            "{what} has {values} values, names of members among them, at most {VALUES_MAX} are read at once; ask for fewer rows"
        );
        return Err(FetchError::new(FetchFault::Limit, message));
    }
    serde_json::from_slice(bytes).map_err(|error| FetchError::failed(format!("{what} is no JSON: {error}")))
}

/// Converts an array of objects to rows: a column for each member that any of them has, in order of appearance. The type of
/// a column is inferred from its values; mixed or nested values are JSON.
///
/// # Errors
/// The value is not such an array, or exceeds the limits.
pub fn rows_of_json(rows: Vec<Json>, bounds: &Bounds, deadline: Instant) -> Result<Batches, FetchError> {
    let mut gathered = JsonRows::new(bounds, deadline);
    rows.into_iter().try_for_each(|row| gathered.push(row))?;
    gathered.finish()
}

/// The rows of [`rows_of_json`], one after another.
pub(crate) struct JsonRows {
    places: HashMap<String, usize>,
    names: Vec<String>,
    /// Each as long as its last member needs.
    rows: Vec<Vec<Value>>,
    bytes: usize,
    bounds: Bounds,
    deadline: Instant,
}

impl JsonRows {
    pub(crate) fn new(bounds: &Bounds, deadline: Instant) -> JsonRows {
        let (places, names, rows) = (HashMap::new(), Vec::new(), Vec::new());
        JsonRows { places, names, rows, bytes: 0, bounds: bounds.clone(), deadline }
    }

    pub(crate) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The value is not an object, or the rows exceed the limits.
    pub(crate) fn push(&mut self, row: Json) -> Result<(), FetchError> {
        let number = self.rows.len();
        if number >= self.bounds.rows {
            return Err(too_many_rows(&self.bounds));
        }
        let Json::Object(members) = row else {
            let what = kind_of(&row);
            return Err(FetchError::failed(format!(
                "row {number} of the answer is {what}, where an object was expected"
            )));
        };
        let mut values = Vec::new();
        for (name, value) in members {
            let next = self.names.len();
            let place = *self.places.entry(name).or_insert_with_key(|name| {
                self.names.push(name.clone());
                next
            });
            if place >= COLUMNS_MAX {
                let message = format!("there are more than {COLUMNS_MAX} columns");
                return Err(FetchError::new(FetchFault::Limit, message));
            }
            if values.len() <= place {
                values.resize(place.saturating_add(1), Value::Null);
            }
            if let Some(there) = values.get_mut(place) {
                *there = value_of(value);
            }
        }
        self.bytes = values.iter().map(Value::bytes).fold(self.bytes, usize::saturating_add);
        if self.bytes > self.bounds.bytes {
            return Err(too_many_bytes(&self.bounds));
        }
        self.rows.push(values);
        Ok(())
    }

    /// All rows in columns.
    ///
    /// # Errors
    /// They are past the bounds.
    pub(crate) fn finish(self) -> Result<Batches, FetchError> {
        let columns = self.names.into_iter().map(|name| (name, ColumnKind::ByValues(Hint::None)));
        let mut gathered = Rows::new(columns, &self.bounds, self.deadline)?;
        self.rows.into_iter().try_for_each(|row| gathered.push(row))?;
        gathered.finish()
    }
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

/// Describes the type of a value in words.
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
