//! One tenant: a hub of its own on the host that all share, with a store, artifacts and limits of its own. That another
//! tenant's thing is not found needs no check: it is in another hub.

mod calls;
mod commands;
mod opening;
mod quotas;
mod repeats;
mod snapshots;
mod strays;
mod times;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use cellar_bridges::{Afar, Doors, Sampler};
use cellar_config::{Granted, Overrides, Progress, SetupError};
use cellar_core::{
    budget::Budget,
    files::{Durability, PRIVATE, replace_with},
    sync::lock,
};
use cellar_engine::{
    Error, GuestName, Host, HostConfig, Snapshot,
    artifacts::ArtifactStore,
    store::{SessionStore, StoredInfo},
};
use cellar_hub::{Approvals, Hub, HubConfig, HubError, Keep, OpenRequest, SessionEntry};
use cellar_wire::{ServedSessionJson, SessionRequest, SessionTimes};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    access::{characters, now},
    problem::Problem,
};

pub(crate) use calls::{Calls, SentCalls};
use commands::Commands;
pub(crate) use commands::{
    Command, CommandRequest, End, Part, Place as CommandPlace, Program, collect as collect_command, parts,
};
use opening::Opened;
pub(crate) use opening::{Opening, tightened};
pub use quotas::Quota;
pub(crate) use quotas::{Quotas, keep as keep_quotas};
use repeats::{Rate, Repeats};
pub(crate) use repeats::{Repeat, fingerprint};
pub(crate) use snapshots::MADE_MAX as SNAPSHOTS_MADE_MAX;
pub(crate) use strays::Stray;
use times::Times;
pub(crate) use times::keep as keep_times;

/// Name of the folder of what the server keeps of sessions, which no session can have.
const SERVED: &str = ".served";

/// Someone to serve.
#[derive(Debug, Clone)]
pub struct TenantConfig {
    /// The name that tokens have.
    pub name: String,
    /// Grants of its sessions.
    pub overrides: Overrides,
    /// Folder of its sessions.
    pub store: PathBuf,
    /// Sessions that may be open.
    pub sessions_max: usize,
    /// Runs that may be under way.
    pub runs_max: usize,
    /// Requests that it may make in a second, if they are counted.
    pub requests_per_second: Option<u64>,
    /// Its part of the processor time where tenants want more than there is.
    pub weight: u32,
    /// Quota of what it may use.
    pub quota: Quota,
    /// True when results wait until the state that they leave is on the disk.
    pub is_durable: bool,
    /// Seconds without use after which a session is put to sleep that says nothing else.
    pub idle_after: u64,
    /// Templates of its configuration that its callers may name; all unless said.
    pub templates: Option<Vec<String>>,
}

/// Environment of a tenant's sessions, which other tenants share.
pub(crate) struct Ground {
    pub(crate) host: Host,
    /// Configuration of the host.
    pub(crate) config: HostConfig,
    pub(crate) doors: Arc<dyn Doors>,
    /// The process that answers the calls of cells, where that is not this one.
    pub(crate) afar: Option<Afar>,
    pub(crate) progress: Progress,
    /// Bytes that were read for this tenant and are not yet handed on.
    pub(crate) buffers: Budget,
    /// Permits of snapshots that are made for all tenants.
    pub(crate) snapshots: Arc<Semaphore>,
}

/// Parts that interfaces have in a tenant's sessions.
pub(crate) struct Extensions {
    /// Models that clients offer to cells.
    sampler: Arc<dyn Sampler>,
    /// Returns true if an interface needs a session to stay open. Such a session is not put away to make room for
    /// another.
    is_held: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Extensions {
    /// Extensions of an interface that has models, and holds no session.
    pub(crate) fn of_sampler(sampler: impl Sampler + 'static) -> Extensions {
        Extensions { sampler: Arc::new(sampler), is_held: Box::new(|_| false) }
    }

    /// Keeps sessions open for which `is_held` is true.
    pub(crate) fn with_held(self, is_held: impl Fn(&str) -> bool + Send + Sync + 'static) -> Extensions {
        Extensions { is_held: Box::new(is_held), ..self }
    }
}

/// Limits of a tenant, as its configuration has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Sessions that may be open.
    pub(crate) sessions: usize,
    /// Runs that may be under way.
    pub(crate) runs: usize,
    /// Requests that it may make in a second, if they are counted.
    pub(crate) requests_per_second: Option<u64>,
    /// Its part of the processor time where tenants want more than there is.
    pub(crate) weight: u32,
    /// Seconds without use after which a session is put to sleep that says nothing else.
    idle_after: u64,
}

