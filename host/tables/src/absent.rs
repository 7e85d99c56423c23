//! Stubs for a build without the feature `parquet`: every table is refused.

use std::{convert::Infallible, fs::File, io::Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Page, PageRequest, convert::Request, error::TableError};

/// Stub of a table; this build has none.
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

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match self.0 {}
    }

    /// Returns the number of columns.
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

/// Stub of columns for a guest, of which there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {}

/// Nothing: no columns are made here.
impl From<Vec<u8>> for Columns {
    fn from(_: Vec<u8>) -> Columns {
        Columns {}
    }
}

impl Columns {
    /// Returns the number of remaining bytes.
    pub fn len(&self) -> usize {
        0
    }

    /// Returns true if all bytes were taken.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// Takes nothing.
    pub fn take(&mut self, _length: usize) -> Vec<u8> {
        Vec::new()
    }
}

/// Stub of a source's rows; this build has none.
#[derive(Clone, Debug)]
pub struct Batches(Infallible);

impl Batches {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match self.0 {}
    }

    /// The columns.
    pub fn columns(&self) -> Vec<(String, String)> {
        match self.0 {}
    }

    /// Some rows.
    ///
    /// # Errors
    /// None: there are no such rows.
    pub fn sample(&self, _count: usize) -> Result<(Value, Value), TableError> {
        match self.0 {}
    }

    /// The columns as a guest takes them.
    ///
    /// # Errors
    /// None: there are no such rows.
    pub fn to_columns(&self) -> Result<Columns, TableError> {
        match self.0 {}
    }

    /// Writes the rows as a Parquet file.
    ///
    /// # Errors
    /// None: there are no such rows.
    pub fn write_parquet(&self, _out: impl Write + Send) -> Result<(), TableError> {
        match self.0 {}
    }

    /// Refuses the file.
    ///
    /// # Errors
    /// [`TableError::Unsupported`], always.
    pub fn read_parquet(_file: File) -> Result<Batches, TableError> {
        Err(TableError::Unsupported)
    }
}

/// Refuses the file.
///
/// # Errors
/// [`TableError::Unsupported`], always.
pub fn shape(_file: File) -> Result<crate::Shape, TableError> {
    Err(TableError::Unsupported)
}

pub(crate) fn read(_file: File, _request: PageRequest) -> Result<Page, TableError> {
    Err(TableError::Unsupported)
}

pub(crate) fn work(_input: File, _request: &Request, _out: &mut impl Write) -> Result<(), TableError> {
    Err(TableError::Unsupported)
}
