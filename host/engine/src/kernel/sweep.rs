//! Room for kernels: how many of a host may be awake, who waits in line for that, and which of them falls asleep.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicUsize, Ordering},
};

use cellar_core::{limits::SLEEPERS_UNPACKED_BYTES_MAX, sync::lock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::kernel::{guest::Guest, recent::Recent, state::KernelLink};

/// Room for one kernel. The kernel that has it gives it back when its memory is gone.
pub(crate) type Room = OwnedSemaphorePermit;

/// The kernels of a host that are awake, and how many may be.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Kernels that there is room for.
    pub(crate) kernels_max: usize,
    /// Kernels that may be awake before those that are idle fall asleep.
    awake_max: usize,
    room: Arc<Semaphore>,
    /// Those who wait for room.
    waiting: AtomicUsize,
    awake: Mutex<Vec<Weak<KernelLink>>>,
    /// Guests that may have spares.
    guests: Mutex<Vec<Weak<Guest>>>,
    /// Kernels that fell asleep lately.
    pub(crate) recent: Recent,
}

/// Counts who waits for room as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Sweep {
    pub(crate) fn new(kernels_max: usize, awake_max: usize) -> Sweep {
        Sweep {
            kernels_max,
            awake_max,
            room: Arc::new(Semaphore::new(kernels_max)),
            waiting: AtomicUsize::new(0),
            awake: Mutex::default(),
            guests: Mutex::default(),
            recent: Recent::new(SLEEPERS_UNPACKED_BYTES_MAX),
        }
    }

    /// Makes a guest known, whose spares make room when there is none.
    pub(crate) fn know(&self, guest: &Arc<Guest>) {
        lock(&self.guests).push(Arc::downgrade(guest));
    }

    /// Room that is free. There is none while others wait for it.
    pub(crate) fn free_room(&self) -> Option<Room> {
        self.room.clone().try_acquire_owned().ok()
    }

    /// Waits in line for room. A spare goes, or the kernel that has been idle for longest falls asleep; others do when
    /// they have nothing to do, or have had their turn.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the line.
    pub(crate) async fn room(&self) -> Room {
        if let Some(room) = self.free_room() {
            return room;
        }
        // Before anybody is asked: a kernel that becomes idle meanwhile sees that somebody waits.
        let _waiting = Waiting::new(&self.waiting);
        if !self.drop_spare() {
            put_to_sleep(&mut lock(&self.awake));
        }
        match self.room.clone().acquire_owned().await {
            Ok(room) => room,
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether some kernel goes on, so that room will be free: not each that has room waits for its processes. Whoever has
    /// noted its own and is told yes may wait; the last to do so is told no, whatever the order.
    pub(crate) fn goes_on(&self) -> bool {
        let free = self.room.available_permits();
        // Those that start or end, and spares, are not awake: they go on.
        let taken = self.kernels_max.saturating_sub(free);
        let waits = |link: &Weak<KernelLink>| link.upgrade().is_some_and(|link| link.waits_for_processes());
        free > 0 || lock(&self.awake).iter().filter(|link| waits(link)).count() < taken
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Notes that a kernel is awake. The one that has been idle for longest falls asleep if there are too many.
    pub(crate) fn woke(&self, link: &Arc<KernelLink>) {
        let mut awake = lock(&self.awake);
        if awake.iter().any(|kernel| std::ptr::eq(kernel.as_ptr(), Arc::as_ptr(link))) {
            return;
        }
        awake.push(Arc::downgrade(link));
        if awake.len() > self.awake_max {
            awake.retain(|kernel| kernel.strong_count() > 0);
            if awake.len() > self.awake_max {
                put_to_sleep(&mut awake);
            }
        }
    }

    /// Notes that a kernel fell asleep or died.
    pub(crate) fn slept(&self, link: &Arc<KernelLink>) {
        lock(&self.awake).retain(|kernel| !std::ptr::eq(kernel.as_ptr(), Arc::as_ptr(link)));
    }

    /// Gives up a spare of any guest. Returns whether there was one.
    fn drop_spare(&self) -> bool {
        let guests: Vec<Arc<Guest>> = {
            let mut guests = lock(&self.guests);
            guests.retain(|guest| guest.strong_count() > 0);
            guests.iter().filter_map(Weak::upgrade).collect()
        };
        guests.iter().any(|guest| guest.spare().is_some())
    }
}

/// Tells the kernel that has been idle for longest to fall asleep.
fn put_to_sleep(awake: &mut Vec<Weak<KernelLink>>) {
    let idle = (0..).zip(awake.iter()).filter_map(|(place, link)| Some((place, link.upgrade()?)));
    let idle = idle.filter(|(_, link)| link.drowsiness.is_idle.load(Ordering::SeqCst));
    let Some((place, link)) = idle.min_by_key(|(_, link)| link.drowsiness.last_used.load(Ordering::Relaxed)) else {
        return;
    };
    // Nobody else asks it.
    awake.swap_remove(place);
    link.drowsiness.sleep_wanted.store(true, Ordering::Relaxed);
    link.wake.notify_one();
}
