//! State of one kernel's store: its cells, its budgets, its calls, and what its session lent it.
//!
//! The guest's imports are answered in [`crate::kernel::imports`], with what is here.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_core::{
    limits::{LOOK_TIMEOUT, Limits},
    sync::lock,
    time::later,
};
use cellar_files::{FileLimits, Files, Quota};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    audit::OpenCalls,
    kernel::{
        border::types::StopReason,
        calls::{Answers, Block, Calls, Lineage, Memo, NoAnswers, Permits, Requests},
        events::Backlog,
        origins::{EndedScopes, Origins},
        record::{Import, Tape},
        scheduling::{Beat, CpuMeter, GuestClock, MemoryBudget, MemoryLimiter, MemoryPool, Resident, Threads, Turn},
    },
    storage::{vault::StoredSession, workspace::PrivateFolder},
};

mod asking;
mod binding;
mod cell;
mod gathered;
mod lending;
mod overdue;
mod sending;

pub(crate) use asking::COMPLETIONS_MAX;
pub(crate) use cell::{CellBudget, CellOrigin, CellReader, KernelsUsed, LiveCell};
use gathered::Gathered;
use lending::EndedFetch;
use lending::Lent;
pub(crate) use sending::word;

/// Fuel beyond a cell's limit that pays for a soft stop, so that spent fuel does not cost the session its state.
pub(crate) const FUEL_RESERVE: u64 = 500_000_000;
/// Fuel for code that no cell is charged for: warm-up, configuration, introspection.
pub(crate) const FUEL_UNCHARGED: u64 = u64::MAX / 2;
/// Lines that a guest may add to the host's log in a second; the others are dropped.
const LOGS_A_SECOND_MAX: u32 = 20;

/// Resources that a kernel gets from its session. A kernel without a session has those of [`Binding::nobodys`].
pub(crate) struct Binding {
    pub(crate) limits: Limits,
    /// Memory that a process kernel shares with others.
    pub(crate) memory: Option<Arc<MemoryPool>>,
    /// The memory that it shares with other sessions.
    pub(crate) budget: Option<MemoryBudget>,
    /// Concurrency permit of a process kernel; released when the kernel is dropped.
    pub(crate) _place: Option<Arc<OwnedSemaphorePermit>>,
    /// Answers to the calls of its cells.
    pub(crate) answers: Arc<dyn Answers>,
    pub(crate) files: Files,
    pub(crate) calls: Calls,
    pub(crate) open_calls: OpenCalls,
    /// Queue of the text that is written while no cell runs.
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) link: Arc<KernelLink>,
    pub(crate) tape: Tape,
    /// The threads of its guest.
    pub(crate) threads: Threads,
    /// Requests for input that wait, and their idle timeout; absent when the session answers none.
    pub(crate) input: Option<(Arc<Requests>, Duration)>,
    /// The turns that it takes; absent where it needs none.
    pub(crate) turn: Option<Arc<Turn>>,
    /// Private folder, which is deleted when nobody can write to it any more.
    pub(crate) _private: Option<Arc<PrivateFolder>>,
    /// Claim on the stored session: nobody else may have it while a kernel works for it.
    pub(crate) _home: Option<Arc<StoredSession>>,
}

/// State that a session and its kernel's task share.
#[derive(Debug, Default)]
pub(crate) struct KernelLink {
    /// The kernel among those of its host.
    pub(crate) resident: Arc<Resident>,
    /// The session gave the kernel up: end its cells as interrupted.
    pub(crate) closing: AtomicBool,
    /// True while the guest works for a cell or a timer.
    pub(crate) is_entered: AtomicBool,
    /// Number of times that its names were cleared.
    pub(crate) clears: AtomicU32,
    /// The calls that hold the kernel and may need the kernel itself: a synchronous one, or those of threads.
    pub(crate) blocks: Mutex<Vec<Block>>,
    /// Fetches that its cells have made.
    pub(crate) memo: Mutex<Memo>,
    /// Origins of its names; absent until the kernel has a state of its own. Until then those of its slot apply.
    pub(crate) origins: Mutex<Option<Origins>>,
    /// Scopes of the latest cells, which hold for what goes on of a cell that has ended.
    pub(crate) ended: Mutex<EndedScopes>,
}

