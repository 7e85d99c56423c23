//! Fetches of connectors: asked once for the same arguments, kept as Parquet, and told in the fetch log.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::{event::Fetch, sync::lock, text::describe, time::wall_nanos};
use cellar_results::{
    artifacts::{ArtifactError, Description},
    tables::Pieces,
};
use cellar_tables::{Batches, PARQUET_TYPE, TableError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Session,
    granted::{Bridges, Caller},
};
use crate::{
    contract::bridge::{CallError, CallErrorKind, CallFuture, FetchedTable, Response},
    kernel::state::KernelLink,
};

/// Rows at each end of a table that the fetch log shows.
const SAMPLE_ROWS: usize = 5;
/// Bytes of the arguments of a fetch.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

/// What a cell asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    arguments: Map<String, Value>,
    /// The source is asked although it was before.
    #[serde(default)]
    refresh: bool,
}

/// Why rows could not be kept, or not be handed over.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl Session {
    /// Answers a fetch for a cell of the kernel with this link.
    pub(super) fn call_fetch(
        &self,
        granted: &Arc<dyn Bridges>,
        link: &Arc<KernelLink>,
        name: String,
        arguments: &str,
        caller: Caller,
    ) -> CallFuture {
        let (session, granted, link) = (self.clone(), granted.clone(), link.clone());
        let asked = read(&name, arguments);
        Box::pin(async move { session.fetch(granted, link, name, asked?, caller).await })
    }

    async fn fetch(
        &self,
        granted: Arc<dyn Bridges>,
        link: Arc<KernelLink>,
        name: String,
        asked: Asked,
        caller: Caller,
    ) -> Result<Response, CallError> {
        let canonical = granted.fetch_arguments(&name, asked.arguments)?;
        let text = Value::Object(canonical.clone()).to_string();
        let (connector, fetch) = name.split_once('.').unwrap_or((&name, ""));
        let (began, fetched_at) = (Instant::now(), wall_nanos() / 1_000 * 1_000);
        let known = lock(&link.memo).get(connector, fetch, &text).filter(|_| !asked.refresh).cloned();
        if let Some(known) = known
            && let Some(columns) = self.kept_columns(&known).await
        {
            let fetch = Fetch { is_cached: true, duration: began.elapsed(), ..known };
            return Ok(Response::Table(Box::new(FetchedTable { fetch, columns })));
        }
        let rows = granted.fetch(&name, canonical, caller).await?;
        let fetch = Fetch {
            connector: connector.to_owned(),
            fetch: fetch.to_owned(),
            arguments: text,
            fetched_at,
            is_cached: false,
            duration: Duration::ZERO,
            rows: u64::try_from(rows.rows()).unwrap_or(u64::MAX),
            columns: rows.columns(),
            head: String::new(),
            tail: String::new(),
            artifact: None,
            notice: None,
        };
        let session = self.clone();
        let handed = tokio::task::spawn_blocking(move || session.hand_over(fetch, &rows)).await;
        let made = handed.map_err(|_| failed("the rows could not be handed over".to_owned()))?;
        let mut table = made.map_err(|fault| failed(format!("{name}: {}", describe(&fault))))?;
        table.fetch.duration = began.elapsed();
        lock(&link.memo).put(&table.fetch);
        Ok(Response::Table(Box::new(table)))
    }

    /// Keeps rows, and makes of them what a guest takes. Waits for the disk.
    fn hand_over(&self, mut fetch: Fetch, rows: &Batches) -> Result<FetchedTable, Fault> {
        let (head, tail) = rows.sample(SAMPLE_ROWS)?;
        fetch.head = head.to_string();
        fetch.tail = if tail.as_array().is_some_and(Vec::is_empty) { String::new() } else { tail.to_string() };
        // What is told of the fetch is for people and models; the rows themselves follow.
        let (kept, columns) = std::thread::scope(|scope| {
            let kept = scope.spawn(|| self.keep(&fetch, rows));
            let columns = rows.to_columns();
            (kept.join(), columns)
        });
        match kept {
            Ok(Ok(id)) => fetch.artifact = Some(id),
            // What the host says may name a folder of the host.
            Ok(Err(Fault::Artifact(ArtifactError::Io { source, .. }))) => {
                fetch.notice = Some(format!("the rows were not kept: {}", source.kind()));
            }
            Ok(Err(fault)) => fetch.notice = Some(format!("the rows were not kept: {}", describe(&fault))),
            Err(_) => fetch.notice = Some("the rows were not kept".to_owned()),
        }
        if let Some(notice) = &fetch.notice {
            tracing::warn!(notice, "a fetch was not kept");
        }
        Ok(FetchedTable { columns: columns?, fetch })
    }

    fn keep(&self, fetch: &Fetch, rows: &Batches) -> Result<String, Fault> {
        let mut out = Pieces::new(self.tables().artifacts()?.writer()?);
        let written = rows.write_parquet(&mut out).map_err(Fault::from);
        let title = format!("{}.{} of {} rows", fetch.connector, fetch.fetch, fetch.rows);
        Ok(out.finish(written, Description { mime_type: PARQUET_TYPE, title: Some(&title) })?.id)
    }

    /// The columns of an earlier fetch, where its rows are still kept and whole.
    async fn kept_columns(&self, known: &Fetch) -> Option<Vec<u8>> {
        let (tables, id) = (self.tables(), known.artifact.clone()?);
        let read = move || Batches::read_parquet(tables.artifacts().ok()?.read(&id).ok()?).ok()?.to_columns().ok();
        tokio::task::spawn_blocking(read).await.ok()?
    }
}

fn read(name: &str, arguments: &str) -> Result<Asked, CallError> {
    if arguments.len() > ARGUMENTS_BYTES_MAX {
        let message =
            format!("{name}: the arguments have {} bytes, at most {ARGUMENTS_BYTES_MAX} are allowed", arguments.len());
        return Err(CallError::new(CallErrorKind::Limit, message));
    }
    serde_json::from_str(arguments).map_err(|error| {
        CallError::new(CallErrorKind::Invalid, format!("{name} does not take these arguments: {error}"))
    })
}

fn failed(message: String) -> CallError {
    CallError::new(CallErrorKind::Failed, message)
}
