//! Origins of the names of a kernel, and what a run has used so far, for those that it will bind.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use cellar_core::{
    cell::{CellId, Language},
    event::Fetch,
    origin::{DatasetRef, FetchRef, Origin},
    sync::lock,
    time::wall_nanos,
};

use crate::formats::snapshot::{ORIGINS_MAX as NAMES_MAX, StampedState};

/// Bytes of these names and of their origins, each origin counted once for each of its names.
const BYTES_MAX: usize = 8 << 20;
/// Bytes of a name that has an origin.
pub(crate) const NAME_BYTES_MAX: usize = 1_024;
/// Names that one cell reports as bound, and as many as deleted.
pub(crate) const REPORTED_MAX: usize = 4_096;
/// Datasets, and fetches, that an origin refers to; the first of a run.
const REFERENCES_MAX: usize = 256;

/// Producer and gate of a run, and what its cells have used so far.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Producer of the run; if absent, no origins are stamped.
    pub(crate) producer: Option<String>,
    /// The kinds and names that the caller of the run has seen; absent, there is no gate.
    pub(crate) seen: Option<Vec<(String, String)>>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    datasets: Vec<DatasetRef>,
    fetches: Vec<FetchRef>,
    /// The names of the datasets that the run has published itself.
    published: Vec<String>,
}

/// Scope of a cell: that of its run, and the language.
#[derive(Clone, Debug)]
pub(crate) struct CellScope {
    pub(crate) run: Arc<Scope>,
    /// The language of the cell.
    pub(crate) language: Language,
}

impl Scope {
    pub(crate) fn new(producer: Option<String>, seen: Option<Vec<(String, String)>>) -> Scope {
        Scope { producer, seen, used: Mutex::default() }
    }

    /// Notes that a cell of the run was given the rows of a connector.
    pub(crate) fn note_fetch(&self, fetch: &Fetch) {
        let Fetch { connector, fetch, artifact, .. } = fetch;
        let made = FetchRef { connector: connector.clone(), fetch: fetch.clone(), artifact: artifact.clone() };
        add(&mut lock(&self.used).fetches, made);
    }

    /// Notes that a cell of the run was given a version of a dataset.
    pub(crate) fn note_dataset(&self, dataset: DatasetRef) {
        add(&mut lock(&self.used).datasets, dataset);
    }

    /// Notes that a cell of the run has published a dataset.
    pub(crate) fn note_published(&self, name: &str) {
        add(&mut lock(&self.used).published, name.to_owned());
    }

    /// Returns true if the cells of the run may load a dataset: its caller has seen it, it is the run's own, or there is no gate.
    pub(crate) fn has_seen(&self, name: &str) -> bool {
        let is_it = |(kind, seen): &(String, String)| kind == "dataset" && seen == name;
        self.seen.as_ref().is_none_or(|seen| seen.iter().any(is_it))
            || lock(&self.used).published.iter().any(|published| published == name)
    }

    /// The origin of what a cell has bound that ends now; `None` when nothing is to be stamped.
    pub(crate) fn origin(&self, cell: u32, language: Language) -> Option<Origin> {
        let producer = self.producer.clone()?;
        let used = lock(&self.used);
        Some(Origin {
            producer,
            cell: CellId(cell),
            language,
            stamped_at: wall_nanos(),
            datasets: used.datasets.clone(),
            fetches: used.fetches.clone(),
        })
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if list.len() < REFERENCES_MAX && !list.contains(&item) {
        list.push(item);
    }
}

/// The names of a kernel that have an origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    names: BTreeMap<String, Arc<Origin>>,
    bytes: usize,
}

impl Origins {
    /// Gives names an origin, in the place of what they had; of too many, the oldest make room.
    pub(crate) fn stamp(&mut self, names: &[String], origin: &Arc<Origin>) {
        for name in names {
            self.forget(name);
            self.bytes = self.bytes.saturating_add(size_of(name, origin));
            self.names.insert(name.clone(), origin.clone());
        }
        while self.names.len() > NAMES_MAX || self.bytes > BYTES_MAX {
            let oldest = self.names.iter().min_by_key(|(_, origin)| origin.stamped_at);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            self.forget(&name);
        }
    }

    /// Forgets the origin of a name.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(origin) = self.names.remove(name) {
            self.bytes = self.bytes.saturating_sub(size_of(name, &origin));
        }
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, Arc<Origin>> {
        self.names.clone()
    }

    /// Returns the state for a snapshot: each origin once.
    pub(crate) fn stamped(&self) -> Vec<StampedState> {
        let mut by_origin: Vec<(&Arc<Origin>, Vec<String>)> = Vec::new();
        let mut places = BTreeMap::new();
        for (name, origin) in &self.names {
            let place = *places.entry(Arc::as_ptr(origin)).or_insert_with(|| {
                by_origin.push((origin, Vec::new()));
                by_origin.len().saturating_sub(1)
            });
            if let Some((_, names)) = by_origin.get_mut(place) {
                names.push(name.clone());
            }
        }
        by_origin.into_iter().map(|(origin, names)| StampedState { origin: Origin::clone(origin), names }).collect()
    }

    /// Restores the origins of a snapshot, within the bounds.
    pub(crate) fn of(stamped: &[StampedState]) -> Origins {
        let mut origins = Origins::default();
        for StampedState { origin, names } in stamped.iter().take(NAMES_MAX) {
            origins.stamp(names, &Arc::new(origin.clone()));
        }
        origins
    }
}

fn size_of(name: &str, origin: &Origin) -> usize {
    name.len().saturating_add(origin.size_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(stamped_at: u64, producer: &str) -> Arc<Origin> {
        let scope = Scope::new(Some(producer.to_owned()), None);
        Arc::new(Origin { stamped_at, ..scope.origin(1, Language::Python).unwrap() })
    }

    #[test]
    fn the_oldest_names_make_room() {
        let mut origins = Origins::default();
        origins.stamp(&["first".to_owned()], &origin(1, "a"));
        let names: Vec<_> = (0..NAMES_MAX).map(|number| format!("n{number}")).collect();
        origins.stamp(&names, &origin(2, "b"));
        assert_eq!((origins.all().len(), origins.all().contains_key("first")), (NAMES_MAX, false));
        origins.stamp(&["large".to_owned()], &origin(3, &"p".repeat(BYTES_MAX)));
        assert!(origins.bytes <= BYTES_MAX && origins.all().is_empty());
    }

    #[test]
    fn a_snapshot_has_each_origin_once() {
        let mut origins = Origins::default();
        origins.stamp(&["a".to_owned(), "b".to_owned()], &origin(1, "x"));
        origins.stamp(&["c".to_owned()], &origin(2, "y"));
        let stamped = origins.stamped();
        assert_eq!(stamped.len(), 2);
        assert_eq!(Origins::of(&stamped).all(), origins.all());
    }
}
