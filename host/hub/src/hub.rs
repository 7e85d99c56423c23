//! Sessions and runs of a host, by name.

mod branches;
mod commands;
mod forgetting;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_bridges::{Afar, Approver, Confirmations, Doors, HostBridges, Options, Sampler, keep_compiled_in};
use cellar_charts::Charts;
use cellar_config::Config;
use cellar_config::{Granted, Overrides, Progress, languages_of, make_ready};
use cellar_core::sync::lock;
use cellar_engine::{
    DiskBudget, Error, GuestName, Host, HostConfig, Language, Run, Session, SessionConfig, Snapshot,
    artifacts::ArtifactStore,
    bridges::ToolSpec,
    config::{KernelOptions, Unread},
    guests::guest_status,
    store::{SessionStore, StoredInfo},
};
use tokio::task::spawn_blocking;

use crate::{
    answers::Answerer,
    bounds::Bounds,
    error::HubError,
    figures::{CellKey, Figures, Histogram},
    journals::{Account, Journals},
    layer::Layer,
    run::{Driving, Ending, RunHandle, RunRequest, drive},
    turn::{Turn, Turns},
};

/// Timeout for the release of a session by its last readers, when it is removed or put away.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to take over such a session.
const RELEASE_INTERVAL: Duration = Duration::from_millis(5);

/// Limits and shared parts of a hub.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HubConfig {
    /// Sessions that may be open.
    pub sessions_max: usize,
    /// Runs that may be under way.
    pub runs_max: usize,
    /// Runs that are kept when they have ended.
    pub runs_kept: usize,
    /// Bytes of the ended runs that are kept, except that the last one is kept whatever its size.
    pub runs_kept_bytes: usize,
    /// Bound for the bytes of all runs that are kept, of this hub and of those that share it: by default the other hubs
    /// of the process.
    pub journals: Journals,
    /// Account of the events that wait for the readers of its runs.
    pub unread: Unread,
    /// Grants of every session that brings none of its own.
    pub overrides: Overrides,
    /// Store of the sessions that are opened to be kept; see [`Keep`].
    pub store: Option<SessionStore>,
    /// Store of long outputs, in place of that of the configuration file.
    pub artifacts: Option<ArtifactStore>,
    /// Answers the prompts of cells for a model, where no endpoint is configured.
    pub sampler: Option<Arc<dyn Sampler>>,
    /// Bridges to another process, which answers the calls of cells in place of the grants of the configuration file.
    /// Tools of callers and offered models are still answered here.
    pub afar: Option<Afar>,
    /// Answers calls of cells before its bridges do.
    pub layer: Option<Arc<dyn Layer>>,
    /// Asks people about calls that wait for them. Without one such calls are denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// True if runs of stored sessions end only when the state that they leave is on the disk, so that a crash undoes
    /// no reported result.
    pub is_durable: bool,
    /// Limits that its sessions share.
    pub bounds: Bounds,
    /// Called with the progress of a guest's preparation.
    pub progress: Progress,
}

impl Default for HubConfig {
    fn default() -> HubConfig {
        HubConfig {
            sessions_max: 1_024,
            runs_max: 256,
            runs_kept: 64,
            runs_kept_bytes: 64 << 20,
            journals: Journals::default(),
            unread: Unread::default().beside(),
            overrides: Overrides::default(),
            store: None,
            artifacts: None,
            sampler: None,
            afar: None,
            layer: None,
            approver: None,
            is_durable: true,
            bounds: Bounds::default(),
            progress: |_| {},
        }
    }
}

