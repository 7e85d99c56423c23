//! Quota of a session's writes, counted over all of its kernels.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use super::error::FileError;
use super::open_files;
use super::stat::{FileKind, Stat};

/// Limits of a session's use of the host's disk and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileLimits {
    /// Bytes by which files may grow, all in all. Logical sizes: a hole counts like data.
    pub bytes_max: u64,
    /// Names that may be made: files, folders and links.
    pub files_max: u64,
    /// Descriptors that one kernel may have open.
    pub descriptors_max: u32,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self { bytes_max: 256 << 20, files_max: 10_000, descriptors_max: 256 }
    }
}

/// Disk space that many sessions share, on top of the quota of each. Cheap to clone.
///
/// The owner sets the bytes in use from time to time, of which those of sessions are only a part; sessions add what they
/// write as they write it.
#[derive(Debug, Clone)]
pub struct DiskPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    bytes_max: u64,
    bytes: AtomicU64,
}

impl DiskPool {
    /// Creates a pool of `bytes_max` bytes, none of them in use.
    pub fn new(bytes_max: u64) -> DiskPool {
        DiskPool(Arc::new(Pool { bytes_max, bytes: AtomicU64::new(0) }))
    }

    /// Capacity in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes in use.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns true if `more` bytes would exceed the capacity.
    pub fn is_full(&self, more: u64) -> bool {
        self.bytes().saturating_add(more) > self.0.bytes_max
    }

    fn resized(&self, before: u64, after: u64) {
        let resized = |bytes: u64| Some(bytes.saturating_add(after).saturating_sub(before));
        let _ = self.0.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, resized);
    }
}

/// Counters of one session, shared by its kernels.
///
/// Every change to a writable folder is made under this lock, so the sizes read around a change belong to it even when two
/// kernels write the same file. Growth is counted and shrinking is given back; files from before the session never count, and
/// removing them frees space, but never below zero. A file that was removed while a kernel of this process has it open counts
/// until it is closed, for the session that removed it. Of a folder that sessions share, each session is charged for its own
/// growth, so the folder grows by at most the sum of their quotas. Files that another process has open are not known:
/// sessions of two processes that share a folder can hold removed files, each as large as the quota, in as many descriptors
/// as they may have.
#[derive(Debug)]
pub struct Quota {
    limits: FileLimits,
    ledger: Mutex<Ledger>,
}

impl Quota {
    /// Counters at zero.
    pub fn new(limits: FileLimits) -> Arc<Self> {
        Quota::with_usage(limits, (0, 0))
    }

    /// Creates the counters of a restored session, which has used this many bytes and names.
    pub fn with_usage(limits: FileLimits, usage: (u64, u64)) -> Arc<Self> {
        Quota::within(limits, usage, None)
    }

    /// The same, where what it may have is bounded together with what others have.
    pub fn within(limits: FileLimits, (bytes, files): (u64, u64), pool: Option<DiskPool>) -> Arc<Self> {
        Arc::new_cyclic(|whose| {
            let ledger = Ledger { limits, bytes, files, pool, whose: Weak::clone(whose) };
            Self { limits, ledger: Mutex::new(ledger) }
        })
    }

    /// Bytes and names in use.
    pub fn usage(&self) -> (u64, u64) {
        let ledger = self.lock();
        (ledger.bytes, ledger.files)
    }

    /// Sets the bytes and names in use, when the files are those of another time.
    pub fn set_usage(&self, (bytes, files): (u64, u64)) {
        let mut ledger = self.lock();
        let before = ledger.bytes;
        ledger.resized(before, bytes);
        (ledger.bytes, ledger.files) = (bytes, files);
    }

    /// Limits of the session.
    pub fn limits(&self) -> FileLimits {
        self.limits
    }

    /// Locks the counters. If a kernel panicked while it held the lock, they are still right to within one change.
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies a file whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// The counters themselves; see [`Quota`].
#[derive(Debug)]
pub(super) struct Ledger {
    limits: FileLimits,
    bytes: u64,
    files: u64,
    pool: Option<DiskPool>,
    whose: Weak<Quota>,
}

impl Ledger {
    /// # Errors
    /// `Quota` when a file may not grow from `before` to `after` bytes.
    pub(super) fn check_growth(&self, before: u64, after: u64) -> Result<(), FileError> {
        let more = after.saturating_sub(before);
        let is_too_much = self.bytes.saturating_add(more) > self.limits.bytes_max
            || self.pool.as_ref().is_some_and(|pool| pool.is_full(more));
        // A change that grows nothing passes even when a restored session is already over a tightened limit.
        if more > 0 && is_too_much { Err(FileError::Quota) } else { Ok(()) }
    }

    /// A file went from `before` to `after` bytes.
    pub(super) fn resized(&mut self, before: u64, after: u64) {
        if let Some(pool) = &self.pool {
            pool.resized(before, after);
        }
        self.bytes =
            self.bytes.saturating_add(after.saturating_sub(before)).saturating_sub(before.saturating_sub(after));
    }

    /// # Errors
    /// `Quota` when no more names may be made.
    pub(super) fn check_name(&self) -> Result<(), FileError> {
        if self.files >= self.limits.files_max { Err(FileError::Quota) } else { Ok(()) }
    }

    /// A name was made.
    pub(super) fn named(&mut self) {
        self.files = self.files.saturating_add(1);
    }

    /// A name was removed; `last` is what it named, as it was just before.
    pub(super) fn unnamed(&mut self, last: &Stat) {
        self.files = self.files.saturating_sub(1);
        if last.kind != FileKind::RegularFile || last.links > 1 {
            return;
        }
        // Its bytes come back with the last descriptor, if there is one.
        if !open_files::removed(last.id(), &self.whose) {
            self.resized(last.size, 0);
        }
    }
}
