//! Artifacts: outputs that are kept outside of results, in a folder that processes share.
//!
//! ```text
//! <store>/lock                         held for a moment by whoever adds or removes
//!        /key                          makes the keys of what callers put into the store by a session's name
//!        /objects/<id>                 the bytes; the time of modification is that of the last use
//!        /notes/<holder>/<id>          who refers to it, and what it is
//!        /agents/<holder>/<label>      which artifact an agent's output is
//!        /datasets/<name>/<number>     a version of a dataset
//!        /totals/all, <holder>         how much there is, so that it need not be counted
//!        /unfinished/                  what is being written, each file locked by its writer
//!        /queue/                       what is still to be done at the remote, if there is one: `queue.rs`
//!        /quarantine/                  what is damaged: `remote.rs`
//! ```
//!
//! Artifacts are capabilities. Every session has a key of its own; an artifact's id is a part of the HMAC of its digest
//! with the key of the session that keeps it, and a holder's name is made of the key as well. Nobody without the key can
//! compute an id, or confirm what one stands for. [`SessionArtifacts`] is what a session sees of a store: what it keeps
//! itself, what those kept whose state it goes on from, up to then, and what callers put there for it. [`ArtifactStore`]
//! is the store as its owner sees it: all of it, by ids that may be shortened. A store belongs to one tenant.
//!
//! What a session keeps twice is kept once. Bytes are written beside, synced and renamed, so that an object is whole or
//! not there; only temporary stores, which a crash of the machine may damage, do not wait for the disk. A store never
//! outgrows its [`ArtifactQuota`], in which what is on its way in counts as well: what was used longest ago makes room.
//!
//! In stores of older versions, holders are digests of sessions' names, and ids are starts of the bytes' SHA-256. A
//! session of such a name reaches what is noted there, and the owner all of it.

mod collect;
pub mod datasets;
mod keys;
mod queue;
mod remote;
mod session;
mod survey;
#[cfg(test)]
mod tests;
mod totals;
mod upkeep;
mod writer;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use cellar_core::files::{Durability, PRIVATE, replace_with};
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use collect::{Collected, Collection};
pub use keys::{ArtifactKey, ArtifactKeys};
pub use remote::RemoteStore;
pub use session::SessionArtifacts;
pub use upkeep::{Pulled, Pushed, Verified};
pub use writer::ArtifactWriter;

use remote::Remote;
use writer::Keeper;

/// Prefix of an artifact's URI.
pub const ARTIFACT_SCHEME: &str = "artifact://";
/// Prefix of the URI of an agent's output.
pub const AGENT_SCHEME: &str = "agent://";

/// Number of hexadecimal digits of an id.
const ID_DIGITS: usize = 32;
/// Minimum number of digits of a shortened id.
const PREFIX_DIGITS_MIN: usize = 6;
/// Maximum length of a title, label and MIME type, in bytes.
const WORD_BYTES_MAX: usize = 1 << 10;
/// Maximum size of the file of a note, a label and totals, in bytes.
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// Quota of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactQuota {
    /// Maximum size of one artifact, in bytes.
    pub artifact_bytes: u64,
    /// Maximum size of the artifacts that one session refers to, in bytes.
    pub session_bytes: u64,
    /// Maximum number of artifacts that one session refers to.
    pub session_count: usize,
    /// Maximum size of all artifacts, in bytes.
    pub total_bytes: u64,
    /// Maximum number of all artifacts.
    pub total_count: usize,
    /// Retention after the last use; older artifacts are removed when another one is stored. Unlimited when absent.
    pub unused_for: Option<Duration>,
}

impl Default for ArtifactQuota {
    fn default() -> ArtifactQuota {
        ArtifactQuota {
            artifact_bytes: 256 << 20,
            session_bytes: 1 << 30,
            session_count: 1_000,
            total_bytes: 8 << 30,
            total_count: 10_000,
            unused_for: None,
        }
    }
}

impl ArtifactQuota {
    /// Quota of the temporary store, which is used when no store is given.
    pub const TEMPORARY: ArtifactQuota = ArtifactQuota {
        artifact_bytes: 256 << 20,
        session_bytes: 512 << 20,
        session_count: 1_000,
        total_bytes: 1 << 30,
        total_count: 2_000,
        unused_for: Some(Duration::from_secs(24 * 3_600)),
    };
}

