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
    /// of then, and a reset removes them. A name that a run without a producer binds anew has none.
    ///
    /// # Errors
    /// `SessionClosed`; `Store` or `Snapshot` when the stored state of the session cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn origins(&self, language: Language) -> Result<BTreeMap<String, Arc<Origin>>, Error> {
        Ok(self.known_origins(language, Origins::all).await?.unwrap_or_default())
    }

    /// Returns the origins of this language that names derive from, directly or by others, and that no name has any more.
    ///
    /// # Errors
    /// As [`origins`](Session::origins).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn former_origins(&self, language: Language) -> Result<Vec<Arc<Origin>>, Error> {
        Ok(self.known_origins(language, Origins::former).await?.unwrap_or_default())
    }

    async fn known_origins<T>(
        &self,
        language: Language,
        known: impl Fn(&Origins) -> T + Send,
    ) -> Result<Option<T>, Error> {
        let (link, slot) = {
            let kernels = lock(&self.inner.kernels);
            if kernels.closed {
                return Err(Error::SessionClosed(self.inner.id.clone()));
            }
            let live = kernels.live.get(&language).filter(|kernel| !kernel.commands.is_closed());
            (live.map(|kernel| kernel.link.clone()), kernels.slots.get(&language).cloned())
        };
        let live = |link: &Arc<KernelLink>| lock(&link.origins).as_ref().map(&known);
        if let Some(origins) = link.as_ref().and_then(live) {
            return Ok(Some(origins));
        }
        // A kernel that is about to start goes on from its slot.
        let Some(slot) = slot else { return Ok(None) };
        let kept = slot.load().await?;
        Ok(kept.map(|kept| known(&Origins::of(&kept.image.state.origins))))
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

    /// Returns the origins that those of names derive from, and that no name has any more.
    pub fn former_origins(&self) -> Vec<Origin> {
        let states = self.kernels.iter().map(|image| &image.state);
        let former = states.flat_map(|state| Origins::of(&state.origins).former());
        former.map(|origin| Origin::clone(&origin)).collect()
    }
}

/// The scope that options give the cells of a run, `within` that of the run that this one is a part of.
///
/// # Errors
/// `Request` for what goes past a bound, `NestedProducer`.
pub(super) fn scope(options: RunOptions, within: Option<&Arc<Scope>>) -> Result<Scope, Error> {
    let RunOptions { producer, dry_run, seen } = &options;
    if let Some(producer) = producer
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
    match producer.clone().filter(|_| !dry_run) {
        Some(producer) if within.is_some_and(|scope| scope.is_produced()) => Err(Error::NestedProducer { producer }),
        _ => Ok(Scope::new(options, within.cloned())),
    }
}
