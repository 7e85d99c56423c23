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

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnWriter, compute_leaves},
    },
    basic::{Compression, GzipLevel, ZstdLevel},
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
};
use serde::Deserialize;

use crate::{categories, column, column::Kind, convert, error::TableError, pandas};

/// Columns that a table may have: each takes memory of its own while the file is written.
pub const COLUMNS_MAX: usize = 2_000;
/// Bytes of a column's name, of its type and of its time zone.
pub const NAME_BYTES_MAX: usize = 1 << 10;
/// Rows that a reader can take by themselves.
pub(crate) const GROUP_ROWS: usize = 1 << 20;
/// Bytes of the head: room for all columns with names of a common length.
const HEAD_BYTES_MAX: usize = 4 << 20;

/// The key in a column's metadata that says that its texts are JSON.
pub const JSON_KEY: &str = "cellar.json";

/// What is said of the table before its buffers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) rows: u32,
    pub(crate) index: Index,
    /// What the columns' names are together.
    #[serde(default)]
    pub(crate) label: Option<String>,
    /// Whether the columns' names are numbers in the guest.
    #[serde(default)]
    pub(crate) numbered: bool,
    pub(crate) columns: Vec<Column>,
}

/// What names the rows.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Index {
    /// Numbers in even steps, which are in no column.
    Range { name: Option<String>, start: i64, stop: i64, step: i64 },
    /// The first columns, by the names that they have in the guest.
    Columns { names: Vec<Option<String>> },
}

/// What is said of a column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The guest's own word for its type.
    pub(crate) dtype: String,
    /// Whether a buffer comes first that has a byte for each row, 0 where there is no value.
    #[serde(default)]
    pub(crate) nullable: bool,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
}

/// What is left of the bytes.
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
    /// What pandas wants to know of the table's file.
    metadata: String,
}

impl Table {
    /// Reads a table out of what a guest handed over.
    ///
    /// # Errors
    /// Anything that is not as it should be, and where.
    pub fn parse(frame: &[u8]) -> Result<Table, TableError> {
        let mut rest = Rest(frame);
        let length = rest.take(4, || "the length of its head".to_owned())?;
        let length = length.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
        let count = usize::try_from(length).unwrap_or(usize::MAX);
        let head = rest.take(length.into(), || "its head".to_owned())?;
        if count > HEAD_BYTES_MAX {
            return Err(TableError::TooMany { what: "bytes in its head", count, max: HEAD_BYTES_MAX });
        }
        let head: Head = serde_json::from_slice(head).map_err(TableError::Head)?;
        head.check()?;
        let mut fields = Vec::with_capacity(head.columns.len());
        let mut arrays = Vec::with_capacity(head.columns.len());
        for column in &head.columns {
            let array = column::array(column, head.rows, &mut rest)?;
            let is_ordered = matches!(column.kind, Kind::Category { ordered: true, .. });
            let mut field = Field::new(&column.name, array.data_type().clone(), true);
            if matches!(column.kind, Kind::Json { .. }) {
                field = field.with_metadata(HashMap::from([(JSON_KEY.to_owned(), "1".to_owned())]));
            }
            fields.push(field.with_dict_is_ordered(is_ordered));
            arrays.push(array);
        }
        if !rest.0.is_empty() {
            return Err(TableError::Surplus(rest.0.len()));
        }
        // Readers look for it in the schema that is kept in the file, others in the file itself.
        let metadata = pandas::metadata(&head);
        let schema = Schema::new_with_metadata(fields, HashMap::from([(pandas::KEY.to_owned(), metadata.clone())]));
        let batch = RecordBatch::try_new(Arc::new(schema), arrays)?;
        Ok(Table { batch, metadata })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// How many columns there are, with those that name the rows.
    pub fn columns(&self) -> usize {
        self.batch.num_columns()
    }

    /// Writes the table as a Parquet file. One table makes the same bytes wherever and whenever it is written.
    ///
    /// # Errors
    /// `out` does not take them.
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
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by("Cellar".to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new(pandas::KEY.to_owned(), self.metadata.clone())]))
            .build();
        let writer = ArrowWriter::try_new(out, self.batch.schema(), Some(properties))?;
        let (mut writer, columns) = writer.into_serialized_writer()?;
        for (group, from) in (0..self.rows()).step_by(GROUP_ROWS).enumerate() {
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
    let arrays = rows.columns().iter().zip(fields.fields());
    for (((array, field), mut column), descriptor) in arrays.zip(columns).zip(descriptors) {
        if let Some(parts) = categories::parts(array) {
            let (bytes, close) = categories::chunk(descriptor, parts)?;
            group.append_column(&bytes, close)?;
        } else {
            for leaf in compute_leaves(field, array)? {
                column.write(&leaf)?;
            }
            column.close()?.append_to_row_group(&mut group)?;
        }
    }
    group.close()?;
    Ok(())
}

impl Head {
    fn check(&self) -> Result<(), TableError> {
        let count = self.columns.len();
        if count > COLUMNS_MAX {
            return Err(TableError::TooMany { what: "columns", count, max: COLUMNS_MAX });
        }
        if count == 0 {
            return Err(TableError::Empty);
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
