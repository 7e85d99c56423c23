//! Sessions that outlive their processes: who holds one, and its last stored state. A [`Vault`] decides where they lie.

use std::{
    fmt,
    io::Read,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use cellar_core::{cell::Language, sync::lock};
use cellar_files::FileLimits;

use crate::{
    contract::error::Error,
    formats::{
        header::FormatError,
        snapshot::{SNAPSHOT, Snapshot, SnapshotError},
    },
    storage::workspace::{Contents, OwnFolder, copy_trees},
};

mod folder;
mod states;
#[cfg(test)]
mod tests;

/// Longest name of a stored session, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// A place for stored sessions, by name. Names were checked; all calls block.
pub trait Vault: fmt::Debug + Send + Sync {
    /// Takes a session for this process, until the claim is dropped or the process ends, however it does; a new one if
    /// there is none of that name. No session may ever have two claims.
    ///
    /// # Errors
    /// `SessionBusy`, `Store`.
    fn claim(&self, name: &str) -> Result<Box<dyn Claim>, Error>;

    /// Returns true if there is a session of that name.
    fn contains(&self, name: &str) -> bool;

    /// Returns true if somebody holds the session.
    fn is_claimed(&self, name: &str) -> bool;

    /// The names of all sessions, and perhaps others.
    ///
    /// # Errors
    /// `Store`.
    fn names(&self) -> Result<Vec<String>, Error>;

    /// Returns the state of a session that was stored last; `None` if none was. The session may be live meanwhile.
    ///
    /// # Errors
    /// `Store`.
    fn state(&self, name: &str) -> Result<Option<StateFile>, Error>;

    /// A folder of the session's own as it was last stored, if there is one.
    ///
    /// # Errors
    /// `Store`.
    fn folder(&self, name: &str, folder: OwnFolder) -> Result<Option<PathBuf>, Error>;

    /// The folder with the states of a session that are kept, if there is one.
    ///
    /// # Errors
    /// `Store`.
    fn states(&self, name: &str) -> Result<Option<PathBuf>, Error>;
}

/// A session that this process holds. Nobody else stores it while this is not dropped.
pub trait Claim: fmt::Debug + Send + Sync {
    /// As [`Vault::state`].
    ///
    /// # Errors
    /// `Store`.
    fn state(&self) -> Result<Option<StateFile>, Error>;

    /// Stores a state in place of the one before. When this returns, no crash of the process or the machine loses it.
    ///
    /// # Errors
    /// `Store`; then the state before is still there.
    fn store(&self, state: &[u8]) -> Result<(), Error>;

    /// Stores a state of a session that is at work and is stored again and again, at less cost where there is a way.
    ///
    /// # Errors
    /// As [`Claim::store`].
    fn store_next(&self, state: &[u8]) -> Result<(), Error> {
        self.store(state)
    }

    /// A folder on this machine to use as one of the session's own.
    ///
    /// # Errors
    /// `Store`.
    fn folder(&self, folder: OwnFolder) -> Result<PathBuf, Error>;

    /// A folder on this machine for the states of the session that are kept, which may not be there yet.
    fn states(&self) -> PathBuf;

    /// Removes all that is stored of the session.
    ///
    /// # Errors
    /// `Store`.
    fn remove(&self) -> Result<(), Error>;
}

/// A stored state, to be read once.
pub struct StateFile {
    /// Its size.
    pub bytes: u64,
    /// Time when it was stored, if that is known.
    pub stored_at: Option<SystemTime>,
    /// Its contents.
    pub read: Box<dyn Read>,
}

impl fmt::Debug for StateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateFile").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl StateFile {
    fn load(self, name: &str) -> Result<Snapshot, Error> {
        let failed = |source| Error::Store { doing: "read", path: PathBuf::from(name), source };
        Ok(Snapshot::read_from(self.read).map_err(failed)??)
    }
}

/// Sessions that outlive their processes. A cheap handle.
#[derive(Clone, Debug)]
pub struct SessionStore {
    vault: Arc<dyn Vault>,
}