/// Admission of requests, before anything is done for them.
struct Admission {
    rate: Option<Mutex<Rate>>,
    repeats: Mutex<Repeats>,
    /// Permits of clients that speak lines.
    sockets: Arc<Semaphore>,
}

/// A tenant that is served.
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) hub: Hub,
    pub(crate) artifacts: ArtifactStore,
    /// Calls of its cells that wait for a person.
    pub(crate) approvals: Approvals,
    /// Folder of its sessions.
    store: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) quotas: Quotas,
    admission: Admission,
    /// Guests of sessions that name none.
    usual_guests: OnceLock<Vec<GuestName>>,
    /// Templates that its callers may name; all of its configuration unless said.
    templates: Option<Vec<String>>,
    /// Bytes that were read for it and are not yet handed on.
    pub(crate) buffers: Budget,
    /// Permits of snapshots that are made: one at a time, and few of all tenants.
    snapshots: (Semaphore, Arc<Semaphore>),
    /// Lock that wakes sessions one after the other, so that no caller finds one that is half open.
    waking: tokio::sync::Mutex<()>,
    /// Times at which its sessions were used last, and end.
    times: Times,
    /// Calls of tools that clients answer for.
    pub(crate) calls: Calls,
    /// Commands that run in its sessions.
    pub(crate) commands: Commands,
    extensions: Extensions,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Record of a session that the server keeps beside its state.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    created_at: u64,
    input: bool,
    #[serde(default)]
    opening: Opening,
    /// Seconds without use after which it is put to sleep, if that was said.
    #[serde(default)]
    idle_after: Option<u64>,
    /// Seconds since the Unix epoch.
    #[serde(default)]
    expires_at: Option<u64>,
    /// Seconds without use after which it ends, if it ends for that.
    #[serde(default)]
    unused_for: Option<u64>,
    /// True if it ends with the connection that it was opened for.
    #[serde(default)]
    of_connection: bool,
}

impl Tenant {
    /// Opens a tenant. Blocks.
    ///
    /// # Errors
    /// Its store cannot be opened, or what it is granted cannot be.
    pub(crate) fn open(config: TenantConfig, ground: Ground, extensions: Extensions) -> Result<Tenant, HubError> {
        let Ground { host, config: host_config, doors, afar, progress, buffers, snapshots } = ground;
        let TenantConfig { name, overrides, store, .. } = config;
        let sessions = SessionStore::open(&store)?;
        let artifacts = cellar_config::artifacts(&store, &overrides.file()?.artifacts, afar.as_ref())?;
        let mut hub_config = HubConfig::default();
        hub_config.sessions_max = config.sessions_max;
        hub_config.runs_max = config.runs_max;
        hub_config.runs_kept = RUNS_KEPT;
        hub_config.overrides = overrides;
        hub_config.store = Some(sessions);
        hub_config.artifacts = Some(artifacts.clone());
        hub_config.sampler = Some(extensions.sampler.clone());
        hub_config.is_durable = config.is_durable;
        hub_config.progress = progress;
        hub_config.afar = afar;
        let approvals = Approvals::of_store(&store);
        hub_config.approver = Some(Arc::new(approvals.clone()));
        let quotas = Quotas::open(config.quota, config.weight, &host, &store);
        hub_config.bounds = quotas.bounds();
        // THREAT: T06
        let hub = Hub::on(host, host_config, hub_config, doors)?;
        let rate = config.requests_per_second.map(|most| Mutex::new(Rate::new(most as f64)));
        let times = Times::default();
        for (session, end, unused_for) in ends(&store.join(SERVED)) {
            match unused_for {
                Some(unused_for) => times.ends_unused(&session, end, unused_for),
                None => times.ends(&session, Some(end)),
            }
        }
        let limits = Limits {
            sessions: config.sessions_max,
            runs: config.runs_max,
            requests_per_second: config.requests_per_second,
            weight: config.weight,
            idle_after: config.idle_after,
        };
        Ok(Tenant {
            name,
            hub,
            artifacts,
            approvals,
            store,
            limits,
            quotas,
            usual_guests: OnceLock::new(),
            templates: config.templates,
            admission: Admission { rate, repeats: Mutex::default(), sockets: Arc::new(Semaphore::new(SOCKETS_MAX)) },
            buffers,
            snapshots: (Semaphore::new(1), snapshots),
            waking: tokio::sync::Mutex::default(),
            times,
            calls: Calls::new(),
            commands: Commands::default(),
            extensions,
        })
    }

