//! Names that a cell reports as bound, stamped with their origin.

use std::sync::Arc;

use cellar_core::{event::EventKind, sync::lock};

use super::StoreData;

impl StoreData {
    /// Takes in what a cell has bound and deleted by its end. Of a cell that is not live, or of a run without a producer,
    /// nothing is taken in: the guest was not asked.
    pub(crate) async fn note_bound(&mut self, cell: u32, names: Vec<String>, deleted: Vec<String>) {
        if names.is_empty() && deleted.is_empty() {
            return;
        }
        // A fetch whose end was not told is one of those that the names may come from.
        self.flush_text().await;
        let live = self.cells.get_mut(&cell).filter(|_| !self.is_looking);
        // A guest says it once: what comes again is no more heard of.
        let Some(scope) = live.and_then(|live| live.origin.scope.take()) else { return };
        let Some(origin) = scope.run.origin(cell, scope.language) else { return };
        let shared = Arc::new(origin);
        {
            let mut origins = lock(&self.binding.link.origins);
            let known = origins.get_or_insert_default();
            deleted.iter().for_each(|name| known.forget(name));
            known.stamp(&names, &shared);
        }
        let origin = Box::new((*shared).clone());
        self.tell(cell, |index| EventKind::Bound { index, origin, names, deleted }).await;
    }
}
