//! Fetches of connectors: asked once for the same arguments, kept as Parquet, and told in the fetch log.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::{event::Fetch, sync::lock, text::describe, time::wall_nanos};
use cellar_results::{
    artifacts::{ArtifactError, Description},
    tables::{Pieces, Tables},
};
use cellar_tables::{Batches, Columns, PARQUET_TYPE, TableError};
use futures::FutureExt;
use serde_json::{Map, Value};

use crate::{
    contract::bridge::{CallError, CallErrorKind, CallFuture, FetchName, FetchedTable, Response},
    kernel::{
        calls::{Begun, FetchKey, Kept, KeptRows, KeptSlot, UnderWay},
        state::KernelLink,
    },
    session::{
        Session,
        granted::{Bridges, Caller},
    },
};

/// Rows at each end of a table that the fetch log shows.
const SAMPLE_ROWS: usize = 5;
/// Timeout of storing the rows of a fetch.
const KEEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the arguments of a fetch.
const ARGUMENTS_BYTES_MAX: usize = 64 << 10;

/// Request of a cell for a fetch.
struct Asked {
    arguments: Map<String, Value>,
    /// True to query the source again although an earlier result is stored.
    refresh: bool,
}

/// Error of storing rows or of handing them to the guest.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl Session {
    /// Answers a fetch for a cell of the kernel with this link.
    pub(crate) fn call_fetch(
        &self,
        granted: &Arc<dyn Bridges>,
        link: &Arc<KernelLink>,
        name: FetchName,
        arguments: &str,
        refresh: bool,
        caller: Caller,
    ) -> Begun {
        // The fetches of a process are those of the kernel whose cell started it.
        let link = self.inner.role.process().map_or_else(|| link.clone(), |process| process.starter.clone());
        let (session, granted) = (self.clone(), granted.clone());
        let asked = read(&name, arguments).map(|arguments| Asked { arguments, refresh });
        let kept = KeptSlot::default();
        let slot = Arc::clone(&kept);
        let future = Box::pin(async move { session.fetch(granted, link, name, asked?, caller, &slot).await });
        Begun { kept: Some(kept), ..Begun::from(future as CallFuture) }
    }

    async fn fetch(
        &self,
        granted: Arc<dyn Bridges>,
        link: Arc<KernelLink>,
        name: FetchName,
        asked: Asked,
        caller: Caller,
        slot: &KeptSlot,
    ) -> Result<Response, CallError> {
        let given = FetchKey { name: name.clone(), arguments: Value::Object(asked.arguments.clone()).to_string() };
        let canonical = granted.fetch_arguments(&name, asked.arguments);
        let canonical = canonical.inspect_err(|error| note_failure(slot, &given, error, Duration::ZERO))?;
        let text = Value::Object(canonical.clone()).to_string();
        let FetchName { connector, fetch } = &name;
        let began = Instant::now();
        let under_way = lock(&link.memo).under_way(connector, fetch, &text).filter(|_| !asked.refresh);
        if let Some(under_way) = under_way {
            return hand_over(&name, under_way, Some(began), slot).await;
        }
        let known = lock(&link.memo).get(connector, fetch, &text).filter(|_| !asked.refresh).cloned();
        if let Some(known) = known
            && let Some(columns) = self.kept_columns(&known).await
        {
            let fetch = Fetch { is_cached: true, duration: began.elapsed(), ..known };
            return Ok(Response::Table(Box::new(FetchedTable { fetch, columns })));
        }
        let key = FetchKey { name: name.clone(), arguments: text };
        let ask = || self.ask_source(&granted, &link, &key, canonical, caller);
        // One that was begun before a refresh was asked for has older rows.
        let joined = if asked.refresh { None } else { lock(&link.memo).asked(&key) };
        let since = joined.is_some().then_some(began);
        let asking = joined.unwrap_or_else(|| {
            let asking = ask().boxed().shared();
            lock(&link.memo).ask(key.clone(), &asking);
            asking
        });
        match asking.await {
            Ok(under_way) => hand_over(&name, under_way, since, slot).await,
            Err(error) => {
                note_failure(slot, &key, &error, began.elapsed());
                Err(error)
            }
        }
    }

    /// Asks a source for rows, and has them stored meanwhile. The future may be polled by several that want the same rows.
    fn ask_source(
        &self,
        granted: &Arc<dyn Bridges>,
        link: &Arc<KernelLink>,
        key: &FetchKey,
        arguments: Map<String, Value>,
        caller: Caller,
    ) -> impl Future<Output = Result<UnderWay, CallError>> + Send + 'static {
        let (session, granted, link, key) = (self.clone(), granted.clone(), link.clone(), key.clone());
        async move {
            let (began, fetched_at) = (Instant::now(), asked_at());
            let rows = Arc::new(granted.fetch(&key.name, arguments, caller).await?);
            let (head, tail) = rows.sample(SAMPLE_ROWS).map_err(|error| unhandy(&key.name, &error))?;
            let fetch = Fetch {
                fetched_at,
                duration: began.elapsed(),
                rows: u64::try_from(rows.rows()).unwrap_or(u64::MAX),
                columns: rows.columns(),
                head: head.to_string(),
                tail: if tail.as_array().is_some_and(Vec::is_empty) { String::new() } else { tail.to_string() },
                ..key.fetch()
            };
            // The guest need not wait until the rows are on the disk.
            let kept = session.keep(&link, &fetch, Arc::clone(&rows));
            Ok(UnderWay { fetch, rows, kept })
        }
    }

    /// Starts a task that stores rows. Once they are stored, the kernel's memo has the fetch.
    fn keep(&self, link: &Arc<KernelLink>, fetch: &Fetch, rows: Arc<Batches>) -> KeptRows {
        let (tables, told, held) = (self.tables(), fetch.clone(), Arc::clone(&rows));
        let written = tokio::task::spawn_blocking(move || write(&tables, &told, &held));
        let (of, told) = (Arc::clone(link), fetch.clone());
        // What is under way is noted before it can end.
        let mut memo = lock(&link.memo);
        let kept = tokio::spawn(async move {
            let kept = match tokio::time::timeout(KEEP_TIMEOUT, written).await {
                Ok(Ok(Ok(id))) => Ok(id),
                // What the host says may name a folder of the host.
                Ok(Ok(Err(Fault::Artifact(ArtifactError::Io { source, .. })))) => Err(source.kind().to_string()),
                Ok(Ok(Err(fault))) => Err(describe(&fault)),
                Ok(Err(_)) => Err("they cannot be written".to_owned()),
                Err(_) => Err(format!("that took more than {} s", KEEP_TIMEOUT.as_secs())),
            };
            let kept = kept.map_err(|reason| format!("the rows were not kept: {reason}"));
            if let Err(notice) = &kept {
                tracing::warn!(notice, "a fetch was not kept");
            }
            lock(&of.memo).end(&told, kept.as_deref().ok());
            kept
        });
        let lost = |_| Err("the rows were not kept".to_owned());
        let kept = async move { kept.await.unwrap_or_else(lost) }.boxed().shared();
        memo.begin(UnderWay { fetch: fetch.clone(), rows, kept: kept.clone() });
        kept
    }

    /// The columns of an earlier fetch, where its rows are still kept and whole.
    async fn kept_columns(&self, known: &Fetch) -> Option<Columns> {
        let (tables, id) = (self.tables(), known.artifact.clone()?);
        let read = move || Batches::read_parquet(tables.artifacts().ok()?.read(&id).ok()?).ok()?.to_columns().ok();
        tokio::task::spawn_blocking(read).await.ok()?
    }
}

