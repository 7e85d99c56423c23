//! The task that owns a kernel: takes cells in, feeds completions and timers to the guest, stops what must stop.
//!
//! Nothing here blocks while a cell awaits: the loop sleeps until a command, a completion, a timer or a deadline comes.
//! The guest is entered for one thing at a time, so steps of different runs interleave only where cells await.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use cellar_core::{
    cell::{Language, SEED_CELL},
    event::{EventKind, HostStatus, Scalar},
    limits::{CELLS_LIVE_MAX, CELLS_SERVING_MAX},
    outcome::{Failure, FailureCode, FailureKind, Outcome, Usage},
    sync::lock,
    time::later,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tracing::Span;

use crate::{
    contract::{
        config::{Rests, Seed},
        error::Error,
    },
    formats::snapshot::{KernelImage, Snapshot},
    kernel::{
        border::{Answer, Question, types},
        calls::CallEnd,
        events::Queued,
        host::Guest,
        instance::{Death, Kernel, LOST},
        origins::Origins,
        record::{Birth, Entry},
        scheduling::{Room, Sweep, earlier},
        state::{Binding, COMPLETIONS_MAX, KernelLink, LiveCell},
    },
    session::{
        WeakSession,
        saved::{Kept, Slot, configured_as, failed, revive},
    },
};

mod endings;
mod rest;
mod room;

use endings::{RESET, death_outcome, refuse};
use rest::Rest;
use room::Commands;

/// Entries in a row for timers that are due at once, before the kernel's thread is yielded.
const IDLE_SPINS_MAX: u32 = 16;

/// Command of a session to its kernel.
pub(crate) enum Command {
    /// Run a cell; its events, `CellFinished` last, go to its own channel.
    Start { id: u32, code: Arc<str>, cell: Box<LiveCell> },
    /// Forget all names and tasks.
    Clear(oneshot::Sender<()>),
    /// Answer a question about the session, or say why not.
    Look(Question, oneshot::Sender<Result<Answer, String>>),
    /// Capture all state.
    Snapshot(oneshot::Sender<Result<Arc<KernelImage>, Error>>),
    /// Capture all state, keep it, and do nothing until the session says so.
    Hold { reply: oneshot::Sender<Result<Arc<KernelImage>, Error>>, released: oneshot::Receiver<()> },
    /// Keep all state.
    Checkpoint(oneshot::Sender<Result<(), Error>>),
    /// Give the memory back until there is something to do.
    Sleep(oneshot::Sender<Result<(), Error>>),
}

/// The state of the task that owns a kernel: the kernel, the commands that wait for it, what is due, and its rest.
pub(crate) struct Reactor {
    kernel: Kernel,
    guest: Arc<Guest>,
    commands: Commands,
    link: Arc<KernelLink>,
    setting: Setting,
    /// Fingerprint of its configuration.
    configured_as: u128,
    rest: Rest,
    due: Due,
    /// Brings the end of the seed while it runs; commands wait for it.
    seeding: Option<mpsc::Receiver<Queued>>,
    /// True if the kernel was restored from a checkpoint that another kernel has died with, and was not entered yet.
    is_suspect: bool,
    /// True if a command has arrived.
    was_used: bool,
}

/// Work that is due in the guest, or that the next cell must be told of.
#[derive(Default)]
struct Due {
    /// Deadline of the guest's next timer.
    wake_at: Option<Instant>,
    /// Entries in a row for a timer that was due at once.
    idle_spins: u32,
    /// Abandoned cells, whose end the guest may still report.
    abandoned: VecDeque<u32>,
    /// Cells abandoned while the kernel had no capacity, and why: the guest is notified when it wakes.
    owed: Vec<(u32, types::StopReason)>,
    /// Status events for the next cell: an operation and its fields.
    notices: Vec<(HostStatus, Vec<(String, Scalar)>)>,
}

/// Context of a kernel's task: its session, last state and seed, and the scheduler of its host.
pub(crate) struct Setting {
    pub(crate) session: WeakSession,
    /// State that kernels of its language are restored from.
    pub(crate) slot: Arc<Slot>,
    pub(crate) rests: Rests,
    /// The kernels of its host that are awake.
    pub(crate) sweep: Arc<Sweep>,
    /// Seed of a kernel that is not restored from a state.
    pub(crate) seed: Option<Arc<Seed>>,
    /// True if the kernel ends with its first cell, or its first answer.
    pub(crate) once: bool,
    /// Task that stores the reset of the kernel before; no cell ends before it is done.
    pub(crate) storing: Option<JoinHandle<()>>,
}

