//! Capacity for kernels that are awake: how many a host may have, who waits in the queue for it, and which kernel falls asleep.
//!
//! Capacity goes to the [share](crate::config::CpuShare) that has least of it by its weight, and within a share to the first that came. No
//! kernel falls asleep for a share that has more than its own, unless it was idle for some time. Where there are several shares, each
//! leaves some capacity free for the others, since a loop that never ends never gives its own back.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_core::{
    limits::SLEEPERS_UNPACKED_BYTES_MAX,
    sync::{cores, lock},
};
use tokio::sync::oneshot;

use super::{
    credit::Credit,
    meter::GuestClock,
    recent::Recent,
    resident::Resident,
    turns::{Claim, Turns},
};
use crate::contract::config::Rests;

/// Time that an idle kernel stays awake while shares that have more want room.
const IDLE_KEPT: Duration = Duration::from_secs(5);
/// Interval at which a waiter looks for a kernel that may fall asleep.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Kernels that one share may have for each that it leaves free.
const FOR_EACH_LEFT: usize = 7;
/// Divisor of the time of all processors: one part in so many may go into checkpoints before cells.
const CHECKPOINTS_SHARE: u32 = 10;
/// Largest number of shares at which each may have all room of a host: that of sessions that name none, and one more.
const SHARES_ALONE: usize = 2;

/// Permit for one kernel to be awake. The kernel releases it when its memory is gone.
#[derive(Debug)]
pub(crate) struct Room {
    line: Arc<Line>,
    claim: Claim,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.line.give_back(self.claim);
    }
}

/// Room that is taken, and the queue of waiters for room.
#[derive(Debug)]
struct Line {
    table: Mutex<Table>,
    /// Number of waiters, which can be read without the table.
    waiting: AtomicUsize,
    turns: Arc<Turns>,
}

#[derive(Debug)]
struct Table {
    free: usize,
    held: HashMap<u64, usize>,
    waiting: Vec<Waiter>,
    count: u64,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    number: u64,
    sender: oneshot::Sender<Room>,
}

impl Table {
    fn held(&self, claim: Claim) -> usize {
        self.held.get(&claim.share).copied().unwrap_or_default()
    }

    fn take(&mut self, claim: Claim) {
        self.free = self.free.saturating_sub(1);
        let held = self.held.entry(claim.share).or_default();
        *held = held.saturating_add(1);
    }

    fn give_up(&mut self, claim: Claim) {
        self.free = self.free.saturating_add(1);
        if let Some(held) = self.held.get_mut(&claim.share) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&claim.share);
            }
        }
    }

    /// Returns true if a share may have more room, whether or not any is free.
    fn leaves_enough(&self, claim: Claim, is_alone: bool) -> bool {
        let left = self.free.saturating_sub(1);
        is_alone || claim.share == 0 || self.held(claim) < left.saturating_mul(FOR_EACH_LEFT).max(1)
    }

    /// Returns the room of a share by its weight, to be compared with that of others.
    fn part(&self, claim: Claim) -> u128 {
        let held = (self.held(claim) as u128).saturating_mul(1_000_000);
        held.checked_div(claim.weight.into()).unwrap_or(held)
    }

    /// Returns true if a waiter comes before a holder of room.
    fn gives_way(&self, holder: Claim, waiter: Claim) -> bool {
        holder.share == waiter.share || self.part(waiter) <= self.part(holder)
    }

    /// Removes and returns the next waiter that may have room.
    fn next(&mut self, is_alone: bool) -> Option<Waiter> {
        let may = self.waiting.iter().enumerate().filter(|(_, waiter)| self.leaves_enough(waiter.claim, is_alone));
        let (place, _) = may.min_by_key(|(_, waiter)| (self.part(waiter.claim), waiter.number))?;
        Some(self.waiting.swap_remove(place))
    }
}

impl Line {
    fn is_alone(&self) -> bool {
        self.turns.shares() <= SHARES_ALONE
    }

    fn free(self: &Arc<Line>, claim: Claim) -> Option<Room> {
        let is_alone = self.is_alone();
        let mut table = lock(&self.table);
        let may = table.free > 0 && table.leaves_enough(claim, is_alone);
        may.then(|| self.take(&mut table, claim))
    }

