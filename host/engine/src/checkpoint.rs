//! The state that a language of a session goes back to when it has no kernel.

use std::sync::{Arc, Mutex};

use crate::{
    bindings::{WORLD_VERSION, types},
    error::Error,
    event::Scalar,
    files::{Descriptor, FileError},
    guest::Guest,
    kernel::{Death, Kernel},
    limits::Limits,
    meter::lock,
    outcome::FailureKind,
    snapshot::{KernelImage, SnapshotError},
    store::Binding,
    store_state::data_of,
};

/// A captured kernel, and what to do when one is made of it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) image: Arc<KernelImage>,
    /// It gets new seeds, so that it does not draw the numbers that the kernel it was forked from draws.
    pub(crate) is_fork: bool,
    /// Its cells have been told of their end since.
    pub(crate) is_checkpoint: bool,
}

/// The last state of a language, shared by its session and the kernel that works for it.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<Kept>>);

impl Slot {
    pub(crate) fn get(&self) -> Option<Kept> {
        lock(&self.0).clone()
    }

    pub(crate) fn set(&self, kept: Option<Kept>) {
        *lock(&self.0) = kept;
    }
}

/// Checks that a kernel can be made of an image.
///
/// # Errors
/// `Snapshot`, with what was found and what is wanted.
pub(crate) fn check(image: &KernelImage, guest: &str, limits: &Limits) -> Result<(), Error> {
    let state = &image.state;
    let language = state.language().ok_or_else(|| SnapshotError::Language(state.language.clone()))?;
    if state.world != WORLD_VERSION {
        return Err(SnapshotError::World { found: state.world.clone(), wanted: WORLD_VERSION.to_owned() }.into());
    }
    if state.guest != guest {
        let (found, wanted) = (state.guest.clone(), guest.to_owned());
        return Err(SnapshotError::Guest { language, found, wanted }.into());
    }
    let (wanted_bytes, limit_bytes) = (image.pages.memory_bytes, limits.memory_bytes);
    if wanted_bytes > limit_bytes {
        return Err(SnapshotError::Memory { wanted_bytes, limit_bytes }.into());
    }
    Ok(())
}

/// A kernel that goes on from what was kept, and the files that could not be opened again.
pub(crate) async fn revive(
    guest: &Guest,
    kept: &Kept,
    binding: Binding,
    configuration: &types::Configuration,
) -> Result<(Kernel, Vec<(Descriptor, FileError)>), Death> {
    let failed =
        |error: Error| Death { kind: FailureKind::Trap, name: "KernelError", message: crate::error::describe(&error) };
    let digest = guest.digest().map_err(failed)?;
    check(&kept.image, digest, &binding.limits).map_err(failed)?;
    let (data, lost) = data_of(&kept.image.state, binding);
    let mut kernel = guest.kernel_with(data).await.map_err(failed)?;
    kernel.restore(&kept.image.pages).await?;
    if kept.is_fork {
        kernel.configure(configuration).await?;
    }
    if kept.is_checkpoint {
        kernel.data().cells.values().for_each(|cell| cell.stop.set());
    }
    Ok((kernel, lost))
}

/// A status event about a file that could not be opened again.
pub(crate) fn lost_file(image: &KernelImage, (descriptor, error): (Descriptor, FileError)) -> Vec<(String, Scalar)> {
    let open = image.state.files.iter().find(|open| open.descriptor == descriptor);
    let path = open.map_or_else(String::new, |open| open.path.clone());
    vec![("path".to_owned(), Scalar::Text(path)), ("reason".to_owned(), Scalar::Text(error.to_string()))]
}