    /// A permit for a client that speaks lines, if there is one left.
    pub(crate) fn socket(&self) -> Option<OwnedSemaphorePermit> {
        self.admission.sockets.clone().try_acquire_owned().ok()
    }

    /// Takes one request from the tenant's rate limit.
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        let Some(rate) = &self.admission.rate else { return Ok(()) };
        lock(rate).take().map_err(|wait| {
            Problem::limit("requests_per_second", "this tenant makes more requests a second than it may", wait)
        })
    }

    /// Returns the requests that it may make in a second, those that are left, and the seconds until the limit is full
    /// again; none if requests are not limited.
    pub(crate) fn rate(&self) -> Option<(u64, u64, u64)> {
        self.admission.rate.as_ref().map(|rate| lock(rate).state())
    }

    /// Returns the session of this name, and wakes it if it is not open.
    pub(crate) async fn session(&self, name: &str) -> Result<SessionEntry, Problem> {
        if self.times.is_over(name, now()) {
            return Err(Problem::unknown("session"));
        }
        self.postpone(name);
        if let Ok(entry) = self.hub.session(name) {
            self.times.used(name);
            return Ok(entry);
        }
        let Served { input, opening, idle_after, .. } = self.served(name);
        let Opened { config, workspace, disk_budget } = self.opened(&opening).await?;
        let _turn = self.waking.lock().await;
        if let Ok(entry) = self.hub.session(name) {
            return Ok(entry);
        }
        let open = OpenRequest {
            name: Some(name.to_owned()),
            input: Some(input),
            keep: Keep::Existing,
            config,
            workspace,
            disk_budget,
            tools: opening.tools(),
            ..OpenRequest::default()
        };
        match self.open_with_room(open, &opening).await {
            // Whatever is no name of a session names none.
            Err(HubError::Engine(Error::SessionName(_))) => Err(Problem::unknown("session")),
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.times.opened(name, self.idle_after(idle_after));
                Ok(self.hub.session(name)?)
            }
        }
    }

    /// Puts away the unused session that was used longest ago, other than `but`, if as many are open as may be.
    pub(crate) async fn make_room(&self, but: &str) -> Result<(), HubError> {
        if self.hub.sessions().len() < self.limits.sessions {
            return Ok(());
        }
        let forsaken = self.times.by_use().into_iter().find(|name| name != but && self.is_forsaken(name));
        let Some(name) = forsaken else { return Ok(()) };
        self.times.closed(&name);
        match self.hub.put_away(&name).await {
            // Somebody else made room with it, or it was removed.
            Err(HubError::SessionUnknown(_) | HubError::Engine(Error::SessionUnknown(_))) => Ok(()),
            put_away => put_away,
        }
    }

    /// Opens a session, after making room for it.
    async fn open_with_room(&self, open: OpenRequest, opening: &Opening) -> Result<(), HubError> {
        self.make_room("").await?;
        let answerer = self.calls.answerer().filter(|_| opening.has_tools());
        self.hub.open_session(open, answerer).await.map(drop)
    }

    /// True if a session may be put away: it is stored, does nothing, and is no part of something else.
    fn is_forsaken(&self, name: &str) -> bool {
        let does_nothing = self.hub.sessions().iter().any(|(open, runs)| open == name && runs.is_empty());
        does_nothing
            && self.hub.session(name).is_ok_and(|entry| entry.is_stored())
            && self.served(name).opening.beside.is_none()
            && !(self.extensions.is_held)(name)
    }

    fn idle_after(&self, said: Option<u64>) -> Duration {
        Duration::from_secs(said.unwrap_or(self.limits.idle_after))
    }

    /// Opens a session, which is kept. Its name cannot be guessed, unless the caller chose it.
    pub(crate) async fn create(&self, request: SessionRequest) -> Result<String, Problem> {
        let name = request.session.unwrap_or_else(|| minted("ses"));
        let SessionTimes { idle_after, expires_at } = request.times;
        let expires_at = expires_at.flatten();
        check_end(expires_at)?;
        let snapshot = match &request.snapshot {
            Some(id) => Some(self.snapshot(id).await?),
            None => None,
        };
        let opening = self.requested_opening(&request.grants)?.with_tools(&request.tools);
        self.create_as(&name, request.input, snapshot, opening).await?;
        if idle_after.is_some() || expires_at.is_some() {
            self.change_times(&name, SessionTimes { idle_after, expires_at: Some(expires_at) })?;
        }
        Ok(name)
    }

    /// Opens a session, which is kept, as it is to be opened whenever it is woken.
    pub(crate) async fn create_as(
        &self,
        name: &str,
        input: bool,
        snapshot: Option<Snapshot>,
        opening: Opening,
    ) -> Result<(), Problem> {
        self.quotas.admit_bytes()?;
        let Opened { config, workspace, disk_budget } = self.opened(&opening).await?;
        let _turn = self.waking.lock().await;
        let open = OpenRequest {
            name: Some(name.to_owned()),
            input: Some(input),
            keep: Keep::New,
            snapshot,
            config,
            workspace,
            disk_budget,
            tools: opening.tools(),
            ..OpenRequest::default()
        };
        self.open_with_room(open, &opening).await?;
        self.times.opened(name, self.idle_after(None));
        self.note(name, &Served { created_at: now(), input, opening, ..Served::default() })?;
        // It is there from now on, whatever becomes of this process.
        Ok(self.hub.session(name)?.session.save().await?)
    }

    /// Changes when a session is put to sleep, and when it ends.
    pub(crate) fn change_times(&self, name: &str, times: SessionTimes) -> Result<(), Problem> {
        let mut served = self.served(name);
        if let Some(expires_at) = times.expires_at {
            check_end(expires_at)?;
            (served.expires_at, served.unused_for, served.of_connection) = (expires_at, None, false);
        }
        served.idle_after = times.idle_after.or(served.idle_after);
        self.note(name, &served)?;
        self.times.ends(name, served.expires_at);
        self.times.sleeps_after(name, self.idle_after(served.idle_after));
        Ok(())
    }

    /// Resolves what a session is opened with.
    async fn opened(&self, opening: &Opening) -> Result<Opened, Problem> {
        let config = opening.config(self.hub.file())?;
        let (workspace, disk_budget) = match &opening.beside {
            None => (None, None),
            // A session that shares a workspace is not shared itself, so that this ends.
            Some(name) if self.served(name).opening.beside.is_some() => return Err(Problem::unknown("session")),
            Some(name) => {
                let session = Box::pin(self.session(name)).await?.session;
                (Some(session.workspace()?), Some(session.disk_budget()))
            }
        };
        Ok(Opened { config, workspace, disk_budget })
    }

    /// Opens a session with the state of another one.
    pub(crate) async fn fork(&self, from: &str, new: Option<String>) -> Result<String, Problem> {
        self.begin_with(from, None, new).await
    }

    /// Opens a session with a state of another one that is kept.
    pub(crate) async fn branch(&self, from: &str, state: &str, new: Option<String>) -> Result<String, Problem> {
        self.begin_with(from, Some(state), new).await
    }

    async fn begin_with(&self, from: &str, state: Option<&str>, new: Option<String>) -> Result<String, Problem> {
        self.quotas.admit_bytes()?;
        self.session(from).await?;
        let name = new.unwrap_or_else(|| minted("ses"));
        let _turn = self.waking.lock().await;
        self.make_room(from).await?;
        match state {
            Some(state) => self.hub.branch(from, state, Some(name.clone())).await?,
            None => self.hub.fork(from, Some(name.clone())).await?,
        };
        let served = self.served(from);
        // It has a workspace of its own, and ends as the one that it was made of.
        let opening = Opening { beside: None, ..served.opening };
        self.note(&name, &Served { created_at: now(), opening, of_connection: false, ..served })?;
        self.times.opened(&name, self.idle_after(served.idle_after));
        self.times.ends(&name, served.expires_at);
        if served.unused_for.is_some() {
            self.make_stray(&name, Stray::Named)?;
        }
        Ok(name)
    }

    /// Removes a session and all that is kept of it.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Problem> {
        let _turn = self.waking.lock().await;
        match self.hub.delete(name).await {
            Err(HubError::Engine(Error::SessionName(_))) => return Err(Problem::unknown("session")),
            deleted => deleted?,
        }
        self.times.forget(name);
        let artifacts = self.artifacts.clone();
        let (file, name) = (self.served_file(name), name.to_owned());
        on_a_thread(move || {
            let _ = fs::remove_file(file);
            artifacts.forget_session(&name)
        })
        .await??;
        Ok(())
    }

    /// Description of a session, open or not.
    pub(crate) async fn describe(&self, name: &str) -> Result<ServedSessionJson, Problem> {
        if self.times.is_over(name, now()) {
            return Err(Problem::unknown("session"));
        }
        let info = self.hub.stored_session(name).await?;
        let open = self.hub.sessions().into_iter().find(|(open, _)| open == name);
        Ok(self.served_json(info, open.map(|(_, runs)| runs)))
    }

    /// All sessions that are kept, by name.
    pub(crate) async fn list(&self) -> Result<Vec<ServedSessionJson>, Problem> {
        let mut open: HashMap<String, Vec<String>> = self.hub.sessions().into_iter().collect();
        let stored = self.hub.stored().await?.into_iter();
        let json = |info: StoredInfo| {
            let runs = open.remove(&info.name);
            self.served_json(info, runs)
        };
        Ok(stored.map(json).collect())
    }

    fn served_json(&self, info: StoredInfo, runs: Option<Vec<String>>) -> ServedSessionJson {
        let served = self.served(&info.name);
        ServedSessionJson {
            is_open: runs.is_some(),
            runs: runs.unwrap_or_default(),
            input: served.input,
            created_at: served.created_at,
            stored_at: info.stored_at.map(cellar_wire::unix_seconds),
            state_bytes: info.state_bytes,
            idle_after: served.idle_after.unwrap_or(self.limits.idle_after),
            expires_at: served.expires_at,
            tools: served.opening.tools().into_iter().map(|tool| tool.name).collect(),
            limits: served.opening.limits_in_units(),
            template: served.opening.template,
            guests: served.opening.guests,
            session: info.name,
        }
    }

    /// Folder of the sessions.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    fn served_file(&self, session: &str) -> PathBuf {
        self.store.join(SERVED).join(session)
    }

    /// Reads the record of a session. It is empty for a session that another program made.
    fn served(&self, session: &str) -> Served {
        let is_plain = !session.contains(['/', '\0']) && !session.starts_with('.');
        let read = || serde_json::from_slice(&fs::read(self.served_file(session)).ok()?).ok();
        is_plain.then(read).flatten().unwrap_or_default()
    }

    /// Returns the overrides in a session's record.
    pub(crate) fn opening(&self, session: &str) -> Opening {
        self.served(session).opening
    }

    fn note(&self, session: &str, served: &Served) -> Result<(), Problem> {
        let text = serde_json::to_vec(served).unwrap_or_default();
        let write = || -> io::Result<()> {
            fs::create_dir_all(self.store.join(SERVED))?;
            // Only its owner may read it: there may be credentials in the environment.
            replace_with(&self.served_file(session), &text, PRIVATE, Durability::Cached)
        };
        write().map_err(|error| Problem::internal(&error, "store"))
    }
}

