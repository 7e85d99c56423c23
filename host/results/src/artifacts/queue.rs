//! Persistent queue of operations that are pending at the remote store.
//!
//! ```text
//! <store>/queue/<id>                    an artifact that is to be sent, or to be forgotten there
//!              /datasets+<name>+<key>   a version of a dataset, likewise
//!              /.claim                  held by the process that works on the queue
//! ```
//!
//! An entry holds the desired state at the remote; a later entry replaces it. It is written before a caller is told that an
//! artifact is stored, and removed once the remote has it. A process that is killed in between loses nothing: another
//! process, or the next one, continues. One thread of a process works on the queue of a store, several entries at a time,
//! and waits longer after each failure of the remote.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, Weak},
    thread,
    time::{Duration, Instant},
};

use cellar_core::{
    sync::lock,
    time::{later, wall_nanos},
};
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::{
    ArtifactError, ArtifactStore, Inner, Note,
    datasets::{DatasetVersion, version_key},
    failed, is_id, names_in, read_json,
    remote::{Remote, RemoteNote, note_key, object_key, remote_failed},
    remove_file,
};

/// Maximum number of entries that are processed concurrently.
const AT_ONCE: usize = 8;
/// Interval at which the queue is polled for entries of other processes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Pause after a failure; doubled after each further one.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Failures in a row after which the rest waits as well.
const FAILURES_MAX: usize = 3;

/// Desired state at the remote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    /// An artifact is present; its note is in this folder.
    Artifact { holder: String },
    /// A version of a dataset is present.
    Dataset { name: String, version: u64 },
    /// No objects are present under these keys.
    Nothing { keys: Vec<String> },
}

/// A queue entry, as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    wanted: Wanted,
    /// Time of creation in nanoseconds since the Unix epoch. It distinguishes the entry from an earlier one with the same
    /// state.
    at: u64,
}

/// Wakes the thread that works on a queue, and tells it to end.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_due: bool,
    is_over: bool,
}

impl Signal {
    fn wake(&self) {
        lock(&self.state).is_due = true;
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }

