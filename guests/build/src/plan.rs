//! The order of a build.
//!
//! With the host, cargo compiles it while those guests are built that the first cells need. They are baked as soon as both are
//! there. The guest that takes longest comes last, when all cores are free for it.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Error, Result};

use crate::guest::{self, Guest};
use crate::process::stop_all;
use crate::times::Step;
use crate::workshop::Workshop;
use crate::{host, progress, times};

/// The guest that takes longer than all others together.
const LONGEST: &str = "python-data";

/// A build.
pub(crate) struct Plan<'a> {
    pub(crate) guests: Vec<&'static dyn Guest>,
    /// Folder for the finished guests.
    pub(crate) out: &'a Path,
    /// True to build again what the cache has.
    pub(crate) force: bool,
    /// True to compile the host meanwhile, and to bake the guests with it.
    pub(crate) host: bool,
}

impl Plan<'_> {
    /// Carries out the plan. Finished steps are kept, so that the next build continues where this one failed.
    ///
    /// # Errors
    /// Error of the first step that failed; the steps beside it are stopped.
    pub(crate) fn carry_out(&self, workshop: &Workshop) -> Result<()> {
        progress::expect(self.expected(workshop));
        let (last, first): (Vec<_>, Vec<_>) = self.guests.iter().copied().partition(|guest| guest.name() == LONGEST);
        let failure = Mutex::new(None::<Error>);
        let note = |done: Result<()>| {
            if let Err(error) = done {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                stop_all();
            }
        };
        std::thread::scope(|scope| {
            if self.host {
                scope.spawn(|| note(host::compile(workshop)));
            }
            note(self.make(workshop, &first));
        });
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if self.bake(workshop, &first)? {
            host::show_first_cells(workshop, self.out, &first)?;
        }
        self.make(workshop, &last)?;
        self.bake(workshop, &last)?;
        Ok(())
    }

    /// The steps of earlier builds that are likely to be done: those of what no version is there of.
    fn expected(&self, workshop: &Workshop) -> Vec<Step> {
        let is_missing = |step: &Step| match (step.name.as_str(), step.title.as_str()) {
            (host::NAME, _) => self.host && !host::is_there(workshop),
            (names, host::BAKE) => self.host && names.split(", ").any(|name| !workshop.cache.has("baked", name)),
            (name, _) => !["guests", "libraries", "profiles", "sources", "toolchains"]
                .iter()
                .any(|kind| workshop.cache.has(kind, name)),
        };
        times::known(&workshop.root, workshop.cache.root()).into_iter().filter(is_missing).collect()
    }

    fn make(&self, workshop: &Workshop, guests: &[&dyn Guest]) -> Result<()> {
        guests.iter().try_for_each(|guest| guest::build(workshop, *guest, self.out, self.force))
    }

    /// Bakes guests, and says whether there was anything to do.
    fn bake(&self, workshop: &Workshop, guests: &[&dyn Guest]) -> Result<bool> {
        let names: Vec<_> = guests.iter().map(|guest| guest.name()).collect();
        if self.host && !names.is_empty() { host::bake(workshop, self.out, &names) } else { Ok(false) }
    }
}
