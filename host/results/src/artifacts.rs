//! Artifacts: outputs that are kept outside of results, in a folder that processes share.
//!
//! ```text
//! <store>/lock                         held for a moment by whoever adds or removes
//!        /objects/<id>                 the bytes; the time of modification is that of the last use
//!        /notes/<session>/<id>         who refers to it, and what it is
//!        /agents/<session>/<label>     which artifact an agent's output is
//!        /unfinished/                  what is being written, each file locked by its writer
//! ```
//!
//! An artifact's id is the start of the SHA-256 of its bytes: what is stored twice is stored once. Bytes are written
//! beside, synced and renamed, so that an object is whole or not there; only temporary stores, which a crash of the machine
//! may damage, do not wait for the disk. A store never outgrows its [`ArtifactQuota`]:
//! what was used longest ago makes room. Whoever knows an id can read it, so a store belongs to one tenant.

mod collect;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use fs2::FileExt;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use collect::{Collected, Collection};
pub use writer::ArtifactWriter;

/// What an id begins with in a URI.
pub const ARTIFACT_SCHEME: &str = "artifact://";
/// What the name of an agent's output begins with in a URI.
pub const AGENT_SCHEME: &str = "agent://";

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 32;
/// Fewest digits that an id may be shortened to.
const PREFIX_DIGITS_MIN: usize = 6;
/// Longest title, label and MIME type, in bytes.
const WORD_BYTES_MAX: usize = 1 << 10;

/// What a store may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactQuota {
    /// One artifact.
    pub artifact_bytes: u64,
    /// The artifacts that a session refers to, in bytes.
    pub session_bytes: u64,
    /// How many those may be.
    pub session_count: usize,
    /// All artifacts, in bytes.
    pub total_bytes: u64,
    /// How many those may be.
    pub total_count: usize,
    /// How long one is kept after its last use; what is older goes when another is stored.
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
    /// That of the place where artifacts go that nobody gave a store for.
    pub const TEMPORARY: ArtifactQuota = ArtifactQuota {
        artifact_bytes: 256 << 20,
        session_bytes: 512 << 20,
        session_count: 1_000,
        total_bytes: 1 << 30,
        total_count: 2_000,
        unused_for: Some(Duration::from_secs(24 * 3_600)),
    };
}

/// What is known of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Artifact {
    /// Its id: `artifact://<id>`.
    pub id: String,
    /// Its size.
    pub size_bytes: u64,
    /// What it is.
    pub mime_type: String,
    /// What it is of, for people.
    pub title: Option<String>,
    /// The sessions that refer to it. One that none refers to is the first to go.
    pub sessions: Vec<String>,
    /// Its names as an agent's output: `agent://<name>`.
    pub labels: Vec<String>,
    /// When it was last stored or read.
    pub used_at: SystemTime,
    /// Where its bytes are. The file must not be changed.
    pub path: PathBuf,
}

/// What is said of an artifact when it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The session that refers to it.
    pub session: &'a str,
    /// What it is, such as `text/plain`.
    pub mime_type: &'a str,
    /// What it is of, for people.
    pub title: Option<&'a str>,
}

/// Why a store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum ArtifactError {
    /// There is none, or none any more.
    #[error("no artifact `{0}` is stored; it may have made room for later ones")]
    Unknown(String),
    /// A shortened id stands for several.
    #[error("`{0}` is the start of more than one artifact's id")]
    Ambiguous(String),
    /// What was given is no id.
    #[error("`{0}` is no artifact: an id has {ID_DIGITS} hexadecimal digits, or the first {PREFIX_DIGITS_MIN} or more")]
    NotAnId(String),
    /// It is larger than an artifact may be.
    #[error("an artifact has at most {max} bytes, this one has more")]
    TooLarge { max: u64 },
    /// The folder failed.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl ArtifactError {
    /// A stable word for the error, for clients to match on.
    pub fn code(&self) -> &'static str {
        match self {
            ArtifactError::Unknown(_) => "artifact-unknown",
            ArtifactError::Ambiguous(_) => "artifact-ambiguous",
            ArtifactError::NotAnId(_) => "artifact-id",
            ArtifactError::TooLarge { .. } => "artifact-too-large",
            ArtifactError::Io { .. } => "artifact-store",
        }
    }
}

/// Who refers to an artifact, as it lies on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    session: String,
    mime_type: String,
    title: Option<String>,
}

/// An agent's output, as it lies on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    label: String,
    id: String,
}

/// A store of artifacts. A cheap handle. Every method waits for the disk: call them where blocking is no harm.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    quota: ArtifactQuota,
    /// Whether nobody gave it: those who are told of an artifact must be told where it is.
    is_temporary: bool,
}

impl ArtifactStore {
    /// A store in this folder, which is made for this user alone when it is missing.
    ///
    /// # Errors
    /// `Io` when it cannot be made.
    pub fn open(folder: impl Into<PathBuf>, quota: ArtifactQuota) -> Result<ArtifactStore, ArtifactError> {
        ArtifactStore::make(folder.into(), quota, false)
    }

