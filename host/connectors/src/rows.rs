//! Rows as they come from a source, gathered in columns, within bounds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use arrow_array::{
    ArrayRef, ListArray, NullArray, RecordBatch,
    builder::{
        BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int16Builder,
        Int32Builder, Int64Builder, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
        UInt64Builder,
    },
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{Field, Schema};
use cellar_core::budget::Lease;
use cellar_tables::{Batches, JSON_KEY};
use serde_json::Value as Json;

use crate::{
    Bounds,
    error::{FetchError, FetchFault},
};

/// Columns of a table.
pub(crate) const COLUMNS_MAX: usize = 2_000;
/// Digits of a decimal number that Arrow takes.
const DIGITS_MAX: u8 = 38;

/// Microseconds of a day.
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;
/// Whole numbers up to this one are floating-point numbers as well.
const EXACT_MAX: u64 = 1 << 53;

/// Type of a column, as declared by a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Boolean,
    Int16,
    Int32,
    Int64,
    UInt64,
    Float32,
    Float64,
    /// Decimals, each value with a scale of its own.
    Decimal,
    Text,
    /// JSON texts.
    Json,
    Binary,
    Date,
    Time,
    /// Timestamps, with the name of their time zone if they have one.
    Timestamp(Option<&'static str>),
    /// Lists of values of a kind; nested lists for arrays of several dimensions.
    List(&'static ColumnKind),
    /// Type that is inferred once all values have arrived.
    ByValues(Hint),
}

/// Declared type that applies if all values conform to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    None,
    Boolean,
    Date,
    Timestamp,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    /// Digits, and how many of them are behind the point.
    Decimal(i128, u8),
    Text(String),
    Binary(Vec<u8>),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 1970.
    Timestamp(i64),
    Json(Json),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len().saturating_add(4),
            Value::Binary(bytes) => bytes.len().saturating_add(4),
            Value::Decimal(..) => 16,
            Value::Json(value) => json_bytes(value),
            Value::List(items) => items.iter().map(Value::bytes).fold(8, usize::saturating_add),
            // One that is missing takes its place all the same.
            _ => 8,
        }
    }
}

fn json_bytes(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len().saturating_add(8),
        Json::Array(items) => items.iter().map(json_bytes).fold(8, usize::saturating_add),
        Json::Object(members) => members
            .iter()
            .map(|(name, value)| name.len().saturating_add(json_bytes(value)))
            .fold(8, usize::saturating_add),
        _ => 8,
    }
}

/// Rows that are gathered.
pub(crate) struct Rows {
    columns: Vec<(String, Column)>,
    count: usize,
    bytes: usize,
    bounds: Bounds,
    deadline: Instant,
    lease: Lease,
}