/// Information about a stored session, which needs not be opened for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredInfo {
    /// Its name.
    pub name: String,
    /// Time when its state was last stored; `None` for one that never was.
    pub stored_at: Option<SystemTime>,
    /// Bytes of its state.
    pub state_bytes: u64,
    /// The languages that have a kernel in it.
    pub languages: Vec<Language>,
    /// True if a process holds it.
    pub is_live: bool,
    /// Reason why its state cannot be used, if it cannot.
    pub problem: Option<SnapshotError>,
}

/// A stored session, held by this process until it is dropped.
#[derive(Debug)]
pub struct StoredSession {
    name: String,
    claim: Box<dyn Claim>,
    /// Held while a state is stored, so that callers store one after the other.
    saving: Mutex<()>,
}

impl SessionStore {
    /// A store in this folder, which is made for this user alone when it is missing.
    ///
    /// # Errors
    /// `Store` when it cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<SessionStore, Error> {
        Ok(SessionStore::new(Arc::new(folder::FolderVault::open(folder.into())?)))
    }

    /// A store in any other place.
    pub fn new(vault: Arc<dyn Vault>) -> SessionStore {
        SessionStore { vault }
    }

    /// Takes a session for this process; a new one if there is none of that name.
    ///
    /// # Errors
    /// `SessionName`; `SessionBusy` when another process, or another part of this one, holds it; `Store`.
    pub fn claim(&self, name: &str) -> Result<StoredSession, Error> {
        check_name(name)?;
        let claim = self.vault.claim(name)?;
        let session = StoredSession { name: name.to_owned(), claim, saving: Mutex::default() };
        session.finish_going_back()?;
        Ok(session)
    }

    /// Takes a session that must be there.
    ///
    /// # Errors
    /// `SessionUnknown`, or as [`SessionStore::claim`].
    pub fn claim_existing(&self, name: &str) -> Result<StoredSession, Error> {
        self.require(name)?;
        self.claim(name)
    }

    /// The last stored state of a session, which may be live meanwhile; `None` when it never was stored.
    ///
    /// # Errors
    /// `SessionUnknown`, `Snapshot` when it is damaged, `Store`.
    pub fn load(&self, name: &str) -> Result<Option<Snapshot>, Error> {
        self.require(name)?;
        self.vault.state(name)?.map(|state| state.load(name)).transpose()
    }

    /// Makes the session `to` of what was last stored of `from`, with copies of its own folders.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionExists`, `SessionBusy`, `Snapshot`, `Store`.
    pub fn fork(&self, from: &str, to: &str) -> Result<(), Error> {
        let snapshot = self.load(from)?;
        let fork = self.claim_new(to)?;
        let mut pairs = Vec::new();
        for folder in OwnFolder::ALL {
            if let Some(kept) = self.vault.folder(from, folder)? {
                pairs.push((kept, fork.folder(folder)?));
            }
        }
        if let Some((_, to)) = pairs.first() {
            let failed = |source| Error::Store { doing: "copy files to", path: to.clone(), source };
            let used = snapshot.as_ref().map_or(0, |snapshot| snapshot.disk_usage.0);
            copy_trees(&pairs, used.max(FileLimits::default().bytes_max)).map_err(failed)?;
        }
        let snapshot = snapshot.unwrap_or_else(|| Snapshot::empty(to));
        fork.save(&Snapshot { session: to.to_owned(), ..snapshot.forked() })
    }

    /// Takes a name for a session that is not there yet.
    ///
    /// # Errors
    /// `SessionExists`, or as [`SessionStore::claim`].
    pub fn claim_new(&self, name: &str) -> Result<StoredSession, Error> {
        let session = self.claim(name)?;
        if session.claim.state()?.is_some() { Err(Error::SessionExists(name.to_owned())) } else { Ok(session) }
    }

    /// Removes a session, its state and its own folders.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionBusy`, `Store`.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.claim_existing(name)?.claim.remove()
    }

    /// All sessions, by name.
    ///
    /// # Errors
    /// `Store` when the vault cannot list them.
    pub fn list(&self) -> Result<Vec<StoredInfo>, Error> {
        let mut names: Vec<String> = self.vault.names()?.into_iter().filter(|name| is_name(name)).collect();
        names.sort_unstable();
        Ok(names.into_iter().map(|name| self.info(name)).collect())
    }

    /// Returns the information about one session.
    ///
    /// # Errors
    /// `SessionName`, `SessionUnknown`.
    pub fn find(&self, name: &str) -> Result<StoredInfo, Error> {
        self.require(name)?;
        Ok(self.info(name.to_owned()))
    }

    fn info(&self, name: String) -> StoredInfo {
        let is_live = self.vault.is_claimed(&name);
        let mut info =
            StoredInfo { name, stored_at: None, state_bytes: 0, languages: Vec::new(), is_live, problem: None };
        match self.vault.state(&info.name) {
            Ok(None) => {}
            Ok(Some(state)) => {
                (info.stored_at, info.state_bytes) = (state.stored_at, state.bytes);
                match Snapshot::read_head(state.read) {
                    Ok(languages) => info.languages = languages,
                    Err(problem) => info.problem = Some(problem),
                }
            }
            Err(Error::Snapshot(problem)) => info.problem = Some(problem),
            Err(_) => info.problem = Some(FormatError::Other(SNAPSHOT).into()),
        }
        info
    }

    fn require(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        if self.vault.contains(name) { Ok(()) } else { Err(Error::SessionUnknown(name.to_owned())) }
    }
}

