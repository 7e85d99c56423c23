//! Files of a folder or an object store: Parquet, CSV, JSON lines, workbooks of Excel, several as one table.

mod csv;
mod groups;
mod place;
mod sheets;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use cellar_core::time::later;
use cellar_tables::{
    Batches, batch_bytes,
    chunks::{Chunks, Held},
    reading::{Reading, Whole, metadata, shares, side_by_side},
    repeating,
};
use futures::future::BoxFuture;
use parquet::arrow::{
    ProjectionMask,
    arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder},
};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use crate::{
    Comparison, FetchOptions, FetchSpec, FileFormat, FilesFetch, FilesPlace, Filter, Request, Source,
    error::{FetchError, FetchFault},
    json::{self, JsonRows},
    rows::{too_many_bytes, too_many_rows},
    tool::{Stop, as_text, spec},
    unready,
};
use place::{FileOf, Place};

/// Rows that are read at once.
const BATCH_ROWS: usize = 1 << 16;
/// Maximum length of a line of JSON in bytes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Message about a file whose columns differ from those of the files before it.
const UNFIT: &str = "its columns are not those of the files before it";
/// Timeout of listing a location.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Files.
pub(crate) struct Files {
    /// Location, or the reason why it cannot be read.
    place: Result<Place, String>,
    fetches: Arc<BTreeMap<String, (FetchSpec, FilesFetch)>>,
}

impl Files {
    /// # Errors
    /// What is wrong with the options.
    pub(crate) fn new(place: FilesPlace, fetches: BTreeMap<String, FetchOptions<FilesFetch>>) -> Result<Files, String> {
        let mut known = BTreeMap::new();
        for (name, options) in fetches {
            let (spec, files) = spec(&name, options)?;
            let fault = |what: String| format!("fetches.{name}: {what}");
            glob::Pattern::new(&files.path).map_err(|error| fault(format!("`path` is no pattern: {error}")))?;
            for filter in &files.filters {
                if !spec.parameters.iter().any(|parameter| parameter.name == filter.parameter) {
                    return Err(fault(format!(
                        "a filter has `:{}`, of which `parameters` says nothing",
                        filter.parameter
                    )));
                }
            }
            known.insert(name, (spec, files));
        }
        let place = match place {
            FilesPlace::Folder(folder) => Ok(Place::Folder(folder.into())),
            FilesPlace::Objects(options) => {
                options.check()?;
                options.open().map(Place::Objects)
            }
        };
        Ok(Files { place, fetches: Arc::new(known) })
    }
}

impl Source for Files {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.fetches.values().map(|(spec, _)| spec.clone()).collect()
    }

    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        let (place, fetches) = (self.place.clone(), Arc::clone(&self.fetches));
        Box::pin(async move {
            let place = place.map_err(|reason| unready(&reason))?;
            let runtime = Handle::current();
            let stop = Stop::default();
            let is_stopped = stop.flag();
            let read = tokio::task::spawn_blocking(move || {
                let Some((_, files)) = fetches.get(&request.fetch) else {
                    return Err(FetchError::new(FetchFault::Unknown, "there is no such fetch"));
                };
                read((&place, &runtime), files, &request, &is_stopped)
            });
            let answer = read.await.unwrap_or_else(|_| Err(FetchError::failed("a file is damaged")));
            drop(stop);
            answer
        })
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        let (place, fetches) = (self.place.clone(), Arc::clone(&self.fetches));
        Box::pin(async move {
            let place = place.map_err(|reason| unready(&reason))?;
            let runtime = Handle::current();
            let looked = tokio::task::spawn_blocking(move || {
                let mut opened = place.open(&runtime, later(Instant::now(), PROBE_TIMEOUT))?;
                let mut counts = Vec::new();
                for (name, (_, files)) in fetches.iter() {
                    counts.push(format!("{name}: {} files", opened.find(&files.path)?.len()));
                }
                Ok(counts.join(", "))
            });
            looked.await.unwrap_or_else(|_| Err(FetchError::failed("the folder could not be read")))
        })
    }
}

