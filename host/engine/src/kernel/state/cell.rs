//! A cell that was started and has not ended: who hears of it, how long it may run, how it is stopped, and what it may use.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::{
    cell::RunId,
    event::EventKind,
    outcome::{Outcome, Usage},
    time::{fractional_millis, later},
};
use tokio::sync::mpsc;
use tracing::Span;

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
}

/// The run that a cell belongs to, and whom that run serves.
#[derive(Debug, Default)]
pub(crate) struct CellOrigin {
    /// The run, if that is not of another life.
    pub(crate) run: Option<RunId>,
    /// Agents between the session's owner and this run.
    pub(crate) depth: u32,
    /// The calls that this run serves.
    pub(crate) lineage: Lineage,
    /// What the run says of itself; absent where that is nothing.
    pub(crate) scope: Option<CellScope>,
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
    /// Its events but the last go nowhere.
    pub(crate) is_muted: bool,
    /// Lets its run hear what happens elsewhere in its name. A cell of no run has none.
    pub(crate) gate: Option<Gate>,
    /// Where its events are recorded, if they are.
    pub(crate) record: Option<RunRecord>,
    /// Its run knows that its calls wait for others to end.
    pub(crate) is_queue_told: bool,
}

/// How long a cell may run, and wait.
#[derive(Debug)]
pub(crate) struct CellTime {
    /// Its time limit.
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    /// How long it may still wait for room for its kernel. That time is not its own: the deadline moves on by it.
    pub(crate) room_left: Duration,
    /// Since when it does nothing but wait for input. That time is not its own: the deadline moves on by it.
    pub(crate) rests_since: Option<Instant>,
}

/// How far the stop of a cell is.
#[derive(Debug)]
pub(crate) struct CellStop {
    pub(crate) flag: Arc<StopFlag>,
    /// When its code was first seen running although it must stop, and why it must. Cleared at entry.
    pub(crate) seen: Option<(Instant, StopReason)>,
    /// Why it was first told to stop, whatever became of that.
    pub(crate) told: Option<StopReason>,
    /// When it will be given up, once it was told to stop.
    pub(crate) give_up: Option<Instant>,
    /// Since when it must stop although the guest works for another cell.
    pub(super) overdue_since: Option<Instant>,
}

/// What a cell may use, and has used.
#[derive(Debug, Default)]
pub(crate) struct CellBudget {
    /// Bytes it may still print; `None` once it went past.
    pub(crate) output_left: Option<u64>,
    /// Fuel it may still burn, with its processes; `None` is unlimited.
    pub(crate) fuel_left: Option<u64>,
    /// Processor time of its kernel when it began.
    pub(crate) cpu_before: Duration,
    /// What its processes have used.
    pub(crate) spent: Arc<Spent>,
    /// Of a cell that is a process: what it uses is added here when it ends.
    pub(crate) bill: Option<Arc<Spent>>,
}

impl CellReader {
    /// The way to the reader of a run, which hears everything.
    pub(crate) fn new(
        index: usize,
        events: Queue,
        last: mpsc::OwnedPermit<Queued>,
        record: Option<RunRecord>,
    ) -> CellReader {
        let gate = Some(Gate::new(index, events.clone(), record.clone()));
        CellReader { index, events, last, is_muted: false, gate, record, is_queue_told: false }
    }

    /// Sends an event that the host made, unless the reader is behind or hears nothing.
    pub(super) fn try_tell(&self, event: EventKind) {
        if self.is_muted {
            return;
        }
        let _turn = self.gate.as_ref().map(Gate::turn);
        // What there is no room for is not worth a wait here.
        let _ = self.events.try_send(event, |event| {
            if let Some(record) = &self.record {
                record.told(event);
            }
        });
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

    /// Sends its last event. A reader that went away is no concern.
    pub(crate) fn finish(self, outcome: Outcome, usage: Usage) {
        let duration = self.began.elapsed();
        let (duration_ms, cpu_ms) = (fractional_millis(duration), fractional_millis(usage.cpu));
        tracing::info!(parent: &self.span, outcome = outcome.as_str(), duration_ms, cpu_ms, "cell ended");
        let CellReader { index, last, gate, .. } = self.reader;
        let event = EventKind::CellFinished { index, outcome, duration, usage, kept: None };
        // What comes after the last event is heard by nobody, and must be in no recording.
        drop(gate);
        last.send(event.into());
    }

    /// What a recording says of it.
    pub(crate) fn head(&self) -> CellHead {
        let CellReader { index, is_muted, .. } = self.reader;
        let CellBudget { output_left, fuel_left, .. } = self.budget;
        CellHead { index, output_left, fuel_left, depth: self.origin.depth, is_muted }
    }

    /// Whether the guest is to say what names it binds.
    pub(crate) fn traces_names(&self) -> bool {
        self.origin.scope.as_ref().is_some_and(|scope| scope.run.producer.is_some())
    }

    /// Fuel that is left to it and to processes that it starts; `None` is unlimited.
    pub(crate) fn fuel_unspent(&self) -> Option<u64> {
        self.budget.fuel_left.map(|left| left.saturating_sub(self.budget.spent.fuel()))
    }

    /// When something must be done about it, if nothing happens before; never while it rests.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.stop.give_up.or_else(|| self.time.rests_since.is_none().then_some(self.time.deadline))
    }

    /// Whether something must be done about it now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now) || (self.stop.give_up.is_none() && self.stop.flag.is_set())
    }

    /// What is left of its time at `now`.
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
