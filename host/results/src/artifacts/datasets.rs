//! Datasets: tables that were published under a name, version by version.
//!
//! A dataset is a folder of the store with a file for each version, which never changes. The rows of a version are an
//! artifact that the dataset holds: it is not evicted while a version refers to it. Versions are numbered under the lock of
//! the store, so that concurrent publishers, in whatever process, get distinct numbers. Stores that share a remote number
//! their versions independently. Versions of other stores arrive with [`ArtifactStore::pull`], or when a name or a version
//! is requested that is not known locally; such a version gets the next local number if its own is taken.

use std::{
    collections::HashSet,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use cellar_core::{origin::Origin, time::wall_nanos};
use cellar_tables::{PARQUET_TYPE, TableError, shape};
use serde::{Deserialize, Serialize};

use super::{
    Artifact, ArtifactError, ArtifactStore, ArtifactWriter, Description, Note, failed, is_id, key, make_folder,
    names_in, open_file, queue::entry_of, remote::remote_failed, remove_file, word, writer::Keeper,
};

/// Maximum length of a dataset's name in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Maximum number of datasets of a store.
const DATASETS_MAX: usize = 10_000;
/// Maximum number of versions of a dataset; the oldest are removed first.
pub const VERSIONS_MAX: usize = 1_000;
/// Maximum number of columns in the description of a version.
const COLUMNS_MAX: usize = 500;
/// Maximum size of a version's file in bytes.
const VERSION_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of similar names in the error for an unknown name.
const NEAR_MAX: usize = 5;

/// A version of a dataset. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DatasetVersion {
    /// The live name of the dataset.
    pub name: String,
    /// Number of the version, from 1.
    pub version: u64,
    /// The artifact with its rows, a Parquet file.
    pub artifact: String,
    /// Bytes of that file.
    pub size_bytes: u64,
    /// Number of rows.
    pub rows: u64,
    /// First columns, each with its type in Arrow's notation.
    pub columns: Vec<(String, String)>,
    /// Number of columns.
    pub column_count: u64,
    /// Name of the publisher.
    pub publisher: String,
    /// Time of publication, in nanoseconds since the Unix epoch.
    pub published_at: u64,
    /// Origin of the rows, as far as it is known.
    pub origin: Option<Origin>,
    /// SHA-256 of the file, in hexadecimal digits, where that was noted.
    #[serde(default)]
    pub digest: Option<String>,
}

/// Description of a version that is to be published.
#[derive(Clone, Debug, Default)]
pub struct Publication {
    /// Name of the publisher.
    pub publisher: String,
    /// Origin of the rows.
    pub origin: Option<Origin>,
    /// Number of latest versions to retain, including this one; [`VERSIONS_MAX`] when absent.
    pub keep: Option<usize>,
}

/// Error of an operation on datasets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum DatasetError {
    /// The name is not a valid name of a dataset.
    #[error(
        "`{0}` cannot name a dataset: a name has 1 to {NAME_BYTES_MAX} small letters, digits, `_` and `-`, and begins with a letter or a digit"
    )]
    Name(String),
    /// There is no such dataset.
    #[error("no dataset `{name}` is published{}", did_you_mean(near))]
    Unknown { name: String, near: Vec<String> },
    /// The name is ambiguous.
    #[error("no dataset is called `{name}`, which may stand for any of {}", listed(near))]
    Ambiguous { name: String, near: Vec<String> },
    /// The dataset has no such version, or no longer has it.
    #[error("dataset `{name}` has no version {version}; its latest is {latest}")]
    NoVersion { name: String, version: u64, latest: u64 },
    /// The caller of the run has not read the dataset, which was published elsewhere.
    #[error(
        "dataset `{name}` was published elsewhere, and whoever made this run has not seen it: read it first, and say so with the run (`seen`: `dataset`, `{name}`)"
    )]
    Unseen { name: String },
    /// The store has the maximum number of datasets.
    #[error("{DATASETS_MAX} datasets are published, and no more can be")]
    TooMany,
    /// The given file is not a Parquet file.
    #[error("that cannot be published as a dataset, which is a Parquet file")]
    NotATable(#[source] TableError),
    /// The store failed or refused the operation.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl DatasetError {
    /// Returns the stable code of the error, for clients to match on.
    pub fn code(&self) -> &'static str {
        match self {
            DatasetError::Name(_) => "dataset-name",
            DatasetError::Unknown { .. } => "dataset-unknown",
            DatasetError::Ambiguous { .. } => "dataset-ambiguous",
            DatasetError::NoVersion { .. } => "dataset-version",
            DatasetError::Unseen { .. } => "dataset-unseen",
            DatasetError::TooMany => "datasets-full",
            DatasetError::NotATable(_) => "dataset-table",
            DatasetError::Artifact(error) => error.code(),
        }
    }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn did_you_mean(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", listed(names)) }
}

