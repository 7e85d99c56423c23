//! A run in progress: the stream of its events.
//!
//! A run is one task, written from its first event to its last in [`Course::events`]; [`Run`] polls it for its reader.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_stream::stream;
use cellar_core::{
    cell::{Cell, RunId},
    event::{Event, EventKind, HostStatus, Scalar},
    limits::{AGENT_DEPTH_MAX, CELLS_MAX, CODE_BYTES_MAX, EVENTS_QUEUED_MAX, TIMEOUT_MAX, TIMEOUT_MIN},
    outcome::{Failure, FailureCode, FailureKind, Outcome, Usage},
    run::RunOptions,
    sync::lock,
};
use cellar_results::{
    renderer::{self, Begun, Stopped},
    result::{OutputPolicy, RunResult},
};
use futures::{Stream, StreamExt};
use rand::Rng;
use tokio::sync::mpsc;
use tracing::Span;

mod auditing;
mod sink;

use auditing::RunAudit;
use sink::Sink;

use crate::{
    contract::error::Error,
    kernel::origins::Scope,
    kernel::{
        events::{Queued, UnreadBytes},
        scheduling::StopFlag,
    },
    session::{RunMarks, Session, origins},
};

/// The events of a run, `RunStarted` first and `RunFinished` last. Cells run in order; the first that fails is the
/// last that runs, unless [`Run::keep_going`] was asked for.
///
/// The run goes on only while it is polled: a reader that stops reading suspends the guest, and dropping the run
/// cancels it. What its cells have done to the session stays.
pub struct Run {
    id: RunId,
    stop: Arc<StopFlag>,
    span: Span,
    policy: OutputPolicy,
    stage: Stage,
    seq: u64,
    /// Count of its last event among the unread bytes.
    unread: Arc<Mutex<UnreadBytes>>,
}

/// Progress of a run.
enum Stage {
    /// Nothing was polled yet, so nothing has begun.
    Prepared(Box<Course>),
    Going(Pin<Box<dyn Stream<Item = EventKind> + Send>>),
    /// The last event was read.
    Over,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("id", &self.id).field("seq", &self.seq).finish_non_exhaustive()
    }
}

impl Session {
    /// Prepares a run. Nothing executes before the [`Run`] is polled, and dropping it cancels what does.
    ///
    /// # Errors
    /// `Request` for no cells, too many or too large ones, or a timeout that no cell may have; `GuestMissing`,
    /// `NotBaked` and their kin when a language of the run is not available; `AgentDepth` on a handle for an agent that
    /// is nested too deep.
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
            if let Some(timeout) = cell.timeout.filter(|timeout| !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout)) {
                let (least, most) = (TIMEOUT_MIN.as_secs_f64(), TIMEOUT_MAX.as_secs_f64());
                let message =
                    format!("cell {number} asks for a timeout of {timeout:?}; a cell has {least} to {most} s");
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
        let stop = StopFlag::new();
        let course = Course {
            marks: RunMarks {
                id,
                span: span.clone(),
                record: session.run_record(),
                scope: Arc::new(Scope::new(RunOptions::default(), session.lineage.scope().cloned())),
                kernels: Arc::default(),
                answers_input: false,
            },
            audit: RunAudit::of(&session, id),
            stop: stop.clone(),
            keeps_going: false,
            is_error: false,
            cell_text: Sink::new(&session),
            run_text: (cells.len() > 1).then(|| Sink::new(&session)),
            cells,
            session,
            unread: Arc::default(),
        };
        let (policy, unread) = (course.session.output_policy(), course.unread.clone());
        Run { id, stop, span, policy, stage: Stage::Prepared(Box::new(course)), seq: 0, unread }
    }

    /// Lets later cells run although one failed, as in a notebook. A cancelled run still ends. Without effect on a run
    /// that has been polled.
    pub fn keep_going(mut self) -> Run {
        if let Stage::Prepared(course) = &mut self.stage {
            course.keeps_going = true;
        }
        self
    }

    /// Has requests for input of an agent's run come to its reader, who answers them. Without this they are refused at once: the
    /// readers of most agents' runs cannot answer. Without effect on other runs, and on a run that has been polled.
    pub fn answers_input(mut self) -> Run {
        if let Stage::Prepared(course) = &mut self.stage {
            course.marks.answers_input = true;
        }
        self
    }

    /// Says of the run who makes it, and what its caller has seen. Without effect on a run that has been polled.
    ///
    /// # Errors
    /// `Request` for a name that is empty or too long, `NestedProducer` for a producer within a run that has one.
    pub fn lineage(mut self, options: RunOptions) -> Result<Run, Error> {
        if let Stage::Prepared(course) = &mut self.stage {
            course.marks.scope = Arc::new(origins::scope(options, course.session.lineage.scope())?);
        }
        Ok(self)
    }

    /// Its name in the audit log and the host's trace.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Asks the run to stop and keep its state. The stream goes on to its proper end.
    pub fn cancel(&self) {
        self.stop.set();
    }

    /// Returns a handle that can cancel the run while another task reads it.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.stop.clone())
    }

    /// Takes the count of the last read event among the unread bytes. The event counts until the next one is read, unless a
    /// caller that buffers it for other readers takes this and holds it as long.
    pub fn take_unread(&self) -> UnreadBytes {
        std::mem::take(&mut lock(&self.unread))
    }

    /// Reads the run to its end.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the run.
    pub async fn collect_result(mut self) -> RunResult {
        let mut result = RunResult::with_policy(self.policy);
        while let Some(event) = self.next().await {
            result.apply(&event);
        }
        if result.images().next().is_none() {
            return result;
        }
        let fitted = tokio::task::spawn_blocking(move || {
            result.fit_images();
            result
        });
        // It fails when the runtime ends.
        fitted.await.unwrap_or_default()
    }
}

