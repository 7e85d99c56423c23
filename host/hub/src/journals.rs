//! Bound for the journals of all hubs of a process together.
//!
//! A server has a hub for each tenant, so that a bound for each hub would not bound the process. The hubs that keep
//! most evict first; small hubs keep their events.

use std::sync::{
    Arc, Mutex, OnceLock, Weak,
    atomic::{AtomicUsize, Ordering},
};

use cellar_core::sync::lock;

use crate::journal::{JOURNAL_BYTES_LEAST, JOURNAL_BYTES_MAX};

/// Bytes that are kept of all runs of a process, under way and ended, but for what their owners have not read.
const JOURNALS_BYTES_MAX: usize = 320 << 20;

/// Bound for the bytes that hubs keep of their runs. A cheap handle; [`Journals::default`] is that of the process.
#[derive(Clone, Debug)]
pub struct Journals(Arc<Bound>);

#[derive(Debug)]
struct Bound {
    bytes_max: usize,
    /// Bytes that all hubs hold.
    held: AtomicUsize,
    /// Bytes of a hub above which it may keep little of each run; `usize::MAX` while the bound is not reached.
    level: AtomicUsize,
    hubs: Mutex<Vec<Weak<dyn Holder>>>,
}

/// Keeper of runs: a hub.
pub(crate) trait Holder: Send + Sync {
    /// Account of the bytes that it keeps.
    fn account(&self) -> &Account;

    /// Evicts the oldest of what it keeps, until it has freed this many bytes.
    fn forget(&self, bytes: usize);
}

impl Default for Journals {
    fn default() -> Journals {
        static OF_PROCESS: OnceLock<Journals> = OnceLock::new();
        OF_PROCESS.get_or_init(|| Journals::new(JOURNALS_BYTES_MAX)).clone()
    }
}

impl Journals {
    /// Creates a bound of this many bytes, for the hubs that share it.
    pub fn new(bytes_max: usize) -> Journals {
        let (held, level) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Journals(Arc::new(Bound { bytes_max, held, level, hubs: Mutex::default() }))
    }

    /// Bytes that are kept.
    pub fn size_bytes(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// An account for a hub, which [joins](Journals::join) with it.
    pub(crate) fn account(&self) -> Account {
        Account(Arc::new(Counts { bound: self.0.clone(), held: AtomicUsize::new(0), under_way: AtomicUsize::new(0) }))
    }

    /// Registers a hub to be asked to evict when the bound is exceeded.
    pub(crate) fn join(&self, hub: Weak<dyn Holder>) {
        let mut hubs = lock(&self.0.hubs);
        hubs.retain(|hub| hub.strong_count() > 0);
        hubs.push(hub);
    }
}

/// Account of the bytes that a hub keeps. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    bound: Arc<Bound>,
    held: AtomicUsize,
    /// Runs under way.
    under_way: AtomicUsize,
}