    /// Waits until an entry is due, or until the timeout. Returns false once the store is closed.
    fn wait(&self, most: Duration, until_due: bool) -> bool {
        let mut state = lock(&self.state);
        let until = later(Instant::now(), most);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.is_over {
                return false;
            }
            if left.is_zero() || (until_due && state.is_due) {
                state.is_due = false;
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

/// Works on the queue of a store until it is closed.
fn work(store: &Weak<Inner>, signal: &Signal) {
    let mut pause = PAUSE;
    loop {
        let Some(inner) = store.upgrade() else { return };
        let store = ArtifactStore { inner };
        let done = store.work_off();
        // Whoever closes the store need not wait for this.
        drop(store);
        let go_on = match done {
            Ok(_) => {
                pause = PAUSE;
                signal.wait(LOOK_EVERY, true)
            }
            Err(error) => {
                tracing::warn!(%error, seconds = pause.as_secs_f32(), "the remote store of artifacts fails; the queue waits");
                let go_on = signal.wait(pause, false);
                pause = pause.saturating_mul(2).min(PAUSE_MAX);
                go_on
            }
        };
        if !go_on {
            return;
        }
    }
}

impl ArtifactStore {
    /// Has an artifact sent. The store is locked, or will be told of the artifact later.
    pub(super) fn send_later(&self, id: &str, holder: &str) -> Result<(), ArtifactError> {
        self.enqueue(id, Wanted::Artifact { holder: holder.to_owned() })
    }

    /// Has a version of a dataset sent.
    pub(super) fn send_version_later(&self, version: &DatasetVersion) -> Result<(), ArtifactError> {
        let wanted = Wanted::Dataset { name: version.name.clone(), version: version.version };
        self.enqueue(&entry_of(&version_key(version)), wanted)
    }

    /// Has an artifact forgotten by the remote.
    pub(super) fn forget_later(&self, id: &str) -> Result<(), ArtifactError> {
        self.enqueue(id, Wanted::Nothing { keys: vec![note_key(id), object_key(id)] })
    }

    /// Has a version of a dataset forgotten by the remote.
    pub(super) fn forget_version_later(&self, version: &DatasetVersion) -> Result<(), ArtifactError> {
        let key = version_key(version);
        self.enqueue(&entry_of(&key), Wanted::Nothing { keys: vec![key] })
    }

    /// Returns true if the entry with this name is a pending removal from the remote.
    pub(super) fn is_forgotten(&self, name: &str) -> bool {
        let entry: Option<Entry> = read_json(&self.queue().join(name));
        entry.is_some_and(|entry| matches!(entry.wanted, Wanted::Nothing { .. }))
    }

    fn enqueue(&self, name: &str, wanted: Wanted) -> Result<(), ArtifactError> {
        let Some(remote) = &self.inner.remote else { return Ok(()) };
        self.write_json(&self.queue(), name, &Entry { wanted, at: wall_nanos() })?;
        remote.signal.wake();
        Ok(())
    }

    /// Returns the number of entries that are pending at the remote: artifacts and versions of datasets.
    ///
    /// # Errors
    /// `Io`.
    pub fn queued(&self) -> Result<usize, ArtifactError> {
        Ok(names_in(&self.queue())?.len())
    }

    /// Waits until nothing is queued for the remote any more, or for so long, and says how much still is.
    ///
    /// # Errors
    /// `Io`.
    pub fn settle(&self, most: Duration) -> Result<usize, ArtifactError> {
        if self.inner.remote.is_none() {
            return Ok(0);
        }
        let until = later(Instant::now(), most);
        loop {
            let left = self.queued()?;
            if left == 0 || Instant::now() >= until {
                return Ok(left);
            }
            thread::sleep(Duration::from_millis(20).min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Processes the queue, unless another process does. Returns the number of processed entries.
    ///
    /// # Errors
    /// `Remote` when the remote fails several times in a row; the rest stays queued.
    pub(super) fn work_off(&self) -> Result<usize, ArtifactError> {
        let Some(remote) = &self.inner.remote else { return Ok(0) };
        let path = self.queue().join(".claim");
        let claim = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let claim = claim.map_err(failed(&path, "open"))?;
        if claim.try_lock().is_err() {
            return Ok(0);
        }
        let mut names = names_in(&self.queue())?;
        // One that the remote never takes must not hold up the others.
        names.shuffle(&mut rand::rng());
        // Rows first, then the versions that refer to them.
        names.sort_by_key(|name| !is_id(name));
        let (mut done, mut failures, mut last) = (0_usize, 0_usize, None);
        for batch in names.chunks(AT_ONCE) {
            let results: Vec<_> = thread::scope(|scope| {
                let begun: Vec<_> = batch.iter().map(|name| scope.spawn(move || self.work_on(name, remote))).collect();
                begun.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(panicked()))).collect()
            });
            for result in results {
                match result {
                    Ok(()) => (done, failures) = (done.saturating_add(1), 0),
                    Err(error) => {
                        failures = failures.saturating_add(1);
                        last = Some(error);
                    }
                }
            }
            if failures >= FAILURES_MAX || remote.signal.is_over() {
                break;
            }
        }
        last.map_or(Ok(done), Err)
    }

    /// Processes one entry, and removes it unless it was replaced meanwhile.
    fn work_on(&self, name: &str, remote: &Remote) -> Result<(), ArtifactError> {
        let path = self.queue().join(name);
        let Some(entry) = read_json::<Entry>(&path) else {
            // A crash of the machine may leave half of one.
            return remove_file(&path);
        };
        match &entry.wanted {
            Wanted::Artifact { holder } => self.send(name, holder, remote)?,
            Wanted::Dataset { name, version } => self.send_version(name, *version, remote)?,
            Wanted::Nothing { keys } => {
                for key in keys {
                    remote.place.remove(key).map_err(remote_failed("remove from"))?;
                }
            }
        }
        let _lock = self.lock()?;
        if read_json::<Entry>(&path).is_some_and(|now| now == entry) { remove_file(&path) } else { Ok(()) }
    }

    /// Sends an artifact, if it still exists.
    pub(super) fn send(&self, id: &str, holder: &str, remote: &Remote) -> Result<(), ArtifactError> {
        let note: Option<Note> = {
            // Whoever stores it queues it first, and notes it under the same lock.
            let _lock = self.lock()?;
            read_json(&self.notes().join(holder).join(id))
        };
        let Some(note) = note else { return Ok(()) };
        let path = self.objects().join(id);
        if !path.exists() {
            return Ok(());
        }
        let Some(note) = self.with_digest(id, note)? else {
            tracing::warn!(id, "an artifact is damaged and is not sent");
            return Ok(());
        };
        remote.place.upload(&object_key(id), &path).map_err(remote_failed("send an artifact to"))?;
        // What has a note there is there whole.
        self.send_json(&note_key(id), &RemoteNote { holder: holder.to_owned(), note }, remote)
    }

    fn send_version(&self, name: &str, number: u64, remote: &Remote) -> Result<(), ArtifactError> {
        let version = {
            // As with artifacts.
            let _lock = self.lock()?;
            self.datasets().version_here(name, number)
        };
        match version {
            Some(version) => self.send_json(&version_key(&version), &version, remote),
            None => Ok(()),
        }
    }

    fn send_json(&self, key: &str, value: &impl Serialize, remote: &Remote) -> Result<(), ArtifactError> {
        let file = self.scratch()?;
        let write = || serde_json::to_writer(file.as_file(), value).map_err(io::Error::from);
        write().map_err(failed(file.path(), "write"))?;
        remote.place.upload(key, file.path()).map_err(remote_failed("write in"))
    }

    /// Returns the note with the digest of the object. Older versions recorded no digest; the object is assumed to be
    /// intact then. Returns `None` if the object is damaged.
    fn with_digest(&self, id: &str, note: Note) -> Result<Option<Note>, ArtifactError> {
        if let Some(digest) = &note.digest {
            let file = super::open_file(&self.objects().join(id));
            let is_sound = file.ok().map(|file| self.is_sound(id, &file, Some(digest.as_str()))).transpose()?;
            return Ok(is_sound.unwrap_or(false).then_some(note));
        }
        let path = self.objects().join(id);
        let digest = super::open_file(&path).and_then(|mut file| super::remote::digest_of(&mut file));
        Ok(Some(Note { digest: Some(digest.map_err(failed(&path, "read"))?), ..note }))
    }

    pub(super) fn queue(&self) -> PathBuf {
        self.folder().join("queue")
    }
}

/// Returns the name of the queue entry of a version.
pub(super) fn entry_of(key: &str) -> String {
    key.replace('/', "+")
}

fn panicked() -> ArtifactError {
    remote_failed("use")(io::Error::other("what reaches it has panicked"))
}

/// Begins to work on the queue of a store.
pub(super) fn start(inner: &Arc<Inner>) {
    let Some(remote) = &inner.remote else { return };
    let (store, signal) = (Arc::downgrade(inner), Arc::clone(&remote.signal));
    let begun = thread::Builder::new().name("artifacts-remote".to_owned()).spawn(move || work(&store, &signal));
    if let Err(error) = begun {
        tracing::error!(%error, "nothing is sent to the remote store of artifacts: there is no thread for it");
    }
}
