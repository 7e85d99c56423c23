//! Sessions on disk: one folder each, held by one process at a time.
//!
//! ```text
//! <store>/<name>/lock         locked by the process in which the session lives
//!               /state        its last snapshot: written beside, synced, renamed, and the folder synced
//!               /workspace/   its private workspace
//! ```

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, SystemTime},
};

use fs2::FileExt;

use crate::{
    cell::Language,
    error::Error,
    meter::lock,
    snapshot::{Snapshot, SnapshotError},
    workspace::copy_tree,
};

const LOCK: &str = "lock";
const STATE: &str = "state";
const WORKSPACE: &str = "workspace";
/// What a state is called while it is written.
const UNFINISHED: &str = ".unfinished-";
/// Longest name of a stored session, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// How long, and how many times, it is waited for a lock that is held.
const LOCK_WAIT: Duration = Duration::from_millis(5);
const LOCK_ATTEMPTS: u32 = 10;
/// Largest state that is read: the largest memory of every language, and some.
const STATE_BYTES_MAX: u64 = 16 << 30;

/// A folder of sessions that outlive their processes.
#[derive(Clone, Debug)]
pub struct SessionStore {
    folder: PathBuf,
}

/// What is known of a stored session without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredInfo {
    /// Its name.
    pub name: String,
    /// When its state was last stored; `None` for one that never was.
    pub stored_at: Option<SystemTime>,
    /// Bytes of its state.
    pub state_bytes: u64,
    /// The languages that have a kernel in it.
    pub languages: Vec<Language>,
    /// Whether a process holds it.
    pub is_live: bool,
    /// Why its state cannot be used, if it cannot.
    pub problem: Option<SnapshotError>,
}

/// A stored session, held by this process until it is dropped.
#[derive(Debug)]
pub struct StoredSession {
    name: String,
    folder: PathBuf,
    /// Whoever stores goes one after the other.
    saving: Mutex<()>,
    _lock: File,
}

