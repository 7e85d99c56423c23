//! Removes from the cache what nobody has used for some time.
//!
//! Every change to a recipe leaves the products of the one before, and every build of the engine its own baked images. A
//! product's folder tells by its time of change when it was last used: the builder and the engine set it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::cache::Cache;

/// What is removed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Prune {
    /// Keep what was used within so many days.
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    keep_days: u32,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Products and bytes that were removed, or would be.
#[derive(Debug, Default, PartialEq, Eq)]
struct Removed {
    products: u64,
    bytes: u64,
}

/// Removes old products, a line each, and says what that has freed.
///
/// # Errors
/// The cache cannot be read, or something in it cannot be removed.
pub(crate) fn prune(cache: &Cache, options: Prune, out: &mut impl Write) -> Result<()> {
    let age = Duration::from_secs(u64::from(options.keep_days) * 24 * 60 * 60);
    let removed = remove_older(cache.root(), age, options.dry_run, out)?;
    let verb = if options.dry_run { "would be removed" } else { "removed" };
    let (count, mib) = (removed.products, removed.bytes >> 20);
    writeln!(out, "{count} products {verb}, {mib} MiB; kept is what was used in the last {} days", options.keep_days)?;
    Ok(())
}

fn remove_older(root: &Path, age: Duration, dry_run: bool, out: &mut impl Write) -> Result<Removed> {
    let mut removed = Removed::default();
    for kind in folders_in(root)? {
        for product in folders_in(&kind)? {
            let Some(bytes) = remove(&product, age, dry_run)? else { continue };
            removed.products += 1;
            removed.bytes += bytes;
            let name = product.strip_prefix(root).unwrap_or(&product);
            writeln!(out, "{} ({} MiB)", name.display(), bytes >> 20)?;
        }
    }
    Ok(removed)
}

/// Removes a product that was not used for so long, and says how many bytes it had. One that somebody works on is kept.
fn remove(product: &Path, age: Duration, dry_run: bool) -> Result<Option<u64>> {
    let used = fs::metadata(product)?.modified()?;
    if SystemTime::now().duration_since(used).unwrap_or_default() < age {
        return Ok(None);
    }
    // The builder locks a file beside a product, the engine one inside a baked guest.
    let locks = [product.with_extension("lock"), product.join("lock")];
    let mut held = Vec::new();
    for path in locks.iter().filter(|path| path.is_file()) {
        let file = File::open(path)?;
        if file.try_lock().is_err() {
            return Ok(None);
        }
        held.push(file);
    }
    let bytes = bytes_below(product)?;
    if !dry_run {
        // Away with the name first: nobody shall find half of a product.
        let doomed = product.with_extension("doomed");
        fs::rename(product, &doomed).with_context(|| format!("could not remove `{}`", product.display()))?;
        fs::remove_dir_all(&doomed).with_context(|| format!("could not remove `{}`", doomed.display()))?;
        let _ = fs::remove_file(&locks[0]);
    }
    Ok(Some(bytes))
}

fn folders_in(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not read `{}`", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != OsStr::new("lost+found") {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn product(root: &Path, name: &str, days: u32) -> std::path::PathBuf {
        let folder = root.join("guests").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), [0; 1000]).unwrap();
        fs::write(folder.with_extension("lock"), "").unwrap();
        File::open(&folder).unwrap().set_modified(SystemTime::now() - DAY * days).unwrap();
        folder
    }

    #[test]
    fn only_what_nobody_used_goes() {
        let root = tempfile::tempdir().unwrap();
        let old = product(root.path(), "old-1", 20);
        let recent = product(root.path(), "recent-1", 3);
        let busy = product(root.path(), "busy-1", 20);
        let lock = File::open(busy.with_extension("lock")).unwrap();
        lock.lock().unwrap();

        let wanted = Removed { products: 1, bytes: 1000 };
        assert_eq!(remove_older(root.path(), DAY * 14, true, &mut Vec::new()).unwrap(), wanted);
        assert!(old.exists(), "a dry run removes nothing");

        let mut said = Vec::new();
        assert_eq!(remove_older(root.path(), DAY * 14, false, &mut said).unwrap(), wanted);
        assert_eq!(String::from_utf8(said).unwrap(), "guests/old-1 (0 MiB)\n");
        assert!(!old.exists() && !old.with_extension("lock").exists());
        assert!(recent.exists() && busy.exists());
    }

    #[test]
    fn what_was_asked_for_again_is_used() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path().to_owned());
        let inputs = crate::inputs::Inputs::default();
        let make = || cache.product("guests", "name", &inputs, |_| Ok(())).unwrap();
        let place = make();
        File::open(&place).unwrap().set_modified(SystemTime::now() - DAY * 20).unwrap();
        make();
        assert_eq!(remove_older(root.path(), DAY * 14, false, &mut Vec::new()).unwrap(), Removed::default());
    }
}
