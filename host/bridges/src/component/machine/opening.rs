//! Opening files for programs: regular files and folders, as for cells. Opening a pipe waits for whoever is at its other end,
//! on a thread that nothing gives back.

use wasmtime::{
    StoreContextMut,
    component::{Linker, Resource},
};
use wasmtime_wasi::{
    filesystem::{Descriptor, WasiFilesystemView as _},
    p2::{
        FsError,
        bindings::filesystem::types::{
            DescriptorFlags, DescriptorType, ErrorCode, HostDescriptor as _, OpenFlags, PathFlags,
        },
    },
};

use super::State;

/// Interface that has the function.
const INTERFACE: &str = "wasi:filesystem/types@0.2.12";

/// Arguments of the function: folder, how a link is followed, path, and how to open.
type Asked = (Resource<Descriptor>, PathFlags, String, OpenFlags, DescriptorFlags);

/// Has programs open nothing but regular files and folders.
pub(super) fn restrict(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(INTERFACE)?.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, State>, asked: Asked| {
            Box::new(async move {
                match open(store.data_mut(), asked).await {
                    Ok(opened) => Ok((Ok(opened),)),
                    Err(error) => Ok((Err(error.downcast()?),)),
                }
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn open(state: &mut State, (folder, follows, path, how, flags): Asked) -> Result<Resource<Descriptor>, FsError> {
    // THREAT: T17
    let mut files = state.filesystem();
    let same = Resource::new_borrow(folder.rep());
    // What is not there may be made.
    if let Ok(found) = files.stat_at(same, follows, path.clone()).await {
        let is_plain = matches!(
            found.type_,
            DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink
        );
        if !is_plain {
            return Err(ErrorCode::NotPermitted.into());
        }
    }
    files.open_at(folder, follows, path, how, flags).await
}
