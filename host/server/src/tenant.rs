//! One tenant: a hub of its own on the host that all share, with a store, artifacts and limits of its own. That another
//! tenant's thing is not found needs no check: it is in another hub.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cellar_bridges::Doors;
use cellar_core::sync::lock;
use cellar_engine::{
    Error, Host, HostConfig, Snapshot,
    artifacts::{ArtifactQuota, ArtifactStore},
    store::{SessionStore, StoredInfo},
};
use cellar_hub::{Hub, HubConfig, HubError, Keep, OpenRequest, SessionEntry};
use cellar_setup::{Granted, Overrides, Progress, SetupError};
use cellar_wire::{ServedSessionJson, SessionRequest, SnapshotJson};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::{
    access::{characters, now},
    e2b::{Sandboxes, Watchers},
    jupyter::Kernels,
    mcp::Offers,
    opening::{Opened, Opening},
    problem::Problem,
};

/// Where the server keeps what it knows of sessions, by a name that no session can have.
const SERVED: &str = ".served";
/// Where snapshots are kept, likewise.
const SNAPSHOTS: &str = ".snapshots";
/// Where is kept which sessions are a sandbox of E2B's clients, likewise.
const SANDBOXES: &str = ".sandboxes";
/// Where artifacts are kept, likewise.
const ARTIFACTS: &str = ".artifacts";
/// Requests that may be repeated with their keys.
const REPEATS_MAX: usize = 10_000;
/// How long they may be.
const REPEATS_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Snapshots that a tenant may keep.
const SNAPSHOTS_MAX: usize = 10_000;

/// Someone to serve.
#[derive(Debug, Clone)]
pub struct TenantConfig {
    /// The name that tokens have.
    pub name: String,
    /// What its sessions are granted.
    pub overrides: Overrides,
    /// Folder of its sessions.
    pub store: PathBuf,
    /// Sessions that may be open.
    pub sessions_max: usize,
    /// Runs that may be under way.
    pub runs_max: usize,
    /// Requests that it may make in a second, if they are counted.
    pub requests_per_second: Option<u64>,
    /// Whether results wait until the state that they leave is on the disk.
    pub is_durable: bool,
}

/// One of those who are served.
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) hub: Hub,
    pub(crate) artifacts: ArtifactStore,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) watchers: Watchers,
    pub(crate) kernels: Kernels,
    /// Models that clients offer.
    pub(crate) offers: Offers,
    store: PathBuf,
    /// Sessions are woken one after the other: nobody finds one that is only half open.
    waking: tokio::sync::Mutex<()>,
    rate: Option<Mutex<Rate>>,
    repeats: Mutex<Repeats>,
    limits: (usize, usize, Option<u64>),
    /// What a model is told of `eval`, once somebody has asked.
    pub(crate) described: tokio::sync::OnceCell<String>,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the server keeps of a session beside its state.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    created_at: u64,
    input: bool,
    #[serde(default)]
    opening: Opening,
}

impl Tenant {
    pub(crate) fn open(
        config: TenantConfig,
        host: Host,
        host_config: HostConfig,
        doors: Arc<dyn Doors>,
        progress: Progress,
    ) -> Result<Tenant, HubError> {
        let TenantConfig { name, overrides, store, .. } = config;
        let sessions = SessionStore::open(&store)?;
        let quota = overrides.file()?.artifacts.quota(ArtifactQuota::default());
        let artifacts = ArtifactStore::open(store.join(ARTIFACTS), quota)?;
        let offers = Offers::default();
        let sandboxes = Sandboxes::open(store.join(SANDBOXES));
        let mut hub_config = HubConfig::default();
        hub_config.sessions_max = config.sessions_max;
        hub_config.runs_max = config.runs_max;
        hub_config.runs_kept = RUNS_KEPT;
        hub_config.overrides = overrides;
        hub_config.store = Some(sessions);
        hub_config.artifacts = Some(artifacts.clone());
        hub_config.sampler = Some(Arc::new(offers.clone()));
        hub_config.is_durable = config.is_durable;
        hub_config.progress = progress;
        let hub = Hub::on(host, host_config, hub_config, doors)?;
        let rate = config.requests_per_second.map(|most| Mutex::new(Rate::new(most as f64)));
        Ok(Tenant {
            name,
            hub,
            artifacts,
            sandboxes,
            watchers: Watchers::default(),
            kernels: Kernels::default(),
            offers,
            store,
            waking: tokio::sync::Mutex::default(),
            rate,
            repeats: Mutex::default(),
            limits: (config.sessions_max, config.runs_max, config.requests_per_second),
            described: tokio::sync::OnceCell::new(),
        })
    }

