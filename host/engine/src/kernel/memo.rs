//! The fetches that a kernel remembers: what was asked, and the artifact that has the rows.

use std::collections::VecDeque;

use cellar_core::event::Fetch;

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
}

impl Memo {
    /// The fetch of these canonical arguments.
    pub(crate) fn get(&self, connector: &str, fetch: &str, arguments: &str) -> Option<&Fetch> {
        let is_it =
            |known: &&Fetch| known.connector == connector && known.fetch == fetch && known.arguments == arguments;
        self.fetches.iter().find(is_it)
    }

    /// Remembers a fetch in the place of an earlier one with its arguments. One without an artifact is forgotten.
    pub(crate) fn put(&mut self, fetch: &Fetch) {
        let is_other = |known: &Fetch| {
            known.connector != fetch.connector || known.fetch != fetch.fetch || known.arguments != fetch.arguments
        };
        self.fetches.retain(is_other);
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
