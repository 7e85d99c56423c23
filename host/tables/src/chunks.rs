//! Column chunks of Parquet files: where rows are stored that were read from such files, their pages are copied instead of
//! encoded anew.
//!
//! [`Held`] reads each chunk of a column once, so that the stored bytes are those that were read, even if the file changes
//! meanwhile.

use std::{
    io::{BufWriter, Read},
    ops::Range,
    sync::{Arc, OnceLock},
};

use arrow_schema::Schema;
use bytes::{Buf, Bytes};
use parquet::{
    arrow::add_encoded_arrow_schema_to_metadata,
    column::writer::ColumnCloseResult,
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
        properties::WriterProperties,
        reader::{ChunkReader, Length},
        writer::SerializedFileWriter,
    },
    schema::types::{Type, TypePtr},
};

use crate::{
    error::TableError,
    reading::{ReadAt, Reading, Whole},
};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 18;
/// Approximate minimum number of rows of a row group, if there are several: each costs its readers something.
const GROUP_ROWS_MIN: u64 = 1 << 16;

/// A file of which selected column chunks are read once each, on first access, and held in memory.
#[derive(Clone, Debug)]
pub struct Held<F> {
    file: Whole<F>,
    /// Chunks in the order of the file, without overlaps.
    chunks: Arc<[(Range<u64>, OnceLock<Bytes>)]>,
}

impl<F: ReadAt> Held<F> {
    /// Holds the chunks of the columns that are `wanted`. Holds none if they have more than `bytes_max` bytes, or if they
    /// overlap according to the file.
    pub fn new(file: Whole<F>, metadata: &ParquetMetaData, wanted: &[usize], bytes_max: usize) -> Held<F> {
        let schema = metadata.file_metadata().schema_descr();
        let chunk = |(leaf, chunk): (usize, &ColumnChunkMetaData)| {
            let is_wanted = leaf < schema.num_columns() && wanted.contains(&schema.get_column_root_idx(leaf));
            is_wanted.then(|| place(chunk))
        };
        let chunks =
            metadata.row_groups().iter().flat_map(|group| group.columns().iter().enumerate().filter_map(chunk));
        let mut places = chunks.collect::<Option<Vec<_>>>().unwrap_or_default();
        places.sort_unstable_by_key(|place| place.start);
        let is_apart = places.is_sorted_by(|one, next| one.end <= next.start);
        let is_within = places.last().is_none_or(|last| last.end <= file.len());
        let bytes = places.iter().map(|place| place.end.saturating_sub(place.start)).fold(0, u64::saturating_add);
        if !is_apart || !is_within || usize::try_from(bytes).is_ok_and(|bytes| bytes > bytes_max) {
            places.clear();
        }
        Held { file, chunks: places.into_iter().map(|place| (place, OnceLock::new())).collect() }
    }

    /// Returns the held bytes from an offset to the end of its chunk, and reads the chunk if necessary; empty if the offset
    /// is in no chunk.
    fn from(&self, at: u64) -> Result<Bytes, ParquetError> {
        let behind = self.chunks.partition_point(|(place, _)| place.start <= at);
        let chunk = behind.checked_sub(1).and_then(|number| self.chunks.get(number));
        let Some((place, held)) = chunk.filter(|(place, _)| place.contains(&at)) else { return Ok(Bytes::new()) };
        let length = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let bytes = match held.get() {
            Some(bytes) => bytes,
            None => {
                let read = self.file.get_bytes(place.start, length(place.start, place.end))?;
                held.get_or_init(|| read)
            }
        };
        Ok(bytes.slice(length(place.start, at).min(bytes.len())..))
    }

    /// Returns a chunk, if it was read.
    fn read(&self, at: &Range<u64>) -> Option<Bytes> {
        let found = self.chunks.binary_search_by_key(&at.start, |(place, _)| place.start).ok()?;
        let (place, held) = self.chunks.get(found)?;
        held.get().filter(|_| place == at).cloned()
    }
}

impl<F: ReadAt> Length for Held<F> {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl<F: ReadAt> ChunkReader for Held<F> {
    type T = std::io::Chain<bytes::buf::Reader<Bytes>, Reading<F>>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let held = self.from(start)?;
        let rest = Reading { file: self.file.0.clone(), at: start.saturating_add(held.len() as u64) };
        Ok(held.reader().chain(rest))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let held = self.from(start)?;
        if length <= held.len() { Ok(held.slice(..length)) } else { self.file.get_bytes(start, length) }
    }
}

/// Returns the range of a chunk in its file. Returns `None` if the metadata is inconsistent.
fn place(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let end = start.checked_add(chunk.compressed_size())?;
    let place = u64::try_from(start).ok()?..u64::try_from(end).ok()?;
    (!place.is_empty() && chunk.data_page_offset() >= start).then_some(place)
}

