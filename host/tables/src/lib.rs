//! Tables that cells display: taken from a guest as buffers of columns, checked, kept as Parquet, read back a page at a
//! time. It knows nothing of sessions or of guests, and believes nothing that it is given. Read [`Table`] first.

mod categories;
mod column;
mod error;
mod frame;
mod page;
mod pandas;
#[cfg(test)]
mod tests;

pub use error::TableError;
pub use frame::{COLUMNS_MAX, NAME_BYTES_MAX, Table};
pub use page::{Page, PageRequest};

/// The MIME type under which a guest hands over a table, in the form that [`Table::parse`] reads.
pub const FRAME_TYPE: &str = "application/vnd.cellar.table";
/// What a kept table is.
pub const PARQUET_TYPE: &str = "application/vnd.apache.parquet";
