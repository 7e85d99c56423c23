//! Sessions on the local disk: one folder each, held by one process at a time.
//!
//! ```text
//! <store>/<name>/lock         locked by the process in which the session lives
//!               /state        its last snapshot: written beside, synced, renamed, and the folder synced
//!               /recent-0 -1  later ones, while it is at work
//!               /workspace/   its private workspace
//!               /tmp/         its temporary files
//!               /states/      its states that are kept
//! ```

mod recent;

use std::{
    fs::{self, File},
    io::{self, Cursor, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, SystemTime},
};

use cellar_core::{files::open_plain, sync::lock};

use recent::{Chain, Recent};

use super::{Claim, StateFile, Vault};
use crate::{
    contract::error::Error,
    formats::snapshot::{BYTES_MAX, SNAPSHOT, SnapshotError},
    storage::workspace::OwnFolder,
};

const LOCK: &str = "lock";
const STATE: &str = "state";
const STATES: &str = "states";
/// Prefix of the name of a state while it is written.
const UNFINISHED: &str = ".unfinished-";
/// Pause between attempts to take a lock that is held, and their number.
const LOCK_WAIT: Duration = Duration::from_millis(5);
const LOCK_ATTEMPTS: u32 = 10;

/// A vault in a folder of the local disk, with one folder for each session.
#[derive(Debug)]
pub(super) struct FolderVault {
    folder: PathBuf,
}

/// A session's folder, locked.
#[derive(Debug)]
struct FolderClaim {
    folder: PathBuf,
    _lock: File,
    /// Chain of the states that are stored beside its `state`, once it was needed.
    chain: Mutex<Option<Chain>>,
}

impl FolderVault {
    /// Opens a vault in this folder, which is created for this user alone when it is missing.
    pub(super) fn open(folder: PathBuf) -> Result<FolderVault, Error> {
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        Ok(FolderVault { folder })
    }
}

impl Vault for FolderVault {
    fn claim(&self, name: &str) -> Result<Box<dyn Claim>, Error> {
        let folder = self.folder.join(name);
        loop {
            make_folder(&folder).map_err(failed(&folder, "make"))?;
            let path = folder.join(LOCK);
            let opened = open_plain(&path, File::options().create(true).truncate(false).write(true).mode(0o600));
            let lock = match opened {
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
                return Ok(Box::new(FolderClaim { folder, _lock: lock, chain: Mutex::default() }));
            }
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.folder.join(name).is_dir()
    }

    fn is_claimed(&self, name: &str) -> bool {
        let lock = open_plain(&self.folder.join(name).join(LOCK), File::options().read(true));
        lock.is_ok_and(|lock| lock.try_lock().is_err())
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed(&self.folder, "read"))? {
            let entry = entry.map_err(failed(&self.folder, "read"))?;
            names.extend(entry.file_name().into_string().ok().filter(|_| entry.path().is_dir()));
        }
        Ok(names)
    }

    fn state(&self, name: &str) -> Result<Option<StateFile>, Error> {
        state(&self.folder.join(name))
    }

    fn folder(&self, name: &str, folder: OwnFolder) -> Result<Option<PathBuf>, Error> {
        Ok(Some(self.folder.join(name).join(folder.name())).filter(|folder| folder.is_dir()))
    }

    fn states(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        Ok(Some(self.folder.join(name).join(STATES)).filter(|folder| folder.is_dir()))
    }
}

impl Claim for FolderClaim {
    fn state(&self) -> Result<Option<StateFile>, Error> {
        state(&self.folder)
    }

    fn store(&self, state: &[u8]) -> Result<(), Error> {
        let mut chain = lock(&self.chain);
        let write = || {
            let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
            file.write_all(state)?;
            file.as_file().sync_all()?;
            file.persist(self.folder.join(STATE))?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(failed(&self.folder, "store a state in"))?;
        recent::remove(&self.folder);
        *chain = (state.len() <= recent::BYTES_MAX).then(|| Chain::after(state));
        Ok(())
    }

    fn store_next(&self, state: &[u8]) -> Result<(), Error> {
        let mut chain = lock(&self.chain);
        if chain.is_none() {
            *chain = self.begun()?;
        }
        let small = chain.as_mut().filter(|_| state.len() <= recent::BYTES_MAX);
        if let Some(Ok(())) = small.map(|chain| chain.store(&self.folder, state)) {
            return Ok(());
        }
        drop(chain);
        self.store(state)
    }

    fn folder(&self, folder: OwnFolder) -> Result<PathBuf, Error> {
        let folder = self.folder.join(folder.name());
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        Ok(folder)
    }

    fn states(&self) -> PathBuf {
        self.folder.join(STATES)
    }

    fn remove(&self) -> Result<(), Error> {
        let folder = &self.folder;
        crate::storage::workspace::flatten(folder)
            .and_then(|()| fs::remove_dir_all(folder))
            .map_err(failed(folder, "remove"))
    }
}

impl FolderClaim {
    /// Returns the chain to continue; `None` where there is no state yet, or a large one.
    fn begun(&self) -> Result<Option<Chain>, Error> {
        let Some(state) = whole_state(&self.folder)? else { return Ok(None) };
        let bytes = small(state).map_err(failed(&self.folder, "read a state in"))?;
        Ok(bytes.map(|bytes| Chain::of(&self.folder, &bytes)))
    }
}

/// Reads all of a state, unless it is large.
fn small(state: StateFile) -> io::Result<Option<Vec<u8>>> {
    if state.bytes > recent::BYTES_MAX as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    state.read.take(recent::BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The last state of a session, which may be at work.
fn state(folder: &Path) -> Result<Option<StateFile>, Error> {
    // Before the state that they come after: when that is a later one, they are of no use.
    let found = recent::look(folder);
    let Some(state) = whole_state(folder)? else { return Ok(None) };
    if found.is_empty() || state.bytes > recent::BYTES_MAX as u64 {
        return Ok(Some(state));
    }
    let stored_at = state.stored_at;
    let bytes = small(state).map_err(failed(folder, "read a state in"))?.unwrap_or_default();
    Ok(Some(match recent::latest_after(found, &bytes) {
        Some(Recent { state, stored_at, .. }) => in_memory(state, stored_at),
        None => in_memory(bytes, stored_at),
    }))
}

fn in_memory(state: Vec<u8>, stored_at: Option<SystemTime>) -> StateFile {
    StateFile { bytes: state.len() as u64, stored_at, read: Box::new(Cursor::new(state)) }
}

/// The state that is stored for good.
fn whole_state(folder: &Path) -> Result<Option<StateFile>, Error> {
    let path = folder.join(STATE);
    let file = match open_plain(&path, File::options().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&path, "read")(error)),
    };
    let metadata = file.metadata().map_err(failed(&path, "read"))?;
    let bytes = metadata.len();
    if bytes > BYTES_MAX {
        return Err(SnapshotError::from(SNAPSHOT.corrupt(format!("it has {bytes} bytes"))).into());
    }
    let read: Box<dyn Read> = Box::new(file.take(BYTES_MAX));
    Ok(Some(StateFile { bytes, stored_at: metadata.modified().ok(), read }))
}

/// Locks a file, in a few attempts: whoever lists sessions, and a kernel on its way out, hold a lock for a moment only.
fn try_lock(file: &File) -> bool {
    (0..LOCK_ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(LOCK_WAIT);
        }
        file.try_lock().is_ok()
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

/// Removes what a process left behind that was killed while it stored. A file that cannot be removed does no harm.
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
