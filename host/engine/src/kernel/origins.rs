//! Origins of the names of a kernel, and what a run has used so far, for those that it will bind.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use cellar_core::{
    cell::{CellId, Language},
    event::Fetch,
    origin::{DatasetRef, DerivedFrom, FetchRef, Origin},
    run::RunOptions,
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
/// Cells of a kernel whose scope is known although they have ended.
pub(crate) const SCOPES_MAX: usize = 1_024;
/// Datasets, fetches, and names, that an origin refers to; the first of a run.
const REFERENCES_MAX: usize = 256;

/// Producer and gate of a run, and what its cells have used so far.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Producer of the run; if absent, no origins are stamped.
    pub(crate) producer: Option<String>,
    /// True if the run stamps and publishes nothing.
    pub(crate) is_dry: bool,
    /// The kinds and names that the caller of the run has seen; absent, the run has no gate of its own.
    pub(crate) seen: Option<Vec<(String, String)>>,
    /// Scope of the run that this one is a part of: its cell started the process or the fork, or called the agent, that makes this
    /// run. Its gate holds here as well, and what is used here is used there.
    within: Option<Arc<Scope>>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    datasets: Vec<DatasetRef>,
    fetches: Vec<FetchRef>,
    /// The names of the datasets that the run has published itself.
    published: Vec<String>,
}

/// Names that the guest reports at the end of a cell.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) bound: Vec<String>,
    pub(crate) deleted: Vec<String>,
    /// Names that the cell has read.
    pub(crate) read: Vec<String>,
    /// Number of names that were bound and are not listed.
    pub(crate) left_out: u32,
}

/// Scopes of the latest cells of a kernel, those that have not ended among them.
#[derive(Debug, Default)]
pub(crate) struct EndedScopes {
    /// The oldest first.
    scopes: VecDeque<(u32, CellScope)>,
    /// True if a cell with a gate is no longer among them.
    has_lost_gate: bool,
}

impl EndedScopes {
    /// Adds the scope of a cell; the oldest makes room.
    pub(crate) fn put(&mut self, cell: u32, scope: CellScope) {
        self.scopes.push_back((cell, scope));
        if self.scopes.len() > SCOPES_MAX
            && let Some((_, scope)) = self.scopes.pop_front()
        {
            self.has_lost_gate |= scope.run.is_gated();
        }
    }

    /// Scope of a cell that has ended.
    pub(crate) fn get(&self, cell: u32) -> Option<CellScope> {
        let known = self.scopes.iter().rev().find(|(id, _)| *id == cell).map(|(_, scope)| scope.clone());
        let has_gate = || self.has_lost_gate || self.scopes.iter().any(|(_, scope)| scope.run.is_gated());
        known.or_else(|| has_gate().then(|| CellScope { run: Arc::new(Scope::closed()), language: Language::Python }))
    }

    /// The cells with a gate.
    pub(crate) fn gated(&self) -> Vec<u32> {
        let gated = self.scopes.iter().filter(|(_, scope)| scope.run.is_gated()).map(|(cell, _)| *cell);
        // No cell has this number: whoever is not known has no other.
        gated.chain(self.has_lost_gate.then_some(u32::MAX)).collect()
    }

    /// Takes in the cells of another life that had a gate: nothing passes it any more.
    pub(crate) fn close(&mut self, cells: &[u32], language: Language) {
        let known: BTreeSet<u32> = self.scopes.iter().map(|(cell, _)| *cell).collect();
        for cell in cells.iter().filter(|cell| !known.contains(cell)) {
            self.scopes.push_front((*cell, CellScope { run: Arc::new(Scope::closed()), language }));
        }
        self.scopes.truncate(SCOPES_MAX);
    }
}

/// Scope of a cell: that of its run, and the language.
#[derive(Clone, Debug)]
pub(crate) struct CellScope {
    pub(crate) run: Arc<Scope>,
    /// The language of the cell.
    pub(crate) language: Language,
}

