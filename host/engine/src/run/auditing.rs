//! The entries that a run has in the audit log: one before its first cell, one when it has ended.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    audit::{AuditKind, Auditor, CellRan, RunFinished, fractional_millis},
    cell::{Cell, CellId, RunId},
    event::EventKind,
    session::Session,
};

/// See the module's documentation. One that has begun and is dropped before its end has its last entry all the same.
pub(super) struct RunAudit {
    auditor: Arc<Auditor>,
    id: RunId,
    began: Instant,
    /// Of the cells' sources, in order.
    digests: Vec<String>,
    /// The cells that began.
    cells: Vec<CellRan>,
    calls: u64,
    calls_failed: u64,
    /// How the run ended, once it has.
    outcome: Option<&'static str>,
    state: State,
}

enum State {
    New,
    Beginning(JoinHandle<(Vec<String>, Result<(), String>)>),
    Begun,
    Ending(Pin<Box<dyn Future<Output = Result<(), String>> + Send + Sync>>),
    /// Nothing is written any more.
    Over,
}

impl fmt::Debug for RunAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunAudit").field("id", &self.id).finish_non_exhaustive()
    }
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
            outcome: None,
            state: State::New,
        })
    }

    /// Ready when the first entry is written, or cannot be: then nothing may run.
    pub(super) fn poll_begun(
        &mut self,
        session: &Session,
        cells: &[Cell],
        keep_going: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), String>> {
        loop {
            match &mut self.state {
                State::New => {
                    let (session, cells) = (session.clone(), cells.to_vec());
                    let (auditor, id) = (self.auditor.clone(), self.id);
                    self.state = State::Beginning(spawn_blocking(move || {
                        let started = session.run_started(&cells, keep_going);
                        let digests = started.cells.iter().map(|cell| cell.code_sha256.clone()).collect();
                        (digests, auditor.write_now(Some(id), AuditKind::RunStarted(started)))
                    }));
                }
                State::Beginning(job) => {
                    let (digests, written) = match ready!(Pin::new(job).poll(cx)) {
                        Ok(done) => done,
                        Err(error) => (Vec::new(), Err(error.to_string())),
                    };
                    self.digests = digests;
                    self.state = if written.is_ok() { State::Begun } else { State::Over };
                    return Poll::Ready(written);
                }
                State::Begun | State::Ending(_) | State::Over => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Takes in an event of the run.
    pub(super) fn note(&mut self, kind: &EventKind) {
        match kind {
            EventKind::CellStarted { index, cell } => self.begin(*index, Some(*cell)),
            EventKind::CallStarted { .. } => self.calls += 1,
            EventKind::CallFinished { error: Some(_), .. } => self.calls_failed += 1,
            EventKind::CellFinished { index, outcome, duration, usage, .. } => {
                if self.cells.last().is_none_or(|last| last.index != *index) {
                    self.begin(*index, None);
                }
                if let Some(last) = self.cells.last_mut() {
                    last.ended(outcome, *duration, usage);
                }
            }
            EventKind::RunFinished { is_error, .. } => {
                self.outcome = Some(if *is_error { "error" } else { "complete" });
            }
            _ => {}
        }
    }

    fn begin(&mut self, index: usize, cell: Option<CellId>) {
        let digest = self.digests.get(index).cloned().unwrap_or_default();
        self.cells.push(CellRan::begun(index, cell.map(|cell| cell.0), digest));
    }

    /// Ready when the last entry is written, or cannot be.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        loop {
            match &mut self.state {
                State::Begun => {
                    let (auditor, id, finished) = (self.auditor.clone(), self.id, self.finished());
                    let writing = async move { auditor.write(Some(id), AuditKind::RunFinished(finished)).await };
                    self.state = State::Ending(Box::pin(writing));
                }
                State::Ending(writing) => {
                    let written = ready!(writing.as_mut().poll(cx));
                    self.state = State::Over;
                    return Poll::Ready(written);
                }
                State::New | State::Beginning(_) | State::Over => return Poll::Ready(Ok(())),
            }
        }
    }

    fn finished(&mut self) -> RunFinished {
        RunFinished {
            outcome: self.outcome.unwrap_or("cancelled").to_owned(),
            duration_ms: fractional_millis(self.began.elapsed()),
            cells: std::mem::take(&mut self.cells),
            calls: self.calls,
            calls_failed: self.calls_failed,
        }
    }
}

impl Drop for RunAudit {
    fn drop(&mut self) {
        // An entry that is under way is written without anybody waiting.
        if matches!(self.state, State::Beginning(_) | State::Begun) {
            let finished = self.finished();
            // What is lost is in the host's log.
            let _ = self.auditor.write_now(Some(self.id), AuditKind::RunFinished(finished));
        }
    }
}