impl StoredSession {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The last stored state; `None` when nothing was stored yet.
    ///
    /// # Errors
    /// `Snapshot` when it is damaged or of another version, `Store`.
    pub fn load(&self) -> Result<Option<Snapshot>, Error> {
        self.claim.state()?.map(|state| state.load(&self.name)).transpose()
    }

    /// Stores a state that another session had: this one goes on from it, and reaches the artifacts of then. Its disk usage is at least
    /// what is in its own folders, whatever the state says. When this returns, no crash of the process or the machine loses it.
    ///
    /// # Errors
    /// `Store`; then the state before is still there.
    pub fn save(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let folders = OwnFolder::ALL.map(|folder| self.folder(folder));
        let folders = folders.into_iter().collect::<Result<Vec<_>, _>>()?;
        let path = folders.first().cloned().unwrap_or_default();
        let failed = |source| Error::Store { doing: "look at the files in", path, source };
        let contents = Contents::of(&folders).map_err(failed)?;
        let state = Snapshot {
            disk_usage: contents.at_least(snapshot.disk_usage),
            artifacts: snapshot.inherited_artifacts(),
            ..snapshot.clone()
        };
        self.save_latest(|| Ok(state)).map(drop)
    }

    /// Stores what `latest` returns, which is called once all earlier stores are done. Returns it.
    pub(crate) fn save_latest(&self, latest: impl FnOnce() -> Result<Snapshot, Error>) -> Result<Snapshot, Error> {
        let _turn = lock(&self.saving);
        let latest = latest()?;
        self.claim.store(&latest.to_bytes())?;
        Ok(latest)
    }

    /// Stores as [`StoredSession::save_latest`] does while the session is at work; see [`Claim::store_next`].
    pub(crate) fn save_next(&self, latest: impl FnOnce() -> Result<Snapshot, Error>) -> Result<(), Error> {
        let _turn = lock(&self.saving);
        self.claim.store_next(&latest()?.to_bytes())
    }

    /// Returns the path of one of its own folders.
    pub(crate) fn folder(&self, folder: OwnFolder) -> Result<PathBuf, Error> {
        self.claim.folder(folder)
    }
}

/// A name that is safe as that of a folder, and pleasant in a shell.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain) && !name.starts_with(['.', '-'])
}

/// Checks that a session can be stored under this name.
///
/// # Errors
/// `SessionName`.
pub fn check_name(name: &str) -> Result<(), Error> {
    if is_name(name) { Ok(()) } else { Err(Error::SessionName(name.to_owned())) }
}
