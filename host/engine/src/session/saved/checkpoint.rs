//! The state that a language of a session goes back to when it has no kernel: its last checkpoint, what it slept
//! with, or the snapshot it was restored from.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use cellar_core::{cell::Language, event::Scalar, limits::Limits, sync::lock, time::wall_nanos};
use cellar_files::{Descriptor, FileError};

use crate::{
    contract::error::Error,
    formats::snapshot::{KernelImage, SNAPSHOT, SnapshotError, fingerprint},
    kernel::{
        border::{WORLD_VERSION, types},
        capture::data_of,
        host::Guest,
        instance::{Death, Kernel},
        scheduling::{Room, Unpacked},
        state::Binding,
    },
    storage::vault::StoredSession,
};

/// A captured kernel, and what to do when one is made of it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) image: Arc<KernelImage>,
    /// True if a fork is restored from it: its random generators are reseeded then, else it would repeat its parent's
    /// numbers.
    pub(crate) is_fork: bool,
    /// True if its cells have been told of their end since, or will have been when it is restored.
    pub(crate) is_checkpoint: bool,
    /// Number of the last cell that it contains; 0 is none.
    pub(crate) last_cell: u32,
    /// Kernels restored from it that have died since.
    pub(crate) deaths: u32,
}

/// The last state of a language, shared by its session and the kernel that works for it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    held: Mutex<Held>,
    /// Storage of the session; `None` if it is not stored.
    home: Option<Arc<StoredSession>>,
}

#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Here(Kept, Storage),
    /// In the stored state of the session.
    Stored(Stored),
}

/// Form in which a state is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    /// It is packed as soon as there is time.
    Usual,
    /// Its kernel fell asleep lately, and it is kept as it was captured.
    Unpacked,
    /// The same, and it is in the stored state of the session as well.
    UnpackedAndStored,
}

/// The state of a kernel that fell asleep lately.
#[derive(Debug)]
pub(crate) struct Sleeper {
    slot: Weak<Slot>,
    image: Weak<KernelImage>,
}

impl Unpacked for Sleeper {
    fn bytes(&self) -> usize {
        self.image.upgrade().map_or(0, |image| image.pages.unpacked_bytes())
    }

    fn is_there(&self) -> bool {
        self.image.strong_count() > 0
    }

    fn pack(&self) {
        if let Some((slot, image)) = self.slot.upgrade().zip(self.image.upgrade()) {
            slot.tidy_away(&image);
        }
    }
}

/// Metadata of a state that is not in memory.
#[derive(Clone, Debug)]
struct Stored {
    language: Language,
    /// Digest of the guest that it was made with.
    guest: String,
    captured_at: u64,
    is_fork: bool,
    is_checkpoint: bool,
    last_cell: u32,
    deaths: u32,
}

impl Stored {
    /// Returns the metadata of a state that leaves memory; `None` if its language is unknown.
    fn of(kept: &Kept) -> Option<Stored> {
        let Kept { ref image, is_fork, is_checkpoint, last_cell, deaths } = *kept;
        let language = image.state.language()?;
        let (guest, captured_at) = (image.state.guest.clone(), image.state.wall_clock);
        Some(Stored { language, guest, captured_at, is_fork, is_checkpoint, last_cell, deaths })
    }
}

impl Slot {
    /// Creates an empty slot of a session that is stored at `home`, if it is.
    pub(crate) fn new(home: Option<Arc<StoredSession>>) -> Slot {
        Slot { held: Mutex::default(), home }
    }

