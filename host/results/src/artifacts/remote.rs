//! A further place for what a store keeps, and how a lost or damaged copy comes back from it.
//!
//! ```text
//! <remote>/objects/<id>                        the bytes
//!         /notes/<id>                          who refers to them, what they are, and their digest
//!         /datasets/<name>/<time>-<id>         a version of a dataset
//! ```
//!
//! What is stored goes there later, from a queue on the disk (`queue.rs`). Whatever is read is held to its digest first, once by each
//! process. A copy that is missing or damaged is fetched back and held to the digest as well; what is damaged is put aside, and while no
//! good copy is found, readers are told so rather than given it.

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_core::{sync::lock, time::wall_nanos};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::{
    ArtifactError, ArtifactKey, ArtifactStore, ArtifactWriter, NOTE_BYTES_MAX, Note, failed, is_id, keys::hexadecimal,
    make_folder, names_in, open_file, queue::Signal, read_json, touch, writer::Keeper,
};

/// Copies that are put aside; the oldest make room.
const QUARANTINED_MAX: usize = 64;
/// Time during which the remote copy is assumed to be damaged as well, before it is tried again.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Objects that a process remembers to have verified.
const VERIFIED_MAX: usize = 20_000;

/// A further place for artifacts and datasets: an object store, a folder on another machine, an embedder's own. Its methods wait until
/// they are done or have failed, and give up by themselves.
pub trait RemoteStore: Send + Sync {
    /// Stores the bytes of a file under a key, and replaces an existing object. The object is durable once this returns.
    ///
    /// # Errors
    /// The remote fails; the message contains no credential.
    fn upload(&self, key: &str, file: &Path) -> io::Result<()>;

    /// Writes the object under a key into an existing file. Returns false if there is no such object.
    ///
    /// # Errors
    /// The remote fails, or the object has more than `bytes_max` bytes.
    fn download(&self, key: &str, file: &Path, bytes_max: u64) -> io::Result<bool>;

    /// The keys that begin with this; `None` of a place that cannot tell.
    ///
    /// # Errors
    /// The place does not do it.
    fn list(&self, prefix: &str) -> io::Result<Option<Vec<String>>> {
        let _ = prefix;
        Ok(None)
    }

    /// Removes the object under a key, if there is one. A remote that cannot remove objects retains it.
    ///
    /// # Errors
    /// The remote fails.
    fn remove(&self, key: &str) -> io::Result<()> {
        let _ = key;
        Ok(())
    }
}

/// Remote of a store, and this process's knowledge of its copies.
pub(super) struct Remote {
    pub(super) place: Arc<dyn RemoteStore>,
    /// Signal that wakes the thread of the queue.
    pub(super) signal: Arc<Signal>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

/// Objects that were held to their digest: the number and the size of the file.
pub(super) type Verified = Mutex<HashMap<String, (u64, u64)>>;

/// Note of an artifact in the remote store.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RemoteNote {
    /// Folder of notes that the artifact belongs to.
    pub(super) holder: String,
    pub(super) note: Note,
}

/// Record of a quarantined artifact, as stored on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Quarantined {
    /// Time of quarantine, in nanoseconds since the Unix epoch.
    at: u64,
    /// True if the remote copy was damaged as well.
    remote: bool,
}

pub(super) fn object_key(id: &str) -> String {
    format!("objects/{id}")
}

pub(super) fn note_key(id: &str) -> String {
    format!("notes/{id}")
}

pub(super) fn remote_failed(doing: &'static str) -> impl FnOnce(io::Error) -> ArtifactError {
    move |source| ArtifactError::Remote { doing, source }
}

/// The digest of a file, from where it stands.
pub(super) fn digest_of(file: &mut impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hexadecimal(&digest.finalize())),
            length => digest.update(&piece[..length]),
        }
    }
}

