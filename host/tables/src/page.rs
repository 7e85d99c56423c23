//! Pages of a stored table.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{error::TableError, rows};

/// Selection of rows.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// Number of rows to skip.
    pub skip: u64,
    /// Maximum number of rows.
    pub rows: u64,
    /// Maximum size of the text in bytes; further rows are left for the next page. Of a row that alone exceeds it, values are
    /// shortened, and the last columns left out.
    pub bytes: usize,
    /// Maximum number of characters of one value; `None` for all.
    pub value_chars: Option<usize>,
}

/// Some rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// A line with the names of the columns, ending in a newline.
    pub header: String,
    /// The rows as CSV.
    pub text: String,
    /// Number of rows in the text; 0 only behind the last one.
    pub rows: u64,
    /// Number of columns that the text has no place for, the last ones.
    pub columns_left_out: usize,
    /// True if values are shorter than was asked for, or columns are left out.
    pub is_squeezed: bool,
    /// Number of rows in the table.
    pub total: u64,
}

impl Page {
    /// Reads rows of a Parquet file.
    ///
    /// # Errors
    /// The file is not a Parquet file, or it is damaged.
    pub fn read(file: File, request: PageRequest) -> Result<Page, TableError> {
        // The library asserts what it expects of a file's metadata.
        catch_unwind(AssertUnwindSafe(|| rows::read(file, request))).unwrap_or(Err(TableError::Damaged))
    }
}
