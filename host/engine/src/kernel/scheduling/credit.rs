//! Processor time for work that no caller has requested: it is saved up while time passes, to a limit.

use std::time::{Duration, Instant};

/// Processor time that has been saved up.
#[derive(Debug)]
pub(crate) struct Credit {
    saved: Duration,
    saved_max: Duration,
    /// One part in so many of the time that passes is saved up,
    one_in: u32,
    /// for each of so many processors.
    processors: u32,
    since: Instant,
}

impl Credit {
    /// A credit that has all that it may have.
    pub(crate) fn new(saved_max: Duration, one_in: u32, processors: u32) -> Credit {
        Credit { saved: saved_max, saved_max, one_in, processors, since: Instant::now() }
    }

    /// Returns true if so much has been saved up at `now`.
    pub(crate) fn affords(&mut self, cost: Duration, now: Instant) -> bool {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.since, now));
        let earned = passed.checked_div(self.one_in).unwrap_or_default().saturating_mul(self.processors);
        self.saved = self.saved.saturating_add(earned).min(self.saved_max);
        cost <= self.saved
    }

    /// Takes so much of it, or all.
    pub(crate) fn spend(&mut self, cost: Duration) {
        self.saved = self.saved.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_earned_while_time_passes_and_to_a_limit() {
        let ms = Duration::from_millis;
        let mut credit = Credit::new(ms(20), 10, 2);
        let began = credit.since;
        assert!(credit.affords(ms(20), began) && !credit.affords(ms(21), began));
        credit.spend(ms(15));
        assert!(!credit.affords(ms(10), began));
        assert!(credit.affords(ms(10), began + ms(25)) && !credit.affords(ms(11), began + ms(25)));
        credit.spend(ms(30));
        assert!(credit.affords(ms(20), began + ms(1_000)) && !credit.affords(ms(21), began + ms(1_000)));
    }
}
