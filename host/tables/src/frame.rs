//! A table as a guest hands it over.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the head, little-endian |
//! | | head, in JSON: [`Head`] |
//! | | the buffers of each column in turn, as `column` reads them; nothing between them and nothing behind |
//!
//! The head says nothing that could be told from somewhere else, so there is little that it can lie about: offsets and
//! lengths follow from the number of rows and from the types.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    sync::Arc,
};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{
    Field, Schema,
    extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY},
};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnWriter, compute_leaves},
    },
    basic::{Compression, GzipLevel, ZstdLevel},
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{categories, column, column::Kind, convert, error::TableError, pandas};

/// Columns that a table may have: each takes memory of its own while the file is written.
pub const COLUMNS_MAX: usize = 2_000;
/// Columns of a table that a process of its own makes a file of, or reads of one.
pub(crate) const FILE_COLUMNS_MAX: usize = 20_000;
/// Bytes of a column's name, of its type and of its time zone.
pub const NAME_BYTES_MAX: usize = 1 << 10;
/// Rows that a reader can take by themselves.
pub(crate) const GROUP_ROWS: usize = 1 << 20;
/// Bytes of the head: room for all columns with names of a common length.
const HEAD_BYTES_MAX: usize = 4 << 20;
const FILE_HEAD_BYTES_MAX: usize = 32 << 20;

/// The key in a column's metadata that says that its texts are JSON.
pub const JSON_KEY: &str = "cellar.json";
/// Key in a column's metadata with the Python type of its lists in the guest.
pub(crate) const CONTAINER_KEY: &str = "cellar.container";
/// The names of types that a column may have besides the type of its values, and what that is called.
pub(crate) const UUID: &str = "arrow.uuid";
pub(crate) const PERIOD: &str = "pandas.period";
pub(crate) const INTERVAL: &str = "pandas.interval";

/// Head of a table, which precedes its buffers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) rows: u32,
    pub(crate) index: Index,
    /// The names of the columns, level by level; one level of texts where it says nothing.
    #[serde(default)]
    pub(crate) labels: Vec<Label>,
    /// Notes of the guest on labels that pandas metadata cannot describe.
    #[serde(default)]
    pub(crate) more: Value,
    /// `DataFrame.attrs`, in JSON.
    #[serde(default)]
    pub(crate) attrs: Option<String>,
    pub(crate) columns: Vec<Column>,
}

/// One level of the columns' names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Label {
    pub(crate) name: Option<String>,
    pub(crate) pandas_type: String,
    pub(crate) numpy_type: String,
    #[serde(default)]
    pub(crate) metadata: Value,
}

/// Index of the rows.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Index {
    /// Numbers in even steps, which are stored in no column.
    Range { name: Option<String>, start: i64, stop: i64, step: i64 },
    /// The first columns, by the names that they have in the guest.
    Columns { names: Vec<Option<String>> },
}

/// Head of a column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Name of the type in the guest.
    pub(crate) dtype: String,
    /// True if the first buffer has one byte for each row, 0 where the value is missing.
    #[serde(default)]
    pub(crate) nullable: bool,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    /// Extension type in pandas, in addition to the type of the values.
    #[serde(default)]
    pub(crate) extension: Option<Extension>,
    /// Python type of the lists: `list`, `tuple`, `set` or `frozenset`.
    #[serde(default)]
    pub(crate) container: Option<String>,
}

/// A type of pandas for values of another type.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extension {
    pub(crate) name: ExtensionName,
    /// In JSON.
    pub(crate) metadata: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum ExtensionName {
    #[serde(rename = "pandas.period")]
    Period,
    #[serde(rename = "pandas.interval")]
    Interval,
}