enum Column {
    Boolean(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    UInt64(UInt64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Text(StringBuilder),
    Json(StringBuilder),
    Binary(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder, Option<&'static str>),
    Decimal(Vec<Option<(i128, u8)>>),
    List(Vec<Option<Vec<Value>>>, &'static ColumnKind),
    /// Dates, times or decimals as text, because Arrow cannot represent one of them.
    Written(StringBuilder, Option<&'static str>),
    ByValues(Vec<Value>, Hint),
}

impl Rows {
    /// None yet, of these columns.
    pub(crate) fn new(
        columns: impl IntoIterator<Item = (String, ColumnKind)>,
        bounds: &Bounds,
        deadline: Instant,
    ) -> Result<Rows, FetchError> {
        let columns: Vec<_> = columns.into_iter().map(|(name, kind)| (name, Column::new(kind))).collect();
        if columns.len() > COLUMNS_MAX {
            let message = format!("there are {} columns, at most {COLUMNS_MAX} are allowed", columns.len());
            return Err(FetchError::new(FetchFault::Limit, message));
        }
        let lease = crate::ROWS.take(0).ok_or_else(no_budget)?;
        Ok(Rows { columns: distinct(columns), count: 0, bytes: 0, bounds: bounds.clone(), deadline, lease })
    }

    /// Adds a row: a value for each column.
    pub(crate) fn push(&mut self, values: impl IntoIterator<Item = Value>) -> Result<(), FetchError> {
        self.count = self.count.saturating_add(1);
        if self.count > self.bounds.rows {
            return Err(too_many_rows(&self.bounds));
        }
        let (mut values, before) = (values.into_iter(), self.bytes);
        for (name, column) in &mut self.columns {
            let value = values.next().unwrap_or(Value::Null);
            self.bytes = self.bytes.saturating_add(value.bytes());
            column.push(value).map_err(|value| {
                FetchError::failed(format!("column `{name}` has a value that does not fit its type: {value:.80}"))
            })?;
        }
        if self.bytes > self.bounds.bytes {
            return Err(too_many_bytes(&self.bounds));
        }
        // THREAT: T13
        self.lease.grow(self.bytes.saturating_sub(before)).then_some(()).ok_or_else(no_budget)?;
        if self.count.is_multiple_of(1_024) && Instant::now() > self.deadline {
            return Err(FetchError::timeout(self.bounds.timeout));
        }
        Ok(())
    }

    /// All rows in columns.
    pub(crate) fn finish(self) -> Result<Batches, FetchError> {
        let count = self.count;
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (name, column) in self.columns {
            let (array, is_json) = column.finish(count).map_err(|what| {
                let remedy = "cast it to one type in the statement";
                FetchError::failed(format!("column `{name}` has {what} beside values of other types: {remedy}"))
            })?;
            let field = Field::new(name, array.data_type().clone(), true);
            let said = is_json.then(|| (JSON_KEY.to_owned(), "1".to_owned()));
            fields.push(field.with_metadata(said.into_iter().collect::<HashMap<String, String>>()));
            arrays.push(array);
        }
        let schema = Arc::new(Schema::new(fields));
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options);
        let batch = batch.map_err(|_| FetchError::failed("the source gave columns that do not fit together"))?;
        Ok(Batches::new(schema, vec![batch]))
    }
}

pub(crate) fn too_many_rows(bounds: &Bounds) -> FetchError {
    let message = format!(
        "there are more than {} rows, which is all that a fetch may have (`max_rows` of the connector); ask for fewer",
        bounds.rows
    );
    FetchError::new(FetchFault::Limit, message)
}

fn no_budget() -> FetchError {
    FetchError::new(FetchFault::Limit, "all fetches together have as many rows as they may; try again")
}

pub(crate) fn too_many_bytes(bounds: &Bounds) -> FetchError {
    let message = format!(
        "the rows have more than {} MiB, which is all that a fetch may have (`max_mib` of the connector); ask for fewer rows or columns",
        bounds.bytes >> 20
    );
    FetchError::new(FetchFault::Limit, message)
}

/// Columns with names of their own: the second `id` is `id_2`.
fn distinct(columns: Vec<(String, Column)>) -> Vec<(String, Column)> {
    let mut seen = HashSet::new();
    let mut named = Vec::with_capacity(columns.len());
    for (name, column) in columns {
        let mut own = name.clone();
        let mut number = 2_u32;
        while !seen.insert(own.clone()) {
            own = format!("{name}_{number}");
            number = number.saturating_add(1);
        }
        named.push((own, column));
    }
    named
}

impl Column {
    fn new(kind: ColumnKind) -> Column {
        match kind {
            ColumnKind::Boolean => Column::Boolean(BooleanBuilder::new()),
            ColumnKind::Int16 => Column::Int16(Int16Builder::new()),
            ColumnKind::Int32 => Column::Int32(Int32Builder::new()),
            ColumnKind::Int64 => Column::Int64(Int64Builder::new()),
            ColumnKind::UInt64 => Column::UInt64(UInt64Builder::new()),
            ColumnKind::Float32 => Column::Float32(Float32Builder::new()),
            ColumnKind::Float64 => Column::Float64(Float64Builder::new()),
            ColumnKind::Decimal => Column::Decimal(Vec::new()),
            ColumnKind::Text => Column::Text(StringBuilder::new()),
            ColumnKind::Json => Column::Json(StringBuilder::new()),
            ColumnKind::Binary => Column::Binary(BinaryBuilder::new()),
            ColumnKind::Date => Column::Date(Date32Builder::new()),
            ColumnKind::Time => Column::Time(Time64MicrosecondBuilder::new()),
            ColumnKind::Timestamp(zone) => Column::Timestamp(TimestampMicrosecondBuilder::new(), zone),
            ColumnKind::List(item) => Column::List(Vec::new(), item),
            ColumnKind::ByValues(hint) => Column::ByValues(Vec::new(), hint),
        }
    }

    /// Adds a value. The error describes a value that does not fit.
    fn push(&mut self, value: Value) -> Result<(), String> {
        match (self, value) {
            (Column::ByValues(values, _), value) => values.push(value),
            (Column::Decimal(values), Value::Decimal(digits, scale)) => values.push(Some((digits, scale))),
            (Column::Decimal(values), Value::Null) => values.push(None),
            (Column::List(lists, _), Value::List(items)) => lists.push(Some(items)),
            (Column::List(lists, _), Value::Null) => lists.push(None),
            (Column::Boolean(builder), Value::Boolean(value)) => builder.append_value(value),
            (Column::Boolean(builder), Value::Integer(value)) => builder.append_value(value != 0),
            (Column::Boolean(builder), Value::Null) => builder.append_null(),
            (Column::Int16(builder), Value::Integer(value)) => {
                builder.append_value(i16::try_from(value).map_err(|_| value.to_string())?);
            }
            (Column::Int16(builder), Value::Null) => builder.append_null(),
            (Column::Int32(builder), Value::Integer(value)) => {
                builder.append_value(i32::try_from(value).map_err(|_| value.to_string())?);
            }
            (Column::Int32(builder), Value::Null) => builder.append_null(),
            (Column::Int64(builder), Value::Integer(value)) => builder.append_value(value),
            (Column::Int64(builder), Value::Null) => builder.append_null(),
            (Column::UInt64(builder), Value::Unsigned(value)) => builder.append_value(value),
            (Column::UInt64(builder), Value::Integer(value)) => {
                builder.append_value(u64::try_from(value).map_err(|_| value.to_string())?);
            }
            (Column::UInt64(builder), Value::Null) => builder.append_null(),
            #[allow(clippy::cast_possible_truncation, reason = "the source has as many bits")]
            (Column::Float32(builder), Value::Float(value)) => builder.append_value(value as f32),
            (Column::Float32(builder), Value::Null) => builder.append_null(),
            (Column::Float64(builder), Value::Float(value)) => builder.append_value(value),
            (Column::Float64(builder), Value::Null) => builder.append_null(),
            (Column::Text(builder), Value::Text(text)) => builder.append_value(text),
            (Column::Text(builder) | Column::Json(builder), Value::Null) => builder.append_null(),
            (Column::Json(builder), Value::Json(value)) => builder.append_value(value.to_string()),
            (Column::Binary(builder), Value::Binary(bytes)) => builder.append_value(bytes),
            (Column::Binary(builder), Value::Null) => builder.append_null(),
            (Column::Date(builder), Value::Date(day)) => builder.append_value(day),
            (Column::Date(builder), Value::Null) => builder.append_null(),
            (Column::Time(builder), Value::Time(time)) => builder.append_value(time),
            (Column::Time(builder), Value::Null) => builder.append_null(),
            (Column::Timestamp(builder, _), Value::Timestamp(moment)) => builder.append_value(moment),
            (Column::Timestamp(builder, _), Value::Null) => builder.append_null(),
            (Column::Written(builder, _), Value::Null) => builder.append_null(),
            (Column::Written(builder, zone), value) => {
                builder.append_value(written(&value, *zone).ok_or_else(|| format!("{value:?}"))?);
            }
            (
                column @ (Column::Decimal(_) | Column::Date(_) | Column::Time(_) | Column::Timestamp(..)),
                value @ Value::Text(_),
            ) => {
                column.write_out();
                return column.push(value);
            }
            (_, value) => return Err(format!("{value:?}")),
        }
        Ok(())
    }

    /// Makes texts of dates, times or decimals.
    fn write_out(&mut self) {
        let (values, zone): (Vec<Value>, _) = match self {
            Column::Decimal(values) => {
                let value = |(digits, scale): (i128, u8)| Value::Decimal(digits, scale);
                (std::mem::take(values).into_iter().map(|each| each.map_or(Value::Null, value)).collect(), None)
            }
            Column::Date(builder) => {
                (builder.finish().iter().map(|day| day.map_or(Value::Null, Value::Date)).collect(), None)
            }
            Column::Time(builder) => {
                (builder.finish().iter().map(|time| time.map_or(Value::Null, Value::Time)).collect(), None)
            }
            Column::Timestamp(builder, zone) => {
                (builder.finish().iter().map(|time| time.map_or(Value::Null, Value::Timestamp)).collect(), *zone)
            }
            _ => return,
        };
        let mut builder = StringBuilder::new();
        values.iter().for_each(|value| builder.append_option(written(value, zone)));
        *self = Column::Written(builder, zone);
    }

    /// Returns the column, and true if its texts are JSON. The error describes a value that JSON cannot represent.
    fn finish(self, count: usize) -> Result<(ArrayRef, bool), &'static str> {
        let array: ArrayRef = match self {
            Column::Boolean(mut builder) => Arc::new(builder.finish()),
            Column::Int16(mut builder) => Arc::new(builder.finish()),
            Column::Int32(mut builder) => Arc::new(builder.finish()),
            Column::Int64(mut builder) => Arc::new(builder.finish()),
            Column::UInt64(mut builder) => Arc::new(builder.finish()),
            Column::Float32(mut builder) => Arc::new(builder.finish()),
            Column::Float64(mut builder) => Arc::new(builder.finish()),
            Column::Text(mut builder) => Arc::new(builder.finish()),
            Column::Json(mut builder) => return Ok((Arc::new(builder.finish()), true)),
            Column::Binary(mut builder) => Arc::new(builder.finish()),
            Column::Date(mut builder) => Arc::new(builder.finish()),
            Column::Time(mut builder) => Arc::new(builder.finish()),
            Column::Timestamp(mut builder, zone) => Arc::new(builder.finish().with_timezone_opt(zone)),
            Column::Decimal(values) => decimals(&values),
            Column::List(lists, item) => listed(lists, *item)?,
            Column::Written(mut builder, _) => Arc::new(builder.finish()),
            Column::ByValues(values, hint) => {
                let kind = kind_of(&values, hint);
                let Some(kind) = kind else { return Ok((Arc::new(NullArray::new(count)), false)) };
                if kind == ColumnKind::Json {
                    let odd = |value: &Value| match value {
                        Value::Binary(_) => Some("bytes"),
                        Value::Float(value) if !value.is_finite() => Some("a number without end"),
                        _ => None,
                    };
                    values.iter().find_map(odd).map_or(Ok(()), Err)?;
                }
                let mut column = Column::new(kind);
                for value in values {
                    let value = fitted(value, kind);
                    // The kind was chosen so that all fit; what does not is no value.
                    if column.push(value).is_err() {
                        let _ = column.push(Value::Null);
                    }
                }
                return column.finish(count);
            }
        };
        Ok((array, false))
    }
}

/// Converts lists to an array. The error describes a value that no array can represent.
fn listed(lists: Vec<Option<Vec<Value>>>, item: ColumnKind) -> Result<ArrayRef, &'static str> {
    let lengths: Vec<usize> = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len)).collect();
    if i32::try_from(lengths.iter().copied().fold(0, usize::saturating_add)).is_err() {
        return Err("too many items");
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = lists.iter().map(Option::is_some).collect::<Vec<_>>().into();
    let items: Vec<Value> = lists.into_iter().flatten().flatten().collect();
    let items = if items.iter().any(|item| matches!(item, Value::List(_))) {
        let inner = |value| match value {
            Value::List(items) => Ok(Some(items)),
            Value::Null => Ok(None),
            _ => Err("arrays of several dimensions"),
        };
        listed(items.into_iter().map(inner).collect::<Result<_, _>>()?, item)?
    } else {
        let (mut column, count) = (Column::new(item), items.len());
        for value in items {
            column.push(value).map_err(|_| "items of a type")?;
        }
        column.finish(count)?.0
    };
    let field = Arc::new(Field::new("element", items.data_type().clone(), true));
    Ok(Arc::new(ListArray::new(field, offsets, items, Some(nulls))))
}

/// Decimals of one scale; as texts where they have too many digits.
fn decimals(values: &[Option<(i128, u8)>]) -> ArrayRef {
    let scale = values.iter().flatten().map(|(_, scale)| *scale).max().unwrap_or_default();
    let limit = 10_i128.saturating_pow(DIGITS_MAX.into()).saturating_sub(1);
    let widened = |(digits, own): &(i128, u8)| {
        let factor = 10_i128.checked_pow(u32::from(scale.saturating_sub(*own)))?;
        digits.checked_mul(factor).filter(|digits| digits.abs() <= limit)
    };
    let widened: Option<Vec<Option<i128>>> =
        values.iter().map(|value| value.as_ref().map(|value| widened(value).ok_or(())).transpose().ok()).collect();
    if let Some(widened) = widened.filter(|_| scale <= DIGITS_MAX)
        && let Ok(scale) = i8::try_from(scale)
        && let Ok(mut builder) = Decimal128Builder::new().with_precision_and_scale(DIGITS_MAX, scale)
    {
        widened.into_iter().for_each(|value| builder.append_option(value));
        return Arc::new(builder.finish());
    }
    let mut builder = StringBuilder::new();
    values.iter().for_each(|value| builder.append_option(value.map(|(digits, scale)| decimal_text(digits, scale))));
    Arc::new(builder.finish())
}

/// A time of day as databases write it, from the microseconds since midnight.
pub(crate) fn clock(micros: i64) -> String {
    let (seconds, sub) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let sub = format!(".{sub:06}");
    let sub = sub.trim_end_matches('0').trim_end_matches('.');
    format!("{:02}:{:02}:{:02}{sub}", seconds.div_euclid(3_600), seconds.div_euclid(60) % 60, seconds % 60)
}

/// A value as databases write it.
fn written(value: &Value, zone: Option<&str>) -> Option<String> {
    let day = |day: i64| {
        let day = chrono::NaiveDate::default().checked_add_signed(chrono::Duration::try_days(day)?)?;
        Some(day.format("%Y-%m-%d").to_string())
    };
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Decimal(digits, scale) => Some(decimal_text(*digits, *scale)),
        Value::Date(days) => day((*days).into()),
        Value::Time(micros) => Some(clock(*micros)),
        Value::Timestamp(micros) => {
            let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
            let zone = if zone.is_some() { "+00" } else { "" };
            Some(format!("{} {}{zone}", day(days)?, clock(rest)))
        }
        _ => None,
    }
}

