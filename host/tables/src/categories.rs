//! Writer of categories to Parquet, in their own order, including those without any row.
//!
//! The library builds a dictionary from the values that it encounters, in that order. Readers take the dictionary for the
//! categories, so it is written here: one page of categories, then pages of their numbers.

use arrow_array::{Array, ArrayRef, DictionaryArray, StringArray, types::Int32Type};
use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding},
    column::{
        page::{CompressedPage, Page, PageWriter},
        writer::ColumnCloseResult,
    },
    errors::{ParquetError, Result},
    file::{
        metadata::ColumnChunkMetaData,
        writer::{SerializedPageWriter, TrackedWrite},
    },
    schema::types::ColumnDescPtr,
};

/// Rows of a page.
const PAGE_ROWS: usize = 1 << 16;

/// The categories and the numbers of a column, if it is one of categories.
pub(crate) fn parts(array: &ArrayRef) -> Option<(&DictionaryArray<Int32Type>, &StringArray)> {
    let array = array.as_any().downcast_ref::<DictionaryArray<Int32Type>>()?;
    Some((array, array.values().as_any().downcast_ref()?))
}

/// Returns a column of categories as it is stored in a file, and its metadata.
pub(crate) fn chunk(
    descriptor: ColumnDescPtr,
    (rows, names): (&DictionaryArray<Int32Type>, &StringArray),
) -> Result<(Bytes, ColumnCloseResult)> {
    let mut out = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut out);
    let mut uncompressed = write(&mut writer, dictionary(names)?)?;
    let first = uncompressed;
    // A number has a bit at least, for the sake of readers.
    let width = usize::BITS.saturating_sub(names.len().saturating_sub(1).max(1).leading_zeros());
    for from in (0..rows.len()).step_by(PAGE_ROWS) {
        let page = numbers(&rows.slice(from, PAGE_ROWS.min(rows.len().saturating_sub(from))), width)?;
        uncompressed = uncompressed.saturating_add(write(&mut writer, page)?);
    }
    let bytes = out.into_inner()?;
    let size = |bytes: u64| i64::try_from(bytes).map_err(|error| ParquetError::External(error.into()));
    let metadata = ColumnChunkMetaData::builder(descriptor)
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_compression(Compression::UNCOMPRESSED)
        .set_num_values(size(rows.len() as u64)?)
        .set_total_compressed_size(size(bytes.len() as u64)?)
        .set_total_uncompressed_size(size(uncompressed)?)
        .set_dictionary_page_offset(Some(0))
        .set_data_page_offset(size(first)?)
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows.len() as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((bytes.into(), close))
}

/// Writes a page, and returns the bytes that it is.
fn write(writer: &mut SerializedPageWriter<'_, Vec<u8>>, page: Page) -> Result<u64> {
    let length = page.buffer().len();
    Ok(writer.write_page(CompressedPage::new(page, length))?.bytes_written)
}

/// The categories, each with its length before it.
fn dictionary(names: &StringArray) -> Result<Page> {
    let mut plain = Vec::with_capacity(names.value_data().len().saturating_add(names.len().saturating_mul(4)));
    for name in names.iter().flatten() {
        plain.extend(length(name.len())?.to_le_bytes());
        plain.extend(name.as_bytes());
    }
    Ok(Page::DictionaryPage {
        buf: plain.into(),
        num_values: length(names.len())?,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    })
}

/// Encodes for each row whether it has a category, then the numbers of those that have one.
fn numbers(rows: &DictionaryArray<Int32Type>, width: u32) -> Result<Page> {
    let there = packed((0..rows.len()).map(|row| u64::from(rows.is_valid(row))), 1);
    let mut buffer = length(there.len())?.to_le_bytes().to_vec();
    buffer.extend(there);
    buffer.extend(width.to_le_bytes().first());
    // A number is no less than 0: that was checked when the array was made.
    buffer.extend(packed(rows.keys().iter().flatten().map(|number| u64::from(number.unsigned_abs())), width));
    Ok(Page::DataPage {
        buf: buffer.into(),
        num_values: length(rows.len())?,
        encoding: Encoding::RLE_DICTIONARY,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    })
}

/// Encodes numbers of `width` bits, at most 32, as one run of groups of eight, in the format's hybrid encoding of runs and
/// bits.
fn packed(values: impl Iterator<Item = u64>, width: u32) -> Vec<u8> {
    let (mut bits, mut held, mut count, mut packed) = (0_u64, 0_u32, 0_usize, Vec::new());
    for value in values {
        bits |= value << held;
        held = held.saturating_add(width);
        count = count.saturating_add(1);
        while held >= 8 {
            packed.extend(bits.to_le_bytes().first());
            (bits, held) = (bits >> 8, held.saturating_sub(8));
        }
    }
    let groups = count.div_ceil(8);
    packed.extend(bits.to_le_bytes().first().filter(|_| held > 0));
    packed.resize(groups.saturating_mul(width as usize), 0);
    let mut run = Vec::with_capacity(packed.len().saturating_add(4));
    let mut header = groups << 1 | 1;
    while header >= 0x80 {
        run.extend((header | 0x80).to_le_bytes().first());
        header >>= 7;
    }
    run.extend(header.to_le_bytes().first());
    run.extend(packed);
    run
}

fn length(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|error| ParquetError::External(error.into()))
}
