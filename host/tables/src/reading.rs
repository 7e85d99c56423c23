//! Columns of a Parquet file, read side by side.

use std::{
    cmp::Reverse,
    fs::File,
    io::{self, Read},
    num::NonZero,
    os::unix::fs::FileExt,
    sync::Arc,
    thread,
};

use arrow_array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    errors::ParquetError,
    file::reader::{ChunkReader, Length},
};

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum number of threads that read columns concurrently, and minimum size of the columns for that.
const WORKERS_MAX: usize = 4;
const SHARED_BYTES_MIN: usize = 4 << 20;

/// Random access to bytes, by several readers at a time.
pub trait ReadAt: Clone + Send + Sync {
    /// Reads bytes from an offset, as [`Read::read`] does.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Returns the number of bytes.
    fn size(&self) -> u64;
}

impl ReadAt for Arc<File> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(&**self, buffer, at)
    }

    fn size(&self) -> u64 {
        self.metadata().map_or(0, |found| found.len())
    }
}

/// A file from a place in it on.
#[derive(Debug)]
pub struct Reading<F> {
    /// The file.
    pub file: F,
    /// The place.
    pub at: u64,
}

impl<F: ReadAt> Read for Reading<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at = self.at.saturating_add(length as u64);
        Ok(length)
    }
}

/// A file that Parquet is read of.
#[derive(Clone, Debug)]
pub struct Whole<F>(pub F);

impl<F: ReadAt> Length for Whole<F> {
    fn len(&self) -> u64 {
        self.0.size()
    }
}

impl<F: ReadAt> ChunkReader for Whole<F> {
    type T = io::BufReader<Reading<F>>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(io::BufReader::new(Reading { file: self.0.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // A damaged file may say any length.
        let left = self.len().saturating_sub(start);
        if length as u64 > left {
            return Err(ParquetError::EOF(format!("{length} bytes are said to be where {left} are")));
        }
        let mut reading = Reading { file: self.0.clone(), at: start };
        // Memory that is asked for in one piece and empty is new each time, which costs more than to read into it.
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let from = bytes.len();
            bytes.resize(from.saturating_add(PIECE_BYTES).min(length), 0);
            reading.read_exact(&mut bytes[from..])?;
        }
        Ok(bytes.into())
    }
}

/// Reads the metadata of a file, including the encoding of each page.
///
/// # Errors
/// The file is not a Parquet file, or it is damaged.
pub fn metadata(file: &impl ChunkReader) -> Result<ArrowReaderMetadata, ParquetError> {
    ArrowReaderMetadata::load(file, ArrowReaderOptions::new().with_encoding_stats_as_mask(false))
}

/// Returns the number of threads for columns of this total size.
pub(crate) fn workers(bytes: usize, columns: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    if bytes < SHARED_BYTES_MIN { 1 } else { cores.min(WORKERS_MAX).min(columns) }
}

/// Distributes the columns of a large file among concurrent readers, with about the same amount for each; empty for a small
/// file.
pub fn shares(metadata: &ArrowReaderMetadata, wanted: &[usize]) -> Vec<Vec<usize>> {
    let schema = metadata.parquet_schema();
    let groups = metadata.metadata().row_groups().iter();
    let chunks = groups.flat_map(|group| group.columns().iter().enumerate().take(schema.num_columns()));
    let mut sizes: Vec<(i64, usize)> = wanted.iter().map(|place| (0, *place)).collect();
    for (leaf, chunk) in chunks {
        let root = schema.get_column_root_idx(leaf);
        let size = sizes.iter_mut().find(|(_, place)| *place == root);
        size.into_iter().for_each(|(size, _)| *size = size.saturating_add(chunk.uncompressed_size()));
    }
    sizes.sort_unstable_by_key(|(size, place)| (Reverse(*size), *place));
    let total = sizes.iter().map(|(size, _)| *size).fold(0, i64::saturating_add);
    let count = workers(usize::try_from(total).unwrap_or_default(), wanted.len());
    if count < 2 {
        return Vec::new();
    }
    let mut shares = vec![(0_i64, Vec::new()); count];
    for (size, place) in sizes {
        if let Some((taken, share)) = shares.iter_mut().min_by_key(|(taken, _)| *taken) {
            *taken = taken.saturating_add(size);
            share.push(place);
        }
    }
    let sorted = |(_, mut share): (i64, Vec<usize>)| {
        share.sort_unstable();
        share
    };
    shares.into_iter().map(sorted).collect()
}

/// Reads each share of the columns in a thread of its own. Returns the batches, each with all wanted columns. The batches
/// of all shares must have the same rows.
///
/// # Errors
/// The error of the first share that fails; `damaged` if the shares do not match.
pub fn side_by_side<E: Send>(
    shares: &[Vec<usize>],
    wanted: &[usize],
    read: impl Fn(&[usize]) -> Result<Vec<RecordBatch>, E> + Sync,
    damaged: impl Fn() -> E,
) -> Result<Vec<(Vec<ArrayRef>, usize)>, E> {
    let parts: Vec<_> = thread::scope(|scope| {
        let read = &read;
        let readers: Vec<_> = shares.iter().map(|columns| scope.spawn(move || read(columns))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or_else(|_| Err(damaged()))).collect()
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let whole = |number: usize| {
        let column = |place: &usize| {
            let share = shares.iter().position(|share| share.contains(place))?;
            let within = shares.get(share)?.iter().position(|known| known == place)?;
            parts.get(share)?.get(number)?.columns().get(within).cloned()
        };
        let rows = parts.first()?.get(number)?.num_rows();
        Some((wanted.iter().map(column).collect::<Option<Vec<_>>>()?, rows))
    };
    let count = parts.iter().map(Vec::len).max().unwrap_or_default();
    (0..count).map(|number| whole(number).ok_or_else(&damaged)).collect()
}