fn read(
    (place, runtime): (&Place, &Handle),
    files: &FilesFetch,
    request: &Request,
    is_stopped: &AtomicBool,
) -> Result<Batches, FetchError> {
    let mut opened = place.open(runtime, request.deadline)?;
    let paths = opened.find(&files.path)?;
    if paths.is_empty() {
        return Err(FetchError::failed(format!("there is no file `{}`", files.path)));
    }
    let mut gathered =
        Gathered { files, request, is_stopped, schema: None, batches: Vec::new(), rows: 0, bytes: 0, chunks: None };
    for path in &paths {
        let format = files.format.or_else(|| format_of(path));
        let Some(format) = format else {
            return Err(FetchError::failed(format!(
                "`{path}` ends neither in .parquet, .csv, .tsv, .jsonl nor .xlsx; `format` says what it is"
            )));
        };
        let file = opened.file(path)?;
        let read = match format {
            FileFormat::Parquet => gathered.parquet(file),
            FileFormat::Csv => gathered.csv(&file, if path.ends_with(".tsv") { b'\t' } else { b',' }),
            FileFormat::JsonLines => gathered.json_lines(&file),
            FileFormat::Excel => gathered.sheet(&file),
        };
        read.map_err(|error| match (error.fault, opened.fault()) {
            (FetchFault::Failed, _) if Instant::now() > request.deadline => FetchError::timeout(request.bounds.timeout),
            (FetchFault::Failed, Some(fault)) => FetchError::failed(format!("`{path}`: {fault}")),
            (FetchFault::Failed, None) => FetchError::failed(format!("`{path}`: {}", error.message)),
            _ => error,
        })?;
    }
    gathered.finish()
}

fn format_of(path: &str) -> Option<FileFormat> {
    let path = path.to_ascii_lowercase();
    Some(match path.rsplit('.').next()? {
        "parquet" | "pq" => FileFormat::Parquet,
        "csv" | "tsv" => FileFormat::Csv,
        "jsonl" | "ndjson" => FileFormat::JsonLines,
        "xlsx" | "xlsm" => FileFormat::Excel,
        _ => return None,
    })
}

struct Gathered<'a> {
    files: &'a FilesFetch,
    request: &'a Request,
    is_stopped: &'a AtomicBool,
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// Parquet chunks that the rows were read from, as far as they are known.
    chunks: Option<Chunks>,
}

