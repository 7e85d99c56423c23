//! Eviction of runs: when a hub keeps as many as it may, when their session goes, and when all hubs of the process
//! together keep too much.

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

    /// Evicts the runs that have ended first, then the oldest events of the largest runs under way.
    fn forget(&self, bytes: usize) {
        let wanted = self.account.size_bytes().saturating_sub(bytes);
        // Each may hold the last handle of a session, which ends with it.
        let mut forgotten = Vec::new();
        let mut left = bytes;
        let under_way: Vec<RunHandle> = {
            let mut runs = lock(&self.runs);
            while left > 0
                && let Some(run) = runs.forget_oldest()
            {
                left = left.saturating_sub(run.size_bytes());
                forgotten.push(run);
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
    /// Keeps a run that has ended, and evicts older ones beyond the limits.
    pub(super) fn forget_old(&self, run: &RunHandle) {
        let config = &self.0.config;
        // Each may hold the last handle of a session, which ends with it.
        let mut forgotten = Vec::new();
        let mut runs = lock(&self.0.runs);
        // Its id may have been used again at once.
        if !run.is_ended() || runs.by_id.get(run.id()).is_none_or(|known| !known.is(run)) {
            return;
        }
        let bytes = run.size_bytes();
        runs.ended.push_back((run.id().to_owned(), bytes));
        runs.ended_bytes = runs.ended_bytes.saturating_add(bytes);
        while runs.ended.len() > 1 && (runs.ended.len() > config.runs_kept || runs.ended_bytes > config.runs_kept_bytes)
        {
            forgotten.extend(runs.forget_oldest());
        }
        drop(runs);
    }

    /// Forgets the ended runs of a session, because each holds the session.
    pub(super) fn forget_ended(&self, session: &str) {
        let mut runs = lock(&self.0.runs);
        let is_of_session = |run: &RunHandle| run.is_ended() && run.session_name() == session;
        let forgotten: HashMap<String, RunHandle> = runs.by_id.extract_if(|_, run| is_of_session(run)).collect();
        runs.retain_ended(|id| !forgotten.contains_key(id));
        drop(runs);
    }
}

impl Runs {
    /// Forgets the oldest of the ended runs.
    fn forget_oldest(&mut self) -> Option<RunHandle> {
        let (id, bytes) = self.ended.pop_front()?;
        self.ended_bytes = self.ended_bytes.saturating_sub(bytes);
        self.by_id.remove(&id)
    }

    /// Keeps only these ids in the list of ended runs.
    pub(super) fn retain_ended(&mut self, mut is_kept: impl FnMut(&str) -> bool) {
        let Runs { ended, ended_bytes, .. } = self;
        ended.retain(|(id, bytes)| {
            let is_kept = is_kept(id);
            if !is_kept {
                *ended_bytes = ended_bytes.saturating_sub(*bytes);
            }
            is_kept
        });
    }
}
