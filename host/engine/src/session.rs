//! A caller's named use of kernels: grants, budgets, the numbering of cells, and at most one kernel per language.
//!
//! The session is immortal where its kernels are not: when one dies, the next cell of its language gets a new one.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use rand::Rng;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{
    artifact::Flavour,
    bindings::types,
    bridge::{Bridges, NoBridges},
    calls::Calls,
    cell::{Cell, CellId, Language},
    checkpoint::Slot,
    config::{PACKAGES, WORKSPACE},
    error::Error,
    event::EventKind,
    files::{Access, FileLimits, Files, Mount, OpenMount, Quota},
    host::Host,
    limits::Limits,
    meter::{StopFlag, lock},
    reactor::{self, Command, Setting},
    snapshot::Snapshot,
    store::{Binding, KernelLink, LiveCell},
    vault::StoredSession,
    workspace::PrivateFolder,
};

mod state;

/// Commands that wait for a busy kernel.
const COMMANDS_MAX: usize = 256;

/// What a session is granted. The default grants nothing but an empty private workspace.
#[derive(Clone)]
pub struct SessionConfig {
    /// Its name; made up when absent.
    pub id: Option<String>,
    /// Folder to use as workspace, read-write; when absent a private temporary one, removed with the session.
    pub workspace: Option<PathBuf>,
    /// Further folders.
    pub mounts: Vec<Mount>,
    /// Folders with installed Python packages (`pip install --target`), which cells import from and cannot change.
    /// The earlier wins.
    pub packages: Vec<PathBuf>,
    /// Environment variables of cells. The host's own are never passed on.
    pub environment: Vec<(String, String)>,
    /// Bounds.
    pub limits: Limits,
    /// Tools, models, agents.
    pub bridges: Arc<dyn Bridges>,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            id: None,
            workspace: None,
            mounts: Vec::new(),
            packages: Vec::new(),
            environment: Vec::new(),
            limits: Limits::default(),
            bridges: Arc::new(NoBridges),
        }
    }
}

impl std::fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionConfig").field("id", &self.id).field("mounts", &self.mounts).finish_non_exhaustive()
    }
}

/// A session. A cheap handle: the session ends, and frees all it holds, with the last handle and the last [`Run`](crate::Run).
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// Closes the session when the last owner goes. Handles given to bridges own nothing, else a call that never ends
    /// would keep its session alive.
    _owner: Option<Arc<Owner>>,
    /// Agents between the session's owner and this handle.
    depth: u32,
}

/// A session as its kernels know it.
#[derive(Clone, Default)]
pub(crate) struct WeakSession(Weak<Inner>);

impl WeakSession {
    /// A handle that does not keep the session open.
    pub(crate) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(|inner| Session { inner, _owner: None, depth: 0 })
    }

    /// Compresses what was kept for the session's languages, and stores it if the session has a place for that, on
    /// another thread.
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
    mounts: Vec<OpenMount>,
    /// Guest paths of the folders with packages.
    packages: Vec<String>,
    quota: Arc<Quota>,
    /// Bridge calls that run at the same time.
    permits: Arc<Semaphore>,
    next_cell: AtomicU32,
    kernels: Mutex<Kernels>,
    /// The workspace, when it is a private one. Its kernels hold it as well, because they outlive the session a little.
    private: Option<Arc<PrivateFolder>>,
    /// Where it is stored. Its kernels hold it as well: nobody else may have the session before they are gone.
    home: Option<Arc<StoredSession>>,
    /// Somebody is about to store what is kept.
    is_settling: AtomicBool,
}

/// What a session begins with.
#[derive(Default)]
struct Origin<'a> {
    /// The state it goes on from.
    snapshot: Option<&'a Snapshot>,
    /// Its private workspace, if it is to have a certain one.
    private: Option<PrivateFolder>,
    home: Option<StoredSession>,
}

#[derive(Default)]
struct Kernels {
    closed: bool,
    live: HashMap<Language, KernelHandle>,
    /// What a language goes on from when it gets a kernel.
    slots: HashMap<Language, Arc<Slot>>,
}

/// The session's end of a kernel's task.
struct KernelHandle {
    commands: mpsc::Sender<Command>,
    link: Arc<KernelLink>,
}

impl KernelHandle {
    /// Ends the kernel; its cells end as interrupted.
    fn close(&self) {
        self.link.closing.store(true, Ordering::Relaxed);
        self.link.wake.notify_one();
    }
}

