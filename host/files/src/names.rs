//! Operations on names: those that make, move, remove or look at an entry without opening it.

use rustix::fs::{AtFlags, Mode};

use super::error::FileError;
use super::host;
use super::mount;
use super::stat::{FileKind, Stat, timestamps};
use super::tree::{self, Found, Place, Seek, Spot};
use super::{Descriptor, Files};

/// Mode of a new folder, before the host's umask.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

impl Files {
    /// Looks at a path.
    ///
    /// # Errors
    /// `NotFound` for an absolute path that no mount holds, `NotCapable` for what leads out of a mount, and the like.
    pub fn stat_at(&mut self, dir: Descriptor, path: &str, follow_symlinks: bool) -> Result<Stat, FileError> {
        match self.resolve(dir, path, follow_symlinks, Seek::Look) {
            Ok(Place::Ancestor(path)) => Ok(Stat::of_ancestor(&path)),
            Ok(Place::Mounted(spot)) => spot.stat(),
            // Programs ask whether files are there all the time, and take any other answer for a fault.
            Err(FileError::NotCapable) if self.tree.is_nowhere(path) => Err(FileError::NotFound),
            Err(error) => Err(error),
        }
    }

    /// Sets the times of what a path names; an absent one stays as it is.
    ///
    /// # Errors
    /// `ReadOnly`, `NotPermitted` for devices and the like, or as [`Files::stat_at`].
    pub fn set_times_at(
        &mut self,
        dir: Descriptor,
        path: &str,
        follow_symlinks: bool,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Result<(), FileError> {
        let place = self.resolve(dir, path, follow_symlinks, Seek::Write)?;
        let Place::Mounted(spot) = place else { return Err(FileError::ReadOnly) };
        spot.writable()?;
        let times = timestamps(accessed, modified);
        let seen = match &spot.found {
            Found::Missing => return Err(FileError::NotFound),
            Found::Seen(seen) => seen,
            Found::Stat(_) | Found::Unseen => {
                let Some(dir) = spot.as_folder() else { return Err(FileError::Io) };
                return Ok(rustix::fs::futimens(host::open_folder(dir)?, &times)?);
            }
        };
        if spot.folder && seen.stat.kind != FileKind::Directory {
            return Err(FileError::NotDirectory);
        }
        if mount::is_foreign(&spot.mount, &seen.stat, &seen.file) {
            return Err(FileError::NotPermitted);
        }
        match seen.stat.kind {
            FileKind::Unknown if follow_symlinks => Err(FileError::NotPermitted),
            FileKind::Unknown | FileKind::SymbolicLink => {
                let entry = spot.entry()?;
                Ok(rustix::fs::utimensat(entry.folder, entry.name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            FileKind::Directory | FileKind::RegularFile => host::set_times(seen, spot.names(), &times),
        }
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// `Exists`, `ReadOnly`, `Quota`, or as [`Files::stat_at`].
    pub fn create_directory(&mut self, dir: Descriptor, path: &str) -> Result<(), FileError> {
        // A trailing slash is as good as none here, and must not make a link be followed.
        let Place::Mounted(spot) = self.resolve(dir, trimmed(path), false, Seek::Name)? else {
            return Err(FileError::Exists);
        };
        // Making all folders of a path ends in places that are there and may not be written: say so first.
        if spot.mount_point || spot.dots || spot.writable().is_err() {
            return match spot.stat() {
                Ok(_) => Err(FileError::Exists),
                Err(FileError::NotFound) => Err(spot.writable().err().unwrap_or(FileError::NotFound)),
                Err(error) => Err(error),
            };
        }
        let entry = spot.entry()?;
        let mut ledger = self.quota.lock();
        if let Err(full) = ledger.check_name() {
            return Err(if entry.stat().is_ok() { FileError::Exists } else { full });
        }
        rustix::fs::mkdirat(entry.folder, entry.name, FOLDER_MODE)?;
        ledger.named();
        Ok(())
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// `NotEmpty`, `NotDirectory`, `Busy` for a mount point or what holds one, `ReadOnly`, or as [`Files::stat_at`].
    pub fn remove_directory(&mut self, dir: Descriptor, path: &str) -> Result<(), FileError> {
        let Place::Mounted(spot) = self.resolve(dir, trimmed(path), false, Seek::Name)? else {
            return Err(FileError::Busy);
        };
        self.remove(&spot, AtFlags::REMOVEDIR)
    }

    /// Removes a name that is not a folder's. What has the file open keeps it.
    ///
    /// # Errors
    /// `IsDirectory`, `ReadOnly`, or as [`Files::stat_at`].
    pub fn remove_file(&mut self, dir: Descriptor, path: &str) -> Result<(), FileError> {
        let Place::Mounted(spot) = self.resolve(dir, path, false, Seek::Name)? else {
            return Err(FileError::IsDirectory);
        };
        if spot.folder {
            // Fails with `NotDirectory` when it is none.
            return spot.stat().and(Err(FileError::IsDirectory));
        }
        self.remove(&spot, AtFlags::empty())
    }

    fn remove(&mut self, spot: &Spot, flags: AtFlags) -> Result<(), FileError> {
        if spot.pinned {
            return Err(FileError::Busy);
        }
        let entry = spot.entry()?;
        // Removing what is not there fails for that reason, wherever it is not: programs clean up like that.
        let stat = entry.stat()?;
        spot.writable()?;
        if self.tree.is_root(&stat) {
            return Err(FileError::Busy);
        }
        let mut ledger = self.quota.lock();
        // Some systems let a privileged process unlink a folder.
        if stat.kind == FileKind::Directory && !flags.contains(AtFlags::REMOVEDIR) {
            return Err(FileError::IsDirectory);
        }
        rustix::fs::unlinkat(entry.folder, entry.name, flags)?;
        ledger.unnamed(&stat);
        Ok(())
    }

    /// Moves a name within its mount, or from one private folder of the session to another, over what has the new name.
    ///
    /// # Errors
    /// `CrossDevice` between other mounts, `Busy` for a mount point or what holds one, `ReadOnly`, or what the host says.
    pub fn rename(
        &mut self,
        dir: Descriptor,
        path: &str,
        new_dir: Descriptor,
        new_path: &str,
    ) -> Result<(), FileError> {
        let from = self.resolve(dir, trimmed(path), false, Seek::Name)?;
        let to = self.resolve(new_dir, trimmed(new_path), false, Seek::Name)?;
        let (Place::Mounted(from), Place::Mounted(to)) = (from, to) else { return Err(FileError::Busy) };
        if !from.mount.moves_to(&to.mount) {
            return Err(FileError::CrossDevice);
        }
        if from.pinned || to.pinned {
            return Err(FileError::Busy);
        }
        from.writable()?;
        to.writable()?;
        let (old, new) = (from.entry()?, to.entry()?);
        let mut ledger = self.quota.lock();
        let moved = old.stat()?;
        let replaced = match new.stat() {
            Err(FileError::NotFound) => None,
            stat => Some(stat?),
        };
        if [Some(&moved), replaced.as_ref()].into_iter().flatten().any(|stat| self.tree.is_root(stat)) {
            return Err(FileError::Busy);
        }
        if moved.kind != FileKind::Directory && (path.ends_with('/') || new_path.ends_with('/')) {
            return Err(FileError::NotDirectory);
        }
        rustix::fs::renameat(old.folder, old.name, new.folder, new.name)?;
        match replaced {
            // Two names of one file: the host leaves both.
            Some(replaced) if replaced.id() == moved.id() => return Ok(()),
            Some(replaced) => ledger.unnamed(&replaced),
            None => {}
        }
        drop(ledger);
        self.moved(&from.path, &to.path);
        Ok(())
    }

    /// Gives a file another name in the same mount.
    ///
    /// # Errors
    /// `CrossDevice` between mounts, `NotPermitted` for what is neither file nor symbolic link, `ReadOnly`, `Quota`, or
    /// what the host says.
    pub fn link(&mut self, dir: Descriptor, path: &str, new_dir: Descriptor, new_path: &str) -> Result<(), FileError> {
        let from = self.resolve(dir, path, false, Seek::Name)?;
        let to = self.resolve(new_dir, new_path, false, Seek::Name)?;
        let (Place::Mounted(from), Place::Mounted(to)) = (from, to) else { return Err(FileError::NotPermitted) };
        // A name in a writable mount for a file of a read-only one would open a way to change it.
        if !from.mount.is(&to.mount) {
            return Err(FileError::CrossDevice);
        }
        from.writable()?;
        to.writable()?;
        if from.folder || to.folder {
            return Err(FileError::NotPermitted);
        }
        let (old, new) = (from.entry()?, to.entry()?);
        let mut ledger = self.quota.lock();
        if !matches!(old.stat()?.kind, FileKind::RegularFile | FileKind::SymbolicLink) {
            return Err(FileError::NotPermitted);
        }
        ledger.check_name()?;
        rustix::fs::linkat(old.folder, old.name, new.folder, new.name, AtFlags::empty())?;
        ledger.named();
        Ok(())
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// `NotCapable` for a target that is absolute or climbs out of the mount, `Exists`, `ReadOnly`, `Quota`, or as
    /// [`Files::stat_at`].
    pub fn symlink(&mut self, target: &str, dir: Descriptor, path: &str) -> Result<(), FileError> {
        tree::check(target)?;
        let Place::Mounted(spot) = self.resolve(dir, path, false, Seek::Name)? else { return Err(FileError::Exists) };
        spot.writable()?;
        if spot.folder || spot.mount_point {
            return Err(FileError::Exists);
        }
        // The guest could not follow such a link in any case. But a program on the host could, who opens a file that
        // was left for it here and does not expect it to be one of its own elsewhere; and an absolute target means
        // different files on the two sides. This is a courtesy to the host: moving folders about can still lead a link
        // astray, and the boundary is that no resolution ever leaves the mount.
        if target.starts_with('/') || climbs_out(target, self.tree.depth(&spot.path)) {
            return Err(FileError::NotCapable);
        }
        let entry = spot.entry()?;
        let mut ledger = self.quota.lock();
        if let Err(full) = ledger.check_name() {
            return Err(if entry.stat().is_ok() { FileError::Exists } else { full });
        }
        rustix::fs::symlinkat(target, entry.folder, entry.name)?;
        ledger.named();
        Ok(())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` when it is none; `NotCapable` when the target is absolute, since it would tell of the host; or as
    /// [`Files::stat_at`].
    pub fn read_link(&mut self, dir: Descriptor, path: &str) -> Result<String, FileError> {
        match self.resolve(dir, path, false, Seek::Name)? {
            Place::Ancestor(_) => Err(FileError::Invalid),
            Place::Mounted(spot) if spot.folder => spot.stat().and(Err(FileError::Invalid)),
            Place::Mounted(spot) => spot.read_link(),
        }
    }
}

/// The path without slashes at its end, where they mean nothing.
fn trimmed(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { path } else { trimmed }
}

/// Returns true if a link target climbs out of a mount from a folder `depth` names deep in it.
fn climbs_out(target: &str, depth: usize) -> bool {
    let mut depth = depth;
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return true,
            },
            _ => depth = depth.saturating_add(1),
        }
    }
    false
}