impl Scope {
    /// Scope of a run that says this of itself, within another one.
    pub(crate) fn new(options: RunOptions, within: Option<Arc<Scope>>) -> Scope {
        let RunOptions { producer, dry_run, seen } = options;
        Scope { producer: producer.filter(|_| !dry_run), is_dry: dry_run, seen, within, used: Mutex::default() }
    }

    /// Gate that lets nothing through.
    pub(crate) fn closed() -> Scope {
        Scope { seen: Some(Vec::new()), ..Scope::default() }
    }

    /// The scope and those that it is within, the innermost first.
    fn all(&self) -> impl Iterator<Item = &Scope> {
        std::iter::successors(Some(self), |scope| scope.within.as_deref())
    }

    /// Returns true if the run, or one that it is within, names its producer.
    pub(crate) fn is_produced(&self) -> bool {
        self.all().any(|scope| scope.producer.is_some())
    }

    /// Returns true if the run, or one that it is within, is to leave nothing behind.
    pub(crate) fn is_dry(&self) -> bool {
        self.all().any(|scope| scope.is_dry)
    }

    /// Returns true if the run, or one that it is within, has a gate.
    pub(crate) fn is_gated(&self) -> bool {
        self.all().any(|scope| scope.seen.is_some())
    }

    /// Notes that a cell of the run was given the rows of a connector.
    pub(crate) fn note_fetch(&self, fetch: &Fetch) {
        let Fetch { connector, fetch, artifact, .. } = fetch;
        let made = FetchRef { connector: connector.clone(), fetch: fetch.clone(), artifact: artifact.clone() };
        self.all().for_each(|scope| add(&mut lock(&scope.used).fetches, made.clone()));
    }

    /// Notes that a cell of the run was given a version of a dataset.
    pub(crate) fn note_dataset(&self, dataset: &DatasetRef) {
        self.all().for_each(|scope| add(&mut lock(&scope.used).datasets, dataset.clone()));
    }

    /// Notes that a cell of the run has published a dataset.
    pub(crate) fn note_published(&self, name: &str) {
        self.all().for_each(|scope| add(&mut lock(&scope.used).published, name.to_owned()));
    }

    /// Returns true if the cells of the run may load a dataset: each gate around them names it, or the run within that gate
    /// has published it.
    pub(crate) fn has_seen(&self, name: &str) -> bool {
        let is_it = |(kind, seen): &(String, String)| kind == "dataset" && seen == name;
        self.all().all(|scope| {
            scope.seen.as_ref().is_none_or(|seen| seen.iter().any(is_it))
                || lock(&scope.used).published.iter().any(|published| published == name)
        })
    }

