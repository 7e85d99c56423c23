//! The wasmtime engines of a host, one per flavour, each made when a guest first needs it.

use std::sync::{Arc, OnceLock};

use super::image::{Flavour, threads_max, wasm_engine};
use crate::{
    contract::error::Error,
    kernel::scheduling::{Beats, ThreadRoom, Threads},
};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Engines {
    kernels_max: u32,
    made: [OnceLock<wasmtime::Engine>; Flavour::COUNT],
    /// Capacity for threads in the pool of each.
    rooms: [Arc<ThreadRoom>; Flavour::COUNT],
    beats: Arc<Beats>,
}

impl Engines {
    pub(crate) fn new(kernels_max: u32) -> Engines {
        let rooms = std::array::from_fn(|_| ThreadRoom::new(threads_max(kernels_max)));
        Engines { kernels_max, made: Default::default(), rooms, beats: Arc::default() }
    }

    /// The engine of a flavour.
    ///
    /// # Errors
    /// `Engine` when the address space cannot be reserved.
    pub(crate) fn get(&self, flavour: Flavour) -> Result<&wasmtime::Engine, Error> {
        let place = &self.made[flavour.index()];
        if let Some(engine) = place.get() {
            return Ok(engine);
        }
        let engine = wasm_engine(flavour, self.kernels_max)?;
        Ok(place.get_or_init(|| engine))
    }

    /// Has every guest that runs give way.
    pub(crate) fn tick(&self) {
        self.made().for_each(wasmtime::Engine::increment_epoch);
        self.beats.tick();
    }

    /// Returns the safepoint bytes of the guests that run, for a flavour that has safepoints.
    pub(crate) fn beats(&self, flavour: Flavour) -> Option<&Arc<Beats>> {
        flavour.has_safepoints().then_some(&self.beats)
    }

    /// Returns the engines that have been created.
    pub(crate) fn made(&self) -> impl Iterator<Item = &wasmtime::Engine> {
        self.made.iter().filter_map(OnceLock::get)
    }

    /// Returns a reservation of no threads, which a kernel of this flavour may extend.
    pub(crate) fn threads(&self, flavour: Flavour) -> Threads {
        if flavour.has_threads { Threads::of(self.rooms[flavour.index()].clone()) } else { Threads::default() }
    }
}