/// A session to open.
#[derive(Debug, Default)]
pub struct OpenRequest {
    /// Its name; made up when absent.
    pub name: Option<String>,
    /// Grants in place of those of the hub's own configuration file.
    pub config: Option<Config>,
    /// True if requests for input are answered; the hub's setting when absent.
    pub input: Option<bool>,
    /// Folder that its cells see as their workspace; as the hub says when absent.
    pub workspace: Option<PathBuf>,
    /// Disk budget of the session whose workspace is shared.
    pub disk_budget: Option<DiskBudget>,
    /// Tools that its answerer answers for.
    pub tools: Vec<ToolSpec>,
    /// The state that it begins with. It draws random numbers of its own, however many sessions begin with that.
    pub snapshot: Option<Snapshot>,
    /// Persistence of its state in the store of the hub.
    pub keep: Keep,
    /// The file to record it in.
    pub record: Option<PathBuf>,
}

/// Persistence of a session's state in the store of the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The state ends with the session.
    #[default]
    No,
    /// The state is stored; nothing may be stored by the session's name yet.
    New,
    /// The session continues from the state that is stored by its name.
    Existing,
    /// The session continues from the state that is stored by its name, or begins anew when there is none.
    Either,
}

/// A session of a hub.
#[derive(Clone)]
pub struct SessionEntry {
    /// The session.
    pub session: Session,
    /// The bridges without the tools of its answerer, which are called with the session's name.
    bridges: HostBridges,
    /// Calls that wait for a person; none where none does.
    rules: Option<Arc<Confirmations>>,
    /// Grants in place of those of the hub's own configuration file.
    config: Option<Config>,
    tools: Vec<ToolSpec>,
    answerer: Option<Answerer>,
    /// True if requests for input are answered; absent where the caller did not say.
    input: Option<bool>,
    is_stored: bool,
    /// Order in which its requests are carried out.
    pub(crate) turns: Arc<Turns>,
}

impl SessionEntry {
    /// Returns true if its state is kept in the store of the hub.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }
}

impl std::fmt::Debug for SessionEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionEntry").field("session", &self.session).finish_non_exhaustive()
    }
}

/// The sessions and runs of a host. A cheap handle; sessions end with the last one, unless they are closed before.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    host: Host,
    host_config: HostConfig,
    charts: Charts,
    config: HubConfig,
    /// The configuration file of the overrides, as it was when the hub opened.
    file: Config,
    doors: Arc<dyn Doors>,
    /// Ordered by name, so that lists are.
    sessions: Mutex<BTreeMap<String, SessionEntry>>,
    runs: Mutex<Runs>,
    /// Account of the bytes that are kept of the runs.
    account: Account,
    /// Guests that were found ready: for cells with fuel, or for others.
    ready: Mutex<HashSet<(GuestName, bool)>>,
    /// Sessions whose names were made up.
    unnamed: AtomicU64,
    figures: Figures,
}

#[derive(Default)]
struct Runs {
    by_id: HashMap<String, RunHandle>,
    /// Ids of the runs that have ended, the oldest first, each with the bytes that were kept of it then.
    ended: VecDeque<(String, usize)>,
    /// Bytes of all ended runs.
    ended_bytes: usize,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

impl Hub {
    /// Opens a hub on a host of its own.
    ///
    /// # Errors
    /// The configuration that sessions are granted by is not valid, or the host cannot start.
    pub fn open(host_config: HostConfig, config: HubConfig, doors: Arc<dyn Doors>) -> Result<Hub, HubError> {
        // Faults of the configuration are told before anything is started.
        let file = checked_file(&config.overrides)?;
        let host = Host::open(host_config.clone())?;
        Ok(Hub::with(host, host_config, config, file, doors))
    }

    /// Opens a hub on a host that other hubs use as well: each has sessions and runs of its own. `host_config` is that
    /// with which the host was opened.
    ///
    /// # Errors
    /// The configuration that sessions are granted by is not valid.
    pub fn on(host: Host, host_config: HostConfig, config: HubConfig, doors: Arc<dyn Doors>) -> Result<Hub, HubError> {
        let file = checked_file(&config.overrides)?;
        Ok(Hub::with(host, host_config, config, file, doors))
    }

