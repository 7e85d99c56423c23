//! An artifact on its way in.

use std::{fs::File, io::Write};

use fs2::FileExt;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::{Artifact, ArtifactError, ArtifactStore, Description, Note, failed, id_of, key, make_folder, touch, word};

/// Takes the bytes of an artifact. Dropped before [`ArtifactWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct ArtifactWriter {
    store: ArtifactStore,
    file: NamedTempFile,
    digest: Sha256,
    size_bytes: u64,
}

impl ArtifactWriter {
    pub(super) fn new(store: ArtifactStore) -> Result<ArtifactWriter, ArtifactError> {
        let folder = store.unfinished();
        // Nobody may take the file for an abandoned one before it is locked.
        let _lock = store.lock()?;
        let file = NamedTempFile::new_in(&folder).map_err(failed(&folder, "write in"))?;
        // Tells it from what a process left behind that was killed.
        file.as_file().lock_exclusive().map_err(failed(file.path(), "lock"))?;
        Ok(ArtifactWriter { store, file, digest: Sha256::new(), size_bytes: 0 })
    }

    /// Bytes so far.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes that it has room for.
    pub fn room(&self) -> u64 {
        self.store.quota().artifact_bytes.saturating_sub(self.size_bytes)
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// `TooLarge`, and then nothing is added; `Io`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let max = self.store.quota().artifact_bytes;
        let size = self.size_bytes + bytes.len() as u64;
        if size > max {
            return Err(ArtifactError::TooLarge { max });
        }
        self.file.write_all(bytes).map_err(failed(self.file.path(), "write"))?;
        self.digest.update(bytes);
        self.size_bytes = size;
        Ok(())
    }

    /// Stores what was written. When this returns, no crash of the process or the machine loses it, unless the store is
    /// a temporary one.
    ///
    /// # Errors
    /// `TooLarge` when it is larger than all that its session may have, `Io`.
    pub fn finish(self, description: Description<'_>) -> Result<Artifact, ArtifactError> {
        let ArtifactWriter { store, file, digest, size_bytes } = self;
        let quota = store.quota();
        let max = quota.session_bytes.min(quota.total_bytes);
        if size_bytes > max {
            return Err(ArtifactError::TooLarge { max });
        }
        store.sync(file.as_file()).map_err(failed(file.path(), "sync"))?;
        let id = id_of(digest);
        let path = store.objects().join(&id);
        let _lock = store.lock()?;
        store.make_room(description.session, &id, size_bytes)?;
        // One of another size was damaged by a crash of the machine.
        let same = File::open(&path).ok().filter(|same| same.metadata().is_ok_and(|found| found.len() == size_bytes));
        if let Some(same) = same {
            touch(&same);
        } else {
            file.persist(&path).map_err(|error| failed(&path, "store")(error.error))?;
            let folder = store.objects();
            File::open(&folder).and_then(|folder| store.sync(&folder)).map_err(failed(&folder, "sync"))?;
        }
        let notes = store.notes().join(key(description.session));
        make_folder(&notes).map_err(failed(&notes, "make"))?;
        let note = Note {
            session: description.session.to_owned(),
            mime_type: word(description.mime_type),
            title: description.title.map(word),
        };
        store.write_json(&notes, &id, &note)?;
        store.get(&id)
    }
}