/// Reason for which the loop woke up.
enum Wake {
    Command(Command),
    Call(CallEnd),
    Timer,
    /// A deadline passed or a stop flag was set.
    Stop,
    /// Nothing has happened for a while.
    Rest,
    /// Other kernels need the capacity.
    Sleep,
    /// The session gave the kernel up.
    Close,
}

/// Starts a kernel and works for a session until the session gives it up or the guest dies.
///
/// Events of cells that were sent but never started are closed unanswered; the run sees that its channel ended.
pub(crate) async fn run(
    guest: Arc<Guest>,
    commands: mpsc::Receiver<Command>,
    binding: Binding,
    configuration: types::Configuration,
    setting: Setting,
) {
    let mut setting = setting;
    let mut commands = Commands::from(commands);
    let link = binding.link.clone();
    let language = guest.language;
    let kept = match setting.slot.load().await {
        Ok(kept) => kept,
        Err(error) => return refuse(&mut commands, &death_outcome(&failed(error))).await,
    };
    if binding.tape.is_on()
        && let Err(error) = record_birth(&guest, &binding, kept.as_ref())
    {
        return refuse(&mut commands, &death_outcome(&failed(error))).await;
    }
    let configured_as = configured_as(&configuration);
    let Some(room) = commands.first_room(&setting.sweep, &link).await else {
        return refuse(&mut commands, &death_outcome(&reset_death())).await;
    };
    let started = match &kept {
        Some(kept) => revive(&guest, room, kept, binding, &configuration).await,
        None => start(&guest, room, binding, configuration).await.map(|kernel| (kernel, Vec::new())),
    };
    let (mut kernel, lost) = match started {
        Ok(started) => started,
        Err(death) => {
            finished(&mut setting.storing).await;
            return refuse(&mut commands, &death_outcome(&death)).await;
        }
    };
    let clock = kernel.data().clock;
    let state = kept.as_ref().map(|kept| &kept.image.state);
    let mut rest = Rest::new(setting.rests);
    rest.last_cell = kept.as_ref().map_or(0, |kept| kept.last_cell);
    let mut reactor = Reactor {
        kernel,
        guest,
        commands,
        link,
        setting,
        configured_as,
        rest,
        due: Due {
            wake_at: state.and_then(|state| clock.instant(state.wake_at?)),
            abandoned: state.map(|state| state.abandoned.iter().copied().collect()).unwrap_or_default(),
            notices: lost.into_iter().map(|fields| (HostStatus::FileLost, fields)).collect(),
            ..Due::default()
        },
        seeding: None,
        is_suspect: kept.as_ref().is_some_and(|kept| kept.deaths > 0),
        was_used: false,
    };
    reactor.setting.sweep.woke(&reactor.link.resident);
    let worked = reactor.live(kept.is_none()).await;
    reactor.setting.sweep.slept(&reactor.link.resident);
    if let Err(mut death) = worked {
        if reactor.seeding.is_some() {
            death.message = format!("{}: {}", seed_failed(language), death.message);
        }
        let data = reactor.kernel.data();
        let span = data.cells.get(&data.executing).map_or(Span::none(), |cell| cell.span.clone());
        tracing::info!(parent: &span, %language, kind = death.kind.as_str(), "kernel died");
        reactor.bury(&death).await;
    }
}

/// A kernel as new.
async fn start(
    guest: &Arc<Guest>,
    room: Room,
    binding: Binding,
    configuration: types::Configuration,
) -> Result<Kernel, Death> {
    let mut kernel = guest.fresh(room).await.map_err(failed)?;
    kernel.bind(binding);
    kernel.configure(&configuration).await?;
    Ok(kernel)
}

/// Records how a kernel begins.
fn record_birth(guest: &Guest, binding: &Binding, kept: Option<&Kept>) -> Result<(), Error> {
    let image = kept.map(|kept| Snapshot::of_kernel(kept.image.clone()).to_bytes());
    let birth =
        Birth { language: guest.language.code().to_owned(), has_fuel: binding.limits.fuel.is_some(), image_parts: 0 };
    binding.tape.born(birth, guest.digest()?, image.as_deref());
    Ok(())
}