impl Account {
    /// Bytes that it keeps.
    pub(crate) fn size_bytes(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        self.0.bound.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back what was added.
    pub(crate) fn take(&self, bytes: usize) {
        self.0.held.fetch_sub(bytes, Ordering::Relaxed);
        self.0.bound.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a run as under way, until the returned guard is dropped.
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Bytes that the journal of one of its runs may keep.
    pub(crate) fn journal_bytes_max(&self) -> usize {
        let bound = &self.0.bound;
        if self.size_bytes() > bound.level.load(Ordering::Relaxed) {
            return JOURNAL_BYTES_LEAST;
        }
        // A fifth is for runs that have ended.
        share_bytes((bound.bytes_max / 5).saturating_mul(4), self.0.under_way.load(Ordering::Relaxed))
    }

    /// Makes the hubs that keep most evict, when all hubs together keep too much.
    pub(crate) fn make_room(&self) {
        let bound = &self.0.bound;
        if bound.held.load(Ordering::Relaxed) <= bound.bytes_max {
            bound.level.store(usize::MAX, Ordering::Relaxed);
            return;
        }
        // Who comes meanwhile need not do it again.
        let Ok(mut hubs) = bound.hubs.try_lock() else { return };
        let mut live: Vec<Arc<dyn Holder>> = Vec::new();
        hubs.retain(|hub| hub.upgrade().map(|hub| live.push(hub)).is_some());
        let held: Vec<usize> = live.iter().map(|hub| hub.account().size_bytes()).collect();
        // A little more, so that the next event need not ask again.
        let level = level(&held, bound.bytes_max.saturating_sub(bound.bytes_max / 16));
        bound.level.store(level, Ordering::Relaxed);
        for (hub, held) in live.iter().zip(held) {
            if let Some(excess) = held.checked_sub(level).filter(|excess| *excess > 0) {
                hub.forget(excess);
            }
        }
        // The last handle of a hub may be dropped here, and a hub that ends does not look for the others.
        drop(hubs);
    }
}

/// A run that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Account);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Held(Account, usize);

impl Held {
    pub(crate) fn new(account: &Account, bytes: usize) -> Held {
        account.add(bytes);
        Held(account.clone(), bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.take(self.1);
    }
}

/// Returns the most that each may hold, so that all hold no more than `total` and those who hold less keep all.
pub(crate) fn level(held: &[usize], total: usize) -> usize {
    let mut ordered = held.to_vec();
    ordered.sort_unstable();
    let mut left = total;
    for (n, bytes) in ordered.iter().enumerate() {
        let share = left.checked_div(ordered.len().saturating_sub(n)).unwrap_or(left);
        if *bytes > share {
            return share;
        }
        left = left.saturating_sub(*bytes);
    }
    usize::MAX
}

/// Returns the bytes that the journal of one of this many runs may keep.
fn share_bytes(bytes_max: usize, runs: usize) -> usize {
    bytes_max.checked_div(runs).unwrap_or(bytes_max).clamp(JOURNAL_BYTES_LEAST, JOURNAL_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_runs_share_what_their_journals_keep() {
        let share = |runs| share_bytes(256 << 20, runs);
        assert_eq!((share(0), share(16)), (JOURNAL_BYTES_MAX, JOURNAL_BYTES_MAX));
        assert_eq!(share(256), 1 << 20);
        assert_eq!(share(1_000_000), JOURNAL_BYTES_LEAST);
    }

    #[test]
    fn who_holds_most_gives_way() {
        assert_eq!(level(&[], 10), usize::MAX);
        assert_eq!(level(&[3, 4], 10), usize::MAX);
        assert_eq!(level(&[100, 1, 2], 10), 7);
        assert_eq!(level(&[100, 1, 90], 11), 5);
        assert_eq!(level(&[5, 5, 5], 9), 3);
        assert_eq!(level(&[5], 0), 0);
    }

    struct Tenant {
        account: Account,
        kept: Mutex<Vec<Held>>,
    }

    impl Holder for Tenant {
        fn account(&self) -> &Account {
            &self.account
        }

        fn forget(&self, bytes: usize) {
            let mut kept = lock(&self.kept);
            let until = self.account.size_bytes() - bytes;
            while self.account.size_bytes() > until {
                drop(kept.pop());
            }
        }
    }

    #[test]
    fn one_bound_holds_for_all_and_small_ones_keep_what_they_have() {
        let journals = Journals::new(1_000);
        let tenants: Vec<Arc<Tenant>> =
            (0..3).map(|_| Arc::new(Tenant { account: journals.account(), kept: Mutex::default() })).collect();
        let weak: Vec<Weak<Tenant>> = tenants.iter().map(Arc::downgrade).collect();
        weak.into_iter().for_each(|tenant| journals.join(tenant));
        let keep = |n: usize, bytes| {
            lock(&tenants[n].kept).push(Held::new(&tenants[n].account, bytes));
            tenants[n].account.make_room();
            assert!(journals.size_bytes() <= 1_000);
        };
        (0..10).for_each(|_| keep(0, 10));
        (0..1_000).for_each(|n| keep(1 + n % 2, 10));
        assert_eq!(tenants[0].account.size_bytes(), 100);
        let (one, other) = (tenants[1].account.size_bytes(), tenants[2].account.size_bytes());
        assert!(one.abs_diff(other) <= 100 && one > 300, "{one} {other}");
        // The room of those who have gone is that of others.
        drop(tenants);
        assert_eq!(journals.size_bytes(), 0);
    }
}
