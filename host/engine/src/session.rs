//! A caller's named use of kernels: grants, budgets, the numbering of cells, and at most one kernel per language.
//!
//! The session is immortal where its kernels are not: when one dies, the next cell of its language gets a new one.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use cellar_core::{
    cell::{Cell, CellId, GuestName, Language, RunId},
    event::EventKind,
    limits::{INPUT_IDLE_TIMEOUT_MAX, Limits},
    sync::lock,
};
use cellar_files::{FileLimits, Files, Quota};
use rand::Rng;
use tokio::sync::{mpsc, oneshot};
use tracing::Span;

use crate::{
    audit::{Auditor, OpenCalls},
    contract::{
        config::{KernelMode, Seed, WORKSPACE},
        error::Error,
    },
    formats::{remembered::Remembered, snapshot::Snapshot},
    kernel::{
        border::types,
        calls::{Block, Calls, Lineage, Requests},
        code::Flavour,
        events::{BackgroundReader, Backlog, Gate, Hearer, Late, Queue, Queued},
        host::Host,
        origins::{CellScope, Scope},
        record::{Recorder, RunRecord},
        scheduling::StopFlag,
        state::{Binding, CellBudget, CellOrigin, CellReader, KernelLink, KernelsUsed, LiveCell},
    },
    session::{
        builtin::SessionBridges,
        driven::{Driven, Seat},
        folders::Folders,
        history::History,
        looks::no_answer,
        reactor::{Command, Setting},
        saved::{Slot, begin_recording},
        spawned::{Forks, Kin, Role, Shared, Teller},
        states::Keeper,
    },
    storage::{vault::StoredSession, workspace::PrivateFolder},
};

mod artifacts;
mod auditing;
mod builtin;
mod driven;
mod folders;
pub(crate) mod granted;
mod grants;
pub(crate) mod history;
mod input;
mod locals;
mod looks;
mod origins;
mod reactor;
pub(crate) mod run;
pub(crate) mod saved;
mod spawned;
pub(crate) mod states;
mod trees;
pub(crate) mod waits;

pub use builtin::{catalog, selfref_pack};
pub use driven::Driver;
pub use grants::{DiskBudget, FolderGrants, KernelOptions, OutputOptions, SessionConfig, SharedBudgets};
pub use spawned::CommandInput;

/// Commands that wait for a busy kernel.
const COMMANDS_MAX: usize = 256;

/// A session. A cheap handle: the session ends, and frees all it holds, with the last handle and the last [`Run`](crate::Run).
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// Closes the session when the last owner goes. Bridges get handles without an owner, so that a pending call cannot keep
    /// a session open.
    _owner: Option<Arc<Owner>>,
    /// Agents between the session's owner and this handle.
    depth: u32,
    /// The calls that runs of this handle serve.
    lineage: Lineage,
    /// Second receiver of the events of this handle's runs, for a fork that a cell made: the run of that cell, or once that
    /// has ended, of the owner's latest cell.
    teller: Option<Arc<Teller>>,
}

/// A session as its kernels know it.
#[derive(Clone, Default)]
pub(crate) struct WeakSession(Weak<Inner>);

impl WeakSession {
    /// A handle that does not keep the session open, for what serves these calls.
    pub(crate) fn upgrade(&self, lineage: Lineage) -> Option<Session> {
        self.0.upgrade().map(|inner| Session { inner, _owner: None, depth: 0, lineage, teller: None })
    }

    /// Compresses the last states of the session's languages, and stores them if the session is stored, on another thread.
    pub(crate) fn settle(&self) {
        if let Some(inner) = self.0.upgrade() {
            tokio::task::spawn_blocking(move || inner.settle());
        }
    }
}

struct Owner(Weak<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.close();
        }
    }
}

struct Inner {
    id: String,
    host: Host,
    config: SessionConfig,
    /// Disk quota of its cells.
    quota: Arc<Quota>,
    /// Relation to the session whose cell made it.
    role: Role,
    shared: Shared,
    /// The forks that its cells have made.
    forks: Forks,
    cells: Cells,
    remembered: Mutex<Remembered>,
    seeds: HashMap<Language, Arc<Seed>>,
    kernels: Mutex<Kernels>,
    /// The thread that drives its kernels, if one does.
    seat: Arc<Seat>,
    /// The folders that its cells see. Its kernels hold what it has to itself as well, because they outlive the session a little.
    folders: Folders,
    stored: Stored,
    /// Keeper of its states, if they are kept.
    keeper: Option<Arc<Keeper>>,
    recorder: Option<Arc<Recorder>>,
    auditor: Option<Arc<Auditor>>,
}

