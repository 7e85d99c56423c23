//! The files that the kernels of this process have open, of whatever session.
//!
//! A file goes on taking room after its last name was removed, until the last descriptor of it closes. Until then the
//! session that removed it pays for it, even when it is another session that has it open: a loop of write, remove, keep
//! open would otherwise fill the disk at no charge. Descriptors of other processes are not known here.

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
    /// Who removed its last name, and gets its bytes back with the last descriptor.
    payer: Option<Weak<Quota>>,
}

static OPEN: LazyLock<[Mutex<HashMap<FileId, Open>>; TABLES]> = LazyLock::new(Default::default);

/// How often a last name was removed.
static REMOVALS: AtomicU64 = AtomicU64::new(0);

/// How often kernels of this process have removed the last name of a file. A file that had a name after this was asked,
/// and was [`opened`] before it is asked again with the same answer, was not removed unnoticed in between.
pub(super) fn removals() -> u64 {
    REMOVALS.load(Ordering::SeqCst)
}

fn table(id: FileId) -> MutexGuard<'static, HashMap<FileId, Open>> {
    let index = usize::try_from(id.inode.checked_rem(TABLES as u64).unwrap_or_default()).unwrap_or(0);
    OPEN[index].lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor of the file was opened.
pub(super) fn opened(id: FileId) {
    let mut table = table(id);
    let open = table.entry(id).or_default();
    open.descriptors = open.descriptors.saturating_add(1);
}

/// A descriptor of the file is about to close. Who gets its bytes back now, if somebody does.
pub(super) fn closed(id: FileId) -> Option<Arc<Quota>> {
    let mut table = table(id);
    let open = table.get_mut(&id)?;
    open.descriptors = open.descriptors.saturating_sub(1);
    if open.descriptors > 0 {
        return None;
    }
    table.remove(&id)?.payer?.upgrade()
}

/// The last name of the file was removed. Whether somebody has it open, so that `payer` pays until it closes.
pub(super) fn removed(id: FileId, payer: &Weak<Quota>) -> bool {
    // Before the table is looked at, for those who come into it afterwards.
    REMOVALS.fetch_add(1, Ordering::SeqCst);
    let mut table = table(id);
    let open = table.get_mut(&id);
    open.map(|open| open.payer = Some(Weak::clone(payer))).is_some()
}