/// The store data of a kernel.
pub(crate) struct StoreData {
    pub(crate) binding: Binding,
    pub(crate) limiter: MemoryLimiter,
    pub(crate) cpu: Arc<CpuMeter>,
    pub(crate) clock: GuestClock,
    pub(crate) cells: BTreeMap<u32, LiveCell>,
    /// The greatest depth of any cell so far: that of code that outlived its cell, which may be anybody's.
    pub(crate) deepest: u32,
    /// The agent that ran that cell, if one did in this life of the session.
    pub(crate) deepest_agent: Lineage,
    /// The cell whose code runs now, as far as is known; 0 is none.
    pub(crate) executing: u32,
    /// The cell that is charged for fuel now, and the fuel that the store had when it was entered for that cell.
    pub(crate) payer: (u32, u64),
    /// Time when the guest was entered, moved on by waits that do not count.
    pub(crate) entered: Instant,
    /// Calls that were answered at once since then.
    answered: usize,
    /// The same as `CellStop::seen`, for code that belongs to no live cell. Cleared at entry.
    stop_seen: Option<(Instant, StopReason)>,
    /// True while the guest answers a query of the host, which runs for no cell.
    is_looking: bool,
    /// Tables that fetches have answered with, which the guest takes.
    pub(crate) tables: Lent,
    /// Fetch whose end was not reported yet. Events that come after it wait.
    fetched: Option<EndedFetch>,
    /// Text of a cell that was not sent yet.
    gathered: Option<Gathered>,
    /// Start of the second in which the guest last logged, and the lines that it has logged since.
    logged: (Instant, u32),
    /// Safepoint byte of the guest that runs, if it has safepoints.
    pub(crate) beat: Option<Arc<Beat>>,
    /// Set when the guest is trapped because it did not stop.
    pub(crate) killed: Option<StopReason>,
    /// Cells that the host has ended while the guest worked for others, and why.
    ended: Vec<(u32, StopReason)>,
    /// True if no cell may end in this entry before the guest comes back.
    pub(crate) holds_ends: bool,
}

impl Binding {
    /// Returns the pools that its memory is taken from.
    pub(crate) fn pools(&self) -> Vec<Arc<MemoryPool>> {
        self.memory.iter().chain(self.budget.as_ref().map(|MemoryBudget(pool)| pool)).cloned().collect()
    }

    /// Creates the binding of a kernel without a session: no folder, no bridge.
    pub(crate) fn nobodys(limits: Limits, files: Files) -> Binding {
        Binding {
            limits,
            memory: None,
            budget: None,
            _place: None,
            answers: Arc::new(NoAnswers),
            files,
            calls: Calls::new(Permits::new(0)),
            open_calls: OpenCalls::default(),
            backlog: Arc::default(),
            link: Arc::default(),
            tape: Tape::Off,
            threads: Threads::default(),
            input: None,
            turn: None,
            _private: None,
            _home: None,
        }
    }
}

impl StoreData {
    pub(crate) fn new(binding: Binding) -> StoreData {
        let limiter = MemoryLimiter::new(binding.limits.memory_bytes, binding.pools());
        StoreData {
            binding,
            limiter,
            cpu: Arc::default(),
            clock: GuestClock::default(),
            cells: BTreeMap::new(),
            deepest: 0,
            deepest_agent: Lineage::default(),
            executing: 0,
            payer: (0, 0),
            entered: Instant::now(),
            answered: 0,
            stop_seen: None,
            is_looking: false,
            tables: Lent::default(),
            fetched: None,
            gathered: None,
            logged: (Instant::now(), 0),
            beat: None,
            killed: None,
            ended: Vec::new(),
            holds_ends: false,
        }
    }

    /// Returns the data that is left to a kernel whose host side was taken away.
    pub(crate) fn nobodys() -> StoreData {
        StoreData::new(Binding::nobodys(Limits::default(), Files::new(Vec::new(), Quota::new(FileLimits::default()))))
    }

    /// Returns true if one more line of the guest goes to the log; see [`LOGS_A_SECOND_MAX`].
    pub(crate) fn may_log(&mut self) -> bool {
        let (since, count) = &mut self.logged;
        if since.elapsed() >= Duration::from_secs(1) {
            (*since, *count) = (Instant::now(), 0);
        }
        *count = count.saturating_add(1);
        *count <= LOGS_A_SECOND_MAX
    }

    /// Takes in a cell that is about to start.
    pub(crate) fn add_cell(&mut self, id: u32, cell: LiveCell) {
        if cell.origin.depth > 0 && cell.origin.depth >= self.deepest {
            self.deepest = cell.origin.depth;
            self.deepest_agent = cell.origin.lineage.elsewhere(None);
        }
        if let Some(scope) = &cell.origin.scope {
            lock(&self.binding.link.ended).put(id, scope.clone());
        }
        self.cells.insert(id, cell);
    }

