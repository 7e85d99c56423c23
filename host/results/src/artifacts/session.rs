//! View that one session has of a store.

use std::{
    fs::{self, File},
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    AGENT_SCHEME, ARTIFACT_SCHEME, Artifact, ArtifactError, ArtifactKey, ArtifactKeys, ArtifactQuota, ArtifactStore,
    ArtifactWriter, Description, Label, Note, failed, is_id, key, make_folder, names_in, read_json, remote::RemoteNote,
    word, writer::Keeper,
};

/// A session's view of a store: the artifacts that the session stores, and those that it inherited or that callers stored
/// for it. Other artifacts of the store cannot be read, listed or confirmed through it: requests for them are answered like
/// requests for missing artifacts, after the same work. Every method blocks on the disk.
#[derive(Clone, Debug)]
pub struct SessionArtifacts {
    store: ArtifactStore,
    keeper: Arc<Keeper>,
    keys: Arc<ArtifactKeys>,
}

/// A folder of notes that a session can access.
struct Place<'k> {
    holder: String,
    /// Key of the ids in this folder; `None` where ids may have been derived from other keys.
    key: Option<&'k ArtifactKey>,
    /// Upper bound in nanoseconds since the Unix epoch: artifacts that were stored later are not accessible.
    until: u64,
}

impl ArtifactStore {
    /// Returns the view of the session with this name and these keys. It includes artifacts that callers stored for a
    /// session of this name, unless the store is a temporary one, where names are not exclusive.
    pub fn for_session(&self, session: &str, keys: Arc<ArtifactKeys>) -> SessionArtifacts {
        let keeper =
            Keeper { key: keys.own.clone(), holder: keys.own.holder(), session: session.to_owned(), is_dataset: false };
        SessionArtifacts { store: self.clone(), keeper: Arc::new(keeper), keys }
    }

    /// Names an artifact as an agent's output. The name is the label, with a number appended if the holder uses it already.
    /// Returns `None` when the holder has the maximum number of names.
    fn label(&self, holder: &str, label: &str, id: &str) -> Result<Option<String>, ArtifactError> {
        let folder = self.agents().join(holder);
        let _lock = self.lock()?;
        let mut totals = self.take_held(holder)?;
        if totals.labels >= self.quota().session_count {
            self.remove_dangling()?;
            totals.labels = names_in(&folder)?.len();
        }
        if totals.labels >= self.quota().session_count {
            self.keep_held(holder, totals);
            return Ok(None);
        }
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let first: Option<Label> = read_json(&folder.join(key(label)));
        let mut name = label.to_owned();
        if let Some(first) = first {
            let mut number = first.next.unwrap_or(2);
            loop {
                name = format!("{label}-{number}");
                number = number.saturating_add(1);
                if !folder.join(key(&name)).exists() {
                    break;
                }
            }
            self.write_json(&folder, &key(label), &Label { next: Some(number), ..first })?;
        }
        self.write_json(&folder, &key(&name), &Label { label: name.clone(), id: id.to_owned(), next: None })?;
        totals.labels = totals.labels.saturating_add(1);
        self.keep_held(holder, totals);
        Ok(Some(name))
    }
}

impl SessionArtifacts {
    /// Returns the quota of the store.
    pub fn quota(&self) -> ArtifactQuota {
        self.store.quota()
    }

    /// Returns true if the store is a temporary one; see [`ArtifactStore::temporary`].
    pub fn is_temporary(&self) -> bool {
        self.store.is_temporary()
    }

