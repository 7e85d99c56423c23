//! Which kernels of a host are awake, and which of them falls asleep when there are too many.

use std::{
    sync::{Arc, Mutex, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use cellar_core::{limits::KERNEL_WAIT, sync::lock};

use crate::{
    contract::error::Error,
    kernel::{guest::Guest, instance::Kernel, state::KernelLink},
};

/// Poll interval while a session waits for a free kernel slot.
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// The kernels of a host that are awake, and how many may be.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Kernels that may be awake.
    max: usize,
    awake: Mutex<Vec<Weak<KernelLink>>>,
}

impl Sweep {
    pub(crate) fn new(max: usize) -> Sweep {
        Sweep { max, awake: Mutex::default() }
    }

    /// Notes that a kernel is awake. The one that has been idle for longest falls asleep if there are too many.
    pub(crate) fn woke(&self, link: &Arc<KernelLink>) {
        let mut awake = lock(&self.awake);
        awake.push(Arc::downgrade(link));
        if awake.len() > self.max {
            awake.retain(|kernel| kernel.strong_count() > 0);
            if awake.len() > self.max {
                put_to_sleep(&mut awake);
            }
        }
    }

    /// Notes that a kernel fell asleep or died.
    pub(crate) fn slept(&self, link: &Arc<KernelLink>) {
        lock(&self.awake).retain(|kernel| !std::ptr::eq(kernel.as_ptr(), Arc::as_ptr(link)));
    }

    /// A kernel bound to nobody, a new one or also a warm spare. When there is no room for one, an idle kernel falls asleep
    /// first; and kernels of sessions that were reset or closed, and of cells that had their own, are waited for a little.
    ///
    /// # Errors
    /// `KernelsExhausted` when all kernels are busy, or the guest fails.
    pub(crate) async fn kernel(&self, guest: &Arc<Guest>, is_new: bool) -> Result<Kernel, Error> {
        let give_up = Instant::now() + KERNEL_WAIT;
        let mut is_asked = false;
        loop {
            let kernel = if is_new { guest.fresh().await } else { guest.kernel().await };
            is_asked = match kernel {
                Err(Error::KernelsExhausted) => is_asked || put_to_sleep(&mut lock(&self.awake)),
                kernel => return kernel,
            };
            if Instant::now() >= give_up {
                return Err(Error::KernelsExhausted);
            }
            tokio::time::sleep(ROOM_INTERVAL).await;
        }
    }
}

/// Tells the kernel that has been idle for longest to fall asleep. Returns whether there was one.
fn put_to_sleep(awake: &mut Vec<Weak<KernelLink>>) -> bool {
    let idle = (0..).zip(awake.iter()).filter_map(|(place, link)| Some((place, link.upgrade()?)));
    let idle = idle.filter(|(_, link)| link.drowsiness.is_idle.load(Ordering::Relaxed));
    let Some((place, link)) = idle.min_by_key(|(_, link)| link.drowsiness.last_used.load(Ordering::Relaxed)) else {
        return false;
    };
    awake.swap_remove(place);
    link.drowsiness.sleep_wanted.store(true, Ordering::Relaxed);
    link.wake.notify_one();
    true
}
