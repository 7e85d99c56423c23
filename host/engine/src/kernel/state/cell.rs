//! A cell that was started and has not ended: its reader, its time, its stop, and its budget.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use cellar_core::{
    cell::{Language, RunId},
    event::EventKind,
    outcome::{Outcome, Usage},
    sync::lock,
    time::{fractional_millis, later},
};
use tokio::sync::mpsc;
use tracing::Span;

use super::KernelLink;
use crate::kernel::{
    border::types::StopReason,
    calls::Lineage,
    events::{Gate, Queue, Queued},
    origins::CellScope,
    record::{CellHead, RunRecord},
    scheduling::{Spent, StopFlag},
};

/// A cell that was started and has not ended.
#[derive(Debug)]
pub(crate) struct LiveCell {
    pub(crate) began: Instant,
    /// Tracing span of this cell.
    pub(crate) span: Span,
    pub(crate) origin: CellOrigin,
    pub(crate) reader: CellReader,
    pub(crate) time: CellTime,
    pub(crate) stop: CellStop,
    pub(crate) budget: CellBudget,
    /// Its requests for input that wait for an answer.
    pub(crate) asks: HashSet<u64>,
    /// True once the guest has reported the names that it has bound.
    pub(crate) has_told_names: bool,
}

/// The run that a cell belongs to, and whom that run serves.
#[derive(Debug, Default)]
pub(crate) struct CellOrigin {
    /// The run, if that is not of another life.
    pub(crate) run: Option<RunId>,
    /// Agents between the session's owner and this run.
    pub(crate) depth: u32,
    /// True if the reader of the run answers its requests for input although the run is an agent's.
    pub(crate) answers_input: bool,
    /// The calls that this run serves.
    pub(crate) lineage: Lineage,
    /// Scope of the run, with the cell's language; absent for a run of another life, if that had no gate.
    pub(crate) scope: Option<CellScope>,
    /// The kernels of the run's cells so far; absent if it belongs to no run.
    pub(crate) kernels: Option<Arc<KernelsUsed>>,
}

/// The kernels that the cells of a run have run on: of each language the last one, and how often that was cleared by then.
#[derive(Debug, Default)]
pub(crate) struct KernelsUsed(Mutex<HashMap<Language, (Weak<KernelLink>, u32)>>);

impl KernelsUsed {
    /// Notes the kernel of a cell that begins. Returns true if an earlier cell of the run had another one, or its names were cleared since.
    pub(crate) fn note(&self, language: Language, link: &Arc<KernelLink>) -> bool {
        let (clears, link) = (link.clears.load(Ordering::Relaxed), Arc::downgrade(link));
        let before = lock(&self.0).insert(language, (link.clone(), clears));
        before.is_some_and(|(before, cleared)| !before.ptr_eq(&link) || cleared != clears)
    }

    /// Forgets the kernel of a language, which a cell of the run itself has reset.
    pub(crate) fn forget(&self, language: Language) {
        lock(&self.0).remove(&language);
    }
}

/// The way of a cell's events to the reader of its run.
#[derive(Debug)]
pub(crate) struct CellReader {
    /// Position of the cell in its run.
    pub(crate) index: usize,
    /// The run's end of the event stream; the run holds the other end.
    pub(crate) events: Queue,
    /// The place of its last event, taken beforehand: a reader that is behind must not hold up the kernel.
    pub(crate) last: mpsc::OwnedPermit<Queued>,
    /// True if its events but the last are dropped.
    pub(crate) is_muted: bool,
    /// Gate for events in its name from elsewhere. A cell of no run has none.
    pub(crate) gate: Option<Gate>,
    /// Recorder of its events, if they are recorded.
    pub(crate) record: Option<RunRecord>,
    /// True if its run was told that its calls wait for others to end.
    pub(crate) is_queue_told: bool,
}

/// Time limits of a cell.
#[derive(Debug)]
pub(crate) struct CellTime {
    /// Its time limit.
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    /// Time that it may still wait for room for its kernel. This does not count as its own: the deadline moves on by it.
    pub(crate) room_left: Duration,
    /// Time since which it does nothing but wait for input. That time is not its own: the deadline moves on by it.
    pub(crate) rests_since: Option<Instant>,
}

/// Progress of the stop of a cell.
#[derive(Debug)]
pub(crate) struct CellStop {
    pub(crate) flag: Arc<StopFlag>,
    /// Time when its code was first seen running although it must stop, and the reason for the stop. Cleared at entry.
    pub(crate) seen: Option<(Instant, StopReason)>,
    /// Reason for which it was first told to stop, whether or not it did.
    pub(crate) told: Option<StopReason>,
    /// Time at which it will be given up, once it was told to stop.
    pub(crate) give_up: Option<Instant>,
    /// Time since which it must stop although the guest works for another cell.
    pub(super) overdue_since: Option<Instant>,
}

