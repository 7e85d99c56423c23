//! Calls that every session answers itself, whatever it was granted: its disk usage, and the interface `tables`: files that the
//! host writes or reads for its cells within their own folders.

use std::{fs::File, path::Path, sync::Arc};

use cellar_core::{
    cell::CellId,
    mime::{MimeBundle, MimeData},
    origin::DatasetRef,
    sync::lock,
};
use cellar_files::{Descriptor, FileError, Files, OpenHow, ROOT};
use cellar_results::artifacts::{
    ArtifactError, ArtifactStore,
    datasets::{DatasetError, DatasetVersion, Datasets, Publication},
};
use cellar_tables::{
    TableError,
    convert::{self as conversions, Request, convert},
};

use serde_json::{Value, json};

use crate::{
    contract::bridge::{
        CallError, CallErrorKind, CallFuture, Compression, Conversion, DatasetRows, Direction, DiskUsage, Drawing,
        Format, LoadedDataset, Response, TableCall,
    },
    kernel::{calls::Site, origins::CellScope, state::KernelLink},
    session::Session,
};

/// Bytes of the texts of a conversion: two paths and names of columns.
const CONVERSION_BYTES_MAX: usize = 128 << 10;
/// Bytes of the rows of a dataset that are lent to a guest.
const LENT_BYTES_MAX: usize = 256 << 20;
/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// One file of tables at a time for a session and all that its cells make of it: the program converts a few at a time.
#[derive(Debug, Default)]
struct Turn(tokio::sync::Mutex<()>);

/// Maker of a dataset.
struct Publisher {
    scope: Option<CellScope>,
    cell: CellId,
    agent: Option<String>,
    /// Link of its kernel.
    link: Arc<KernelLink>,
}

/// Error of making a file.
enum Fault {
    Table(TableError),
    File(FileError),
    Dataset(DatasetError),
}

impl From<DatasetError> for Fault {
    fn from(error: DatasetError) -> Fault {
        Fault::Dataset(error)
    }
}

impl From<TableError> for Fault {
    fn from(error: TableError) -> Fault {
        Fault::Table(error)
    }
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Fault {
        Fault::File(error)
    }
}

impl Session {
    /// Bytes that the session may write, and has written.
    pub(crate) fn call_disk(&self) -> CallFuture {
        let (used, _) = self.inner.quota.usage();
        let usage = DiskUsage { total: self.inner.quota.limits().bytes_max, used };
        Box::pin(std::future::ready(Ok(Response::Disk(usage))))
    }

    /// Answers a call of the interface `tables`.
    pub(crate) fn call_table(&self, call: TableCall, site: &Site, link: &Arc<KernelLink>) -> CallFuture {
        let session = self.clone();
        let scope = site.scope.clone();
        let by = Publisher {
            scope: scope.clone(),
            cell: site.cell,
            agent: site.lineage.agent().map(str::to_owned),
            link: link.clone(),
        };
        Box::pin(async move {
            match call {
                TableCall::Convert(conversion) => session.convert(conversion).await,
                TableCall::Load { name, version, target } => {
                    session.load_dataset((name, version), &target, scope).await
                }
                TableCall::Read { name, version } => session.read_dataset((name, version), scope).await,
                TableCall::List { name } => session.list_datasets(name, scope).await,
                TableCall::Publish { name, source, read } => session.publish_dataset(name, &source, &read, by).await,
                TableCall::Draw(drawing) => session.draw(drawing).await,
            }
        })
    }

    /// Makes one file of another. Both are reached as cells reach them.
    async fn convert(&self, conversion: Conversion) -> Result<Response, CallError> {
        let Conversion { source: from, target: to, direction, format, columns, compression } = conversion;
        let names = columns.iter().flatten().map(String::len);
        if names.fold(from.len().saturating_add(to.len()), usize::saturating_add) > CONVERSION_BYTES_MAX {
            return Err(CallError::new(CallErrorKind::Limit, "the arguments are too large"));
        }
        let request = Request {
            direction: direction.into(),
            format: format.into(),
            columns,
            compression: compression.map(Into::into),
        };
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let mut files = self.files();
        let input = input(&mut files, &from)?;
        let mut out = Output { files, path: &to, file: None, bytes: 0 };
        let made = convert::<Fault>(&request, input, |piece| Ok(out.write(piece)?)).await;
        match made {
            Ok(()) => Ok(Response::Written(out.bytes)),
            Err(fault) => {
                out.remove();
                Err(match (fault, direction) {
                    (Fault::Dataset(error), _) => refused(&error),
                    (Fault::File(error), _) => failed(&to, "written", &error),
                    (Fault::Table(error), Direction::Read) => failed(&from, "read", &error),
                    (Fault::Table(error), Direction::Write) => failed(&to, "written", &error),
                })
            }
        }
    }