/// An artifact: its metadata and the path of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Artifact {
    /// Id of the artifact, as in `artifact://<id>`.
    pub id: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// MIME type of the bytes.
    pub mime_type: String,
    /// Title for people.
    pub title: Option<String>,
    /// Sessions that refer to the artifact. An artifact without any is evicted first.
    pub sessions: Vec<String>,
    /// Names of the artifact as an agent's output: `agent://<name>`.
    pub labels: Vec<String>,
    /// Time at which the artifact was last stored or read.
    pub used_at: SystemTime,
    /// Path of the bytes. The file must not be changed.
    pub path: PathBuf,
    /// Expected SHA-256 of the bytes in hexadecimal digits, if it was recorded.
    digest: Option<String>,
}

/// Description of an artifact that is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// MIME type, such as `text/plain`.
    pub mime_type: &'a str,
    /// Title for people.
    pub title: Option<&'a str>,
}

/// Error of an operation on a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum ArtifactError {
    /// The artifact does not exist, or does not exist any more.
    #[error("no artifact `{0}` is stored; it may have made room for later ones")]
    Unknown(String),
    /// The shortened id is ambiguous.
    #[error("`{0}` is the start of more than one artifact's id")]
    Ambiguous(String),
    /// The store's owner gave something that is not an id.
    #[error("`{0}` is no artifact: an id has {ID_DIGITS} hexadecimal digits, or the first {PREFIX_DIGITS_MIN} or more")]
    NotAnId(String),
    /// A session gave something that is not a whole id.
    #[error("`{0}` is no artifact: an id has {ID_DIGITS} hexadecimal digits")]
    NotWhole(String),
    /// The artifact exceeds the maximum size.
    #[error("an artifact has at most {max} bytes, this one has more")]
    TooLarge { max: u64 },
    /// A dataset refers to it.
    #[error("`{0}` is held by a dataset: remove that, or publish a version without it")]
    Held(String),
    /// All copies of the artifact are damaged, locally and elsewhere.
    #[error("artifact `{0}` is damaged, and no good copy of it is found; what is left of it was put aside")]
    Damaged(String),
    /// The store has no remote.
    #[error("the store of artifacts has no remote store")]
    NoRemote,
    /// The remote failed.
    #[error("cannot {doing} the remote store of artifacts")]
    Remote {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    /// Artifacts of datasets, which are not evicted, leave no room.
    #[error("the store is full of what datasets hold, which makes no room for others")]
    Full,
    /// The folder of the store cannot be read or written.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl ArtifactError {
    /// Returns the stable code of the error, for clients to match on.
    pub fn code(&self) -> &'static str {
        match self {
            ArtifactError::Unknown(_) => "artifact-unknown",
            ArtifactError::Ambiguous(_) => "artifact-ambiguous",
            ArtifactError::NotAnId(_) | ArtifactError::NotWhole(_) => "artifact-id",
            ArtifactError::TooLarge { .. } => "artifact-too-large",
            ArtifactError::Held(_) => "artifact-held",
            ArtifactError::Full => "artifacts-full",
            ArtifactError::Damaged(_) => "artifact-damaged",
            ArtifactError::NoRemote => "artifact-no-remote",
            ArtifactError::Remote { .. } => "artifact-remote",
            ArtifactError::Io { .. } => "artifact-store",
        }
    }
}

/// Note that a session refers to an artifact, as stored on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    session: String,
    mime_type: String,
    title: Option<String>,
    /// Time at which the artifact was first stored, in nanoseconds since the Unix epoch.
    #[serde(default)]
    kept_at: u64,
    /// True if a dataset refers to the artifact, which is then never evicted for others.
    #[serde(default)]
    is_dataset: bool,
    /// SHA-256 of the bytes in hexadecimal digits. Older versions recorded none.
    #[serde(default)]
    digest: Option<String>,
}

/// Label of an agent's output, as stored on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    label: String,
    id: String,
    /// Number to append to the label when it is used again.
    #[serde(default)]
    next: Option<u64>,
}

/// Handle of a store, with the owner's access to all artifacts. Cloning is cheap. Every method blocks on the disk: call
/// them where blocking is acceptable.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    key: ArtifactKey,
    quota: ArtifactQuota,
    /// True for a temporary store: references to its artifacts must include the path.
    is_temporary: bool,
    remote: Option<Remote>,
    verified: remote::Verified,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(remote) = &self.remote {
            remote.signal.end();
        }
    }
}

