//! Calls that every session answers itself, whatever it was granted: its disk usage, and the interface `tables`: files that the
//! host writes or reads for its cells within their own folders.

use std::{fs::File, path::Path};

use cellar_core::{
    cell::CellId,
    mime::{MimeBundle, MimeData},
    origin::DatasetRef,
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

use crate::{
    contract::bridge::{
        CallError, CallErrorKind, CallFuture, Compression, Conversion, Direction, DiskUsage, Drawing, Format,
        LoadedDataset, Response, TableCall,
    },
    kernel::{calls::Site, origins::CellScope},
    session::Session,
};

/// Bytes of the texts of a conversion: two paths and names of columns.
const CONVERSION_BYTES_MAX: usize = 128 << 10;
/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// One file of tables at a time for a session and all that its cells make of it: the program converts a few at a time.
#[derive(Debug, Default)]
struct Turn(tokio::sync::Mutex<()>);

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
    pub(crate) fn call_table(&self, call: TableCall, site: &Site) -> CallFuture {
        let session = self.clone();
        let scope = site.scope.clone();
        let (cell, agent) = (site.cell, site.lineage.agent().map(str::to_owned));
        Box::pin(async move {
            match call {
                TableCall::Convert(conversion) => session.convert(conversion).await,
                TableCall::Load { name, target } => session.load_dataset(name, &target, scope).await,
                TableCall::Publish { name, source } => {
                    session.publish_dataset(name, &source, (scope, cell, agent)).await
                }
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

    /// Hands the latest version of a dataset to a cell, as columns in a file.
    async fn load_dataset(&self, name: String, to: &str, scope: Option<CellScope>) -> Result<Response, CallError> {
        let datasets = self.datasets()?;
        let run = scope.as_ref().map(|scope| scope.run.clone());
        let is_seen = run.as_ref().is_none_or(|run| run.has_seen(&name));
        let open = move || {
            // A name that there is none of is told to be unknown, whoever has seen what.
            let version = datasets.get(&name, None)?;
            if is_seen { datasets.open(&name, Some(version.version)) } else { Err(DatasetError::Unseen { name }) }
        };
        let opened = tokio::task::spawn_blocking(open).await;
        let (version, rows) = opened.map_err(|_| lost())?.map_err(|error| refused(&error))?;
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let direction = conversions::Direction::Read;
        let request = Request { direction, format: conversions::Format::Parquet, columns: None, compression: None };
        let mut out = Output { files: self.files(), path: to, file: None, bytes: 0 };
        if let Err(fault) = convert::<Fault>(&request, rows, |piece| Ok(out.write(piece)?)).await {
            out.remove();
            return Err(match fault {
                Fault::File(error) => failed(to, "written", &error),
                Fault::Table(error) => failed(&version.name, "read", &error),
                Fault::Dataset(error) => refused(&error),
            });
        }
        let DatasetVersion { name, version, artifact, rows, .. } = version;
        if let Some(run) = run {
            run.note_dataset(DatasetRef { name: name.clone(), version, artifact: artifact.clone() });
        }
        Ok(Response::Dataset(LoadedDataset { name, version, artifact, rows }))
    }

    /// Publishes columns of a file as the next version of a dataset.
    async fn publish_dataset(
        &self,
        name: String,
        from: &str,
        (scope, cell, agent): (Option<CellScope>, CellId, Option<String>),
    ) -> Result<Response, CallError> {
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
        let origin = scope.as_ref().and_then(|scope| scope.run.origin(cell.0, scope.language));
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

fn refused(error: &DatasetError) -> CallError {
    let kind = match error {
        DatasetError::Unknown { .. } | DatasetError::Ambiguous { .. } => CallErrorKind::Unknown,
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
