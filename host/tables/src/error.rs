//! Why a table is refused.

#[cfg(feature = "parquet")]
use arrow_schema::ArrowError;
#[cfg(feature = "parquet")]
use parquet::errors::ParquetError;

/// What is wrong with a table, or with the file it is in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum TableError {
    /// There is less than what its head tells of.
    #[error("the table ends within {what}: {wanted} bytes are needed, {found} are left")]
    Cut { what: String, wanted: u64, found: usize },
    /// There is more than what its head tells of.
    #[error("the table has {0} bytes behind its last column")]
    Surplus(usize),
    /// A buffer for a guest that has not the length that its type and its rows ask for.
    #[error("a column would be handed over in a buffer of {found} bytes, where its values need {wanted}")]
    Length { wanted: usize, found: usize },
    /// More of something than a table may have.
    #[error("the table has {count} {what}, at most {max} are kept")]
    TooMany { what: &'static str, count: usize, max: usize },
    /// Its head is not what it should be.
    #[error("the head of the table cannot be read")]
    Head(#[source] serde_json::Error),
    /// Two columns have one name.
    #[error("the table has two columns named `{0}`")]
    Twice(String),
    /// A column's buffers are not what its type asks for.
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
    /// The file says of itself what cannot be.
    #[error("the table's file is damaged")]
    Damaged,
    #[cfg(feature = "parquet")]
    /// Columns cannot be put together, or rows cannot be read.
    #[error("the table's rows cannot be read")]
    Rows(#[from] ArrowError),
    /// A file cannot be read, or nobody takes what is made of it.
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
    /// What the process says that works on a file.
    #[error("{0}")]
    Refused(String),
    /// The process was killed.
    #[error("it takes more time or memory than it may")]
    Bounds,
    /// Files are worked on in processes of their own alone.
    #[error("this host starts no processes, in which alone files of tables are read and written")]
    NoProcess,
    /// Tables are not part of this build.
    #[error("this build keeps no tables")]
    Unsupported,
}