/// Ends of the sessions that have one, in seconds since the Unix epoch, each with the seconds without use after which it
/// ends, if it ends for that. Blocks.
fn ends(folder: &Path) -> Vec<(String, u64, Option<u64>)> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let ends = files.filter_map(|file| {
        let served: Served = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
        Some((file.file_name().into_string().ok()?, served.expires_at?, served.unused_for))
    });
    ends.collect()
}

/// Time at which the first session of a store ends, in seconds since the Unix epoch, if any does. Blocks.
pub(crate) fn first_end(store: &Path) -> Option<u64> {
    ends(&store.join(SERVED)).into_iter().map(|(_, end, _)| end).min()
}

/// Makes sure that a session does not end before it begins.
fn check_end(expires_at: Option<u64>) -> Result<(), Problem> {
    match expires_at {
        Some(end) if end <= now() => Err(Problem::bad(format!("$.expiresAt: expected a time to come, found {end}"))),
        _ => Ok(()),
    }
}

/// Ends what still runs, and stores every session.
pub(crate) async fn store_all(tenants: &[Arc<Tenant>]) {
    let mut saves = tokio::task::JoinSet::new();
    for tenant in tenants {
        for (name, runs) in tenant.hub.sessions() {
            runs.iter().filter_map(|id| tenant.hub.run(id).ok()).for_each(|run| run.cancel());
            let Ok(entry) = tenant.hub.session(&name) else { continue };
            if entry.is_stored() {
                saves.spawn(async move {
                    if let Err(error) = entry.session.save().await {
                        tracing::error!(session = name, %error, "a session was not stored");
                    }
                });
            }
        }
    }
    let saved = async { while saves.join_next().await.is_some() {} };
    if tokio::time::timeout(SAVE_TIMEOUT, saved).await.is_err() {
        tracing::error!("not every session could be stored in time; those have what was stored last");
    }
}

