//! What stands for tables in a build without the feature `parquet`: every table is refused.

use std::{convert::Infallible, fs::File, io::Write};

use crate::{Page, PageRequest, convert::Request, error::TableError};

/// Stands for a table, of which this build has none.
#[derive(Debug)]
pub struct Table(Infallible);

impl Table {
    /// Refuses the table.
    ///
    /// # Errors
    /// [`TableError::Unsupported`], always.
    pub fn parse(_frame: &[u8]) -> Result<Table, TableError> {
        Err(TableError::Unsupported)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        match self.0 {}
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        match self.0 {}
    }

    /// Writes the table as a Parquet file.
    ///
    /// # Errors
    /// None: there is no such table.
    pub fn write_parquet(&self, _out: impl Write + Send) -> Result<(), TableError> {
        match self.0 {}
    }
}

pub(crate) fn read(_file: File, _request: PageRequest) -> Result<Page, TableError> {
    Err(TableError::Unsupported)
}

pub(crate) fn work(_input: File, _request: &Request, _out: &mut impl Write) -> Result<(), TableError> {
    Err(TableError::Unsupported)
}
