//! Calls that every session answers itself, whatever it was granted: its disk usage, and files that the host writes or reads
//! for its cells within their own folders. They are calls of tools with names that begin with `cellar.`. No tool list has
//! them: the guests' own libraries make them.

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
    convert::{Compression, Direction, Format, Request, convert},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    contract::bridge::{CallError, CallErrorKind, CallFuture, Response},
    kernel::{calls::Site, origins::CellScope},
    session::Session,
};

/// Prefix of the names of the session's own calls.
pub(crate) const OWN: &str = "cellar.";
/// Bytes of the arguments of a conversion: two paths and a request. As values they would take many times that.
const CONVERSION_BYTES_MAX: usize = 128 << 10;
/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Arguments of a file conversion.
#[derive(Debug, Deserialize)]
struct Conversion {
    /// The file that is read.
    from: String,
    /// The file that is written.
    to: String,
    request: Request,
}

/// A dataset that a cell wants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    /// Its live name.
    name: String,
    /// The file that its columns are written to.
    to: String,
}

/// A table that a cell publishes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Publish {
    /// The live name of the dataset.
    name: String,
    /// The file that has its columns.
    from: String,
}

/// A chart that is to become a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drawing {
    /// The type of the specification.
    mime_type: String,
    /// The specification, in JSON.
    specification: String,
    /// `image/png` or `image/svg+xml`.
    wanted: String,
    /// The file that is written.
    to: String,
}

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
    /// Answers a call of a tool whose name goes on so behind [`OWN`]; `None` when the session knows no such call.
    pub(crate) fn call_own(&self, name: &str, arguments: &str, site: &Site) -> Option<CallFuture> {
        let session = self.clone();
        Some(match name {
            "disk" => Box::pin(std::future::ready(Ok(session.disk()))),
            "load" => {
                let scope = site.scope.clone();
                answer(name, arguments, move |asked| async move { session.load_dataset(asked, scope).await })
            }
            "publish" => {
                let caller = (site.scope.clone(), site.cell, site.lineage.agent().map(str::to_owned));
                answer(name, arguments, move |asked| async move { session.publish_dataset(asked, caller).await })
            }
            "convert" if arguments.len() > CONVERSION_BYTES_MAX => {
                let error = CallError::new(CallErrorKind::Limit, "the arguments are too large");
                Box::pin(std::future::ready(Err(error)))
            }
            "convert" => answer(name, arguments, move |asked| async move { session.convert(asked).await }),
            "draw" => answer(name, arguments, move |asked| async move { session.draw(asked).await }),
            _ => return None,
        })
    }

    /// Bytes that the session may write, and has written.
    fn disk(&self) -> Response {
        let (used, _) = self.inner.quota.usage();
        Response::Json(json!({"total": self.inner.quota.limits().bytes_max, "used": used}).to_string())
    }

    /// Makes one file of another. Both are reached as cells reach them.
    async fn convert(&self, asked: Conversion) -> Result<Value, CallError> {
        let Conversion { from, to, request } = asked;
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let mut files = self.files();
        let input = input(&mut files, &from)?;
        let mut out = Output { files, path: &to, file: None, bytes: 0 };
        let made = convert::<Fault>(&request, input, |piece| Ok(out.write(piece)?)).await;
        match made {
            Ok(()) => Ok(json!({"bytes": out.bytes})),
            Err(fault) => {
                out.remove();
                Err(match (fault, request.direction) {
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
    async fn load_dataset(&self, asked: Load, scope: Option<CellScope>) -> Result<Value, CallError> {
        let Load { name, to } = asked;
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
        let request = Request { direction: Direction::Read, format: Format::Parquet, columns: None, compression: None };
        let mut out = Output { files: self.files(), path: &to, file: None, bytes: 0 };
        if let Err(fault) = convert::<Fault>(&request, rows, |piece| Ok(out.write(piece)?)).await {
            out.remove();
            return Err(match fault {
                Fault::File(error) => failed(&to, "written", &error),
                Fault::Table(error) => failed(&version.name, "read", &error),
                Fault::Dataset(error) => refused(&error),
            });
        }
        let DatasetVersion { name, version, artifact, rows, .. } = version;
        if let Some(run) = run {
            run.note_dataset(DatasetRef { name: name.clone(), version, artifact: artifact.clone() });
        }
        Ok(json!({"name": name, "version": version, "artifact": artifact, "rows": rows}))
    }

    /// Publishes columns of a file as the next version of a dataset.
    async fn publish_dataset(
        &self,
        asked: Publish,
        (scope, cell, agent): (Option<CellScope>, CellId, Option<String>),
    ) -> Result<Value, CallError> {
        let Publish { name, from } = asked;
        if !self.inner.config.outputs.publish_datasets {
            let message = "cells of this session may not publish datasets; `publish = true` under [datasets] grants it";
            return Err(CallError::new(CallErrorKind::Denied, message));
        }
        let datasets = self.datasets()?;
        let turn = self.local::<Turn>();
        let _mine = turn.0.lock().await;
        let input = input(&mut self.files(), &from)?;
        let begun = tokio::task::spawn_blocking(move || datasets.writer(&name)).await;
        let mut writer = begun.map_err(|_| lost())?.map_err(|error| refused(&error))?;
        let compression = Some(Compression::Snappy);
        let request = Request { direction: Direction::Write, format: Format::Parquet, columns: None, compression };
        convert::<Fault>(&request, input, |piece| Ok(writer.write(piece)?)).await.map_err(|fault| match fault {
            Fault::Table(error) => failed(&from, "read", &error),
            Fault::File(error) => failed(&from, "read", &error),
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
        Ok(
            json!({"name": version.name, "version": version.version, "artifact": version.artifact, "rows": version.rows}),
        )
    }

    /// Draws a chart into a file.
    async fn draw(&self, asked: Drawing) -> Result<Value, CallError> {
        let Drawing { mime_type, specification, wanted, to } = asked;
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
        Ok(json!({"bytes": out.bytes}))
    }
}

/// Reads the arguments, and has the call answered.
fn answer<T, F>(name: &str, arguments: &str, call: impl FnOnce(T) -> F) -> CallFuture
where
    T: DeserializeOwned,
    F: Future<Output = Result<Value, CallError>> + Send + 'static,
{
    match serde_json::from_str::<T>(arguments) {
        Ok(asked) => {
            let answered = call(asked);
            Box::pin(async move { answered.await.map(|value| Response::Json(value.to_string())) })
        }
        Err(error) => {
            let message = format!("`{OWN}{name}` does not take these arguments: {error}");
            Box::pin(std::future::ready(Err(CallError::new(CallErrorKind::Invalid, message))))
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
