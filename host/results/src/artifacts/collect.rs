//! Making room, and garbage collection.

use std::{
    fs::{self, File},
    time::{Duration, SystemTime},
};

use super::{
    Artifact, ArtifactError, ArtifactStore, Label, failed, names_in, read_json, remove_file,
    survey::Held,
    totals::{Totals, seconds},
};

/// Divisor of the headroom that an eviction makes: it frees an additional eighth of the quota. Eviction scans the whole
/// store, and the headroom keeps the next artifacts from scanning it again.
const SLACK: u64 = 8;
/// Divisor of the age limit: sweeps for expired artifacts are at least that fraction of the limit apart.
const AGE_PARTS: u64 = 64;

/// Selection of the artifacts to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// Age limit: artifacts that were neither stored nor read for longer are removed.
    pub unused_for: Option<Duration>,
    /// True to remove artifacts that no session refers to.
    pub unreferenced: bool,
    /// Size limit of the store: the least recently used artifacts are removed until the rest has no more bytes.
    pub total_bytes: Option<u64>,
}

/// Totals of the removed artifacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// Number of artifacts.
    pub count: usize,
    /// Bytes of these artifacts.
    pub size_bytes: u64,
}

/// Returns a predicate: true if an artifact was not used for longer than `longest`. Without a limit, it is always false.
fn is_unused_for(longest: Option<Duration>) -> impl Fn(&Artifact) -> bool {
    let now = SystemTime::now();
    move |artifact| {
        let unused = now.duration_since(artifact.used_at).unwrap_or_default();
        longest.is_some_and(|longest| unused > longest)
    }
}

/// An artifact that is to be stored, or that grows while it is written.
#[derive(Debug)]
pub(super) struct Coming<'a> {
    /// Id of the artifact, if it is about to be stored.
    pub(super) id: Option<&'a str>,
    pub(super) bytes: u64,
    /// True if the artifact is stored already.
    pub(super) is_counted: bool,
    /// Bytes of other unfinished artifacts: those in the whole store, and those of the same holder.
    pub(super) others: (u64, u64),
}

/// An upper bound on count and bytes.
struct Bound {
    count: usize,
    bytes: u64,
}

impl Bound {
    fn allows(&self, totals: &Totals, more: usize, bytes: u64) -> bool {
        totals.count.saturating_add(more) <= self.count && totals.bytes.saturating_add(bytes) <= self.bytes
    }

    /// Returns the lower bound down to which an eviction removes artifacts.
    fn after(&self) -> Bound {
        let count = self.count.saturating_sub(self.count.checked_div(SLACK as usize).unwrap_or_default());
        Bound { count, bytes: self.bytes.saturating_sub(self.bytes / SLACK) }
    }
}

impl ArtifactStore {
    /// Removes the selected artifacts, and the unfinished files of killed processes.
    ///
    /// # Errors
    /// `Io`.
    pub fn collect(&self, collection: &Collection) -> Result<Collected, ArtifactError> {
        let _lock = self.lock()?;
        self.forget_totals()?;
        self.remove_unfinished()?;
        let mut all = self.by_use()?;
        let mut collected = Collected::default();
        let is_old = is_unused_for(collection.unused_for);
        let goes = |artifact: &Artifact| (collection.unreferenced && artifact.sessions.is_empty()) || is_old(artifact);
        for held in all.extract_if(.., |held| !held.is_pinned && goes(&held.artifact)) {
            self.take_away(&held, &mut collected)?;
        }
        if let Some(most) = collection.total_bytes {
            let mut total: u64 = all.iter().map(|held| held.artifact.size_bytes).sum();
            all.retain(|held| !held.is_pinned);
            while total > most
                && let Some(held) = all.pop()
            {
                total = total.saturating_sub(held.artifact.size_bytes);
                self.take_away(&held, &mut collected)?;
            }
        }
        self.remove_dangling()?;
        Ok(collected)
    }

    /// All that is kept, the most recently used first.
    pub(super) fn by_use(&self) -> Result<Vec<Held>, ArtifactError> {
        let mut all: Vec<Held> = self.survey(None)?.into_values().collect();
        all.sort_by(|a, b| {
            let (a, b) = (&a.artifact, &b.artifact);
            b.used_at.cmp(&a.used_at).then_with(|| a.id.cmp(&b.id))
        });
        Ok(all)
    }

    fn take_away(&self, held: &Held, collected: &mut Collected) -> Result<(), ArtifactError> {
        self.remove(held)?;
        self.forget_later(&held.artifact.id)?;
        collected.count = collected.count.saturating_add(1);
        collected.size_bytes = collected.size_bytes.saturating_add(held.artifact.size_bytes);
        Ok(())
    }

