//! Tables that cells display: received from a guest as buffers of columns, checked, stored as Parquet, read back a page at
//! a time. Also tables that cells read and write themselves, as Parquet or Feather: [`convert`] does that in a separate
//! process. This crate does not depend on sessions or guests, and trusts none of its input. Read [`Table`] first.

// Guests and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(not(feature = "parquet"))]
mod absent;
#[cfg(feature = "parquet")]
mod batches;
#[cfg(feature = "parquet")]
mod categories;
#[cfg(feature = "parquet")]
pub mod chunks;
#[cfg(feature = "parquet")]
mod column;
#[cfg(feature = "parquet")]
mod columns;
pub mod convert;
#[cfg(feature = "parquet")]
mod decode;
#[cfg(feature = "parquet")]
mod encoded;
mod error;
#[cfg(feature = "parquet")]
mod files;
#[cfg(feature = "parquet")]
mod frame;
#[cfg(feature = "parquet")]
mod nested;
mod page;
#[cfg(feature = "parquet")]
mod pandas;
#[cfg(feature = "parquet")]
pub mod reading;
#[cfg(feature = "parquet")]
pub mod repeating;
#[cfg(feature = "parquet")]
mod rows;
#[cfg(feature = "parquet")]
mod shown;
#[cfg(test)]
#[cfg(feature = "parquet")]
mod tests;
#[cfg(feature = "parquet")]
mod writing;

#[cfg(not(feature = "parquet"))]
use absent as files;
#[cfg(not(feature = "parquet"))]
use absent as rows;
#[cfg(not(feature = "parquet"))]
pub use absent::{Batches, Columns, Table, shape};
#[cfg(feature = "parquet")]
pub use batches::{Batches, batch_bytes, shape};
#[cfg(feature = "parquet")]
pub use columns::Columns;
pub use error::TableError;
#[cfg(feature = "parquet")]
pub use frame::{COLUMNS_MAX, JSON_KEY, NAME_BYTES_MAX, Table};
pub use page::{Page, PageRequest};

/// Shape of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows.
    pub rows: u64,
    /// Columns, each with its type in Arrow's notation.
    pub columns: Vec<(String, String)>,
}

/// The MIME type under which a guest hands over a table, in the form that [`Table::parse`] reads.
pub const FRAME_TYPE: &str = "application/vnd.cellar.table";
/// MIME type of a stored table.
pub const PARQUET_TYPE: &str = "application/vnd.apache.parquet";
