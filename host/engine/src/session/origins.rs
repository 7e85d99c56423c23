//! Origins of the names of a session.

use std::{collections::BTreeMap, sync::Arc};

use cellar_core::{
    cell::Language,
    origin::{Origin, PRODUCER_BYTES_MAX, SEEN_BYTES_MAX, SEEN_MAX},
    run::RunOptions,
    sync::lock,
};

use super::Session;
use crate::{
    contract::error::Error,
    formats::snapshot::Snapshot,
    kernel::{
        origins::{Origins, Scope},
        state::KernelLink,
    },
};

impl Session {
    /// Returns the origins of a language's names that were bound by cells of runs with a
    /// [producer](crate::config::RunOptions). Does not enter the guest, and starts no kernel.
    ///
    /// Origins are part of a kernel's state: snapshots, forks and stored sessions contain them, a restore brings back those
    /// of then, and a reset removes them. A run without a producer changes none, even if it binds the name anew.
    ///
    /// # Errors
    /// `SessionClosed`; `Store` or `Snapshot` when the stored state of the session cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn origins(&self, language: Language) -> Result<BTreeMap<String, Arc<Origin>>, Error> {
        let (link, slot) = {
            let kernels = lock(&self.inner.kernels);
            if kernels.closed {
                return Err(Error::SessionClosed(self.inner.id.clone()));
            }
            let live = kernels.live.get(&language).filter(|kernel| !kernel.commands.is_closed());
            (live.map(|kernel| kernel.link.clone()), kernels.slots.get(&language).cloned())
        };
        let known = |link: &Arc<KernelLink>| lock(&link.origins).as_ref().map(Origins::all);
        if let Some(origins) = link.as_ref().and_then(known) {
            return Ok(origins);
        }
        // A kernel that is about to start goes on from its slot.
        let Some(slot) = slot else { return Ok(BTreeMap::new()) };
        let kept = slot.load().await?;
        Ok(kept.map(|kept| Origins::of(&kept.image.state.origins).all()).unwrap_or_default())
    }

    /// Returns the origin of one name; `None` for a name that has no origin. See [`origins`](Session::origins).
    ///
    /// # Errors
    /// As [`origins`](Session::origins).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn origin(&self, language: Language, name: &str) -> Result<Option<Arc<Origin>>, Error> {
        Ok(self.origins(language).await?.remove(name))
    }
}

impl Snapshot {
    /// Returns the origins in the snapshot, each with its name. Names of several languages may be the same.
    pub fn origins(&self) -> Vec<(String, Origin)> {
        let states = self.kernels.iter().map(|image| &image.state);
        let stamped = states.flat_map(|state| Origins::of(&state.origins).all());
        stamped.map(|(name, origin)| (name, Origin::clone(&origin))).collect()
    }
}

/// The scope that options give the cells of a run; none where they say nothing. `is_nested` says that the run is made within
/// one that names its producer.
///
/// # Errors
/// `Request` for what goes past a bound, `NestedProducer`.
pub(super) fn scope(options: RunOptions, is_nested: bool) -> Result<Option<Scope>, Error> {
    let RunOptions { producer, dry_run, seen } = options;
    if let Some(producer) = &producer
        && (producer.is_empty() || producer.len() > PRODUCER_BYTES_MAX)
    {
        let size = producer.len();
        return Err(Error::Request(format!("a producer has 1 to {PRODUCER_BYTES_MAX} bytes, not {size}")));
    }
    let seen_too_much = |seen: &Vec<(String, String)>| {
        let is_long = |(kind, name): &(String, String)| kind.len().max(name.len()) > SEEN_BYTES_MAX;
        seen.len() > SEEN_MAX || seen.iter().any(is_long)
    };
    if seen.as_ref().is_some_and(seen_too_much) {
        return Err(Error::Request(format!(
            "what is seen has at most {SEEN_MAX} names of at most {SEEN_BYTES_MAX} bytes each"
        )));
    }
    match producer.filter(|_| !dry_run) {
        Some(producer) if is_nested => Err(Error::NestedProducer { producer }),
        None if seen.is_none() => Ok(None),
        producer => Ok(Some(Scope::new(producer, seen))),
    }
}
