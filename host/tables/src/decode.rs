//! Arrays into buffers that a guest takes as they are: the way back of what `column` does.
//!
//! A column is a head in JSON and its buffers. Where some rows have no value, a byte for each row comes first, 0 for none;
//! times that are none are the lowest number instead, as NumPy has them. Text is one offset more than there are values, each
//! of 32 bits, and then its bytes. A category is a number of 32 bits for each row, and then the categories as text is. Texts that
//! repeat are so too: where a row has none, its number is -1. Lists and structures are as `nested` says.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, DictionaryArray,
    cast::AsArray,
    types::{
        ArrowTemporalType, BinaryType, ByteArrayType, Date32Type, Date64Type, DurationMicrosecondType,
        DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type,
        Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, Utf8Type,
    },
};
use arrow_buffer::Buffer;
use arrow_cast::{
    cast,
    display::{ArrayFormatter, FormatOptions},
};
use arrow_schema::{DataType, Field, TimeUnit};
use serde_json::{Map, Value, json};

use crate::{
    column::NOT_A_TIME,
    encoded::{Encoded, flags, rows},
    error::TableError,
    frame::{CONTAINER_KEY, INTERVAL, JSON_KEY, PERIOD, UUID},
    nested::{DEPTH_MAX, nested},
    repeating,
};

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

/// Encodes the head of a table or of a column: JSON, after its length in 32 bits.
pub(crate) fn head(said: &Value) -> Result<Buffer, TableError> {
    let text = said.to_string();
    let length = u32::try_from(text.len()).map_err(|_| TableError::TooLarge)?;
    Ok(Buffer::from_vec([&length.to_le_bytes()[..], text.as_bytes()].concat()))
}

/// A column of several parts as a guest takes it: its head, then its buffers.
pub(crate) fn column(field: &Field, parts: Vec<ArrayRef>) -> Result<impl Iterator<Item = Buffer>, TableError> {
    let parts = plain(field, parts)?;
    let encoded = encode(field, &parts, 0)?;
    let head = head(&json!({
        "name": field.name(), "rows": rows(&parts), "nullable": encoded.nullable, "type": encoded.kind,
        "buffers": encoded.lengths(), "extension": extension(field), "container": field.metadata().get(CONTAINER_KEY),
    }))?;
    Ok(std::iter::once(head).chain(encoded.into_buffers()))
}

/// Returns the extension type of a column, if guests support it.
fn extension(field: &Field) -> Option<Value> {
    let name = field.extension_type_name().filter(|name| [UUID, PERIOD, INTERVAL].contains(name))?;
    Some(json!({"name": name, "metadata": field.extension_type_metadata()}))
}