/// Time that sessions may take to be stored when a server stops.
pub(crate) const SAVE_TIMEOUT: Duration = Duration::from_secs(60);
/// Clients of a tenant that may speak lines at once.
const SOCKETS_MAX: usize = 512;
/// Runs that are kept when they have ended.
const RUNS_KEPT: usize = 512;

/// Returns a name that cannot be guessed: `kind` and 22 random characters of 62.
pub(crate) fn minted(kind: &str) -> String {
    format!("{kind}-{}", characters(22))
}

/// Runs blocking work on a thread of its own.
pub(crate) async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Problem::internal(&error, "task"))
}

impl TenantConfig {
    /// Checks its grants.
    ///
    /// # Errors
    /// As [`Granted::new`], also for each template; a template that it is allowed is not there.
    pub fn check(&self) -> Result<(), SetupError> {
        let file = self.overrides.file()?;
        if let Some(name) = self.templates.iter().flatten().find(|name| !file.templates.contains_key(*name)) {
            return Err(SetupError::Usage {
                message: format!("there is no template `{name}`"),
                hint: format!("`[templates.{name}]` in the `cellar.toml` of the tenant makes one"),
            });
        }
        for template in file.templates.values() {
            Granted::new(&self.overrides, template.applied_to(&file))?;
        }
        Granted::new(&self.overrides, file).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_be_guessed() {
        let names: std::collections::HashSet<String> = (0..1_000).map(|_| minted("ses")).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 26));
    }
}