impl Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Stage::Prepared(_) = &self.stage
            && let Stage::Prepared(course) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            self.stage = Stage::Going(match course.session.teller.clone() {
                Some(teller) => Box::pin(teller.telling(course.events())),
                None => Box::pin(course.events()),
            });
        }
        drop(self.take_unread());
        let Stage::Going(events) = &mut self.stage else { return Poll::Ready(None) };
        let Some(kind) = ready!(events.as_mut().poll_next(cx)) else {
            self.stage = Stage::Over;
            return Poll::Ready(None);
        };
        let seq = self.seq;
        self.seq = self.seq.saturating_add(1);
        if let EventKind::RunFinished { .. } = kind {
            self.stage = Stage::Over;
        }
        Poll::Ready(Some(Event { seq, kind }))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Over) {
            self.stop.set();
            tracing::info!(parent: &self.span, "run dropped");
        }
    }
}

/// Work of a run, and its dependencies.
struct Course {
    session: Session,
    cells: Vec<Cell>,
    stop: Arc<StopFlag>,
    keeps_going: bool,
    /// True if a cell failed.
    is_error: bool,
    /// The text of the cell that runs.
    cell_text: Sink,
    /// The text of all cells, where there are several.
    run_text: Option<Sink>,
    marks: RunMarks,
    audit: Option<RunAudit>,
    /// Count of its last event among the unread bytes.
    unread: Arc<Mutex<UnreadBytes>>,
}

impl Course {
    /// Yields all events, in order. Text is handed to its sink before the reader receives it.
    #[expect(clippy::too_many_lines, reason = "a run from its first event to its last, in their order")]
    fn events(mut self: Box<Course>) -> impl Stream<Item = EventKind> + Send {
        stream! {
            yield self.made_here(EventKind::RunStarted {
                session: self.session.id().to_owned(),
                cells: self.cells.clone(),
            });
            let cells = self.cells.clone();
            let refusal = self.begin_audit().await.err();
            let mut index = 0;
            loop {
                // A run whose beginning cannot be logged does nothing.
                let failure = match &refusal {
                    Some(reason) => Failure::refused(FailureCode::Audit, "AuditError", reason.clone()),
                    None => match self.start_cell(index, &cells[index]) {
                        Ok((started, mut events)) => {
                            // The recording has the start of a cell already, before all that the cell says.
                            self.note(&started);
                            let cell = match &started {
                                EventKind::CellStarted { cell, .. } => cell.0,
                                _ => 0,
                            };
                            yield started;
                            let late = self.session.take_background();
                            for kind in late.into_iter().flat_map(|late| late.events(index)).flatten() {
                                for kind in self.rendered(kind).ended().await {
                                    yield self.made_here(kind);
                                }
                            }
                            if let Some(told) = self.tightened(index, &cells[index]) {
                                yield self.made_here(told);
                            }
                            let end = loop {
                                self.room().await;
                                match events.recv().await {
                                    Some(Queued { kind: end @ EventKind::CellFinished { .. }, .. }) => break Some(end),
                                    Some(Queued { kind, unread }) => match self.rendered(kind) {
                                        Begun::AsItIs(kind) => {
                                            self.note(&kind);
                                            *lock(&self.unread) = unread;
                                            yield kind;
                                        }
                                        Begun::Rendering(rendering) => {
                                            let events = rendering.await;
                                            *lock(&self.unread) = unread;
                                            for kind in events {
                                                self.note(&kind);
                                                yield kind;
                                                self.room().await;
                                            }
                                        }
                                    },
                                    None => break None,
                                }
                            };
                            match end {
                                Some(end) => {
                                    yield self.end_cell(end).await;
                                    self.session.keep_state(self.marks.id, cell, self.cells[index].language).await;
                                    index = index.saturating_add(1);
                                    if index == cells.len() || self.ends_here() {
                                        break;
                                    }
                                    continue;
                                }
                                None => Failure::lost("the kernel went away before the cell ended"),
                            }
                        }
                        Err(failure) => failure,
                    },
                };
                self.is_error = true;
                yield self.made_here(EventKind::CellFinished {
                    index,
                    outcome: Outcome::Failed(Box::new(failure)),
                    duration: Duration::ZERO,
                    usage: Usage::default(),
                    kept: None,
                });
                index = index.saturating_add(1);
                if refusal.is_some() || index == cells.len() || self.ends_here() {
                    break;
                }
            }
            if self.is_error {
                // What the run has begun elsewhere ends with it.
                self.stop.set();
            }
            tracing::info!(parent: &self.marks.span, is_error = self.is_error, "run ended");
            let kept = match &mut self.run_text {
                Some(text) => text.end().await,
                None => None,
            };
            if let Err(reason) = self.end_audit().await {
                // The run did all that it was to do, and has failed nevertheless.
                self.is_error = true;
                let fields = vec![("reason".to_owned(), Scalar::Text(reason))];
                yield self.made_here(HostStatus::AuditLost.event(index.saturating_sub(1), fields));
            }
            yield self.made_here(EventKind::RunFinished { is_error: self.is_error, kept });
        }
    }

