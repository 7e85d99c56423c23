//! Rows of a source in columns: on their way to a guest, and to the file that is kept of them.

use std::{fs::File, io::Write, sync::Arc};

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_cast::cast;
use arrow_ipc::{reader::StreamDecoder, writer::StreamWriter};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};
use serde_json::{Map, Value, json};

use crate::{
    Shape,
    chunks::Chunks,
    columns::Columns,
    decode::{column, head, value, word},
    error::TableError,
    frame::COLUMNS_MAX,
    reading::{Whole, metadata, shares, side_by_side},
    repeating, writing,
};

/// Rows that are read of a file at once.
const BATCH_ROWS: usize = 1 << 16;
/// Maximum size in bytes of one column for a guest, whose offsets have 32 bits.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;
/// Bytes of a piece of rows, about.
const PIECE_BYTES: usize = 1 << 20;
/// Characters of a text in a sample.
const SAMPLE_CHARS: usize = 200;
/// Columns of a sample.
const SAMPLE_COLUMNS: usize = 100;

/// Returns the size in bytes of a batch's rows. Other rows in the same buffers do not count.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    let sizes = batch.columns().iter().map(|column| {
        let whole = column.get_array_memory_size();
        column.to_data().get_slice_memory_size().unwrap_or(whole)
    });
    sizes.fold(0, usize::saturating_add)
}

/// Rows in columns, batch by batch.
#[derive(Clone, Debug)]
pub struct Batches {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows; each batch has the columns of the schema. Texts that repeat may be as [`repeating::kind`] has them.
    pub batches: Vec<RecordBatch>,
    /// Parquet chunks from which the rows were read, if they can be stored without encoding the rows anew.
    chunks: Option<Arc<Chunks>>,
}

impl Batches {
    /// Returns batches with these columns.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Batches {
        Batches { schema, batches, chunks: None }
    }

    /// Sets the chunks from which the rows were read.
    #[must_use]
    pub fn read_of(self, chunks: Option<Chunks>) -> Batches {
        Batches { chunks: chunks.map(Arc::new), ..self }
    }

    /// Replaces the arrays of the rows. The chunks from which the rows were read are retained only if the arrays are the
    /// same.
    #[must_use]
    pub fn replaced(self, schema: SchemaRef, batches: Vec<RecordBatch>) -> Batches {
        let is_same = |(one, other): (&RecordBatch, &RecordBatch)| {
            one.columns().len() == other.columns().len()
                && one.columns().iter().zip(other.columns()).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        let are_same = self.schema == schema
            && self.batches.len() == batches.len()
            && self.batches.iter().zip(&batches).all(is_same);
        Batches { schema, batches, chunks: self.chunks.filter(|_| are_same) }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).fold(0, usize::saturating_add)
    }

    /// Returns the approximate size of the rows in bytes.
    pub fn size_bytes(&self) -> usize {
        self.batches.iter().map(batch_bytes).fold(0, usize::saturating_add)
    }

    /// The rows for another process, in pieces of about a MiB, or of one row where that is more: Arrow's own form for streams.
    pub fn into_pieces(self) -> impl Iterator<Item = Result<Vec<u8>, TableError>> {
        let schema = Arc::clone(&self.schema);
        let slices = self.batches.into_iter().flat_map(move |batch| {
            let batch = spelled(&schema, batch.clone()).unwrap_or(batch);
            let (rows, pieces) = (batch.num_rows(), batch_bytes(&batch).div_ceil(PIECE_BYTES).max(1));
            let step = rows.div_ceil(pieces).max(1);
            (0..rows).step_by(step).map(move |from| batch.slice(from, step.min(rows.saturating_sub(from))))
        });
        let mut slices = slices.map(Some).chain(std::iter::once(None));
        let (mut writer, schema) = (None, self.schema);
        std::iter::from_fn(move || {
            let slice = slices.next()?;
            let mut piece = || {
                let writer = match &mut writer {
                    Some(writer) => writer,
                    empty => empty.insert(StreamWriter::try_new(Vec::new(), &schema)?),
                };
                match &slice {
                    Some(slice) => writer.write(slice)?,
                    None => writer.finish()?,
                }
                Ok(std::mem::take(writer.get_mut()))
            };
            Some(piece())
        })
    }

    /// The rows that another process took apart.
    ///
    /// # Errors
    /// The pieces are not whole.
    pub fn from_pieces(pieces: impl IntoIterator<Item = Vec<u8>>) -> Result<Batches, TableError> {
        let (mut decoder, mut batches) = (StreamDecoder::new(), Vec::new());
        for piece in pieces {
            let mut piece = Buffer::from_vec(piece);
            while !piece.is_empty() {
                batches.extend(decoder.decode(&mut piece)?);
            }
        }
        decoder.finish()?;
        let schema = decoder.schema().ok_or_else(|| ArrowError::IpcError("there are no columns".to_owned()))?;
        Ok(Batches::new(schema, batches))
    }

    /// The names of the columns, each with its type in Arrow's words, such as `timestamp[us, UTC]`.
    pub fn columns(&self) -> Vec<(String, String)> {
        self.schema.fields().iter().map(|field| (field.name().clone(), type_name(field.data_type()))).collect()
    }

    /// Returns the first rows, and the last of the remaining ones, at most `count` each: JSON arrays of objects, in which
    /// long texts are cut.
    ///
    /// # Errors
    /// A value cannot be formatted.
    pub fn sample(&self, count: usize) -> Result<(Value, Value), TableError> {
        let rows = self.rows();
        let tail = rows.saturating_sub(count).max(count.min(rows));
        Ok((self.rows_as_json(0..count.min(rows))?, self.rows_as_json(tail..rows)?))
    }

    fn rows_as_json(&self, wanted: std::ops::Range<usize>) -> Result<Value, TableError> {
        let mut before = 0_usize;
        let mut rows = Vec::new();
        for batch in &self.batches {
            let end = before.saturating_add(batch.num_rows());
            for row in wanted.start.max(before)..wanted.end.min(end) {
                let columns = self.schema.fields().iter().zip(batch.columns()).take(SAMPLE_COLUMNS);
                let named = columns.map(|(field, array)| {
                    Ok((field.name().clone(), shortened(value(array, row.saturating_sub(before), 0)?)))
                });
                rows.push(Value::Object(named.collect::<Result<Map<_, _>, TableError>>()?));
            }
            before = end;
        }
        Ok(Value::Array(rows))
    }

    /// The columns as a guest takes them: a head, then each column with its own. Each head is JSON behind its length, of 32
    /// bits.
    ///
    /// # Errors
    /// There are too many columns, or one is too large.
    pub fn to_columns(&self) -> Result<Columns, TableError> {
        let count = self.schema.fields().len();
        if count > COLUMNS_MAX {
            return Err(TableError::TooMany { what: "columns", count, max: COLUMNS_MAX });
        }
        let mut out = Columns::default();
        out.extend([head(&json!({"columns": count, "rows": self.rows(), "pandas": null}))?]);
        for (place, field) in self.schema.fields().iter().enumerate() {
            let arrays: Vec<_> = self.batches.iter().map(|batch| Arc::clone(batch.column(place))).collect();
            let bytes = arrays.iter().map(|array| array.get_array_memory_size()).fold(0, usize::saturating_add);
            if bytes > COLUMN_BYTES_MAX {
                return Err(TableError::TooLarge);
            }
            out.extend(column(field, arrays)?);
        }
        Ok(out)
    }

    /// Writes the rows as a Parquet file.
    ///
    /// # Errors
    /// `out` does not take them.
    pub fn write_parquet(&self, out: impl Write + Send) -> Result<(), TableError> {
        if let Some(chunks) = self.chunks.as_ref().filter(|chunks| chunks.are_of(self.rows())) {
            return chunks.write_parquet(&self.schema, out);
        }
        writing::write(&self.schema, &self.batches, out)
    }

    /// Reads a file that [`Batches::write_parquet`] has written.
    ///
    /// # Errors
    /// The file is not such a file.
    pub fn read_parquet(file: File) -> Result<Batches, TableError> {
        let file = Whole(Arc::new(file));
        let metadata = metadata(&file)?;
        let schema = Arc::clone(metadata.schema());
        let wanted: Vec<usize> = (0..schema.fields().len()).collect();
        let shares = match shares(&metadata, &wanted) {
            shares if shares.is_empty() => vec![wanted.clone()],
            shares => shares,
        };
        let metadata = repeating::metadata(&metadata);
        let read = |columns: &[usize]| -> Result<Vec<RecordBatch>, TableError> {
            let mask = ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied());
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone());
            let batches = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build()?;
            let checked = |batch: Result<RecordBatch, ArrowError>| {
                let batch = batch?;
                repeating::check(&batch)?;
                Ok(batch)
            };
            batches.map(checked).collect()
        };
        let parts = side_by_side(&shares, &wanted, read, || TableError::Damaged)?;
        let batches = parts.into_iter().map(|(columns, rows)| repeating::batch(schema.fields(), columns, rows));
        Ok(Batches::new(Arc::clone(&schema), batches.collect::<Result<_, _>>()?))
    }
}

