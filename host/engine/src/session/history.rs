//! History of the sources of a session's cells, within bounds.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use cellar_core::{
    cell::{Cell, CellId, Language},
    limits::{HISTORY_BYTES_MAX, HISTORY_CELLS_MAX},
    sync::lock,
};

use super::Session;

/// Source of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellSource {
    /// The cell's number in the session.
    pub id: CellId,
    /// Its language.
    pub language: Language,
    /// Its source.
    pub code: Arc<str>,
}

/// The latest cells, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    cells: VecDeque<CellSource>,
    bytes: usize,
}

impl History {
    /// Adds a cell and evicts the oldest ones. Does not keep a cell with a source larger than the whole history may be.
    pub(crate) fn add(&mut self, cell: CellSource) {
        self.bytes = self.bytes.saturating_add(cell.code.len());
        self.cells.push_back(cell);
        while self.bytes > HISTORY_BYTES_MAX || self.cells.len() > HISTORY_CELLS_MAX {
            let Some(oldest) = self.cells.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(oldest.code.len());
        }
    }

    /// The cell of this number, if it is kept.
    pub(crate) fn get(&self, id: CellId) -> Option<&CellSource> {
        let place = self.cells.binary_search_by_key(&id, |cell| cell.id).ok()?;
        self.cells.get(place)
    }

    /// Sources in the history, oldest first.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &CellSource> {
        self.cells.iter()
    }
}

impl Session {
    /// The source of a cell of this session. The latest [`HISTORY_CELLS_MAX`] are
    /// kept, over resets as well, as far as they have
    /// [`HISTORY_BYTES_MAX`] together.
    pub fn source(&self, cell: CellId) -> Option<CellSource> {
        lock(&self.inner.cells.history).get(cell).cloned()
    }

    /// Sources of all cells in the history, oldest first; see [`source`](Session::source).
    pub fn sources(&self) -> Vec<CellSource> {
        lock(&self.inner.cells.history).cells().cloned().collect()
    }

    /// Assigns a number to a cell, and adds its source to the history.
    pub(super) fn number(&self, cell: &Cell) -> CellId {
        let mut history = lock(&self.inner.cells.history);
        let id = CellId(self.inner.cells.next.fetch_add(1, Ordering::Relaxed));
        history.add(CellSource { id, language: cell.language, code: cell.code.clone() });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(id: u32, bytes: usize) -> CellSource {
        CellSource { id: CellId(id), language: Language::Python, code: "x".repeat(bytes).into() }
    }

    #[test]
    fn the_latest_are_kept_by_count_and_by_size() {
        let mut history = History::default();
        (1..=HISTORY_CELLS_MAX as u32 + 5).for_each(|id| history.add(cell(id, 1)));
        assert_eq!(history.cells().count(), HISTORY_CELLS_MAX);
        assert_eq!((history.get(CellId(5)), history.get(CellId(6)).map(|cell| cell.id)), (None, Some(CellId(6))));
        history.add(cell(20_000, HISTORY_BYTES_MAX - 10));
        assert_eq!(history.cells().count(), 11);
        history.add(cell(20_001, HISTORY_BYTES_MAX + 1));
        assert_eq!((history.cells().count(), history.bytes), (0, 0));
    }
}
