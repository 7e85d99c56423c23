//! Kernels that fell asleep lately: their memory is kept as it was captured, because unpacking it is most of what waking
//! takes. When that becomes too much, those that have slept for longest are packed.

use std::{collections::VecDeque, fmt::Debug, sync::Mutex};

use cellar_core::sync::lock;

/// The captured memory of a kernel, which can be packed.
pub(crate) trait Unpacked: Debug + Send + Sync {
    /// Bytes that are not packed.
    fn bytes(&self) -> usize;

    /// Returns true if the captured memory still exists.
    fn is_there(&self) -> bool;

    /// Packs it. Blocks.
    fn pack(&self);
}

/// Captured memory that is kept unpacked on a host.
#[derive(Debug)]
pub(crate) struct Recent {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The one that fell asleep first comes first, each with its bytes.
    all: VecDeque<(usize, Box<dyn Unpacked>)>,
    /// Sum of the bytes of all of them.
    bytes: usize,
}

impl Recent {
    /// Keeps at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Recent {
        Recent { bytes_max, kept: Mutex::default() }
    }

    /// Takes in what fell asleep just now. The caller packs what this returns, which may be what it was given.
    pub(crate) fn take_in(&self, fresh: Box<dyn Unpacked>) -> Vec<Box<dyn Unpacked>> {
        let bytes = fresh.bytes();
        if bytes == 0 || bytes > self.bytes_max {
            return vec![fresh];
        }
        let mut kept = lock(&self.kept);
        kept.bytes = kept.bytes.saturating_add(bytes);
        kept.all.push_back((bytes, fresh));
        if kept.bytes > self.bytes_max {
            // Those that fell asleep again since, or ended, are in nobody's way.
            kept.all.retain(|(_, one)| one.is_there());
            kept.bytes = kept.all.iter().map(|(bytes, _)| bytes).sum();
        }
        let mut over = Vec::new();
        while kept.bytes > self.bytes_max
            && let Some((bytes, oldest)) = kept.all.pop_front()
        {
            kept.bytes = kept.bytes.saturating_sub(bytes);
            over.push(oldest);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[derive(Clone, Debug)]
    struct One(Arc<AtomicUsize>);

    impl One {
        fn of(bytes: usize) -> One {
            One(Arc::new(AtomicUsize::new(bytes)))
        }
    }

    impl Unpacked for One {
        fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        fn is_there(&self) -> bool {
            self.bytes() > 0
        }

        fn pack(&self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    fn take_in(recent: &Recent, one: &One) {
        recent.take_in(Box::new(one.clone())).iter().for_each(|over| over.pack());
    }

    #[test]
    fn those_that_have_slept_for_longest_are_packed_when_it_becomes_too_much() {
        let recent = Recent::new(100);
        let all = [One::of(40), One::of(50), One::of(10), One::of(30)];
        all.iter().for_each(|one| take_in(&recent, one));
        assert_eq!(all.each_ref().map(Unpacked::bytes), [0, 50, 10, 30]);
    }

    #[test]
    fn one_that_is_too_large_is_packed_at_once_and_one_that_is_gone_counts_no_more() {
        let recent = Recent::new(100);
        let (small, large, next) = (One::of(60), One::of(101), One::of(60));
        take_in(&recent, &small);
        small.pack();
        take_in(&recent, &next);
        assert_eq!(next.bytes(), 60);
        take_in(&recent, &large);
        assert_eq!((next.bytes(), large.bytes()), (60, 0));
    }
}
