//! Errors of tables.

#[cfg(feature = "parquet")]
use arrow_schema::ArrowError;
#[cfg(feature = "parquet")]
use parquet::errors::ParquetError;

/// Error in a table, or in its file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum TableError {
    /// The table is shorter than its head declares.
    #[error("the table ends within {what}: {wanted} bytes are needed, {found} are left")]
    Cut { what: String, wanted: u64, found: usize },
    /// The table is longer than its head declares.
    #[error("the table has {0} bytes behind its last column")]
    Surplus(usize),
    /// A buffer for a guest that has not the length that its type and its rows ask for.
    #[error("a column would be handed over in a buffer of {found} bytes, where its values need {wanted}")]
    Length { wanted: usize, found: usize },
    /// More of something than a table may have.
    #[error("the table has {count} {what}, at most {max} are kept")]
    TooMany { what: &'static str, count: usize, max: usize },
    /// The head is invalid.
    #[error("the head of the table cannot be read")]
    Head(#[source] serde_json::Error),
    /// Two columns have one name.
    #[error("the table has two columns named `{0}`")]
    Twice(String),
    /// The buffers of a column do not match its type.
    #[error("column `{column}` {reason}")]
    Column { column: String, reason: &'static str },
    #[cfg(feature = "parquet")]
    /// A column's buffers are refused by the library that makes a file of them.
    #[error("column `{column}` is not what it claims to be")]
    Values {
        column: String,
        #[source]
        source: ArrowError,
    },
    #[cfg(feature = "parquet")]
    /// The file cannot be written or read.
    #[error("the table's file cannot be written or read")]
    Parquet(#[from] ParquetError),
    /// The metadata of the file is inconsistent.
    #[error("the table's file is damaged")]
    Damaged,
    #[cfg(feature = "parquet")]
    /// Columns cannot be put together, or rows cannot be read.
    #[error("the table's rows cannot be read")]
    Rows(#[from] ArrowError),
    /// A file cannot be read, or the output cannot be written.
    #[error("a file cannot be read or written")]
    Io(#[from] std::io::Error),
    /// Such a column is not in the file.
    #[error("it has no column `{0}`")]
    Missing(String),
    /// More than is taken at once.
    #[error("it is too large to be read or written at once: take fewer columns or rows")]
    TooLarge,
    /// Values that no guest has a type for.
    #[error("guests have no type for values of `{0}`: cast them where they come from")]
    Kind(String),
    /// Lists and structures in each other.
    #[error("its values lie too deep in each other")]
    TooDeep,
    /// The format knows other compressions.
    #[error("{0} cannot be compressed so: `lz4`, `zstd` and no compression are known")]
    Compression(&'static str),
    /// The process that works on the file reported an error.
    #[error("{0}")]
    Refused(String),
    /// The process was killed: it exceeded its time or memory.
    #[error("it takes more time or memory than it may")]
    Bounds,
    /// Files are worked on in processes of their own alone.
    #[error("this host starts no processes, in which alone files of tables are read and written")]
    NoProcess,
    /// Tables are not part of this build.
    #[error("this build keeps no tables")]
    Unsupported,
}
