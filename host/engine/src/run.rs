//! A run in progress: the stream of its events.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{Stream, StreamExt};
use rand::Rng;
use tokio::sync::mpsc;

mod auditing;
mod sink;

use auditing::RunAudit;
use sink::Sink;

use crate::{
    cell::{Cell, RunId},
    error::Error,
    event::{Event, EventKind, KeptText, Scalar},
    limits::{AGENT_DEPTH_MAX, CELLS_MAX, CODE_BYTES_MAX, EVENTS_QUEUED_MAX},
    meter::StopFlag,
    outcome::{Failure, FailureKind, Outcome, Usage},
    renderer::{self, Begun, Rendering},
    result::RunResult,
    session::{RunMarks, Session},
};

/// The events of a run, `RunStarted` first and `RunFinished` last. Cells run in order; the first that fails is the
/// last that runs, unless [`Run::keep_going`] was asked for.
///
/// The run goes on only while it is polled: a reader that stops reading suspends the guest, and dropping the run
/// cancels it. What its cells have done to the session stays.
pub struct Run {
    session: Session,
    cells: Vec<Cell>,
    stop: Arc<StopFlag>,
    /// The next cell to start.
    next: usize,
    keeps_going: bool,
    /// Whether a cell failed.
    is_error: bool,
    /// Events of the cell that runs; its kernel holds the other end.
    running: Option<mpsc::Receiver<EventKind>>,
    /// The end of a cell, while its text is being stored.
    ending: Option<EventKind>,
    /// The text of the cell that runs.
    cell_text: Sink,
    /// The text of all cells, where there are several.
    run_text: Option<Sink>,
    /// Events of the run itself that were not read yet.
    pending: VecDeque<EventKind>,
    /// What a cell displays, while the host adds to it.
    rendering: Option<Rendering>,
    /// What came of it, and was not read yet.
    rendered: VecDeque<EventKind>,
    finished: bool,
    seq: u64,
    marks: RunMarks,
    audit: Option<RunAudit>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("session", &self.session).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Session {
    /// Prepares a run. Nothing executes before the [`Run`] is polled, and dropping it cancels what does.
    ///
    /// # Errors
    /// `Request` for no cells, or too many or too large ones; `GuestMissing`, `NotBaked` and their kin when a language
    /// of the run is not available; `AgentDepth` on a handle for an agent that is nested too deep.
    pub fn run(&self, cells: Vec<Cell>) -> Result<Run, Error> {
        if self.depth() > AGENT_DEPTH_MAX {
            return Err(Error::AgentDepth { depth: self.depth(), max: AGENT_DEPTH_MAX });
        }
        if cells.is_empty() || cells.len() > CELLS_MAX {
            return Err(Error::Request(format!("a run has 1 to {CELLS_MAX} cells, not {}", cells.len())));
        }
        for (number, cell) in (1..).zip(&cells) {
            let size = cell.code.len();
            if size > CODE_BYTES_MAX {
                let message = format!("cell {number} has {size} bytes of code, at most {CODE_BYTES_MAX} are allowed");
                return Err(Error::Request(message));
            }
            self.require(cell.language)?;
        }
        Ok(Run::new(self.clone(), cells))
    }
}

impl Run {
    fn new(session: Session, cells: Vec<Cell>) -> Run {
        let id = RunId(rand::rng().random());
        let span = tracing::info_span!(parent: None, "run", session = session.id(), run = %id, cells = cells.len());
        let marks = RunMarks { id, span, record: session.run_record() };
        let audit = RunAudit::of(&session, id);
        let run_text = (cells.len() > 1).then(|| Sink::new(&session));
        Run {
            cell_text: Sink::new(&session),
            run_text,
            ending: None,
            session,
            cells,
            stop: StopFlag::new(),
            next: 0,
            keeps_going: false,
            is_error: false,
            running: None,
            pending: VecDeque::new(),
            rendering: None,
            rendered: VecDeque::new(),
            finished: false,
            seq: 0,
            marks,
            audit,
        }
    }

    /// Lets later cells run although one failed, as in a notebook. A cancelled run still ends.
    pub fn keep_going(mut self) -> Run {
        self.keeps_going = true;
        self
    }

