//! Writer of artifacts.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
    time::SystemTime,
};

use cellar_core::{sync::lock, time::wall_nanos};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::{
    Artifact, ArtifactError, ArtifactKey, ArtifactStore, Description, Note, collect::Coming, failed, keys::hexadecimal,
    make_folder, open_file, read_json, touch, word,
};

/// Maximum size in bytes of an artifact for which no room is claimed.
const UNCLAIMED_BYTES_MAX: u64 = 1 << 20;
/// Granularity in bytes at which room is claimed.
const CLAIM_BYTES: u64 = 4 << 20;

/// Owner of an artifact that is being written.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) key: ArtifactKey,
    /// Name of its folder of notes.
    pub(super) holder: String,
    /// Name of the session, for people.
    pub(super) session: String,
    /// True for a dataset, whose artifacts are never evicted for others.
    pub(super) is_dataset: bool,
}

/// Bytes that are claimed and not stored yet, by store and by holder, in this process. Small artifacts count only once they
/// are stored.
static CLAIMED: LazyLock<Mutex<HashMap<(PathBuf, String), u64>>> = LazyLock::new(Default::default);

/// Claim of room for an unfinished artifact, released when it is dropped.
#[derive(Debug)]
struct Claim {
    place: (PathBuf, String),
    bytes: u64,
}

impl Claim {
    /// Returns the claims of others: in this store, and of this holder.
    fn of_others(&self, claimed: &HashMap<(PathBuf, String), u64>) -> (u64, u64) {
        let all = claimed.iter().filter(|((store, _), _)| *store == self.place.0).map(|(_, bytes)| bytes).sum::<u64>();
        let held = claimed.get(&self.place).copied().unwrap_or_default();
        (all.saturating_sub(self.bytes), held.saturating_sub(self.bytes))
    }

    fn resize(&mut self, bytes: u64, claimed: &mut HashMap<(PathBuf, String), u64>) {
        let held = claimed.entry(self.place.clone()).or_default();
        *held = held.saturating_sub(self.bytes).saturating_add(bytes);
        if *held == 0 {
            claimed.remove(&self.place);
        }
        self.bytes = bytes;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.resize(0, &mut lock(&CLAIMED));
        }
    }
}

/// Writer of an artifact's bytes. Dropped before [`ArtifactWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct ArtifactWriter {
    store: ArtifactStore,
    keeper: Arc<Keeper>,
    file: NamedTempFile,
    digest: Sha256,
    size_bytes: u64,
    claim: Claim,
}

impl ArtifactWriter {
    pub(super) fn new(store: ArtifactStore, keeper: Arc<Keeper>) -> Result<ArtifactWriter, ArtifactError> {
        let folder = store.unfinished();
        // Nobody may take the file for an abandoned one before it is locked.
        let _lock = store.lock()?;
        let file = NamedTempFile::new_in(&folder).map_err(failed(&folder, "write in"))?;
        // Tells it from what a process left behind that was killed.
        file.as_file().lock().map_err(failed(file.path(), "lock"))?;
        let claim = Claim { place: (store.folder().to_owned(), keeper.holder.clone()), bytes: 0 };
        Ok(ArtifactWriter { store, keeper, file, digest: Sha256::new(), size_bytes: 0, claim })
    }

    /// Returns the number of bytes written so far.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the number of bytes that may still be written. Other unfinished artifacts reduce it.
    pub fn room(&self) -> u64 {
        self.bytes_max(self.claim.of_others(&lock(&CLAIMED))).saturating_sub(self.size_bytes)
    }

    fn bytes_max(&self, (all, held): (u64, u64)) -> u64 {
        let quota = self.store.quota();
        let (all, held) = (quota.total_bytes.saturating_sub(all), quota.session_bytes.saturating_sub(held));
        quota.artifact_bytes.min(all).min(held)
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// `TooLarge`, and then nothing is added; `Io`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let size = self.size_bytes.saturating_add(bytes.len() as u64);
        let max = self.store.quota().artifact_bytes;
        if size > max {
            return Err(ArtifactError::TooLarge { max });
        }
        if size > UNCLAIMED_BYTES_MAX && size > self.claim.bytes {
            self.claim(size)?;
        }
        self.file.write_all(bytes).map_err(failed(self.file.path(), "write"))?;
        self.digest.update(bytes);
        self.size_bytes = size;
        Ok(())
    }

