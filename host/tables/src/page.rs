//! A kept table, read a page at a time.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{error::TableError, rows};

/// Which rows are wanted.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// Rows before the first.
    pub skip: u64,
    /// How many.
    pub rows: u64,
    /// Bytes of text that they may be; what is more is left for the next page.
    pub bytes: usize,
    /// Characters of one value that are shown; `None` for all.
    pub value_chars: Option<usize>,
}

/// Some rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// A line with the names of the columns, ending in a newline.
    pub header: String,
    /// The rows as CSV.
    pub text: String,
    /// How many rows are in the text; none when the first of them has more bytes than were allowed.
    pub rows: u64,
    /// How many rows the table has.
    pub total: u64,
}

impl Page {
    /// Reads rows out of a Parquet file.
    ///
    /// # Errors
    /// The file is none, or it is damaged.
    pub fn read(file: File, request: PageRequest) -> Result<Page, TableError> {
        // The library asserts what it expects of a file's metadata.
        catch_unwind(AssertUnwindSafe(|| rows::read(file, request))).unwrap_or(Err(TableError::Damaged))
    }
}
