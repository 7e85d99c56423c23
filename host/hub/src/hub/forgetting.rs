//! What a hub forgets of its runs: when it keeps as many as it may, when their session goes, and when all hubs of the process
//! keep too much.

use std::collections::HashMap;

use cellar_core::sync::lock;

use super::{Hub, Inner, Runs};
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

impl Hub {
    /// Keeps a run that has ended, in the place of older ones.
    pub(super) fn forget_old(&self, id: String) {
        let config = &self.0.config;
        let mut runs = lock(&self.0.runs);
        let runs = &mut *runs;
        // Its id may have been used again at once.
        if runs.by_id.get(&id).is_none_or(|run| !run.is_ended()) || runs.ended.contains(&id) {
            return;
        }
        runs.ended.push_back(id);
        let size = |by_id: &HashMap<String, RunHandle>, id: &String| by_id.get(id).map_or(0, RunHandle::size_bytes);
        let mut bytes: usize = runs.ended.iter().map(|id| size(&runs.by_id, id)).sum();
        while runs.ended.len() > 1 && (runs.ended.len() > config.runs_kept || bytes > config.runs_kept_bytes) {
            let Some(oldest) = runs.ended.pop_front() else { break };
            bytes = bytes.saturating_sub(size(&runs.by_id, &oldest));
            runs.by_id.remove(&oldest);
        }
    }

    /// Forgets the runs of a session that have ended: each holds it.
    pub(super) fn forget_ended(&self, session: &str) {
        let mut runs = lock(&self.0.runs);
        let Runs { by_id, ended } = &mut *runs;
        ended.retain(|id| {
            let is_other = by_id.get(id).is_none_or(|run| run.session_name() != session);
            if !is_other {
                by_id.remove(id);
            }
            is_other
        });
    }
}
