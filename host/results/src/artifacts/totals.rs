//! Totals of a store and of each of its sessions, cached in small files so that storing an artifact need not scan the
//! store.
//!
//! Totals are read, removed and written anew under the store's lock, together with the changes. A process that is killed in
//! between leaves no totals, and the next process recounts. Each file also holds the modification time of the folder that
//! it describes, so that changes by an older program, a person or a crash of the machine are detected.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cellar_core::files::{Durability, PRIVATE, replace_with};
use serde::{Deserialize, Serialize};

use super::{ArtifactError, ArtifactStore, is_id, names_in, read_json, remove_file};

/// Name of the totals of the whole store; no holder has this name.
const ALL: &str = "all";

/// The totals of a store, or of one holder of notes in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) count: usize,
    pub(super) bytes: u64,
    /// Names of agents' outputs.
    pub(super) labels: usize,
    /// Lower bound of the last uses, in seconds since the Unix epoch.
    pub(super) oldest: u64,
    /// Time of the last sweep for expired artifacts, in seconds since the Unix epoch.
    pub(super) swept_at: u64,
    /// Modification time of the folder: seconds and nanoseconds.
    pub(super) changed: (u64, u32),
}

impl Totals {
    /// Counts an added artifact of this size.
    pub(super) fn add(&mut self, bytes: u64) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Counts a removed artifact of this size.
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
    /// Takes the totals of the whole store. The caller holds the store's lock.
    pub(super) fn take_all(&self) -> Result<Totals, ArtifactError> {
        self.take(ALL, &self.objects(), None)
    }

    /// Takes the totals of one holder of notes. The caller holds the store's lock.
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

    /// Writes the updated totals that [`ArtifactStore::take_all`] returned.
    pub(super) fn keep_all(&self, totals: Totals) {
        self.keep(ALL, &self.objects(), totals);
    }

    /// Writes the updated totals that [`ArtifactStore::take_held`] returned.
    pub(super) fn keep_held(&self, holder: &str, totals: Totals) {
        self.keep(holder, &self.notes().join(holder), totals);
    }

    /// Writes totals. If that fails, the next process recounts.
    fn keep(&self, name: &str, folder: &Path, totals: Totals) {
        let totals = Totals { changed: changed(folder), ..totals };
        let write =
            || replace_with(&self.totals().join(name), &serde_json::to_vec(&totals)?, PRIVATE, Durability::Cached);
        if let Err(error) = write() {
            tracing::debug!(%error, "the totals of a store of artifacts were not kept");
        }
    }

    /// Removes all totals, so that they are recounted. The caller holds the store's lock.
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
