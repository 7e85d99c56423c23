//! Tables that a kernel lends its guest, which takes them piece by piece, straight to where they are to lie.

use std::{collections::VecDeque, time::Duration};

use cellar_core::{
    event::{EventKind, Fetch},
    limits::CALLS_BYTES_MAX,
};
use cellar_tables::Columns;

use super::{StoreData, sending::Maker};
use crate::{
    contract::bridge::{LentTable, Response},
    kernel::calls::{CallEnd, KeptRows},
};

/// Tables that are lent at a time. A guest takes each as soon as it gets the answer.
const TABLES_MAX: usize = 256;
/// Bytes of one piece, which is copied twice: one that is small stays in the processor's cache in between.
const PIECE_BYTES_MAX: u32 = 256 << 10;

/// The tables that the guest has not taken whole.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// Tables with the number of the call, oldest first.
    tables: VecDeque<Table>,
    /// Bytes of all tables, without those that were taken.
    bytes: usize,
}

#[derive(Debug)]
struct Table {
    number: u64,
    columns: Columns,
}

impl Lent {
    /// Keeps a table; the oldest make room.
    fn put(&mut self, number: u64, columns: Columns) {
        self.bytes = self.bytes.saturating_add(columns.len());
        self.tables.push_back(Table { number, columns });
        while self.tables.len() > TABLES_MAX || (self.bytes > CALLS_BYTES_MAX && self.tables.len() > 1) {
            let Some(oldest) = self.tables.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(oldest.columns.len());
        }
    }

    /// The next bytes of a table; none at its end, and of one that is not here.
    pub(crate) fn take(&mut self, number: u64, length: u32) -> Vec<u8> {
        let Some(place) = self.tables.iter().position(|table| table.number == number) else { return Vec::new() };
        let Some(table) = self.tables.get_mut(place) else { return Vec::new() };
        let length = usize::try_from(length.min(PIECE_BYTES_MAX)).unwrap_or_default();
        let piece = table.columns.take(length);
        self.bytes = self.bytes.saturating_sub(piece.len());
        if table.columns.is_empty() {
            self.tables.remove(place);
        }
        piece
    }
}

/// A fetch that ended.
#[derive(Debug)]
pub(super) struct EndedFetch {
    pub(super) cell: u32,
    pub(super) call: u64,
    pub(super) duration: Duration,
    pub(super) fetch: Box<Fetch>,
    /// Rows that were not kept before.
    pub(super) rows: Option<KeptRows>,
}

impl StoreData {
    /// Reports the end of a fetch. While its rows are on their way to the disk, the guest goes on with them, but the report, and all
    /// events after it, wait until they are there.
    pub(super) async fn end_fetch(&mut self, ended: EndedFetch) {
        // What came before is told before.
        self.flush_text().await;
        let is_kept = ended.rows.is_none();
        self.fetched = Some(ended);
        if is_kept {
            self.tell_of_fetch().await;
        }
    }

    /// Reports the fetch that ended last, unless that was done.
    pub(super) async fn tell_of_fetch(&mut self) {
        let Some(EndedFetch { cell, call, duration, mut fetch, rows }) = self.fetched.take() else { return };
        if let Some(rows) = rows {
            match rows.await {
                Ok(id) => fetch.artifact = Some(id),
                Err(notice) => fetch.notice = Some(notice),
            }
        }
        if let Some(scope) = self.scope_of(cell) {
            scope.run.note_fetch(&fetch);
        }
        self.emit(cell, Maker::Host, |index| EventKind::Fetched { index, call, fetch }).await;
        self.emit(cell, Maker::Host, |index| EventKind::CallFinished { index, call, duration, error: None }).await;
    }

    /// Keeps the table of an answer for the guest, and replaces it in the answer by its number, its bytes and its rows. The
    /// description of the fetch is left in the end of the call. A second call does nothing.
    pub(crate) fn lend(&mut self, end: &mut CallEnd) {
        let Ok(response @ (Response::Table(_) | Response::Rows(_))) = &mut end.result else { return };
        let (rows, columns) = match std::mem::replace(response, Response::Done) {
            Response::Table(table) => {
                let rows = table.fetch.rows;
                end.fetch = Some(Box::new(table.fetch));
                (rows, table.columns)
            }
            Response::Rows(rows) => (rows.rows, rows.columns),
            _ => return,
        };
        let bytes = u64::try_from(columns.len()).unwrap_or(u64::MAX);
        *response = Response::Lent(LentTable { table: end.call, bytes, rows });
        self.tables.put(end.call, columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_taken_piece_by_piece_and_is_gone_then() {
        let mut lent = Lent::default();
        lent.put(1, vec![1, 2, 3].into());
        lent.put(2, vec![4].into());
        assert_eq!(lent.take(1, 2), [1, 2]);
        assert_eq!(lent.take(2, 9), [4]);
        assert_eq!(lent.take(1, 9), [3]);
        assert!(lent.take(1, 9).is_empty() && lent.take(7, 9).is_empty());
        assert_eq!(lent.bytes, 0);
    }

    #[test]
    fn a_guest_that_takes_nothing_is_lent_so_many_tables_only() {
        let mut lent = Lent::default();
        (0..1_000).for_each(|number| lent.put(number, vec![0].into()));
        assert_eq!(lent.tables.len(), TABLES_MAX);
        assert!(lent.take(0, 1).is_empty());
        assert_eq!(lent.take(999, 1), [0]);
    }
}
