//! Grants of packages to sessions: folders of links to several packages.
//!
//! Such a folder is a set, named after the packages in it. The mapping from names to sets is recorded, so that a session
//! opens without reading the lock file. A process that changes the lock file recreates those sets, so that a server with
//! read-only access to the store finds them.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use cellar_core::files::{Durability, PRIVATE, replace_with};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    PackageError, PackageStore,
    lock::Lock,
    names::{Registry, Wanted},
    tree,
};

/// Maximum size of a record of names or sets, in bytes.
const RECORD_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of records, each of a combination of names.
const RECORDS_MAX: usize = 10_000;

/// Folders of the packages that a session is granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// Python packages, for `sys.path`.
    pub python: Option<PathBuf>,
    /// npm packages, for `/node_modules`.
    pub npm: Option<PathBuf>,
}

/// Record of the sets that a combination of names leads to.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    names: BTreeSet<String>,
    /// Fingerprint of the lock file.
    lock: String,
    python: Option<String>,
    npm: Option<String>,
}

/// A package in a set: its path there, and the hash of its archive.
type Part = (String, String);

impl PackageStore {
    /// The folders of the packages that a session is granted by name, with all that they need.
    ///
    /// # Errors
    /// `Unknown`, `Missing`, `Lock`, `Store`.
    pub fn granted(&self, wanted: &[Wanted]) -> Result<Granted, PackageError> {
        if wanted.is_empty() {
            return Ok(Granted::default());
        }
        let names: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
        let (path, looks) = (self.record_path(&names), self.lock_looks());
        let known: Option<Record> = read(&path).filter(|record: &Record| record.lock == looks && record.names == names);
        if let Some(granted) = known.and_then(|record| self.folders(&record)) {
            return Ok(granted);
        }
        let lock = Lock::read(&self.lock_path())?;
        let record = self.make_record(&lock, wanted, looks)?;
        // Whoever may only read the store reads the lock file each time.
        let _ = write(&path, &record);
        Ok(self.folders(&record).unwrap_or_default())
    }

    /// Makes anew the sets of all names that sessions were granted.
    pub(crate) fn renew_grants(&self, lock: &Lock) -> Result<(), PackageError> {
        let folder = self.folder.join("grants");
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
        let looks = self.lock_looks();
        let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        for (number, path) in paths.into_iter().enumerate() {
            let wanted = read(&path).filter(|_| number < RECORDS_MAX).and_then(|record: Record| {
                record.names.iter().map(|name| Wanted::parse(name).ok()).collect::<Option<Vec<_>>>()
            });
            let renewed = wanted.map(|wanted| self.make_record(lock, &wanted, looks.clone()));
            match renewed {
                Some(Ok(record)) => write(&path, &record).map_err(PackageError::store(&path))?,
                Some(Err(error @ PackageError::Store { .. })) => return Err(error),
                // Some of it is gone.
                Some(Err(_)) | None => fs::remove_file(&path).map_err(PackageError::store(&path))?,
            }
        }
        Ok(())
    }

    /// Removes the sets that have a part which is not kept.
    pub(crate) fn sweep_sets(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), PackageError> {
        let sets = self.folder.join("sets");
        let Ok(entries) = fs::read_dir(&sets) else { return Ok(()) };
        for entry in entries {
            let path = entry.map_err(PackageError::store(&sets))?.path();
            let parts: Option<Vec<Part>> = read(&parts_path(&path));
            if path.is_dir() && !parts.is_some_and(|parts| parts.iter().all(|(_, hash)| is_kept(hash))) {
                let removed = tree::remove(&path).and_then(|()| match fs::remove_file(parts_path(&path)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                });
                removed.map_err(PackageError::store(&path))?;
            }
        }
        Ok(())
    }

    fn record_path(&self, names: &BTreeSet<String>) -> PathBuf {
        let mut digest = Sha256::new();
        names.iter().for_each(|name| digest.update(format!("{name}\0")));
        self.folder.join("grants").join(tree::hex(&digest.finalize()))
    }

