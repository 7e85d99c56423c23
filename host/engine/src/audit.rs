//! The audit log: who ran which code, with which grants, what it called, how it ended.
//!
//! A run writes an entry before its first cell begins and one when it has ended or was dropped; each bridge call
//! writes one when it has ended. Entries have digests, names, sizes and times, and nothing that cells or bridges say.
//! What cannot be logged is not done; see [`AuditSink`]. Read [`AuditEntry`] first.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cellar_core::{
    cell::RunId,
    limits::Limits,
    outcome::{Outcome, Usage},
    text::hex,
    time::wall_nanos,
};
use cellar_files::{Access, Mount};
use chrono::{DateTime, SecondsFormat};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::contract::bridge::{BridgeGrants, CallResult, Response};

mod file;
mod open;

pub use file::AuditFile;
pub(crate) use open::{CalledAs, OpenCalls};

/// Bytes of the name of what was called; a cell may call anything by any name.
const NAME_BYTES_MAX: u64 = 256;

/// Where entries go.
///
/// An audit log that loses entries is none. So a run whose first entry cannot be written does not begin: its first cell
/// fails. While the last entry could not be written, every call is refused, until the entry of one of these refusals can be
/// written. A call whose entry cannot be written fails, though it was made; a run whose last entry cannot be written ends
/// as failed, with the status event `audit_lost`. Entries that were lost go to the host's log.
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Writes an entry so that it outlives this process, before it returns. Called on a thread that may block, but for the
    /// last entry of a run that is dropped: that one holds up whoever drops it.
    ///
    /// # Errors
    /// The entry is not in the log.
    fn write(&self, entry: &AuditEntry) -> io::Result<()>;

    /// The file that it writes, if it is one on this machine: no session is opened whose cells could change it.
    fn path(&self) -> Option<&Path> {
        None
    }
}

/// How sessions are audited: where to, and in whose name.
#[derive(Clone, Debug)]
pub struct Audit {
    sink: Arc<dyn AuditSink>,
    /// The last entry could not be written.
    is_failing: Arc<AtomicBool>,
    /// Whoever the session works for, as the embedder knows them.
    pub actor: Option<String>,
    /// Whose quota and grants apply.
    pub tenant: Option<String>,
}

impl Audit {
    /// Audits to this sink. Clones of it know of one another's failures.
    pub fn to(sink: impl AuditSink + 'static) -> Audit {
        Audit { sink: Arc::new(sink), is_failing: Arc::default(), actor: None, tenant: None }
    }

    /// The file that it writes, if it is one.
    pub fn path(&self) -> Option<&Path> {
        self.sink.path()
    }
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// When it was written, by the host's clock, in UTC (RFC 3339).
    pub time: String,
    /// The session.
    pub session: String,
    /// Whoever the session works for, if the host says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Whose quota and grants apply, if the host says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The run; absent for calls by code whose run is gone, or by none: a session's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub kind: AuditKind,
}

/// What an entry tells of.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "an entry is written and dropped")]
#[non_exhaustive]
pub enum AuditKind {
    /// A run is about to begin.
    RunStarted(RunStarted),
    /// A bridge call ended.
    Call(CallEntry),
    /// A run ended.
    RunFinished(RunFinished),
}

/// What is about to run, and what it may do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// Its cells, in order.
    pub cells: Vec<CellAsked>,
    /// Whether later cells run although one failed.
    pub keep_going: bool,
    /// Agents between the session's owner and the run.
    pub depth: u32,
    /// The type of the agent that makes the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The call of that agent, where it was called in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<CallSite>,
    /// What its cells may reach and use.
    pub grants: Grants,
}

/// A cell as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellAsked {
    /// Place in its run, from 0.
    pub index: usize,
    /// `py` or `js`.
    pub language: String,
    /// SHA-256 of its source.
    pub code_sha256: String,
    /// Bytes of its source.
    pub code_bytes: usize,
    /// Whether its language is reset before it.
    pub reset: bool,
}

/// A bridge call by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallSite {
    /// The cell that made it.
    pub cell: u32,
    /// Its number in the cell's kernel.
    pub call: u64,
}