    /// Sessions that may be open, runs that may be under way, requests that may be made in a second.
    pub(crate) fn limits(&self) -> (usize, usize, Option<u64>) {
        self.limits
    }

    /// Takes one from what the tenant may ask in a second.
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        let Some(rate) = &self.rate else { return Ok(()) };
        lock(rate).take().map_err(|wait| {
            Problem::limit("requests_per_second", "this tenant makes more requests a second than it may", wait)
        })
    }

    /// The session of this name, woken if it is not open.
    pub(crate) async fn session(&self, name: &str) -> Result<SessionEntry, Problem> {
        if let Ok(entry) = self.hub.session(name) {
            return Ok(entry);
        }
        let Served { input, opening, .. } = self.served(name);
        let Opened { config, workspace, disk_budget } = self.opened(&opening).await?;
        let _turn = self.waking.lock().await;
        if let Ok(entry) = self.hub.session(name) {
            return Ok(entry);
        }
        let (name_of, input, keep) = (Some(name.to_owned()), Some(input), Keep::Existing);
        let open = OpenRequest { name: name_of, input, keep, config, workspace, disk_budget, ..OpenRequest::default() };
        match self.hub.open_session(open, None).await {
            // Whatever is no name of a session names none.
            Err(HubError::Engine(Error::SessionName(_))) => Err(Problem::unknown("session")),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(self.hub.session(name)?),
        }
    }

    /// Opens a session, which is kept. Its name cannot be guessed, unless the caller chose it.
    pub(crate) async fn create(&self, request: SessionRequest) -> Result<String, Problem> {
        let name = request.session.unwrap_or_else(|| minted("ses"));
        let snapshot = match &request.snapshot {
            Some(id) => Some(self.snapshot(id).await?),
            None => None,
        };
        self.create_as(&name, request.input, snapshot, Opening::default()).await?;
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
        let Opened { config, workspace, disk_budget } = self.opened(&opening).await?;
        let _turn = self.waking.lock().await;
        let (name_of, is_answered, keep) = (Some(name.to_owned()), Some(input), Keep::New);
        let open = OpenRequest {
            name: name_of,
            input: is_answered,
            keep,
            snapshot,
            config,
            workspace,
            disk_budget,
            ..OpenRequest::default()
        };
        self.hub.open_session(open, None).await?;
        self.note(name, input, opening)?;
        // It is there from now on, whatever becomes of this process.
        Ok(self.hub.session(name)?.session.save().await?)
    }

    /// What a session is opened with that was asked for so.
    async fn opened(&self, opening: &Opening) -> Result<Opened, Problem> {
        let config = opening.config(self.hub.file());
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
        self.session(from).await?;
        let name = new.unwrap_or_else(|| minted("ses"));
        let _turn = self.waking.lock().await;
        self.hub.fork(from, Some(name.clone())).await?;
        let Served { input, opening, .. } = self.served(from);
        // It has a workspace of its own.
        self.note(&name, input, Opening { beside: None, ..opening })?;
        Ok(name)
    }

    /// Removes a session and all that is kept of it.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Problem> {
        let _turn = self.waking.lock().await;
        match self.hub.delete(name).await {
            Err(HubError::Engine(Error::SessionName(_))) => return Err(Problem::unknown("session")),
            deleted => deleted?,
        }
        let artifacts = self.artifacts.clone();
        let (file, name) = (self.served_file(name), name.to_owned());
        on_a_thread(move || {
            let _ = fs::remove_file(file);
            artifacts.forget_session(&name)
        })
        .await??;
        Ok(())
    }

    /// What is known of a session, open or not.
    pub(crate) async fn describe(&self, name: &str) -> Result<ServedSessionJson, Problem> {
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
            session: info.name,
        }
    }

    /// Folder of the sessions.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Folder of the snapshots.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.store.join(SNAPSHOTS)
    }

    /// The file of a snapshot, if this can be the id of one.
    pub(crate) fn snapshot_file(&self, id: &str) -> Option<PathBuf> {
        let is_id = id.strip_prefix("snap-").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_alphanumeric()));
        (is_id && id.len() < 64).then(|| self.snapshots().join(id))
    }

    /// Keeps the state of a session under an id.
    pub(crate) async fn take_snapshot(&self, session: &str) -> Result<SnapshotJson, Problem> {
        let snapshot = self.session(session).await?.session.snapshot().await?;
        let (folder, id) = (self.snapshots(), minted("snap"));
        let path = folder.join(&id);
        let kept = on_a_thread(move || {
            fs::create_dir_all(&folder)?;
            if fs::read_dir(&folder)?.count() >= SNAPSHOTS_MAX {
                return Ok(None);
            }
            let bytes = snapshot.to_bytes();
            let mut file = tempfile::NamedTempFile::new_in(&folder)?;
            file.write_all(&bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok::<_, io::Error>(Some(bytes.len() as u64))
        });
        let size_bytes = kept.await?.map_err(|error| Problem::internal(&error, "store"))?.ok_or_else(|| {
            let detail = format!("{SNAPSHOTS_MAX} snapshots are kept already");
            Problem::limit("snapshots", detail, Duration::from_secs(60))
        })?;
        Ok(SnapshotJson { snapshot: id, size_bytes, created_at: now() })
    }

    /// Reads a snapshot.
    pub(crate) async fn snapshot(&self, id: &str) -> Result<Snapshot, Problem> {
        let file = self.snapshot_file(id).ok_or_else(|| Problem::unknown("snapshot"))?;
        let bytes = on_a_thread(move || fs::read(file)).await?;
        let bytes = bytes.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Problem::unknown("snapshot"),
            _ => Problem::internal(&error, "store"),
        })?;
        Ok(Snapshot::from_bytes(&bytes).map_err(Error::from)?)
    }

    /// A request that carries a key: the first of them, or what came of it. `what` tells requests with one key apart.
    pub(crate) fn repeat(self: &Arc<Tenant>, key: Option<&str>, what: u64) -> Result<Repeat, Problem> {
        let Some(key) = key else { return Ok(Repeat::First(None)) };
        let mut repeats = lock(&self.repeats);
        repeats.forget_old();
        match repeats.by_key.get(key) {
            Some(kept) if kept.what != what => Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-mismatch",
                "another request was made with this Idempotency-Key",
            )),
            Some(Kept { made: None, .. }) => Err(Problem::new(
                StatusCode::CONFLICT,
                "idempotency-under-way",
                "the request with this Idempotency-Key is still being carried out",
            )),
            Some(Kept { made: Some(made), .. }) => Ok(Repeat::Again(made.clone())),
            None => {
                repeats.by_key.insert(key.to_owned(), Kept { what, made: None });
                repeats.order.push_back((Instant::now(), key.to_owned()));
                Ok(Repeat::First(Some(Ticket { tenant: self.clone(), key: key.to_owned(), is_made: false })))
            }
        }
    }

    fn served_file(&self, session: &str) -> PathBuf {
        self.store.join(SERVED).join(session)
    }

    /// What was noted of a session; of one that another program made, nothing was.
    fn served(&self, session: &str) -> Served {
        let is_plain = !session.contains(['/', '\0']) && !session.starts_with('.');
        let read = || serde_json::from_slice(&fs::read(self.served_file(session)).ok()?).ok();
        is_plain.then(read).flatten().unwrap_or_default()
    }

    /// How a session is to be opened.
    pub(crate) fn opening(&self, session: &str) -> Opening {
        self.served(session).opening
    }

    fn note(&self, session: &str, input: bool, opening: Opening) -> Result<(), Problem> {
        let text = serde_json::to_vec(&Served { created_at: now(), input, opening }).unwrap_or_default();
        let write = || -> io::Result<()> {
            fs::create_dir_all(self.store.join(SERVED))?;
            // Only its owner may read it, as temporary files are made: there may be credentials in the environment.
            let mut file = tempfile::NamedTempFile::new_in(&self.store)?;
            file.write_all(&text)?;
            file.persist(self.served_file(session))?;
            Ok(())
        };
        write().map_err(|error| Problem::internal(&error, "store"))
    }
}

