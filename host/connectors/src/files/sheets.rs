//! Workbooks of Excel: one sheet of each as rows, whose types are those of its cells.

use std::io::{self, Read, Seek, SeekFrom};

use calamine::{DataRef, ExcelDateTime, Reader, Xlsx, XlsxError};
use cellar_tables::reading::{ReadAt, Reading};
use zip::ZipArchive;

use super::{Gathered, place::FileOf};
use crate::{
    Sheet,
    error::{FetchError, FetchFault, near},
    rows::{COLUMNS_MAX, ColumnKind, Hint, Rows, Value, too_many_bytes, too_many_rows},
};

/// Maximum size of an unpacked workbook, as a multiple of what the rows of a fetch may have: each number is written out.
const UNPACKED_FACTOR: u64 = 4;
/// Bytes that are unpacked at once.
const PIECE_BYTES: usize = 64 << 10;
/// Attribute by which a workbook says how many texts it has.
const COUNT: &[u8] = b"uniqueCount";
/// Length of the shortest text of a workbook, `<si/>`.
const TEXT_BYTES_MIN: u64 = 5;
/// Serial number of the first day after the year 9999.
const SERIALS_END: f64 = 2_958_466.0;
/// Milliseconds of a day.
const DAY_MILLIS: f64 = 86_400_000.0;
/// Whole numbers of less than this are exact.
const EXACT_END: f64 = 9_007_199_254_740_992.0;
/// Names of sheets that an error lists.
const NAMES_SHOWN: usize = 20;

impl Gathered<'_> {
    pub(super) fn sheet(&mut self, file: &FileOf) -> Result<(), FetchError> {
        self.check_unpacked(file)?;
        let mut book =
            Xlsx::new(Seeking { reading: Reading { file: file.clone(), at: 0 } }).map_err(|error| broken(&error))?;
        let name = self.named(&book.sheet_names())?;
        let mut cells = book.worksheet_cells_reader(&name).map_err(|error| broken(&error))?;
        let mut rows = SheetRows { row: None, values: Vec::new(), names: Vec::new(), rows: Vec::new(), bytes: 0 };
        let mut number = 0_u64;
        while let Some(cell) = cells.next_cell().map_err(|error| broken(&error))? {
            number = number.saturating_add(1);
            self.check(number.is_multiple_of(1_024))?;
            let Some(value) = value_of(cell.get_value()) else { continue };
            let (row, column) = cell.get_position();
            if rows.row.is_some_and(|last| row < last) {
                return Err(FetchError::failed("the rows of its sheet are out of order"));
            }
            if rows.row != Some(row) {
                self.end_row(&mut rows)?;
                rows.row = Some(row);
            }
            let column = usize::try_from(column).unwrap_or(usize::MAX);
            if column >= COLUMNS_MAX {
                let message =
                    format!("its sheet has values beyond column {COLUMNS_MAX}, which is the last that is read");
                return Err(FetchError::new(FetchFault::Limit, message));
            }
            rows.put(column, value);
        }
        self.end_row(&mut rows)?;
        let columns = rows.names.into_iter().enumerate().map(|(place, name)| {
            (name.unwrap_or_else(|| format!("Unnamed: {place}")), ColumnKind::ByValues(Hint::None))
        });
        let mut gathered = Rows::new(columns, &self.request.bounds, self.request.deadline)?;
        rows.rows.into_iter().try_for_each(|row| gathered.push(row))?;
        self.add_table(&gathered.finish()?)
    }

    /// Returns the name of the sheet to read.
    fn named(&self, names: &[String]) -> Result<String, FetchError> {
        let found = match &self.files.sheet {
            Sheet::Number(number) => names.get(number.get().saturating_sub(1)),
            Sheet::Name(name) => names.iter().find(|one| *one == name),
        };
        found.cloned().ok_or_else(|| {
            let what = match &self.files.sheet {
                Sheet::Number(number) => format!("sheet {number}"),
                Sheet::Name(name) => format!("sheet `{name}`{}", near(name, names.iter().map(String::as_str))),
            };
            let shown: Vec<String> = names.iter().take(NAMES_SHOWN).map(|name| format!("`{name}`")).collect();
            FetchError::failed(format!("it has no {what}; its sheets are {}", shown.join(", ")))
        })
    }

    /// Adds the row that was gathered: the first one with values has the names of the columns.
    fn end_row(&self, rows: &mut SheetRows) -> Result<(), FetchError> {
        let values = std::mem::take(&mut rows.values);
        if values.is_empty() {
            return Ok(());
        }
        if rows.names.is_empty() {
            rows.names = values.into_iter().map(heading).collect();
            return Ok(());
        }
        if rows.names.len() < values.len() {
            rows.names.resize(values.len(), None);
        }
        rows.bytes = values.iter().map(Value::bytes).fold(rows.bytes, usize::saturating_add);
        rows.rows.push(values);
        if rows.rows.len() > self.request.bounds.rows {
            return Err(too_many_rows(&self.request.bounds));
        }
        if rows.bytes > self.request.bounds.bytes {
            return Err(too_many_bytes(&self.request.bounds));
        }
        Ok(())
    }

    /// Checks what a workbook comes to before any of it is kept: sizes and counts that a file says of itself may be lies.
    fn check_unpacked(&self, file: &FileOf) -> Result<(), FetchError> {
        let damaged = || FetchError::failed("it is no workbook of Excel (.xlsx, .xlsm), or damaged");
        let mut archive =
            ZipArchive::new(Seeking { reading: Reading { file: file.clone(), at: 0 } }).map_err(|_| damaged())?;
        let most = u64::try_from(self.request.bounds.bytes).unwrap_or(u64::MAX).saturating_mul(UNPACKED_FACTOR);
        let mut whole = 0_u64;
        let mut piece = vec![0; PIECE_BYTES];
        for place in 0..archive.len() {
            let mut part = archive.by_index(place).map_err(|_| damaged())?;
            let is_text = [".xml", ".rels"].iter().any(|end| part.name().to_ascii_lowercase().ends_with(end));
            let (mut length, mut window, mut largest) = (0_u64, Vec::new(), 0_u64);
            loop {
                self.check(true)?;
                let read = part.read(&mut piece).map_err(|_| damaged())?;
                let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else { break };
                length = length.saturating_add(read.len() as u64);
                whole = whole.saturating_add(read.len() as u64);
                if whole > most {
                    let message = format!(
                        "it has more than {} MiB when it is unpacked, {UNPACKED_FACTOR} times `max_mib` of the connector",
                        most >> 20
                    );
                    return Err(FetchError::new(FetchFault::Limit, message));
                }
                if is_text && read.contains(&0) {
                    return Err(damaged());
                }
                window.extend_from_slice(read);
                largest = largest.max(largest_count(&window));
                // A count may stand where two pieces meet.
                window.drain(..window.len().saturating_sub(256));
            }
            if largest > length.checked_div(TEXT_BYTES_MIN).unwrap_or_default().max(1_024) {
                return Err(damaged());
            }
        }
        Ok(())
    }
}

