//! Maintenance of a store with a remote, for its owner: verify, push, pull.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ArtifactError, ArtifactStore, Note,
    datasets::DatasetError,
    is_id, names_in, open_file, read_json,
    remote::{Remote, digest_of, note_key, object_key, remote_failed},
};

/// Maximum number of artifacts that a report names.
const NAMED_MAX: usize = 1_000;

/// Result of verifying artifacts against their digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Number of artifacts that are intact.
    pub sound: usize,
    /// Number of artifacts without a digest, which older versions stored; they cannot be verified.
    pub unknown: usize,
    /// Ids of artifacts that were missing or damaged locally and were restored from the remote.
    pub healed: Vec<String>,
    /// Ids of artifacts whose remote copies were missing or damaged; they are sent again.
    pub sent: Vec<String>,
    /// Ids of artifacts without an intact copy. Their remains were quarantined.
    pub lost: Vec<String>,
}

/// Result of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// Number of artifacts and versions of datasets that were sent because the remote did not have them.
    pub sent: usize,
    /// Number of entries that are still pending because another process is about to send them.
    pub queued: usize,
}

/// Result of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulled {
    /// Number of versions of datasets that others published.
    pub versions: usize,
    /// Number of restored artifacts, which were missing or damaged locally.
    pub artifacts: usize,
    /// Ids of artifacts without an intact copy.
    pub lost: Vec<String>,
}

impl ArtifactStore {
    /// Verifies the given artifacts, or all, against their digests. Missing and damaged ones are restored if there is a
    /// remote. With `remote`, the remote copies are read as well, and missing and damaged ones are sent again.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`]; `NoRemote`, `Remote`.
    pub fn verify(&self, ids: &[String], remote: bool) -> Result<Verified, ArtifactError> {
        if remote {
            self.remote()?;
        }
        let mut verified = Verified::default();
        for (id, (holder, note)) in self.noted(ids)? {
            let is_here = self.verify_one(&id, &note, &mut verified)?;
            if remote && is_here && !self.is_sound_there(&id, &note)? {
                self.send(&id, &holder, self.remote()?)?;
                named(&mut verified.sent, id);
            }
        }
        Ok(verified)
    }