    fn take(self: &Arc<Line>, table: &mut Table, claim: Claim) -> Room {
        table.take(claim);
        Room { line: self.clone(), claim }
    }

    /// Takes room if there is some, or joins the queue.
    fn stand(self: &Arc<Line>, claim: Claim) -> Result<Room, (Place, oneshot::Receiver<Room>)> {
        let is_alone = self.is_alone();
        let mut table = lock(&self.table);
        if table.free > 0 && table.leaves_enough(claim, is_alone) {
            return Ok(self.take(&mut table, claim));
        }
        table.count = table.count.saturating_add(1);
        let (sender, receiver) = oneshot::channel();
        let number = table.count;
        table.waiting.push(Waiter { claim, number, sender });
        self.waiting.store(table.waiting.len(), Ordering::SeqCst);
        Err((Place { line: self.clone(), number }, receiver))
    }

    fn give_back(self: &Arc<Line>, claim: Claim) {
        lock(&self.table).give_up(claim);
        self.hand_out();
    }

    /// Gives free room to those who wait.
    fn hand_out(self: &Arc<Line>) {
        let is_alone = self.is_alone();
        let mut table = lock(&self.table);
        let mut given = Vec::new();
        while table.free > 0 {
            let Some(waiter) = table.next(is_alone) else { break };
            given.push((waiter.sender, self.take(&mut table, waiter.claim)));
        }
        self.waiting.store(table.waiting.len(), Ordering::SeqCst);
        drop(table);
        for (sender, room) in given {
            // Of whoever has gone meanwhile it comes back.
            let _ = sender.send(room);
        }
    }
}

/// Position in the queue; given up when dropped.
struct Place {
    line: Arc<Line>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = lock(&self.line.table);
        table.waiting.retain(|waiter| waiter.number != self.number);
        self.line.waiting.store(table.waiting.len(), Ordering::SeqCst);
    }
}

/// The kernels of a host that are awake, and how many may be.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Kernels that may have room at once.
    pub(crate) kernels_max: usize,
    /// Kernels that may be awake before those that are idle fall asleep.
    awake_max: usize,
    line: Arc<Line>,
    awake: Mutex<Vec<Weak<Resident>>>,
    /// Kernels that fell asleep lately.
    pub(crate) recent: Recent,
    /// Processor time for the checkpoints of all kernels.
    checkpoints: Mutex<Credit>,
}

impl Sweep {
    /// Returns the kernels of a share that have room, and those that wait for it.
    pub(crate) fn count(&self, claim: Claim) -> (usize, usize) {
        let table = lock(&self.line.table);
        let waiting = table.waiting.iter().filter(|waiter| waiter.claim.share == claim.share).count();
        (table.held(claim), waiting)
    }

    pub(crate) fn new(kernels_max: usize, rests: Rests, turns: Arc<Turns>) -> Sweep {
        let processors = u32::try_from(cores()).unwrap_or(u32::MAX);
        let saved_max = rests.checkpoint_credit.saturating_mul(processors);
        let table = Table { free: kernels_max, held: HashMap::new(), waiting: Vec::new(), count: 0 };
        Sweep {
            kernels_max,
            awake_max: rests.awake_max,
            line: Arc::new(Line { table: Mutex::new(table), waiting: AtomicUsize::new(0), turns }),
            awake: Mutex::default(),
            recent: Recent::new(SLEEPERS_UNPACKED_BYTES_MAX),
            checkpoints: Mutex::new(Credit::new(saved_max, CHECKPOINTS_SHARE, processors)),
        }
    }

    /// Returns true if the host can afford a checkpoint of this cost.
    pub(crate) fn affords(&self, cost: Duration) -> bool {
        lock(&self.checkpoints).affords(cost, Instant::now())
    }

    /// Notes what a checkpoint took.
    pub(crate) fn spend(&self, cost: Duration) {
        lock(&self.checkpoints).spend(cost);
    }

    /// Takes room if it is free. There is none while others wait who may have it.
    pub(crate) fn free_room(&self, claim: Claim) -> Option<Room> {
        self.line.free(claim)
    }