/// Cells of a session, and output besides them.
#[derive(Default)]
struct Cells {
    /// The number of the next one.
    next: AtomicU32,
    history: Mutex<History>,
    /// The reader of the run of the owner's latest cell.
    latest: Arc<Mutex<Option<Hearer>>>,
    /// Output written while none of its cells runs.
    backlog: Arc<Backlog>,
    /// Their requests for input.
    input: Arc<Requests>,
}

/// Storage of a session, and its pending writes.
#[derive(Default)]
struct Stored {
    /// Storage, if it is stored. Its kernels hold it as well: the session cannot be opened elsewhere before they are gone.
    home: Option<Arc<StoredSession>>,
    /// True if a task is about to store the last states.
    is_settling: AtomicBool,
    /// True if a kernel was reset and the stored state is from before.
    is_reset: AtomicBool,
}

/// Initial state of a session.
#[derive(Default)]
struct Origin<'a> {
    /// State that it is restored from.
    snapshot: Option<&'a Snapshot>,
    /// The folders that it has to itself, if those are to be certain ones.
    private: Option<PrivateFolder>,
    home: Option<StoredSession>,
    /// Resources that it shares with the session whose cell made it.
    kin: Option<Kin>,
    /// The folders of the session whose process it is.
    lent: Option<Folders>,
}

/// Context of a run that its cells get.
#[derive(Clone)]
pub(crate) struct RunMarks {
    pub(crate) id: RunId,
    /// Tracing span of the run.
    pub(crate) span: Span,
    pub(crate) record: Option<RunRecord>,
    /// Producer and gate of the run, and what it has used.
    pub(crate) scope: Arc<Scope>,
    /// The kernels of its cells so far.
    pub(crate) kernels: Arc<KernelsUsed>,
    /// True if its reader answers requests for input although an agent makes it.
    pub(crate) answers_input: bool,
}

#[derive(Default)]
struct Kernels {
    closed: bool,
    /// True while the session goes back to a state: no kernel starts then.
    is_paused: bool,
    live: HashMap<Language, KernelHandle>,
    /// Last state of each language, which its next kernel is restored from.
    slots: HashMap<Language, Arc<Slot>>,
    /// Kernels of one cell each.
    passing: Vec<(Language, KernelHandle)>,
}

/// The session's end of a kernel's task.
struct KernelHandle {
    commands: mpsc::Sender<Command>,
    link: Arc<KernelLink>,
    driven: Driven,
}

impl KernelHandle {
    /// Ends the kernel; its cells end as interrupted.
    fn close(&self) {
        self.link.closing.store(true, Ordering::Relaxed);
        self.link.resident.wake.notify_one();
    }
}

impl Inner {
    /// Storage of the session, or of the session whose process it is; `None` if that is not stored.
    fn claimed_home(&self) -> Option<Arc<StoredSession>> {
        self.stored.home.clone().or_else(|| self.role.process()?.home.clone())
    }

    fn close(&self) {
        let mut kernels = lock(&self.kernels);
        kernels.closed = true;
        kernels.live.drain().for_each(|(_, kernel)| kernel.close());
        kernels.passing.drain(..).for_each(|(_, kernel)| kernel.close());
        drop(kernels);
        self.forks.close();
    }
}

/// Generates an id for a session without one.
pub fn made_up_id() -> String {
    format!("s-{:016x}", rand::rng().random::<u64>())
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.inner.id).field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Host {
    /// Opens a session.
    ///
    /// # Errors
    /// `Mount` or `Workspace` when a folder cannot be granted, `Request` when a seed is too large or a timeout is none that
    /// a cell may have.
    pub fn session(&self, config: SessionConfig) -> Result<Session, Error> {
        Session::open(self.clone(), config, Origin::default())
    }
}