/// Handle of the datasets of a store. Cloning is cheap. Every method blocks on the disk.
#[derive(Clone, Debug)]
pub struct Datasets {
    store: ArtifactStore,
}

/// Writer of a version's rows, a Parquet file in pieces. Dropped before publication, it leaves nothing.
#[derive(Debug)]
pub struct DatasetWriter {
    name: String,
    datasets: Datasets,
    writer: ArtifactWriter,
}

impl ArtifactStore {
    /// Returns the datasets of the store.
    pub fn datasets(&self) -> Datasets {
        Datasets { store: self.clone() }
    }
}

impl Datasets {
    /// Begins a version of a dataset, which is created with its first version.
    ///
    /// # Errors
    /// `Name`, `TooMany`, `Artifact`.
    pub fn writer(&self, name: &str) -> Result<DatasetWriter, DatasetError> {
        check_name(name)?;
        let folder = self.folder(name);
        if !folder.exists() && names_in(&self.root())?.len() >= DATASETS_MAX {
            return Err(DatasetError::TooMany);
        }
        let session = holder_name(name);
        let key_of = self.store.inner.key.of_session(&session);
        let keeper = Keeper { key: key_of, holder: key(&session), session, is_dataset: true };
        let writer = ArtifactWriter::new(self.store.clone(), Arc::new(keeper))?;
        Ok(DatasetWriter { name: name.to_owned(), datasets: self.clone(), writer })
    }

    /// Returns the latest version of every dataset, by name.
    ///
    /// # Errors
    /// `Artifact`.
    pub fn list(&self) -> Result<Vec<DatasetVersion>, DatasetError> {
        let mut latest = Vec::new();
        for name in self.names()? {
            // One whose last version goes meanwhile is not there.
            latest.extend(self.log(&name)?.pop());
        }
        Ok(latest)
    }

    /// Returns the versions of a dataset, the oldest first.
    ///
    /// # Errors
    /// `Name`, `Unknown`, `Ambiguous`, `Artifact`.
    pub fn versions(&self, name: &str) -> Result<Vec<DatasetVersion>, DatasetError> {
        if check_name(name).is_err() {
            return Err(self.unknown(name)?);
        }
        let mut versions = self.log(name)?;
        if versions.is_empty() && self.pull(name)? > 0 {
            versions = self.log(name)?;
        }
        if versions.is_empty() { Err(self.unknown(name)?) } else { Ok(versions) }
    }

    /// Returns a version of a dataset: the given one, or the latest.
    ///
    /// # Errors
    /// As [`Datasets::versions`], and `NoVersion`.
    pub fn get(&self, name: &str, version: Option<u64>) -> Result<DatasetVersion, DatasetError> {
        let mut versions = self.versions(name)?;
        let is_newer = |versions: &[DatasetVersion]| versions.last().map(|last| last.version) < version;
        if is_newer(&versions) && self.pull(name)? > 0 {
            versions = self.versions(name)?;
        }
        let latest = versions.last().map_or(0, |latest| latest.version);
        let wanted = version.unwrap_or(latest);
        let place = versions.iter().position(|each| each.version == wanted);
        let place = place.ok_or(DatasetError::NoVersion { name: name.to_owned(), version: wanted, latest })?;
        Ok(versions.swap_remove(place))
    }

