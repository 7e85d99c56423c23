//! How much a store and each of its sessions has, kept in small files so that storing one artifact does not look at all.
//!
//! Totals are read, removed, and written anew under the store's lock, with what was changed in between: a process that
//! is killed meanwhile leaves none, and whoever comes next counts again. Beside them stands when the folder that they
//! are of was last changed, so that what an older program, a person or a crash of the machine does is noticed as well.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cellar_core::files::{Durability, PRIVATE, replace_with};
use serde::{Deserialize, Serialize};

use super::{ArtifactError, ArtifactStore, is_id, names_in, read_json, remove_file};

/// What is called like no holder.
const ALL: &str = "all";

/// The totals of a store, or of one holder of notes in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) count: usize,
    pub(super) bytes: u64,
    /// Names of agents' outputs.
    pub(super) labels: usize,
    /// None was last used before this, in seconds since the Unix epoch.
    pub(super) oldest: u64,
    /// When those that are too old were last looked for, likewise.
    pub(super) swept_at: u64,
    /// When the folder was last changed: seconds and nanoseconds.
    pub(super) changed: (u64, u32),
}

impl Totals {
    /// One of so many bytes was added.
    pub(super) fn add(&mut self, bytes: u64) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// One of so many bytes was removed.
    pub(super) fn subtract(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Seconds since the Unix epoch.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn changed(folder: &Path) -> (u64, u32) {
    let modified = fs::metadata(folder).and_then(|found| found.modified());
    let since = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
    (since.as_secs(), since.subsec_nanos())
}

impl ArtifactStore {
    /// What the store has, all in all. The store is locked.
    pub(super) fn take_all(&self) -> Result<Totals, ArtifactError> {
        self.take(ALL, &self.objects(), None)
    }

    /// What one holder of notes has. The store is locked.
    pub(super) fn take_held(&self, holder: &str) -> Result<Totals, ArtifactError> {
        self.take(holder, &self.notes().join(holder), Some(&self.agents().join(holder)))
    }

    /// Reads totals and removes their file, or counts.
    fn take(&self, name: &str, folder: &Path, labels: Option<&Path>) -> Result<Totals, ArtifactError> {
        let path = self.totals().join(name);
        let kept = read_json::<Totals>(&path).filter(|kept| kept.changed == changed(folder));
        remove_file(&path)?;
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let mut totals = Totals { oldest: seconds(SystemTime::now()), ..Totals::default() };
        for id in names_in(folder)?.iter().filter(|name| is_id(name)) {
            // A note of what is gone takes no room.
            let Ok(found) = fs::symlink_metadata(self.objects().join(id)) else { continue };
            totals.add(found.len());
            totals.oldest = totals.oldest.min(found.modified().map_or(0, seconds));
        }
        totals.labels = labels.map_or(Ok(0), |labels| names_in(labels).map(|names| names.len()))?;
        Ok(totals)
    }

    /// Writes what [`ArtifactStore::take_all`] took, with what was changed since.
    pub(super) fn keep_all(&self, totals: Totals) {
        self.keep(ALL, &self.objects(), totals);
    }

    /// Writes what [`ArtifactStore::take_held`] took, with what was changed since.
    pub(super) fn keep_held(&self, holder: &str, totals: Totals) {
        self.keep(holder, &self.notes().join(holder), totals);
    }

    /// Totals that cannot be written are counted again by whoever comes next.
    fn keep(&self, name: &str, folder: &Path, totals: Totals) {
        let totals = Totals { changed: changed(folder), ..totals };
        let write =
            || replace_with(&self.totals().join(name), &serde_json::to_vec(&totals)?, PRIVATE, Durability::Cached);
        if let Err(error) = write() {
            tracing::debug!(%error, "the totals of a store of artifacts were not kept");
        }
    }

    /// Has all be counted again. The store is locked.
    pub(super) fn forget_totals(&self) -> Result<(), ArtifactError> {
        for name in names_in(&self.totals())? {
            remove_file(&self.totals().join(name))?;
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> PathBuf {
        self.folder().join("totals")
    }
}