impl Session {
    fn open(host: Host, config: SessionConfig, origin: Origin<'_>) -> Result<Session, Error> {
        grants::check_seeds(&config.kernels.seeds)?;
        config.limits.check().map_err(Error::Request)?;
        let Origin { snapshot, private, home, kin, lent } = origin;
        let home = home.map(Arc::new);
        let mut kernels = Kernels::default();
        if let Some(snapshot) = snapshot {
            host.check(snapshot, &config)?;
            kernels.go_on_from(snapshot, &home, kin.is_some());
        }
        let folders = lent.map_or_else(|| Folders::open(&config, private, home.as_deref()), Ok)?;
        let id = config.id.clone().or_else(|| snapshot.map(|snapshot| snapshot.session.clone()));
        let id = id.unwrap_or_else(made_up_id);
        let file_limits = FileLimits {
            bytes_max: config.limits.disk_bytes,
            files_max: config.limits.disk_files,
            descriptors_max: config.limits.descriptors,
        };
        let auditor = config.audit.clone().map(|audit| Auditor::new(audit, id.clone()));
        let limits = &config.limits;
        let disk_usage = snapshot.map_or((0, 0), |snapshot| snapshot.disk_usage);
        let keys = match snapshot {
            // A stored session is still itself.
            Some(snapshot) if home.is_some() => snapshot.artifacts.clone(),
            Some(snapshot) => snapshot.inherited_artifacts(),
            None => None,
        };
        let Kin { role, shared, quota } = kin.unwrap_or_else(|| Kin {
            role: Role::Own,
            shared: Shared::new(&id, limits, keys.unwrap_or_default()),
            quota: None,
        });
        let record = |path| begin_recording(path, &id, limits, shared.reach.keys().own());
        let recorder = config.record.as_deref().map(record).transpose()?;
        let quota = quota.or_else(|| config.shared.disk.as_ref().map(|DiskBudget(quota)| quota.clone()));
        let keeper = Inner::new_keeper(&config, &role, home.as_ref());
        let inner = Arc::new(Inner {
            id,
            host,
            keeper,
            folders,
            quota: quota.unwrap_or_else(|| Quota::within(file_limits, disk_usage, config.shared.disk_pool.clone())),
            role,
            shared,
            forks: Forks::default(),
            cells: Cells {
                next: AtomicU32::new(snapshot.map_or(1, |snapshot| snapshot.next_cell)),
                ..Cells::default()
            },
            remembered: Mutex::new(snapshot.map(|snapshot| snapshot.remembered.clone()).unwrap_or_default()),
            seeds: config.kernels.seeds.iter().map(|(language, seed)| (*language, Arc::new(seed.clone()))).collect(),
            kernels: Mutex::new(kernels),
            seat: Arc::default(),
            stored: Stored { home, ..Stored::default() },
            config,
            recorder,
            auditor,
        });
        let owner = Arc::new(Owner(Arc::downgrade(&inner)));
        Ok(Session { inner, _owner: Some(owner), depth: 0, lineage: Lineage::default(), teller: None })
    }

    /// The session's name.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The session's bounds.
    pub fn limits(&self) -> &Limits {
        &self.inner.config.limits
    }

    /// The guest that runs a language in this session.
    pub fn guest(&self, language: Language) -> GuestName {
        self.inner.config.kernels.guest(language)
    }

    /// Bytes and names that the session's cells have added to its folders; see [`Limits::disk_bytes`].
    pub fn disk_usage(&self) -> (u64, u64) {
        self.inner.quota.usage()
    }