    /// Returns a fingerprint of the lock file, which changes with its content: inode, size and modification time. Empty if
    /// there is no lock file.
    fn lock_looks(&self) -> String {
        let looks = |it: fs::Metadata| format!("{} {} {}.{}", it.ino(), it.size(), it.mtime(), it.mtime_nsec());
        fs::metadata(self.lock_path()).map(looks).unwrap_or_default()
    }

    fn folders(&self, record: &Record) -> Option<Granted> {
        let folder = |set: &Option<String>| match set {
            None => Some(None),
            Some(set) => Some(self.folder.join("sets").join(set)).filter(|path| path.is_dir()).map(Some),
        };
        Some(Granted { python: folder(&record.python)?, npm: folder(&record.npm)? })
    }

    fn make_record(&self, lock: &Lock, wanted: &[Wanted], looks: String) -> Result<Record, PackageError> {
        let mut npm = BTreeSet::new();
        for wanted in wanted {
            let is_there = match wanted.registry {
                Registry::Python => lock.python.contains_key(&wanted.name),
                Registry::Npm => {
                    lock.npm_closure(&wanted.name, &mut npm);
                    lock.npm_place("", &wanted.name).is_some()
                }
            };
            if !is_there {
                return Err(self.unknown(wanted));
            }
        }
        let python = wanted.iter().filter(|wanted| wanted.registry == Registry::Python);
        let python = lock.python_closure(python.map(|wanted| wanted.name.as_str()));
        let python = python.iter().filter_map(|name| Some((String::new(), lock.python.get(*name)?.sha256.clone())));
        let npm = npm.iter().filter_map(|place| {
            let entry = lock.npm.places.get(*place)?;
            Some((place.strip_prefix("node_modules/").unwrap_or(place).to_owned(), entry.sha512.clone()))
        });
        Ok(Record {
            names: wanted.iter().map(ToString::to_string).collect(),
            lock: looks,
            python: self.set(Registry::Python, &python.collect::<Vec<_>>())?,
            npm: self.set(Registry::Npm, &npm.collect::<Vec<_>>())?,
        })
    }

    /// Returns the name of the set with these parts, and creates the set if it does not exist; `None` if there are no
    /// parts.
    fn set(&self, registry: Registry, parts: &[Part]) -> Result<Option<String>, PackageError> {
        if parts.is_empty() {
            return Ok(None);
        }
        let mut digest = Sha256::new();
        for (place, hash) in parts {
            digest.update(format!("{place}\0{hash}\0"));
        }
        let name = tree::hex(&digest.finalize());
        let sets = self.folder.join("sets");
        let set = sets.join(&name);
        if set.is_dir() {
            return Ok(Some(name));
        }
        if parts.iter().any(|(_, hash)| !self.kept(registry, hash).is_dir()) {
            return Err(PackageError::Missing { folder: self.folder.clone() });
        }
        let make = || {
            fs::create_dir_all(&sets)?;
            let made = tempfile::Builder::new().prefix(".made-").tempdir_in(&sets)?;
            for (place, hash) in parts {
                tree::link(&self.kept(registry, hash), &made.path().join(place))?;
            }
            write(&parts_path(&set), &parts)?;
            match fs::rename(made.path(), &set) {
                // Somebody else made it meanwhile.
                Err(_) if set.is_dir() => return Ok(()),
                renamed => renamed?,
            }
            // It has another name now.
            let _ = made.keep();
            tree::seal(&set, true)
        };
        make().map_err(PackageError::store(&set))?;
        Ok(Some(name))
    }
}

/// Returns the path of the record of a set's packages.
fn parts_path(set: &Path) -> PathBuf {
    set.with_extension("json")
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let is_bounded = fs::metadata(path).ok()?.len() <= RECORD_BYTES_MAX;
    is_bounded.then(|| serde_json::from_slice(&fs::read(path).ok()?).ok()).flatten()
}

fn write(path: &Path, value: &impl Serialize) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    replace_with(path, &serde_json::to_vec(value)?, PRIVATE, Durability::Cached)
}