impl Gathered<'_> {
    fn parquet(&mut self, file: FileOf) -> Result<(), FetchError> {
        let broken = |_| FetchError::failed("it is no Parquet file, or damaged");
        let file = Whole(file);
        let metadata = metadata(&file).map_err(broken)?;
        let wanted = self.wanted(metadata.schema())?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone());
        let groups = groups::possible(&builder, &self.files.filters, &self.request.arguments)?;
        let is_given =
            |filter: &Filter| self.request.arguments.get(&filter.parameter).is_some_and(|value| !value.is_null());
        let is_tested = self.files.filters.iter().any(is_given);
        let whole: &[usize] = match &file.0 {
            FileOf::File(_) if !is_tested => &wanted,
            // What is left out is dropped before more is read, and so is what is too much of an object.
            _ => &[],
        };
        let held = Held::new(file, metadata.metadata(), whole, self.bytes_left());
        // Tests compare what the file says that it has.
        let read_by = if is_tested { metadata.clone() } else { repeating::metadata(&metadata) };
        let reader = |columns: &[usize]| {
            let mask = ProjectionMask::roots(metadata.parquet_schema(), columns.iter().copied());
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(held.clone(), read_by.clone());
            let builder = builder.with_row_groups(groups.clone()).with_projection(mask);
            let batches = builder.with_batch_size(BATCH_ROWS).build().map_err(broken)?;
            Ok::<_, FetchError>(batches.map(|batch| {
                let batch = batch.map_err(damaged)?;
                repeating::check(&batch).map_err(damaged)?;
                Ok(batch)
            }))
        };
        let shares = shares(&metadata, whole);
        let said = metadata.schema().project(&wanted).map_err(damaged)?;
        if shares.len() < 2 {
            reader(&wanted)?.try_for_each(|batch| self.add(&batch?, &said))?;
            self.note_chunks(&held, &metadata, &said);
            return Ok(());
        }
        let (left, bytes) = (self.request.bounds.rows.saturating_sub(self.rows), AtomicUsize::new(self.bytes));
        let read = |columns: &[usize]| {
            let (mut batches, mut rows) = (Vec::new(), 0_usize);
            for batch in reader(columns)? {
                let batch = batch?;
                self.check(true)?;
                rows = rows.saturating_add(batch.num_rows());
                if rows > left {
                    return Err(too_many_rows(&self.request.bounds));
                }
                let size = batch_bytes(&batch);
                if bytes.fetch_add(size, Ordering::Relaxed).saturating_add(size) > self.request.bounds.bytes {
                    return Err(too_many_bytes(&self.request.bounds));
                }
                batches.push(batch);
            }
            Ok(batches)
        };
        for (columns, rows) in side_by_side(&shares, &wanted, read, || damaged(()))? {
            self.add(&repeating::batch(said.fields(), columns, rows).map_err(damaged)?, &said)?;
        }
        self.note_chunks(&held, &metadata, &said);
        Ok(())
    }

    /// Records the chunks of a file whose rows were all read, if they have the types of the table.
    fn note_chunks(&mut self, held: &Held<FileOf>, metadata: &ArrowReaderMetadata, said: &Schema) {
        let Some(schema) = &self.schema else { return };
        let is_same = |field: &FieldRef| {
            said.field_with_name(field.name()).is_ok_and(|said| said.data_type() == field.data_type())
        };
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let is_same = schema.fields().iter().all(is_same);
        let chunks = is_same.then(|| Chunks::of(held, metadata.metadata(), &names)).flatten();
        self.chunks = match (self.chunks.take(), chunks) {
            (Some(before), Some(chunks)) => before.and(chunks),
            (before, chunks) => before.or(chunks),
        };
    }

    /// Returns the remaining budget in bytes. Held chunks, which rows were read from, count as read.
    fn bytes_left(&self) -> usize {
        let held = self.chunks.as_ref().map_or(0, Chunks::size_bytes);
        self.request.bounds.bytes.saturating_sub(self.bytes).saturating_sub(held)
    }

    fn json_lines(&mut self, file: &FileOf) -> Result<(), FetchError> {
        let mut reader = BufReader::new(Reading { file: file.clone(), at: 0 });
        let mut rows = JsonRows::new(&self.request.bounds, self.request.deadline);
        let (mut bytes, mut number) = (0_usize, 0_u64);
        loop {
            let mut line = Vec::new();
            let mut bounded = std::io::Read::take(&mut reader, LINE_BYTES_MAX);
            let length = bounded.read_until(b'\n', &mut line).map_err(|_| FetchError::failed("it cannot be read"))?;
            if length == 0 {
                break;
            }
            number = number.saturating_add(1);
            bytes = bytes.saturating_add(length);
            if bytes > self.request.bounds.bytes {
                return Err(too_many_bytes(&self.request.bounds));
            }
            self.check(number.is_multiple_of(1_024))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            rows.push(json::read(&format!("line {number}"), &line)?)?;
        }
        self.add_table(&rows.finish()?)
    }

    /// Adds the columns of a table that are read.
    fn add_table(&mut self, table: &Batches) -> Result<(), FetchError> {
        let wanted = self.wanted(&table.schema)?;
        for batch in &table.batches {
            let batch = batch.project(&wanted).map_err(|_| FetchError::failed("its columns do not fit together"))?;
            self.add(&batch, &batch.schema())?;
        }
        Ok(())
    }

    /// Returns the positions of the columns to read: the selected ones, and those that are tested.
    fn wanted(&self, schema: &Schema) -> Result<Vec<usize>, FetchError> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let tested = self.files.filters.iter().map(|filter| &filter.column);
        let named = self.files.select.iter().flatten().chain(tested);
        if let Some(missing) = named.into_iter().find(|name| !names.contains(&name.as_str())) {
            return Err(FetchError::failed(format!(
                "it has no column `{missing}`{}",
                crate::error::near(missing, names.into_iter())
            )));
        }
        let is_wanted = |name: &str| {
            let is_tested = self.files.filters.iter().any(|filter| filter.column == name);
            self.files.select.as_ref().is_none_or(|select| is_tested || select.iter().any(|one| one == name))
        };
        Ok(names.iter().enumerate().filter(|(_, name)| is_wanted(name)).map(|(place, _)| place).collect())
    }

    fn check(&self, is_due: bool) -> Result<(), FetchError> {
        if is_due && (self.is_stopped.load(Ordering::Relaxed) || Instant::now() > self.request.deadline) {
            return Err(FetchError::timeout(self.request.bounds.timeout));
        }
        Ok(())
    }

    /// Adds the rows of a batch that pass the filters, without columns that were only read for the filters. `said` is the
    /// schema of the file.
    fn add(&mut self, batch: &RecordBatch, said: &Schema) -> Result<(), FetchError> {
        self.check(true)?;
        let unfit = |_| FetchError::failed(UNFIT);
        let mut batch = batch.clone();
        for filter in &self.files.filters {
            let Some(mask) = mask(&batch, filter, &self.request.arguments)? else { continue };
            batch = filter_record_batch(&batch, &mask).map_err(unfit)?;
        }
        if let Some(select) = &self.files.select {
            let schema = batch.schema();
            let places: Vec<usize> = select.iter().filter_map(|name| schema.index_of(name).ok()).collect();
            batch = batch.project(&places).map_err(unfit)?;
        }
        let rows = batch.num_rows();
        let batch_schema = batch.schema();
        let field = |field: &FieldRef| {
            let said =
                said.field_with_name(field.name()).map_or_else(|_| Arc::clone(field), |said| Arc::new(said.clone()));
            Arc::new(said.as_ref().clone().with_nullable(true))
        };
        let schema = self
            .schema
            .get_or_insert_with(|| Arc::new(Schema::new(batch_schema.fields().iter().map(field).collect::<Vec<_>>())));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let Some(column) = batch.column_by_name(field.name()) else {
                return Err(FetchError::failed(format!(
                    "it has no column `{}`, which the files before it have",
                    field.name()
                )));
            };
            if repeating::is_repeating(field.data_type(), column.data_type()) {
                columns.push(Arc::clone(column));
                continue;
            }
            columns.push(fitted(column, field.data_type()).ok_or_else(|| {
                FetchError::failed(format!("column `{}` is of another type than in the files before it", field.name()))
            })?);
        }
        let batch = repeating::batch(schema.fields(), columns, rows).map_err(|_| FetchError::failed(UNFIT))?;
        self.rows = self.rows.saturating_add(batch.num_rows());
        self.bytes = self.bytes.saturating_add(batch_bytes(&batch));
        if self.rows > self.request.bounds.rows {
            return Err(too_many_rows(&self.request.bounds));
        }
        if self.bytes > self.request.bounds.bytes {
            return Err(too_many_bytes(&self.request.bounds));
        }
        if batch.num_rows() > 0 {
            self.batches.push(batch);
        }
        Ok(())
    }

    fn finish(self) -> Result<Batches, FetchError> {
        let schema = self.schema.unwrap_or_else(|| Arc::new(Schema::empty()));
        Ok(Batches::new(schema, self.batches).read_of(self.chunks))
    }
}