impl ArtifactStore {
    /// Opens the store in this folder, which is created for this user alone if it is missing.
    ///
    /// # Errors
    /// `Io` when the folder cannot be created.
    pub fn open(folder: impl Into<PathBuf>, quota: ArtifactQuota) -> Result<ArtifactStore, ArtifactError> {
        ArtifactStore::make(folder.into(), quota, None, false)
    }

    /// Opens a store with a remote, to which all artifacts are sent that are stored from now on, and from which missing and
    /// damaged copies are restored. Storing does not wait for the remote: a thread sends artifacts as long as a handle of
    /// the store exists, and the rest is sent the next time. Send earlier artifacts with [`ArtifactStore::push`].
    ///
    /// # Errors
    /// `Io` when the folder cannot be created.
    pub fn open_with(
        folder: impl Into<PathBuf>,
        quota: ArtifactQuota,
        remote: Arc<dyn RemoteStore>,
    ) -> Result<ArtifactStore, ArtifactError> {
        let store = ArtifactStore::make(folder.into(), quota, Some(remote), false)?;
        queue::start(&store.inner);
        Ok(store)
    }

    /// Opens the temporary store, which is used when no store is given: a folder of this user among temporary files, shared
    /// by processes. Each session accesses its own part of it only. The usual quota is [`ArtifactQuota::TEMPORARY`].
    ///
    /// # Errors
    /// `Io` when the folder cannot be created, or belongs to another user.
    pub fn temporary(quota: ArtifactQuota) -> Result<ArtifactStore, ArtifactError> {
        let user = rustix::process::geteuid().as_raw();
        let folder = tempfile::env::temp_dir().join(format!("cellar-artifacts-{user}"));
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let found = fs::symlink_metadata(&folder).map_err(failed(&folder, "read"))?;
        if !found.is_dir() || found.uid() != user || found.permissions().mode() & 0o077 != 0 {
            let source = io::Error::other("it is not a folder that belongs to this user alone");
            return Err(failed(&folder, "use")(source));
        }
        let store = ArtifactStore::make(folder, quota, None, true)?;
        store.collect(&Collection { unused_for: quota.unused_for, ..Collection::default() })?;
        Ok(store)
    }

    /// Returns [`ArtifactStore::temporary`], opened once in this process.
    ///
    /// # Errors
    /// As there.
    pub fn shared_temporary() -> Result<ArtifactStore, ArtifactError> {
        static STORE: Mutex<Option<ArtifactStore>> = Mutex::new(None);
        let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        match &*store {
            Some(store) => Ok(store.clone()),
            None => Ok(store.insert(ArtifactStore::temporary(ArtifactQuota::TEMPORARY)?).clone()),
        }
    }

    fn make(
        folder: PathBuf,
        quota: ArtifactQuota,
        remote: Option<Arc<dyn RemoteStore>>,
        is_temporary: bool,
    ) -> Result<ArtifactStore, ArtifactError> {
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let key = store_key(&folder)?;
        let remote = remote.map(|place| Remote { place, signal: Arc::default() });
        let inner = Inner { folder, key, quota, is_temporary, remote, verified: Mutex::default() };
        let store = ArtifactStore { inner: Arc::new(inner) };
        let queue = store.inner.remote.is_some().then(|| store.queue());
        let folders = [store.objects(), store.notes(), store.agents(), store.totals(), store.unfinished()];
        for folder in folders.into_iter().chain(queue) {
            make_folder(&folder).map_err(failed(&folder, "make"))?;
        }
        Ok(store)
    }

    /// Syncs a file or a folder to disk, except in temporary stores, which are not promised to survive a crash. Syncing is
    /// most of the cost of a small artifact.
    fn sync(&self, file: &File) -> io::Result<()> {
        if self.is_temporary() { Ok(()) } else { file.sync_all() }
    }

    /// Replaces a small file atomically.
    fn write_json(&self, folder: &Path, name: &str, value: &impl Serialize) -> Result<(), ArtifactError> {
        let write = || {
            let durability = if self.is_temporary() { Durability::Cached } else { Durability::Synced };
            replace_with(&folder.join(name), &serde_json::to_vec(value)?, PRIVATE, durability)
        };
        write().map_err(failed(folder, "write in"))
    }

    /// Returns the quota of the store.
    pub fn quota(&self) -> ArtifactQuota {
        self.inner.quota
    }

    /// Returns true if the store is a temporary one; see [`ArtifactStore::temporary`].
    pub fn is_temporary(&self) -> bool {
        self.inner.is_temporary
    }

