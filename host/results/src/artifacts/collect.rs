//! Making room, and garbage collection.

use std::{
    fs::{self, File},
    time::{Duration, SystemTime},
};

use fs2::FileExt;

use super::{Artifact, ArtifactError, ArtifactStore, Label, failed, key, names_in, read_json, remove_file};

/// What is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// What nobody has stored or read for so long.
    pub unused_for: Option<Duration>,
    /// What no session refers to.
    pub unreferenced: bool,
    /// What was used longest ago, until the rest has no more bytes than this.
    pub total_bytes: Option<u64>,
}

/// What went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// Artifacts.
    pub count: usize,
    /// Their bytes.
    pub size_bytes: u64,
}

/// Whether nobody has used an artifact for longer than this.
fn is_unused_for(longest: Option<Duration>) -> impl Fn(&Artifact) -> bool {
    let now = SystemTime::now();
    move |artifact| {
        let unused = now.duration_since(artifact.used_at).unwrap_or_default();
        longest.is_some_and(|longest| unused > longest)
    }
}

impl ArtifactStore {
    /// Removes what is to go, and what processes left behind that were killed.
    ///
    /// # Errors
    /// `Io`.
    pub fn collect(&self, collection: &Collection) -> Result<Collected, ArtifactError> {
        let _lock = self.lock()?;
        self.remove_unfinished()?;
        let mut all = self.list()?;
        let mut collected = Collected::default();
        let is_old = is_unused_for(collection.unused_for);
        let goes = |artifact: &Artifact| (collection.unreferenced && artifact.sessions.is_empty()) || is_old(artifact);
        for artifact in all.extract_if(.., |artifact| goes(artifact)) {
            self.take_away(&artifact, &mut collected)?;
        }
        if let Some(most) = collection.total_bytes {
            let mut total: u64 = all.iter().map(|artifact| artifact.size_bytes).sum();
            while total > most
                && let Some(artifact) = all.pop()
            {
                total -= artifact.size_bytes;
                self.take_away(&artifact, &mut collected)?;
            }
        }
        self.remove_dangling()?;
        Ok(collected)
    }

    fn take_away(&self, artifact: &Artifact, collected: &mut Collected) -> Result<(), ArtifactError> {
        self.remove(artifact)?;
        collected.count += 1;
        collected.size_bytes += artifact.size_bytes;
        Ok(())
    }

    /// Makes room for an artifact of a session. The store is locked.
    pub(super) fn make_room(&self, session: &str, id: &str, size_bytes: u64) -> Result<(), ArtifactError> {
        let quota = self.quota();
        let mut others = self.list()?;
        let is_old = is_unused_for(quota.unused_for);
        for artifact in others.extract_if(.., |artifact| artifact.id != id && is_old(artifact)) {
            self.remove(&artifact)?;
        }
        let is_stored = others.iter().any(|artifact| artifact.id == id);
        others.retain(|artifact| artifact.id != id);
        // Those that nobody refers to come last, and go first.
        others.sort_by_key(|artifact| artifact.sessions.is_empty());
        let own = |artifact: &Artifact| artifact.sessions.iter().any(|name| name == session);
        let size_of = |artifacts: &[Artifact], counts: &dyn Fn(&Artifact) -> bool| {
            artifacts
                .iter()
                .filter(|each| counts(each))
                .fold((0_usize, 0), |(count, bytes), each| (count + 1, bytes + each.size_bytes))
        };
        let (mut count, mut bytes) = size_of(&others, &own);
        while count > 0 && (count + 1 > quota.session_count || bytes + size_bytes > quota.session_bytes) {
            let Some(place) = others.iter().rposition(own) else { break };
            let artifact = &mut others[place];
            (count, bytes) = (count - 1, bytes - artifact.size_bytes);
            remove_file(&self.notes().join(key(session)).join(&artifact.id))?;
            artifact.sessions.retain(|name| name != session);
            if artifact.sessions.is_empty() {
                self.remove(&others.remove(place))?;
            }
        }
        if is_stored {
            return Ok(());
        }
        let (mut count, mut bytes) = size_of(&others, &|_| true);
        while (count + 1 > quota.total_count || bytes + size_bytes > quota.total_bytes)
            && let Some(artifact) = others.pop()
        {
            (count, bytes) = (count - 1, bytes - artifact.size_bytes);
            self.remove(&artifact)?;
        }
        Ok(())
    }

    /// Removes what was being written by processes that are gone.
    fn remove_unfinished(&self) -> Result<(), ArtifactError> {
        let folder = self.unfinished();
        for entry in fs::read_dir(&folder).map_err(failed(&folder, "read"))?.flatten() {
            if File::open(entry.path()).is_ok_and(|file| file.try_lock_exclusive().is_ok()) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the names of outputs that are gone, and what is empty.
    fn remove_dangling(&self) -> Result<(), ArtifactError> {
        for session in names_in(&self.agents())? {
            let folder = self.agents().join(session);
            for name in names_in(&folder)? {
                let label = read_json::<Label>(&folder.join(&name));
                if label.is_none_or(|label| !self.objects().join(label.id).exists()) {
                    remove_file(&folder.join(name))?;
                }
            }
        }
        for parent in [self.agents(), self.notes()] {
            for session in names_in(&parent)? {
                // Only goes when nothing is in it.
                let _ = fs::remove_dir(parent.join(session));
            }
        }
        Ok(())
    }
}