/// Budget and usage of a cell.
#[derive(Debug, Default)]
pub(crate) struct CellBudget {
    /// Bytes it may still print; `None` once it went past.
    pub(crate) output_left: Option<u64>,
    /// Fuel it may still burn, with its processes; `None` is unlimited.
    pub(crate) fuel_left: Option<u64>,
    /// Processor time of its kernel when it began.
    pub(crate) cpu_before: Duration,
    /// Usage of its processes.
    pub(crate) spent: Arc<Spent>,
    /// Account of a cell that is a process: its usage is added here when it ends.
    pub(crate) bill: Option<Arc<Spent>>,
}

impl CellReader {
    /// Creates the way to the reader of a run, which gets every event.
    pub(crate) fn new(
        index: usize,
        events: Queue,
        last: mpsc::OwnedPermit<Queued>,
        record: Option<RunRecord>,
    ) -> CellReader {
        let gate = Some(Gate::new(index, events.clone(), record.clone()));
        CellReader { index, events, last, is_muted: false, gate, record, is_queue_told: false }
    }

    /// Sends an event that the host made, unless the reader is behind or the cell is muted.
    pub(super) fn try_tell(&self, event: EventKind) {
        if let Some(gate) = self.gate.as_ref().filter(|_| !self.is_muted) {
            gate.try_tell(event);
        }
    }
}

impl LiveCell {
    /// A cell that begins now. It belongs to no run and has no budget, but for what is set besides.
    pub(crate) fn new(reader: CellReader, timeout: Duration) -> LiveCell {
        let began = Instant::now();
        LiveCell {
            began,
            span: Span::none(),
            origin: CellOrigin::default(),
            reader,
            time: CellTime { timeout, deadline: later(began, timeout), room_left: timeout, rests_since: None },
            stop: CellStop { flag: StopFlag::new(), seen: None, told: None, give_up: None, overdue_since: None },
            budget: CellBudget::default(),
            asks: HashSet::new(),
            has_told_names: false,
        }
    }

    /// A cell of no run, whose events but the last are dropped.
    pub(crate) fn unheard(
        events: mpsc::Sender<Queued>,
        last: mpsc::OwnedPermit<Queued>,
        timeout: Duration,
    ) -> LiveCell {
        let events = Queue::new(events, None);
        let reader =
            CellReader { index: 0, events, last, is_muted: true, gate: None, record: None, is_queue_told: false };
        LiveCell::new(reader, timeout)
    }

    /// Adds what it has used to its bill, and sends its last event. A reader that went away is no concern.
    pub(crate) fn finish(self, outcome: Outcome, usage: Usage) {
        if let Some(bill) = &self.budget.bill {
            bill.add(usage.fuel.unwrap_or(0), usage.cpu);
        }
        let duration = self.began.elapsed();
        let (duration_ms, cpu_ms) = (fractional_millis(duration), fractional_millis(usage.cpu));
        tracing::info!(parent: &self.span, outcome = outcome.as_str(), duration_ms, cpu_ms, "cell ended");
        let CellReader { index, last, gate, .. } = self.reader;
        let event = EventKind::CellFinished { index, outcome, duration, usage, kept: None };
        // What comes after the last event is heard by nobody, and must be in no recording.
        drop(gate);
        last.send(event.into());
    }

    /// Returns the state of the cell that a recording has.
    pub(crate) fn head(&self) -> CellHead {
        let CellReader { index, is_muted, .. } = self.reader;
        let CellBudget { output_left, fuel_left, .. } = self.budget;
        CellHead { index, output_left, fuel_left, depth: self.origin.depth, is_muted }
    }

    /// Returns true if the guest is to report the names that the cell binds.
    pub(crate) fn traces_names(&self) -> bool {
        self.origin.scope.as_ref().is_some_and(|scope| scope.run.producer.is_some())
    }

    /// Fuel that is left to it and to processes that it starts; `None` is unlimited.
    pub(crate) fn fuel_unspent(&self) -> Option<u64> {
        self.budget.fuel_left.map(|left| left.saturating_sub(self.budget.spent.fuel()))
    }

    /// Returns the time at which the cell must be stopped or given up; `None` while it rests, unless it will be given up.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.stop.give_up.or_else(|| self.time.rests_since.is_none().then_some(self.time.deadline))
    }

    /// Returns true if the cell must be stopped or given up at `now`.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now) || (self.stop.give_up.is_none() && self.stop.flag.is_set())
    }

    /// Returns the time that is left to it at `now`.
    pub(crate) fn time_left(&self, now: Instant) -> Duration {
        self.stop.give_up.unwrap_or(self.time.deadline).saturating_duration_since(self.time.rests_since.unwrap_or(now))
    }

    /// Notes that the guest has come to rest: a cell that waits for input rests with it.
    pub(super) fn rest(&mut self) {
        self.time.rests_since = (!self.asks.is_empty()).then(Instant::now);
    }

    /// Notes that the guest goes on.
    pub(super) fn go_on(&mut self) {
        if let Some(since) = self.time.rests_since.take() {
            self.time.deadline = later(self.time.deadline, since.elapsed());
        }
    }
}