    /// Begins an artifact of a session, whose bytes are written in pieces. Sessions of this name can access it.
    ///
    /// # Errors
    /// `Io`.
    pub fn writer(&self, session: &str) -> Result<ArtifactWriter, ArtifactError> {
        let keeper = Keeper {
            key: self.inner.key.of_session(session),
            holder: key(session),
            session: session.to_owned(),
            is_dataset: false,
        };
        ArtifactWriter::new(self.clone(), Arc::new(keeper))
    }

    /// Stores bytes for a session. Sessions of this name can access them.
    ///
    /// # Errors
    /// `TooLarge`, `Io`.
    pub fn put(&self, session: &str, bytes: &[u8], description: Description<'_>) -> Result<Artifact, ArtifactError> {
        let mut writer = self.writer(session)?;
        writer.write(bytes)?;
        writer.finish(description)
    }

    /// Returns the latest agent's output of any session of this name, by the name it was stored under or its id.
    ///
    /// # Errors
    /// `Unknown`, `Io`.
    pub fn agent(&self, session: &str, name: &str) -> Result<Artifact, ArtifactError> {
        let name = name.strip_prefix(AGENT_SCHEME).unwrap_or(name);
        let mut latest: Option<Artifact> = None;
        for holder in names_in(&self.agents())? {
            let label: Option<Label> = read_json(&self.agents().join(&holder).join(key(name)));
            let Some(label) = label.filter(|label| is_id(&label.id)) else { continue };
            let note: Option<Note> = read_json(&self.notes().join(&holder).join(&label.id));
            if note.is_some_and(|note| note.session == session)
                && let Ok(artifact) = self.get(&label.id)
                && latest.as_ref().is_none_or(|latest| latest.used_at < artifact.used_at)
            {
                latest = Some(artifact);
            }
        }
        match latest {
            Some(latest) => Ok(latest),
            None if is_id(name) => self.get(name),
            None => Err(ArtifactError::Unknown(format!("{AGENT_SCHEME}{name}"))),
        }
    }

    /// Returns an artifact by its URI, its id, or a prefix of its id.
    ///
    /// # Errors
    /// `NotAnId`, `Ambiguous`, `Unknown`, `Io`.
    pub fn get(&self, id: &str) -> Result<Artifact, ArtifactError> {
        let id = self.resolve(id)?;
        let find = || -> Result<Option<Artifact>, ArtifactError> {
            Ok(self.survey(Some(&id))?.remove(&id).map(|held| held.artifact))
        };
        if let Some(found) = find()? {
            return Ok(found);
        }
        if let Some(remote) = &self.inner.remote
            && self.restore(&id, None, |_| true, remote)?
            && let Some(found) = find()?
        {
            return Ok(found);
        }
        Err(ArtifactError::Unknown(id))
    }

    /// Opens the bytes of an artifact, and records the use. A copy that is missing or damaged is restored from the remote,
    /// if there is one.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`]; `Damaged`, `Remote`.
    pub fn read(&self, id: &str) -> Result<File, ArtifactError> {
        let Artifact { id, digest, .. } = self.get(id)?;
        self.open_object(&id, digest.as_deref())
    }

    /// Lists all artifacts, the most recently used first.
    ///
    /// # Errors
    /// `Io`.
    pub fn list(&self) -> Result<Vec<Artifact>, ArtifactError> {
        Ok(self.by_use()?.into_iter().map(|held| held.artifact).collect())
    }

    /// Removes an artifact, whichever sessions refer to it.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`].
    pub fn delete(&self, id: &str) -> Result<Artifact, ArtifactError> {
        let _lock = self.lock()?;
        let id = self.resolve(id)?;
        let Some(held) = self.survey(Some(&id))?.remove(&id) else { return Err(ArtifactError::Unknown(id)) };
        if held.is_pinned {
            return Err(ArtifactError::Held(id));
        }
        self.forget_totals()?;
        self.remove(&held)?;
        self.forget_later(&held.artifact.id)?;
        Ok(held.artifact)
    }

    /// Removes the references of all sessions of this name. Artifacts without other references are evicted first.
    ///
    /// # Errors
    /// `Io`.
    pub fn forget_session(&self, session: &str) -> Result<(), ArtifactError> {
        let _lock = self.lock()?;
        self.forget_totals()?;
        for holder in names_in(&self.notes())? {
            let folder = self.notes().join(&holder);
            let mut forgotten = Vec::new();
            for id in names_in(&folder)? {
                // What datasets hold is noted under names that a session may have, too.
                let is_its = |note: Note| note.session == session && !note.is_dataset;
                if read_json::<Note>(&folder.join(&id)).is_some_and(is_its) {
                    remove_file(&folder.join(&id))?;
                    forgotten.push(id);
                }
            }
            let agents = self.agents().join(&holder);
            for name in names_in(&agents)? {
                if read_json::<Label>(&agents.join(&name)).is_some_and(|label| forgotten.contains(&label.id)) {
                    remove_file(&agents.join(&name))?;
                }
            }
        }
        Ok(())
    }