    /// Begins an artifact whose bytes are written in pieces.
    ///
    /// # Errors
    /// `Io`.
    pub fn writer(&self) -> Result<ArtifactWriter, ArtifactError> {
        ArtifactWriter::new(self.store.clone(), Arc::clone(&self.keeper))
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

    /// Stores the output of an agent under `agent://<name>` in this session. Returns the name: the label, with a number
    /// appended if the session uses it already, or the artifact's id if the label is empty, or there is no room for a name.
    ///
    /// # Errors
    /// `TooLarge`, `Io`.
    pub fn put_agent(&self, label: &str, output: &str) -> Result<String, ArtifactError> {
        let title = format!("output of agent {label}");
        let artifact = self.put(output.as_bytes(), Description { mime_type: "text/plain", title: Some(&title) })?;
        let Some(label) = Some(word(label)).filter(|label| !label.is_empty()) else { return Ok(artifact.id) };
        let named = self.store.label(&self.keeper.holder, &label, &artifact.id)?;
        Ok(named.unwrap_or(artifact.id))
    }

    /// Returns the output of an agent of this session, by the name it was stored under or its id.
    ///
    /// # Errors
    /// `Unknown`, `Io`.
    pub fn agent(&self, name: &str) -> Result<Artifact, ArtifactError> {
        let name = name.strip_prefix(AGENT_SCHEME).unwrap_or(name);
        for place in self.places() {
            let label = read_json::<Label>(&self.store.agents().join(&place.holder).join(key(name)));
            if let Some(label) = label.filter(|label| is_id(&label.id))
                && let Some(artifact) = self.at(&place, &label.id)?
            {
                return Ok(artifact);
            }
        }
        let unknown = || ArtifactError::Unknown(format!("{AGENT_SCHEME}{name}"));
        if is_id(name) { self.get(name).map_err(|_| unknown()) } else { Err(unknown()) }
    }

    /// Returns an artifact by its URI or its whole id.
    ///
    /// # Errors
    /// `NotWhole`, `Unknown`, `Io`.
    pub fn get(&self, id: &str) -> Result<Artifact, ArtifactError> {
        let given = id.strip_prefix(ARTIFACT_SCHEME).unwrap_or(id).to_ascii_lowercase();
        if !is_id(&given) {
            return Err(ArtifactError::NotWhole(id.to_owned()));
        }
        let mut found = None;
        // All places, also after it was found, so that an answer takes as long wherever it comes from.
        for place in self.places() {
            let here = self.at(&place, &given)?;
            found = found.or(here);
        }
        if let Some(found) = found {
            return Ok(found);
        }
        self.fetch_back(&given)?.ok_or(ArtifactError::Unknown(given))
    }

    /// Restores an artifact from the remote, if the session has access to it.
    fn fetch_back(&self, id: &str) -> Result<Option<Artifact>, ArtifactError> {
        let Some(remote) = &self.store.inner.remote else { return Ok(None) };
        let place_of = |holder: &str| self.places().find(|place| place.holder == holder);
        let mut place = None;
        let is_reached = |found: &RemoteNote| {
            place = place_of(&found.holder).filter(|place| found.note.kept_at <= place.until);
            // Whoever writes into the remote does not make ids, where the key is known.
            let is_made = |key: &ArtifactKey| found.note.digest.as_deref().is_some_and(|digest| key.makes(id, digest));
            place.as_ref().is_some_and(|place| place.key.is_none_or(is_made))
        };
        if !self.store.restore(id, None, is_reached, remote)? {
            return Ok(None);
        }
        place.map_or(Ok(None), |place| self.at(&place, id))
    }

    /// Opens the bytes of an artifact, and records the use. A copy that is missing or damaged is restored from the remote,
    /// if there is one.
    ///
    /// # Errors
    /// As [`SessionArtifacts::get`]; `Damaged`, `Remote`.
    pub fn read(&self, id: &str) -> Result<File, ArtifactError> {
        let Artifact { id, digest, .. } = self.get(id)?;
        self.store.open_object(&id, digest.as_deref())
    }

    /// Waits until nothing is queued for the remote any more, or for so long, and says how much still is.
    ///
    /// # Errors
    /// `Io`.
    pub fn settle(&self, most: Duration) -> Result<usize, ArtifactError> {
        self.store.settle(most)
    }

    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let own = Place { holder: self.keeper.holder.clone(), key: Some(&self.keys.own), until: u64::MAX };
        let earlier = self.keys.earlier.iter().rev().map(|earlier| Place {
            holder: earlier.key.holder(),
            key: Some(&earlier.key),
            until: earlier.until,
        });
        let handed = || Place { holder: key(&self.keeper.session), key: None, until: u64::MAX };
        let handed = (!self.is_temporary()).then(handed);
        std::iter::once(own).chain(earlier).chain(handed)
    }

    /// An artifact that is noted in a place.
    fn at(&self, place: &Place<'_>, id: &str) -> Result<Option<Artifact>, ArtifactError> {
        let note = read_json::<Note>(&self.store.notes().join(&place.holder).join(id));
        let Some(note) = note.filter(|note| note.kept_at <= place.until) else { return Ok(None) };
        let path = self.store.objects().join(id);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, "look at")(error)),
        };
        Ok(Some(Artifact {
            id: id.to_owned(),
            size_bytes: found.len(),
            mime_type: note.mime_type,
            title: note.title,
            sessions: vec![note.session],
            labels: Vec::new(),
            used_at: found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            path,
            digest: note.digest,
        }))
    }
}