impl ArtifactStore {
    /// Opens an object for reading. A missing or damaged object is restored from the remote, if there is one. `digest` is
    /// the expected digest, if it is known.
    pub(super) fn open_object(&self, id: &str, digest: Option<&str>) -> Result<File, ArtifactError> {
        let path = self.objects().join(id);
        match open_file(&path) {
            Ok(file) if self.is_sound(id, &file, digest)? => {
                touch(&file);
                Ok(file)
            }
            Ok(damaged) => {
                self.put_aside(id, &damaged)?;
                self.fetch_back(id, digest, true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.fetch_back(id, digest, false),
            Err(_) if self.put_stranger_aside(id)? => self.fetch_back(id, digest, true),
            Err(error) => Err(failed(&path, "open")(error)),
        }
    }

    /// Puts aside what is no file in the place of an object: a link and a pipe go, and a folder is renamed. Returns true if there was
    /// one.
    fn put_stranger_aside(&self, id: &str) -> Result<bool, ArtifactError> {
        let _lock = self.lock()?;
        let path = self.objects().join(id);
        let Ok(found) = fs::symlink_metadata(&path) else { return Ok(false) };
        if found.is_file() {
            return Ok(false);
        }
        self.forget_totals()?;
        tracing::warn!(id, "what is no file stood in the place of an artifact and was put aside");
        let gone = match found.is_dir() {
            true => {
                let folder = self.quarantined();
                make_folder(&folder).map_err(failed(&folder, "make"))?;
                let aside = folder.join(format!("{id}.{}.folder", wall_nanos()));
                fs::remove_dir(&path).or_else(|_| fs::rename(&path, aside))
            }
            false => fs::remove_file(&path),
        };
        gone.map(|()| true).map_err(failed(&path, "put aside"))
    }

    /// Returns true if a file has the expected digest. Each process reads a file once for this. Files of temporary stores,
    /// which may be damaged by a crash of the machine, are never checked.
    pub(super) fn is_sound(&self, id: &str, file: &File, digest: Option<&str>) -> Result<bool, ArtifactError> {
        let Some(digest) = digest.filter(|_| !self.is_temporary()) else { return Ok(true) };
        let cannot_read = |error| failed(&self.objects().join(id), "read")(error);
        let found = file.metadata().map_err(cannot_read)?;
        let state = (found.ino(), found.len());
        if lock(&self.inner.verified).get(id) == Some(&state) {
            return Ok(true);
        }
        let is_sound = self.has_digest(id, digest)?;
        if is_sound {
            self.remember_sound(id, state);
        }
        Ok(is_sound)
    }

    /// Returns true if the object has this digest. The file is read anew; a missing or unreadable object has none.
    pub(super) fn has_digest(&self, id: &str, digest: &str) -> Result<bool, ArtifactError> {
        let path = self.objects().join(id);
        let mut file = match open_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // It is no file.
            Err(_) if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) => return Ok(false),
            opened => opened.map_err(failed(&path, "open"))?,
        };
        match digest_of(&mut file) {
            Ok(found) => Ok(found == digest),
            // A disk that cannot read it has lost it.
            Err(error) => {
                tracing::warn!(%error, id, "an artifact cannot be read");
                Ok(false)
            }
        }
    }

    fn remember_sound(&self, id: &str, state: (u64, u64)) {
        let mut verified = lock(&self.inner.verified);
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(id.to_owned(), state);
    }

    /// Fetches an object from the remote, with the note that belongs to it, and opens it.
    fn fetch_back(&self, id: &str, digest: Option<&str>, was_damaged: bool) -> Result<File, ArtifactError> {
        let is_restored = match &self.inner.remote {
            Some(remote) => self.restore(id, digest, |_| true, remote)?,
            None => false,
        };
        if !is_restored {
            let is_damaged = was_damaged || self.quarantined().join(id).exists();
            return Err(match is_damaged {
                true => ArtifactError::Damaged(id.to_owned()),
                false => ArtifactError::Unknown(id.to_owned()),
            });
        }
        let path = self.objects().join(id);
        open_file(&path).map_err(failed(&path, "open"))
    }

    /// Restores a missing object, if the remote's note is accepted. Returns true if the object was restored.
    ///
    /// # Errors
    /// `Damaged` when the remote copy is; `Remote`; errors of storing.
    pub(super) fn restore(
        &self,
        id: &str,
        digest: Option<&str>,
        accepts: impl FnOnce(&RemoteNote) -> bool,
        remote: &Remote,
    ) -> Result<bool, ArtifactError> {
        if self.is_given_up(id) {
            return Err(ArtifactError::Damaged(id.to_owned()));
        }
        if self.is_forgotten(id) {
            return Ok(false);
        }
        let Some(RemoteNote { holder, note }) = self.remote_note(id, remote)?.filter(accepts) else { return Ok(false) };
        let Some(wanted) = digest.or(note.digest.as_deref()).map(str::to_owned) else { return Ok(false) };
        let mut copy = self.scratch()?;
        let fetch = || remote.place.download(&object_key(id), copy.path(), self.quota().artifact_bytes);
        if !fetch().map_err(remote_failed("fetch an artifact from"))? {
            return Ok(false);
        }
        let keeper = Keeper {
            // It has its id already.
            key: ArtifactKey::random(),
            holder,
            session: note.session.clone(),
            is_dataset: note.is_dataset,
        };
        let mut writer = ArtifactWriter::new(self.clone(), Arc::new(keeper))?;
        let cannot_read = |error| failed(&self.unfinished(), "read in")(error);
        let file = copy.as_file_mut();
        let mut piece = vec![0; 256 << 10];
        loop {
            match file.read(&mut piece).map_err(cannot_read)? {
                0 => break,
                length => writer.write(&piece[..length])?,
            }
        }
        if writer.digest() != wanted {
            self.note_quarantined(id, true, |path| copy.persist(path).map(drop).map_err(|error| error.error))?;
            tracing::warn!(id, "the remote copy of an artifact is damaged");
            return Err(ArtifactError::Damaged(id.to_owned()));
        }
        writer.restore(id, Note { digest: Some(wanted), ..note })?;
        self.forget_quarantined(id)?;
        tracing::info!(id, "an artifact was fetched back from the remote store");
        Ok(true)
    }