    /// The datasets that its cells reach.
    fn datasets(&self) -> Result<Datasets, CallError> {
        let store = self.inner.config.outputs.artifacts.as_ref().filter(|store| !store.is_temporary());
        let store = store.map(ArtifactStore::datasets);
        store.ok_or_else(|| {
            let message = "this session has no store that datasets could be in; give it one, as --session does";
            CallError::new(CallErrorKind::Denied, message)
        })
    }

    /// Opens a version of a dataset, or the latest one, for a cell of this scope.
    async fn open_dataset(
        &self,
        (name, version): (String, Option<u64>),
        scope: Option<&CellScope>,
    ) -> Result<(DatasetVersion, File), CallError> {
        let datasets = self.datasets()?;
        let is_seen = scope.is_none_or(|scope| scope.run.has_seen(&name));
        let open = move || {
            // A name that there is none of is told to be unknown, whoever has seen what.
            let version = datasets.get(&name, version)?;
            if is_seen { datasets.open(&name, Some(version.version)) } else { Err(DatasetError::Unseen { name }) }
        };
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(|_| lost())?.map_err(|error| refused(&error))
    }

    /// Lends the rows of a version of a dataset to a cell.
    async fn read_dataset(
        &self,
        wanted: (String, Option<u64>),
        scope: Option<CellScope>,
    ) -> Result<Response, CallError> {
        let (version, file) = self.open_dataset(wanted, scope.as_ref()).await?;
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let mut columns = Vec::new();
        let request = as_columns();
        let taken = convert::<Fault>(&request, file, |piece| {
            if columns.len().saturating_add(piece.len()) > LENT_BYTES_MAX {
                return Err(Fault::Table(TableError::TooLarge));
            }
            columns.extend_from_slice(piece);
            Ok(())
        });
        match taken.await {
            Ok(()) => {}
            Err(Fault::Dataset(error)) => return Err(refused(&error)),
            Err(Fault::File(error)) => return Err(failed(&version.name, "read", &error)),
            Err(Fault::Table(error)) => return Err(failed(&version.name, "read", &error)),
        }
        note_loaded(scope.as_ref(), &version);
        Ok(Response::Rows(Box::new(DatasetRows { rows: version.rows, columns: columns.into() })))
    }

    /// Lists the datasets that a cell of this scope may load, or the versions of one.
    async fn list_datasets(&self, name: Option<String>, scope: Option<CellScope>) -> Result<Response, CallError> {
        let datasets = self.datasets()?;
        let list = move || match name {
            Some(name) => datasets.versions(&name),
            None => datasets.list(),
        };
        let listed = tokio::task::spawn_blocking(list).await;
        let mut listed = listed.map_err(|_| lost())?.map_err(|error| refused(&error))?;
        listed.retain(|version| scope.as_ref().is_none_or(|scope| scope.run.has_seen(&version.name)));
        Ok(Response::Json(Value::from_iter(listed.iter().map(description)).to_string()))
    }

    /// Hands a version of a dataset to a cell, as columns in a file.
    async fn load_dataset(
        &self,
        wanted: (String, Option<u64>),
        to: &str,
        scope: Option<CellScope>,
    ) -> Result<Response, CallError> {
        let (version, rows) = self.open_dataset(wanted, scope.as_ref()).await?;
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let mut out = Output { files: self.files(), path: to, file: None, bytes: 0 };
        if let Err(fault) = convert::<Fault>(&as_columns(), rows, |piece| Ok(out.write(piece)?)).await {
            out.remove();
            return Err(match fault {
                Fault::File(error) => failed(to, "written", &error),
                Fault::Table(error) => failed(&version.name, "read", &error),
                Fault::Dataset(error) => refused(&error),
            });
        }
        note_loaded(scope.as_ref(), &version);
        let DatasetVersion { name, version, artifact, rows, .. } = version;
        Ok(Response::Dataset(LoadedDataset { name, version, artifact, rows }))
    }

