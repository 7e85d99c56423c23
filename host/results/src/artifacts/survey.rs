//! All that is in a store, read from its folders: for lists, and for making room.

use std::{collections::BTreeMap, fs, path::PathBuf, time::SystemTime};

use super::{Artifact, ArtifactError, ArtifactStore, Label, Note, is_id, names_in, read_json, remove_file};

/// An artifact, and where it is noted.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) artifact: Artifact,
    /// The folders that have a note of it.
    pub(super) holders: Vec<String>,
    /// The files that name it as an agent's output.
    labels: Vec<PathBuf>,
    /// True if a dataset refers to the artifact.
    pub(super) is_pinned: bool,
}

impl ArtifactStore {
    /// Returns all objects by id, or the given one, with their notes.
    pub(super) fn survey(&self, wanted: Option<&str>) -> Result<BTreeMap<String, Held>, ArtifactError> {
        let ids = wanted.map_or_else(|| names_in(&self.objects()), |id| Ok(vec![id.to_owned()]))?;
        let mut found = BTreeMap::new();
        for id in ids.into_iter().filter(|id| is_id(id)) {
            let path = self.objects().join(&id);
            // What goes meanwhile is not there.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let artifact = Artifact {
                id: id.clone(),
                size_bytes: metadata.len(),
                mime_type: "application/octet-stream".to_owned(),
                title: None,
                sessions: Vec::new(),
                labels: Vec::new(),
                used_at: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                path,
                digest: None,
            };
            found.insert(id, Held { artifact, holders: Vec::new(), labels: Vec::new(), is_pinned: false });
        }
        for holder in names_in(&self.notes())? {
            let folder = self.notes().join(&holder);
            let ids = wanted.map_or_else(|| names_in(&folder), |id| Ok(vec![id.to_owned()]))?;
            for id in ids {
                if let (Some(held), Some(note)) = (found.get_mut(&id), read_json::<Note>(&folder.join(&id))) {
                    held.is_pinned |= note.is_dataset;
                    let artifact = &mut held.artifact;
                    artifact.mime_type = note.mime_type;
                    artifact.title = note.title.or(artifact.title.take());
                    artifact.digest = note.digest.or(artifact.digest.take());
                    artifact.sessions.push(note.session);
                    held.holders.push(holder.clone());
                }
            }
        }
        for holder in names_in(&self.agents())? {
            let folder = self.agents().join(holder);
            for name in names_in(&folder)? {
                let path = folder.join(name);
                if let Some(label) = read_json::<Label>(&path)
                    && let Some(held) = found.get_mut(&label.id)
                {
                    held.artifact.labels.push(label.label);
                    held.labels.push(path);
                }
            }
        }
        for held in found.values_mut() {
            held.artifact.sessions.sort_unstable();
            held.artifact.labels.sort_unstable();
        }
        Ok(found)
    }

    /// Removes an object, and every note and name of it. The store is locked.
    pub(super) fn remove(&self, held: &Held) -> Result<(), ArtifactError> {
        // The notes go first: an object without a note is found and removed later, a note without one is not.
        for holder in &held.holders {
            remove_file(&self.notes().join(holder).join(&held.artifact.id))?;
        }
        for label in &held.labels {
            remove_file(label)?;
        }
        if self.inner.remote.is_some() {
            // What is not there any more is not sent.
            remove_file(&self.queue().join(&held.artifact.id))?;
        }
        remove_file(&held.artifact.path)
    }
}