    fn with(host: Host, host_config: HostConfig, config: HubConfig, file: Config, doors: Arc<dyn Doors>) -> Hub {
        let journals = config.journals.clone();
        // Beside the guests' compiled code.
        keep_compiled_in(host_config.cache.join("tools"));
        let inner = Arc::new(Inner {
            charts: Charts::new(host.clone()).with_share(config.bounds.share.clone()),
            host,
            host_config,
            config,
            file,
            doors,
            sessions: Mutex::default(),
            runs: Mutex::default(),
            account: journals.account(),
            ready: Mutex::default(),
            unnamed: AtomicU64::new(1),
            figures: Figures::default(),
        });
        let holder: Weak<Inner> = Arc::downgrade(&inner);
        journals.join(holder);
        Hub(inner)
    }

    /// Returns the grants of a session that brings none of its own.
    ///
    /// # Errors
    /// The audit log or the folder for temporary outputs cannot be opened.
    pub fn granted(&self) -> Result<Granted, HubError> {
        Ok(Granted::new(&self.0.config.overrides, self.0.file.clone())?)
    }

    /// Returns the languages of sessions with the grants of the configuration file: those that are enabled and whose
    /// guests are installed.
    pub fn languages(&self) -> Vec<Language> {
        let table = &self.0.file.session;
        let guests = table.guests.iter().chain(&self.0.config.overrides.guests).copied().collect();
        let kernels = KernelOptions { languages: table.languages.clone(), guests, ..KernelOptions::default() };
        let is_there = |language: &Language| kernels.allows(*language) && self.has(kernels.guest(*language));
        [Language::Python, Language::JavaScript].into_iter().filter(is_there).collect()
    }

    /// Returns the hub's configuration file.
    pub fn file(&self) -> &Config {
        &self.0.file
    }

    /// Returns true if a guest is installed.
    pub fn has(&self, guest: GuestName) -> bool {
        guest_status(&self.0.host_config, guest).digest.is_some()
    }

    /// Opens a session and returns its name.
    ///
    /// # Errors
    /// `SessionOpen`, `SessionsFull`, `Setup`, or an error of the engine.
    pub async fn open_session(&self, open: OpenRequest, answerer: Option<Answerer>) -> Result<String, HubError> {
        let inner = &self.0;
        let name = self.name(open.name);
        self.check_new_session(&name)?;
        let config = open.config.clone().unwrap_or_else(|| inner.file.clone());
        let granted = Granted::new(&inner.config.overrides, config)?;
        let rules = Confirmations::of(&granted.bridges);
        // What another process answers for is nothing that this one knows more of.
        let options = if inner.config.afar.is_some() { Options::default() } else { granted.bridges };
        let bridges = HostBridges::new(options).with_doors(inner.doors.clone());
        let bridges =
            inner.config.sampler.iter().fold(bridges, |bridges, sampler| bridges.with_sampler(sampler.clone()));
        let tokens = inner.config.bounds.tokens.iter();
        let bridges = tokens.fold(bridges, |bridges, budget| bridges.with_token_budget(budget.clone()));
        let with_tools = inner.config.with_tools(&name, &bridges, &open.tools, answerer.as_ref());
        let with_tools = inner.config.answered(with_tools, rules.as_ref());
        let mut config =
            SessionConfig { id: Some(name.clone()), bridges: with_tools, record: open.record, ..granted.session };
        if granted.charts {
            config.outputs.renderers = vec![inner.charts.clone().into()];
        }
        if let Some(input) = open.input {
            config.input = input.then_some(granted.input_timeout);
        }
        if let Some(workspace) = open.workspace {
            config.folders.workspace = Some(workspace);
        }
        config.shared.disk = open.disk_budget;
        inner.config.bounds.apply(&mut config);
        config.shared.unread = Some(inner.config.unread.clone());
        if let Some(artifacts) = &inner.config.artifacts {
            config.outputs.artifacts = Some(artifacts.clone());
        }
        let store = inner.config.store.clone().filter(|_| open.keep != Keep::No);
        let is_stored = store.is_some();
        let is_brief = !is_stored && open.snapshot.is_none() && config.record.is_none() && config.audit.is_none();
        let (host, name_in_store) = (inner.host.clone(), name.clone());
        let open_it = move || match (store, open.snapshot) {
            (Some(store), snapshot) => {
                let home = match open.keep {
                    Keep::Existing => store.claim_existing(&name_in_store)?,
                    Keep::Either => store.claim(&name_in_store)?,
                    Keep::New | Keep::No => store.claim_new(&name_in_store)?,
                };
                if let Some(snapshot) = snapshot {
                    home.save(&snapshot.forked().named(home.name()))?;
                }
                host.open_stored(home, config)
            }
            (None, None) => host.session(config),
            (None, Some(snapshot)) => host.restore(&snapshot.forked(), config),
        };
        // One that begins with nothing makes a folder, which takes less than another thread to do it.
        let session = if is_brief { open_it()? } else { spawn_blocking(open_it).await.map_err(HubError::Task)?? };
        let OpenRequest { tools, input, config, .. } = open;
        let turns = Arc::default();
        self.add(name, SessionEntry { session, bridges, rules, config, tools, answerer, input, is_stored, turns })
    }

