//! Writer of rows to a Parquet file, several columns at the same time.

use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, SchemaRef};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, compute_leaves},
    },
    basic::Compression,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
};

use crate::{batches::batch_bytes, error::TableError, frame::GROUP_ROWS, reading::workers};

/// Writes rows of these columns as a file.
///
/// # Errors
/// `out` does not take them.
pub(crate) fn write(schema: &SchemaRef, batches: &[RecordBatch], out: impl Write + Send) -> Result<(), TableError> {
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by("Cellar".to_owned()).build();
    let writer = ArrowWriter::try_new(out, Arc::clone(schema), Some(properties))?;
    let (mut writer, columns) = writer.into_serialized_writer()?;
    for (number, rows) in groups(batches).iter().enumerate() {
        write_group(&mut writer, columns.create_column_writers(number)?, schema, rows)?;
    }
    writer.close()?;
    Ok(())
}

/// Splits the rows into groups, none of which is too large.
fn groups(batches: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
    let (mut groups, mut rows) = (Vec::<Vec<RecordBatch>>::new(), usize::MAX);
    for batch in batches {
        for from in (0..batch.num_rows()).step_by(GROUP_ROWS) {
            let slice = batch.slice(from, GROUP_ROWS.min(batch.num_rows().saturating_sub(from)));
            rows = rows.saturating_add(slice.num_rows());
            match groups.last_mut() {
                Some(group) if rows <= GROUP_ROWS => group.push(slice),
                _ => {
                    rows = slice.num_rows();
                    groups.push(vec![slice]);
                }
            }
        }
    }
    groups
}

/// Writes rows as one group. Each column is made by whichever thread is free; they stand in the file in their order.
fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    writers: Vec<ArrowColumnWriter>,
    schema: &SchemaRef,
    rows: &[RecordBatch],
) -> Result<(), TableError> {
    // A column of lists or structures is several in a file.
    let mut columns: Vec<Vec<ArrowColumnWriter>> = schema.fields().iter().map(|_| Vec::new()).collect();
    for (leaf, one) in writers.into_iter().enumerate() {
        columns.get_mut(writer.schema_descr().get_column_root_idx(leaf)).ok_or(TableError::Damaged)?.push(one);
    }
    let count = workers(rows.iter().map(batch_bytes).fold(0, usize::saturating_add), columns.len());
    let left = Mutex::new(columns.into_iter().enumerate());
    let work = || {
        let mut made = Vec::new();
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, writers)) = next else { return Ok(made) };
            let arrays = rows.iter().filter_map(|rows| rows.columns().get(place));
            made.push((place, column(schema.field(place), arrays, writers)?));
        }
    };
    let made: Vec<Result<Vec<_>, TableError>> = if count < 2 {
        vec![work()]
    } else {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(Err(TableError::Damaged))).collect()
        })
    };
    let mut made: Vec<_> = made.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    made.sort_unstable_by_key(|(place, _)| *place);
    let mut group = writer.next_row_group()?;
    for chunk in made.into_iter().flat_map(|(_, chunks)| chunks) {
        chunk.append_to_row_group(&mut group)?;
    }
    group.close()?;
    Ok(())
}

/// The chunks of a column.
fn column<'a>(
    field: &Field,
    arrays: impl Iterator<Item = &'a ArrayRef>,
    mut writers: Vec<ArrowColumnWriter>,
) -> Result<Vec<ArrowColumnChunk>, TableError> {
    for array in arrays {
        for (leaf, writer) in compute_leaves(field, array)?.iter().zip(&mut writers) {
            writer.write(leaf)?;
        }
    }
    Ok(writers.into_iter().map(ArrowColumnWriter::close).collect::<Result<_, _>>()?)
}
