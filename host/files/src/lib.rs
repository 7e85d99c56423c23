//! The granted folders of a session as one tree, for one kernel.
//!
//! [`Files`] is the `files` interface of the kernel world in plain Rust: one method per function, no knowledge of the
//! engine that calls it. Beneath it are four parts, each with one job: [`Mount`] opens a host folder, the tree decides
//! which mount a path belongs to, cap-std resolves the rest of the path inside that folder, and [`Quota`] counts what
//! the session writes.
//!
//! What holds, whatever a guest does: no operation reaches a host file outside the mounts; none changes a file in a
//! read-only mount; none waits for another process; and the host memory and descriptors in use are bounded.

use std::sync::Arc;

use cap_std::fs::{Dir, File};

mod error;
mod handle;
mod listing;
mod mount;
mod names;
mod quota;
mod restore;
mod slot;
mod stat;
#[cfg(test)]
mod tests;
mod tree;

pub use error::FileError;
pub use listing::DirectoryEntry;
pub use mount::OpenMount;
pub use mount::{Access, Mount, MountError};
pub use quota::{FileLimits, Quota};
pub use slot::{Descriptor, OpenFile, OpenHow, ROOT};
pub use stat::{FileKind, Stat};

use handle::Handle;
use listing::Listing;
use quota::Ledger;
use slot::{Node, Slot};
use tree::{Place, Spot, Tree};

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
        let root = match tree.resolve("", "/", true) {
            Ok(Place::Mounted(spot)) => {
                let dir = Arc::clone(spot.mount.dir());
                Slot::folder(spot.path, how, spot.mount.writable().is_ok(), Some(dir))
            }
            _ => Slot::folder(String::new(), how, false, None),
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
        let place = self.resolve(dir, path, how.follow_symlinks)?;
        // Before anything is made or emptied.
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free > self.descriptors_max() {
            return Err(FileError::TooManyOpen);
        }
        let slot = self.open_place(place, how)?;
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
            _ if !slot.writable => Err(FileError::ReadOnly),
            Node::File(file) => Ok(rustix::fs::futimens(file, &times)?),
            Node::Folder { dir: Some(dir), .. } => Ok(rustix::fs::futimens(dir, &times)?),
            Node::Folder { dir: None, .. } => Err(FileError::ReadOnly),
        }
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

    fn open_place(&self, place: Place, how: OpenHow) -> Result<Slot, FileError> {
        if how.directory && how.create {
            return Err(FileError::Invalid);
        }
        match place {
            Place::Ancestor(_) if how.create && how.exclusive => Err(FileError::Exists),
            Place::Ancestor(_) if how.create || how.changes() => Err(FileError::IsDirectory),
            Place::Ancestor(path) => Ok(Slot::folder(path, how, false, None)),
            Place::Mounted(spot) => self.open_mounted(spot, how),
        }
    }

    fn open_mounted(&self, spot: Spot, how: OpenHow) -> Result<Slot, FileError> {
        if how.create && spot.folder {
            return Err(FileError::IsDirectory);
        }
        let writable = spot.mount.writable();
        if let Err(read_only) = writable
            && how.changes()
        {
            // What is not there at all, or leads elsewhere, says so first.
            let missing = |error| if error == FileError::NotFound && how.create { read_only } else { error };
            let stat = spot.stat().map_err(missing)?;
            return Err(if stat.kind == FileKind::Directory { FileError::IsDirectory } else { read_only });
        }
        // Held to the end, so that the file cannot lose its last name before its handle is counted.
        let mut ledger = self.quota.lock();
        let (spot, file) = self.open_or_create(spot, how, &mut ledger)?;
        let stat = Stat::of(&file)?;
        if mount::is_foreign(&spot.mount, &stat, &file) {
            return Err(FileError::NotPermitted);
        }
        match stat.kind {
            FileKind::Directory if how.create => Err(FileError::IsDirectory),
            FileKind::Directory => {
                let dir = Arc::new(Dir::from_std_file(file.into_std()));
                Ok(Slot::folder(spot.path, how, writable.is_ok(), Some(dir)))
            }
            FileKind::RegularFile if how.directory || spot.folder => Err(FileError::NotDirectory),
            FileKind::RegularFile => {
                if how.truncate {
                    handle::resize(&file, &mut ledger, 0)?;
                }
                let node = Node::File(Handle::new(file, stat.id(), &self.quota, &mut ledger));
                Ok(Slot { path: spot.path, how: how.lasting(), writable: writable.is_ok(), node })
            }
            FileKind::Unknown | FileKind::SymbolicLink => Err(FileError::NotPermitted),
        }
    }

    /// Opens the file, or makes it if that is asked for: in two steps, because a new name must be counted and the host
    /// does not tell whether it made one.
    fn open_or_create(&self, mut spot: Spot, how: OpenHow, ledger: &mut Ledger) -> Result<(Spot, File), FileError> {
        for _ in 0..OPEN_ATTEMPTS {
            if !(how.create && how.exclusive) {
                match spot.open(&mut how.options()) {
                    Err(FileError::NotFound) if how.create => {}
                    opened => return opened.map(|file| (spot, file)),
                }
            }
            spot.mount.writable()?;
            let full = ledger.check_name();
            if full.is_err() && (!how.exclusive || spot.stat().is_err()) {
                return Err(FileError::Quota);
            }
            match spot.open(how.options().write(true).create_new(true)) {
                Ok(file) => {
                    ledger.named();
                    return Ok((spot, file));
                }
                // A link to a file that is not there yet. Making a file never follows a link, so follow it first.
                Err(FileError::Exists) if !how.exclusive && spot.follow => {
                    spot = match self.tree.resolve_fully(&spot)? {
                        Place::Mounted(spot) => spot,
                        Place::Ancestor(_) => return Err(FileError::IsDirectory),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Err(FileError::Loop)
    }

    /// Where a path leads from a descriptor.
    fn resolve(&self, dir: Descriptor, path: &str, follow: bool) -> Result<Place, FileError> {
        let slot = self.slot(dir)?;
        match &slot.node {
            Node::Folder { .. } => self.tree.resolve(&slot.path, path, follow),
            Node::File(_) => Err(FileError::NotDirectory),
            Node::Lost { error, .. } => Err(*error),
        }
    }

    /// A name was moved: what is open below it has another path now.
    fn moved(&mut self, from: &str, to: &str) {
        for slot in self.slots.iter_mut().flatten() {
            if let Some(rest) = tree::below(&slot.path, from) {
                slot.path = format!("{to}{rest}");
            }
        }
    }

    /// Makes room for a listing of so many entries. A folder whose listing is forgotten is read again when it goes on.
    fn forget_listings(&mut self, coming: usize) {
        let mut kept = coming;
        for slot in self.slots.iter_mut().flatten() {
            if let Node::Folder { listing, .. } = &mut slot.node {
                kept += listing.as_ref().map_or(0, Listing::len);
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
            self.slots.resize_with(index + 1, || None);
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

fn index_of(descriptor: Descriptor) -> Option<usize> {
    usize::try_from(descriptor.checked_sub(ROOT)?).ok()
}

/// Indices are bounded by the descriptor limit, which is a `u32`, and the root's number: past that, nothing opens.
fn descriptor_of(index: usize) -> Descriptor {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(ROOT)
}