    /// Its name in the audit log and the host's trace.
    pub fn id(&self) -> RunId {
        self.marks.id
    }

    /// Asks the run to stop and keep its state. The stream goes on to its proper end.
    pub fn cancel(&self) {
        self.stop.set();
    }

    /// Something that can cancel the run from elsewhere while the run itself is being read.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.stop.clone())
    }

    /// Reads the run to its end.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the run.
    pub async fn collect_result(mut self) -> RunResult {
        let mut result = RunResult::with_policy(self.session.output_policy());
        while let Some(event) = self.next().await {
            result.apply(&event);
        }
        result
    }

    /// Puts an event that the host made into the recording, at the moment that it is heard: only then is it known where
    /// its text is kept.
    fn record(&self, event: &EventKind) {
        if let Some(record) = &self.marks.record {
            record.told(event);
        }
    }

    /// Starts the next cell, or ends the run.
    fn advance(&mut self) {
        let index = self.next;
        let Some(cell) = self.cells.get(index) else {
            return self.end();
        };
        self.next += 1;
        if self.stop.is_set() {
            let failure = Failure::new(FailureKind::Interrupted, "CellInterrupted", "the run was cancelled");
            return self.fail(index, failure);
        }
        // One place is for the last event.
        let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX + 1);
        match self.session.start_cell(index, cell, self.stop.clone(), sender, self.marks.clone()) {
            Ok(cell) => {
                self.pending.push_back(EventKind::CellStarted { index, cell });
                self.running = Some(receiver);
            }
            Err(error) => {
                let name = match error.code() {
                    "deadlock" => "Deadlock",
                    _ => "KernelError",
                };
                self.fail(index, Failure::new(FailureKind::Trap, name, error.to_string()));
            }
        }
    }

    /// Ends the run with a failure that the kernel did not report itself.
    fn fail(&mut self, index: usize, failure: Failure) {
        self.pending.push_back(EventKind::CellFinished {
            index,
            outcome: Outcome::Failed(Box::new(failure)),
            duration: std::time::Duration::ZERO,
            usage: Usage::default(),
            kept: None,
        });
        self.failed();
    }

    /// Notes that a cell failed: the run ends with it, or goes on to the next.
    fn failed(&mut self) {
        self.is_error = true;
        self.running = None;
        if !self.keeps_going || self.stop.is_set() {
            // What the run has begun elsewhere ends with it.
            self.stop.set();
            self.end();
        }
    }

    fn end(&mut self) {
        self.running = None;
        self.finished = true;
        tracing::info!(parent: &self.marks.span, is_error = self.is_error, "run ended");
        self.pending.push_back(EventKind::RunFinished { is_error: self.is_error, kept: None });
    }
}

impl Run {
    /// The next event. Text goes to where it is kept before it is told of.
    fn poll_kind(&mut self, cx: &mut Context<'_>) -> Poll<Option<EventKind>> {
        loop {
            ready!(self.cell_text.poll_room(cx));
            if let Some(text) = &mut self.run_text {
                ready!(text.poll_room(cx));
            }
            if let Some(kind) = self.rendered.pop_front() {
                self.note(&kind);
                return Poll::Ready(Some(kind));
            }
            if let Some(rendering) = &mut self.rendering {
                self.rendered.extend(ready!(rendering.as_mut().poll(cx)));
                self.rendering = None;
                continue;
            }
            if self.ending.is_some() {
                let text = ready!(self.cell_text.poll_end(cx));
                return Poll::Ready(self.ending.take().map(|end| self.end_cell(end, text)));
            }
            if let Some(EventKind::RunFinished { kept, .. }) = self.pending.front_mut()
                && let Some(text) = &mut self.run_text
            {
                *kept = ready!(text.poll_end(cx));
            }
            if let (Some(EventKind::RunFinished { .. }), Some(audit)) = (self.pending.front(), &mut self.audit) {
                let end = EventKind::RunFinished { is_error: self.is_error, kept: None };
                audit.note(&end);
                if let Err(reason) = ready!(audit.poll_ended(cx)) {
                    self.audit_lost(reason);
                }
            }
            if let Some(kind) = self.pending.pop_front() {
                self.note(&kind);
                // The start of a cell is there already, before all that the cell says.
                if !matches!(kind, EventKind::CellStarted { .. }) {
                    self.record(&kind);
                }
                return Poll::Ready(Some(kind));
            }
            let index = self.next.saturating_sub(1);
            let finished = self.finished;
            match &mut self.running {
                None if finished => return Poll::Ready(None),
                None => {
                    if let Some(audit) = &mut self.audit
                        && let Err(reason) = ready!(audit.poll_begun(&self.session, &self.cells, self.keeps_going, cx))
                    {
                        self.keeps_going = false;
                        self.fail(0, Failure::new(FailureKind::Trap, "AuditError", reason));
                        continue;
                    }
                    self.advance();
                }
                Some(running) => match ready!(running.poll_recv(cx)) {
                    Some(end @ EventKind::CellFinished { .. }) => {
                        self.running = None;
                        self.ending = Some(end);
                    }
                    Some(kind) => match renderer::begin(self.session.renderers(), || self.session.tables(), kind) {
                        Begun::Rendering(rendering) => self.rendering = Some(rendering),
                        Begun::AsItIs(kind) => {
                            self.note(&kind);
                            return Poll::Ready(Some(kind));
                        }
                    },
                    None => {
                        let message = "the kernel went away before the cell ended";
                        let mut failure = Failure::new(FailureKind::Trap, "KernelError", message);
                        failure.state_kept = false;
                        self.fail(index, failure);
                    }
                },
            }
        }
    }

