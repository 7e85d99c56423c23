//! Entry point of the engine: guests, wasmtime engines and sessions of one process.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use cellar_core::{
    cell::{GuestName, Language},
    sync::lock,
};

use crate::{
    contract::{
        config::{HostConfig, Rests},
        error::Error,
    },
    formats::snapshot::Snapshot,
    kernel::{
        code::{Artifacts, Engines, Flavour, compiling_engine, former_build},
        scheduling::{CpuShare, Sweep, Turns, WEIGHT, start_ticker},
    },
};

mod guest;

pub(crate) use guest::Guest;

/// A process's engine. A cheap handle; everything ends with the last one and the last session.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

/// A former build of a guest in a flavour: the names of both, and the digest of its image.
type FormerKey = (GuestName, &'static str, String);

struct Inner {
    config: HostConfig,
    /// The ticker holds them weakly.
    engines: Arc<Engines>,
    guests: Mutex<HashMap<(GuestName, &'static str), Arc<Guest>>>,
    /// The same for former builds of guests, by their digests too.
    former: Mutex<HashMap<FormerKey, Arc<Guest>>>,
    sweep: Arc<Sweep>,
    turns: Arc<Turns>,
    /// Share of sessions that have no other.
    share: CpuShare,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Host {
    /// Opens the engine. Guests are loaded when they are first needed.
    ///
    /// # Errors
    /// `Engine` when the ticker's thread cannot be started.
    pub fn open(config: HostConfig) -> Result<Host, Error> {
        let engines = Arc::new(Engines::new(config.kernels_max));
        let ticking = Arc::downgrade(&engines);
        let tick = move || ticking.upgrade().map(|engines| engines.tick());
        start_ticker(tick).map_err(|error| Error::Engine(error.into()))?;
        let kernels_max = usize::try_from(config.kernels_max).unwrap_or(usize::MAX);
        let turns = Turns::new();
        let sweep = Arc::new(Sweep::new(kernels_max, config.rests, turns.clone()));
        let share = turns.share(WEIGHT);
        let guests = Mutex::default();
        Ok(Host { inner: Arc::new(Inner { config, engines, guests, former: Mutex::default(), sweep, turns, share }) })
    }

    /// Creates a share of the host's processor time for a group of sessions: see [`SharedBudgets::cpu`](crate::config::SharedBudgets::cpu).
    /// Where kernels want more than there is, each share gets of it by its weight, from 1 to
    /// [`WEIGHT_MAX`](crate::config::WEIGHT_MAX); that of sessions without one has [`WEIGHT`].
    pub fn share(&self, weight: u32) -> CpuShare {
        self.inner.turns.share(weight)
    }

    /// The share of sessions that have no other.
    pub(crate) fn usual_share(&self) -> &CpuShare {
        &self.inner.share
    }

    /// Returns the configuration with which the host was opened.
    pub fn config(&self) -> &HostConfig {
        &self.inner.config
    }

    /// Loads a guest.
    ///
    /// # Errors
    /// `GuestMissing`, `GuestVersion`, `NotBaked` and their kin.
    pub fn preload(&self, guest: GuestName) -> Result<(), Error> {
        self.guest(guest, Flavour::of(guest.language(), self.inner.config.stops, false)).map(drop)
    }

    /// Kernels that hold memory now: those of sessions, and those that are being given back. Sleeping ones hold none.
    pub fn kernels(&self) -> usize {
        let held =
            |engine: &wasmtime::Engine| engine.pooling_allocator_metrics().map_or(0, |metrics| metrics.memories());
        self.inner.engines.made().map(held).sum()
    }

    /// Kernels of a share that are awake, and those that wait for room to be.
    pub fn kernels_of(&self, share: &CpuShare) -> (usize, usize) {
        self.inner.sweep.count(share.claim())
    }

    /// Returns the policy for kernels that are idle.
    pub(crate) fn rests(&self) -> Rests {
        self.inner.config.rests
    }

    /// The kernels that are awake.
    pub(crate) fn sweep(&self) -> Arc<Sweep> {
        self.inner.sweep.clone()
    }

    /// Returns the digest that identifies the build of a guest; see [`Guest::digest`].
    pub(crate) fn guest_digest(&self, guest: GuestName) -> Result<String, Error> {
        Artifacts::locate(&self.inner.config, guest)?.digest()
    }

    /// Returns the digest of a guest that can open what the build with the digest `made_with` has made: that one where the build is
    /// there, or a former one is kept.
    pub(crate) fn known_digest(&self, guest: GuestName, made_with: &str) -> Result<String, Error> {
        let current = self.guest_digest(guest)?;
        if current == made_with || former_build(&self.inner.config, guest, made_with).is_none() {
            return Ok(current);
        }
        Ok(made_with.to_owned())
    }

    /// The build of a guest that has made a state, by its digest; the current one where there is no state, or no such build is kept.
    /// Code of a former build is compiled at first use, which blocks for seconds.
    pub(crate) fn guest_of(
        &self,
        name: GuestName,
        flavour: Flavour,
        made_with: Option<&str>,
    ) -> Result<Arc<Guest>, Error> {
        let Some(digest) = made_with.filter(|digest| self.guest_digest(name).is_ok_and(|current| current != *digest))
        else {
            return self.guest(name, flavour);
        };
        let key = (name, flavour.name(), digest.to_owned());
        if let Some(guest) = lock(&self.inner.former).get(&key) {
            return Ok(guest.clone());
        }
        let Some(artifacts) = former_build(&self.inner.config, name, digest) else { return self.guest(name, flavour) };
        #[cfg(feature = "bake")]
        super::code::compile_missing(&artifacts, flavour)?;
        let guest = Guest::load(artifacts, name.language(), flavour, self.inner.engines.clone())?;
        Ok(lock(&self.inner.former).entry(key).or_insert(guest).clone())
    }

    /// A guest, loaded at first use. Where there is a compiler, code that counts fuel is compiled at first use too, which
    /// blocks for seconds; front ends have it compiled before.
    pub(crate) fn guest(&self, name: GuestName, flavour: Flavour) -> Result<Arc<Guest>, Error> {
        let key = (name, flavour.name());
        if let Some(guest) = lock(&self.inner.guests).get(&key) {
            return Ok(guest.clone());
        }
        let artifacts = Artifacts::locate(&self.inner.config, name)?;
        // Others load theirs meanwhile.
        #[cfg(feature = "bake")]
        if flavour.has_fuel() {
            super::code::compile_missing(&artifacts, flavour)?;
        }
        let mut guests = lock(&self.inner.guests);
        if let Some(guest) = guests.get(&key) {
            return Ok(guest.clone());
        }
        let guest = Guest::load(artifacts, name.language(), flavour, self.inner.engines.clone())?;
        guests.insert(key, guest.clone());
        Ok(guest)
    }
}

/// Status of a guest: what its folder and the cache hold, for diagnosis.
#[derive(Clone, Debug)]
pub struct GuestStatus {
    /// Its name.
    pub guest: GuestName,
    /// Its folder.
    pub path: PathBuf,
    /// State of the guest.
    pub state: GuestState,
    /// SHA-256 of its component, when its manifest can be read.
    pub digest: Option<String>,
    /// Version of the kernel world it implements.
    pub world: Option<String>,
}

/// State of a guest: ready, or the reason why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestState {
    /// It was not built.
    Missing,
    /// It was built and cannot be used, for this reason.
    Broken(String),
    /// It must be baked first, for this reason.
    NotBaked(String),
    /// It is ready.
    Ready,
}

/// Returns the languages of a snapshot whose kernels were made by none of the guests that are here now: former builds open them, where
/// these are kept, and [`Snapshot::without`] lets them go.
pub fn former_languages(config: &HostConfig, snapshot: &Snapshot) -> Vec<Language> {
    let is_current = |language: Language, made_with: &str| {
        let guests = GuestName::ALL.into_iter().filter(|guest| guest.language() == language);
        let digest = |guest| Artifacts::locate(config, guest).and_then(|artifacts| artifacts.digest());
        guests.map(digest).any(|found| found.is_ok_and(|digest| digest == made_with))
    };
    let kernels = snapshot.kernels.iter().filter_map(|kernel| Some((kernel.state.language()?, &kernel.state.guest)));
    kernels.filter(|(language, guest)| !is_current(*language, guest)).map(|(language, _)| language).collect()
}

/// Looks at a guest without starting anything.
pub fn guest_status(config: &HostConfig, guest: GuestName) -> GuestStatus {
    let path = config.guests.join(guest.name());
    let (state, digest, world) = match Artifacts::locate(config, guest) {
        Err(Error::GuestMissing { .. }) => (GuestState::Missing, None, None),
        Err(error) => (GuestState::Broken(error.to_string()), None, None),
        Ok(artifacts) => {
            let flavour = Flavour::of(guest.language(), config.stops, false);
            let engine = compiling_engine(flavour).map_err(|error| error.to_string());
            let problem = engine.map_or_else(Some, |engine| artifacts.problem(flavour, &engine));
            let state = problem.map_or(GuestState::Ready, GuestState::NotBaked);
            (state, Some(artifacts.manifest.digest), Some(artifacts.manifest.world))
        }
    };
    GuestStatus { guest, path, state, digest, world }
}