    /// Publishes columns of a file as the next version of a dataset. In a dry run they are checked, and nothing is published.
    async fn publish_dataset(
        &self,
        name: String,
        from: &str,
        read: &[String],
        by: Publisher,
    ) -> Result<Response, CallError> {
        let Publisher { scope, cell, agent, link } = by;
        if !self.inner.config.outputs.publish_datasets {
            let message = "cells of this session may not publish datasets; `publish = true` under [datasets] grants it";
            return Err(CallError::new(CallErrorKind::Denied, message));
        }
        let datasets = self.datasets()?;
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let input = input(&mut self.files(), from)?;
        let begun = tokio::task::spawn_blocking(move || datasets.writer(&name)).await;
        let mut writer = begun.map_err(|_| lost())?.map_err(|error| refused(&error))?;
        let (direction, compression) = (conversions::Direction::Write, Some(conversions::Compression::Snappy));
        let request = Request { direction, format: conversions::Format::Parquet, columns: None, compression };
        convert::<Fault>(&request, input, |piece| Ok(writer.write(piece)?)).await.map_err(|fault| match fault {
            Fault::Table(error) => failed(from, "read", &error),
            Fault::File(error) => failed(from, "read", &error),
            Fault::Dataset(error) => refused(&error),
        })?;
        if scope.as_ref().is_some_and(|scope| scope.run.is_dry()) {
            // The number that it would have got, so that the cell goes on as it would.
            let version = tokio::task::spawn_blocking(move || writer.forgo()).await;
            let (name, version) = version.map_err(|_| lost())?.map_err(|error| refused(&error))?;
            return Ok(Response::Dataset(LoadedDataset { name, version, artifact: String::new(), rows: 0 }));
        }
        let origin = scope.as_ref().and_then(|scope| {
            let origins = lock(&link.origins);
            let known = origins.as_ref();
            let derived_from = known.map(|known| known.derived_from(read)).unwrap_or_default();
            let origin = scope.run.origin(cell.0, scope.language, derived_from)?;
            Some(known.map_or_else(|| origin.clone(), |known| known.with_sources(&origin)))
        });
        let publisher = origin.as_ref().map(|origin| origin.producer.clone()).or(agent);
        let publisher = publisher.unwrap_or_else(|| self.id().to_owned());
        let publication = Publication { publisher, origin, keep: None };
        let published = tokio::task::spawn_blocking(move || writer.publish(publication)).await;
        let version = published.map_err(|_| lost())?.map_err(|error| refused(&error))?;
        if let Some(scope) = scope {
            scope.run.note_published(&version.name);
        }
        let DatasetVersion { name, version, artifact, rows, .. } = version;
        Ok(Response::Dataset(LoadedDataset { name, version, artifact, rows }))
    }

    /// Draws a chart into a file.
    async fn draw(&self, drawing: Drawing) -> Result<Response, CallError> {
        let Drawing { mime_type, specification, wanted, target: to } = drawing;
        let bundle = MimeBundle(vec![(mime_type, MimeData::Text(specification))]);
        let renderer = self.renderers().iter().find_map(|renderer| renderer.render(&bundle));
        let Some(rendering) = renderer else {
            return Err(CallError::new(CallErrorKind::Failed, "this host draws no such charts".to_owned()));
        };
        let rendered = rendering.await;
        let bytes = match rendered.data.get(&wanted) {
            Some(MimeData::Text(text)) => text.as_bytes(),
            Some(MimeData::Binary(bytes)) => bytes,
            None => {
                let reason = rendered.error.map_or_else(
                    || format!("it is not made as {wanted}"),
                    |error| format!("{}: {}", error.name, error.message),
                );
                return Err(CallError::new(CallErrorKind::Failed, format!("the chart cannot be drawn: {reason}")));
            }
        };
        let mut out = Output { files: self.files(), path: &to, file: None, bytes: 0 };
        let written = bytes.chunks(PIECE_BYTES).try_for_each(|piece| out.write(piece));
        written.map_err(|error| failed(&to, "written", &error))?;
        Ok(Response::Written(out.bytes))
    }
}