    fn folder(&self) -> &Path {
        &self.inner.folder
    }

    fn objects(&self) -> PathBuf {
        self.inner.folder.join("objects")
    }

    fn notes(&self) -> PathBuf {
        self.inner.folder.join("notes")
    }

    fn agents(&self) -> PathBuf {
        self.inner.folder.join("agents")
    }

    fn unfinished(&self) -> PathBuf {
        self.inner.folder.join("unfinished")
    }

    /// Locks the store: no other process, and no other part of this one, adds or removes artifacts meanwhile.
    fn lock(&self) -> Result<File, ArtifactError> {
        lock_in(&self.inner.folder)
    }

    /// Resolves a URI or a shortened id to the whole id.
    fn resolve(&self, text: &str) -> Result<String, ArtifactError> {
        let given = text.strip_prefix(ARTIFACT_SCHEME).unwrap_or(text).to_ascii_lowercase();
        if is_id(&given) {
            return Ok(given);
        }
        if given.len() < PREFIX_DIGITS_MIN || !is_hexadecimal(&given) {
            return Err(ArtifactError::NotAnId(text.to_owned()));
        }
        let mut ids =
            names_in(&self.objects())?.into_iter().filter(|id| given.starts_with(id) || id.starts_with(&given));
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => Err(ArtifactError::Unknown(text.to_owned())),
            (Some(_), Some(_)) => Err(ArtifactError::Ambiguous(text.to_owned())),
        }
    }
}

impl Artifact {
    /// `artifact://<id>`
    pub fn uri(&self) -> String {
        format!("{ARTIFACT_SCHEME}{}", self.id)
    }
}

/// Returns a file name for any text: a part of its SHA-256.
fn key(text: &str) -> String {
    keys::digits(Sha256::digest(text).into())
}

/// Returns the key of a store, which is created together with the store.
fn store_key(folder: &Path) -> Result<ArtifactKey, ArtifactError> {
    let path = folder.join("key");
    let found = || fs::read(&path).ok().and_then(|bytes| bytes.try_into().ok()).map(ArtifactKey::from_bytes);
    if let Some(key) = found() {
        return Ok(key);
    }
    let _lock = lock_in(folder)?;
    if let Some(key) = found() {
        return Ok(key);
    }
    let key = ArtifactKey::random();
    let write = || {
        let mut file = tempfile::Builder::new().prefix(".").tempfile_in(folder)?;
        file.write_all(key.bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)
    };
    write().map_err(failed(&path, "write"))?;
    Ok(key)
}

fn lock_in(folder: &Path) -> Result<File, ArtifactError> {
    let path = folder.join("lock");
    let mut options = fs::OpenOptions::new();
    // Somebody may have put something there that is waited for.
    options.create(true).truncate(false).write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(&path).map_err(failed(&path, "open"))?;
    file.lock().map_err(failed(&path, "lock"))?;
    Ok(file)
}

/// Opens a regular file for reading. Anything else, such as a pipe, is refused without waiting for it.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && is_hexadecimal(text)
}

fn word(text: &str) -> String {
    cellar_core::text::prefix(text, WORD_BYTES_MAX as u64).to_owned()
}

/// Lists the names in a folder; empty if there is no such folder.
fn names_in(folder: &Path) -> Result<Vec<String>, ArtifactError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(folder, "read"))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).collect())
}

/// Reads and parses a JSON file. Returns `None` if it is missing or invalid.
fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    let mut bytes = Vec::new();
    open_file(path).ok()?.take(NOTE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn remove_file(path: &Path) -> Result<(), ArtifactError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, "remove")(error)),
        _ => Ok(()),
    }
}

/// Records the use of a file. Failures are ignored: they only make eviction less precise.
fn touch(file: &File) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let same = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let _ = rustix::fs::futimens(file, &Timestamps { last_access: same, last_modification: now });
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> ArtifactError {
    let path = path.to_owned();
    move |source| ArtifactError::Io { doing, path, source }
}