/// Remaining bytes.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    pub(crate) fn take(&mut self, count: u64, what: impl FnOnce() -> String) -> Result<&'a [u8], TableError> {
        let taken = usize::try_from(count).ok().and_then(|count| self.0.split_at_checked(count));
        let (taken, rest) =
            taken.ok_or_else(|| TableError::Cut { what: what(), wanted: count, found: self.0.len() })?;
        self.0 = rest;
        Ok(taken)
    }
}

/// A table whose every value was checked.
#[derive(Clone, Debug)]
pub struct Table {
    batch: RecordBatch,
    /// Metadata of the file, by key.
    metadata: HashMap<String, String>,
}

/// Limits of a table.
#[derive(Clone, Copy)]
struct Bounds {
    columns: usize,
    head_bytes: usize,
}

impl Table {
    /// Parses a table that a guest handed over.
    ///
    /// # Errors
    /// The description and the position of the first violation.
    pub fn parse(frame: &[u8]) -> Result<Table, TableError> {
        Table::parse_within(frame, Bounds { columns: COLUMNS_MAX, head_bytes: HEAD_BYTES_MAX })
    }

    /// Reads a table that becomes a file in a process of its own, where it may have more columns.
    pub(crate) fn parse_for_file(frame: &[u8]) -> Result<Table, TableError> {
        Table::parse_within(frame, Bounds { columns: FILE_COLUMNS_MAX, head_bytes: FILE_HEAD_BYTES_MAX })
    }

    fn parse_within(frame: &[u8], bounds: Bounds) -> Result<Table, TableError> {
        let mut rest = Rest(frame);
        let length = rest.take(4, || "the length of its head".to_owned())?;
        let length = length.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
        let count = usize::try_from(length).unwrap_or(usize::MAX);
        let head = rest.take(length.into(), || "its head".to_owned())?;
        if count > bounds.head_bytes {
            return Err(TableError::TooMany { what: "bytes in its head", count, max: bounds.head_bytes });
        }
        let head: Head = serde_json::from_slice(head).map_err(TableError::Head)?;
        head.check(bounds.columns)?;
        let mut fields = Vec::with_capacity(head.columns.len());
        let mut arrays = Vec::with_capacity(head.columns.len());
        for column in &head.columns {
            let array = column::array(column, head.rows, &mut rest)?;
            let is_ordered = matches!(column.kind, Kind::Category { ordered: true, .. });
            let field = Field::new(&column.name, array.data_type().clone(), true).with_metadata(column.metadata());
            fields.push(field.with_dict_is_ordered(is_ordered));
            arrays.push(array);
        }
        if !rest.0.is_empty() {
            return Err(TableError::Surplus(rest.0.len()));
        }
        // Readers look for it in the schema that is kept in the file, others in the file itself.
        let mut metadata = HashMap::from([(pandas::KEY.to_owned(), pandas::metadata(&head))]);
        metadata.extend(head.attrs.map(|attrs| (pandas::ATTRS_KEY.to_owned(), attrs)));
        let schema = Schema::new_with_metadata(fields, metadata.clone());
        let rows = RecordBatchOptions::new().with_row_count(usize::try_from(head.rows).ok());
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), arrays, &rows)?;
        Ok(Table { batch, metadata })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns the number of columns, including those of the index.
    pub fn columns(&self) -> usize {
        self.batch.num_columns()
    }

    /// Writes the table as a Parquet file. The bytes are deterministic: they depend on the table only.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_parquet(&self, out: impl Write + Send) -> Result<(), TableError> {
        self.write_compressed(out, Some(convert::Compression::Snappy))
    }

    /// Writes the table as a Parquet file that is compressed so.
    pub(crate) fn write_compressed(
        &self,
        out: impl Write + Send,
        compression: Option<convert::Compression>,
    ) -> Result<(), TableError> {
        let compression = match compression {
            None => Compression::UNCOMPRESSED,
            Some(convert::Compression::Snappy) => Compression::SNAPPY,
            Some(convert::Compression::Gzip) => Compression::GZIP(GzipLevel::default()),
            Some(convert::Compression::Zstd) => Compression::ZSTD(ZstdLevel::default()),
            Some(convert::Compression::Lz4) => Compression::LZ4_RAW,
        };
        let mut said: Vec<_> =
            self.metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        said.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by("Cellar".to_owned())
            .set_key_value_metadata(Some(said))
            .build();
        let writer = ArrowWriter::try_new(out, self.batch.schema(), Some(properties))?;
        let (mut writer, columns) = writer.into_serialized_writer()?;
        // Rows without columns are in no file; what is said of the table has their number.
        let count = if self.columns() == 0 { 0 } else { self.rows() };
        for (group, from) in (0..count).step_by(GROUP_ROWS).enumerate() {
            let rows = self.batch.slice(from, GROUP_ROWS.min(self.rows().saturating_sub(from)));
            write_group(&mut writer, columns.create_column_writers(group)?, &rows)?;
        }
        writer.close()?;
        Ok(())
    }

    /// The rows.
    pub(crate) fn batch(&self) -> &RecordBatch {
        &self.batch
    }
}