    /// Takes in the text of an event.
    fn note(&mut self, kind: &EventKind) {
        if let Some(audit) = &mut self.audit {
            audit.note(kind);
        }
        match kind {
            EventKind::CellStarted { index, .. } => {
                self.cell_text = Sink::new(&self.session);
                if let (Some(text), Some(cell)) = (&mut self.run_text, self.cells.get(*index)) {
                    let title = cell.title.as_deref().map(|title| format!(" {title}")).unwrap_or_default();
                    text.push_lines(&format!("[{}/{}]{title}", index + 1, self.cells.len()));
                }
            }
            EventKind::CellFinished { outcome, .. } => {
                if let (Some(text), Some(failure)) = (&mut self.run_text, outcome.failure()) {
                    text.push_lines(if failure.traceback.is_empty() { &failure.message } else { &failure.traceback });
                }
            }
            EventKind::ClearOutput { wait, .. } => self.cell_text.clear(*wait),
            _ => {
                self.cell_text.add(kind);
                if let Some(text) = &mut self.run_text {
                    text.add(kind);
                }
            }
        }
    }

    /// Tells that the end of the run could not be logged: it did all that it was to do, and has failed nevertheless.
    fn audit_lost(&mut self, reason: String) {
        if let Some(EventKind::RunFinished { is_error, .. }) = self.pending.front_mut() {
            *is_error = true;
        }
        let fields = vec![("reason".to_owned(), Scalar::Text(reason))];
        let index = self.next.saturating_sub(1);
        self.pending.push_front(EventKind::Status { index, op: "audit_lost".to_owned(), fields });
    }

    /// The end of a cell whose text is `text`.
    fn end_cell(&mut self, mut end: EventKind, text: Option<KeptText>) -> EventKind {
        self.note(&end);
        if let EventKind::CellFinished { kept, .. } = &mut end {
            *kept = text;
        }
        self.record(&end);
        if let EventKind::CellFinished { outcome, .. } = &end
            && !outcome.is_success()
        {
            self.failed();
        }
        end
    }
}

impl Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.seq == 0 && self.pending.is_empty() {
            let started = EventKind::RunStarted { session: self.session.id().to_owned(), cells: self.cells.clone() };
            self.pending.push_back(started);
        }
        let Some(kind) = ready!(self.poll_kind(cx)) else { return Poll::Ready(None) };
        let seq = self.seq;
        self.seq += 1;
        Poll::Ready(Some(Event { seq, kind }))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.finished {
            self.stop.set();
            tracing::info!(parent: &self.marks.span, "run dropped");
        }
    }
}

/// Cancels a run from elsewhere; see [`Run::canceller`].
#[derive(Clone, Debug)]
pub struct Canceller(Arc<StopFlag>);

impl Canceller {
    /// Asks the run to stop and keep its state.
    pub fn cancel(&self) {
        self.0.set();
    }
}