/// What cells of a session may reach and use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grants {
    /// Folders.
    pub folders: Vec<FolderGrant>,
    /// What cells may call.
    #[serde(flatten)]
    pub bridges: BridgeGrants,
    /// Whether requests for input are answered.
    pub input: bool,
    /// Names of the environment variables that cells see.
    pub environment: Vec<String>,
    /// Sources that fresh kernels run before any cell: the language, and SHA-256.
    pub seeds: Vec<SeedGrant>,
    /// Whether each cell has a kernel of its own.
    pub per_call: bool,
    /// Bounds.
    pub limits: LimitGrants,
}

/// A folder that cells see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FolderGrant {
    /// Where it is on the host; absent for a private folder of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Where cells see it.
    pub guest: String,
    /// Whether cells may write to it.
    pub write: bool,
}

impl From<&Mount> for FolderGrant {
    fn from(mount: &Mount) -> FolderGrant {
        FolderGrant {
            host: Some(mount.host.display().to_string()),
            guest: mount.guest.clone(),
            write: mount.access == Access::ReadWrite,
        }
    }
}

/// What a language's kernels begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeedGrant {
    /// `py` or `js`.
    pub language: String,
    /// SHA-256 of its source.
    pub code_sha256: String,
    /// Names that it binds.
    pub bindings: Vec<String>,
}

/// Bounds of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitGrants {
    /// Time of a cell that asks for none.
    pub timeout_ms: u64,
    /// The longest that a cell may ask for.
    pub timeout_max_ms: u64,
    /// Time between the soft and the hard stop.
    pub grace_ms: u64,
    /// Instructions of a cell; absent when they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Memory of a kernel.
    pub memory_bytes: u64,
    /// Text of a cell.
    pub output_bytes: u64,
    /// One displayed value.
    pub display_bytes: usize,
    /// Calls at the same time.
    pub calls_in_flight: usize,
    /// Forks at the same time.
    pub forks: usize,
    /// What the session may add to its folders.
    pub disk_bytes: u64,
    /// Files and folders it may create.
    pub disk_files: u64,
    /// Open files of a kernel.
    pub descriptors: u32,
}

impl From<&Limits> for LimitGrants {
    fn from(limits: &Limits) -> LimitGrants {
        // Without `..`, so that a new limit cannot be forgotten here.
        let Limits {
            timeout,
            timeout_max,
            grace,
            fuel,
            memory_bytes,
            output_bytes,
            display_bytes,
            calls_in_flight,
            forks,
            disk_bytes,
            disk_files,
            descriptors,
        } = limits.clone();
        LimitGrants {
            timeout_ms: millis(timeout),
            timeout_max_ms: millis(timeout_max),
            grace_ms: millis(grace),
            fuel,
            memory_bytes,
            output_bytes,
            display_bytes,
            calls_in_flight,
            forks,
            disk_bytes,
            disk_files,
            descriptors,
        }
    }
}

/// A bridge call that ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallEntry {
    /// The cell that made it; a task may outlive its cell. Absent for a session's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// Its number in the cell's kernel.
    pub call: u64,
    /// `tool`, `llm`, `agent`, `input` or `http`.
    pub bridge: String,
    /// The tool, the tier, the type of agent, or the method and URL of a request without its query.
    pub name: String,
    /// `ok`, or the class of the error: `failed`, `denied`, `unknown`, `invalid`, `cancelled`, `limit`.
    pub outcome: String,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Bytes of its arguments.
    pub request_bytes: usize,
    /// Bytes of its answer; none for an error.
    pub response_bytes: usize,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunFinished {
    /// `complete`, `error`, or `cancelled` when nobody read it to its end.
    pub outcome: String,
    /// From its first entry, in milliseconds.
    pub duration_ms: f64,
    /// The cells that began, in order.
    pub cells: Vec<CellRan>,
    /// Bridge calls that its cells made while it was read.
    pub calls: u64,
    /// Those that came back with an error.
    pub calls_failed: u64,
}

/// How a cell ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellRan {
    /// Place in its run, from 0.
    pub index: usize,
    /// Its number in the session; absent when it never got a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// SHA-256 of its source.
    pub code_sha256: String,
    /// `complete`, `exited`, the kind of its error (`raised`, `timeout`, …), or `cancelled` when nobody waited for its end.
    pub outcome: String,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Instructions, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Processor time, in milliseconds.
    pub cpu_ms: f64,
    /// The largest memory of its kernel so far.
    pub memory_peak_bytes: u64,
}

