//! The fetch log of a result.

use cellar_core::event::Fetch;

use super::RunResult;

/// Maximum number of fetches in a result.
const FETCHES_MAX: usize = 1_000;
/// Maximum size of the fetches in a result, in bytes.
const FETCHES_BYTES_MAX: usize = 4 << 20;

/// Consumption of these limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    count: usize,
    bytes: usize,
}

impl RunResult {
    /// Adds a fetch, if there is room for one more.
    pub(super) fn fetched(&mut self, index: usize, fetch: &Fetch) {
        let Some(result) = self.cells.get_mut(index) else { return };
        let bytes = self.used.fetches.bytes.saturating_add(fetch.size_bytes());
        if self.used.fetches.count >= FETCHES_MAX || bytes > FETCHES_BYTES_MAX {
            self.fetches_left_out = self.fetches_left_out.saturating_add(1);
            return;
        }
        self.used.fetches = Used { count: self.used.fetches.count.saturating_add(1), bytes };
        result.fetches.push(fetch.clone());
    }

    /// Returns the fetches of the run from connectors, in the order of its cells.
    pub fn fetches(&self) -> impl Iterator<Item = &Fetch> {
        self.cells.iter().flat_map(|result| &result.fetches)
    }
}