    /// Opens the rows of a version, a Parquet file: the given version, or the latest. Rows that are missing or damaged are
    /// restored from the remote, if there is one.
    ///
    /// # Errors
    /// As [`Datasets::get`]; `Artifact`.
    pub fn open(&self, name: &str, version: Option<u64>) -> Result<(DatasetVersion, File), DatasetError> {
        let found = self.get(name, version)?;
        let file = self.store.open_object(&found.artifact, found.digest.as_deref())?;
        Ok((found, file))
    }

    /// Removes a dataset with all of its versions. Other holders keep their artifacts.
    ///
    /// # Errors
    /// As [`Datasets::versions`].
    pub fn remove(&self, name: &str) -> Result<Vec<DatasetVersion>, DatasetError> {
        self.versions(name)?;
        // What is not known here would come back.
        self.pull(name)?;
        let _lock = self.store.lock()?;
        let versions = self.log(name)?;
        let folder = self.folder(name);
        for version in &versions {
            remove_file(&folder.join(version.version.to_string()))?;
            self.store.forget_version_later(version)?;
        }
        for version in &versions {
            self.let_go(name, &version.artifact)?;
        }
        // Only goes when nothing is in it.
        let _ = std::fs::remove_dir(&folder);
        Ok(versions)
    }

    pub(super) fn names(&self) -> Result<Vec<String>, DatasetError> {
        let mut names = names_in(&self.root())?;
        names.retain(|name| check_name(name).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the local versions, the oldest first.
    pub(super) fn log(&self, name: &str) -> Result<Vec<DatasetVersion>, DatasetError> {
        let numbers = self.numbers(name)?;
        Ok(numbers.into_iter().filter_map(|number| self.version_here(name, number)).collect())
    }

    fn numbers(&self, name: &str) -> Result<Vec<u64>, DatasetError> {
        let mut numbers: Vec<u64> = names_in(&self.folder(name))?.iter().filter_map(|file| file.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns a version, if it is known locally.
    pub(super) fn version_here(&self, name: &str, number: u64) -> Option<DatasetVersion> {
        read_version(&self.folder(name).join(number.to_string()))
    }

    /// Imports the versions that other stores with the same remote published under a name. Returns the number of versions
    /// that are new here.
    ///
    /// # Errors
    /// `Artifact`.
    pub(super) fn pull(&self, name: &str) -> Result<usize, DatasetError> {
        let Some(remote) = &self.store.inner.remote else { return Ok(0) };
        let prefix = format!("datasets/{name}/");
        let listed = remote.place.list(&prefix).map_err(remote_failed("list what is in"))?;
        let mut keys: Vec<String> = listed.unwrap_or_default();
        // By the time of publication, with which they begin.
        keys.sort_unstable();
        keys.dedup();
        let surplus = keys.len().saturating_sub(VERSIONS_MAX);
        keys.drain(..surplus);
        let known: HashSet<String> = self.log(name)?.iter().map(version_key).collect();
        let mut taken = 0_usize;
        for key in keys {
            if known.contains(&key) || self.store.is_forgotten(&entry_of(&key)) {
                continue;
            }
            let found: Option<DatasetVersion> = self.store.remote_json(&key, VERSION_BYTES_MAX, remote)?;
            // The remote may have been given anything.
            let is_it = |found: &DatasetVersion| {
                found.name == name && is_id(&found.artifact) && found.version > 0 && version_key(found) == key
            };
            if let Some(found) = found.filter(is_it)
                && self.take_over(found)?
            {
                taken = taken.saturating_add(1);
            }
        }
        Ok(taken)
    }

    /// Imports a version from another store, without its rows, which are fetched on demand. Returns false if it is known
    /// already or there are too many versions.
    fn take_over(&self, version: DatasetVersion) -> Result<bool, DatasetError> {
        let name = version.name.clone();
        let folder = self.folder(&name);
        let _lock = self.store.lock()?;
        if !folder.exists() && names_in(&self.root())?.len() >= DATASETS_MAX {
            return Err(DatasetError::TooMany);
        }
        let numbers = self.numbers(&name)?;
        let is_here = self.log(&name)?.iter().any(|here| version_key(here) == version_key(&version));
        if is_here || numbers.len() >= VERSIONS_MAX {
            return Ok(false);
        }
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let next = numbers.last().copied().unwrap_or_default().saturating_add(1);
        let number = if numbers.contains(&version.version) { next } else { version.version };
        self.store.write_json(&folder, &number.to_string(), &DatasetVersion { version: number, ..version })?;
        Ok(true)
    }

    /// Adds a version. The rows are stored.
    fn add(&self, version: DatasetVersion, artifact: &Artifact, keep: usize) -> Result<DatasetVersion, DatasetError> {
        let name = version.name.clone();
        let folder = self.folder(&name);
        let _lock = self.store.lock()?;
        if !artifact.path.exists() {
            // Somebody removed them between the two.
            return Err(ArtifactError::Unknown(artifact.id.clone()).into());
        }
        make_folder(&folder).map_err(failed(&folder, "make"))?;
        let known = self.log(&name)?;
        // One that cannot be read has its number all the same.
        let number = self.numbers(&name)?.last().copied().unwrap_or_default().saturating_add(1);
        let version = DatasetVersion { version: number, ..version };
        // A version that went meanwhile may have had the same rows, and taken the note along.
        let notes = self.store.notes().join(key(&holder_name(&name)));
        make_folder(&notes).map_err(failed(&notes, "make"))?;
        self.store.write_json(&notes, &artifact.id, &note(&name, artifact))?;
        self.store.send_version_later(&version)?;
        self.store.write_json(&folder, &number.to_string(), &version)?;
        let excess = known.len().saturating_add(1).saturating_sub(keep.clamp(1, VERSIONS_MAX));
        for old in known.iter().take(excess) {
            remove_file(&folder.join(old.version.to_string()))?;
            self.store.forget_version_later(old)?;
            self.let_go(&name, &old.artifact)?;
        }
        Ok(version)
    }

    /// Releases an artifact, unless a version refers to it. The caller holds the store's lock.
    fn let_go(&self, name: &str, artifact: &str) -> Result<(), DatasetError> {
        if self.log(name)?.iter().any(|version| version.artifact == artifact) {
            return Ok(());
        }
        self.store.forget_totals()?;
        self.store.forget_later(artifact)?;
        Ok(remove_file(&self.store.notes().join(key(&holder_name(name))).join(artifact))?)
    }

    /// Returns the error for an unknown name, with the names that are similar to it. Fails if the names cannot be listed.
    fn unknown(&self, name: &str) -> Result<DatasetError, DatasetError> {
        let names = self.names()?;
        let plain = plain(name);
        let (name, starts): (_, Vec<String>) =
            (word(name), names.iter().filter(|known| self::plain(known).starts_with(&plain)).cloned().collect());
        if starts.len() > 1 && !plain.is_empty() {
            let near = starts.into_iter().take(NEAR_MAX).collect();
            return Ok(DatasetError::Ambiguous { name, near });
        }
        let mut near: Vec<(usize, &String)> = names
            .iter()
            .filter(|known| known.len().abs_diff(name.len()) <= 3)
            .map(|known| (strsim::levenshtein(&self::plain(known), &plain), known))
            .filter(|(distance, _)| *distance <= 3)
            .collect();
        near.sort();
        let near = starts.iter().chain(near.into_iter().map(|(_, known)| known));
        let mut found: Vec<String> = Vec::new();
        for each in near {
            if !found.contains(each) && found.len() < NEAR_MAX {
                found.push(each.clone());
            }
        }
        Ok(DatasetError::Unknown { name, near: found })
    }

    fn root(&self) -> PathBuf {
        self.store.folder().join("datasets")
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }
}

impl DatasetWriter {
    /// Adds bytes of the file.
    ///
    /// # Errors
    /// `Artifact`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DatasetError> {
        Ok(self.writer.write(bytes)?)
    }

    /// Publishes nothing; the name of the dataset, and the number that the version would have got.
    ///
    /// # Errors
    /// `Artifact`.
    pub fn forgo(self) -> Result<(String, u64), DatasetError> {
        let latest = self.datasets.numbers(&self.name)?.last().copied().unwrap_or_default();
        Ok((self.name, latest.saturating_add(1)))
    }

    /// Publishes the written bytes as the next version. Once this returns, the version survives crashes of the process and
    /// the machine, unless the store is a temporary one.
    ///
    /// # Errors
    /// `NotATable`, `Artifact`; then nothing is published.
    pub fn publish(self, publication: Publication) -> Result<DatasetVersion, DatasetError> {
        let DatasetWriter { name, datasets, writer } = self;
        let shape = shape(writer.written()?).map_err(DatasetError::NotATable)?;
        let title = format!("dataset {name}");
        let artifact = writer.finish(Description { mime_type: PARQUET_TYPE, title: Some(&title) })?;
        let Publication { publisher, origin, keep } = publication;
        let version = DatasetVersion {
            name,
            version: 0,
            artifact: artifact.id.clone(),
            size_bytes: artifact.size_bytes,
            rows: shape.rows,
            column_count: u64::try_from(shape.columns.len()).unwrap_or(u64::MAX),
            columns: shape
                .columns
                .into_iter()
                .take(COLUMNS_MAX)
                .map(|(name, kind)| (short(&name), short(&kind)))
                .collect(),
            publisher: short(&publisher),
            published_at: wall_nanos(),
            origin,
            digest: artifact.digest.clone(),
        };
        datasets.add(version, &artifact, keep.unwrap_or(VERSIONS_MAX))
    }
}

/// Reads a version from a file. Returns `None` if the file is missing or invalid.
fn read_version(path: &Path) -> Option<DatasetVersion> {
    let mut bytes = Vec::new();
    open_file(path).ok()?.take(VERSION_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Truncates a text so that a version's file stays small enough to be read back.
fn short(text: &str) -> String {
    cellar_core::text::prefix(text, 100).to_owned()
}

fn note(name: &str, artifact: &Artifact) -> Note {
    Note {
        session: holder_name(name),
        mime_type: artifact.mime_type.clone(),
        title: artifact.title.clone(),
        kept_at: wall_nanos(),
        is_dataset: true,
        digest: artifact.digest.clone(),
    }
}

/// Returns the key of a version in the remote store. It does not depend on the version's local number.
pub(super) fn version_key(version: &DatasetVersion) -> String {
    let DatasetVersion { name, published_at, artifact, .. } = version;
    format!("datasets/{name}/{published_at:020}-{artifact}")
}

/// Returns the session name under which the artifacts of a dataset are held.
fn holder_name(name: &str) -> String {
    format!("dataset:{name}")
}

/// Checks that a text is a valid name of a dataset.
///
/// # Errors
/// `Name`.
pub fn check_name(name: &str) -> Result<(), DatasetError> {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().next().is_some_and(is_word)
        && name.bytes().all(|byte| is_word(byte) || byte == b'_' || byte == b'-');
    if is_name { Ok(()) } else { Err(DatasetError::Name(word(name))) }
}

/// Normalizes a name for comparison: letters and digits only, in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests;