    /// Waits in the queue for room. The kernel that has been idle for longest falls asleep; others do when they have nothing to do, or
    /// have had their turn.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the line.
    pub(crate) async fn room(&self, claim: Claim) -> Room {
        // Before anybody is asked: a kernel that becomes idle meanwhile sees that somebody waits.
        let (_place, mut room) = match self.line.stand(claim) {
            Ok(room) => return room,
            Err(waiting) => waiting,
        };
        self.put_to_sleep(Some(claim), &mut lock(&self.awake));
        loop {
            match tokio::time::timeout(LOOK_AGAIN, &mut room).await {
                Ok(Ok(room)) => return room,
                // Nobody takes it out of the line but with room.
                Ok(Err(_)) => return std::future::pending().await,
                Err(_) => self.put_to_sleep(Some(claim), &mut lock(&self.awake)),
            }
        }
    }

    /// Returns true if some kernel goes on, so that room will be free: not every kernel that has room waits for its processes. A caller
    /// that has noted its own process and gets true may wait; the last to do so gets false, whatever the order.
    pub(crate) fn goes_on(&self, claim: Claim) -> bool {
        let is_alone = self.line.is_alone();
        let (free, held, leaves_enough) = {
            let table = lock(&self.line.table);
            (table.free, table.held(claim), table.leaves_enough(claim, is_alone))
        };
        let waits = |kernel: &Arc<Resident>| kernel.waits_for_processes();
        let kernels: Vec<Arc<Resident>> = lock(&self.awake).iter().filter_map(Weak::upgrade).collect();
        if free > 0 && !leaves_enough {
            // It waits for its own kernels alone.
            return kernels.iter().filter(|kernel| kernel.claim.share == claim.share && waits(kernel)).count() < held;
        }
        // Those that start or end are not awake: they go on.
        free > 0 || kernels.iter().filter(|kernel| waits(kernel)).count() < self.kernels_max
    }

    /// Returns true if somebody waits for room to whom a kernel of this share gives way.
    pub(crate) fn is_short(&self, claim: Claim) -> bool {
        if self.line.waiting.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let table = lock(&self.line.table);
        table.waiting.iter().any(|waiter| table.gives_way(claim, waiter.claim))
    }

    /// Notes that a kernel is awake. The one that has been idle for longest falls asleep if there are too many.
    pub(crate) fn woke(&self, resident: &Arc<Resident>) {
        let mut awake = lock(&self.awake);
        if awake.iter().any(|kernel| std::ptr::eq(kernel.as_ptr(), Arc::as_ptr(resident))) {
            return;
        }
        awake.push(Arc::downgrade(resident));
        if awake.len() > self.awake_max {
            awake.retain(|kernel| kernel.strong_count() > 0);
            if awake.len() > self.awake_max {
                self.put_to_sleep(None, &mut awake);
            }
        }
    }

    /// Notes that a kernel fell asleep or died.
    pub(crate) fn slept(&self, resident: &Arc<Resident>) {
        lock(&self.awake).retain(|kernel| !std::ptr::eq(kernel.as_ptr(), Arc::as_ptr(resident)));
    }

    /// Has the kernel that has been idle for longest fall asleep, of those that give way to `wants`.
    fn put_to_sleep(&self, wants: Option<Claim>, awake: &mut Vec<Weak<Resident>>) {
        let now = GuestClock::default().nanos(Instant::now());
        let kept = u64::try_from(IDLE_KEPT.as_nanos()).unwrap_or(u64::MAX);
        let table = lock(&self.line.table);
        let idle = (0..).zip(awake.iter()).filter_map(|(place, kernel)| Some((place, kernel.upgrade()?)));
        let idle = idle.filter_map(|(place, kernel)| kernel.idle_since().map(|since| (place, kernel, since)));
        let idle = idle.filter(|(_, kernel, since)| {
            let gives_way = |wants: Claim| table.gives_way(kernel.claim, wants) || now.saturating_sub(*since) >= kept;
            wants.is_none_or(gives_way)
        });
        let longest = idle.min_by_key(|(_, _, since)| *since);
        drop(table);
        let Some((place, kernel, _)) = longest else { return };
        // Nobody else asks it.
        awake.swap_remove(place);
        kernel.put_to_sleep();
    }
}
