//! State of a kernel that others on its host can see.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

use super::{meter::GuestClock, turns::Claim};

/// Entry of a kernel among those of its host: its claim to room, whether it is idle, and how it is woken.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// Share that the kernel's room belongs to.
    pub(crate) claim: Claim,
    /// Wakes the kernel when it is to sleep, to stop or to end.
    pub(crate) wake: Arc<Notify>,
    /// Time when it last began to wait, in nanoseconds of this process's clock.
    last_used: AtomicU64,
    /// True if it has nothing to do but to wait.
    is_idle: AtomicBool,
    sleep_wanted: AtomicBool,
    /// Processes that its cells have started and that have not ended.
    processes: AtomicU32,
}

impl Resident {
    pub(crate) fn new(claim: Claim) -> Arc<Resident> {
        Arc::new(Resident { claim, ..Resident::default() })
    }

    /// Notes that the kernel begins to wait.
    pub(crate) fn idle(&self) {
        self.last_used.store(GuestClock::default().nanos(Instant::now()), Ordering::Relaxed);
        self.is_idle.store(true, Ordering::SeqCst);
    }

    /// Notes that it has something to do.
    pub(crate) fn busy(&self) {
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Returns the time since which it has been idle, on this process's clock; `None` while it is busy.
    pub(super) fn idle_since(&self) -> Option<u64> {
        let last_used = self.last_used.load(Ordering::Relaxed);
        self.is_idle.load(Ordering::SeqCst).then_some(last_used)
    }

    /// Requests the kernel to fall asleep.
    pub(super) fn put_to_sleep(&self) {
        self.sleep_wanted.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Returns true if a sleep was requested since the last call.
    pub(crate) fn is_sleep_wanted(&self) -> bool {
        self.sleep_wanted.load(Ordering::Relaxed) && self.sleep_wanted.swap(false, Ordering::Relaxed)
    }

    /// Counts a process of its cells until the returned guard is dropped.
    pub(crate) fn process(self: &Arc<Resident>) -> WaitsForProcess {
        self.processes.fetch_add(1, Ordering::SeqCst);
        WaitsForProcess(self.clone())
    }

    /// Returns true if any of its cells may wait for a process.
    pub(super) fn waits_for_processes(&self) -> bool {
        self.processes.load(Ordering::SeqCst) > 0
    }
}

/// A process that a cell of a kernel has started.
#[derive(Debug)]
pub(crate) struct WaitsForProcess(Arc<Resident>);

impl Drop for WaitsForProcess {
    fn drop(&mut self) {
        self.0.processes.fetch_sub(1, Ordering::SeqCst);
    }
}
