//! Fetches that a kernel remembers: their arguments, and the artifact that has the rows.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use cellar_core::event::Fetch;
use cellar_tables::Batches;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::KeptRows;
use crate::contract::bridge::{CallError, FetchName};

/// Fetches that are remembered; the oldest make room.
pub(crate) const FETCHES_MAX: usize = 1_000;
/// Bytes of the fetches that are remembered.
const BYTES_MAX: usize = 8 << 20;

/// A fetch that is awaited.
pub(crate) type Asking = Shared<BoxFuture<'static, Result<UnderWay, CallError>>>;

/// The same while somebody awaits it.
type WeakAsking = WeakShared<BoxFuture<'static, Result<UnderWay, CallError>>>;

/// Name and canonical arguments of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchKey {
    pub(crate) name: FetchName,
    pub(crate) arguments: String,
}

impl FetchKey {
    /// Returns the entry of the fetch log for a fetch that gave no rows.
    pub(crate) fn fetch(&self) -> Fetch {
        Fetch {
            connector: self.name.connector.clone(),
            fetch: self.name.fetch.clone(),
            arguments: self.arguments.clone(),
            fetched_at: 0,
            is_cached: false,
            duration: Duration::ZERO,
            rows: 0,
            columns: Vec::new(),
            head: "[]".to_owned(),
            tail: String::new(),
            artifact: None,
            notice: None,
            error: None,
        }
    }
}

/// Fetches that a kernel remembers. They are captured with the kernel; a reset clears them.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// Oldest first. Each has an artifact.
    fetches: VecDeque<Fetch>,
    bytes: usize,
    under_way: Vec<UnderWay>,
    /// Fetches whose source was asked and has not answered, as long as somebody awaits them.
    asked: Vec<(FetchKey, WeakAsking)>,
}

/// A fetch whose rows are on their way to the disk, and still here.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) fetch: Fetch,
    pub(crate) rows: Arc<Batches>,
    pub(crate) kept: KeptRows,
}

impl Memo {
    /// The fetch of these canonical arguments.
    pub(crate) fn get(&self, connector: &str, fetch: &str, arguments: &str) -> Option<&Fetch> {
        self.fetches.iter().find(|known| is_of(known, connector, fetch, arguments))
    }

    /// The fetch of these arguments whose rows are on their way to the disk. Once they are there, it is remembered.
    pub(crate) fn under_way(&self, connector: &str, fetch: &str, arguments: &str) -> Option<UnderWay> {
        self.under_way.iter().rfind(|known| is_of(&known.fetch, connector, fetch, arguments)).cloned()
    }

    /// The fetch of this name and these arguments whose source has not answered yet.
    pub(crate) fn asked(&self, key: &FetchKey) -> Option<Asking> {
        let asked = self.asked.iter().rev().filter(|(known, _)| known == key);
        asked.filter_map(|(_, asking)| asking.upgrade()).find(|asking| asking.peek().is_none())
    }

    /// Takes note of a fetch whose source is asked now.
    pub(crate) fn ask(&mut self, key: FetchKey, asking: &Asking) {
        self.asked.retain(|(_, asking)| asking.upgrade().is_some_and(|asking| asking.peek().is_none()));
        self.asked.extend(asking.downgrade().map(|asking| (key, asking)));
    }

    /// Takes note of a fetch whose rows are on their way.
    pub(crate) fn begin(&mut self, under_way: UnderWay) {
        self.under_way.push(under_way);
    }

    /// Remembers a fetch whose rows have come to the disk, or were lost on the way, unless all was forgotten meanwhile.
    pub(crate) fn end(&mut self, fetch: &Fetch, artifact: Option<&str>) {
        let Some(place) = self.under_way.iter().position(|known| known.fetch == *fetch) else { return };
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

    /// Returns all fetches, for a snapshot.
    pub(crate) fn all(&self) -> Vec<Fetch> {
        self.fetches.iter().cloned().collect()
    }

    /// Restores the fetches of a snapshot, within the bounds.
    pub(crate) fn of(fetches: &[Fetch]) -> Memo {
        let mut memo = Memo::default();
        fetches.iter().take(FETCHES_MAX).for_each(|fetch| memo.put(fetch));
        memo
    }
}

fn is_of(known: &Fetch, connector: &str, fetch: &str, arguments: &str) -> bool {
    known.connector == connector && known.fetch == fetch && known.arguments == arguments
}