    /// The session of this name.
    ///
    /// # Errors
    /// `SessionUnknown`.
    pub fn session(&self, name: &str) -> Result<SessionEntry, HubError> {
        lock(&self.0.sessions).get(name).cloned().ok_or_else(|| HubError::SessionUnknown(name.to_owned()))
    }

    /// Durations of the cells that have ended, by language and outcome.
    pub fn cells_ended(&self) -> BTreeMap<CellKey, Histogram> {
        self.0.figures.all()
    }

    /// Kernels of its sessions that are awake, and those that wait for room to be; none are counted without a share.
    pub fn kernels(&self) -> (usize, usize) {
        self.0.config.bounds.share.as_ref().map_or((0, 0), |share| self.0.host.kernels_of(share))
    }

    /// Bytes of events that wait for the readers of its runs, but for small ones.
    pub fn unread_bytes(&self) -> usize {
        self.0.config.unread.size_bytes()
    }

    /// The sessions by name, each with the ids of its runs that are under way.
    pub fn sessions(&self) -> Vec<(String, Vec<String>)> {
        let mut sessions: BTreeMap<String, Vec<String>> =
            lock(&self.0.sessions).keys().map(|name| (name.clone(), Vec::new())).collect();
        for run in lock(&self.0.runs).by_id.values().filter(|run| !run.is_ended()) {
            if let Some(runs) = sessions.get_mut(run.session_name()) {
                runs.push(run.id().to_owned());
            }
        }
        sessions.values_mut().for_each(|runs| runs.sort_unstable());
        sessions.into_iter().collect()
    }

    /// Closes a session: its runs are cancelled, and it ends with the last of them.
    ///
    /// # Errors
    /// `SessionUnknown`.
    pub fn close(&self, name: &str) -> Result<(), HubError> {
        let entry = lock(&self.0.sessions).remove(name).ok_or_else(|| HubError::SessionUnknown(name.to_owned()))?;
        lock(&self.0.runs).by_id.values().filter(|run| run.session_name() == name).for_each(RunHandle::cancel);
        drop(entry);
        Ok(())
    }

    /// Closes a session that is stored, and waits until it can be opened again. Its runs are cancelled and forgotten.
    ///
    /// # Errors
    /// `SessionUnknown`, or an error of the store: `SessionBusy` when its last readers hold it for too long.
    pub async fn put_away(&self, name: &str) -> Result<(), HubError> {
        self.close(name)?;
        let Some(store) = self.0.config.store.clone() else { return Ok(()) };
        let began = Instant::now();
        loop {
            self.forget_ended(name);
            let (store, name) = (store.clone(), name.to_owned());
            let claimed = spawn_blocking(move || store.claim_existing(&name).map(drop));
            match claimed.await.map_err(HubError::Task)? {
                Err(Error::SessionBusy(_)) if began.elapsed() < RELEASE_TIMEOUT => {
                    tokio::time::sleep(RELEASE_INTERVAL).await;
                }
                claimed => return Ok(claimed?),
            }
        }
    }