    /// Returns the remote's note of an artifact, if there is one.
    pub(super) fn remote_note(&self, id: &str, remote: &Remote) -> Result<Option<RemoteNote>, ArtifactError> {
        let found: Option<RemoteNote> = self.remote_json(&note_key(id), NOTE_BYTES_MAX, remote)?;
        // The remote may have been given anything, and this becomes the name of a folder.
        Ok(found.filter(|found| is_id(&found.holder)))
    }

    /// Downloads and parses the JSON under a key. Returns `None` if it is missing or invalid.
    pub(super) fn remote_json<T: for<'de> Deserialize<'de>>(
        &self,
        key: &str,
        bytes_max: u64,
        remote: &Remote,
    ) -> Result<Option<T>, ArtifactError> {
        let copy = self.scratch()?;
        let is_there = remote.place.download(key, copy.path(), bytes_max);
        if !is_there.map_err(remote_failed("read in"))? {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        copy.as_file().take(bytes_max).read_to_end(&mut bytes).map_err(failed(copy.path(), "read"))?;
        Ok(serde_json::from_slice(&bytes).ok())
    }

    /// Creates a file for a download. It is locked, which distinguishes it from files of killed processes.
    pub(super) fn scratch(&self) -> Result<NamedTempFile, ArtifactError> {
        let folder = self.unfinished();
        let _lock = self.lock()?;
        let file = NamedTempFile::new_in(&folder).map_err(failed(&folder, "write in"))?;
        file.as_file().lock().map_err(failed(file.path(), "lock"))?;
        Ok(file)
    }

    /// Puts a damaged object aside, so that it is read no more and a good one can take its place.
    pub(super) fn put_aside(&self, id: &str, damaged: &File) -> Result<(), ArtifactError> {
        let _lock = self.lock()?;
        let path = self.objects().join(id);
        let same = |found: fs::Metadata| damaged.metadata().is_ok_and(|damaged| damaged.ino() == found.ino());
        if !fs::symlink_metadata(&path).is_ok_and(same) {
            // Somebody put another one there.
            return Ok(());
        }
        self.forget_totals()?;
        lock(&self.inner.verified).remove(id);
        tracing::warn!(id, "an artifact is damaged and was put aside");
        self.note_quarantined(id, false, |aside| fs::rename(&path, aside))
    }

    fn note_quarantined(
        &self,
        id: &str,
        remote: bool,
        take: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), ArtifactError> {
        let folder = self.quarantined();
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let ids: Vec<String> = names_in(&folder)?.into_iter().filter(|name| !name.contains('.')).collect();
        let when = |id: &String| read_json::<Quarantined>(&folder.join(format!("{id}.json"))).map_or(0, |one| one.at);
        if let Some(oldest) = ids.iter().min_by_key(|id| when(id)).filter(|_| ids.len() >= QUARANTINED_MAX) {
            self.forget_quarantined(oldest)?;
        }
        take(&folder.join(id)).map_err(failed(&folder, "write in"))?;
        self.write_json(&folder, &format!("{id}.json"), &Quarantined { at: wall_nanos(), remote })
    }

    /// Returns true if all copies of an object were found damaged within [`TRIED_AGAIN_AFTER`].
    fn is_given_up(&self, id: &str) -> bool {
        let found: Option<Quarantined> = read_json(&self.quarantined().join(format!("{id}.json")));
        found.is_some_and(|found| {
            found.remote && u128::from(wall_nanos().saturating_sub(found.at)) < TRIED_AGAIN_AFTER.as_nanos()
        })
    }

    /// Has the remote asked again for an object of which it had a damaged copy.
    pub(super) fn try_again(&self, id: &str) -> Result<(), ArtifactError> {
        let folder = self.quarantined();
        let name = format!("{id}.json");
        let found: Option<Quarantined> = read_json(&folder.join(&name));
        match found.filter(|found| found.remote) {
            Some(found) => self.write_json(&folder, &name, &Quarantined { remote: false, ..found }),
            None => Ok(()),
        }
    }

    /// Removes the quarantined copy of an object, which an intact one has replaced.
    pub(super) fn forget_quarantined(&self, id: &str) -> Result<(), ArtifactError> {
        for name in [id.to_owned(), format!("{id}.json")] {
            super::remove_file(&self.quarantined().join(name))?;
        }
        Ok(())
    }

    pub(super) fn quarantined(&self) -> PathBuf {
        self.folder().join("quarantine")
    }
}

#[cfg(test)]
mod tests;
