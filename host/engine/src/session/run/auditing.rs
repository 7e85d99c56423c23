//! The entries that a run has in the audit log: one before its first cell, one when it has ended.

use std::{sync::Arc, time::Instant};

use cellar_core::{
    cell::{Cell, CellId, RunId},
    event::EventKind,
    time::fractional_millis,
};
use tokio::task::spawn_blocking;

use crate::{
    audit::{AuditKind, Auditor, CellRan, RunFinished},
    session::Session,
};

/// Writes the entries of one run. A run that is dropped between the two has its last entry all the same.
pub(super) struct RunAudit {
    auditor: Arc<Auditor>,
    id: RunId,
    began: Instant,
    /// SHA-256 of the cells' sources, in order.
    digests: Vec<String>,
    /// The cells that began.
    cells: Vec<CellRan>,
    calls: u64,
    calls_failed: u64,
    /// True from the beginning of the first entry's write until the last entry is written.
    is_open: bool,
}

impl RunAudit {
    /// Nothing where the session is not audited.
    pub(super) fn of(session: &Session, id: RunId) -> Option<RunAudit> {
        Some(RunAudit {
            auditor: session.auditor()?,
            id,
            began: Instant::now(),
            digests: Vec::new(),
            cells: Vec::new(),
            calls: 0,
            calls_failed: 0,
            is_open: false,
        })
    }

    /// Writes the first entry. When that fails, nothing may run.
    pub(super) async fn begin(&mut self, session: &Session, cells: &[Cell], keep_going: bool) -> Result<(), String> {
        let (session, cells) = (session.clone(), cells.to_vec());
        let (auditor, id) = (self.auditor.clone(), self.id);
        self.is_open = true;
        let written = spawn_blocking(move || {
            let started = session.run_started(&cells, keep_going);
            let digests = started.cells.iter().map(|cell| cell.code_sha256.clone()).collect();
            auditor.write_now(Some(id), AuditKind::RunStarted(started)).map(|()| digests)
        });
        let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
        self.is_open = written.is_ok();
        self.digests = written?;
        Ok(())
    }

    /// Takes in an event of the run.
    pub(super) fn note(&mut self, kind: &EventKind) {
        match kind {
            EventKind::CellStarted { index, cell } => self.begin_cell(*index, Some(*cell)),
            EventKind::CallStarted { .. } => self.calls = self.calls.saturating_add(1),
            EventKind::CallFinished { error: Some(_), .. } => self.calls_failed = self.calls_failed.saturating_add(1),
            EventKind::CellFinished { index, outcome, duration, usage, .. } => {
                if self.cells.last().is_none_or(|last| last.index != *index) {
                    self.begin_cell(*index, None);
                }
                if let Some(last) = self.cells.last_mut() {
                    last.ended(outcome, *duration, usage);
                }
            }
            _ => {}
        }
    }

    fn begin_cell(&mut self, index: usize, cell: Option<CellId>) {
        let digest = self.digests.get(index).cloned().unwrap_or_default();
        self.cells.push(CellRan::begun(index, cell.map(|cell| cell.0), digest));
    }

    /// Writes the last entry.
    pub(super) async fn end(&mut self, is_error: bool) -> Result<(), String> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let finished = self.finished(if is_error { "error" } else { "complete" });
        self.auditor.write(Some(self.id), AuditKind::RunFinished(finished)).await
    }

    fn finished(&mut self, outcome: &str) -> RunFinished {
        RunFinished {
            outcome: outcome.to_owned(),
            duration_ms: fractional_millis(self.began.elapsed()),
            cells: std::mem::take(&mut self.cells),
            calls: self.calls,
            calls_failed: self.calls_failed,
        }
    }
}

impl Drop for RunAudit {
    fn drop(&mut self) {
        if self.is_open {
            let finished = self.finished("cancelled");
            // What is lost is in the host's log.
            self.auditor.write_later(Some(self.id), AuditKind::RunFinished(finished));
        }
    }
}