    /// The sessions that are stored, open or not.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn stored(&self) -> Result<Vec<StoredInfo>, HubError> {
        let Some(store) = self.0.config.store.clone() else { return Ok(Vec::new()) };
        let listed = spawn_blocking(move || store.list());
        Ok(listed.await.map_err(HubError::Task)??)
    }

    /// Returns the stored information about a session, open or not.
    ///
    /// # Errors
    /// `SessionUnknown`
    pub async fn stored_session(&self, name: &str) -> Result<StoredInfo, HubError> {
        let unknown = || HubError::SessionUnknown(name.to_owned());
        let store = self.0.config.store.clone().ok_or_else(unknown)?;
        let looked_for = name.to_owned();
        let found = spawn_blocking(move || store.find(&looked_for)).await.map_err(HubError::Task)?;
        found.map_err(|error| match error {
            Error::SessionUnknown(_) | Error::SessionName(_) => unknown(),
            other => other.into(),
        })
    }

    /// Ends a session, and removes what is stored of it. Its runs are cancelled and forgotten.
    ///
    /// # Errors
    /// `SessionUnknown`, or an error of the store.
    pub async fn delete(&self, name: &str) -> Result<(), HubError> {
        let is_open = self.close(name).is_ok();
        self.forget_ended(name);
        let Some(store) = self.0.config.store.clone() else {
            return if is_open { Ok(()) } else { Err(HubError::SessionUnknown(name.to_owned())) };
        };
        let began = Instant::now();
        loop {
            let (store, name) = (store.clone(), name.to_owned());
            let removed = spawn_blocking(move || store.remove(&name));
            match removed.await.map_err(HubError::Task)? {
                // Its kernels, and those who read its last events, hold it a little longer.
                Err(Error::SessionBusy(held)) if is_open && began.elapsed() < RELEASE_TIMEOUT => {
                    tokio::time::sleep(RELEASE_INTERVAL).await;
                    self.forget_ended(&held);
                }
                Err(Error::SessionUnknown(_)) if is_open => return Ok(()),
                Err(Error::SessionUnknown(name)) => return Err(HubError::SessionUnknown(name)),
                removed => return Ok(removed?),
            }
        }
    }

    /// Starts a run. The runs of a session start in the order in which this is called.
    ///
    /// # Errors
    /// `SessionUnknown`, `RunUnderWay`, `RunsFull`. Later errors are those of [`RunHandle::result`].
    pub fn start(&self, session: &str, request: RunRequest) -> Result<RunHandle, HubError> {
        let (handle, driving) = self.begin(session, request)?;
        // It goes on as a task of its own.
        drop(driving);
        Ok(handle)
    }

    /// The same, for a caller that drives the run within its own task.
    ///
    /// # Errors
    /// As with [`Hub::start`].
    pub fn begin(&self, session: &str, request: RunRequest) -> Result<(RunHandle, Driving), HubError> {
        self.0.config.bounds.admit()?;
        let entry = self.session(session)?;
        let handle = RunHandle::new(&request, entry.session.clone(), session, self.0.account.clone());
        self.register(&handle)?;
        let turn = entry.turns.take();
        let RunRequest { cells, keep_going, options, .. } = request;
        let (hub, session) = (self.clone(), entry.session);
        let prepared = async move {
            hub.make_ready(&session, &languages_of(&cells)).await?;
            let run = session.run(cells)?.lineage(options)?;
            Ok(if keep_going { run.keep_going() } else { run })
        };
        let is_durable = self.0.config.is_durable && entry.is_stored;
        let driving = self.driving(&handle, prepared, turn, entry.answerer, is_durable);
        Ok((handle, driving))
    }

