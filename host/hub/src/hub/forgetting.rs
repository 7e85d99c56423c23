//! What a hub forgets of its runs when all hubs of the process keep too much.

use cellar_core::sync::lock;

use super::Inner;
use crate::{
    journals::{Account, Holder, level},
    run::RunHandle,
};

impl Holder for Inner {
    fn account(&self) -> &Account {
        &self.account
    }

    /// Runs that have ended go first, then the oldest events of those under way that have most.
    fn forget(&self, bytes: usize) {
        let wanted = self.account.size_bytes().saturating_sub(bytes);
        // Each may hold the last handle of a session, which ends with it.
        let mut forgotten = Vec::new();
        let mut left = bytes;
        let under_way: Vec<RunHandle> = {
            let mut runs = lock(&self.runs);
            while left > 0
                && let Some(oldest) = runs.ended.pop_front()
            {
                if let Some(run) = runs.by_id.remove(&oldest) {
                    left = left.saturating_sub(run.size_bytes());
                    forgotten.push(run);
                }
            }
            runs.by_id.values().filter(|run| !run.is_ended()).cloned().collect()
        };
        drop(forgotten);
        if self.account.size_bytes() <= wanted {
            return;
        }
        let sizes: Vec<usize> = under_way.iter().map(RunHandle::size_bytes).collect();
        let level = level(&sizes, sizes.iter().sum::<usize>().saturating_sub(left));
        under_way.iter().for_each(|run| run.trim(level));
    }
}