/// Hands rows over to a guest; `since` is the time of a call that did not ask the source itself.
async fn hand_over(
    name: &FetchName,
    under_way: UnderWay,
    since: Option<Instant>,
    slot: &KeptSlot,
) -> Result<Response, CallError> {
    let UnderWay { mut fetch, rows, kept } = under_way;
    let began = Instant::now();
    // What is kept is what is here.
    let _ = slot.set(Kept::Rows(kept));
    let columns = columns_of(name, rows).await?;
    fetch.is_cached = since.is_some();
    fetch.duration = since.map_or_else(|| fetch.duration.saturating_add(began.elapsed()), |since| since.elapsed());
    Ok(Response::Table(Box::new(FetchedTable { fetch, columns })))
}

/// Time now, in microseconds as nanoseconds since the Unix epoch.
fn asked_at() -> u64 {
    (wall_nanos() / 1_000).saturating_mul(1_000)
}

/// Notes a fetch that failed, for the fetch log.
fn note_failure(slot: &KeptSlot, key: &FetchKey, error: &CallError, duration: Duration) {
    let failed = Fetch { fetched_at: asked_at(), duration, error: Some(describe(error)), ..key.fetch() };
    let _ = slot.set(Kept::Failed(Box::new(failed)));
}

/// Rows as a guest takes them.
async fn columns_of(name: &FetchName, rows: Arc<Batches>) -> Result<Columns, CallError> {
    let columns = tokio::task::spawn_blocking(move || rows.to_columns()).await;
    let columns = columns.map_err(|_| failed("the rows could not be handed over".to_owned()))?;
    columns.map_err(|error| unhandy(name, &error))
}

/// Writes the rows of a fetch as an artifact, and returns its id. Waits for the disk.
fn write(tables: &Tables, fetch: &Fetch, rows: &Batches) -> Result<String, Fault> {
    let mut out = Pieces::new(tables.artifacts()?.writer()?);
    let written = rows.write_parquet(&mut out).map_err(Fault::from);
    let title = format!("{}.{} of {} rows", fetch.connector, fetch.fetch, fetch.rows);
    Ok(out.finish(written, Description { mime_type: PARQUET_TYPE, title: Some(&title) })?.id)
}

/// Error for rows that cannot be converted to what a guest accepts.
fn unhandy(name: &FetchName, error: &TableError) -> CallError {
    failed(format!("{name}: {}", describe(error)))
}

fn read(name: &FetchName, arguments: &str) -> Result<Map<String, Value>, CallError> {
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