    /// Returns the last state: from memory, or from disk on a thread that may block.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn load(self: &Arc<Slot>) -> Result<Option<Kept>, Error> {
        if !matches!(&*lock(&self.held), Held::Stored(_)) {
            return Ok(self.peek());
        }
        let slot = self.clone();
        let read = tokio::task::spawn_blocking(move || slot.load_now()).await;
        read.unwrap_or_else(|error| Err(Error::Engine(error.into())))
    }

    /// Like [`load`](Slot::load), from a thread that may block.
    pub(crate) fn load_now(&self) -> Result<Option<Kept>, Error> {
        let stored = match &*lock(&self.held) {
            Held::Nothing => return Ok(None),
            Held::Here(kept, _) => return Ok(Some(kept.clone())),
            Held::Stored(stored) => stored.clone(),
        };
        let snapshot = self.home.as_ref().map(|home| home.load()).transpose()?.flatten();
        let images = snapshot.map(|snapshot| snapshot.kernels).unwrap_or_default();
        let image = images.into_iter().find(|image| image.state.language() == Some(stored.language));
        let image =
            image.ok_or_else(|| SnapshotError::from(SNAPSHOT.corrupt("the stored state of a kernel is gone")))?;
        let Stored { is_fork, is_checkpoint, last_cell, deaths, .. } = stored;
        Ok(Some(Kept { image, is_fork, is_checkpoint, last_cell, deaths }))
    }

    /// Returns the last state if it is in memory.
    pub(crate) fn peek(&self) -> Option<Kept> {
        match &*lock(&self.held) {
            Held::Here(kept, _) => Some(kept.clone()),
            Held::Nothing | Held::Stored(_) => None,
        }
    }

    /// Returns the digest of the guest that the last state was made with.
    pub(crate) fn guest(&self) -> Option<String> {
        match &*lock(&self.held) {
            Held::Here(kept, _) => Some(kept.image.state.guest.clone()),
            Held::Stored(stored) => Some(stored.guest.clone()),
            Held::Nothing => None,
        }
    }

    /// Replaces the last state.
    pub(crate) fn set(&self, kept: Kept) {
        *lock(&self.held) = Held::Here(kept, Storage::Usual);
    }

    /// Replaces the last state by that of a kernel that falls asleep. The returned [`Sleeper`] compresses it on request.
    pub(crate) fn set_sleeper(self: &Arc<Slot>, kept: Kept) -> Sleeper {
        let sleeper = Sleeper { slot: Arc::downgrade(self), image: Arc::downgrade(&kept.image) };
        *lock(&self.held) = Held::Here(kept, Storage::Unpacked);
        sleeper
    }

    /// Compresses the last state, unless its kernel fell asleep lately. Blocks.
    pub(crate) fn pack(&self) {
        let image = match &*lock(&self.held) {
            Held::Here(kept, Storage::Usual) => kept.image.clone(),
            _ => return,
        };
        self.compress(&image);
    }

    /// Compresses the state of a kernel that fell asleep, or gives its memory back if it is stored. Blocks.
    fn tidy_away(&self, image: &Arc<KernelImage>) {
        {
            let mut held = lock(&self.held);
            match &mut *held {
                Held::Here(kept, storage) if Arc::ptr_eq(&kept.image, image) => match (*storage, Stored::of(kept)) {
                    (Storage::UnpackedAndStored, Some(stored)) => *held = Held::Stored(stored),
                    _ => *storage = Storage::Usual,
                },
                _ => return,
            }
        }
        self.compress(image);
    }

    /// Compresses the last state if it is still this image.
    fn compress(&self, image: &Arc<KernelImage>) {
        if image.pages.is_packed() || !self.holds(image) {
            return;
        }
        let packed = Arc::new(KernelImage { state: image.state.clone(), pages: image.pages.pack() });
        if let Held::Here(kept, _) = &mut *lock(&self.held)
            && Arc::ptr_eq(&kept.image, image)
        {
            kept.image = packed;
        }
    }

    fn holds(&self, image: &Arc<KernelImage>) -> bool {
        matches!(&*lock(&self.held), Held::Here(kept, _) if Arc::ptr_eq(&kept.image, image))
    }

    /// Releases the memory of the last state if it was just stored as one of `images`, unless a live kernel needs it to find
    /// its changed pages, or its kernel fell asleep lately.
    pub(crate) fn release(&self, images: &[Arc<KernelImage>]) {
        let mut held = lock(&self.held);
        if let Held::Here(kept, storage) = &mut *held
            && !kept.is_checkpoint
            && images.iter().any(|image| Arc::ptr_eq(image, &kept.image))
            && let Some(stored) = Stored::of(kept)
        {
            match storage {
                Storage::Usual => *held = Held::Stored(stored),
                Storage::Unpacked | Storage::UnpackedAndStored => *storage = Storage::UnpackedAndStored,
            }
        }
    }

    /// Drops the last state.
    pub(crate) fn clear(&self) {
        *lock(&self.held) = Held::Nothing;
    }

    /// Records that a cell succeeded: the last state is not what kernels die of.
    pub(crate) fn absolve(&self) {
        match &mut *lock(&self.held) {
            Held::Nothing => {}
            Held::Here(kept, _) => kept.deaths = 0,
            Held::Stored(stored) => stored.deaths = 0,
        }
    }

    /// Records that a kernel died, which goes back to the last state. Returns that state's last cell, its age, and the number
    /// of kernels that have died since a cell succeeded.
    pub(crate) fn blame(&self) -> Option<(u32, Duration, u32)> {
        let mut held = lock(&self.held);
        let (captured_at, is_checkpoint, last_cell, deaths) = match &mut *held {
            Held::Nothing => return None,
            Held::Here(Kept { image, is_checkpoint, last_cell, deaths, .. }, _) => {
                (image.state.wall_clock, is_checkpoint, *last_cell, deaths)
            }
            Held::Stored(Stored { captured_at, is_checkpoint, last_cell, deaths, .. }) => {
                (*captured_at, is_checkpoint, *last_cell, deaths)
            }
        };
        *is_checkpoint = true;
        *deaths = deaths.saturating_add(1);
        Some((last_cell, Duration::from_nanos(wall_nanos().saturating_sub(captured_at)), *deaths))
    }
}

