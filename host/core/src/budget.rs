//! Budgets of bytes that are read and not yet handed on: one of a process, and within it one of each tenant.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use crate::sync::lock;

/// A budget of bytes. A cheap handle.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    /// Bytes up to which it may use all of what contains it; beyond them, no more than half of that.
    share: usize,
    used: AtomicUsize,
    within: Option<Budget>,
}

impl Budget {
    /// Creates a budget of so many bytes.
    pub fn new(most: usize) -> Budget {
        Budget(Arc::new(Inner { most, share: most, used: AtomicUsize::new(0), within: None }))
    }

    /// Creates a budget within this one, for one of `count` users. It may use half, and more than its share of the whole
    /// only while half of the whole is left.
    pub fn part(&self, count: usize) -> Budget {
        let whole = self.0.most;
        let share = whole.checked_div(count.max(1)).unwrap_or_default();
        let most = if count > 1 { whole / 2 } else { whole };
        Budget(Arc::new(Inner { most, share, used: AtomicUsize::new(0), within: Some(self.clone()) }))
    }

    /// Takes so many bytes; none if they are not left.
    pub fn take(&self, bytes: usize) -> Option<Lease> {
        self.add(bytes).then(|| Lease { budget: self.clone(), bytes: Mutex::new(bytes) })
    }

    /// Bytes that are in use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn add_up_to(&self, bytes: usize, most: usize) -> Result<usize, usize> {
        let added = |used: usize| used.checked_add(bytes).filter(|used| *used <= most);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added)
    }

    fn add(&self, bytes: usize) -> bool {
        let Ok(before) = self.add_up_to(bytes, self.0.most) else { return false };
        let Some(within) = &self.0.within else { return true };
        let is_beyond = before.saturating_add(bytes) > self.0.share;
        let most = if is_beyond { within.0.most / 2 } else { within.0.most };
        let is_there = within.add_up_to(bytes, most).is_ok();
        if !is_there {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_there
    }

    fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(within) = &self.0.within {
            within.give_back(bytes);
        }
    }
}

/// Bytes of a budget, until this is dropped.
#[derive(Debug)]
pub struct Lease {
    budget: Budget,
    bytes: Mutex<usize>,
}

impl Lease {
    /// Takes more bytes. Returns false, and takes none, if they are not left.
    pub fn grow(&self, bytes: usize) -> bool {
        let mut held = lock(&self.bytes);
        let is_there = self.budget.add(bytes);
        if is_there {
            *held = held.saturating_add(bytes);
        }
        is_there
    }

    /// Gives back all but so many bytes.
    pub fn shrink(&self, bytes: usize) {
        let mut held = lock(&self.bytes);
        self.budget.give_back(held.saturating_sub(bytes));
        *held = bytes.min(*held);
    }

    /// Hands its bytes on to a lease of their own.
    pub fn split(&self) -> Lease {
        Lease { budget: self.budget.clone(), bytes: Mutex::new(std::mem::take(&mut *lock(&self.bytes))) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_what_is_anothers_share_and_all_comes_back() {
        let whole = Budget::new(120);
        let [red, green, blue] = [0; 3].map(|_| whole.part(3));
        let reds = red.take(60).expect("half");
        assert!(red.take(1).is_none() && !reds.grow(1));
        let greens = green.take(40).expect("its share");
        assert!(green.take(1).is_none(), "half of the whole is in use");
        let blues = blue.take(20).expect("what is left");
        drop(reds);
        assert!(blues.grow(20) && whole.used() == 80);
        let handed_on = greens.split();
        drop(greens);
        assert_eq!(whole.used(), 80);
        handed_on.shrink(10);
        drop((handed_on, blues));
        assert_eq!((whole.used(), red.used(), blue.used()), (0, 0, 0));
        assert!(Budget::new(10).part(1).take(10).is_some());
    }
}