/// Runs that are kept when they have ended.
const RUNS_KEPT: usize = 512;

/// A name that nobody can guess: 22 random characters of 62.
pub(crate) fn minted(kind: &str) -> String {
    format!("{kind}-{}", characters(22))
}

/// Does what waits for the disk.
pub(crate) async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Problem::internal(&error, "task"))
}

/// How many requests may be made: so many a second, and those of one second at once.
#[derive(Debug)]
struct Rate {
    most: f64,
    left: f64,
    since: Instant,
}

impl Rate {
    fn new(most: f64) -> Rate {
        Rate { most, left: most, since: Instant::now() }
    }

    /// Takes one, or says how long there is none.
    fn take(&mut self) -> Result<(), Duration> {
        let now = Instant::now();
        self.left = (self.left + now.duration_since(self.since).as_secs_f64() * self.most).min(self.most.max(1.0));
        self.since = now;
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / self.most));
        }
        self.left -= 1.0;
        Ok(())
    }
}

/// Requests that may be repeated.
#[derive(Debug, Default)]
struct Repeats {
    by_key: HashMap<String, Kept>,
    /// The oldest first.
    order: VecDeque<(Instant, String)>,
}

#[derive(Debug)]
struct Kept {
    what: u64,
    /// What the request made, once it has.
    made: Option<String>,
}

