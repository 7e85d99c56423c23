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
};

use cellar_core::{
    cell::RunId,
    text::{hex, prefix},
    time::wall_nanos,
};
use cellar_files::{Access, Mount};
use chrono::{DateTime, SecondsFormat};
use sha2::{Digest, Sha256};

use crate::contract::bridge::{CallResult, Response};

mod file;
mod open;

pub use file::{AuditBounds, AuditFile};
pub(crate) use open::{CalledAs, OpenCalls};

pub use cellar_core::audit::{
    AuditEntry, AuditKind, CallEntry, CallSite, CellAsked, CellRan, DecisionEntry, FolderGrant, Grants, RunFinished,
    RunStarted, SeedGrant,
};
pub use cellar_core::limits::LimitGrants;

/// Bytes of the name of what was called; a cell may call anything by any name.
const NAME_BYTES_MAX: u64 = 256;

/// Destination of audit entries.
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

/// Audit configuration of sessions: the sink, and in whose name.
#[derive(Clone, Debug)]
pub struct Audit {
    sink: Arc<dyn AuditSink>,
    /// The last entry could not be written.
    is_failing: Arc<AtomicBool>,
    /// Person or program for whom the session works, as the embedder knows them.
    pub actor: Option<String>,
    /// Tenant whose quota and grants apply.
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

/// Describes a folder of the host's that cells see.
pub(crate) fn folder_grant(mount: &Mount) -> FolderGrant {
    FolderGrant {
        host: Some(mount.host.display().to_string()),
        guest: mount.guest.clone(),
        write: mount.access == Access::ReadWrite,
    }
}

/// Auditor of one session.
#[derive(Debug)]
pub(crate) struct Auditor {
    audit: Audit,
    session: String,
}

impl Auditor {
    pub(crate) fn new(audit: Audit, session: String) -> Arc<Auditor> {
        Arc::new(Auditor { audit, session })
    }

    /// Returns true if the last entry could not be written: nothing more may be done before one can.
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

/// A name within the bound of names.
pub(crate) fn bounded_name(name: &str) -> String {
    let name = if name.contains("://") { bare_url(name) } else { name.to_owned() };
    prefix(&name, NAME_BYTES_MAX).to_owned()
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

#[cfg(test)]
mod tests;
