//! Repeating texts, which files store once: read as dictionary keys, and handed over as such.
//!
//! The declared type of such a column stays text. Only its arrays differ: their type is [`kind`].

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray, types::Int32Type};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    basic::{Encoding, PageType},
    file::metadata::ColumnChunkMetaData,
};

use crate::{error::TableError, frame::JSON_KEY};

/// Minimum number of rows for each byte of a file's dictionary. Larger dictionaries cost more than they save.
const ROWS_PER_BYTE: i64 = 16;
/// Minimum number of rows for each text.
const ROWS_PER_TEXT: usize = 2;

/// The type of arrays of texts that repeat.
pub fn kind() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Returns true if values of a type are texts.
pub(crate) fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns true if a column of the declared type holds repeating texts.
pub fn is_repeating(said: &DataType, column: &DataType) -> bool {
    is_text(said) && *column == kind()
}

/// Returns the metadata with a schema that reads texts as [`kind`] where the file repeats them.
pub fn metadata(said: &ArrowReaderMetadata) -> ArrowReaderMetadata {
    let columns = said.parquet_schema();
    let repeats = |place: usize| {
        let leaves = (0..columns.num_columns()).filter(|leaf| columns.get_column_root_idx(*leaf) == place);
        let groups = said.metadata().row_groups();
        let is_kept_once = |leaf: usize| groups.iter().all(|group| group.columns().get(leaf).is_some_and(is_kept_once));
        !groups.is_empty() && leaves.into_iter().all(is_kept_once)
    };
    let field = |(place, field): (usize, &FieldRef)| match is_text(field.data_type()) {
        true if !field.metadata().contains_key(JSON_KEY) && repeats(place) => {
            Arc::new(field.as_ref().clone().with_data_type(kind()))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<_> = said.schema().fields().iter().enumerate().map(field).collect();
    let schema = Schema::new_with_metadata(fields, said.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    // A file whose columns cannot be read so is read as it says.
    ArrowReaderMetadata::try_new(Arc::clone(said.metadata()), options).unwrap_or_else(|_| said.clone())
}

/// Returns true if all values of a column chunk are keys of a small dictionary.
fn is_kept_once(chunk: &ColumnChunkMetaData) -> bool {
    let by_number = [Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY];
    let mut pages = chunk.page_encoding_stats().into_iter().flatten();
    let is_by_number = chunk.page_encoding_stats().is_some()
        && pages.all(|page| page.page_type == PageType::DICTIONARY_PAGE || by_number.contains(&page.encoding));
    let size = chunk.dictionary_page_offset().map(|from| chunk.data_page_offset().saturating_sub(from));
    is_by_number && size.is_some_and(|size| size.saturating_mul(ROWS_PER_BYTE) <= chunk.num_values())
}

/// Refuses keys without a text: readers of files do not check the keys of an empty dictionary.
///
/// # Errors
/// The file is damaged.
pub fn check(batch: &RecordBatch) -> Result<(), TableError> {
    let is_empty = |column: &ArrayRef| {
        let texts = column.as_dictionary_opt::<Int32Type>().map(|column| column.values());
        texts.is_some_and(|texts| texts.is_empty()) && column.null_count() < column.len()
    };
    if batch.columns().iter().any(is_empty) { Err(TableError::Damaged) } else { Ok(()) }
}

/// Builds a batch whose schema has the actual types of the columns.
///
/// # Errors
/// The columns are not those of the fields.
pub fn batch(fields: &[FieldRef], columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, TableError> {
    let field = |(field, column): (&FieldRef, &ArrayRef)| match is_repeating(field.data_type(), column.data_type()) {
        true => Arc::new(Field::clone(field).with_data_type(kind())),
        false => Arc::clone(field),
    };
    let schema = Schema::new(fields.iter().zip(&columns).map(field).collect::<Vec<_>>());
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
}

/// Returns true if handing over the parts of a column as dictionary keys pays: they have enough rows for each text.
pub(crate) fn pays(parts: &[ArrayRef]) -> bool {
    let (mut rows, mut count, mut last) = (0_usize, 0_usize, None);
    for part in parts.iter().filter_map(|part| part.as_dictionary_opt::<Int32Type>()) {
        rows = rows.saturating_add(part.len());
        if !last.is_some_and(|last| is_same(last, part.values())) {
            count = count.saturating_add(part.values().len());
        }
        last = Some(part.values());
    }
    count.saturating_mul(ROWS_PER_TEXT) <= rows
}

/// Returns true if two parts share the memory of one dictionary.
pub(crate) fn is_same(one: &ArrayRef, other: &ArrayRef) -> bool {
    let (one, other) = (one.as_string::<i32>(), other.as_string::<i32>());
    one.values().ptr_eq(other.values()) && one.offsets().inner().inner().ptr_eq(other.offsets().inner().inner())
}