impl From<Direction> for conversions::Direction {
    fn from(direction: Direction) -> conversions::Direction {
        match direction {
            Direction::Read => conversions::Direction::Read,
            Direction::Write => conversions::Direction::Write,
        }
    }
}

impl From<Format> for conversions::Format {
    fn from(format: Format) -> conversions::Format {
        match format {
            Format::Parquet => conversions::Format::Parquet,
            Format::Feather => conversions::Format::Feather,
        }
    }
}

impl From<Compression> for conversions::Compression {
    fn from(compression: Compression) -> conversions::Compression {
        match compression {
            Compression::Snappy => conversions::Compression::Snappy,
            Compression::Gzip => conversions::Compression::Gzip,
            Compression::Zstd => conversions::Compression::Zstd,
            Compression::Lz4 => conversions::Compression::Lz4,
        }
    }
}

/// Conversion of the rows of a dataset to columns for guests.
fn as_columns() -> Request {
    let direction = conversions::Direction::Read;
    Request { direction, format: conversions::Format::Parquet, columns: None, compression: None }
}

/// Notes that a cell was given a version of a dataset.
fn note_loaded(scope: Option<&CellScope>, version: &DatasetVersion) {
    if let Some(scope) = scope {
        let DatasetVersion { name, version, artifact, .. } = version.clone();
        scope.run.note_dataset(&DatasetRef { name, version, artifact });
    }
}

/// Description of a version for cells.
fn description(version: &DatasetVersion) -> Value {
    json!({
        "name": version.name,
        "version": version.version,
        "rows": version.rows,
        "columns": version.columns.iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect::<Vec<_>>(),
        "column_count": version.column_count,
        "size_bytes": version.size_bytes,
        "publisher": version.publisher,
        "published_at": version.published_at / 1_000_000,
        "producer": version.origin.as_ref().map(|origin| &origin.producer),
    })
}

fn refused(error: &DatasetError) -> CallError {
    let kind = match error {
        DatasetError::Unknown { .. } | DatasetError::Ambiguous { .. } | DatasetError::NoVersion { .. } => {
            CallErrorKind::Unknown
        }
        DatasetError::Name(_) => CallErrorKind::Invalid,
        DatasetError::Unseen { .. } => CallErrorKind::Denied,
        _ => CallErrorKind::Failed,
    };
    let message = match error {
        // What the host says may name a folder of the host.
        DatasetError::Artifact(ArtifactError::Io { source, .. }) => {
            format!("the store of datasets cannot be used: {}", source.kind())
        }
        error => cellar_core::text::describe(error),
    };
    CallError::new(kind, message)
}

fn lost() -> CallError {
    CallError::new(CallErrorKind::Failed, "the store of datasets did not answer")
}

/// Opens a file of the session as its cells reach it.
fn input(files: &mut Files, path: &str) -> Result<File, CallError> {
    let read = OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() };
    let file = files.open(ROOT, path, read).and_then(|file| files.share(file));
    file.map_err(|error| failed(path, "read", &error))
}

fn failed(path: &str, doing: &str, error: &dyn std::error::Error) -> CallError {
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    let why = cellar_core::text::describe(error);
    CallError::new(CallErrorKind::Failed, format!("`{name}` cannot be {doing}: {why}"))
}

/// A file that is made when the first of it comes.
struct Output<'a> {
    files: Files,
    path: &'a str,
    file: Option<Descriptor>,
    bytes: u64,
}

impl Output<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        let how = OpenHow { write: true, create: true, truncate: true, follow_symlinks: true, ..OpenHow::default() };
        let file = match self.file {
            Some(file) => file,
            None => *self.file.insert(self.files.open(ROOT, self.path, how)?),
        };
        while !bytes.is_empty() {
            let written = self.files.write(file, self.bytes, bytes)?;
            let count = usize::try_from(written).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(count..).filter(|_| count > 0) else { return Err(FileError::Io) };
            bytes = rest;
            self.bytes = self.bytes.saturating_add(u64::from(written));
        }
        Ok(())
    }

    /// Leaves nothing of a file that was begun.
    fn remove(mut self) {
        if let Some(file) = self.file.take() {
            // What cannot be removed stays as it is: the call has failed anyway.
            let _ = self.files.close(file).and_then(|()| self.files.remove_file(ROOT, self.path));
        }
    }
}