impl CellRan {
    /// A cell that has begun: cancelled, unless it is said to have ended.
    pub(crate) fn begun(index: usize, cell: Option<u32>, code_sha256: String) -> CellRan {
        let outcome = "cancelled".to_owned();
        let (fuel, cpu_ms, memory_peak_bytes) = (None, 0.0, 0);
        CellRan { index, cell, code_sha256, outcome, duration_ms: 0.0, fuel, cpu_ms, memory_peak_bytes }
    }

    /// Notes how it ended.
    pub(crate) fn ended(&mut self, outcome: &Outcome, duration: Duration, usage: &Usage) {
        self.outcome = outcome.as_str().to_owned();
        self.duration_ms = fractional_millis(duration);
        self.fuel = usage.fuel;
        self.cpu_ms = fractional_millis(usage.cpu);
        self.memory_peak_bytes = usage.memory_peak_bytes;
    }
}

/// What audits a session.
#[derive(Debug)]
pub(crate) struct Auditor {
    audit: Audit,
    session: String,
}

impl Auditor {
    pub(crate) fn new(audit: Audit, session: String) -> Arc<Auditor> {
        Arc::new(Auditor { audit, session })
    }

    /// Whether the last entry could not be written: nothing more may be done before one can.
    pub(crate) fn is_failing(&self) -> bool {
        self.audit.is_failing.load(Ordering::Relaxed)
    }

    /// Writes an entry, on another thread.
    ///
    /// # Errors
    /// In words for the run, which name no path.
    ///
    /// # Cancel safety
    /// An entry that was begun is written although nobody waits.
    pub(crate) async fn write(self: &Arc<Auditor>, run: Option<RunId>, kind: AuditKind) -> Result<(), String> {
        let auditor = self.clone();
        let written = tokio::task::spawn_blocking(move || auditor.write_now(run, kind)).await;
        written.unwrap_or_else(|error| Err(cannot(&error)))
    }

    /// Writes an entry before it returns.
    ///
    /// # Errors
    /// As [`Auditor::write`].
    pub(crate) fn write_now(&self, run: Option<RunId>, kind: AuditKind) -> Result<(), String> {
        let Audit { sink, is_failing, actor, tenant } = &self.audit;
        let (session, actor, tenant) = (self.session.clone(), actor.clone(), tenant.clone());
        let run = run.map(|run| run.to_string());
        let entry = AuditEntry { time: now(), session, actor, tenant, run, kind };
        let written = sink.write(&entry);
        is_failing.store(written.is_err(), Ordering::Relaxed);
        written.map_err(|error| {
            tracing::error!(%error, ?entry, "an entry of the audit log is lost");
            cannot(&error)
        })
    }

    /// Writes an entry that nobody waits for: where there is a runtime, on a thread of it that may block. What is lost is
    /// in the host's log.
    pub(crate) fn write_later(self: &Arc<Auditor>, run: Option<RunId>, kind: AuditKind) {
        let auditor = self.clone();
        let write = move || drop(auditor.write_now(run, kind));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(write)),
            Err(_) => write(),
        }
    }
}

fn cannot(error: &dyn fmt::Display) -> String {
    format!("the audit log cannot be written: {error}")
}

/// SHA-256 of a source, in hexadecimal.
pub(crate) fn code_digest(code: &str) -> String {
    hex(&Sha256::digest(code.as_bytes()))
}

/// The word for what a call came to, and the bytes of its answer.
fn call_outcome(result: &CallResult) -> (&'static str, usize) {
    match result {
        Ok(response) => ("ok", Response::size_bytes(response)),
        Err(error) => (error.kind.as_str(), 0),
    }
}

/// A URL without what may hold more than an address: user, query and fragment.
fn bare_url(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (scheme, rest) = url[..end].split_once("://").unwrap_or(("", &url[..end]));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

fn now() -> String {
    let nanos = i64::try_from(wall_nanos()).unwrap_or(i64::MAX);
    DateTime::from_timestamp_nanos(nanos).to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds, to the microsecond.
pub(crate) fn fractional_millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

#[cfg(test)]
mod tests;