/// A decimal number as it is written.
fn decimal_text(digits: i128, scale: u8) -> String {
    let text = digits.unsigned_abs().to_string();
    let scale = usize::from(scale);
    let sign = if digits < 0 { "-" } else { "" };
    if scale == 0 {
        return format!("{sign}{text}");
    }
    let text = format!("{text:0>width$}", width = scale + 1);
    let (whole, rest) = text.split_at(text.len().saturating_sub(scale));
    format!("{sign}{whole}.{rest}")
}

/// Infers the kind of a column from its values. Returns `None` if all of them are null.
fn kind_of(values: &[Value], hint: Hint) -> Option<ColumnKind> {
    let mut there = values.iter().filter(|value| **value != Value::Null).peekable();
    there.peek()?;
    let all = |test: &dyn Fn(&Value) -> bool| values.iter().all(|value| *value == Value::Null || test(value));
    let hinted = match hint {
        Hint::Boolean if all(&|value| matches!(value, Value::Boolean(_) | Value::Integer(0 | 1))) => {
            Some(ColumnKind::Boolean)
        }
        Hint::Date if all(&|value| day(value).is_some()) => Some(ColumnKind::Date),
        Hint::Timestamp if all(&|value| moment(value).is_some_and(|(_, zone)| zone)) => {
            Some(ColumnKind::Timestamp(Some("UTC")))
        }
        Hint::Timestamp if all(&|value| moment(value).is_some_and(|(_, zone)| !zone)) => {
            Some(ColumnKind::Timestamp(None))
        }
        _ => None,
    };
    if hinted.is_some() {
        return hinted;
    }
    let kinds = [
        ColumnKind::Boolean,
        ColumnKind::Int64,
        ColumnKind::UInt64,
        ColumnKind::Float64,
        ColumnKind::Text,
        ColumnKind::Binary,
        ColumnKind::Decimal,
        ColumnKind::Time,
        ColumnKind::Timestamp(None),
    ];
    Some(kinds.into_iter().find(|kind| all(&|value| native(*kind, value))).unwrap_or(ColumnKind::Json))
}