/// The rows of a sheet, without blank ones.
struct SheetRows {
    /// Row whose values are gathered, and these.
    row: Option<u32>,
    values: Vec<Value>,
    /// Names of the columns; none yet where no row had a value.
    names: Vec<Option<String>>,
    rows: Vec<Vec<Value>>,
    bytes: usize,
}

impl SheetRows {
    fn put(&mut self, column: usize, value: Value) {
        if self.values.len() <= column {
            self.values.resize(column.saturating_add(1), Value::Null);
        }
        if let Some(place) = self.values.get_mut(column) {
            *place = value;
        }
    }
}

/// Returns the largest count of texts that a piece of a workbook states.
fn largest_count(piece: &[u8]) -> u64 {
    let mut largest = 0;
    let starts = piece.windows(COUNT.len()).enumerate().filter(|(_, window)| *window == COUNT);
    for (start, _) in starts {
        let rest = piece.get(start.saturating_add(COUNT.len())..).unwrap_or_default().iter();
        let digits: String = rest
            .skip_while(|byte| byte.is_ascii_whitespace() || b"='\"+".contains(byte))
            .take_while(|byte| byte.is_ascii_digit())
            .map(|byte| char::from(*byte))
            .collect();
        largest = largest.max(if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u64::MAX) });
    }
    largest
}

/// Returns the value of a cell; `None` for an empty one and for one with an error, such as `#N/A`.
fn value_of(cell: &DataRef<'_>) -> Option<Value> {
    Some(match cell {
        DataRef::Empty | DataRef::Error(_) => return None,
        DataRef::Int(value) => Value::Integer(*value),
        DataRef::Float(value) => number(*value),
        DataRef::Bool(value) => Value::Boolean(*value),
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => return filled(text),
        DataRef::SharedString(text) => return filled(text),
        DataRef::DateTime(moment) => time_of(moment),
    })
}

fn filled(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| Value::Text(text.to_owned()))
}

#[allow(clippy::cast_possible_truncation, reason = "whole, and within what both have")]
fn number(value: f64) -> Value {
    match value.fract() == 0.0 && value.abs() < EXACT_END {
        true => Value::Integer(value as i64),
        false => Value::Float(value),
    }
}

/// A moment, a time of day, or the hours, minutes and seconds of a duration as text of ISO 8601.
fn time_of(moment: &ExcelDateTime) -> Value {
    let serial = moment.as_f64();
    if !(0.0..SERIALS_END).contains(&serial) {
        return number(serial);
    }
    #[allow(clippy::cast_possible_truncation, reason = "below the year 10000")]
    let millis = (serial * DAY_MILLIS).round() as i64;
    if moment.is_duration() {
        let (hours, rest) = (millis.div_euclid(3_600_000), millis.rem_euclid(3_600_000));
        let (minutes, millis) = (rest.div_euclid(60_000), rest.rem_euclid(60_000));
        let fraction = match millis.rem_euclid(1_000) {
            0 => String::new(),
            rest => format!(".{rest:03}"),
        };
        return Value::Text(format!("PT{hours}H{minutes}M{}{fraction}S", millis.div_euclid(1_000)));
    }
    if serial < 1.0 {
        return Value::Time(millis.saturating_mul(1_000));
    }
    match moment.as_datetime() {
        Some(moment) => Value::Timestamp(moment.and_utc().timestamp_micros()),
        None => number(serial),
    }
}

/// Returns the name of a column.
fn heading(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Text(text) => Some(text),
        value => match crate::rows::json(value) {
            serde_json::Value::String(text) => Some(text),
            value => Some(value.to_string()),
        },
    }
}

fn broken(error: &XlsxError) -> FetchError {
    FetchError::failed(match error {
        XlsxError::Password => "it has a password, and workbooks with one are not read".to_owned(),
        error => format!("it is no workbook of Excel (.xlsx, .xlsm), or damaged: {error}"),
    })
}

/// A file that is read from any place.
struct Seeking {
    reading: Reading<FileOf>,
}

impl Read for Seeking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reading.read(buffer)
    }
}

impl Seek for Seeking {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.reading.file.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.reading.at.checked_add_signed(by),
        };
        let at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.reading.at = at;
        Ok(at)
    }
}