    fn driving(
        &self,
        handle: &RunHandle,
        prepared: impl Future<Output = Result<Run, HubError>> + Send + 'static,
        turn: Turn,
        answerer: Option<Answerer>,
        is_durable: bool,
    ) -> Driving {
        let (hub, run, ending) = (self.clone(), handle.clone(), Ending::of(handle));
        Driving::new(async move {
            drive(ending, prepared, turn, answerer, is_durable).await;
            if let Some(result) = run.ended() {
                hub.0.figures.count(result);
            }
            hub.forget_old(&run);
        })
    }

    /// Returns a run that is under way, or has ended and is kept.
    ///
    /// # Errors
    /// `RunUnknown`.
    pub fn run(&self, id: &str) -> Result<RunHandle, HubError> {
        lock(&self.0.runs).by_id.get(id).cloned().ok_or_else(|| HubError::RunUnknown(id.to_owned()))
    }

    /// Returns a run that has ended and is kept.
    ///
    /// # Errors
    /// `RunForgotten`.
    pub fn ended_run(&self, id: &str) -> Result<RunHandle, HubError> {
        let found = self.run(id).ok().filter(|run| run.ended().is_some());
        found.ok_or_else(|| HubError::RunForgotten { id: id.to_owned(), kept: self.0.config.runs_kept })
    }

    /// Bakes the guests of these languages that are not baked. A missing guest is left for the engine to report.
    pub(crate) async fn make_ready(&self, session: &Session, languages: &[Language]) -> Result<(), HubError> {
        let has_fuel = session.limits().fuel.is_some();
        let guests = languages.iter().map(|language| session.guest(*language));
        let unknown: Vec<GuestName> = {
            let ready = lock(&self.0.ready);
            guests.filter(|guest| !ready.contains(&(*guest, has_fuel))).collect()
        };
        if !unknown.is_empty() {
            make_ready(&self.0.host_config, unknown.clone(), has_fuel, self.0.config.progress).await?;
            lock(&self.0.ready).extend(unknown.into_iter().map(|guest| (guest, has_fuel)));
        }
        Ok(())
    }

    fn register(&self, handle: &RunHandle) -> Result<(), HubError> {
        let mut runs = lock(&self.0.runs);
        if runs.by_id.get(handle.id()).is_some_and(|run| !run.is_ended()) {
            return Err(HubError::RunUnderWay(handle.id().to_owned()));
        }
        if runs.by_id.len().saturating_sub(runs.ended.len()) >= self.0.config.runs_max {
            return Err(HubError::RunsFull(self.0.config.runs_max));
        }
        if runs.by_id.insert(handle.id().to_owned(), handle.clone()).is_some() {
            runs.retain_ended(|id| id != handle.id());
        }
        Ok(())
    }

    fn add(&self, name: String, entry: SessionEntry) -> Result<String, HubError> {
        // Another may have been opened meanwhile.
        self.check_new_session(&name)?;
        lock(&self.0.sessions).insert(name.clone(), entry);
        Ok(name)
    }

    /// The name of a session, made up if need be.
    fn name(&self, given: Option<String>) -> String {
        given.unwrap_or_else(|| format!("session-{}", self.0.unnamed.fetch_add(1, Ordering::Relaxed)))
    }

    fn check_new_session(&self, name: &str) -> Result<(), HubError> {
        let sessions = lock(&self.0.sessions);
        if sessions.contains_key(name) {
            return Err(HubError::SessionOpen(name.to_owned()));
        }
        if sessions.len() >= self.0.config.sessions_max {
            return Err(HubError::SessionsFull(self.0.config.sessions_max));
        }
        Ok(())
    }
}

/// The configuration file of the overrides, when both can be granted.
fn checked_file(overrides: &Overrides) -> Result<Config, HubError> {
    let file = overrides.file()?;
    Granted::new(overrides, file.clone())?;
    Ok(file)
}