/// Writes rows as one group: column by column.
fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: Vec<ArrowColumnWriter>,
    rows: &RecordBatch,
) -> Result<(), TableError> {
    let descriptors = writer.schema_descr().columns().to_vec();
    let mut group = writer.next_row_group()?;
    let fields = rows.schema();
    // A column of structures is several in a file.
    let mut leaves = columns.into_iter().zip(descriptors);
    for (array, field) in rows.columns().iter().zip(fields.fields()) {
        if let Some(parts) = categories::parts(array) {
            let (_, descriptor) = leaves.next().ok_or(TableError::Damaged)?;
            let (bytes, close) = categories::chunk(descriptor, parts)?;
            group.append_column(&bytes, close)?;
            continue;
        }
        for leaf in compute_leaves(field, array)? {
            let (mut column, _) = leaves.next().ok_or(TableError::Damaged)?;
            column.write(&leaf)?;
            column.close()?.append_to_row_group(&mut group)?;
        }
    }
    group.close()?;
    Ok(())
}

impl Head {
    fn check(&self, columns_max: usize) -> Result<(), TableError> {
        let count = self.columns.len();
        if count > columns_max {
            return Err(TableError::TooMany { what: "columns", count, max: columns_max });
        }
        if let Index::Columns { names } = &self.index
            && names.len() > count
        {
            return Err(TableError::TooMany { what: "columns for its rows' names", count: names.len(), max: count });
        }
        let mut names = HashSet::new();
        for column in &self.columns {
            for (what, text) in [("bytes in a column's name", &column.name), ("bytes in a type's name", &column.dtype)]
            {
                if text.len() > NAME_BYTES_MAX {
                    return Err(TableError::TooMany { what, count: text.len(), max: NAME_BYTES_MAX });
                }
            }
            if !names.insert(column.name.as_str()) {
                return Err(TableError::Twice(column.name.clone()));
            }
        }
        Ok(())
    }
}

impl Column {
    /// Returns the metadata of the column in the file.
    fn metadata(&self) -> HashMap<String, String> {
        let mut said = Vec::new();
        match (&self.kind, &self.extension) {
            (Kind::Json { .. }, _) => said.push((JSON_KEY, "1")),
            (Kind::Uuid, _) => said.extend([(EXTENSION_TYPE_NAME_KEY, UUID), (EXTENSION_TYPE_METADATA_KEY, "")]),
            (_, Some(Extension { name, metadata })) => {
                let name = match name {
                    ExtensionName::Period => PERIOD,
                    ExtensionName::Interval => INTERVAL,
                };
                said.extend([(EXTENSION_TYPE_NAME_KEY, name), (EXTENSION_TYPE_METADATA_KEY, metadata)]);
            }
            _ => {}
        }
        said.extend(self.container.iter().map(|container| (CONTAINER_KEY, container.as_str())));
        said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}