    /// The origin of what a cell has bound that ends now; `None` when nothing is to be stamped. It derives from `derived_from`.
    pub(crate) fn origin(&self, cell: u32, language: Language, derived_from: Vec<DerivedFrom>) -> Option<Origin> {
        let producer = self.producer.clone()?;
        let used = lock(&self.used);
        Some(Origin {
            producer,
            cell: CellId(cell),
            language,
            stamped_at: wall_nanos(),
            datasets: used.datasets.clone(),
            fetches: used.fetches.clone(),
            derived_from,
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
    /// Origins by their cell: those of the names, and those that these derive from.
    cells: BTreeMap<CellId, Arc<Origin>>,
}

impl Origins {
    /// Returns true if no name has an origin.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns those of these names that have an origin, with what tells it apart.
    pub(crate) fn derived_from(&self, names: &[String]) -> Vec<DerivedFrom> {
        let known = names.iter().filter_map(|name| {
            let origin = self.names.get(name)?;
            Some(DerivedFrom { name: name.clone(), producer: origin.producer.clone(), cell: origin.cell })
        });
        known.take(REFERENCES_MAX).collect()
    }

    /// Returns an origin with the datasets and fetches of all that it derives from, for whoever has nothing but this one.
    pub(crate) fn with_sources(&self, origin: &Origin) -> Origin {
        let mut whole = origin.clone();
        let mut reached = BTreeSet::new();
        let mut next: VecDeque<CellId> = origin.derived_from.iter().map(|each| each.cell).collect();
        while let Some(cell) = next.pop_front() {
            if let Some(from) = self.cells.get(&cell).filter(|_| reached.insert(cell)) {
                from.datasets.iter().for_each(|each| add(&mut whole.datasets, each.clone()));
                from.fetches.iter().for_each(|each| add(&mut whole.fetches, each.clone()));
                next.extend(from.derived_from.iter().map(|each| each.cell));
            }
        }
        whole
    }

    /// Returns the origins that those of names derive from, directly or by others, and that no name has any more.
    pub(crate) fn former(&self) -> Vec<Arc<Origin>> {
        let (current, reached) = self.reached();
        reached
            .into_iter()
            .filter(|cell| !current.contains(cell))
            .filter_map(|cell| self.cells.get(&cell).cloned())
            .collect()
    }

    /// The cells of the origins of names, and these with all that they derive from.
    fn reached(&self) -> (BTreeSet<CellId>, BTreeSet<CellId>) {
        let current: BTreeSet<CellId> = self.names.values().map(|origin| origin.cell).collect();
        let mut reached = current.clone();
        let mut next: Vec<CellId> = current.iter().copied().collect();
        while let Some(cell) = next.pop() {
            let derived = self.cells.get(&cell).map(|origin| origin.derived_from.as_slice()).unwrap_or_default();
            next.extend(derived.iter().map(|each| each.cell).filter(|cell| reached.insert(*cell)));
        }
        (current, reached)
    }

    /// Keeps an origin as long as a name derives from it.
    fn keep(&mut self, origin: &Arc<Origin>) {
        self.cells.insert(origin.cell, origin.clone());
        let bytes =
            |cells: &BTreeMap<CellId, Arc<Origin>>| cells.values().map(|origin| origin.size_bytes()).sum::<usize>();
        if self.cells.len() <= SCOPES_MAX && !self.cells.len().is_multiple_of(64) {
            return;
        }
        let (_, reached) = self.reached();
        self.cells.retain(|cell, _| reached.contains(cell) || *cell == origin.cell);
        while self.cells.len() > NAMES_MAX || bytes(&self.cells) > BYTES_MAX {
            self.cells.pop_first();
        }
    }

    /// Gives names an origin, in the place of what they had; of too many, the oldest make room. Returns the number of names that
    /// lost theirs so.
    pub(crate) fn stamp(&mut self, names: &[String], origin: &Arc<Origin>) -> usize {
        for name in names {
            self.forget(name);
            self.bytes = self.bytes.saturating_add(size_of(name, origin));
            self.names.insert(name.clone(), origin.clone());
        }
        let mut evicted = 0_usize;
        while self.names.len() > NAMES_MAX || self.bytes > BYTES_MAX {
            let oldest = self.names.iter().min_by_key(|(_, origin)| origin.stamped_at);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            self.forget(&name);
            evicted = evicted.saturating_add(1);
        }
        self.keep(origin);
        evicted
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
        let former = self.former();
        let former = former.iter().map(|origin| StampedState { origin: Origin::clone(origin), names: Vec::new() });
        let current = by_origin.into_iter();
        let current = current.map(|(origin, names)| StampedState { origin: Origin::clone(origin), names });
        current.chain(former).take(NAMES_MAX).collect()
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
        let options = RunOptions { producer: Some(producer.to_owned()), ..RunOptions::default() };
        let scope = Scope::new(options, None);
        let cell = u32::try_from(stamped_at).unwrap();
        Arc::new(Origin { stamped_at, ..scope.origin(cell, Language::Python, Vec::new()).unwrap() })
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
