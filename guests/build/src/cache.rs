//! The builder's cache: everything that was fetched or made, each thing under the digest of what it was made from.
//!
//! It lies outside the checkout, at `$CELLAR_CACHE` or `~/.cache/cellar`. A thing is either complete under its final
//! name or absent: it is made beside that name and renamed into place. Two builders may share the cache; a lock file
//! for each thing makes the second wait for the first.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::inputs::Inputs;
use crate::progress::{self, Progress};

/// The folder that holds all products.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

/// Folders in which one product is being made.
#[derive(Debug)]
pub(crate) struct Bench {
    /// Folder that becomes the product in the cache.
    pub(crate) out: PathBuf,
    /// Scratch space, gone when the product is complete. Survives an interrupted build, so that the next one goes on.
    pub(crate) work: PathBuf,
    /// Progress of the product, for messages.
    pub(crate) progress: Progress,
}

impl Cache {
    /// Opens the cache, making its folder when there is none.
    pub(crate) fn open() -> Result<Self> {
        let root = match std::env::var_os("CELLAR_CACHE").filter(|value| !value.is_empty()) {
            Some(folder) => std::path::absolute(PathBuf::from(folder))?,
            None => {
                let home =
                    std::env::home_dir().context("no home folder: set CELLAR_CACHE to a folder for the cache")?;
                home.join(".cache/cellar")
            }
        };
        fs::create_dir_all(&root).with_context(|| format!("could not create the cache `{}`", root.display()))?;
        Ok(Self::at(root))
    }

    /// A cache in a folder that exists.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the path of the product `kind/name` made from `inputs`, whether it exists yet or not.
    pub(crate) fn place(&self, kind: &str, name: &str, inputs: &Inputs) -> PathBuf {
        self.root.join(kind).join(format!("{name}-{}", &inputs.digest()[..16]))
    }

    /// Returns true if the cache has any version of a product.
    pub(crate) fn has(&self, kind: &str, name: &str) -> bool {
        let is_version = |file: &str| {
            let digest = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            digest.is_some_and(|digest| digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        let entries = fs::read_dir(self.root.join(kind)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|file| is_version(&file))
    }

    /// The folder of a product, made by `make` unless the cache has it.
    ///
    /// `make` fills `bench.out`. When it fails, what it left stays for the next attempt; see [`Bench::step`].
    pub(crate) fn product(
        &self,
        kind: &str,
        name: &str,
        inputs: &Inputs,
        make: impl FnOnce(&Bench) -> Result<()>,
    ) -> Result<PathBuf> {
        let place = self.place(kind, name, inputs);
        if place.is_dir() {
            mark_used(&place);
            progress::is_there(name);
            return Ok(place);
        }
        let progress = Progress::new(name);
        let _lock = self.lock(&place, &progress)?;
        let _making = Making::begin(&place);
        if place.is_dir() {
            return Ok(place);
        }
        let partial = place.with_extension("partial");
        let bench = Bench { out: partial.join("out"), work: partial.join("work"), progress };
        fs::create_dir_all(&bench.out)?;
        fs::create_dir_all(&bench.work)?;
        make(&bench)?;
        fs::rename(&bench.out, &place)?;
        fs::remove_dir_all(&partial)?;
        Ok(place)
    }

    /// Removes a product, so that it is made again.
    pub(crate) fn forget(&self, kind: &str, name: &str, inputs: &Inputs) -> Result<()> {
        let place = self.place(kind, name, inputs);
        for folder in [place.with_extension("partial"), place] {
            if folder.exists() {
                fs::remove_dir_all(&folder).with_context(|| format!("could not remove `{}`", folder.display()))?;
            }
        }
        Ok(())
    }

    /// The folder that holds all products, one folder a kind.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn lock(&self, place: &Path, progress: &Progress) -> Result<File> {
        let path = place.with_extension("lock");
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        let file = File::create(&path).with_context(|| format!("could not create the lock `{}`", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // Or a thread of this one.
                if !making().contains(place) {
                    progress.note("another build is making this; waiting for it");
                }
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(file)
    }
}

/// The products that this process makes now.
static MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn making() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A product that this process makes as long as it has this.
struct Making(PathBuf);

impl Making {
    fn begin(place: &Path) -> Self {
        making().insert(place.to_owned());
        Making(place.to_owned())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        making().remove(&self.0);
    }
}

/// Notes that a product was used, for [`crate::prune`]. A cache that may only be read is used all the same.
fn mark_used(place: &Path) {
    let _ = File::open(place).and_then(|folder| folder.set_modified(SystemTime::now()));
}

impl Bench {
    /// Does `action` once: an interrupted build that is started again skips the steps it had finished.
    pub(crate) fn step(&self, title: &str, action: impl FnOnce() -> Result<()>) -> Result<()> {
        let slug: String = title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let stamp = self.work.join(format!(".done-{slug}"));
        if stamp.exists() {
            return Ok(());
        }
        self.progress.timed(title, action)?;
        File::create(&stamp)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(value: &str) -> Inputs {
        let mut inputs = Inputs::default();
        inputs.value("version", value);
        inputs
    }

    #[test]
    fn a_product_is_made_once_for_the_same_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let made = std::cell::Cell::new(0);
        assert!(!cache.has("kind", "name"));
        let make = |bench: &Bench| {
            made.set(made.get() + 1);
            Ok(fs::write(bench.out.join("file"), "made")?)
        };
        let first = cache.product("kind", "name", &inputs("1"), make).unwrap();
        let again = cache.product("kind", "name", &inputs("1"), make).unwrap();
        assert_eq!((first.clone(), made.get()), (again, 1));
        assert!(cache.has("kind", "name") && !cache.has("kind", "na"));
        assert_eq!(fs::read(first.join("file")).unwrap(), b"made");
        cache.product("kind", "name", &inputs("2"), make).unwrap();
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn a_failed_build_leaves_no_product_and_goes_on_where_it_failed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let steps = std::cell::Cell::new(0);
        let attempt = |fails: bool| {
            cache.product("kind", "name", &inputs("1"), |bench| {
                bench.step("first step", || {
                    steps.set(steps.get() + 1);
                    Ok(())
                })?;
                anyhow::ensure!(!fails, "told to fail");
                Ok(())
            })
        };
        attempt(true).unwrap_err();
        assert!(!cache.place("kind", "name", &inputs("1")).exists());
        attempt(false).unwrap();
        assert_eq!(steps.get(), 1);
    }
}