/// A batch whose texts are all as the schema says.
fn spelled(schema: &SchemaRef, batch: RecordBatch) -> Result<RecordBatch, TableError> {
    let is_spelled =
        batch.schema().fields().iter().zip(schema.fields()).all(|(is, said)| is.data_type() == said.data_type());
    if is_spelled {
        return Ok(batch);
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)?)
}

/// Reads the shape of the table in a Parquet file, but none of its rows.
///
/// # Errors
/// The file is not a Parquet file.
pub fn shape(file: File) -> Result<Shape, TableError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or_default();
    let columns = builder.schema().fields().iter();
    Ok(Shape { rows, columns: columns.map(|field| (field.name().clone(), type_name(field.data_type()))).collect() })
}

/// A value whose texts are not long.
fn shortened(value: Value) -> Value {
    match value {
        Value::String(mut text) => {
            if let Some((end, _)) = text.char_indices().nth(SAMPLE_CHARS) {
                text.truncate(end);
                text.push('…');
            }
            Value::String(text)
        }
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.len() > SAMPLE_CHARS { shortened(Value::String(text)) } else { value }
        }
        other => other,
    }
}

/// A type as people know it from other programs that use Arrow.
fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "bool".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "binary".to_owned()
        }
        DataType::Timestamp(of, None) => format!("timestamp[{}]", word(*of)),
        DataType::Timestamp(of, Some(zone)) => format!("timestamp[{}, {zone}]", word(*of)),
        DataType::Duration(of) => format!("duration[{}]", word(*of)),
        DataType::Date32 => "date".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("decimal({precision}, {scale})"),
        DataType::Dictionary(_, values) => format!("category[{}]", type_name(values)),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("list[{}]", type_name(item.data_type()))
        }
        DataType::Struct(_) => "struct".to_owned(),
        DataType::Map(..) => "map".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}