impl Inner {
    fn close(&self) {
        let mut kernels = lock(&self.kernels);
        kernels.closed = true;
        kernels.live.drain().for_each(|(_, kernel)| kernel.close());
    }
}

fn made_up_id() -> String {
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
    /// `Mount` or `Workspace` when a folder cannot be granted.
    pub fn session(&self, config: SessionConfig) -> Result<Session, Error> {
        Session::open(self.clone(), config, Origin::default())
    }
}

impl Session {
    fn open(host: Host, config: SessionConfig, origin: Origin<'_>) -> Result<Session, Error> {
        let Origin { snapshot, private, home } = origin;
        let home = home.map(Arc::new);
        let mut kernels = Kernels::default();
        if let Some(snapshot) = snapshot {
            host.check(snapshot, &config)?;
            kernels.go_on_from(snapshot, &home);
        }
        let mut private = private.map(Arc::new);
        let workspace = match (&config.workspace, &private, &home) {
            (Some(folder), ..) => folder.clone(),
            (None, Some(private), _) => private.path().to_owned(),
            (None, None, Some(home)) => home.workspace()?,
            (None, None, None) => {
                let folder = PrivateFolder::new().map_err(Error::Workspace)?;
                private.insert(Arc::new(folder)).path().to_owned()
            }
        };
        let workspace = Mount { host: workspace, guest: WORKSPACE.to_owned(), access: Access::ReadWrite };
        let packages = package_mounts(&config.packages);
        let mounts = std::iter::once(&workspace).chain(&config.mounts).chain(&packages);
        let mounts: Result<Vec<_>, _> = mounts.map(Mount::open).collect();
        let id = config.id.clone().or_else(|| snapshot.map(|snapshot| snapshot.session.clone()));
        let id = id.unwrap_or_else(made_up_id);
        let file_limits = FileLimits {
            bytes_max: config.limits.disk_bytes,
            files_max: config.limits.disk_files,
            descriptors_max: config.limits.descriptors,
        };
        let inner = Arc::new(Inner {
            id,
            host,
            mounts: mounts?,
            packages: packages.into_iter().map(|mount| mount.guest).collect(),
            quota: Quota::with_usage(file_limits, snapshot.map_or((0, 0), |snapshot| snapshot.disk_usage)),
            permits: Arc::new(Semaphore::new(config.limits.calls_in_flight)),
            next_cell: AtomicU32::new(snapshot.map_or(1, |snapshot| snapshot.next_cell)),
            kernels: Mutex::new(kernels),
            config,
            private,
            home,
            is_settling: AtomicBool::new(false),
        });
        let owner = Arc::new(Owner(Arc::downgrade(&inner)));
        Ok(Session { inner, _owner: Some(owner), depth: 0 })
    }

    /// The session's name.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The session's bounds.
    pub fn limits(&self) -> &Limits {
        &self.inner.config.limits
    }

    /// Bytes and names that the session's cells have added to its folders; see [`Limits::disk_bytes`].
    pub fn disk_usage(&self) -> (u64, u64) {
        self.inner.quota.usage()
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
        self.inner.host.guest(language, self.flavour()).map(drop)
    }

    /// Gives a language a fresh kernel. Cells that run on the old one end as interrupted; grants and bridges stay.
    pub fn reset(&self, language: Language) {
        let mut kernels = lock(&self.inner.kernels);
        // The old kernel keeps the old slot.
        kernels.slots.remove(&language);
        if let Some(kernel) = kernels.live.remove(&language) {
            kernel.close();
        }
    }

    /// Forgets the names and tasks of a language's kernel, which lives on. Waits for code that runs.
    ///
    /// # Errors
    /// When the language is not available or its kernel died.
    pub async fn clear(&self, language: Language) -> Result<(), Error> {
        self.ask(language, Command::Clear).await
    }

    /// The names that cells of a language have bound.
    ///
    /// # Errors
    /// When the language is not available or its kernel died.
    pub async fn variables(&self, language: Language) -> Result<Vec<Variable>, Error> {
        self.ask(language, Command::Variables).await
    }

    /// Completions of `code` at `cursor`, which counts characters.
    ///
    /// # Errors
    /// When the language is not available or its kernel died.
    pub async fn complete(&self, language: Language, code: String, cursor: u32) -> Result<CompletionList, Error> {
        self.ask(language, |reply| Command::Complete { code, cursor, reply }).await
    }

    async fn ask<T>(
        &self,
        language: Language,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let commands = self.kernel(language, |kernel| kernel.commands.clone())?;
        let died = || Error::Kernel { language, source: "the kernel died before it answered".into() };
        commands.send(command(reply)).await.map_err(|_| died())?;
        answer.await.map_err(|_| died())
    }

