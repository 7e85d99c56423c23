//! The latest runs that have ended: what a model is given of them can still be asked for, page by page.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cellar_engine::{ArtifactStore, RunResult, View};

use super::{state, unknown};
use crate::{
    report::CliError,
    wire::{OutputJson, first_outputs, output_page},
};

/// Runs that are kept.
const RUNS_MAX: usize = 64;
/// Bytes of them together, but for a last one that alone has more.
const BYTES_MAX: usize = 64 << 20;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Finished {
    /// The oldest first.
    runs: Mutex<VecDeque<(String, Arc<Kept>)>>,
}

/// A run that has ended.
pub(super) struct Kept {
    pub(super) result: RunResult,
    /// Where its tables are, if that is known.
    pub(super) artifacts: Option<ArtifactStore>,
}

impl Finished {
    fn runs(&self) -> MutexGuard<'_, VecDeque<(String, Arc<Kept>)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a run, in the place of the last one with its id.
    pub(super) fn keep(&self, id: &str, run: Kept) {
        self.forget(id);
        let mut runs = self.runs();
        runs.push_back((id.to_owned(), Arc::new(run)));
        let mut bytes: usize = runs.iter().map(|(_, run)| run.result.size_bytes()).sum();
        while runs.len() > 1 && (runs.len() > RUNS_MAX || bytes > BYTES_MAX) {
            bytes -= runs.pop_front().map_or(0, |(_, run)| run.result.size_bytes());
        }
    }

    /// Forgets the run with this id, if there is one.
    pub(super) fn forget(&self, id: &str) {
        self.runs().retain(|(known, _)| known != id);
    }

    /// # Errors
    /// No run with this id has ended, or it is not kept any more.
    pub(super) fn run(&self, id: &str) -> Result<Arc<Kept>, CliError> {
        let found = self.runs().iter().find(|(known, _)| known == id).map(|(_, run)| run.clone());
        found.ok_or_else(|| {
            let message = format!("no run `{id}` is kept that has ended");
            CliError::usage(message, format!("ask when its result has come, and before {RUNS_MAX} others have ended"))
        })
    }
}

impl Kept {
    /// A page of one output, or the first of each.
    ///
    /// # Errors
    /// There is no such output.
    pub(super) async fn pages(self: Arc<Self>, output: Option<usize>, view: View) -> Result<Vec<OutputJson>, CliError> {
        let view = View { artifacts: self.artifacts.clone(), ..view };
        // It reads the files of tables.
        let work = move || match output {
            None => Ok(first_outputs(&self.result, &view)),
            Some(number) => output_page(&self.result, number, &view).map(|page| vec![page]).map_err(|count| {
                let state = format!("is in the run, which has {count}");
                unknown("output", &number.to_string(), &state)
            }),
        };
        state::on_a_thread(work).await
    }
}

#[cfg(test)]
mod tests {
    use cellar_engine::{Cell, CellResult, Event, EventKind, Language};

    use super::*;

    fn run(code_bytes: usize) -> Kept {
        let mut result = RunResult::default();
        let cells = vec![Cell::new(Language::Python, "x".repeat(code_bytes))];
        result.apply(&Event { seq: 1, kind: EventKind::RunStarted { session: "s".to_owned(), cells } });
        Kept { result, artifacts: None }
    }

    fn code_bytes(kept: &Kept) -> usize {
        kept.result.cells.iter().map(|CellResult { cell, .. }| cell.code.len()).sum()
    }

    #[test]
    fn the_latest_runs_are_kept() {
        let finished = Finished::default();
        for number in 0..=RUNS_MAX {
            finished.keep(&number.to_string(), run(number));
        }
        assert!(finished.run("0").is_err());
        assert_eq!(finished.run("1").map(|kept| code_bytes(&kept)).ok(), Some(1));
        finished.keep("2", run(7));
        assert_eq!(finished.run("2").map(|kept| code_bytes(&kept)).ok(), Some(7));
        assert!(finished.run("1").is_ok(), "one took the place of another");
        finished.forget("1");
        assert!(finished.run("1").is_err());
    }

    #[test]
    fn large_runs_take_the_place_of_others() {
        let finished = Finished::default();
        finished.keep("small", run(1));
        finished.keep("half", run(BYTES_MAX / 2));
        assert!(finished.run("small").is_ok());
        finished.keep("large", run(BYTES_MAX + 1));
        assert!(finished.run("small").is_err() && finished.run("half").is_err() && finished.run("large").is_ok());
    }
}