    /// Notes that the guest is entered on behalf of `cell`.
    pub(crate) fn enter(&mut self, cell: u32) {
        self.executing = cell;
        self.entered = Instant::now();
        self.answered = 0;
        self.stop_seen = None;
        for live in self.cells.values_mut() {
            live.stop.seen = None;
        }
        self.limiter.refused = false;
    }

    /// Notes that cells go on in the guest. Cells that rest go on resting while the guest is entered for no cell: the time of a checkpoint
    /// or a query is not theirs.
    pub(crate) fn go_on(&mut self) {
        self.cells.values_mut().for_each(LiveCell::go_on);
    }

    /// Notes that the guest has returned.
    pub(crate) fn leave(&mut self) {
        self.cells.values_mut().for_each(LiveCell::rest);
    }

    /// Takes the time that the kernel has waited for its turn since this was last done out of all times that are its cells'.
    pub(crate) fn settle(&mut self) {
        let waited = self.binding.turn.as_ref().map_or(Duration::ZERO, |turn| turn.take_waited());
        if waited.is_zero() {
            return;
        }
        self.entered = later(self.entered, waited);
        let stops = self.cells.values_mut().map(|live| &mut live.stop.seen).chain([&mut self.stop_seen]);
        stops.flatten().for_each(|(since, _)| *since = later(*since, waited));
        for live in self.cells.values_mut() {
            live.time.deadline = later(live.time.deadline, waited);
            live.stop.give_up = live.stop.give_up.map(|at| later(at, waited));
        }
    }

    /// Notes that the guest is entered to answer a query. Whatever cell it names, it does not work for it.
    pub(crate) fn begin_look(&mut self) {
        self.enter(0);
        self.is_looking = true;
    }

    /// Notes that the query was answered. Returns true if the guest was told to stop meanwhile.
    pub(crate) fn end_look(&mut self) -> bool {
        self.is_looking = false;
        self.stop_seen.is_some()
    }

    /// Returns true while the guest answers a query.
    pub(crate) fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// The cell of this number, unless the guest names it while it works for none.
    fn live(&self, cell: u32) -> Option<&LiveCell> {
        self.cells.get(&cell).filter(|_| !self.is_looking)
    }

    /// Time that code of no live cell may take.
    pub(crate) fn unowned_timeout(&self) -> Duration {
        let timeout = self.binding.limits.cell_timeout(None);
        if self.is_looking { timeout.min(LOOK_TIMEOUT) } else { timeout }
    }

    /// Returns the deadline of code that runs for `cell`.
    pub(crate) fn deadline(&self, cell: u32) -> Instant {
        self.live(cell).map_or_else(|| later(self.entered, self.unowned_timeout()), |live| live.time.deadline)
    }

    /// Makes `cell` the one that pays; returns the fuel that the store gets for it. Several cells may run in one entry.
    pub(crate) fn begin_to_pay(&mut self, cell: u32) -> u64 {
        let limit = self.binding.limits.fuel;
        let left = self.cells.get(&cell).map_or(limit, |live| live.budget.fuel_left);
        let fuel = left.map_or(FUEL_UNCHARGED, |left| left.saturating_add(FUEL_RESERVE));
        self.payer = (cell, fuel);
        fuel
    }

    /// Charges the cell that pays, now that the store has `left`.
    pub(crate) fn charge(&mut self, left: u64) {
        let (cell, fuel) = self.payer;
        if let Some(fuel_left) = self.cells.get_mut(&cell).and_then(|live| live.budget.fuel_left.as_mut()) {
            *fuel_left = fuel_left.saturating_sub(fuel.saturating_sub(left));
        }
    }

    /// Notes that the guest says it runs code of `cell`.
    pub(crate) fn note_running(&mut self, cell: u32) {
        if self.live(cell).is_some() {
            self.executing = cell;
        }
    }

