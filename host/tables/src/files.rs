//! Parquet and Feather files: conversion to and from the tables of guests.

use std::{
    fs::File,
    io::{BufReader, Read, Write},
};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::{
    CompressionType,
    reader::FileReader,
    writer::{FileWriter, IpcWriteOptions},
};
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::{
    ProjectionMask,
    arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
};
use serde_json::json;

use crate::{
    convert::{Compression, Direction, Format, Request},
    decode::{column, head},
    error::TableError,
    frame::{FILE_COLUMNS_MAX, Table},
    pandas, repeating,
};

/// Rows that are read at once.
const BATCH_ROWS: usize = 1 << 16;
/// Bytes of one column of a file that is read.
const COLUMN_BYTES_MAX: usize = 384 << 20;
/// Bytes of a table that is to become a file.
const TABLE_BYTES_MAX: u64 = 512 << 20;

/// Serves a request.
pub(crate) fn work(input: File, request: &Request, out: &mut (impl Write + Send)) -> Result<(), TableError> {
    match request.direction {
        Direction::Read => read(input, request, out),
        Direction::Write => write(input, request, out),
    }
}

/// Reads a file, and writes the guest's format: a head, then each column by itself. Each head is JSON after its length in
/// 32 bits.
fn read(file: File, request: &Request, out: &mut impl Write) -> Result<(), TableError> {
    let mut source = Source::open(file, request.format)?;
    let schema = source.schema();
    let wanted: Vec<usize> = match &request.columns {
        None => (0..schema.fields().len()).collect(),
        // As the file has them: the guest puts them in its order.
        Some(names) => {
            if let Some(missing) = names.iter().find(|name| schema.index_of(name).is_err()) {
                return Err(TableError::Missing(missing.clone()));
            }
            let is_wanted = |place: &usize| names.contains(schema.field(*place).name());
            (0..schema.fields().len()).filter(is_wanted).collect()
        }
    };
    if wanted.len() > FILE_COLUMNS_MAX {
        return Err(TableError::TooMany { what: "columns", count: wanted.len(), max: FILE_COLUMNS_MAX });
    }
    let said = |key: &str| schema.metadata().get(key);
    let (pandas, attrs) = (said(pandas::KEY), said(pandas::ATTRS_KEY));
    let count = wanted.len();
    out.write_all(&head(&json!({"columns": count, "rows": source.rows(), "pandas": pandas, "attrs": attrs}))?)?;
    for place in wanted {
        let field = schema.field(place);
        let (mut arrays, mut bytes) = (Vec::new(), 0_usize);
        source.column(place, |array| {
            bytes = bytes.saturating_add(array.get_array_memory_size());
            arrays.push(array);
            if bytes > COLUMN_BYTES_MAX { Err(TableError::TooLarge) } else { Ok(()) }
        })?;
        for buffer in column(field, arrays)? {
            out.write_all(&buffer)?;
        }
    }
    Ok(())
}

/// Reads the columns of a guest, and writes a file.
fn write(file: File, request: &Request, out: &mut (impl Write + Send)) -> Result<(), TableError> {
    let mut frame = Vec::new();
    file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut frame)?;
    if frame.len() as u64 > TABLE_BYTES_MAX {
        return Err(TableError::TooLarge);
    }
    let table = Table::parse_for_file(&frame)?;
    drop(frame);
    match request.format {
        Format::Parquet => table.write_compressed(&mut *out, request.compression),
        Format::Feather => write_feather(&mut *out, table.batch(), request.compression),
    }?;
    out.flush()?;
    Ok(())
}

/// Rows of one part of a Feather file, as other programs write them.
const FEATHER_ROWS: usize = 1 << 16;

fn write_feather(out: impl Write, batch: &RecordBatch, compression: Option<Compression>) -> Result<(), TableError> {
    let compression = match compression {
        None => None,
        Some(Compression::Lz4) => Some(CompressionType::LZ4_FRAME),
        Some(Compression::Zstd) => Some(CompressionType::ZSTD),
        Some(Compression::Snappy | Compression::Gzip) => return Err(TableError::Compression("a Feather file")),
    };
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    let mut writer = FileWriter::try_new_with_options(out, &batch.schema(), options)?;
    for from in (0..batch.num_rows()).step_by(FEATHER_ROWS) {
        writer.write(&batch.slice(from, FEATHER_ROWS.min(batch.num_rows().saturating_sub(from))))?;
    }
    writer.finish()?;
    Ok(())
}

/// A file that is read a column at a time.
enum Source {
    Parquet { file: File, schema: SchemaRef, metadata: ArrowReaderMetadata },
    Feather { file: File, schema: SchemaRef },
}

impl Source {
    fn open(file: File, format: Format) -> Result<Source, TableError> {
        Ok(match format {
            Format::Parquet => {
                let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
                Source::Parquet { file, schema: metadata.schema().clone(), metadata: repeating::metadata(&metadata) }
            }
            Format::Feather => {
                let schema = feather(&file, None)?.schema();
                Source::Feather { file, schema }
            }
        })
    }

    fn schema(&self) -> SchemaRef {
        match self {
            Source::Parquet { schema, .. } | Source::Feather { schema, .. } => schema.clone(),
        }
    }

    /// Returns the number of rows according to the file's metadata, if the metadata has it.
    fn rows(&self) -> Option<i64> {
        match self {
            Source::Parquet { metadata, .. } => Some(metadata.metadata().file_metadata().num_rows()),
            Source::Feather { .. } => None,
        }
    }

    /// Writes the values of a column, part by part.
    fn column(
        &mut self,
        place: usize,
        mut take: impl FnMut(ArrayRef) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let mut first = |batch: Result<RecordBatch, ArrowError>| {
            let batch = batch?;
            repeating::check(&batch)?;
            match batch.columns() {
                [column] => take(column.clone()),
                _ => Err(TableError::Damaged),
            }
        };
        match self {
            Source::Parquet { file, metadata, .. } => {
                let mask = ProjectionMask::roots(metadata.parquet_schema(), [place]);
                let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.try_clone()?, metadata.clone());
                let mut reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build()?;
                reader.try_for_each(&mut first)
            }
            Source::Feather { file, .. } => feather(file, Some(vec![place]))?.try_for_each(&mut first),
        }
    }
}

fn feather(file: &File, columns: Option<Vec<usize>>) -> Result<FileReader<BufReader<File>>, TableError> {
    Ok(FileReader::try_new(BufReader::new(file.try_clone()?), columns)?)
}