    /// Returns true if the run ends with the cell that ended last.
    fn ends_here(&self) -> bool {
        self.is_error && (!self.keeps_going || self.stop.is_set())
    }

    /// Starts a cell. Returns its first event, and the channel of the others.
    #[expect(clippy::result_large_err, reason = "a cell that cannot be started is rare, and its failure is moved once")]
    fn start_cell(&self, index: usize, cell: &Cell) -> Result<(EventKind, mpsc::Receiver<Queued>), Failure> {
        if self.stop.is_set() {
            return Err(Failure::new(FailureKind::Interrupted, "CellInterrupted", "the run was cancelled"));
        }
        // One place is for the last event.
        let (sender, receiver) = mpsc::channel(EVENTS_QUEUED_MAX + 1);
        match self.session.start_cell(index, cell, self.stop.clone(), sender, self.marks.clone()) {
            Ok(cell) => Ok((EventKind::CellStarted { index, cell }, receiver)),
            Err(error) => Err(error.into_failure()),
        }
    }

    /// Event that reports that a cell has less time than it asked for; `None` if it has all of it.
    fn tightened(&self, index: usize, cell: &Cell) -> Option<EventKind> {
        let asked = cell.timeout?;
        let timeout = self.session.limits().cell_timeout(Some(asked));
        let seconds = |timeout: Duration| Scalar::Number(timeout.as_secs_f64());
        let fields = vec![("asked".to_owned(), seconds(asked)), ("timeout".to_owned(), seconds(timeout))];
        (timeout < asked).then(|| HostStatus::TimeoutTightened.event(index, fields))
    }

    fn rendered(&self, kind: EventKind) -> Begun {
        let stop = self.stop.clone();
        let stopped = || -> Stopped { Box::pin(async move { stop.stopped().await }) };
        renderer::begin(self.session.renderers(), || self.session.tables(), kind, stopped)
    }

    /// Waits until the sinks have capacity for more text.
    async fn room(&mut self) {
        self.cell_text.room().await;
        if let Some(text) = &mut self.run_text {
            text.room().await;
        }
    }

    async fn begin_audit(&mut self) -> Result<(), String> {
        match &mut self.audit {
            Some(audit) => audit.begin(&self.session, &self.cells, self.keeps_going).await,
            None => Ok(()),
        }
    }

    async fn end_audit(&mut self) -> Result<(), String> {
        match &mut self.audit {
            Some(audit) => audit.end(self.is_error).await,
            None => Ok(()),
        }
    }

    /// Takes in an event that the host made, and records it at the moment that it is read: the location of its text is not
    /// known earlier.
    fn made_here(&mut self, kind: EventKind) -> EventKind {
        self.note(&kind);
        if let Some(record) = &self.marks.record {
            record.told(&kind);
        }
        kind
    }

    /// The end of a cell, once its text is kept.
    async fn end_cell(&mut self, mut end: EventKind) -> EventKind {
        let text = self.cell_text.end().await;
        if let EventKind::CellFinished { outcome, kept, .. } = &mut end {
            *kept = text;
            if let (Some(kept), Outcome::Failed(failure)) = (kept, &*outcome)
                && failure.kind == FailureKind::Output
            {
                // What it printed past its limit is nowhere.
                kept.is_complete = false;
            }
            self.is_error |= !outcome.is_success();
        }
        self.made_here(end)
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
                    text.push_lines(&format!("[{}/{}]{title}", index.saturating_add(1), self.cells.len()));
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