    /// Claims room for an artifact of this size, and some more, before the bytes are written.
    fn claim(&mut self, bytes: u64) -> Result<(), ArtifactError> {
        let (claim, others) = {
            let mut claimed = lock(&CLAIMED);
            let others = self.claim.of_others(&claimed);
            let max = self.bytes_max(others);
            if bytes > max {
                return Err(ArtifactError::TooLarge { max });
            }
            let claim = bytes.next_multiple_of(CLAIM_BYTES).min(max);
            self.claim.resize(claim, &mut claimed);
            (claim, others)
        };
        let _lock = self.store.lock()?;
        let holder = &self.keeper.holder;
        let coming = Coming { id: None, bytes: claim, is_counted: false, others };
        let (of_all, of_held) = self.store.make_room(holder, &coming)?;
        self.store.keep_all(of_all);
        self.store.keep_held(holder, of_held);
        Ok(())
    }

    /// Opens the bytes that were written so far as a file.
    pub(super) fn written(&self) -> Result<File, ArtifactError> {
        self.file.reopen().map_err(failed(self.file.path(), "open"))
    }

    /// Stores the written bytes. Once this returns, the artifact survives crashes of the process and the machine, unless
    /// the store is a temporary one.
    ///
    /// # Errors
    /// `TooLarge` when it is larger than the quota of its session, `Io`.
    pub fn finish(self, description: Description<'_>) -> Result<Artifact, ArtifactError> {
        let digest = self.digest.clone().finalize();
        let id = self.keeper.key.id_of(&digest);
        let note = Note {
            session: self.keeper.session.clone(),
            mime_type: word(description.mime_type),
            title: description.title.map(word),
            kept_at: wall_nanos(),
            is_dataset: self.keeper.is_dataset,
            digest: Some(hexadecimal(&digest)),
        };
        self.store_as(id, note, true)
    }

    /// Returns the digest of the written bytes in hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        hexadecimal(&self.digest.clone().finalize())
    }

    /// Stores an artifact that was fetched from the remote.
    ///
    /// # Errors
    /// As [`ArtifactWriter::finish`].
    pub(super) fn restore(self, id: &str, note: Note) -> Result<Artifact, ArtifactError> {
        self.store_as(id.to_owned(), note, false)
    }

    fn store_as(self, id: String, note: Note, is_new: bool) -> Result<Artifact, ArtifactError> {
        let ArtifactWriter { store, keeper, file, size_bytes, claim, .. } = self;
        let others = claim.of_others(&lock(&CLAIMED));
        let quota = store.quota();
        let max = quota.session_bytes.min(quota.total_bytes);
        if size_bytes > max {
            return Err(ArtifactError::TooLarge { max });
        }
        store.sync(file.as_file()).map_err(failed(file.path(), "sync"))?;
        let path = store.objects().join(&id);
        let notes = store.notes().join(&keeper.holder);
        let _lock = store.lock()?;
        // Folders that are empty go when somebody collects.
        make_folder(&notes).map_err(failed(&notes, "make"))?;
        let found = open_file(&path).ok().and_then(|same| Some((same.metadata().ok()?.len(), same)));
        let noted: Option<Note> = read_json(&notes.join(&id));
        let is_counted = noted.is_some() && found.as_ref().is_some_and(|(bytes, _)| *bytes == size_bytes);
        let coming = Coming { id: Some(&id), bytes: size_bytes, is_counted, others };
        let (mut of_all, mut of_held) = store.make_room(&keeper.holder, &coming)?;
        // What was here whole and noted with its digest is at the remote, or queued for it.
        let mut is_new = is_new;
        match found {
            Some((bytes, same)) if bytes == size_bytes && store.is_sound(&id, &same, note.digest.as_deref())? => {
                is_new &= noted.as_ref().is_none_or(|noted| noted.digest.is_none());
                touch(&same);
            }
            found => {
                // One that is there was damaged.
                match found {
                    Some((bytes, _)) => of_all.bytes = of_all.bytes.saturating_sub(bytes).saturating_add(size_bytes),
                    None => of_all.add(size_bytes),
                }
                file.persist(&path).map_err(|error| failed(&path, "store")(error.error))?;
                let folder = store.objects();
                File::open(&folder).and_then(|folder| store.sync(&folder)).map_err(failed(&folder, "sync"))?;
                store.forget_quarantined(&id)?;
            }
        }
        if !is_counted {
            of_held.add(size_bytes);
        }
        // Who was handed what was kept up to a moment has it still when it is kept again.
        let kept_at = noted.as_ref().map_or(note.kept_at, |noted| noted.kept_at);
        let note = Note { kept_at, ..note };
        if is_new {
            // Before anybody is told that it is stored.
            store.send_later(&id, &keeper.holder)?;
        }
        store.write_json(&notes, &id, &note)?;
        store.keep_all(of_all);
        store.keep_held(&keeper.holder, of_held);
        Ok(Artifact {
            id,
            size_bytes,
            mime_type: note.mime_type,
            title: note.title,
            sessions: vec![note.session],
            labels: Vec::new(),
            used_at: SystemTime::now(),
            path,
            digest: note.digest,
        })
    }
}
