//! Counts of what cells came to and how long they took, for monitoring.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_core::sync::lock;
use cellar_engine::{RunResult, results::CellResult};

/// Upper bounds of the buckets of durations, in seconds. There is one more bucket, without a bound.
pub const DURATION_BOUNDS: [f64; 15] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// Histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Durations up to each bound of [`DURATION_BOUNDS`], and beyond that of the bound before.
    pub counts: [u64; DURATION_BOUNDS.len()],
    /// All durations.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = DURATION_BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(count) = bucket.and_then(|bucket| self.counts.get_mut(bucket)) {
            *count = count.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(duration);
    }
}

/// Language and outcome of cells: `complete`, or the kind of their failure.
pub type CellKey = (&'static str, &'static str);

/// Durations of the cells of a hub, by language and outcome. A cheap handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Arc<Mutex<BTreeMap<CellKey, Histogram>>>);

impl Figures {
    /// Counts the cells of a run that have ended.
    pub(crate) fn count(&self, result: &RunResult) {
        let mut table = lock(&self.0);
        for CellResult { cell, duration, failure, .. } in &result.cells {
            // A cell that never ran has no duration.
            let Some(duration) = duration else { continue };
            let outcome = failure.as_ref().map_or("complete", |failure| failure.kind.as_str());
            table.entry((cell.language.code(), outcome)).or_default().add(*duration);
        }
    }

    pub(crate) fn all(&self) -> BTreeMap<CellKey, Histogram> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_the_bucket_that_they_fit() {
        let mut histogram = Histogram::default();
        for millis in [5, 6, 700_000] {
            histogram.add(Duration::from_millis(millis));
        }
        assert_eq!((histogram.counts[0], histogram.counts[1], histogram.counts[14]), (1, 1, 0));
        assert_eq!((histogram.count, histogram.sum), (3, Duration::from_millis(700_011)));
    }
}
