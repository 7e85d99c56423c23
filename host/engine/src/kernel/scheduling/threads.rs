//! Capacity for the threads of guests. Each runs on a native stack of the engine's pool, so all kernels together are bounded.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use cellar_core::limits::KERNEL_THREADS_MAX;

/// Threads that are left for the kernels of an engine.
#[derive(Debug)]
pub(crate) struct ThreadRoom(AtomicU32);

impl ThreadRoom {
    pub(crate) fn new(threads: u32) -> Arc<ThreadRoom> {
        Arc::new(ThreadRoom(AtomicU32::new(threads)))
    }
}

/// The threads of one kernel besides its first; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// Capacity of the engine; absent where there can be no threads.
    room: Option<Arc<ThreadRoom>>,
    count: u32,
}

impl Threads {
    pub(crate) fn of(room: Arc<ThreadRoom>) -> Threads {
        Threads { room: Some(room), count: 0 }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Takes room for so many in all, or gives some back; returns for how many there is room now, which is as before when
    /// there is none for more.
    pub(crate) fn reserve(&mut self, wanted: u32) -> u32 {
        let Some(ThreadRoom(left)) = self.room.as_deref() else { return 0 };
        if wanted <= self.count {
            left.fetch_add(self.count.saturating_sub(wanted), Ordering::Relaxed);
            self.count = wanted;
        } else if wanted <= KERNEL_THREADS_MAX {
            let more = wanted.saturating_sub(self.count);
            let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more));
            self.count = taken.map_or(self.count, |_| wanted);
        }
        self.count
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.reserve(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_share_the_room_and_give_it_back() {
        let room = ThreadRoom::new(3);
        let (mut one, mut other) = (Threads::of(room.clone()), Threads::of(room));
        assert_eq!((one.reserve(2), other.reserve(2), other.reserve(1)), (2, 0, 1));
        assert_eq!((one.reserve(3), one.count()), (2, 2));
        drop(one);
        assert_eq!(other.reserve(3), 3);
    }

    #[test]
    fn one_kernel_has_no_more_than_its_share() {
        let mut threads = Threads::of(ThreadRoom::new(u32::MAX));
        assert_eq!(threads.reserve(KERNEL_THREADS_MAX), KERNEL_THREADS_MAX);
        assert_eq!(threads.reserve(KERNEL_THREADS_MAX + 1), KERNEL_THREADS_MAX);
        assert_eq!(Threads::default().reserve(1), 0, "there is no room at all");
    }
}
