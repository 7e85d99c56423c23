//! Files that the kernels of this process have open, over all sessions.
//!
//! A file takes up space after its last name was removed, until its last descriptor closes. Until then it counts for the
//! session that removed it, even if another session has it open: a loop of write, remove, keep open would otherwise fill the
//! disk at no charge. Descriptors of other processes are not known here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::quota::{FileId, Quota};

/// Tables, so that kernels seldom wait for each other.
const TABLES: usize = 16;

/// A file that some kernel has open.
#[derive(Debug, Default)]
struct Open {
    descriptors: u64,
    /// Quota of the session that removed the last name. It gets the bytes back with the last descriptor.
    payer: Option<Weak<Quota>>,
}

static OPEN: LazyLock<[Mutex<HashMap<FileId, Open>>; TABLES]> = LazyLock::new(Default::default);

/// Number of removals of last names.
static REMOVALS: AtomicU64 = AtomicU64::new(0);

/// Returns how often kernels of this process have removed the last name of a file. If a file had a name after this was
/// called, and was [`opened`] before a later call with the same result, it was not removed unnoticed in between.
pub(super) fn removals() -> u64 {
    REMOVALS.load(Ordering::SeqCst)
}

fn table(id: FileId) -> MutexGuard<'static, HashMap<FileId, Open>> {
    let index = usize::try_from(id.inode.checked_rem(TABLES as u64).unwrap_or_default()).unwrap_or(0);
    OPEN[index].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a descriptor of the file was opened.
pub(super) fn opened(id: FileId) {
    let mut table = table(id);
    let open = table.entry(id).or_default();
    open.descriptors = open.descriptors.saturating_add(1);
}

/// Records that a descriptor of the file is about to close. Returns the quota that gets its bytes back now, if any.
pub(super) fn closed(id: FileId) -> Option<Arc<Quota>> {
    let mut table = table(id);
    let open = table.get_mut(&id)?;
    open.descriptors = open.descriptors.saturating_sub(1);
    if open.descriptors > 0 {
        return None;
    }
    table.remove(&id)?.payer?.upgrade()
}

/// Records that the last name of the file was removed. Returns true if the file is open, so that `payer` pays until it
/// closes.
pub(super) fn removed(id: FileId, payer: &Weak<Quota>) -> bool {
    // Before the table is looked at, for those who come into it afterwards.
    REMOVALS.fetch_add(1, Ordering::SeqCst);
    let mut table = table(id);
    let open = table.get_mut(&id);
    open.map(|open| open.payer = Some(Weak::clone(payer))).is_some()
}