/// Checks that a kernel can be made of an image.
///
/// # Errors
/// `Snapshot`, with what was found and what is wanted.
pub(crate) fn check(image: &KernelImage, guest: &str, limits: &Limits) -> Result<(), Error> {
    let state = &image.state;
    let fits = || {
        let language = SNAPSHOT.language(&state.language)?;
        SNAPSHOT.check_world(&state.world, WORLD_VERSION)?;
        SNAPSHOT.check_guest(language, &state.guest, guest)
    };
    fits().map_err(SnapshotError::from)?;
    let (wanted_bytes, limit_bytes) = (image.pages.memory_bytes, limits.memory_bytes);
    if wanted_bytes > limit_bytes {
        return Err(SnapshotError::Memory { wanted_bytes, limit_bytes }.into());
    }
    Ok(())
}

/// Fingerprint of a configuration, but for its seed.
pub(crate) fn configured_as(configuration: &types::Configuration) -> u128 {
    let types::Configuration { seed: _, environment, working_directory, packages, connectors } = configuration;
    fingerprint(format!("{environment:?} {working_directory:?} {packages:?} {connectors:?}").as_bytes())
}

/// A kernel that cannot be had.
pub(crate) fn failed(error: Error) -> Death {
    let failure = error.into_failure();
    Death { kind: failure.kind, name: "KernelError", message: failure.message, code: failure.code }
}

/// Fields of status events, one for each file that could not be opened again.
pub(crate) type LostFiles = Vec<Vec<(String, Scalar)>>;

/// Starts a kernel that is restored from a state.
pub(crate) async fn revive(
    guest: &Arc<Guest>,
    room: Room,
    kept: &Kept,
    binding: Binding,
    configuration: &types::Configuration,
) -> Result<(Kernel, LostFiles), Death> {
    let digest = guest.digest().map_err(failed)?;
    check(&kept.image, digest, &binding.limits).map_err(failed)?;
    let mut kernel = guest.fresh(room).await.map_err(failed)?;
    let mut data = data_of(&kept.image.state, binding);
    kernel.take_over(&mut data);
    kernel.restore(&kept.image.pages, guest.image().map_err(failed)?).await?;
    if kept.image.state.configuration != configured_as(configuration) {
        // A session that is granted something else learns of it, at the price of new seeds, and of the working directory
        // and the environment that its cells have set.
        kernel.configure(configuration).await?;
    } else if kept.is_fork {
        kernel.reseed(configuration.seed).await?;
    }
    if kept.is_checkpoint {
        kernel.data().cells.values().for_each(|cell| cell.stop.flag.set());
    }
    let lost = reopen(&mut kernel, &kept.image);
    Ok((kernel, lost))
}

/// Wakes a sleeping kernel: instantiates it with the memory it had.
pub(crate) async fn wake(
    kernel: &mut Kernel,
    guest: &Arc<Guest>,
    room: Room,
    slot: &Arc<Slot>,
) -> Result<LostFiles, Death> {
    let gone = || failed(Error::SessionClosed("a kernel that was reset".to_owned()));
    let kept = slot.load().await.map_err(failed)?.ok_or_else(gone)?;
    let mut fresh = guest.fresh(room).await.map_err(failed)?;
    fresh.take_over(kernel.data());
    // From here on it has the cells, whatever happens.
    *kernel = fresh;
    kernel.restore(&kept.image.pages, guest.image().map_err(failed)?).await?;
    Ok(reopen(kernel, &kept.image))
}

/// Reported files that could not be opened again.
const LOST_MAX: usize = 1_000;

fn reopen(kernel: &mut Kernel, image: &KernelImage) -> LostFiles {
    let files = &image.state.files;
    let lost = kernel.data().binding.files.reopen(files);
    let fields = |(descriptor, error): (Descriptor, FileError)| {
        // They lie by descriptor.
        let place = files.binary_search_by_key(&descriptor, |open| open.descriptor).ok();
        let path = place.and_then(|place| files.get(place)).map_or_else(String::new, |open| open.path.clone());
        vec![("path".to_owned(), Scalar::Text(path)), ("reason".to_owned(), Scalar::Text(error.to_string()))]
    };
    lost.into_iter().take(LOST_MAX).map(fields).collect()
}
