//! The fetches that a kernel remembers: what was asked, and the artifact that has the rows.

use std::collections::VecDeque;

use cellar_core::event::Fetch;

use super::calls::KeptRows;

/// Fetches that are remembered; the oldest make room.
pub(crate) const FETCHES_MAX: usize = 1_000;
/// Bytes of what is remembered of them.
const BYTES_MAX: usize = 8 << 20;

/// What a kernel remembers. It is captured with the kernel; a reset leaves nothing of it.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// Oldest first. Each has an artifact.
    fetches: VecDeque<Fetch>,
    bytes: usize,
    /// Those whose rows are on their way to the disk.
    under_way: Vec<(Fetch, KeptRows)>,
}

impl Memo {
    /// The fetch of these canonical arguments.
    pub(crate) fn get(&self, connector: &str, fetch: &str, arguments: &str) -> Option<&Fetch> {
        self.fetches.iter().find(|known| is_of(known, connector, fetch, arguments))
    }

    /// The rows of a fetch of these arguments, if they are on their way to the disk. Once they are there, it is remembered.
    pub(crate) fn under_way(&self, connector: &str, fetch: &str, arguments: &str) -> Option<KeptRows> {
        let (_, rows) = self.under_way.iter().rfind(|(known, _)| is_of(known, connector, fetch, arguments))?;
        Some(rows.clone())
    }

    /// Takes note of a fetch whose rows are on their way.
    pub(crate) fn begin(&mut self, fetch: &Fetch, rows: KeptRows) {
        self.under_way.push((fetch.clone(), rows));
    }

    /// Remembers a fetch whose rows have come to the disk, or were lost on the way, unless all was forgotten meanwhile.
    pub(crate) fn end(&mut self, fetch: &Fetch, artifact: Option<&str>) {
        let Some(place) = self.under_way.iter().position(|(known, _)| known == fetch) else { return };
        drop(self.under_way.remove(place));
        self.put(&Fetch { artifact: artifact.map(str::to_owned), ..fetch.clone() });
    }

    /// Remembers a fetch in the place of an earlier one with its arguments. One without an artifact is forgotten.
    fn put(&mut self, fetch: &Fetch) {
        self.fetches.retain(|known| !is_of(known, &fetch.connector, &fetch.fetch, &fetch.arguments));
        if fetch.artifact.is_some() {
            self.fetches.push_back(fetch.clone());
        }
        self.bytes = self.fetches.iter().map(Fetch::size_bytes).fold(0, usize::saturating_add);
        while self.fetches.len() > FETCHES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.fetches.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(oldest.size_bytes());
        }
    }

    /// All of it, for a snapshot.
    pub(crate) fn all(&self) -> Vec<Fetch> {
        self.fetches.iter().cloned().collect()
    }

    /// What a snapshot has, within the bounds.
    pub(crate) fn of(fetches: &[Fetch]) -> Memo {
        let mut memo = Memo::default();
        fetches.iter().take(FETCHES_MAX).for_each(|fetch| memo.put(fetch));
        memo
    }
}

fn is_of(known: &Fetch, connector: &str, fetch: &str, arguments: &str) -> bool {
    known.connector == connector && known.fetch == fetch && known.arguments == arguments
}