    /// Value that a bridge keeps for this session: one for each type, initially its default.
    pub fn local<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        self.inner.shared.locals.get()
    }

    /// Subscribes to what code of the session writes from now on while none of its cells runs. The session's next cell still
    /// receives it, as [`EventKind::Background`].
    pub fn background(&self) -> BackgroundReader {
        self.inner.cells.backlog.listen()
    }

    /// Takes the output between cells that no event has reported.
    pub(crate) fn take_background(&self) -> Vec<Late> {
        self.inner.cells.backlog.take()
    }

    /// A handle for an agent at this depth, whose runs share the session's state both ways.
    pub fn for_agent(&self, depth: u32) -> Session {
        Session { depth, ..self.clone() }
    }

    /// Agents between the session's owner and this handle.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Makes sure that a language is available.
    pub(crate) fn require(&self, language: Language) -> Result<(), Error> {
        self.inner.config.kernels.check_language(language)?;
        self.inner.host.guest(self.guest(language), self.flavour(language)).map(drop)
    }

    /// Replaces a language's kernel by a new one. Cells that run on the old one end as interrupted; grants, bridges and seeds
    /// stay. A stored session has dropped the old one's state on disk too when the next run of the language has ended, or
    /// after [`Session::save`].
    pub fn reset(&self, language: Language) {
        self.inner.stored.is_reset.store(true, Ordering::Relaxed);
        let mut kernels = lock(&self.inner.kernels);
        // The old kernel keeps the old slot.
        kernels.slots.remove(&language);
        if let Some(kernel) = kernels.live.remove(&language) {
            kernel.close();
        }
        kernels.passing.extract_if(.., |(each, _)| *each == language).for_each(|(_, kernel)| kernel.close());
    }

    /// Forgets the names and tasks of a language's kernel, which lives on with its seed. Waits for code that runs.
    ///
    /// # Errors
    /// When the language is not available; `Look` when its kernel died.
    pub async fn clear(&self, language: Language) -> Result<(), Error> {
        self.ask(language, Command::Clear).await
    }

    /// The host that its kernels live on.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// The number that the next cell will have.
    pub fn next_cell(&self) -> CellId {
        CellId(self.inner.cells.next.load(Ordering::Relaxed))
    }

    async fn ask<T>(
        &self,
        language: Language,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let commands = self.kernel(language, |kernel| kernel.commands.clone())?;
        commands.send(command(reply)).await.map_err(|_| no_answer(language))?;
        answer.await.map_err(|_| no_answer(language))
    }

    fn flavour(&self, language: Language) -> Flavour {
        Flavour::of(language, self.inner.host.config().stops, self.inner.config.limits.fuel.is_some())
    }

    /// Starts a cell of a run on its kernel. Its events come out of the channel, `CellFinished` last; a channel that
    /// ends without it tells of a kernel that died unheard.
    pub(crate) fn start_cell(
        &self,
        index: usize,
        cell: &Cell,
        stop: Arc<StopFlag>,
        events: mpsc::Sender<Queued>,
        marks: RunMarks,
    ) -> Result<CellId, Error> {
        let language = cell.language;
        if cell.reset {
            self.reset(language);
            marks.kernels.forget(language);
        }
        let last = events.clone().try_reserve_owned();
        let last = last.map_err(|_| Error::Kernel { language, source: "its events have no reader".into() })?;
        let id = self.number(cell);
        let limits = &self.inner.config.limits;
        let events = Queue::new(events, self.inner.unread());
        let reader = CellReader::new(index, events, last, marks.record);
        if self.depth == 0 {
            *lock(&self.inner.cells.latest) = reader.gate.as_ref().map(Gate::hearer);
        }
        let scope = Some(CellScope { run: marks.scope, language });
        let bill = self.inner.role.process().map(|process| process.bill.clone());
        let mut live = LiveCell {
            span: tracing::info_span!(parent: &marks.span, "cell", index, cell = id.0, %language),
            origin: CellOrigin {
                run: Some(marks.id),
                depth: self.depth,
                answers_input: marks.answers_input,
                lineage: self.lineage.clone(),
                scope,
                kernels: Some(marks.kernels),
            },
            budget: CellBudget {
                output_left: Some(limits.output_bytes),
                fuel_left: limits.fuel,
                bill,
                ..CellBudget::default()
            },
            ..LiveCell::new(reader, limits.cell_timeout(cell.timeout))
        };
        live.stop.flag = stop.clone();
        self.kernel(language, |kernel| {
            // Any other call that holds the kernel ends by itself, and the cell has its turn.
            self.check_block(language, kernel)?;
            stop.watch(kernel.link.resident.wake.clone());
            let place = kernel.commands.try_reserve().map_err(|error| match error {
                mpsc::error::TrySendError::Full(()) => Error::CellsWaiting { language, count: COMMANDS_MAX },
                mpsc::error::TrySendError::Closed(()) => {
                    Error::Kernel { language, source: "the kernel died before the cell began".into() }
                }
            })?;
            if let Some(record) = &live.reader.record {
                record.told(&EventKind::CellStarted { index, cell: id });
            }
            place.send(Command::Start { id: id.0, code: cell.code.clone(), cell: Box::new(live) });
            Ok::<_, Error>(())
        })??;
        Ok(id)
    }

    /// # Errors
    /// `Deadlock` when the kernel is held by a call that waits for this handle's runs.
    fn check_block(&self, language: Language, kernel: &KernelHandle) -> Result<(), Error> {
        match lock(&kernel.link.blocks).iter().find(|block| self.lineage.contains(block.site)) {
            Some(Block { bridge, site }) => Err(Error::Deadlock { language, bridge: bridge.as_str(), cell: site.0 }),
            None => Ok(()),
        }
    }

    /// Hands the kernel of a language to `use_it`, starting one when there is none or it died.
    fn kernel<T>(&self, language: Language, use_it: impl FnOnce(&KernelHandle) -> T) -> Result<T, Error> {
        let mut kernels = lock(&self.inner.kernels);
        if kernels.closed {
            return Err(Error::SessionClosed(self.inner.id.clone()));
        }
        if kernels.is_paused {
            return Err(Error::Request("the session is going back to a state".to_owned()));
        }
        let once = self.inner.config.kernels.mode == KernelMode::PerCall;
        if let Some(kernel) = kernels.live.get(&language)
            && !kernel.commands.is_closed()
        {
            return Ok(use_it(kernel));
        }
        // A kernel of one cell leaves nothing to go on from.
        let slot = if once { Arc::new(Slot::new(None)) } else { kernels.slot(language, &self.inner.stored.home) };
        let kernel = self.start_kernel(language, slot, once)?;
        let result = use_it(&kernel);
        if once {
            kernels.passing.retain(|(_, kernel)| !kernel.commands.is_closed());
            kernels.passing.push((language, kernel));
        } else {
            kernels.live.insert(language, kernel);
        }
        Ok(result)
    }

    fn start_kernel(&self, language: Language, slot: Arc<Slot>, once: bool) -> Result<KernelHandle, Error> {
        let inner = &self.inner;
        let guest = inner.host.guest_of(self.guest(language), self.flavour(language), slot.guest().as_deref())?;
        let link = inner.link();
        let weak = WeakSession(Arc::downgrade(inner));
        let mounts = guest.mounts().iter().chain(&inner.folders.mounts).cloned().collect();
        let binding = Binding {
            limits: inner.config.limits.clone(),
            memory: inner.role.process().map(|process| process.memory.clone()),
            budget: inner.config.shared.memory.clone(),
            _place: inner.role.process().and_then(|process| process.place.clone()),
            answers: Arc::new(SessionBridges::new(weak.clone(), inner.config.bridges.clone(), link.clone(), language)),
            files: Files::new(mounts, inner.quota.clone()),
            calls: Calls::new(inner.shared.permits.clone()),
            open_calls: OpenCalls::new(inner.auditor.clone()),
            backlog: inner.cells.backlog.clone(),
            link: link.clone(),
            tape: inner.recorder.as_ref().map(Recorder::kernel).unwrap_or_default(),
            threads: guest.threads(),
            input: inner.config.input.map(|idle| (inner.cells.input.clone(), idle.min(INPUT_IDLE_TIMEOUT_MAX))),
            turn: Some(Arc::new(inner.share().turn())),
            _private: inner.folders.private.clone(),
            _home: inner.claimed_home(),
        };
        let configuration = types::Configuration {
            seed: rand::rng().random(),
            environment: inner.config.environment.clone(),
            working_directory: WORKSPACE.to_owned(),
            packages: inner.folders.packages.clone(),
            connectors: inner.config.bridges.connectors().into_iter().map(|connector| connector.name).collect(),
        };
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let mut rests = inner.host.rests();
        if once {
            (rests.checkpoint_after, rests.hibernate_after) = (None, None);
        }
        let seed = inner.seeds.get(&language).cloned();
        let is_reset = inner.stored.is_reset.swap(false, Ordering::Relaxed);
        let storing = (is_reset && inner.stored.home.is_some()).then(|| {
            let inner = inner.clone();
            tokio::task::spawn_blocking(move || inner.store())
        });
        let setting = Setting { session: weak, slot, rests, sweep: inner.host.sweep(), seed, once, storing };
        // No other thread waits for a kernel of one cell than its session's: it is never among those that are driven.
        let seat = if once { Arc::default() } else { inner.seat.clone() };
        let driven = Driven::spawn(seat, reactor::run(guest, receiver, binding, configuration, setting));
        Ok(KernelHandle { commands, link, driven })
    }
}
