//! Files of CSV: their text decoded, and the types of their columns as the first rows have them.

use std::{
    cell::Cell,
    io::{self, BufReader, Read},
    rc::Rc,
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow_csv::reader::Format;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use cellar_tables::reading::Reading;
use encoding_rs::{CoderResult, Decoder, UTF_8};

use super::{BATCH_ROWS, Gathered, UNFIT, place::FileOf};
use crate::error::FetchError;

/// Rows that are looked at to know the types of the columns.
const INFERRED_ROWS: usize = 10_000;
/// Bytes of the file that are decoded at once.
const PIECE_BYTES: usize = 16 << 10;

impl Gathered<'_> {
    pub(super) fn csv(&mut self, file: &FileOf, usual: u8) -> Result<(), FetchError> {
        let broken =
            |error: arrow_schema::ArrowError| FetchError::failed(format!("it is no CSV with a header: {error}"));
        let delimiter = self.files.csv.separator.unwrap_or(usual);
        let format = Format::default().with_header(true).with_delimiter(delimiter);
        let (schema, _) =
            format.infer_schema(BufReader::new(self.metered(file).0), Some(INFERRED_ROWS)).map_err(broken)?;
        let said = self.numbered(file, &format, Arc::new(schema)).map_err(broken)?;
        let wanted = self.wanted(&said)?;
        // Numbers with a decimal comma are read as texts.
        let is_number = |field: &Arc<Field>| field.metadata().contains_key(DECIMAL_COMMA);
        let read_as = |field: &Arc<Field>| match is_number(field) {
            true => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
            false => Arc::clone(field),
        };
        let read_as: SchemaRef = Arc::new(Schema::new(said.fields().iter().map(read_as).collect::<Vec<_>>()));
        let (metered, left) = self.metered(file);
        let reader = arrow_csv::ReaderBuilder::new(read_as)
            .with_format(format)
            .with_batch_size(BATCH_ROWS)
            .with_projection(wanted.clone())
            .build(BufReader::new(metered))
            .map_err(broken)?;
        let fields: Vec<Arc<Field>> = wanted.iter().filter_map(|place| said.fields().get(*place).cloned()).collect();
        for batch in reader {
            let batch = batch.map_err(|error| {
                FetchError::failed(format!("a row does not fit the types of those before: {error}"))
            })?;
            let column = |(field, column): (&Arc<Field>, &ArrayRef)| match is_number(field) {
                true => numbers(column).ok_or_else(|| {
                    FetchError::failed(format!(
                        "column `{}` has numbers with a decimal comma, and others",
                        field.name()
                    ))
                }),
                false => Ok(Arc::clone(column)),
            };
            let columns = fields.iter().zip(batch.columns()).map(column).collect::<Result<Vec<_>, _>>()?;
            let plain = |field: &Arc<Field>| field.as_ref().clone().with_metadata(std::collections::HashMap::new());
            let schema = Arc::new(Schema::new(fields.iter().map(plain).collect::<Vec<_>>()));
            let batch = RecordBatch::try_new(schema, columns).map_err(|_| FetchError::failed(UNFIT))?;
            self.add(&batch, &batch.schema())?;
            left.set(self.request.bounds.bytes);
        }
        Ok(())
    }

    /// Finds the columns of texts whose first values are all numbers with a decimal comma, which makes them numbers.
    fn numbered(
        &self,
        file: &FileOf,
        format: &Format,
        schema: SchemaRef,
    ) -> Result<SchemaRef, arrow_schema::ArrowError> {
        if !self.files.csv.has_decimal_comma {
            return Ok(schema);
        }
        let reader = arrow_csv::ReaderBuilder::new(Arc::clone(&schema))
            .with_format(format.clone())
            .with_batch_size(INFERRED_ROWS)
            .build(BufReader::new(self.metered(file).0))?
            .next();
        let Some(first) = reader.transpose()? else { return Ok(schema) };
        let field = |(field, column): (&Arc<Field>, &ArrayRef)| {
            let is_number =
                *field.data_type() == DataType::Utf8 && column.null_count() < column.len() && numbers(column).is_some();
            match is_number {
                true => {
                    let mark = std::collections::HashMap::from([(DECIMAL_COMMA.to_owned(), String::new())]);
                    Arc::new(Field::new(field.name(), DataType::Float64, true).with_metadata(mark))
                }
                false => Arc::clone(field),
            }
        };
        Ok(Arc::new(Schema::new(schema.fields().iter().zip(first.columns()).map(field).collect::<Vec<_>>())))
    }

    /// Returns a reader of the text of a file that yields at most the byte limit of a fetch until its budget is reset: rows
    /// are gathered before they can be counted.
    fn metered(&self, file: &FileOf) -> (Metered, Rc<Cell<usize>>) {
        let left = Rc::new(Cell::new(self.request.bounds.bytes));
        let encoding = self.files.csv.encoding.unwrap_or(UTF_8);
        let metered = Metered {
            reading: Reading { file: file.clone(), at: 0 },
            decoder: encoding.new_decoder(),
            is_utf8: encoding == UTF_8,
            is_begun: false,
            decoded: Vec::new(),
            at: 0,
            is_over: false,
            left: Rc::clone(&left),
        };
        (metered, left)
    }
}

/// Mark of a column of numbers with a decimal comma, in the metadata of its field.
const DECIMAL_COMMA: &str = "decimal-comma";

/// The numbers of texts with a decimal comma; `None` if one is no such number.
fn numbers(column: &ArrayRef) -> Option<ArrayRef> {
    let texts = column.as_any().downcast_ref::<StringArray>()?;
    let number = |text: Option<&str>| match text.map(str::trim).filter(|text| !text.is_empty()) {
        None => Some(None),
        Some(text) => {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.,eE".contains(&byte));
            let text = text.replace('.', "").replace(',', ".");
            text.parse::<f64>().ok().filter(|_| is_plain).map(Some)
        }
    };
    let numbers: Option<Vec<Option<f64>>> = texts.iter().map(number).collect();
    Some(Arc::new(Float64Array::from(numbers?)))
}

struct Metered {
    reading: Reading<FileOf>,
    decoder: Decoder,
    /// True if the bytes are passed on as they are, without a mark of the byte order.
    is_utf8: bool,
    is_begun: bool,
    /// Text that was decoded, and how much of it was read.
    decoded: Vec<u8>,
    at: usize,
    is_over: bool,
    left: Rc<Cell<usize>>,
}

impl Metered {
    /// Decodes the next piece.
    fn decode(&mut self) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let length = self.reading.read(&mut piece)?;
        piece.truncate(length);
        self.is_over = length == 0;
        self.at = 0;
        if self.is_utf8 {
            if !std::mem::replace(&mut self.is_begun, true) && piece.starts_with(b"\xef\xbb\xbf") {
                self.at = 3;
            }
            self.decoded = piece;
            return Ok(());
        }
        let capacity = self.decoder.max_utf8_buffer_length(length).unwrap_or(PIECE_BYTES.saturating_mul(4));
        self.decoded.resize(capacity, 0);
        let (result, _, written, _) = self.decoder.decode_to_utf8(&piece, &mut self.decoded, self.is_over);
        self.decoded.truncate(written);
        match result {
            CoderResult::InputEmpty => Ok(()),
            CoderResult::OutputFull => Err(io::Error::other("its text cannot be decoded")),
        }
    }
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.decoded.len() && !self.is_over {
            self.decode()?;
        }
        let rest = self.decoded.get(self.at..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        self.at = self.at.saturating_add(length);
        match self.left.get().checked_sub(length) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("its rows have more bytes than the fetch may have")),
        }
        Ok(length)
    }
}
