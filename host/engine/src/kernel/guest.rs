//! A guest ready to make kernels: its code, linked once, and a few warm spares.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, Weak, mpsc},
    time::Duration,
};

use cellar_core::{cell::Language, limits::Limits, sync::lock};
use cellar_files::{Files, OpenMount, Quota};

use crate::{
    contract::error::Error,
    formats::snapshot::Image,
    kernel::{
        bindings::KernelPre,
        engines::Engines,
        image::{Artifacts, Flavour, guest_mounts, linker},
        instance::Kernel,
        state::{Binding, StoreData},
        sweep::{Claim, Room, Sweep},
        threads::Threads,
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
    spares: Mutex<VecDeque<Kernel>>,
    spares_wanted: usize,
    maker: SpareMaker,
    sweep: Arc<Sweep>,
    artifacts: Artifacts,
    digest: OnceLock<String>,
    /// The memory of a new kernel, once somebody asked.
    image: OnceLock<Arc<Image>>,
}

/// Time before a spare is replaced, so that making it does not compete with the first cell of the session that took it.
const SPARE_DELAY: Duration = Duration::from_millis(2);
/// Requests for spares that wait for the maker.
const SPARE_REQUESTS_MAX: usize = 64;

impl Guest {
    /// Loads what `bake` has made.
    pub(crate) fn load(
        artifacts: Artifacts,
        language: Language,
        flavour: Flavour,
        engines: Arc<Engines>,
        (spares_wanted, maker): (usize, SpareMaker),
        sweep: Arc<Sweep>,
    ) -> Result<Arc<Guest>, Error> {
        let engine = engines.get(flavour)?;
        let component = artifacts.load(flavour, engine)?;
        let broken = |error: wasmtime::Error| Error::GuestBroken {
            path: artifacts.manifest.folder.clone(),
            source: error.into(),
        };
        let linked = linker(engine, flavour).and_then(|linker| linker.instantiate_pre(&component)).map_err(broken)?;
        let guest = Arc::new(Guest {
            language,
            flavour,
            linked: KernelPre::new(linked).map_err(broken)?,
            mounts: guest_mounts(&artifacts.manifest)?,
            engines,
            spares: Mutex::default(),
            spares_wanted,
            maker,
            sweep: sweep.clone(),
            artifacts,
            digest: OnceLock::new(),
            image: OnceLock::new(),
        });
        sweep.know(&guest);
        Ok(guest)
    }

    /// No threads, but room for them.
    pub(crate) fn threads(&self) -> Threads {
        self.engines.threads(self.flavour)
    }

    /// The guest's own folders, to be seen by each of its kernels.
    pub(crate) fn mounts(&self) -> &[OpenMount] {
        &self.mounts
    }

    /// A warm spare, bound to nobody, if there is one.
    pub(crate) fn spare(&self) -> Option<Kernel> {
        lock(&self.spares).pop_front()
    }

    /// A new kernel bound to nobody, never a spare.
    pub(crate) async fn fresh(&self, room: Room) -> Result<Kernel, Error> {
        let binding =
            Binding::spare(Limits::default(), Files::new(self.mounts.clone(), Quota::new(Default::default())));
        Kernel::start(&self.engines, &self.linked, self.language, self.flavour, binding, room).await
    }

    /// What the memory of every new kernel holds.
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

    /// SHA-256 of the baked component: which guest a snapshot belongs to.
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

    /// Asks the spare maker for spares until there are enough.
    pub(crate) fn refill(self: &Arc<Guest>) {
        if lock(&self.spares).len() < self.spares_wanted {
            self.maker.ask(self);
        }
    }

    /// Makes one spare, unless there are enough, or no room for one.
    async fn make_spare(&self) -> Result<bool, Error> {
        if lock(&self.spares).len() >= self.spares_wanted {
            return Ok(false);
        }
        let Some(room) = self.sweep.free_room(Claim::default()) else { return Ok(false) };
        let mut kernel = self.fresh(room).await?;
        kernel.warm_up().await?;
        lock(&self.spares).push_back(kernel);
        Ok(true)
    }
}

/// Makes warm spares on a thread of its own: warming takes as long as the cells it is to speed up, so it must not run
/// where they do.
#[derive(Clone, Debug)]
pub(crate) struct SpareMaker {
    /// Guests that want spares. Held weakly, so that the maker keeps nothing alive.
    wanted: mpsc::SyncSender<Weak<Guest>>,
}

impl SpareMaker {
    /// Starts the thread; it ends with the last handle.
    pub(crate) fn start() -> std::io::Result<SpareMaker> {
        let (wanted, asked) = mpsc::sync_channel::<Weak<Guest>>(SPARE_REQUESTS_MAX);
        std::thread::Builder::new().name("cellar-spares".to_owned()).spawn(move || {
            // A guest may use a timer while it warms up.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let Ok(runtime) = runtime.inspect_err(|error| tracing::warn!(%error, "no warm spares")) else { return };
            while let Ok(guest) = asked.recv() {
                std::thread::sleep(SPARE_DELAY);
                while let Some(guest) = guest.upgrade() {
                    match runtime.block_on(guest.make_spare()) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => {
                            tracing::warn!(%error, "no warm spare");
                            break;
                        }
                    }
                }
            }
        })?;
        Ok(SpareMaker { wanted })
    }

    fn ask(&self, guest: &Arc<Guest>) {
        // A full queue has this guest in it already, or will be followed by another request.
        let _ = self.wanted.try_send(Arc::downgrade(guest));
    }
}