/// Returns true if a column of this kind represents the value exactly.
fn native(kind: ColumnKind, value: &Value) -> bool {
    match kind {
        ColumnKind::Boolean => matches!(value, Value::Boolean(_)),
        ColumnKind::Int64 => matches!(value, Value::Integer(_)),
        ColumnKind::UInt64 => matches!(value, Value::Integer(0..) | Value::Unsigned(_)),
        ColumnKind::Float64 => match value {
            Value::Integer(value) => value.unsigned_abs() <= EXACT_MAX,
            Value::Unsigned(value) => *value <= EXACT_MAX,
            value => matches!(value, Value::Float(_)),
        },
        ColumnKind::Text => matches!(value, Value::Text(_)),
        ColumnKind::Binary => matches!(value, Value::Binary(_)),
        ColumnKind::Decimal => matches!(value, Value::Decimal(..)),
        ColumnKind::Time => matches!(value, Value::Time(_)),
        ColumnKind::Timestamp(_) => matches!(value, Value::Timestamp(_)),
        _ => false,
    }
}

/// A value as one of a column of this kind.
fn fitted(value: Value, kind: ColumnKind) -> Value {
    match (kind, value) {
        (ColumnKind::Date, value) => day(&value).map_or(Value::Null, Value::Date),
        (ColumnKind::Timestamp(_), value @ Value::Timestamp(_)) => value,
        (ColumnKind::Timestamp(_), value) => moment(&value).map_or(Value::Null, |(moment, _)| Value::Timestamp(moment)),
        #[allow(clippy::cast_precision_loss, reason = "the column has numbers with fractions too")]
        (ColumnKind::Float64, Value::Integer(value)) => Value::Float(value as f64),
        #[allow(clippy::cast_precision_loss, reason = "the column has numbers with fractions too")]
        (ColumnKind::Float64, Value::Unsigned(value)) => Value::Float(value as f64),
        (ColumnKind::Json, Value::Null) => Value::Null,
        (ColumnKind::Json, value) => Value::Json(json(value)),
        (_, value) => value,
    }
}