    /// Makes room for an artifact. The caller holds the store's lock. Returns the totals of the store and of the holder, to
    /// be written once the artifact is stored.
    pub(super) fn make_room(&self, holder: &str, coming: &Coming<'_>) -> Result<(Totals, Totals), ArtifactError> {
        let quota = self.quota();
        let of_store = Bound { count: quota.total_count, bytes: quota.total_bytes };
        let of_holder = Bound { count: quota.session_count, bytes: quota.session_bytes };
        let (all, held) = (self.take_all()?, self.take_held(holder)?);
        let (more, bytes) = if coming.is_counted { (0, 0) } else { (usize::from(coming.id.is_some()), coming.bytes) };
        let fits = of_store.allows(&all, more, coming.others.0.saturating_add(bytes))
            && of_holder.allows(&held, more, coming.others.1.saturating_add(bytes));
        let is_old = quota.unused_for.is_some_and(|longest| {
            let (now, longest) = (seconds(SystemTime::now()), longest.as_secs());
            now.saturating_sub(all.oldest) > longest && now.saturating_sub(all.swept_at) > longest / AGE_PARTS
        });
        if fits && !is_old {
            return Ok((all, held));
        }
        self.look_and_make_room(holder, coming, [of_store, of_holder])
    }

    fn look_and_make_room(
        &self,
        holder: &str,
        coming: &Coming<'_>,
        [of_store, of_holder]: [Bound; 2],
    ) -> Result<(Totals, Totals), ArtifactError> {
        // Those of other holders, and of this one if this is cut short.
        self.forget_totals()?;
        let mut others = self.by_use()?;
        let same: Vec<Held> = others.extract_if(.., |held| Some(held.artifact.id.as_str()) == coming.id).collect();
        let is_old = is_unused_for(self.quota().unused_for);
        for held in others.extract_if(.., |held| !held.is_pinned && is_old(&held.artifact)) {
            self.remove(&held)?;
        }
        // Those that nobody refers to come last, and go first.
        others.sort_by_key(|held| held.holders.is_empty());
        // What datasets hold stays. It is counted, and so are its totals.
        let pinned: Vec<Held> = others.extract_if(.., |held| held.is_pinned).collect();
        let own = |held: &Held| held.holders.iter().any(|name| name == holder);
        // What is stored already is not among the others, so that it counts as coming.
        let more = usize::from(coming.id.is_some());
        let bytes = coming.others.1.saturating_add(coming.bytes);
        let mut left = sum(others.iter().chain(&pinned).filter(|held| own(held)));
        if !of_holder.allows(&left, more, bytes) {
            let bound = of_holder.after();
            while !bound.allows(&left, more, bytes)
                && let Some(place) = others.iter().rposition(own)
            {
                let held = &mut others[place];
                left.subtract(held.artifact.size_bytes);
                remove_file(&self.notes().join(holder).join(&held.artifact.id))?;
                held.holders.retain(|name| name != holder);
                if held.holders.is_empty() {
                    self.remove(&others.remove(place))?;
                }
            }
            if !of_holder.allows(&left, more, bytes) {
                return Err(ArtifactError::Full);
            }
        }
        let bytes = coming.others.0.saturating_add(coming.bytes);
        let mut left = sum(others.iter().chain(&pinned));
        if !of_store.allows(&left, more, bytes) {
            let bound = of_store.after();
            while !bound.allows(&left, more, bytes)
                && let Some(held) = others.pop()
            {
                left.subtract(held.artifact.size_bytes);
                self.remove(&held)?;
            }
            if !of_store.allows(&left, more, bytes) {
                return Err(ArtifactError::Full);
            }
        }
        others.extend(pinned);
        let labels = names_in(&self.agents().join(holder))?.len();
        let all = sum(others.iter().chain(&same));
        Ok((all, Totals { labels, ..sum(others.iter().chain(&same).filter(|held| own(held))) }))
    }

    /// Removes unfinished files of processes that have ended.
    fn remove_unfinished(&self) -> Result<(), ArtifactError> {
        let folder = self.unfinished();
        for entry in fs::read_dir(&folder).map_err(failed(&folder, "read"))?.flatten() {
            if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes labels whose artifacts are gone, and empty folders.
    pub(super) fn remove_dangling(&self) -> Result<(), ArtifactError> {
        for session in names_in(&self.agents())? {
            let folder = self.agents().join(session);
            for name in names_in(&folder)? {
                let label = read_json::<Label>(&folder.join(&name));
                if label.is_none_or(|label| !self.objects().join(label.id).exists()) {
                    remove_file(&folder.join(name))?;
                }
            }
        }
        for parent in [self.agents(), self.notes()] {
            for session in names_in(&parent)? {
                // Only goes when nothing is in it.
                let _ = fs::remove_dir(parent.join(session));
            }
        }
        Ok(())
    }
}

/// Returns the totals of these artifacts.
fn sum<'h>(held: impl IntoIterator<Item = &'h Held>) -> Totals {
    let now = seconds(SystemTime::now());
    let mut totals = Totals { oldest: now, swept_at: now, ..Totals::default() };
    for Held { artifact, .. } in held {
        totals.add(artifact.size_bytes);
        totals.oldest = totals.oldest.min(seconds(artifact.used_at));
    }
    totals
}
