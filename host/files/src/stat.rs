//! Metadata and times of files.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Timespec, Timestamps, UTIME_OMIT};

use super::error::FileError;
use super::quota::FileId;

const SECOND: u64 = 1_000_000_000;

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A device, a FIFO, a socket: seen in listings, never opened.
    Unknown,
    /// A folder.
    Directory,
    /// A file of bytes.
    RegularFile,
    /// A symbolic link.
    SymbolicLink,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::RegularFile => Self::RegularFile,
            FileType::Symlink => Self::SymbolicLink,
            _ => Self::Unknown,
        }
    }
}

/// Metadata of a file. Mirrors `file-stat` of the kernel world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The host's device number; 0 for folders that exist only as ancestors of mount points.
    pub device: u64,
    /// The host's inode number.
    pub inode: u64,
    /// Kind of the file.
    pub kind: FileKind,
    /// Names that it has.
    pub links: u64,
    /// Bytes.
    pub size: u64,
    /// Last read, in nanoseconds since the Unix epoch; earlier times become 0.
    pub accessed: u64,
    /// Last written, likewise.
    pub modified: u64,
    /// Last changed in any way, likewise.
    pub changed: u64,
}

impl Stat {
    pub(super) fn id(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// A folder that the tree itself makes up. The inode follows from the path, so that it is the same everywhere.
    pub(super) fn of_ancestor(path: &str) -> Self {
        let inode = ancestor_inode(path);
        Self { device: 0, inode, kind: FileKind::Directory, links: 1, size: 0, accessed: 0, modified: 0, changed: 0 }
    }

    /// # Errors
    /// What the host says.
    pub(super) fn of(file: impl AsFd) -> Result<Self, FileError> {
        Ok(Self::from_host(&rustix::fs::fstat(file)?))
    }

    #[allow(clippy::unnecessary_cast, reason = "the widths of these fields differ between systems")]
    pub(super) fn from_host(stat: &rustix::fs::Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            links: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            accessed: nanoseconds(stat.st_atime as i64, stat.st_atime_nsec as i64),
            modified: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// FNV-1a: any fixed hash would do.
pub(super) fn ancestor_inode(path: &str) -> u64 {
    path.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Times for the host. `None` leaves a time as it is.
pub(super) fn timestamps(accessed: Option<u64>, modified: Option<u64>) -> Timestamps {
    let one = |time: Option<u64>| match time {
        // Both fit: 2^64 nanoseconds are 1.8e10 seconds.
        Some(time) => Timespec { tv_sec: (time / SECOND) as _, tv_nsec: (time % SECOND) as _ },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
    };
    Timestamps { last_access: one(accessed), last_modification: one(modified) }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let whole = u64::try_from(seconds).unwrap_or(0).saturating_mul(SECOND);
    if seconds < 0 { 0 } else { whole.saturating_add(u64::try_from(nanoseconds).unwrap_or(0)) }
}
