//! Packages that cells import: locked, fetched, checked, and kept once.
//!
//! A [`PackageStore`] is a folder. Its owner adds packages to it: [`PackageStore::fetch`] has pip or npm resolve what is wanted
//! and fetch the archives, and unpacks them; whoever called compiles what is Python ([`Fetched::uncompiled`]), in a
//! sandbox; [`PackageStore::keep`] then puts each into its place, which the hash of its archive names, and writes the lock file.
//! A session is granted packages by name: [`PackageStore::granted`] makes a folder of them and of all that they need.
//!
//! ```text
//! packages.lock            which version of what, by hashes
//! python/HASH, npm/HASH    the files of one package, which nobody changes
//! sets/HASH                the files of several ones together, as a session sees them: links; beside it, which ones
//! grants/HASH              which sets some names lead to
//! ```
//!
//! Nothing of a package is run: only wheels are taken, scripts of npm packages are not run, and archives are taken for what
//! strangers write. All functions block, but for `fetch`.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod archive;
mod built_in;
mod client;
mod error;
mod grants;
mod lock;
mod metadata;
mod names;
mod npm;
mod python;
mod tree;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
};

use crate::lock::Lock;
pub use crate::{
    built_in::BuiltIn,
    error::PackageError,
    grants::Granted,
    lock::Listed,
    names::{Registry, Source, Wanted},
};

/// Packages in a lock file, of each registry.
pub(crate) const LOCKED_MAX: usize = 2_000;

/// The packages of one user.
#[derive(Debug, Clone)]
pub struct PackageStore {
    folder: PathBuf,
}

/// Packages that were fetched and unpacked, and are not in the store yet. Dropping them removes them.
#[derive(Debug)]
pub struct Fetched {
    /// Folder with the unpacked packages, each in a folder of its own. It lies in the folder of the store.
    place: tempfile::TempDir,
    /// Packages of each registry that will be locked; absent if the registry was not processed.
    python: Option<Vec<python::Unpacked>>,
    npm: Option<npm::Unpacked>,
    /// Packages of a guest that the Python packages need besides.
    needed: Vec<BuiltIn>,
    /// Lock that keeps other processes from changing the lock file.
    _held: File,
    lock: Lock,
}

impl Fetched {
    /// Returns the folder with new Python packages, if there are any.
    pub fn uncompiled(&self) -> Option<PathBuf> {
        let has_new = self.python.iter().flatten().any(python::Unpacked::is_new);
        has_new.then(|| self.place.path().join(python::UNPACKED))
    }

    /// Returns the packages of a guest that what was fetched needs besides.
    pub fn needed(&self) -> &[BuiltIn] {
        &self.needed
    }
}

/// Result of adding a package.
#[derive(Debug, Clone, PartialEq)]
pub struct Added {
    /// The package.
    pub package: Listed,
    /// Version that was replaced.
    pub before: Option<String>,
}

impl PackageStore {
    /// The store in a folder, which is made when something is added.
    pub fn new(folder: impl Into<PathBuf>) -> PackageStore {
        PackageStore { folder: folder.into() }
    }