    /// The place for artifacts that nobody gave a store for: a folder of this user's among temporary files, shared by
    /// processes. Its usual quota is [`ArtifactQuota::TEMPORARY`].
    ///
    /// # Errors
    /// `Io` when it cannot be made, or belongs to somebody else.
    pub fn temporary(quota: ArtifactQuota) -> Result<ArtifactStore, ArtifactError> {
        let user = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("cellar-artifacts-{user}"));
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let found = fs::symlink_metadata(&folder).map_err(failed(&folder, "read"))?;
        if !found.is_dir() || found.uid() != user || found.permissions().mode() & 0o077 != 0 {
            let source = io::Error::other("it is not a folder that belongs to this user alone");
            return Err(failed(&folder, "use")(source));
        }
        let store = ArtifactStore::make(folder, quota, true)?;
        store.collect(&Collection { unused_for: quota.unused_for, ..Collection::default() })?;
        Ok(store)
    }

    /// [`ArtifactStore::temporary`], opened once in this process.
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

    fn make(folder: PathBuf, quota: ArtifactQuota, is_temporary: bool) -> Result<ArtifactStore, ArtifactError> {
        let store = ArtifactStore { inner: Arc::new(Inner { folder, quota, is_temporary }) };
        for folder in [store.objects(), store.notes(), store.agents(), store.unfinished()] {
            make_folder(&folder).map_err(failed(&folder, "make"))?;
        }
        Ok(store)
    }

    /// Has the disk keep what was written to a file or a folder. It is most of what a small artifact costs, and nothing that
    /// temporary ones are promised.
    fn sync(&self, file: &File) -> io::Result<()> {
        if self.is_temporary() { Ok(()) } else { file.sync_all() }
    }

    /// Writes a small file whole.
    fn write_json(&self, folder: &Path, name: &str, value: &impl Serialize) -> Result<(), ArtifactError> {
        let write = || {
            let mut file = tempfile::Builder::new().prefix(".").tempfile_in(folder)?;
            file.write_all(&serde_json::to_vec(value)?)?;
            self.sync(file.as_file())?;
            file.persist(folder.join(name))?;
            self.sync(&File::open(folder)?)
        };
        write().map_err(failed(folder, "write in"))
    }

    /// What it may hold.
    pub fn quota(&self) -> ArtifactQuota {
        self.inner.quota
    }

    /// Whether nobody gave it; see [`ArtifactStore::temporary`].
    pub fn is_temporary(&self) -> bool {
        self.inner.is_temporary
    }

    /// Begins an artifact whose bytes come in pieces.
    ///
    /// # Errors
    /// `Io`.
    pub fn writer(&self) -> Result<ArtifactWriter, ArtifactError> {
        ArtifactWriter::new(self.clone())
    }

    /// Stores bytes.
    ///
    /// # Errors
    /// `TooLarge`, `Io`.
    pub fn put(&self, bytes: &[u8], description: Description<'_>) -> Result<Artifact, ArtifactError> {
        let mut writer = self.writer()?;
        writer.write(bytes)?;
        writer.finish(description)
    }

    /// Stores the output of an agent, to be found as `agent://<name>` in its session. Returns the name: the label, with a
    /// number behind it when the session has that name already, or the artifact's id where there is no label.
    ///
    /// # Errors
    /// `TooLarge`, `Io`.
    pub fn put_agent(&self, session: &str, label: Option<&str>, output: &str) -> Result<String, ArtifactError> {
        let title = label.map(|label| format!("output of agent {label}"));
        let artifact =
            self.put(output.as_bytes(), Description { session, mime_type: "text/plain", title: title.as_deref() })?;
        let Some(label) = label.map(word).filter(|label| !label.is_empty()) else { return Ok(artifact.id) };
        let folder = self.agents().join(key(session));
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let _lock = self.lock()?;
        let mut name = label.clone();
        for number in 2.. {
            match read_json::<Label>(&folder.join(key(&name))) {
                Some(_) => name = format!("{label}-{number}"),
                None => break,
            }
        }
        self.write_json(&folder, &key(&name), &Label { label: name.clone(), id: artifact.id })?;
        Ok(name)
    }

    /// The output of an agent of this session, by the name it was stored under or its id.
    ///
    /// # Errors
    /// `Unknown`, `Io`.
    pub fn agent(&self, session: &str, name: &str) -> Result<Artifact, ArtifactError> {
        let name = name.strip_prefix(AGENT_SCHEME).unwrap_or(name);
        match read_json::<Label>(&self.agents().join(key(session)).join(key(name))) {
            Some(label) => self.get(&label.id),
            None if is_id(name) => self.get(name),
            None => Err(ArtifactError::Unknown(format!("{AGENT_SCHEME}{name}"))),
        }
    }

    /// What is known of an artifact, by its URI, its id, or the start of its id.
    ///
    /// # Errors
    /// `NotAnId`, `Ambiguous`, `Unknown`, `Io`.
    pub fn get(&self, id: &str) -> Result<Artifact, ArtifactError> {
        let id = self.resolve(id)?;
        let mut found = self.survey(Some(&id))?;
        found.remove(&id).ok_or(ArtifactError::Unknown(id))
    }

    /// Opens the bytes of an artifact, and notes that it was used.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`].
    pub fn read(&self, id: &str) -> Result<File, ArtifactError> {
        let id = self.resolve(id)?;
        let path = self.objects().join(&id);
        let file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ArtifactError::Unknown(id),
            _ => failed(&path, "open")(error),
        })?;
        touch(&file);
        Ok(file)
    }

    /// All artifacts, the most recently used first.
    ///
    /// # Errors
    /// `Io`.
    pub fn list(&self) -> Result<Vec<Artifact>, ArtifactError> {
        let mut all: Vec<Artifact> = self.survey(None)?.into_values().collect();
        all.sort_by(|a, b| b.used_at.cmp(&a.used_at).then_with(|| a.id.cmp(&b.id)));
        Ok(all)
    }

    /// Removes an artifact, whoever refers to it.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`].
    pub fn delete(&self, id: &str) -> Result<Artifact, ArtifactError> {
        let _lock = self.lock()?;
        let artifact = self.get(id)?;
        self.remove(&artifact)?;
        Ok(artifact)
    }

    /// Drops what a session refers to. What nobody else refers to is the first to go.
    ///
    /// # Errors
    /// `Io`.
    pub fn forget_session(&self, session: &str) -> Result<(), ArtifactError> {
        let _lock = self.lock()?;
        for folder in [self.notes().join(key(session)), self.agents().join(key(session))] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&folder, "remove")(error)),
                _ => {}
            }
        }
        Ok(())
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

    /// Keeps every other process, and every other part of this one, from adding and removing.
    fn lock(&self) -> Result<File, ArtifactError> {
        let path = self.inner.folder.join("lock");
        let options = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(failed(&path, "open"))?;
        file.lock_exclusive().map_err(failed(&path, "lock"))?;
        Ok(file)
    }

    /// The whole id.
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

    /// All objects by id, or the one that is wanted, with what is noted of them.
    fn survey(&self, wanted: Option<&str>) -> Result<BTreeMap<String, Artifact>, ArtifactError> {
        let ids = wanted.map_or_else(|| names_in(&self.objects()), |id| Ok(vec![id.to_owned()]))?;
        let mut found = BTreeMap::new();
        for id in ids.into_iter().filter(|id| is_id(id)) {
            let path = self.objects().join(&id);
            // What goes meanwhile is not there.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let artifact = Artifact {
                id: id.clone(),
                size_bytes: metadata.len(),
                mime_type: "application/octet-stream".to_owned(),
                title: None,
                sessions: Vec::new(),
                labels: Vec::new(),
                used_at: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                path,
            };
            found.insert(id, artifact);
        }
        for session in names_in(&self.notes())? {
            let folder = self.notes().join(session);
            let ids = wanted.map_or_else(|| names_in(&folder), |id| Ok(vec![id.to_owned()]))?;
            for id in ids {
                if let (Some(artifact), Some(note)) = (found.get_mut(&id), read_json::<Note>(&folder.join(&id))) {
                    artifact.mime_type = note.mime_type;
                    artifact.title = note.title.or(artifact.title.take());
                    artifact.sessions.push(note.session);
                }
            }
        }
        for session in names_in(&self.agents())? {
            let folder = self.agents().join(session);
            for name in names_in(&folder)? {
                if let Some(label) = read_json::<Label>(&folder.join(name))
                    && let Some(artifact) = found.get_mut(&label.id)
                {
                    artifact.labels.push(label.label);
                }
            }
        }
        for artifact in found.values_mut() {
            artifact.sessions.sort_unstable();
            artifact.labels.sort_unstable();
        }
        Ok(found)
    }

    /// Removes an object and every note of it. The store is locked.
    fn remove(&self, artifact: &Artifact) -> Result<(), ArtifactError> {
        // The notes go first: an object without a note is found and removed later, a note without one is not.
        for session in &artifact.sessions {
            remove_file(&self.notes().join(key(session)).join(&artifact.id))?;
        }
        remove_file(&artifact.path)
    }
}

impl Artifact {
    /// `artifact://<id>`
    pub fn uri(&self) -> String {
        format!("{ARTIFACT_SCHEME}{}", self.id)
    }
}

/// The id of what has this digest.
fn id_of(digest: Sha256) -> String {
    digest.finalize().iter().take(ID_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// A file name for any text.
fn key(text: &str) -> String {
    id_of(Sha256::new_with_prefix(text))
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

/// Names in a folder; none where there is no folder.
fn names_in(folder: &Path) -> Result<Vec<String>, ArtifactError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(folder, "read"))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).collect())
}

/// What a file says, if it is there and says it.
fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn remove_file(path: &Path) -> Result<(), ArtifactError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, "remove")(error)),
        _ => Ok(()),
    }
}

/// Notes that a file was used. A file system that cannot only makes room less wisely.
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
