//! Calls about files of tables, datasets and charts, as data.

use serde::{Deserialize, Serialize};

/// A format of files of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Feather, version 2.
    Feather,
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "these are names of algorithms")]
pub enum Compression {
    Snappy,
    Gzip,
    Zstd,
    Lz4,
}

/// Direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// From a file of the format to columns for a guest.
    Read,
    /// From a guest's columns to a file of the format.
    Write,
}

/// Conversion of one file into another. Paths are those of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversion {
    /// The file that is read.
    pub source: String,
    /// The file that is written.
    pub target: String,
    /// Direction of the conversion.
    pub direction: Direction,
    /// Format of the file that has no columns for guests.
    pub format: Format,
    /// Columns to read; all when absent.
    pub columns: Option<Vec<String>>,
    /// Compression of the file that is written.
    pub compression: Option<Compression>,
}

/// Drawing of a chart into a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawing {
    /// MIME type of the specification.
    pub mime_type: String,
    /// The specification, in JSON.
    pub specification: String,
    /// `image/png` or `image/svg+xml`.
    pub wanted: String,
    /// The file that is written, as a path of the guest.
    pub target: String,
}

/// A call of the interface `tables`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableCall {
    /// Converts a file.
    Convert(Conversion),
    /// Writes the columns of a version of a dataset to a file.
    Load {
        /// Live name of the dataset.
        name: String,
        /// Number of the version; the latest when absent.
        version: Option<u64>,
        /// The file that is written, as a path of the guest.
        target: String,
    },
    /// Lends the rows of a version of a dataset.
    Read {
        /// Live name of the dataset.
        name: String,
        /// Number of the version; the latest when absent.
        version: Option<u64>,
    },
    /// Lists datasets, or the versions of one.
    List {
        /// Live name of the dataset whose versions are listed.
        name: Option<String>,
    },
    /// Publishes the columns of a file as the next version of a dataset.
    Publish {
        /// Live name of the dataset.
        name: String,
        /// The file that is read, as a path of the guest.
        source: String,
        /// Names that the rows derive from.
        read: Vec<String>,
    },
    /// Draws a chart into a file.
    Draw(Drawing),
}

impl TableCall {
    /// Returns the name of the call in events and logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            TableCall::Convert(_) => "cellar.convert",
            TableCall::Load { .. } => "cellar.load",
            TableCall::Read { .. } => "cellar.read",
            TableCall::List { .. } => "cellar.list",
            TableCall::Publish { .. } => "cellar.publish",
            TableCall::Draw(_) => "cellar.draw",
        }
    }

    /// Returns the bytes of the texts of the call.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            TableCall::Convert(Conversion { source, target, columns, .. }) => {
                let columns = columns.iter().flatten().map(String::len);
                columns.fold(source.len().saturating_add(target.len()), usize::saturating_add)
            }
            TableCall::Load { name, target, .. } => name.len().saturating_add(target.len()),
            TableCall::Read { name, .. } => name.len(),
            TableCall::List { name } => name.as_ref().map_or(0, String::len),
            TableCall::Publish { name, source, read } => {
                read.iter().map(String::len).fold(name.len().saturating_add(source.len()), usize::saturating_add)
            }
            TableCall::Draw(Drawing { mime_type, specification, wanted, target }) => {
                [mime_type, specification, wanted, target].map(String::len).into_iter().fold(0, usize::saturating_add)
            }
        }
    }
}

/// A version of a dataset that was loaded or published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedDataset {
    /// Live name of the dataset.
    pub name: String,
    /// Number of the version, from 1.
    pub version: u64,
    /// Id of the artifact with its rows.
    pub artifact: String,
    /// Number of rows.
    pub rows: u64,
}
