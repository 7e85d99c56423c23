//! The entries of an open folder, kept while the guest reads them piece by piece.

use std::collections::HashSet;
use std::os::fd::AsFd;

use super::error::FileError;
use super::stat::FileKind;

/// Most entries that one folder may have to be listed: about 10 MB of host memory.
pub(super) const ENTRIES_MAX: usize = 100_000;

/// Entries that one call returns.
const PIECE_MAX: usize = 512;

/// One name in a folder. Mirrors `directory-entry` of the kernel world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name alone.
    pub name: String,
    /// The host's inode number.
    pub inode: u64,
    /// Kind of the entry; `Unknown` also if the host's file system does not report it.
    pub kind: FileKind,
}

/// All entries of a folder at one moment, sorted by name: the order is then the same on every host, and going on
/// after a restore means the same entries.
#[derive(Debug)]
pub(super) struct Listing {
    entries: Vec<DirectoryEntry>,
}

impl Listing {
    /// Reads the host's folder, if there is one, and adds what the tree has in it. Names of the tree hide names of the
    /// host. A host name that is not Unicode is left out: the guest has no way to say it.
    ///
    /// # Errors
    /// `FileTooLarge` for more than [`ENTRIES_MAX`] entries, or what the host says.
    pub(super) fn read(dir: Option<impl AsFd>, mut entries: Vec<DirectoryEntry>) -> Result<Self, FileError> {
        if let Some(dir) = dir {
            let hidden: HashSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
            for entry in rustix::fs::Dir::read_from(dir)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                if name == "." || name == ".." || hidden.contains(name) {
                    continue;
                }
                if entries.len() >= ENTRIES_MAX {
                    return Err(FileError::FileTooLarge);
                }
                let kind = entry.file_type().into();
                entries.push(DirectoryEntry { name: name.to_owned(), inode: entry.ino(), kind });
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { entries })
    }

    /// The entries from the `skip`th on, as many as fit in one call; none at the end.
    pub(super) fn piece(&self, skip: u64) -> Vec<DirectoryEntry> {
        let from = usize::try_from(skip).unwrap_or(usize::MAX).min(self.entries.len());
        self.entries.iter().skip(from).take(PIECE_MAX).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
