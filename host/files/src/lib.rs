//! The granted folders of a session as one tree, for one kernel.
//!
//! [`Files`] is the `files` interface of the kernel world in plain Rust: one method per function, no knowledge of the
//! engine that calls it. Beneath it are four parts, each with one job: [`Mount`] opens a host folder, the tree decides
//! which mount a path belongs to and walks it by descriptors, the calls on the host open what was found, and [`Quota`]
//! counts what the session writes.
//!
//! What holds, whatever a guest does: no operation reaches a host file outside the mounts; none changes a file in a
//! read-only mount; none waits for another process; and the host memory and descriptors in use are bounded.
//!
//! Mounts may lie in each other on the host. Whoever comes to the root of a read-only mount through a writable one may
//! not write there; whoever comes to the root of a writable mount through a read-only one may write only by way of its
//! own mount point. Two things are not told apart: a file to which the host itself gave names in both kinds of mounts,
//! and a folder below the root of a read-only mount that the host makes reachable by another way than through that root.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::os::fd::AsFd;
use std::sync::Arc;

use cap_std::fs::Dir;

mod error;
mod handle;
mod host;
mod listing;
mod mount;
mod names;
mod open_files;
mod quota;
mod restore;
mod slot;
mod stat;
#[cfg(test)]
mod tests;
mod tree;
mod whole;

pub use error::FileError;
pub use listing::DirectoryEntry;
pub use mount::OpenMount;
pub use mount::{Access, Mount, MountError};
pub use quota::{DiskPool, FileLimits, Quota};
pub use slot::{Descriptor, OpenFile, OpenHow, ROOT};
pub use stat::{FileKind, Stat};
pub use whole::ListedFile;

use handle::Handle;
use listing::Listing;
use quota::FileId;
use slot::{Node, Slot};
use tree::{Found, Place, Right, Seek, Spot, Tree};

/// Most listed entries kept for all open folders of a kernel.
const LISTED_MAX: usize = 2 * listing::ENTRIES_MAX;

/// Tries at opening a file that other processes make, remove or move at the same time.
const OPEN_ATTEMPTS: usize = 4;

/// The file tree and the open descriptors of one kernel.
///
/// Every call is one or a few system calls on local files and returns at once; none is ever half done. A descriptor
/// closes with the `Files` that has it.
#[derive(Debug)]
pub struct Files {
    tree: Tree,
    quota: Arc<Quota>,
    /// The descriptors from [`ROOT`] on; the first is the root and never closes.
    slots: Vec<Option<Slot>>,
}

impl Files {
    /// A tree of these mounts, with nothing open but the root. Of two mounts at the same point the later one wins; one
    /// below another hides what the other has there.
    pub fn new(mounts: Vec<OpenMount>, quota: Arc<Quota>) -> Self {
        let tree = Tree::new(mounts);
        let how = OpenHow { directory: true, read: true, ..OpenHow::default() };
        let root = match tree.resolve("", "/", true, Seek::Look) {
            Ok(Place::Mounted(spot)) => {
                let folder = spot.as_folder().cloned();
                Slot::folder(spot.path, how, spot.right, folder)
            }
            _ => Slot::folder(String::new(), how, Right::Read, None),
        };
        Self { tree, quota, slots: vec![Some(root)] }
    }

    /// Bytes and names that the session, not this kernel alone, has written.
    #[cfg(test)]
    pub fn usage(&self) -> (u64, u64) {
        self.quota.usage()
    }

