//! Arrays into buffers that a guest takes as they are: the way back of what `column` does.
//!
//! A column is a head in JSON and its buffers. Where some rows have no value, a byte for each row comes first, 0 for none;
//! times that are none are the lowest number instead, as NumPy has them. Text is one offset more than there are values, each
//! of 32 bits, and then its bytes. A category is a number of 32 bits for each row, and then the categories as text is.

use std::{io::Write, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray,
    cast::AsArray,
    types::{
        ArrowTemporalType, Date32Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
        DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
        UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_cast::{
    cast,
    display::{ArrayFormatter, FormatOptions},
};
use arrow_schema::{DataType, Field, TimeUnit};
use serde_json::{Map, Value, json};

use crate::{column::NOT_A_TIME, error::TableError, frame::JSON_KEY};

/// How deep values of lists and structures may lie in each other.
const DEPTH_MAX: usize = 32;

/// A column as a guest takes it.
struct Encoded {
    /// What is said of its type.
    kind: Value,
    /// Whether the first buffer says where there are values.
    nullable: bool,
    buffers: Vec<Vec<u8>>,
}

/// Writes what is said of a table or of a column: JSON behind its length, of 32 bits.
pub(crate) fn write_head(out: &mut impl Write, head: &Value) -> Result<(), TableError> {
    let text = head.to_string();
    let length = u32::try_from(text.len()).map_err(|_| TableError::TooLarge)?;
    out.write_all(&length.to_le_bytes())?;
    Ok(out.write_all(text.as_bytes())?)
}

/// Writes a column: its head, then its buffers.
pub(crate) fn write_column(out: &mut impl Write, field: &Field, array: &ArrayRef) -> Result<(), TableError> {
    let encoded = encode(field, array)?;
    write_head(
        out,
        &json!({
            "name": field.name(), "rows": array.len(), "nullable": encoded.nullable, "type": encoded.kind,
            "buffers": encoded.buffers.iter().map(Vec::len).collect::<Vec<_>>(),
        }),
    )?;
    for buffer in encoded.buffers {
        out.write_all(&buffer)?;
    }
    Ok(())
}

/// The buffers of an array.
fn encode(field: &Field, array: &ArrayRef) -> Result<Encoded, TableError> {
    match array.data_type() {
        DataType::Null => Ok(Encoded { kind: json!({"kind": "null"}), nullable: false, buffers: Vec::new() }),
        DataType::Boolean => Ok(flagged(json!({"kind": "boolean"}), array, flags(array.as_boolean()))),
        DataType::Int8 => Ok(numbers::<Int8Type>(integer(8, true), array)),
        DataType::Int16 => Ok(numbers::<Int16Type>(integer(16, true), array)),
        DataType::Int32 => Ok(numbers::<Int32Type>(integer(32, true), array)),
        DataType::Int64 => Ok(numbers::<Int64Type>(integer(64, true), array)),
        DataType::UInt8 => Ok(numbers::<UInt8Type>(integer(8, false), array)),
        DataType::UInt16 => Ok(numbers::<UInt16Type>(integer(16, false), array)),
        DataType::UInt32 => Ok(numbers::<UInt32Type>(integer(32, false), array)),
        DataType::UInt64 => Ok(numbers::<UInt64Type>(integer(64, false), array)),
        DataType::Float16 => Ok(numbers::<Float16Type>(json!({"kind": "float", "bits": 16}), array)),
        DataType::Float32 => Ok(numbers::<Float32Type>(json!({"kind": "float", "bits": 32}), array)),
        DataType::Float64 => Ok(numbers::<Float64Type>(json!({"kind": "float", "bits": 64}), array)),
        DataType::Date32 => Ok(numbers::<Date32Type>(json!({"kind": "date"}), array)),
        DataType::Date64 => {
            let moments = cast(array, &DataType::Timestamp(TimeUnit::Millisecond, None))?;
            encode(field, &moments)
        }
        DataType::Timestamp(unit, zone) => {
            let kind = json!({"kind": "timestamp", "unit": word(*unit), "zone": zone});
            Ok(match unit {
                TimeUnit::Second => times::<TimestampSecondType>(kind, array),
                TimeUnit::Millisecond => times::<TimestampMillisecondType>(kind, array),
                TimeUnit::Microsecond => times::<TimestampMicrosecondType>(kind, array),
                TimeUnit::Nanosecond => times::<TimestampNanosecondType>(kind, array),
            })
        }
        DataType::Duration(unit) => {
            let kind = json!({"kind": "duration", "unit": word(*unit)});
            Ok(match unit {
                TimeUnit::Second => times::<DurationSecondType>(kind, array),
                TimeUnit::Millisecond => times::<DurationMillisecondType>(kind, array),
                TimeUnit::Microsecond => times::<DurationMicrosecondType>(kind, array),
                TimeUnit::Nanosecond => times::<DurationNanosecondType>(kind, array),
            })
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let kind = if field.metadata().contains_key(JSON_KEY) { "json" } else { "text" };
            texts(kind, &cast(array, &DataType::Utf8)?)
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            let array = cast(array, &DataType::Binary)?;
            let pieces = array.as_binary::<i32>();
            Ok(pieces_of("binary", &array, pieces.offsets(), pieces.values().as_slice()))
        }
        DataType::Dictionary(_, values) => categories(field, array, values),
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            formatted("decimal", array)
        }
        DataType::Time32(_) | DataType::Time64(_) => formatted("time", array),
        DataType::Interval(_) => formatted("text", array),
        _ => nested(array),
    }
}

fn integer(bits: u8, signed: bool) -> Value {
    json!({"kind": "integer", "bits": bits, "signed": signed})
}

/// The word for a unit of time.
pub(crate) fn word(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn flags(array: &BooleanArray) -> Vec<u8> {
    array.values().iter().map(u8::from).collect()
}

/// A buffer, and before it the one that says where there are values, if there are gaps.
fn flagged(kind: Value, array: &ArrayRef, buffer: Vec<u8>) -> Encoded {
    let (nullable, mut buffers) = gaps(array);
    buffers.push(buffer);
    Encoded { kind, nullable, buffers }
}

fn gaps(array: &ArrayRef) -> (bool, Vec<Vec<u8>>) {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => (true, vec![nulls.iter().map(u8::from).collect()]),
        None => (false, Vec::new()),
    }
}

fn numbers<T: ArrowPrimitiveType>(kind: Value, array: &ArrayRef) -> Encoded {
    flagged(kind, array, array.as_primitive::<T>().values().inner().as_slice().to_vec())
}

fn times<T: ArrowPrimitiveType<Native = i64> + ArrowTemporalType>(kind: Value, array: &ArrayRef) -> Encoded {
    let array = array.as_primitive::<T>();
    let buffer = array.iter().flat_map(|time| time.unwrap_or(NOT_A_TIME).to_le_bytes()).collect();
    Encoded { kind, nullable: false, buffers: vec![buffer] }
}

fn texts(kind: &str, array: &ArrayRef) -> Result<Encoded, TableError> {
    let texts = array.as_string::<i32>();
    Ok(pieces_of(kind, array, texts.offsets(), texts.values().as_slice()))
}

/// Pieces of one buffer, of which a slice of an array uses a part.
fn pieces_of(kind: &str, array: &ArrayRef, offsets: &[i32], values: &[u8]) -> Encoded {
    let first = offsets.first().copied().unwrap_or_default();
    let used = offsets.first().zip(offsets.last());
    let used = used.and_then(|(from, to)| values.get(usize::try_from(*from).ok()?..usize::try_from(*to).ok()?));
    let used = used.unwrap_or_default();
    let moved = offsets.iter().flat_map(|offset| offset.wrapping_sub(first).to_le_bytes()).collect();
    let (nullable, mut buffers) = gaps(array);
    buffers.extend([moved, used.to_vec()]);
    Encoded { kind: json!({"kind": kind, "bytes": used.len()}), nullable, buffers }
}

/// Values as they are written.
fn formatted(kind: &str, array: &ArrayRef) -> Result<Encoded, TableError> {
    let options = FormatOptions::new().with_display_error(true);
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let text = |row| if array.is_valid(row) { formatter.value(row).to_string() } else { String::new() };
    made(kind, array, (0..array.len()).map(text))
}

/// Lists, structures and whatever else, each as a JSON text.
fn nested(array: &ArrayRef) -> Result<Encoded, TableError> {
    let text = |row| Ok(if array.is_valid(row) { value(array, row, 0)?.to_string() } else { String::new() });
    let texts = (0..array.len()).map(text).collect::<Result<Vec<_>, TableError>>()?;
    made("json", array, texts.into_iter())
}

fn made(kind: &str, array: &ArrayRef, texts: impl Iterator<Item = String>) -> Result<Encoded, TableError> {
    let (mut offsets, mut values) = (0_u32.to_le_bytes().to_vec(), Vec::new());
    for text in texts {
        values.extend(text.into_bytes());
        let end = i32::try_from(values.len()).map_err(|_| TableError::TooLarge)?;
        offsets.extend(end.to_le_bytes());
    }
    let (nullable, mut buffers) = gaps(array);
    let bytes = values.len();
    buffers.extend([offsets, values]);
    Ok(Encoded { kind: json!({"kind": kind, "bytes": bytes}), nullable, buffers })
}

/// Categories that are texts stay categories; others are their values.
fn categories(field: &Field, array: &ArrayRef, values: &DataType) -> Result<Encoded, TableError> {
    let is_text = matches!(values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let wanted = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let of_texts = is_text.then(|| cast(array, &wanted).ok()).flatten();
    let whole = of_texts.filter(|array| array.as_dictionary::<Int32Type>().values().null_count() == 0);
    let Some(array) = whole else { return encode(field, &cast(array, values)?) };
    let rows = array.as_dictionary::<Int32Type>();
    let codes = rows.keys().iter().flat_map(|code| code.unwrap_or(-1).to_le_bytes()).collect();
    let mut names = texts("category", rows.values())?;
    let count = rows.values().len();
    let bytes = &names.kind["bytes"];
    let kind = json!({
        "kind": "category", "count": count, "bytes": bytes, "ordered": field.dict_is_ordered().unwrap_or_default(),
    });
    names.buffers.insert(0, codes);
    Ok(Encoded { kind, nullable: false, buffers: names.buffers })
}

/// One value as JSON.
pub(crate) fn value(array: &dyn Array, row: usize, depth: usize) -> Result<Value, TableError> {
    if depth > DEPTH_MAX {
        return Err(TableError::TooDeep);
    }
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    let list = |items: ArrayRef| {
        let values = (0..items.len()).map(|row| value(&items, row, depth.saturating_add(1)));
        values.collect::<Result<Vec<_>, _>>().map(Value::Array)
    };
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float16 => f64::from(array.as_primitive::<Float16Type>().value(row)).into(),
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(row)).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::List(_) => list(array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => list(array.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let named =
                columns.map(|(field, column)| Ok((field.name().clone(), value(column, row, depth.saturating_add(1))?)));
            Value::Object(named.collect::<Result<Map<_, _>, TableError>>()?)
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let pair = |row| {
                let parts = entries.columns().iter().map(|column| value(column, row, depth.saturating_add(1)));
                parts.collect::<Result<Vec<_>, _>>().map(Value::Array)
            };
            Value::Array((0..entries.len()).map(pair).collect::<Result<_, _>>()?)
        }
        DataType::Dictionary(_, kind) => value(&cast(&array.slice(row, 1), kind)?, 0, depth.saturating_add(1))?,
        _ => {
            let options = FormatOptions::new().with_display_error(true);
            ArrayFormatter::try_new(array, &options)?.value(row).to_string().into()
        }
    })
}

/// Arrays as one; of categories their values where they are too many together.
pub(crate) fn joined(kind: &DataType, arrays: &[ArrayRef]) -> Result<ArrayRef, TableError> {
    if arrays.is_empty() {
        return Ok(arrow_array::new_empty_array(kind));
    }
    if let [one] = arrays {
        return Ok(Arc::clone(one));
    }
    let parts: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    match (arrow_select::concat::concat(&parts), kind) {
        (Err(_), DataType::Dictionary(_, values)) => {
            let parts = arrays.iter().map(|array| cast(array, values)).collect::<Result<Vec<_>, _>>()?;
            joined(values, &parts)
        }
        (whole, _) => Ok(whole?),
    }
}