/// Waits until a state was stored or could not be. In that case the storing task has logged the reason.
async fn finished(storing: &mut Option<JoinHandle<()>>) {
    if let Some(storing) = storing.take() {
        let _ = storing.await;
    }
}

/// Failure of a cell whose run was cancelled while the cell waited.
fn never_began() -> Failure {
    Failure::new(FailureKind::Interrupted, "CellInterrupted", "the run was cancelled before the cell began")
}

/// Death of a kernel that its session closed.
fn reset_death() -> Death {
    let message = RESET.to_owned();
    Death { kind: FailureKind::Interrupted, name: "CellInterrupted", message, code: None }
}

fn seed_failed(language: Language) -> String {
    format!("the session's {} seed failed", language.title())
}

impl Reactor {
    /// Works until the session gives the kernel up (`Ok`) or the kernel dies.
    async fn live(&mut self, is_new: bool) -> Result<(), Death> {
        if is_new {
            self.sow().await?;
        }
        if self.is_suspect {
            // What awaits in it has its turn before any cell, so that neither is blamed for the other.
            self.stop_cells().await?;
            self.tick().await?;
            self.is_suspect = false;
            // Another checkpoint of the same would hide how many kernels have died with it.
            self.rest.settled();
        }
        loop {
            if let Some(failure) = self.seed_failure() {
                refuse(&mut self.commands, &Outcome::Failed(Box::new(failure))).await;
                return Ok(());
            }
            if self.setting.once && self.was_used && self.kernel.data().cells.is_empty() {
                return Ok(());
            }
            self.link.resident.idle();
            let wake = self.next().await;
            self.link.resident.busy();
            match wake {
                Wake::Command(command @ (Command::Start { .. } | Command::Clear(_) | Command::Look(..)))
                    if self.kernel.is_asleep() =>
                {
                    self.put_back(command);
                    self.wake_up().await?;
                }
                Wake::Call(end) if self.kernel.is_asleep() => {
                    self.kernel.data().binding.calls.put_back(end);
                    self.wake_up().await?;
                }
                Wake::Timer if self.kernel.is_asleep() => drop(self.wake_up().await?),
                Wake::Rest => self.rest().await?,
                Wake::Sleep => drop(self.sleep().await?),
                Wake::Command(command) => self.command(command).await?,
                Wake::Call(end) => self.resume(end).await?,
                Wake::Timer => self.tick().await?,
                Wake::Stop => self.stop_cells().await?,
                Wake::Close => {
                    self.bury(&reset_death()).await;
                    return Ok(());
                }
            }
        }
    }

    /// Returns true if any name of the kernel has an origin, which it loses when it is bound anew without one.
    fn has_origins(&self) -> bool {
        lock(&self.link.origins).as_ref().is_some_and(|origins| !origins.is_empty())
    }

    /// Begins to make the names that the session begins with.
    async fn sow(&mut self) -> Result<(), Death> {
        let Some(seed) = self.setting.seed.clone() else { return Ok(()) };
        let (events, ended) = mpsc::channel(1);
        let Ok(last) = events.clone().try_reserve_owned() else { return Ok(()) };
        let cpu = self.kernel.cpu_time();
        let limits = &self.kernel.data().binding.limits;
        let mut cell = LiveCell::unheard(events, last, limits.timeout);
        (cell.budget.output_left, cell.budget.fuel_left, cell.budget.cpu_before) =
            (Some(limits.output_bytes), limits.fuel, cpu);
        self.kernel.data().add_cell(SEED_CELL, cell);
        self.seeding = Some(ended);
        let cell = types::Cell { id: SEED_CELL, code: seed.source.clone(), traces_names: false };
        self.enter(Entry::Seed(seed.bindings.clone(), cell)).await
    }

    /// Returns the failure of the seed, if it has just ended with one.
    fn seed_failure(&mut self) -> Option<Failure> {
        let Ok(Queued { kind: EventKind::CellFinished { outcome, .. }, .. }) = self.seeding.as_mut()?.try_recv() else {
            return None;
        };
        self.seeding = None;
        let mut failure = outcome.failure()?;
        let what = seed_failed(self.guest.language);
        // Its place is none of the cell that is told.
        (failure.line, failure.column, failure.snippet, failure.pointer) = (None, None, None, None);
        failure.traceback = format!("{what}:\n{}", failure.traceback);
        failure.message = format!("{what}: {}", failure.message);
        failure.state_kept = false;
        failure.code = Some(FailureCode::Seed);
        Some(failure)
    }

