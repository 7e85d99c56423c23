//! Rows of a Parquet file as lines of CSV.

use std::{fmt::Write as _, fs::File};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::Fields;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::{Page, PageRequest, error::TableError, shown::shown};

/// Rows that are read at once.
const BATCH_ROWS: usize = 256;
/// Characters that a value is not shortened below.
const VALUE_CHARS_MIN: usize = 16;

pub(crate) fn read(file: File, request: PageRequest) -> Result<Page, TableError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let total = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or_default();
    let skip = request.skip.min(total);
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut page = Page { total, ..Page::default() };
    let fields = builder.schema().fields().clone();
    let mut fit = Fit { columns: fields.len(), value_chars: request.value_chars };
    fit.narrow(fields.iter().map(|field| field.name().len().saturating_add(1)), request.bytes);
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
            if page.rows == 0 {
                fit.squeeze(&values, row, request.bytes);
                page.is_squeezed = fit.value_chars != request.value_chars || fit.columns < fields.len();
            }
            if !page.add(&values, row, fit, request.bytes) {
                return Ok(page.headed(&fields, fit));
            }
        }
    }
    Ok(page.headed(&fields, fit))
}

/// Part of a row that a page has room for.
#[derive(Clone, Copy, Debug)]
struct Fit {
    columns: usize,
    value_chars: Option<usize>,
}

impl Fit {
    /// Keeps the first columns whose texts of these sizes have room, one at least.
    fn narrow(&mut self, sizes: impl Iterator<Item = usize>, bytes: usize) {
        let mut used = 0_usize;
        let fits = sizes.take_while(|size| {
            used = used.saturating_add(*size);
            used <= bytes
        });
        self.columns = self.columns.min(fits.count()).max(1);
    }

    /// Shortens values until a row has room, and where that is not enough, leaves columns out.
    fn squeeze(&mut self, values: &[ArrayFormatter<'_>], row: usize, bytes: usize) {
        let sizes = |fit: Fit| -> Vec<usize> {
            let field = |formatter: &ArrayFormatter<'_>| {
                let mut text = String::new();
                push_value(&mut text, formatter, row, fit.value_chars);
                text.len().saturating_add(1)
            };
            values.iter().take(fit.columns).map(field).collect()
        };
        let is_too_long = |fit: Fit| sizes(fit).into_iter().fold(0, usize::saturating_add) > bytes;
        if !is_too_long(*self) {
            return;
        }
        // What every value may have, where all are as long.
        let share = bytes.checked_div(self.columns).unwrap_or(bytes);
        let mut chars = self.value_chars.unwrap_or(share).min(share).max(VALUE_CHARS_MIN);
        loop {
            self.value_chars = Some(chars);
            if chars <= VALUE_CHARS_MIN || !is_too_long(*self) {
                break;
            }
            chars = (chars / 2).max(VALUE_CHARS_MIN);
        }
        let sizes = sizes(*self);
        self.narrow(sizes.into_iter(), bytes);
    }
}

impl Page {
    /// Writes the line with the names of the columns that have room.
    fn headed(mut self, fields: &Fields, fit: Fit) -> Page {
        for (place, field) in fields.iter().take(fit.columns).enumerate() {
            if place > 0 {
                self.header.push(',');
            }
            push_field(&mut self.header, field.name());
        }
        self.header.push('\n');
        self.columns_left_out = fields.len().saturating_sub(fit.columns);
        self
    }

    /// Adds a row, if there is room for it. The first one has room, however little that is.
    fn add(&mut self, values: &[ArrayFormatter<'_>], row: usize, fit: Fit, bytes: usize) -> bool {
        let before = self.text.len();
        for (place, formatter) in values.iter().take(fit.columns).enumerate() {
            if place > 0 {
                self.text.push(',');
            }
            push_value(&mut self.text, formatter, row, fit.value_chars);
        }
        self.text.push('\n');
        let fits = self.rows == 0 || self.text.len() <= bytes;
        if fits {
            self.rows = self.rows.saturating_add(1);
        } else {
            self.text.truncate(before);
        }
        fits
    }
}

/// The value of a column as a field, of at most so many characters.
fn push_value(line: &mut String, formatter: &ArrayFormatter<'_>, row: usize, chars_max: Option<usize>) {
    let mut value = String::new();
    // A string takes what is written to it.
    let _ = write!(value, "{}", formatter.value(row));
    if let Some(max) = chars_max {
        shorten(&mut value, max);
    }
    push_field(line, &value);
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