    /// Opens a file or a folder. The lowest free number is used, so a run that is repeated sees the same ones.
    ///
    /// # Errors
    /// `NotCapable` when the path leads out of every mount; `NotPermitted` for devices, FIFOs, sockets and the host
    /// kernel's interfaces, which are never opened; `ReadOnly`, `Quota`, `TooManyOpen`, or what the host says.
    pub fn open(&mut self, dir: Descriptor, path: &str, how: OpenHow) -> Result<Descriptor, FileError> {
        let base = self.base(dir)?;
        // Before anything is made or emptied.
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free > self.descriptors_max() {
            return Err(FileError::TooManyOpen);
        }
        let slot = self.open_from(base, path, how)?;
        self.put(free, slot);
        Ok(descriptor_of(free))
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// `BadDescriptor`; `NotPermitted` for the root.
    pub fn close(&mut self, file: Descriptor) -> Result<(), FileError> {
        if file == ROOT {
            return Err(FileError::NotPermitted);
        }
        let slot = index_of(file).and_then(|index| self.slots.get_mut(index));
        slot.and_then(Option::take).map(drop).ok_or(FileError::BadDescriptor)
    }

    /// Reads at an offset: at most 1 MiB, fewer bytes than asked for, and none at the end of the file.
    ///
    /// # Errors
    /// `BadDescriptor`, `IsDirectory`, `Invalid` for an offset no file has, or what the host says.
    pub fn read(&mut self, file: Descriptor, offset: u64, length: u32) -> Result<Vec<u8>, FileError> {
        let slot = self.slot(file)?;
        let file = slot.file()?;
        if slot.how.read { file.read(offset, length) } else { Err(FileError::BadDescriptor) }
    }

    /// A further descriptor of a file that is open for reading alone, for another process of the host's.
    ///
    /// # Errors
    /// `BadDescriptor`, `IsDirectory`, or what the host says.
    pub fn share(&self, file: Descriptor) -> Result<std::fs::File, FileError> {
        let slot = self.slot(file)?;
        let file = slot.file()?;
        if slot.how.writes() { Err(FileError::BadDescriptor) } else { Ok(file.as_fd().try_clone_to_owned()?.into()) }
    }

    /// Writes at an offset: at most 1 MiB. Returns how many bytes were written.
    ///
    /// # Errors
    /// `Quota` when not all of it fits, and then nothing is written; `BadDescriptor`, `IsDirectory`, `FileTooLarge`, or
    /// what the host says.
    pub fn write(&mut self, file: Descriptor, offset: u64, data: &[u8]) -> Result<u32, FileError> {
        self.slot(file)?.file_to_write()?.write(offset, data)
    }

    /// Writes at the end: at most 1 MiB. Returns how many bytes were written, and the offset behind them.
    ///
    /// # Errors
    /// As [`Files::write`].
    pub fn append(&mut self, file: Descriptor, data: &[u8]) -> Result<(u32, u64), FileError> {
        self.slot(file)?.file_to_write()?.append(data)
    }

    /// Waits until the host's disk has what was written.
    ///
    /// # Errors
    /// `BadDescriptor`, or what the host says.
    pub fn sync(&mut self, file: Descriptor) -> Result<(), FileError> {
        let slot = self.slot(file)?;
        match &slot.node {
            Node::File(file) if slot.how.writes() => file.sync(),
            // Nothing of it can be unwritten.
            Node::File(_) | Node::Folder { .. } => Ok(()),
            Node::Lost { error, .. } => Err(*error),
        }
    }

    /// Looks at an open file or folder.
    ///
    /// # Errors
    /// `BadDescriptor`, or what the host says.
    pub fn stat(&mut self, file: Descriptor) -> Result<Stat, FileError> {
        self.slot(file)?.stat()
    }

    /// Cuts a file or extends it with zeros.
    ///
    /// # Errors
    /// `Quota` when it would grow too far, `BadDescriptor`, `IsDirectory`, `FileTooLarge`, or what the host says.
    pub fn set_size(&mut self, file: Descriptor, size: u64) -> Result<(), FileError> {
        self.slot(file)?.file_to_write()?.set_size(size)
    }

    /// Sets the times of an open file or folder; an absent one stays as it is.
    ///
    /// # Errors
    /// `ReadOnly`, `BadDescriptor`, or what the host says.
    pub fn set_times(
        &mut self,
        file: Descriptor,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Result<(), FileError> {
        let slot = self.slot(file)?;
        let times = stat::timestamps(accessed, modified);
        match &slot.node {
            Node::Lost { error, .. } => Err(*error),
            _ if !self.may_change(slot) => Err(FileError::ReadOnly),
            Node::File(file) => Ok(rustix::fs::futimens(file, &times)?),
            Node::Folder { dir: Some(dir), .. } => Ok(rustix::fs::futimens(dir, &times)?),
            Node::Folder { dir: None, .. } => Err(FileError::ReadOnly),
        }
    }

    /// Returns true if an open file or folder lies in a place that may be changed. One that was opened for reading without
    /// that check is resolved again by its path.
    fn may_change(&self, slot: &Slot) -> bool {
        if slot.right != Right::Unasked {
            return slot.right == Right::Write;
        }
        let Ok(Place::Mounted(spot)) = self.tree.resolve("", &slot.path, false, Seek::Write) else { return false };
        let same = matches!((spot.stat(), slot.stat()), (Ok(named), Ok(open)) if named.id() == open.id());
        same && spot.writable().is_ok()
    }

    /// Entries of an open folder from the `skip`th on, sorted by name, without `.` and `..`; an empty list is the end.
    ///
    /// The folder is read when `skip` is 0 and kept until the end was returned, so entries that come and go meanwhile
    /// are neither missed nor doubled.
    ///
    /// # Errors
    /// `NotDirectory`, `BadDescriptor`, `FileTooLarge` for more than 100,000 entries, or what the host says.
    pub fn read_directory(&mut self, dir: Descriptor, skip: u64) -> Result<Vec<DirectoryEntry>, FileError> {
        let slot = self.slot(dir)?;
        let fresh = match &slot.node {
            Node::Folder { listing: Some(_), .. } if skip > 0 => None,
            Node::Folder { dir, .. } => Some(Listing::read(dir.as_ref(), self.tree.children(&slot.path))?),
            Node::File(_) => return Err(FileError::NotDirectory),
            Node::Lost { error, .. } => return Err(*error),
        };
        if let Some(fresh) = &fresh {
            self.forget_listings(fresh.len());
        }
        let slot = index_of(dir).and_then(|index| self.slots.get_mut(index)).and_then(Option::as_mut);
        let Some(Slot { node: Node::Folder { listing, .. }, .. }) = slot else { return Err(FileError::BadDescriptor) };
        if fresh.is_some() {
            *listing = fresh;
        }
        let piece = listing.as_ref().map(|listing| listing.piece(skip)).unwrap_or_default();
        if piece.is_empty() {
            *listing = None;
        }
        Ok(piece)
    }

    /// Opens what a path names. Should it go or change in between, the path is resolved once more.
    fn open_from(&self, base: &str, path: &str, how: OpenHow) -> Result<Slot, FileError> {
        let seek = if how.create || how.changes() { Seek::Write } else { Seek::Read };
        if let Some(slot) = self.open_straight(base, path, how)? {
            return Ok(slot);
        }
        // Making a file never follows a link in its place.
        let follow = how.follow_symlinks && !(how.create && how.exclusive);
        let mut nameless = None;
        for _ in 0..OPEN_ATTEMPTS {
            let place = self.tree.resolve(base, path, follow, seek).map_err(|error| match error {
                FileError::NotFound if how.create && self.tree.is_read_only_by_name(base, path) => FileError::ReadOnly,
                error => error,
            })?;
            if how.directory && how.create {
                return Err(FileError::Invalid);
            }
            match place {
                Place::Ancestor(_) if how.create && how.exclusive => return Err(FileError::Exists),
                Place::Ancestor(_) if how.create || how.changes() => return Err(FileError::IsDirectory),
                Place::Ancestor(path) => return Ok(Slot::folder(path, how, Right::Read, None)),
                Place::Mounted(spot) => {
                    if let Some(slot) = self.open_mounted(spot, how, &mut nameless)? {
                        return Ok(slot);
                    }
                }
            }
        }
        Err(FileError::NotFound)
    }

    /// Opens a regular file that is there, in as few calls as can be; `None` for whatever else the path may name, which
    /// takes a closer look.
    fn open_straight(&self, base: &str, path: &str, how: OpenHow) -> Result<Option<Slot>, FileError> {
        if how.directory || (how.create && how.exclusive) {
            return Ok(None);
        }
        tree::check(path)?;
        let Some(straight) = self.tree.straight(base, path) else { return Ok(None) };
        let (mount, right) = (straight.mount, straight.file_right());
        if how.changes() && right != Right::Write {
            return Ok(None);
        }
        let removals = open_files::removals();
        let access = (how.read || !how.changes(), how.changes());
        let Ok(file) = mount.open_below(straight.names(), access) else { return Ok(None) };
        let mut stat = Stat::of(&file)?;
        if stat.kind != FileKind::RegularFile || mount::is_foreign(mount, &stat, &file) {
            return Ok(None);
        }
        let handle = Handle::new(file, stat.id(), &self.quota);
        // The file counts as open from here on: who removes its last name now knows that it is. Who removed it before
        // did not.
        if open_files::removals() != removals {
            stat = Stat::of(&handle)?;
        }
        if stat.links == 0 {
            return Ok(None);
        }
        if how.truncate {
            handle.set_size(0)?;
        }
        Ok(Some(Slot { path: straight.at, how: how.lasting(), right, node: Node::File(handle) }))
    }

    /// `None` when what was found is gone. A file that has no name, though a path has just led to it, was removed in
    /// between; found twice, it lies in a file system that does not count names.
    fn open_mounted(&self, spot: Spot, how: OpenHow, nameless: &mut Option<FileId>) -> Result<Option<Slot>, FileError> {
        if how.create && spot.folder {
            return Err(FileError::IsDirectory);
        }
        if how.changes() && spot.writable().is_err() {
            // What is not there at all, or leads elsewhere, says so first.
            let missing = |error| if error == FileError::NotFound && how.create { FileError::ReadOnly } else { error };
            let stat = spot.stat().map_err(missing)?;
            let folder = stat.kind == FileKind::Directory;
            return Err(if folder { FileError::IsDirectory } else { FileError::ReadOnly });
        }
        let read = how.read || !how.changes();
        let seen = match &spot.found {
            Found::Missing if how.create => return self.make(spot, how, read),
            Found::Missing => return Err(FileError::NotFound),
            _ if how.create && how.exclusive => return Err(FileError::Exists),
            Found::Seen(seen) => seen,
            Found::Stat(_) | Found::Unseen => {
                let Some(dir) = spot.as_folder() else { return Err(FileError::Io) };
                return folder_slot(&spot, how, &Stat::of(dir)?, dir).map(Some);
            }
        };
        match seen.stat.kind {
            FileKind::Directory => folder_slot(&spot, how, &seen.stat, &seen.file).map(Some),
            FileKind::SymbolicLink => Err(FileError::Loop),
            FileKind::Unknown => Err(FileError::NotPermitted),
            FileKind::RegularFile if mount::is_foreign(&spot.mount, &seen.stat, &seen.file) => {
                Err(FileError::NotPermitted)
            }
            FileKind::RegularFile if how.directory || spot.folder => Err(FileError::NotDirectory),
            FileKind::RegularFile => {
                let id = seen.stat.id();
                let file = host::open_file(seen, spot.names(), (read, how.changes()))?;
                // Counted as open from here on: who removes its last name now knows that it is.
                let handle = Handle::new(file, id, &self.quota);
                let stat = Stat::of(&handle)?;
                if stat.id() != id || (stat.links == 0 && nameless.replace(id) != Some(id)) {
                    return Ok(None);
                }
                if how.truncate {
                    handle.set_size(0)?;
                }
                Ok(Some(Slot { path: spot.path, how: how.lasting(), right: spot.right, node: Node::File(handle) }))
            }
        }
    }

    /// Makes a file that was found missing. `None` when another process or kernel has made it meanwhile.
    fn make(&self, spot: Spot, how: OpenHow, read: bool) -> Result<Option<Slot>, FileError> {
        spot.writable()?;
        let entry = spot.entry()?;
        let mut ledger = self.quota.lock();
        ledger.check_name()?;
        let file = match host::make(entry.folder, entry.name, read) {
            Err(FileError::Exists) if !how.exclusive => return Ok(None),
            made => made?,
        };
        ledger.named();
        let id = Stat::of(&file)?.id();
        let node = Node::File(Handle::new(file, id, &self.quota));
        drop(ledger);
        Ok(Some(Slot { right: spot.right, path: spot.path, how: how.lasting(), node }))
    }

    /// The path of an open folder.
    fn base(&self, dir: Descriptor) -> Result<&str, FileError> {
        let slot = self.slot(dir)?;
        match &slot.node {
            Node::Folder { .. } => Ok(&slot.path),
            Node::File(_) => Err(FileError::NotDirectory),
            Node::Lost { error, .. } => Err(*error),
        }
    }

    /// Resolves a path relative to a descriptor.
    fn resolve(&self, dir: Descriptor, path: &str, follow: bool, seek: Seek) -> Result<Place, FileError> {
        self.tree.resolve(self.base(dir)?, path, follow, seek)
    }

    /// Updates the paths of open descriptors below a moved name, at every mount point of its grant.
    fn moved(&mut self, from: &str, to: &str) {
        for slot in self.slots.iter_mut().flatten() {
            if let Some(rest) = self.tree.below_in_grant(&slot.path, from) {
                slot.path = format!("{to}{rest}");
            }
        }
    }

    /// Frees capacity for a listing of `coming` entries. A folder whose listing was freed is read again when its listing goes
    /// on.
    fn forget_listings(&mut self, coming: usize) {
        let mut kept = coming;
        for slot in self.slots.iter_mut().flatten() {
            if let Node::Folder { listing, .. } = &mut slot.node {
                kept = kept.saturating_add(listing.as_ref().map_or(0, Listing::len));
                if kept > LISTED_MAX {
                    *listing = None;
                }
            }
        }
    }

    fn slot(&self, descriptor: Descriptor) -> Result<&Slot, FileError> {
        let slot = index_of(descriptor).and_then(|index| self.slots.get(index));
        slot.and_then(Option::as_ref).ok_or(FileError::BadDescriptor)
    }

    fn put(&mut self, index: usize, slot: Slot) {
        if self.slots.len() <= index {
            self.slots.resize_with(index.saturating_add(1), || None);
        }
        self.slots[index] = Some(slot);
    }

    fn is_free(&self, index: usize) -> bool {
        self.slots.get(index).is_none_or(Option::is_none)
    }

    fn descriptors_max(&self) -> usize {
        usize::try_from(self.quota.limits().descriptors_max).unwrap_or(usize::MAX)
    }
}

fn folder_slot(spot: &Spot, how: OpenHow, stat: &Stat, folder: impl AsFd) -> Result<Slot, FileError> {
    if how.create || how.changes() {
        return Err(FileError::IsDirectory);
    }
    if mount::is_foreign(&spot.mount, stat, &folder) {
        return Err(FileError::NotPermitted);
    }
    let dir: Dir = host::open_folder(folder)?;
    Ok(Slot::folder(spot.path.clone(), how, spot.right, Some(Arc::new(dir))))
}

fn index_of(descriptor: Descriptor) -> Option<usize> {
    usize::try_from(descriptor.checked_sub(ROOT)?).ok()
}

/// Indices are bounded by the descriptor limit, which is a `u32`, and the root's number: past that, nothing opens.
fn descriptor_of(index: usize) -> Descriptor {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(ROOT)
}