impl SessionStore {
    /// A store in this folder, which is made for this user alone when it is missing.
    ///
    /// # Errors
    /// `Store` when it cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<SessionStore, Error> {
        let folder = folder.into();
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        Ok(SessionStore { folder })
    }

    /// Takes a session for this process; a new one if there is none of that name.
    ///
    /// # Errors
    /// `SessionName`; `SessionBusy` when another process, or another part of this one, holds it; `Store`.
    pub fn claim(&self, name: &str) -> Result<StoredSession, Error> {
        let folder = self.folder_of(name)?;
        loop {
            make_folder(&folder).map_err(failed(&folder, "make"))?;
            let path = folder.join(LOCK);
            let options = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
            let lock = match options {
                // Somebody removes it just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(failed(&path, "open"))?,
            };
            if !try_lock(&lock) {
                return Err(Error::SessionBusy(name.to_owned()));
            }
            // The file that was locked may have been removed before it was.
            if is_same(&lock, &path) {
                remove_unfinished(&folder);
                return Ok(StoredSession { name: name.to_owned(), folder, saving: Mutex::default(), _lock: lock });
            }
        }
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
        load(&self.require(name)?)
    }

    /// Makes the session `to` of what was last stored of `from`, with a copy of its private workspace.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionExists`, `SessionBusy`, `Snapshot`, `Store`.
    pub fn fork(&self, from: &str, to: &str) -> Result<(), Error> {
        let source = self.require(from)?;
        let snapshot = load(&source)?;
        let fork = self.claim_new(to)?;
        let (workspace, copy) = (source.join(WORKSPACE), fork.folder.join(WORKSPACE));
        if workspace.is_dir() {
            make_folder(&copy).and_then(|()| copy_tree(&workspace, &copy)).map_err(failed(&copy, "copy files to"))?;
        }
        let snapshot = snapshot.unwrap_or_else(|| Snapshot::empty(to));
        fork.save(&Snapshot { session: to.to_owned(), ..snapshot.forked() })
    }

    /// Takes a name for a session that is not there yet.
    ///
    /// # Errors
    /// `SessionExists`, or as [`SessionStore::claim`].
    pub fn claim_new(&self, name: &str) -> Result<StoredSession, Error> {
        let claim = self.claim(name)?;
        if claim.folder.join(STATE).exists() { Err(Error::SessionExists(name.to_owned())) } else { Ok(claim) }
    }

    /// Removes a session, its state and its private workspace.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionBusy`, `Store`.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let claim = self.claim_existing(name)?;
        let folder = &claim.folder;
        crate::workspace::flatten(folder).and_then(|()| fs::remove_dir_all(folder)).map_err(failed(folder, "remove"))
    }

    /// All sessions, by name.
    ///
    /// # Errors
    /// `Store` when the folder cannot be read.
    pub fn list(&self) -> Result<Vec<StoredInfo>, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed(&self.folder, "read"))? {
            let entry = entry.map_err(failed(&self.folder, "read"))?;
            names.extend(entry.file_name().into_string().ok().filter(|name| entry.path().is_dir() && is_name(name)));
        }
        names.sort_unstable();
        Ok(names.into_iter().map(|name| self.info(name)).collect())
    }

    fn info(&self, name: String) -> StoredInfo {
        let folder = self.folder.join(&name);
        let state = folder.join(STATE);
        let metadata = fs::metadata(&state).ok();
        let head = metadata.as_ref().map(|_| File::open(&state).map_err(|_| SnapshotError::NotASnapshot));
        let head = head.map(|file| file.and_then(Snapshot::read_head));
        let is_live = File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock_exclusive().is_err());
        let (languages, problem) = match head {
            Some(Ok(languages)) => (languages, None),
            Some(Err(problem)) => (Vec::new(), Some(problem)),
            None => (Vec::new(), None),
        };
        StoredInfo {
            name,
            stored_at: metadata.as_ref().and_then(|metadata| metadata.modified().ok()),
            state_bytes: metadata.map_or(0, |metadata| metadata.len()),
            languages,
            is_live,
            problem,
        }
    }

    fn folder_of(&self, name: &str) -> Result<PathBuf, Error> {
        if is_name(name) { Ok(self.folder.join(name)) } else { Err(Error::SessionName(name.to_owned())) }
    }

    fn require(&self, name: &str) -> Result<PathBuf, Error> {
        let folder = self.folder_of(name)?;
        if folder.is_dir() { Ok(folder) } else { Err(Error::SessionUnknown(name.to_owned())) }
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
        load(&self.folder)
    }

    /// Stores a state. When this returns, no crash of the process or the machine loses it.
    ///
    /// # Errors
    /// `Store`; then the state before is still there.
    pub fn save(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.save_latest(|| Ok(snapshot.clone())).map(drop)
    }

    /// Stores what `latest` gives, which is asked when everybody before has stored theirs. Returns it.
    pub(crate) fn save_latest(&self, latest: impl FnOnce() -> Result<Snapshot, Error>) -> Result<Snapshot, Error> {
        let _turn = lock(&self.saving);
        let latest = latest()?;
        let bytes = latest.to_bytes();
        let write = || {
            let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
            file.write_all(&bytes)?;
            file.as_file().sync_all()?;
            file.persist(self.folder.join(STATE))?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(failed(&self.folder, "store a state in"))?;
        Ok(latest)
    }

    /// Its private workspace.
    pub(crate) fn workspace(&self) -> Result<PathBuf, Error> {
        let folder = self.folder.join(WORKSPACE);
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        Ok(folder)
    }
}

/// A name that is safe as that of a folder, and pleasant in a shell.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain) && !name.starts_with(['.', '-'])
}

fn load(folder: &Path) -> Result<Option<Snapshot>, Error> {
    let path = folder.join(STATE);
    let size = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&path, "read")(error)),
    };
    if size > STATE_BYTES_MAX {
        return Err(SnapshotError::Corrupt(format!("it has {size} bytes")).into());
    }
    let bytes = fs::read(&path).map_err(failed(&path, "read"))?;
    Ok(Some(Snapshot::from_bytes(&bytes)?))
}

/// Whoever lists sessions, and a kernel on its way out, hold a lock for a moment only.
fn try_lock(file: &File) -> bool {
    (0..LOCK_ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(LOCK_WAIT);
        }
        file.try_lock_exclusive().is_ok()
    })
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (file, path) = (file.metadata().map(id), fs::metadata(path).map(id));
    file.is_ok_and(|file| path.is_ok_and(|path| file == path))
}

/// Removes what a process left that was killed while it stored. One that cannot be removed does no harm.
fn remove_unfinished(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Store { doing, path, source }
}
