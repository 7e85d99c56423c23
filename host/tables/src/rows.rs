//! Rows of a Parquet file as lines of CSV.

use std::{fmt::Write as _, fs::File};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::{Page, PageRequest, error::TableError, shown::shown};

/// Rows that are read at once.
const BATCH_ROWS: usize = 256;

pub(crate) fn read(file: File, request: PageRequest) -> Result<Page, TableError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let total = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or_default();
    let skip = request.skip.min(total);
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut page = Page { total, ..Page::default() };
    for (place, field) in builder.schema().fields().iter().enumerate() {
        if place > 0 {
            page.header.push(',');
        }
        push_field(&mut page.header, field.name());
    }
    page.header.push('\n');
    let fields = builder.schema().fields().clone();
    let rows = size(request.rows.min(total.saturating_sub(skip)));
    let reader = builder.with_batch_size(BATCH_ROWS).with_offset(size(skip)).with_limit(rows).build()?;
    // What cannot be said, such as a day millions of years from now, says so in its place.
    let options = FormatOptions::new().with_display_error(true);
    for batch in reader {
        let batch: RecordBatch = batch?;
        let columns = fields.iter().zip(batch.columns()).map(|(field, array)| shown(field, array));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let values = columns.iter().map(|array| ArrayFormatter::try_new(array, &options));
        let values: Vec<ArrayFormatter<'_>> = values.collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            if !page.add(&values, row, request) {
                return Ok(page);
            }
        }
    }
    Ok(page)
}

impl Page {
    /// Adds a row, if there is room for it.
    fn add(&mut self, values: &[ArrayFormatter<'_>], row: usize, request: PageRequest) -> bool {
        let before = self.text.len();
        let mut value = String::new();
        for (place, formatter) in values.iter().enumerate() {
            if place > 0 {
                self.text.push(',');
            }
            value.clear();
            // A string takes what is written to it.
            let _ = write!(value, "{}", formatter.value(row));
            if let Some(max) = request.value_chars {
                shorten(&mut value, max);
            }
            push_field(&mut self.text, &value);
        }
        self.text.push('\n');
        let fits = self.text.len() <= request.bytes;
        if fits {
            self.rows = self.rows.saturating_add(1);
        } else {
            self.text.truncate(before);
        }
        fits
    }
}

/// Leaves the beginning, and says how much is gone.
fn shorten(value: &mut String, chars_max: usize) {
    if let Some((end, _)) = value.char_indices().nth(chars_max) {
        let more = value[end..].chars().count();
        value.truncate(end);
        let _ = write!(value, "… {more} more characters");
    }
}

/// One field of a line of CSV, as RFC 4180 has it.
fn push_field(line: &mut String, value: &str) {
    if value.contains([',', '"', '\n', '\r']) {
        let _ = write!(line, "\"{}\"", value.replace('"', "\"\""));
    } else {
        line.push_str(value);
    }
}
