//! Process-wide limit on the size of displays in results.
//!
//! A result is retained as long as a client may ask for it, and a host holds the results of many runs. The limits of the
//! individual results would add up to too much.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of displays that each result may hold in any case.
const OWN_BYTES: usize = 4 << 20;
/// Bytes that all results together may hold beyond that.
pub const RESULTS_BYTES_MAX: usize = 512 << 20;

static SHARED: AtomicUsize = AtomicUsize::new(0);

/// Bytes that one result holds. Dropping it releases them.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
}

impl Room {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the size to `bytes` in all. Returns false, and changes nothing, if there is no room.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        let (before, after) = (beyond_own(self.bytes), beyond_own(bytes));
        if after > before {
            let taken = SHARED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |shared| {
                shared.checked_add(after.saturating_sub(before)).filter(|shared| *shared <= RESULTS_BYTES_MAX)
            });
            if taken.is_err() {
                return false;
            }
        } else {
            SHARED.fetch_sub(before.saturating_sub(after), Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }
}

fn beyond_own(bytes: usize) -> usize {
    bytes.saturating_sub(OWN_BYTES)
}

impl Clone for Room {
    /// Clones the reservation. A copy of a result holds as many bytes again, regardless of the limit.
    fn clone(&self) -> Room {
        SHARED.fetch_add(beyond_own(self.bytes), Ordering::Relaxed);
        Room { bytes: self.bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        SHARED.fetch_sub(beyond_own(self.bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_results_share_what_they_keep_and_give_it_back() {
        let mut large = Room::default();
        assert!(large.resize(OWN_BYTES + RESULTS_BYTES_MAX / 2));
        let mut other = large.clone();
        assert!(!other.resize(other.bytes() + RESULTS_BYTES_MAX / 2), "there is no room");
        let mut small = Room::default();
        assert!(small.resize(OWN_BYTES), "each has some of its own");
        drop(large);
        assert!(other.resize(OWN_BYTES) && other.bytes() == OWN_BYTES);
    }
}