    /// Returns the folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn lock_path(&self) -> PathBuf {
        self.folder.join("packages.lock")
    }

    fn kept(&self, registry: Registry, hash: &str) -> PathBuf {
        let kind = match registry {
            Registry::Python => "python",
            Registry::Npm => "npm",
        };
        self.folder.join(kind).join(hash)
    }

    /// Acquires the lock on the lock file, and waits for other processes.
    fn hold(&self) -> Result<File, PackageError> {
        let path = self.folder.join(".held");
        let hold = || {
            fs::create_dir_all(&self.folder)?;
            let file = File::create(&path)?;
            file.lock()?;
            Ok(file)
        };
        hold().map_err(PackageError::store(&path))
    }

    /// Returns the packages of the store, in order of their names.
    ///
    /// # Errors
    /// `Lock`, `Store`.
    pub fn list(&self) -> Result<Vec<Listed>, PackageError> {
        Ok(Lock::read(&self.lock_path())?.list())
    }

    /// Resolves the wanted packages together with those of the store, fetches the missing ones, checks and unpacks them.
    /// Packages that were requested before keep their versions unless they are wanted.
    ///
    /// # Errors
    /// `Unresolved`, `Native`, `Outdated`, `Archive`, `Client`, `Lock`, `Store`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the store as it was.
    pub async fn fetch(&self, wanted: &[Wanted], built_in: &[BuiltIn]) -> Result<Fetched, PackageError> {
        let mut fetched = self.begin()?;
        let of = |registry| wanted.iter().filter(|wanted| wanted.registry == registry).cloned().collect();
        let (python, npm): (Vec<Wanted>, Vec<Wanted>) = (of(Registry::Python), of(Registry::Npm));
        let place = fetched.place.path();
        if !python.is_empty() {
            let (unpacked, needed) = python::fetch(self, &fetched.lock, place, &python, built_in).await?;
            (fetched.python, fetched.needed) = (Some(unpacked), needed);
        }
        if !npm.is_empty() {
            fetched.npm = Some(npm::fetch(self, &fetched.lock, place, &npm).await?);
        }
        Ok(fetched)
    }

    /// Fetches the locked packages that are missing or were changed, in their versions, and checks their hashes.
    ///
    /// # Errors
    /// As [`PackageStore::fetch`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the store as it was.
    pub async fn fetch_locked(&self) -> Result<Fetched, PackageError> {
        let mut fetched = self.begin()?;
        let place = fetched.place.path();
        fetched.python = Some(python::fetch_locked(self, &fetched.lock, place).await?);
        fetched.npm = Some(npm::fetch_locked(self, &fetched.lock, place).await?);
        Ok(fetched)
    }

    fn begin(&self) -> Result<Fetched, PackageError> {
        let held = self.hold()?;
        let lock = Lock::read(&self.lock_path())?;
        let place = tempfile::Builder::new().prefix(".fetched-").tempdir_in(&self.folder);
        let place = place.map_err(PackageError::store(&self.folder))?;
        Ok(Fetched { place, python: None, npm: None, needed: Vec::new(), _held: held, lock })
    }

    /// Moves the fetched (and compiled) packages into the store, and writes the lock file.
    ///
    /// # Errors
    /// `Store`.
    pub fn keep(&self, fetched: Fetched) -> Result<Vec<Added>, PackageError> {
        let Fetched { place: _place, python, npm, needed: _, mut lock, _held } = fetched;
        let before = lock.list();
        if let Some(python) = python {
            python::keep(self, &mut lock, python)?;
        }
        if let Some(npm) = npm {
            npm::keep(self, &mut lock, npm)?;
        }
        lock.write(&self.lock_path())?;
        self.renew_grants(&lock)?;
        let version_of =
            |name: &str| before.iter().find(|listed| listed.name == name).map(|listed| listed.version.clone());
        let added = lock.list().into_iter().filter(|listed| !before.contains(listed));
        Ok(added.map(|package| Added { before: version_of(&package.name), package }).collect())
    }

    /// Returns true if the files of a package match the hash in the lock file.
    pub(crate) fn is_whole(&self, registry: Registry, hash: &str, files: &str) -> bool {
        tree::hash(&self.kept(registry, hash)).is_ok_and(|found| found == files)
    }

    /// Moves an unpacked package to the path of its archive's hash, replaces an existing one, and returns the hash of its
    /// files.
    pub(crate) fn put(&self, registry: Registry, hash: &str, from: &Path) -> Result<String, PackageError> {
        let kept = self.kept(registry, hash);
        self.sweep_sets(|part| part != hash)?;
        let put = || {
            tree::remove(&kept)?;
            fs::create_dir_all(kept.parent().unwrap_or(&self.folder))?;
            fs::rename(from, &kept)?;
            tree::seal(&kept, true)?;
            tree::hash(&kept)
        };
        put().map_err(PackageError::store(&kept))
    }

    /// Removes packages, together with dependencies that no other package needs, and returns the names of all removed
    /// packages. Sessions that were granted one of them lose it.
    ///
    /// # Errors
    /// `Unknown`, `Lock`, `Store`.
    pub fn remove(&self, names: &[Wanted]) -> Result<Vec<String>, PackageError> {
        let _held = self.hold()?;
        let mut lock = Lock::read(&self.lock_path())?;
        let before = lock.list();
        for name in names {
            let is_known = match name.registry {
                Registry::Python => lock.python.get_mut(&name.name).is_some_and(|entry| entry.asked.take().is_some()),
                Registry::Npm => lock.npm.asked.remove(&name.name).is_some(),
            };
            if !is_known {
                return Err(self.unknown(name));
            }
        }
        lock.forget_unneeded();
        lock.write(&self.lock_path())?;
        self.renew_grants(&lock)?;
        self.sweep(&lock)?;
        let after = lock.list();
        let gone = before.into_iter().filter(|listed| !after.iter().any(|left| left.name == listed.name));
        Ok(gone.map(|listed| listed.name).collect())
    }

    /// Removes files that are not in the lock file, and sets that contain some of them.
    fn sweep(&self, lock: &Lock) -> Result<(), PackageError> {
        let python: BTreeSet<&str> = lock.python.values().map(|entry| entry.sha256.as_str()).collect();
        let npm: BTreeSet<&str> = lock.npm.places.values().map(|entry| entry.sha512.as_str()).collect();
        self.sweep_sets(|part| python.contains(part) || npm.contains(part))?;
        for (registry, known) in [(Registry::Python, python), (Registry::Npm, npm)] {
            let folder = self.kept(registry, "");
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let entry = entry.map_err(PackageError::store(&folder))?;
                if !entry.file_name().to_str().is_some_and(|name| known.contains(name)) {
                    tree::remove(&entry.path()).map_err(PackageError::store(entry.path()))?;
                }
            }
        }
        Ok(())
    }

    /// Compares the store with the lock file, and returns the names of packages that are missing or were changed.
    ///
    /// # Errors
    /// `Lock`, `Store`.
    pub fn verify(&self) -> Result<Vec<String>, PackageError> {
        let lock = Lock::read(&self.lock_path())?;
        let python =
            lock.python.iter().filter(|(_, entry)| !self.is_whole(Registry::Python, &entry.sha256, &entry.files));
        let npm =
            lock.npm.places.iter().filter(|(_, entry)| !self.is_whole(Registry::Npm, &entry.sha512, &entry.files));
        let npm = npm.map(|(place, _)| names::written(Registry::Npm, &lock::shown_place(place)));
        Ok(python.map(|(name, _)| name.clone()).chain(npm).collect())
    }

    fn unknown(&self, wanted: &Wanted) -> PackageError {
        PackageError::Unknown { name: wanted.to_string(), folder: self.folder.clone() }
    }
}