    /// Verifies one artifact. Returns true if there is an intact local copy.
    fn verify_one(&self, id: &str, note: &Note, verified: &mut Verified) -> Result<bool, ArtifactError> {
        let path = self.objects().join(id);
        let digest = note.digest.as_deref();
        let is_sound = match digest {
            Some(digest) => self.has_digest(id, digest)?,
            None => path.exists(),
        };
        if is_sound {
            match digest {
                Some(_) => verified.sound = verified.sound.saturating_add(1),
                None => verified.unknown = verified.unknown.saturating_add(1),
            }
            return Ok(true);
        }
        if let Ok(damaged) = open_file(&path) {
            self.put_aside(id, &damaged)?;
        }
        self.try_again(id)?;
        match self.open_object(id, digest) {
            Ok(_) => {
                named(&mut verified.healed, id.to_owned());
                Ok(true)
            }
            Err(ArtifactError::Damaged(_) | ArtifactError::Unknown(_)) => {
                named(&mut verified.lost, id.to_owned());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if the remote has an intact copy.
    fn is_sound_there(&self, id: &str, note: &Note) -> Result<bool, ArtifactError> {
        let remote = self.remote()?;
        let Some(there) = self.remote_note(id, remote)? else { return Ok(false) };
        let Some(wanted) = note.digest.as_ref().or(there.note.digest.as_ref()) else { return Ok(false) };
        let mut copy = self.scratch()?;
        match remote.place.download(&object_key(id), copy.path(), self.quota().artifact_bytes) {
            Ok(true) => Ok(digest_of(copy.as_file_mut()).is_ok_and(|found| found == *wanted)),
            Ok(false) => Ok(false),
            // What is larger than it can be is damaged.
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Ok(false),
            Err(error) => Err(remote_failed("read in")(error)),
        }
    }

    /// Sends what the remote does not have: the given artifacts, or all artifacts and versions of datasets. Waits until
    /// they are there.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`]; `NoRemote`, `Remote`.
    pub fn push(&self, ids: &[String]) -> Result<Pushed, ArtifactError> {
        let remote = self.remote()?;
        let there = self.listed("notes/", remote)?;
        let mut wanted = 0_usize;
        for (id, (holder, _)) in self.noted(ids)? {
            if !there.contains(&note_key(&id)) && self.objects().join(&id).exists() {
                self.send_later(&id, &holder)?;
                wanted = wanted.saturating_add(1);
            }
        }
        if ids.is_empty() {
            let there = self.listed("datasets/", remote)?;
            let datasets = self.datasets();
            for name in datasets.names().map_err(artifact_error)? {
                for version in datasets.log(&name).map_err(artifact_error)? {
                    if !there.contains(&super::datasets::version_key(&version)) {
                        self.send_version_later(&version)?;
                        wanted = wanted.saturating_add(1);
                    }
                }
            }
        }
        let before = self.queued()?.max(wanted);
        self.finish_queue()?;
        let queued = self.queued()?;
        Ok(Pushed { sent: before.saturating_sub(queued), queued })
    }

    /// Fetches from the remote: the given artifacts; or the versions of all datasets with their rows, and artifacts with a
    /// local note whose bytes are missing or damaged; with `all`, everything that the remote has.
    ///
    /// # Errors
    /// As [`ArtifactStore::get`]; `NoRemote`, `Remote`; the store is full.
    pub fn pull(&self, ids: &[String], all: bool) -> Result<Pulled, ArtifactError> {
        let remote = self.remote()?;
        let mut pulled = Pulled::default();
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        if ids.is_empty() {
            let datasets = self.datasets();
            let listed = self.listed("datasets/", remote)?;
            let named = listed.iter().filter_map(|key| key.strip_prefix("datasets/")?.split_once('/'));
            let names: BTreeSet<&str> = named.map(|(name, _)| name).collect();
            for name in names.into_iter().filter(|name| super::datasets::check_name(name).is_ok()) {
                pulled.versions = pulled.versions.saturating_add(datasets.pull(name).map_err(artifact_error)?);
                wanted.extend(datasets.log(name).map_err(artifact_error)?.into_iter().map(|version| version.artifact));
            }
            wanted.extend(self.noted(&[])?.into_keys());
        }
        if all {
            let listed = self.listed("notes/", remote)?;
            wanted.extend(listed.iter().filter_map(|key| key.strip_prefix("notes/")).map(str::to_owned));
        }
        for id in ids {
            wanted.insert(self.resolve(id)?);
        }
        for id in wanted.into_iter().filter(|id| is_id(id)) {
            self.pull_one(&id, &mut pulled)?;
        }
        Ok(pulled)
    }

    fn pull_one(&self, id: &str, pulled: &mut Pulled) -> Result<(), ArtifactError> {
        let digest = self.survey(Some(id))?.remove(id).and_then(|held| held.artifact.digest);
        let path = self.objects().join(id);
        if path.exists() && digest.as_deref().map_or(Ok(true), |digest| self.has_digest(id, digest))? {
            return Ok(());
        }
        self.try_again(id)?;
        match self.open_object(id, digest.as_deref()) {
            Ok(_) => pulled.artifacts = pulled.artifacts.saturating_add(1),
            Err(ArtifactError::Damaged(_) | ArtifactError::Unknown(_)) => named(&mut pulled.lost, id.to_owned()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn remote(&self) -> Result<&Remote, ArtifactError> {
        self.inner.remote.as_ref().ok_or(ArtifactError::NoRemote)
    }

    /// Returns the keys in the remote; empty for a remote that cannot list them.
    fn listed(&self, prefix: &str, remote: &Remote) -> Result<BTreeSet<String>, ArtifactError> {
        let listed = remote.place.list(prefix).map_err(remote_failed("list what is in"))?;
        Ok(listed.unwrap_or_default().into_iter().collect())
    }

    /// Returns the artifacts with a note, the given ones or all, each with a folder that has the note.
    fn noted(&self, ids: &[String]) -> Result<BTreeMap<String, (String, Note)>, ArtifactError> {
        let wanted: Vec<String> = ids.iter().map(|id| self.resolve(id)).collect::<Result<_, _>>()?;
        let mut found = BTreeMap::new();
        for holder in names_in(&self.notes())? {
            let folder = self.notes().join(&holder);
            let names = if ids.is_empty() { names_in(&folder)? } else { wanted.clone() };
            for id in names.into_iter().filter(|id| is_id(id)) {
                if let Some(note) = read_json::<Note>(&folder.join(&id)) {
                    found.insert(id, (holder.clone(), note));
                }
            }
        }
        match wanted.into_iter().find(|id| !found.contains_key(id)) {
            Some(unknown) => Err(ArtifactError::Unknown(unknown)),
            None => Ok(found),
        }
    }

    /// Processes the queue until it is empty, or another process works on it.
    fn finish_queue(&self) -> Result<(), ArtifactError> {
        while self.queued()? > 0 {
            if self.work_off()? == 0 {
                // Another thread or process has it.
                self.settle(std::time::Duration::from_secs(60))?;
                break;
            }
        }
        Ok(())
    }
}

fn named(ids: &mut Vec<String>, id: String) {
    if ids.len() < NAMED_MAX {
        ids.push(id);
    }
}

/// Converts an error of a dataset for operations that do not name a dataset.
fn artifact_error(error: DatasetError) -> ArtifactError {
    match error {
        DatasetError::Artifact(error) => error,
        other => ArtifactError::Io {
            doing: "read",
            path: "datasets".into(),
            source: std::io::Error::other(other.to_string()),
        },
    }
}