/// Column chunks from which rows were read.
#[derive(Clone, Debug)]
pub struct Chunks {
    root: TypePtr,
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    rows: u64,
    /// Bytes of each chunk with its metadata, whose offsets start at 0.
    columns: Vec<(Bytes, ColumnChunkMetaData)>,
}

impl Chunks {
    /// Returns the chunks of a file whose rows were all read, for the columns of a table by name, in its order. Returns
    /// `None` if they cannot be stored as they are.
    pub fn of<F: ReadAt>(held: &Held<F>, metadata: &ParquetMetaData, names: &[&str]) -> Option<Chunks> {
        let file = metadata.file_metadata();
        let fields = file.schema_descr().root_schema().get_fields();
        let root = |name: &&str| {
            let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == *name).map(|(root, _)| root);
            // Of two columns of one name, nobody could tell which it was.
            found.next().filter(|_| found.next().is_none())
        };
        let roots: Vec<usize> = names.iter().map(root).collect::<Option<_>>()?;
        let leaves: Vec<usize> = roots
            .iter()
            .flat_map(|root| {
                (0..file.schema_descr().num_columns())
                    .filter(|leaf| file.schema_descr().get_column_root_idx(*leaf) == *root)
            })
            .collect();
        let chosen = roots.iter().filter_map(|root| fields.get(*root).cloned()).collect();
        let root = Type::group_type_builder(file.schema_descr().name()).with_fields(chosen).build().ok()?;
        let group = |group: &RowGroupMetaData| {
            let column = |leaf: &usize| {
                let said = group.columns().get(*leaf)?;
                let place = place(said)?;
                Some((held.read(&place)?, alone(said, i64::try_from(place.start).ok()?)?))
            };
            Some(Group {
                rows: u64::try_from(group.num_rows()).ok()?,
                columns: leaves.iter().map(column).collect::<Option<_>>()?,
            })
        };
        let groups = metadata.row_groups().iter().map(group).collect::<Option<_>>()?;
        Some(Chunks { root: Arc::new(root), groups })
    }

    /// Appends the chunks of another file. Returns `None` if the schemas differ.
    #[must_use]
    pub fn and(mut self, other: Chunks) -> Option<Chunks> {
        self.groups.extend(other.groups);
        (self.root == other.root).then_some(self)
    }

    /// Returns the size of the chunks in bytes.
    pub fn size_bytes(&self) -> usize {
        let columns = self.groups.iter().flat_map(|group| &group.columns);
        columns.map(|(bytes, _)| bytes.len()).fold(0, usize::saturating_add)
    }

    /// Returns true if the chunks hold exactly `rows` rows, in groups that are on average large enough to be worth storing
    /// as they are.
    pub(crate) fn are_of(&self, rows: usize) -> bool {
        let all = self.groups.iter().map(|group| group.rows).fold(0, u64::saturating_add);
        let groups = u64::try_from(self.groups.len()).unwrap_or(u64::MAX);
        all == rows as u64 && groups.saturating_sub(1).saturating_mul(GROUP_ROWS_MIN) <= all
    }

    /// Writes them as a file, whose columns are as the schema says.
    pub(crate) fn write_parquet(&self, schema: &Schema, out: impl std::io::Write + Send) -> Result<(), TableError> {
        let mut properties = WriterProperties::builder().set_created_by("Cellar".to_owned()).build();
        add_encoded_arrow_schema_to_metadata(schema, &mut properties);
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let mut writer = SerializedFileWriter::new(out, Arc::clone(&self.root), Arc::new(properties))?;
        for group in &self.groups {
            let mut out = writer.next_row_group()?;
            for (bytes, metadata) in &group.columns {
                let close = ColumnCloseResult {
                    bytes_written: bytes.len() as u64,
                    rows_written: group.rows,
                    metadata: metadata.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                out.append_column(bytes, close)?;
            }
            out.close()?;
        }
        // What closes it writes all that is left.
        writer.close()?;
        Ok(())
    }
}

/// Returns the metadata of a chunk relative to its start. Unverified metadata, such as the minimum, is dropped.
fn alone(said: &ColumnChunkMetaData, start: i64) -> Option<ColumnChunkMetaData> {
    let mut builder = ColumnChunkMetaData::builder(said.column_descr_ptr())
        .set_compression_codec(said.compression_codec())
        .set_encodings_mask(*said.encodings_mask())
        .set_num_values(said.num_values())
        .set_total_compressed_size(said.compressed_size())
        .set_total_uncompressed_size(said.uncompressed_size())
        .set_dictionary_page_offset(said.dictionary_page_offset().map(|_| 0))
        .set_data_page_offset(said.data_page_offset().checked_sub(start)?);
    if let Some(stats) = said.page_encoding_stats() {
        builder = builder.set_page_encoding_stats(stats.clone());
    }
    builder.build().ok()
}
