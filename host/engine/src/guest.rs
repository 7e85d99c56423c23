//! A guest ready to make kernels: its code, linked once, and a few warm spares.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use crate::{
    artifact::{Artifacts, Flavour, guest_mounts, linker},
    bindings::KernelPre,
    cell::Language,
    error::Error,
    files::{Files, OpenMount, Quota},
    kernel::Kernel,
    limits::Limits,
    meter::lock,
    store::{Binding, StoreData},
};

/// A loaded guest in one flavour; shared by all kernels made of it.
pub(crate) struct Guest {
    pub(crate) language: Language,
    pub(crate) flavour: Flavour,
    engine: wasmtime::Engine,
    linked: KernelPre<StoreData>,
    /// The guest's own folders, opened once.
    mounts: Vec<OpenMount>,
    spares: Mutex<Spares>,
    spares_wanted: usize,
}

#[derive(Default)]
struct Spares {
    ready: VecDeque<Kernel>,
    /// Whether a task is making more.
    refilling: bool,
}

impl Guest {
    /// Loads what `bake` has made.
    pub(crate) fn load(
        artifacts: &Artifacts,
        language: Language,
        flavour: Flavour,
        engine: &wasmtime::Engine,
        spares_wanted: usize,
    ) -> Result<Arc<Guest>, Error> {
        let component = artifacts.load(flavour, engine)?;
        let broken =
            |error: wasmtime::Error| Error::GuestBroken { path: artifacts.manifest.folder.clone(), source: error.into() };
        let linked = linker(engine, flavour).and_then(|linker| linker.instantiate_pre(&component)).map_err(broken)?;
        Ok(Arc::new(Guest {
            language,
            flavour,
            engine: engine.clone(),
            linked: KernelPre::new(linked).map_err(broken)?,
            mounts: guest_mounts(&artifacts.manifest)?,
            spares: Mutex::default(),
            spares_wanted,
        }))
    }

    /// The guest's own folders, to be seen by each of its kernels.
    pub(crate) fn mounts(&self) -> &[OpenMount] {
        &self.mounts
    }

    /// A kernel bound to nobody: a warm spare if there is one, else a new one.
    pub(crate) async fn kernel(self: &Arc<Guest>) -> Result<Kernel, Error> {
        let spare = lock(&self.spares).ready.pop_front();
        self.refill();
        match spare {
            Some(spare) => Ok(spare),
            None => self.instantiate().await,
        }
    }

    async fn instantiate(&self) -> Result<Kernel, Error> {
        let binding = Binding::spare(Limits::default(), Files::new(self.mounts.clone(), Quota::new(Default::default())));
        Kernel::start(&self.engine, &self.linked, self.language, self.flavour, binding).await
    }

    /// Starts a task that makes spares until there are enough. Off every critical path.
    pub(crate) fn refill(self: &Arc<Guest>) {
        let mut spares = lock(&self.spares);
        if spares.refilling || spares.ready.len() >= self.spares_wanted {
            return;
        }
        spares.refilling = true;
        drop(spares);
        let guest = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(guest) = guest.upgrade() {
                let kernel = async {
                    let mut kernel = guest.instantiate().await?;
                    kernel.warm_up().await?;
                    Ok::<_, Error>(kernel)
                }
                .await;
                let mut spares = lock(&guest.spares);
                match kernel {
                    Ok(kernel) => spares.ready.push_back(kernel),
                    Err(error) => {
                        tracing::warn!(%error, "no warm spare");
                        spares.refilling = false;
                        return;
                    }
                }
                if spares.ready.len() >= guest.spares_wanted {
                    spares.refilling = false;
                    return;
                }
            }
        });
    }
}