/// Returns a column as one of another type; `None` if a value has no place there, as a fraction among whole numbers.
fn fitted(column: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let there = cast_with_options(column, to, &options).ok()?;
    if column.data_type().is_floating() && to.is_integer() {
        let back = cast_with_options(&there, column.data_type(), &options).ok()?;
        return (back.as_ref() == column.as_ref()).then_some(there);
    }
    Some(there)
}

fn damaged<E>(_: E) -> FetchError {
    FetchError::failed("it is damaged")
}

/// The rows for which a test holds; nothing where its parameter is not given.
fn mask(
    batch: &RecordBatch,
    filter: &Filter,
    arguments: &Map<String, Value>,
) -> Result<Option<BooleanArray>, FetchError> {
    let unfit = || unfit(filter);
    if let Some(Value::Array(items)) = arguments.get(&filter.parameter) {
        return mask_of_list(batch, filter, items).map(Some);
    }
    let column = batch.column_by_name(&filter.column).ok_or_else(unfit)?;
    let Some(value) = given(filter, column.data_type(), arguments)? else { return Ok(None) };
    let compared = match filter.comparison {
        Comparison::Equal => arrow_ord::cmp::eq(column, &value),
        Comparison::NotEqual => arrow_ord::cmp::neq(column, &value),
        Comparison::Less => arrow_ord::cmp::lt(column, &value),
        Comparison::LessOrEqual => arrow_ord::cmp::lt_eq(column, &value),
        Comparison::Greater => arrow_ord::cmp::gt(column, &value),
        Comparison::GreaterOrEqual => arrow_ord::cmp::gt_eq(column, &value),
    };
    compared.map(Some).map_err(|_| unfit())
}

/// The rows whose value is one of a list, or none of it.
fn mask_of_list(batch: &RecordBatch, filter: &Filter, items: &[Value]) -> Result<BooleanArray, FetchError> {
    let unfit = || unfit(filter);
    let is_in = match filter.comparison {
        Comparison::Equal => true,
        Comparison::NotEqual => false,
        _ => return Err(unfit()),
    };
    let mut found = vec![!is_in; batch.num_rows()];
    for item in items {
        let one = Map::from_iter([(filter.parameter.clone(), item.clone())]);
        let Some(holds) = mask(batch, filter, &one)? else { continue };
        for (found, holds) in found.iter_mut().zip(&holds) {
            let holds = holds.unwrap_or_default();
            *found = if is_in { *found || holds } else { *found && holds };
        }
    }
    Ok(BooleanArray::from(found))
}

/// Returns the parameter's value for a test, cast to the type of the column. Returns `None` if the parameter is not given.
fn given(
    filter: &Filter,
    kind: &DataType,
    arguments: &Map<String, Value>,
) -> Result<Option<Scalar<ArrayRef>>, FetchError> {
    let value = match arguments.get(&filter.parameter) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => as_text(value),
    };
    let text: ArrayRef = Arc::new(StringArray::from(vec![value]));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let value = cast_with_options(&text, kind, &options).map_err(|_| unfit(filter))?;
    Ok(Some(Scalar::new(value)))
}

fn unfit(filter: &Filter) -> FetchError {
    FetchError::failed(format!("column `{}` cannot be compared with `{}`", filter.column, filter.parameter))
}