    fn flavour(&self) -> Flavour {
        if self.inner.config.limits.fuel.is_some() { Flavour::Fuel } else { Flavour::Epoch }
    }

    /// Starts a cell of a run on its kernel. Its events come out of the channel, `CellFinished` last; a channel that
    /// ends without it tells of a kernel that died unheard.
    pub(crate) fn start_cell(
        &self,
        index: usize,
        cell: &Cell,
        stop: Arc<StopFlag>,
        events: mpsc::Sender<EventKind>,
    ) -> Result<CellId, Error> {
        let language = cell.language;
        if cell.reset {
            self.reset(language);
        }
        let last = events.clone().try_reserve_owned();
        let last = last.map_err(|_| Error::Kernel { language, source: "its events have no reader".into() })?;
        let id = CellId(self.inner.next_cell.fetch_add(1, Ordering::Relaxed));
        let limits = &self.inner.config.limits;
        let began = Instant::now();
        let live = LiveCell {
            index,
            events,
            last,
            began,
            deadline: began + limits.cell_timeout(cell.timeout),
            stop_seen: None,
            give_up: None,
            cpu_before: std::time::Duration::ZERO,
            output_left: Some(limits.output_bytes),
            fuel_left: limits.fuel,
            depth: self.depth,
            stop: stop.clone(),
        };
        self.kernel(language, |kernel| {
            let blocked = kernel.link.agent_block.load(Ordering::Relaxed);
            if self.depth > 0 && blocked != 0 {
                return Err(Error::Deadlock { language, bridge: "agent", cell: blocked });
            }
            stop.watch(kernel.link.wake.clone());
            let command = Command::Start { id: id.0, code: cell.code.clone(), cell: live };
            kernel.commands.try_send(command).map_err(|error| Error::Kernel {
                language,
                source: match error {
                    mpsc::error::TrySendError::Full(_) => format!("{COMMANDS_MAX} cells are waiting for it").into(),
                    mpsc::error::TrySendError::Closed(_) => "the kernel died before the cell began".into(),
                },
            })
        })??;
        Ok(id)
    }

    /// Hands the kernel of a language to `use_it`, starting one when there is none or it died.
    fn kernel<T>(&self, language: Language, use_it: impl FnOnce(&KernelHandle) -> T) -> Result<T, Error> {
        let mut kernels = lock(&self.inner.kernels);
        if kernels.closed {
            return Err(Error::SessionClosed(self.inner.id.clone()));
        }
        if let Some(kernel) = kernels.live.get(&language)
            && !kernel.commands.is_closed()
        {
            return Ok(use_it(kernel));
        }
        let slot = kernels.slot(language, &self.inner.home);
        let kernel = self.start_kernel(language, slot)?;
        let result = use_it(&kernel);
        kernels.live.insert(language, kernel);
        Ok(result)
    }

    fn start_kernel(&self, language: Language, slot: Arc<Slot>) -> Result<KernelHandle, Error> {
        let inner = &self.inner;
        let guest = inner.host.guest(language, self.flavour())?;
        let link = Arc::<KernelLink>::default();
        let mounts = guest.mounts().iter().chain(&inner.mounts).cloned().collect();
        let binding = Binding {
            session: WeakSession(Arc::downgrade(inner)),
            limits: inner.config.limits.clone(),
            bridges: inner.config.bridges.clone(),
            files: Files::new(mounts, inner.quota.clone()),
            calls: Calls::new(inner.permits.clone()),
            link: link.clone(),
            _private: inner.private.clone(),
            _home: inner.home.clone(),
        };
        let configuration = types::Configuration {
            seed: rand::rng().random(),
            environment: inner.config.environment.clone(),
            working_directory: WORKSPACE.to_owned(),
            packages: inner.packages.clone(),
        };
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let setting = Setting { slot, rests: inner.host.rests(), sweep: inner.host.sweep() };
        tokio::spawn(reactor::run(guest, receiver, binding, configuration, setting));
        Ok(KernelHandle { commands, link })
    }
}

/// Folders with packages, each at a place of its own.
fn package_mounts(folders: &[PathBuf]) -> Vec<Mount> {
    let mount = |(index, folder): (usize, &PathBuf)| Mount {
        host: folder.clone(),
        guest: format!("{PACKAGES}/{}", index + 1),
        access: Access::ReadOnly,
    };
    folders.iter().enumerate().map(mount).collect()
}

pub use types::{CompletionItem, CompletionList, Variable};
