//! Values of types that a file has no word for, as people read them: periods, intervals and UUIDs.

use std::{fmt::Write as _, sync::Arc};

use arrow_array::{
    Array, ArrayRef, Int64Array, StringArray, TimestampNanosecondArray, TimestampSecondArray, cast::AsArray,
    types::Int64Type,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field};
use serde_json::Value;

use crate::{
    error::TableError,
    frame::{INTERVAL, PERIOD, UUID},
};

/// Seconds of a day.
const DAY: i64 = 86_400;

/// The column as it is shown.
pub(crate) fn shown(field: &Field, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    let metadata = || field.extension_type_metadata().and_then(|said| serde_json::from_str::<Value>(said).ok());
    let word = |key: &str| metadata().and_then(|said| Some(said.get(key)?.as_str()?.to_owned()));
    match (field.extension_type_name(), array.data_type()) {
        (Some(PERIOD), DataType::Int64) => {
            let freq = word("freq").unwrap_or_default();
            periods(freq.trim_start_matches(|letter: char| letter.is_ascii_digit()), array)
        }
        (Some(INTERVAL), DataType::Struct(fields)) if fields.len() == 2 => {
            intervals(&word("closed").unwrap_or_default(), array)
        }
        (Some(UUID), DataType::FixedSizeBinary(16)) => Ok(ids(array)),
        _ => Ok(Arc::clone(array)),
    }
}

/// Numbers of periods since 1970, as pandas writes them. Those of a frequency that is not known here stay numbers.
fn periods(freq: &str, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    let numbers = array.as_primitive::<Int64Type>();
    let texts = |text: fn(i64) -> String| -> ArrayRef {
        Arc::new(numbers.iter().map(|number| number.map(text)).collect::<StringArray>())
    };
    let moments = |seconds: i64, length: usize| {
        let times: TimestampSecondArray =
            numbers.iter().map(|number| number.map(|number| number.saturating_mul(seconds))).collect();
        cut(&(Arc::new(times) as ArrayRef), length)
    };
    Ok(match freq.split('-').next().unwrap_or_default() {
        "Y" => texts(|year| year.saturating_add(1970).to_string()),
        "Q" if freq == "Q-DEC" => texts(|quarter| {
            format!("{}Q{}", quarter.div_euclid(4).saturating_add(1970), quarter.rem_euclid(4).saturating_add(1))
        }),
        "M" => texts(|month| {
            format!("{}-{:02}", month.div_euclid(12).saturating_add(1970), month.rem_euclid(12).saturating_add(1))
        }),
        "W" => weeks(freq, numbers)?,
        "D" => moments(DAY, 10)?,
        "h" => moments(3_600, 16)?,
        "min" => moments(60, 16)?,
        "s" => moments(1, 19)?,
        "ms" => fine(numbers, 1_000_000, 23)?,
        "us" => fine(numbers, 1_000, 26)?,
        "ns" => fine(numbers, 1, 29)?,
        _ => Arc::clone(array),
    })
}

/// Weeks by their first and last days. The first week ends on one of the first days of 1970, or was the one before.
fn weeks(freq: &str, numbers: &Int64Array) -> Result<ArrayRef, TableError> {
    let end = match freq {
        "W" | "W-SUN" => -4,
        "W-MON" => -3,
        "W-TUE" => -2,
        "W-WED" => -1,
        "W-THU" => 0,
        "W-FRI" => 1,
        _ => 2,
    };
    let day = |behind: i64| {
        let seconds =
            |number: i64| number.saturating_mul(7).saturating_add(end).saturating_add(behind).saturating_mul(DAY);
        let times: TimestampSecondArray = numbers.iter().map(|number| number.map(seconds)).collect();
        cut(&(Arc::new(times) as ArrayRef), 10)
    };
    let (first, last) = (day(-6)?, day(0)?);
    let days = first.as_string::<i32>().iter().zip(last.as_string::<i32>());
    Ok(Arc::new(days.map(|(first, last)| Some(format!("{}/{}", first?, last?))).collect::<StringArray>()))
}

/// Moments that are finer than a second.
fn fine(numbers: &Int64Array, nanoseconds: i64, length: usize) -> Result<ArrayRef, TableError> {
    let times: TimestampNanosecondArray =
        numbers.iter().map(|number| number.map(|number| number.saturating_mul(nanoseconds))).collect();
    cut(&(Arc::new(times) as ArrayRef), length)
}

/// The beginnings of moments as text, with a blank between day and time.
fn cut(array: &ArrayRef, length: usize) -> Result<ArrayRef, TableError> {
    let options = FormatOptions::new().with_display_error(true).with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.9f"));
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let text =
        |row| array.is_valid(row).then(|| formatter.value(row).to_string().chars().take(length).collect::<String>());
    Ok(Arc::new((0..array.len()).map(text).collect::<StringArray>()))
}

/// Intervals, with square brackets at closed ends.
fn intervals(closed: &str, array: &ArrayRef) -> Result<ArrayRef, TableError> {
    let options = FormatOptions::new().with_display_error(true);
    let ends = array.as_struct().columns().iter().map(|end| ArrayFormatter::try_new(end, &options));
    let ends: Vec<ArrayFormatter<'_>> = ends.collect::<Result<_, _>>()?;
    let [left, right] = ends.as_slice() else { return Err(TableError::Damaged) };
    let from = if matches!(closed, "left" | "both") { '[' } else { '(' };
    let to = if matches!(closed, "right" | "both") { ']' } else { ')' };
    let text = |row| array.is_valid(row).then(|| format!("{from}{}, {}{to}", left.value(row), right.value(row)));
    Ok(Arc::new((0..array.len()).map(text).collect::<StringArray>()))
}

fn ids(array: &ArrayRef) -> ArrayRef {
    let text = |bytes: &[u8]| {
        let mut text = String::new();
        for (place, byte) in bytes.iter().enumerate() {
            // A string takes what is written to it.
            let _ = write!(text, "{}{byte:02x}", if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" });
        }
        text
    };
    Arc::new(array.as_fixed_size_binary().iter().map(|bytes| bytes.map(text)).collect::<StringArray>())
}
