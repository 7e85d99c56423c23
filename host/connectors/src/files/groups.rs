//! Row groups of a Parquet file that may contain rows that pass the tests. The others are not read.

use arrow_array::{Array, BooleanArray, Datum};
use arrow_ord::cmp::{gt, gt_eq, lt, lt_eq};
use arrow_schema::ArrowError;
use cellar_tables::reading::Whole;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, statistics::StatisticsConverter};
use serde_json::{Map, Value};

use super::{given, place::FileOf};
use crate::{Comparison, Filter, error::FetchError};

/// Returns the numbers of those groups.
///
/// # Errors
/// A parameter cannot be compared with its column.
pub(super) fn possible(
    builder: &ParquetRecordBatchReaderBuilder<Whole<FileOf>>,
    filters: &[Filter],
    arguments: &Map<String, Value>,
) -> Result<Vec<usize>, FetchError> {
    let mut possible = vec![true; builder.metadata().num_row_groups()];
    for filter in filters {
        // Any row may have one of several values.
        if arguments.get(&filter.parameter).is_some_and(Value::is_array) {
            continue;
        }
        let Ok(field) = builder.schema().field_with_name(&filter.column) else { continue };
        // What is no number is above all numbers, and in no statistics.
        if field.data_type().is_floating() {
            continue;
        }
        let Some(value) = given(filter, field.data_type(), arguments)? else { continue };
        // Statistics that are missing, or of another type, say nothing.
        let Some(found) = found(builder, filter, &value) else { continue };
        for (place, possible) in possible.iter_mut().enumerate().take(found.len()) {
            *possible &= found.is_null(place) || found.value(place);
        }
    }
    Ok(possible.iter().enumerate().filter(|(_, is_possible)| **is_possible).map(|(number, _)| number).collect())
}

/// Checks for each row group whether a row of it may pass the test; null where the statistics do not tell.
fn found(
    builder: &ParquetRecordBatchReaderBuilder<Whole<FileOf>>,
    filter: &Filter,
    value: &dyn Datum,
) -> Option<BooleanArray> {
    let schema = builder.parquet_schema();
    let converter = StatisticsConverter::try_new(&filter.column, builder.schema(), schema).ok()?;
    let groups = builder.metadata().row_groups();
    let (least, most) = (converter.row_group_mins(groups).ok()?, converter.row_group_maxes(groups).ok()?);
    let tested: Result<BooleanArray, ArrowError> = match filter.comparison {
        Comparison::Less => lt(&least, value),
        Comparison::LessOrEqual => lt_eq(&least, value),
        Comparison::Greater => gt(&most, value),
        Comparison::GreaterOrEqual => gt_eq(&most, value),
        Comparison::Equal => {
            let (above, below) = (lt_eq(&least, value).ok()?, gt_eq(&most, value).ok()?);
            let both = above.iter().zip(&below).map(|(above, below)| Some(above? && below?));
            return Some(both.collect());
        }
        Comparison::NotEqual => return None,
    };
    tested.ok()
}