    /// Returns the reason why the code that runs for `cell` must stop, if it must. Code that belongs to no live cell has the session's
    /// default timeout, counted from the entry, and no longer than a live cell has that it holds up.
    pub(crate) fn stop_reason(&self, cell: u32, fuel_left: Option<u64>) -> Option<StopReason> {
        if self.binding.link.closing.load(Ordering::Relaxed) {
            return Some(StopReason::Interrupted);
        }
        let Some(live) = self.live(cell) else {
            let now = Instant::now();
            let holds_up = self.cells.values().any(|live| now >= live.time.deadline);
            return (holds_up || self.entered.elapsed() > self.unowned_timeout()).then_some(StopReason::Timeout);
        };
        if live.stop.flag.is_set() {
            Some(StopReason::Interrupted)
        } else if live.budget.output_left.is_none() {
            Some(StopReason::Output)
        } else if live.budget.fuel_left.is_some()
            && fuel_left.is_some_and(|left| left <= FUEL_RESERVE.saturating_add(live.budget.spent.fuel()))
        {
            Some(StopReason::Fuel)
        } else if Instant::now() >= live.time.deadline {
            Some(StopReason::Timeout)
        } else {
            None
        }
    }

    /// Notes whether `cell` must stop; returns when that was first noted, and why it must. Each cell has a grace of
    /// its own: several may run in one entry.
    pub(crate) fn note_stop(&mut self, cell: u32, reason: Option<StopReason>) -> Option<(Instant, StopReason)> {
        let live = self.cells.get_mut(&cell).filter(|_| !self.is_looking);
        let seen = live.map_or(&mut self.stop_seen, |live| &mut live.stop.seen);
        *seen = seen.or(reason.map(|reason| (Instant::now(), reason)));
        *seen
    }

    /// Notes that the guest was told that `cell` must stop, if there is a reason.
    pub(crate) fn note_told(&mut self, cell: u32, reason: Option<StopReason>) {
        if let Some(live) = self.cells.get_mut(&cell).filter(|_| !self.is_looking) {
            live.stop.told = live.stop.told.or(reason);
        }
    }

    /// Returns true while no cell runs and output is kept for the next one. What is written while a query is answered is dropped.
    pub(crate) fn is_between(&self) -> bool {
        self.cells.is_empty() && !self.is_looking && !self.binding.tape.is_replaying()
    }

    /// Keeps text that is written while no cell runs.
    pub(crate) fn write_between(&self, cell: u32, is_stderr: bool, text: &str) {
        if self.is_between() {
            self.binding.backlog.write(cell, is_stderr, text);
        }
    }

    /// Returns true if output of `cell` is that of code that has outlived it. Nobody knows whose that of cell 0 is.
    pub(crate) fn is_late(&self, cell: u32) -> bool {
        cell != 0 && !self.cells.contains_key(&cell)
    }

    /// Returns true if a guest that gives way has ignored a soft stop for the whole grace, or if its replay is over.
    pub(crate) fn must_trap(&mut self) -> bool {
        self.settle();
        self.flush_old_text();
        self.end_overdue();
        self.end_recorded();
        if let Tape::Replaying(playback) = &mut self.binding.tape {
            return playback.is_over(self.executing);
        }
        let reason = self.stop_reason(self.executing, None);
        // A process that was given up has no state to keep, and nobody hears it.
        let is_given_up = self.binding.memory.is_some() && self.binding.link.closing.load(Ordering::Relaxed);
        let grace = if is_given_up { Duration::ZERO } else { self.binding.limits.grace };
        match self.note_stop(self.executing, reason) {
            Some((since, reason)) if since.elapsed() >= grace => {
                self.killed = Some(reason);
                true
            }
            _ => false,
        }
    }

    /// Returns the cell that an event of `cell` goes to: that cell, or the latest one for a task that outlived its cell. Events are
    /// dropped while a query is answered.
    pub(crate) fn route(&self, cell: u32) -> Option<u32> {
        if self.is_looking {
            return None;
        }
        if self.cells.contains_key(&cell) { Some(cell) } else { self.cells.last_key_value().map(|(id, _)| *id) }
    }

    /// Answers an import, or has the recording answer it.
    ///
    /// # Errors
    /// As `live`; when the guest makes another call than the recorded one.
    pub(crate) fn taped<T: Serialize + DeserializeOwned>(
        &mut self,
        import: Import,
        arguments: impl Serialize,
        live: impl FnOnce(&mut StoreData) -> wasmtime::Result<T>,
    ) -> wasmtime::Result<T> {
        self.end_recorded();
        if let Tape::Replaying(playback) = &mut self.binding.tape {
            return playback.answer(self.executing, import, &arguments);
        }
        let answer = live(self)?;
        if let Tape::Recording(record) = &self.binding.tape {
            record.answer(import, &arguments, &answer);
        }
        Ok(answer)
    }
}