/// A value as JSON.
pub(crate) fn json(value: Value) -> Json {
    let moment = |micros: i64| chrono::DateTime::from_timestamp_micros(micros).map(|moment| moment.naive_utc());
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => value.into(),
        Value::Integer(value) => value.into(),
        Value::Unsigned(value) => value.into(),
        Value::Float(value) => value.into(),
        Value::Decimal(digits, scale) => decimal_text(digits, scale).into(),
        Value::Text(text) => text.into(),
        Value::Binary(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        Value::Date(day) => {
            let day = chrono::NaiveDate::default().checked_add_signed(chrono::Duration::days(day.into()));
            day.map(|day| day.to_string()).into()
        }
        Value::Time(micros) => moment(micros).map(|moment| moment.time().to_string()).into(),
        Value::Timestamp(micros) => {
            moment(micros).map(|moment| moment.format("%Y-%m-%dT%H:%M:%S%.f").to_string()).into()
        }
        Value::Json(value) => value,
        Value::List(items) => Json::Array(items.into_iter().map(json).collect()),
    }
}

/// Days since 1970 of a text that is a date.
fn day(value: &Value) -> Option<i32> {
    let Value::Text(text) = value else { return None };
    let day = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    i32::try_from(day.signed_duration_since(chrono::NaiveDate::default()).num_days()).ok()
}

/// Returns the microseconds since 1970 of a text that is a timestamp, and true if the text has an offset.
fn moment(value: &Value) -> Option<(i64, bool)> {
    let Value::Text(text) = value else { return None };
    if let Ok(moment) = chrono::DateTime::parse_from_rfc3339(text) {
        return Some((moment.timestamp_micros(), true));
    }
    let formats = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let moment = formats.iter().find_map(|format| chrono::NaiveDateTime::parse_from_str(text, format).ok());
    let moment = moment.or_else(|| chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0));
    Some((moment?.and_utc().timestamp_micros(), false))
}
