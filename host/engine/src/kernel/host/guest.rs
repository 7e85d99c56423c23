//! A guest ready to make kernels: its code, linked once.

use std::sync::{Arc, OnceLock};

use cellar_core::{cell::Language, limits::Limits};
use cellar_files::{Files, OpenMount, Quota};

use crate::{
    contract::error::Error,
    formats::snapshot::Image,
    kernel::{
        border::KernelPre,
        code::{Artifacts, Engines, Flavour, guest_mounts, linker},
        instance::Kernel,
        scheduling::{Room, Threads},
        state::{Binding, StoreData},
    },
};

/// A loaded guest in one flavour; shared by all kernels made of it.
pub(crate) struct Guest {
    pub(crate) language: Language,
    pub(crate) flavour: Flavour,
    /// The epoch of its engine advances while somebody has these: a kernel outlives its session and its host a little, and
    /// must be stopped.
    engines: Arc<Engines>,
    linked: KernelPre<StoreData>,
    /// The guest's own folders, opened once.
    mounts: Vec<OpenMount>,
    artifacts: Artifacts,
    digest: OnceLock<String>,
    /// Memory of a new kernel, once it was needed.
    image: OnceLock<Arc<Image>>,
}

impl Guest {
    /// Loads the artifacts that `bake` has made.
    pub(crate) fn load(
        artifacts: Artifacts,
        language: Language,
        flavour: Flavour,
        engines: Arc<Engines>,
    ) -> Result<Arc<Guest>, Error> {
        let engine = engines.get(flavour)?;
        let component = artifacts.load(flavour, engine)?;
        let broken = |error: wasmtime::Error| Error::GuestBroken {
            path: artifacts.manifest.folder.clone(),
            source: error.into(),
        };
        let linked = linker(engine, flavour).and_then(|linker| linker.instantiate_pre(&component)).map_err(broken)?;
        Ok(Arc::new(Guest {
            language,
            flavour,
            linked: KernelPre::new(linked).map_err(broken)?,
            mounts: guest_mounts(&artifacts.manifest)?,
            engines,
            artifacts,
            digest: OnceLock::new(),
            image: OnceLock::new(),
        }))
    }

    /// Returns a reservation of no threads, which a kernel may extend.
    pub(crate) fn threads(&self) -> Threads {
        self.engines.threads(self.flavour)
    }

    /// The guest's own folders, to be seen by each of its kernels.
    pub(crate) fn mounts(&self) -> &[OpenMount] {
        &self.mounts
    }

    /// Creates a kernel without a session.
    pub(crate) async fn fresh(&self, room: Room) -> Result<Kernel, Error> {
        let binding =
            Binding::nobodys(Limits::default(), Files::new(self.mounts.clone(), Quota::new(Default::default())));
        Kernel::start(&self.engines, &self.linked, self.language, self.flavour, binding, room).await
    }

    /// Returns the memory image that every new kernel starts from.
    ///
    /// # Errors
    /// When its cache was emptied meanwhile.
    pub(crate) fn image(&self) -> Result<&Arc<Image>, Error> {
        if let Some(image) = self.image.get() {
            return Ok(image);
        }
        let image = Arc::new(self.artifacts.image()?);
        Ok(self.image.get_or_init(|| image))
    }

    /// Returns the SHA-256 of the baked component, which tells the guest of a snapshot.
    ///
    /// # Errors
    /// When its cache was emptied meanwhile.
    pub(crate) fn digest(&self) -> Result<&str, Error> {
        if let Some(digest) = self.digest.get() {
            return Ok(digest);
        }
        let digest = self.artifacts.digest()?;
        Ok(self.digest.get_or_init(|| digest))
    }
}