/// Converts the parts of a column to arrays whose buffers are close to the guest's format. Types that the guest takes part
/// by part stay in parts, others are concatenated.
pub(crate) fn plain(field: &Field, parts: Vec<ArrayRef>) -> Result<Vec<ArrayRef>, TableError> {
    let kind = parts.first().map_or(field.data_type(), |part| part.data_type()).clone();
    if repeating::is_text(field.data_type()) && parts.iter().any(|part| *part.data_type() != kind) {
        // One file repeats its texts, another one does not.
        return Ok(parts.iter().map(|part| cast(part, &DataType::Utf8)).collect::<Result<_, _>>()?);
    }
    let wanted = match &kind {
        DataType::Date64 if parts.iter().all(are_days) => DataType::Date32,
        DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Utf8
        | DataType::Binary
            if !parts.is_empty() =>
        {
            return Ok(parts);
        }
        DataType::Dictionary(..) if repeating::is_text(field.data_type()) => {
            if repeating::pays(&parts) {
                return Ok(parts);
            }
            DataType::Utf8
        }
        DataType::Dictionary(_, values) => {
            let whole = joined(&kind, &parts)?;
            if *whole.data_type() != kind {
                return plain(field, vec![whole]);
            }
            // Categories that are texts stay categories; others are their values.
            let is_text = matches!(**values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
            let of_texts = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
            let of_texts = is_text.then(|| cast(&whole, &of_texts).ok()).flatten();
            let complete = of_texts.filter(|array| array.as_dictionary::<Int32Type>().values().null_count() == 0);
            return match complete {
                Some(categories) => Ok(vec![categories]),
                None => plain(field, vec![cast(&whole, values)?]),
            };
        }
        _ => return Ok(vec![joined(&kind, &parts)?]),
    };
    if parts.is_empty() {
        return Ok(vec![arrow_array::new_empty_array(&wanted)]);
    }
    parts.iter().map(|part| Ok(cast(part, &wanted)?)).collect()
}

/// Tells whether all dates in milliseconds are whole days in the range of 32-bit days.
fn are_days(part: &ArrayRef) -> bool {
    let is_day = |time: i64| time % DAY == 0 && i32::try_from(time / DAY).is_ok();
    part.as_primitive::<Date64Type>().iter().flatten().all(is_day)
}

/// Encodes the buffers of arrays of one type, of which there is at least one.
pub(crate) fn encode(field: &Field, parts: &[ArrayRef], depth: usize) -> Result<Encoded, TableError> {
    let Some(first) = parts.first() else { return Err(TableError::Damaged) };
    match first.data_type() {
        DataType::Null => Ok(Encoded::new(json!({"kind": "null"}))),
        DataType::Boolean => {
            let values = parts.iter().map(|part| flags(part.as_boolean().values().iter()));
            Encoded::new(json!({"kind": "boolean"})).with_mask(parts)?.with::<u8>(rows(parts), values.collect())
        }
        DataType::Int8 => numbers::<Int8Type>(integer(8, true), parts),
        DataType::Int16 => numbers::<Int16Type>(integer(16, true), parts),
        DataType::Int32 => numbers::<Int32Type>(integer(32, true), parts),
        DataType::Int64 => numbers::<Int64Type>(integer(64, true), parts),
        DataType::UInt8 => numbers::<UInt8Type>(integer(8, false), parts),
        DataType::UInt16 => numbers::<UInt16Type>(integer(16, false), parts),
        DataType::UInt32 => numbers::<UInt32Type>(integer(32, false), parts),
        DataType::UInt64 => numbers::<UInt64Type>(integer(64, false), parts),
        DataType::Float16 => numbers::<Float16Type>(json!({"kind": "float", "bits": 16}), parts),
        DataType::Float32 => numbers::<Float32Type>(json!({"kind": "float", "bits": 32}), parts),
        DataType::Float64 => numbers::<Float64Type>(json!({"kind": "float", "bits": 64}), parts),
        DataType::Date32 => numbers::<Date32Type>(json!({"kind": "date"}), parts),
        DataType::Timestamp(unit, zone) => {
            let kind = json!({"kind": "timestamp", "unit": word(*unit), "zone": zone});
            match unit {
                TimeUnit::Second => times::<TimestampSecondType>(kind, parts),
                TimeUnit::Millisecond => times::<TimestampMillisecondType>(kind, parts),
                TimeUnit::Microsecond => times::<TimestampMicrosecondType>(kind, parts),
                TimeUnit::Nanosecond => times::<TimestampNanosecondType>(kind, parts),
            }
        }
        DataType::Duration(unit) => {
            let kind = json!({"kind": "duration", "unit": word(*unit)});
            match unit {
                TimeUnit::Second => times::<DurationSecondType>(kind, parts),
                TimeUnit::Millisecond => times::<DurationMillisecondType>(kind, parts),
                TimeUnit::Microsecond => times::<DurationMicrosecondType>(kind, parts),
                TimeUnit::Nanosecond => times::<DurationNanosecondType>(kind, parts),
            }
        }
        DataType::Utf8 if field.metadata().contains_key(JSON_KEY) => pieces::<Utf8Type>("json", parts),
        DataType::Utf8 => pieces::<Utf8Type>("text", parts),
        DataType::Binary => pieces::<BinaryType>("binary", parts),
        DataType::Dictionary(..) if repeating::is_text(field.data_type()) => repeated(parts),
        DataType::Dictionary(..) => categories(field, first),
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            formatted("decimal", first)
        }
        DataType::Time32(_) | DataType::Time64(_) => formatted("time", first),
        _ => nested(first, depth),
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

fn bytes_of<T: ArrowPrimitiveType>(part: &ArrayRef) -> Buffer {
    part.as_primitive::<T>().values().inner().clone()
}

fn numbers<T: ArrowPrimitiveType>(kind: Value, parts: &[ArrayRef]) -> Result<Encoded, TableError> {
    let values = parts.iter().map(bytes_of::<T>).collect();
    Encoded::new(kind).with_mask(parts)?.with::<T::Native>(rows(parts), values)
}

fn times<T: ArrowPrimitiveType<Native = i64> + ArrowTemporalType>(
    kind: Value,
    parts: &[ArrayRef],
) -> Result<Encoded, TableError> {
    let values = parts.iter().map(|part| match part.null_count() {
        0 => bytes_of::<T>(part),
        _ => {
            let times = part.as_primitive::<T>().iter();
            Buffer::from_vec(times.map(|time| time.unwrap_or(NOT_A_TIME)).collect::<Vec<i64>>())
        }
    });
    Encoded::new(kind).with::<i64>(rows(parts), values.collect())
}

/// Pieces of buffers, of which a slice of an array uses a part.
fn pieces<T: ByteArrayType<Offset = i32>>(kind: &str, parts: &[ArrayRef]) -> Result<Encoded, TableError> {
    let (mut moved, mut values, mut bytes) = (vec![Buffer::from_vec(vec![0_i32])], Vec::new(), 0_usize);
    for part in parts {
        let part = part.as_bytes::<T>();
        let offsets = &part.offsets()[..];
        let used = offsets.first().zip(offsets.last());
        let used = used.and_then(|(from, to)| Some((*from, usize::try_from(*from).ok()?, usize::try_from(*to).ok()?)));
        let Some((from, start, end)) = used.filter(|(_, start, end)| start <= end && *end <= part.values().len())
        else {
            continue;
        };
        let by = i32::try_from(bytes).map_err(|_| TableError::TooLarge)?.wrapping_sub(from);
        let data = part.values().slice_with_length(start, end.saturating_sub(start));
        bytes = bytes.saturating_add(data.len());
        i32::try_from(bytes).map_err(|_| TableError::TooLarge)?;
        moved.push(Buffer::from_vec(offsets.iter().skip(1).map(|end| end.wrapping_add(by)).collect::<Vec<i32>>()));
        values.push(data);
    }
    let encoded = Encoded::new(json!({"kind": kind, "bytes": bytes})).with_mask(parts)?;
    encoded.with::<i32>(rows(parts).saturating_add(1), moved)?.with::<u8>(bytes, values)
}

/// Values as they are written.
fn formatted(kind: &str, array: &ArrayRef) -> Result<Encoded, TableError> {
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let (mut offsets, mut values) = (vec![0_i32], Vec::<u8>::new());
    for row in 0..array.len() {
        if array.is_valid(row) {
            values.extend(formatter.value(row).try_to_string()?.into_bytes());
        }
        offsets.push(i32::try_from(values.len()).map_err(|_| TableError::TooLarge)?);
    }
    let (parts, bytes) = (std::slice::from_ref(array), values.len());
    let encoded = Encoded::new(json!({"kind": kind, "bytes": bytes})).with_mask(parts)?;
    let encoded = encoded.with::<i32>(rows(parts).saturating_add(1), vec![Buffer::from_vec(offsets)])?;
    encoded.with::<u8>(bytes, vec![Buffer::from_vec(values)])
}

/// Categories that are texts.
fn categories(field: &Field, array: &ArrayRef) -> Result<Encoded, TableError> {
    let column = array.as_dictionary::<Int32Type>();
    let kind = json!({"kind": "category", "ordered": field.dict_is_ordered().unwrap_or_default()});
    numbered(kind, array.len(), coded(column, 0)?, std::slice::from_ref(column.values()))
}

/// Encodes repeating texts. Adjacent parts may share a dictionary.
fn repeated(parts: &[ArrayRef]) -> Result<Encoded, TableError> {
    let (mut codes, mut names, mut before) = (Vec::new(), Vec::<ArrayRef>::new(), 0_usize);
    for part in parts.iter().map(|part| part.as_dictionary::<Int32Type>()) {
        let values = part.values();
        match names.last().filter(|last| repeating::is_same(last, values)) {
            Some(_) => {}
            None => {
                before = names.iter().map(|texts| texts.len()).fold(0, usize::saturating_add);
                names.push(Arc::clone(values));
            }
        }
        codes.extend(coded(part, before)?);
    }
    numbered(json!({"kind": "repeated"}), rows(parts), codes, &names)
}

/// Encodes the numbers of the rows' texts, which follow `before` texts of other parts.
fn coded(rows: &DictionaryArray<Int32Type>, before: usize) -> Result<Vec<Buffer>, TableError> {
    let count = i32::try_from(rows.values().len()).map_err(|_| TableError::TooLarge)?;
    let before = i32::try_from(before).map_err(|_| TableError::TooLarge)?;
    before.checked_add(count).ok_or(TableError::TooLarge)?;
    let is_there = |code: &i32| (0..count).contains(code);
    if rows.null_count() == 0 {
        let codes = rows.keys().values();
        // The reader of a file checks its numbers as well, but not where it has no texts.
        if !codes.iter().all(is_there) {
            return Err(TableError::Damaged);
        }
        let moved = || Buffer::from_vec(codes.iter().map(|code| code.wrapping_add(before)).collect::<Vec<i32>>());
        return Ok(vec![if before == 0 { codes.inner().clone() } else { moved() }]);
    }
    let code = |code: Option<i32>| match code {
        None => Ok(-1),
        Some(code) if is_there(&code) => Ok(code.wrapping_add(before)),
        Some(_) => Err(TableError::Damaged),
    };
    Ok(vec![Buffer::from_vec(rows.keys().iter().map(code).collect::<Result<Vec<i32>, _>>()?)])
}

/// Numbers of texts, one for each row, and then these.
fn numbered(mut kind: Value, count: usize, codes: Vec<Buffer>, names: &[ArrayRef]) -> Result<Encoded, TableError> {
    let mut texts = pieces::<Utf8Type>("text", names)?;
    if texts.nullable {
        return Err(TableError::Damaged);
    }
    kind["count"] = rows(names).into();
    kind["bytes"] = texts.kind["bytes"].take();
    Ok(Encoded::new(kind).with::<i32>(count, codes)?.with_all(texts))
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
fn joined(kind: &DataType, arrays: &[ArrayRef]) -> Result<ArrayRef, TableError> {
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