impl Repeats {
    fn forget_old(&mut self) {
        while let Some((since, _)) = self.order.front() {
            if self.order.len() < REPEATS_MAX && since.elapsed() < REPEATS_KEPT {
                return;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.by_key.remove(&key);
            }
        }
    }
}

/// A request that carries a key.
#[derive(Debug)]
pub(crate) enum Repeat {
    /// It is carried out; the ticket notes what it makes.
    First(Option<Ticket>),
    /// It was carried out, and made this.
    Again(String),
}

/// The right to carry out a request. Dropped before anything is made, it leaves the key free.
#[derive(Debug)]
pub(crate) struct Ticket {
    tenant: Arc<Tenant>,
    key: String,
    is_made: bool,
}

impl Ticket {
    pub(crate) fn made(mut self, what: &str) {
        self.is_made = true;
        if let Some(kept) = lock(&self.tenant.repeats).by_key.get_mut(&self.key) {
            kept.made = Some(what.to_owned());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_made {
            let mut repeats = lock(&self.tenant.repeats);
            repeats.by_key.remove(&self.key);
            repeats.order.retain(|(_, key)| *key != self.key);
        }
    }
}

impl TenantConfig {
    /// What is wrong with what it grants, if anything is.
    ///
    /// # Errors
    /// As [`Granted::new`].
    pub fn check(&self) -> Result<(), SetupError> {
        Granted::new(&self.overrides, self.overrides.file()?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_and_says_when_to_come_again() {
        let mut rate = Rate::new(2.0);
        assert!(rate.take().is_ok() && rate.take().is_ok());
        let wait = rate.take().expect_err("there is none left");
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
        rate.since -= Duration::from_secs(10);
        assert!(rate.take().is_ok() && rate.take().is_ok() && rate.take().is_err(), "no more than those of a second");
    }

    #[test]
    fn names_cannot_be_guessed() {
        let names: std::collections::HashSet<String> = (0..1_000).map(|_| minted("ses")).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 26));
    }
}
