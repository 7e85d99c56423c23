//! Names that a cell reports as bound, stamped with their origin.

use std::sync::Arc;

use cellar_core::{
    event::{EventKind, HostStatus, Scalar},
    sync::lock,
};

use super::StoreData;
use crate::kernel::origins::{CellScope, REPORTED_MAX, Reported};

impl StoreData {
    /// Takes in what a cell has bound, deleted and read by its end. Of a cell that is not live, nothing is taken in: the guest
    /// was not asked. Names that get no origin lose the one that they had.
    pub(crate) async fn note_bound(&mut self, cell: u32, found: Reported) {
        let Reported { bound: names, deleted, read, left_out } = found;
        if names.is_empty() && deleted.is_empty() {
            return;
        }
        // A fetch whose end was not told is one of those that the names may come from.
        self.flush_text().await;
        let Some(live) = self.cells.get_mut(&cell).filter(|_| !self.is_looking) else { return };
        // A guest says it once: what comes again is no more heard of.
        if std::mem::replace(&mut live.has_told_names, true) {
            return;
        }
        let Some(scope) = live.origin.scope.clone() else { return };
        let (stamped, evicted) = {
            let mut origins = lock(&self.binding.link.origins);
            let known = origins.get_or_insert_default();
            let origin = scope.run.origin(cell, scope.language, known.derived_from(&read)).map(Arc::new);
            deleted.iter().for_each(|name| known.forget(name));
            let evicted = match &origin {
                Some(origin) => known.stamp(&names, origin),
                None => {
                    names.iter().for_each(|name| known.forget(name));
                    0
                }
            };
            (origin, evicted)
        };
        let Some(origin) = stamped else { return };
        let origin = Box::new((*origin).clone());
        self.tell(cell, |index| EventKind::Bound { index, origin, names, deleted }).await;
        let count = u64::from(left_out).saturating_add(u64::try_from(evicted).unwrap_or(u64::MAX));
        if count > 0 {
            let count = Scalar::Integer(i64::try_from(count).unwrap_or(i64::MAX));
            let most = Scalar::Integer(i64::try_from(REPORTED_MAX).unwrap_or(i64::MAX));
            let fields = vec![("count".to_owned(), count), ("names_of_a_cell".to_owned(), most)];
            self.report_status(cell, HostStatus::OriginsLeftOut, fields).await;
        }
    }

    /// Scope of a cell, whether or not it has ended. Code of no cell that is known has a gate that lets nothing through where
    /// any cell has had a gate.
    pub(crate) fn scope_of(&self, cell: u32) -> Option<CellScope> {
        match self.cells.get(&cell) {
            Some(live) => live.origin.scope.clone(),
            None => lock(&self.binding.link.ended).get(cell),
        }
    }
}