    async fn next(&mut self) -> Wake {
        if self.link.closing.load(Ordering::Relaxed) {
            return Wake::Close;
        }
        self.note_threads();
        if self.seeding.is_none()
            && let Some(command) = self.commands.next_waiting(self.kernel.data().cells.len())
        {
            return Wake::Command(command);
        }
        let may_sleep = self.may_sleep();
        let is_short = may_sleep && self.setting.sweep.is_short(self.link.resident.claim);
        if may_sleep && (self.link.resident.is_sleep_wanted() || (is_short && self.had_its_turn())) {
            return Wake::Sleep;
        }
        let rest_at = self.rest_at().filter(|_| self.seeding.is_none());
        let data = self.kernel.data();
        let now = Instant::now();
        if data.cells.values().any(|cell| cell.is_due(now)) {
            return Wake::Stop;
        }
        let deadline = data.cells.values().filter_map(LiveCell::due).min();
        let wake_at = self.due.wake_at;
        let next = earlier(earlier(deadline, wake_at), rest_at);
        let sleep = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            command = self.commands.recv(), if self.seeding.is_none() => command.map_or(Wake::Close, Wake::Command),
            () = self.link.resident.wake.notified() => Wake::Stop,
            end = data.binding.calls.next() => Wake::Call(end),
            () = sleep => match wake_at {
                Some(wake_at) if wake_at <= Instant::now() => Wake::Timer,
                _ if deadline.is_some_and(|deadline| deadline <= Instant::now()) => Wake::Stop,
                _ => Wake::Rest,
            },
            // It has nothing to do, and others wait for its room.
            () = std::future::ready(()), if is_short => Wake::Sleep,
        }
    }

    async fn command(&mut self, command: Command) -> Result<(), Death> {
        self.was_used = true;
        if self.kernel.data().cells.len() >= CELLS_LIVE_MAX {
            // Those whose run has gone make room.
            self.stop_cells().await?;
        }
        match command {
            // One that serves a call of another cell would wait for that very cell.
            Command::Start { ref cell, .. } if self.must_wait(cell) => {
                self.commands.wait_for_place(command);
                Ok(())
            }
            Command::Start { cell, .. } if self.kernel.data().cells.len() >= CELLS_SERVING_MAX => {
                let message =
                    format!("{CELLS_SERVING_MAX} cells await on this kernel; more can start when some have ended");
                let failure = Failure::refused(FailureCode::Busy, "KernelError", message);
                cell.finish(Outcome::Failed(Box::new(failure)), Usage::default());
                Ok(())
            }
            // It waited for its turn, and nobody wants it any more.
            Command::Start { cell, .. } if cell.stop.flag.is_set() => {
                cell.finish(Outcome::Failed(Box::new(never_began())), Usage::default());
                Ok(())
            }
            Command::Start { id, code, mut cell } => {
                self.checkpoint_before_cell().await?;
                self.rest.last_cell = id;
                // The time it waited for its turn belongs to those that ran meanwhile.
                cell.time.deadline = later(cell.time.deadline, cell.began.elapsed());
                cell.budget.cpu_before = self.kernel.cpu_time();
                let traces_names = cell.traces_names() || self.has_origins();
                self.note_kernel(&cell);
                self.kernel.data().add_cell(id, *cell);
                for (status, fields) in std::mem::take(&mut self.due.notices) {
                    self.kernel.data().report_status(id, status, fields).await;
                }
                let cell = types::Cell { id, code: code.as_ref().to_owned(), traces_names };
                self.enter(Entry::Start(cell)).await
            }
            // Whoever asked may have gone away; that is no concern here.
            Command::Clear(reply) => {
                self.kernel.clear().await?;
                *lock(&self.link.origins) = Some(Origins::default());
                self.link.clears.fetch_add(1, Ordering::Relaxed);
                self.rest.stirred();
                self.end_cleared().await;
                self.sow().await?;
                let _ = reply.send(());
                Ok(())
            }
            Command::Look(_, reply) if reply.is_closed() => Ok(()),
            Command::Look(question, reply) => {
                let (answer, end) = match self.kernel.look(&question).await {
                    Ok(answer) => (answer, Ok(())),
                    Err(death) => (Err(death.message.clone()), Err(death)),
                };
                self.rest.stirred();
                let _ = reply.send(answer);
                end
            }
            Command::Sleep(reply) => {
                let _ = reply.send(self.sleep().await?);
                Ok(())
            }
            Command::Checkpoint(reply) => {
                let _ = reply.send(self.save().await?);
                Ok(())
            }
            Command::Hold { reply, .. } if reply.is_closed() => Ok(()),
            Command::Hold { reply, released } => self.be_held(reply, released).await,
            Command::Snapshot(reply) => {
                let _ = reply.send(match self.check_threads() {
                    Ok(()) => self.capture().await?,
                    Err(error) => Err(error),
                });
                Ok(())
            }
        }
    }

    /// Returns true if a cell must wait until another one has ended.
    fn must_wait(&mut self, cell: &LiveCell) -> bool {
        cell.origin.lineage.last().is_none() && self.kernel.data().cells.len() >= CELLS_LIVE_MAX
    }

    /// Has a run told that its cell begins on another kernel than an earlier one did.
    fn note_kernel(&mut self, cell: &LiveCell) {
        let language = self.guest.language;
        if cell.origin.kernels.as_ref().is_some_and(|kernels| kernels.note(language, &self.link)) {
            let fields = vec![("language".to_owned(), Scalar::Text(language.code().to_owned()))];
            self.due.notices.push((HostStatus::KernelReplaced, fields));
        }
    }

    /// Hands over a completion, and with it all that are there already.
    async fn resume(&mut self, first: CallEnd) -> Result<(), Death> {
        let cell = first.cell;
        let mut completions = Vec::new();
        let mut next = Some(first);
        while let Some(end) = next {
            completions.push(self.kernel.data().completion(end).await);
            next = if completions.len() < COMPLETIONS_MAX { self.kernel.data().binding.calls.try_next() } else { None };
        }
        self.enter(Entry::Resume(cell, completions)).await
    }

    async fn tick(&mut self) -> Result<(), Death> {
        // A guest that is always due must not keep its thread.
        self.due.idle_spins = self.due.idle_spins.wrapping_add(1);
        if self.due.idle_spins.is_multiple_of(IDLE_SPINS_MAX) {
            tokio::task::yield_now().await;
        }
        let waiting = self.kernel.data().cells.first_key_value().map_or(0, |(id, _)| *id);
        self.enter(Entry::Resume(waiting, Vec::new())).await
    }

    /// Enters the guest, and takes in what that led to. Cells that the host had to end meanwhile are interrupted then.
    async fn enter(&mut self, entry: Entry) -> Result<(), Death> {
        let mut next = Some(entry);
        let mut ended = VecDeque::new();
        while let Some(entry) = next {
            self.kernel.data().holds_ends = self.setting.storing.is_some();
            self.link.is_entered.store(true, Ordering::Relaxed);
            let step = self.kernel.step(entry).await?;
            self.link.is_entered.store(false, Ordering::Relaxed);
            for (id, reason) in self.kernel.data().take_ended() {
                self.note_abandoned(id);
                ended.push_back((id, reason));
            }
            self.apply(step).await?;
            // One that the guest has stopped of itself need not be told.
            ended.retain(|(id, _)| self.due.abandoned.contains(id));
            next = ended.pop_front().map(|(id, reason)| Entry::Interrupt(id, reason));
        }
        Ok(())
    }

    /// Takes in what an entry led to.
    async fn apply(&mut self, step: types::Step) -> Result<(), Death> {
        self.rest.stirred();
        let clock = self.kernel.data().clock;
        self.due.wake_at = step.wake_at.and_then(|nanos| clock.instant(nanos));
        if self.due.wake_at.is_none_or(|wake_at| wake_at > Instant::now()) {
            self.due.idle_spins = 0;
        }
        // All is checked before any end is told: a run that hears of one starts its next cell at once.
        for (place, (id, _)) in step.finished.iter().enumerate() {
            let is_known = self.kernel.data().cells.contains_key(id) || self.due.abandoned.contains(id);
            if !is_known || step.finished[..place].iter().any(|(earlier, _)| earlier == id) {
                let message = format!("the guest finished <cell {id}>, which was not running; its kernel was killed");
                return Err(Death { kind: FailureKind::Trap, name: "Trap", message, code: LOST });
            }
        }
        for (id, outcome) in step.finished {
            if self.kernel.data().cells.contains_key(&id) {
                self.end_cell(id, outcome.into()).await;
            } else {
                self.due.abandoned.retain(|abandoned| *abandoned != id);
            }
        }
        Ok(())
    }
}
