//! The origins of a result.

use std::sync::Arc;

use cellar_core::origin::Origin;

use super::RunResult;

/// Maximum number of names whose origins a result holds. A kernel holds no more.
const NAMES_MAX: usize = 10_000;

impl RunResult {
    /// Records the names that a cell has bound and deleted.
    pub(super) fn bound(&mut self, origin: &Origin, names: &[String], deleted: &[String]) {
        for name in deleted {
            self.origins.remove(name);
        }
        let origin = Arc::new(origin.clone());
        for name in names {
            if self.origins.len() < NAMES_MAX || self.origins.contains_key(name) {
                self.origins.insert(name.clone(), origin.clone());
            }
        }
    }
}
