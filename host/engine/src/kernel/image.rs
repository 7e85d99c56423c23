//! From a guest as built to code that can run: baking, compiling, the cache of both, and loading.
//!
//! *Baking* runs the guest's `init` and keeps the resulting memory image as a new component. *Compiling* turns that
//! into machine code, once per [`Flavour`]. Both are done by the engine that later loads the result, so that the
//! wasmtime version, the flags and the processor are the same; all of them are part of the path at which the result is
//! stored, so an artifact of another build is never even looked at.
//!
//! ```text
//! <cache>/baked/<guest>-<identity>/baked.wasm
//!                                 /baked.sha256
//!                                 /<flavour>-<compatibility>.cwasm
//! ```

use std::{
    fs,
    hash::{Hash, Hasher},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cellar_core::{cell::GuestName, limits::Limits, text::hex};
use cellar_files::{Access, Files, Mount, OpenMount, Quota};
use sha2::{Digest, Sha256};
use wasmtime::component::{Component, Linker};

use crate::{
    contract::{
        config::{HostConfig, WORKSPACE},
        error::{Cause, Error},
    },
    formats::snapshot::Image,
    kernel::{
        bindings::{WORLD_PACKAGE, WORLD_VERSION},
        manifest::Manifest,
        state::{Binding, StoreData},
    },
};

/// Changes whenever baking itself does, so that older images are not used.
const BAKE_VERSION: u32 = 2;
/// Holds the SHA-256 of the baked component.
const DIGEST_FILE: &str = "baked.sha256";
/// Native stack of a guest, in bytes. Deep recursion in the interpreters' C code must hit their own limits first.
const WASM_STACK_BYTES: usize = 16 << 20;
/// Stack of host functions, which run on the guest's fiber above the wasm frames.
const HOST_STACK_BYTES: usize = 1 << 20;
/// Memory that a freed slot keeps for the next kernel, so that it need not fault its pages in again.
const KEEP_RESIDENT_BYTES: usize = 16 << 20;
/// Largest linear memory of any kernel: what a wasm32 guest can address.
const MEMORY_BYTES_MAX: usize = 4 << 30;

/// How a guest's code is metered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Epoch checks only. The default: counting fuel costs speed.
    Epoch,
    /// Epoch checks and fuel.
    Fuel,
}

impl Flavour {
    pub(crate) const ALL: [Flavour; 2] = [Flavour::Epoch, Flavour::Fuel];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Flavour::Epoch => "epoch",
            Flavour::Fuel => "fuel",
        }
    }
}

/// The wasmtime configuration that compiles and runs a flavour.
fn wasm_config(flavour: Flavour) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(flavour == Flavour::Fuel)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(WASM_STACK_BYTES + HOST_STACK_BYTES)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(1 << 30)
        .concurrency_support(false);
    config
}

/// The wasmtime engine that compiles a flavour. It reserves nothing, and what it makes is what [`wasm_engine`] loads.
pub(crate) fn compiling_engine(flavour: Flavour) -> Result<wasmtime::Engine, Error> {
    wasmtime::Engine::new(&wasm_config(flavour)).map_err(|error| Error::Engine(error.into()))
}

/// The wasmtime engine that runs a flavour, with room for `kernels_max` kernels.
pub(crate) fn wasm_engine(flavour: Flavour, kernels_max: u32) -> Result<wasmtime::Engine, Error> {
    let mut pool = wasmtime::PoolingAllocationConfig::new();
    pool.total_component_instances(kernels_max)
        .total_core_instances(kernels_max.saturating_mul(8))
        .total_memories(kernels_max)
        .total_tables(kernels_max.saturating_mul(4))
        .total_stacks(kernels_max)
        .total_gc_heaps(0)
        .table_elements(20_000)
        .max_component_instance_size(1 << 20)
        .max_core_instance_size(1 << 20)
        .max_memory_size(MEMORY_BYTES_MAX)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .max_unused_warm_slots(32)
        .pagemap_scan(wasmtime::Enabled::Auto);
    let mut config = wasm_config(flavour);
    config.allocation_strategy(wasmtime::InstanceAllocationStrategy::Pooling(pool));
    wasmtime::Engine::new(&config).map_err(|error| Error::Engine(error.into()))
}

/// Where the artifacts of a guest lie.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) manifest: Manifest,
    folder: PathBuf,
}

impl Artifacts {
    pub(crate) fn locate(config: &HostConfig, guest: GuestName) -> Result<Artifacts, Error> {
        let manifest = Manifest::load(&config.guests, guest)?;
        let key = hex(&Sha256::digest(format!("{BAKE_VERSION} {}", manifest.identity)));
        let folder = config.cache.join("baked").join(format!("{}-{}", manifest.name, &key[..16]));
        Ok(Artifacts { manifest, folder })
    }

    fn baked(&self) -> PathBuf {
        self.folder.join("baked.wasm")
    }

    fn compiled(&self, flavour: Flavour, engine: &wasmtime::Engine) -> PathBuf {
        self.folder.join(format!("{}-{}.cwasm", flavour.name(), &compatibility(engine)[..16]))
    }

    /// Loads the code of a flavour.
    ///
    /// # Errors
    /// `NotBaked` with the reason when there is none for this engine, or when somebody else could have written it.
    #[expect(unsafe_code, reason = "loading machine code is unsafe by nature; see the SAFETY note")]
    pub(crate) fn load(&self, flavour: Flavour, engine: &wasmtime::Engine) -> Result<Component, Error> {
        let path = self.compiled(flavour, engine);
        self.check_trusted(&path).map_err(|reason| self.not_baked(reason))?;
        // SAFETY: the file was compiled by `compile` below, under a name that holds the digest of the guest and the
        // compatibility hash of this very engine; `check_trusted` has made sure that it and its folder belong to this
        // user and that nobody else may write them.
        let component = unsafe { Component::deserialize_file(engine, &path) };
        let component =
            component.map_err(|error| self.not_baked(format!("`{}` is damaged: {error}", path.display())))?;
        check_imports(&component, engine, &self.manifest)?;
        Ok(component)
    }

    /// Why `load` would refuse, cheaply.
    pub(crate) fn problem(&self, flavour: Flavour, engine: &wasmtime::Engine) -> Option<String> {
        self.check_trusted(&self.compiled(flavour, engine)).err()
    }

    /// SHA-256 of the baked component, as baking has noted it.
    pub(crate) fn digest(&self) -> Result<String, Error> {
        let path = self.folder.join(DIGEST_FILE);
        fs::read_to_string(&path).map_err(|error| self.not_baked(format!("`{}`: {error}", path.display())))
    }

    /// The memory that the baked component starts with.
    ///
    /// # Errors
    /// `NotBaked` when it is not there any more, or is not as baking leaves it.
    #[expect(unsafe_code, reason = "a mapped file must not change; see the SAFETY note")]
    pub(crate) fn image(&self) -> Result<Image, Error> {
        let path = self.baked();
        self.check_trusted(&path).map_err(|reason| self.not_baked(reason))?;
        let damaged = |reason: String| self.not_baked(format!("`{}` is damaged: {reason}", path.display()));
        let file = fs::File::open(&path).map_err(|error| damaged(error.to_string()))?;
        // SAFETY: the file is written once, beside, and then renamed; `check_trusted` has made sure that nobody else may
        // write it or its folder.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| damaged(error.to_string()))?;
        Image::of(Box::new(map)).map_err(damaged)
    }

    fn not_baked(&self, reason: String) -> Error {
        Error::NotBaked { name: self.manifest.name.clone(), reason }
    }

    fn check_trusted(&self, path: &Path) -> Result<(), String> {
        let user = rustix::process::geteuid().as_raw();
        for path in [path, &self.folder] {
            let metadata = fs::metadata(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound if self.folder.is_dir() => {
                    "it was compiled by another build, for other flags or for another processor".to_owned()
                }
                std::io::ErrorKind::NotFound => {
                    format!("there is no image of this build in `{}`", self.folder.display())
                }
                _ => format!("`{}`: {error}", path.display()),
            })?;
            if metadata.uid() != user && metadata.uid() != 0 {
                return Err(format!("`{}` belongs to another user", path.display()));
            }
            if metadata.permissions().mode() & 0o022 != 0 {
                return Err(format!("`{}` may be written by other users", path.display()));
            }
        }
        Ok(())
    }
}

/// What baking did.
#[derive(Clone, Debug)]
pub struct BakeReport {
    /// The folder with the artifacts.
    pub path: PathBuf,
    /// Whether anything had to be done.
    pub fresh: bool,
    /// Wall-clock time of all of it.
    pub duration: Duration,
    /// Bytes of the baked component.
    pub baked_bytes: u64,
    /// Bytes of compiled code, all flavours together.
    pub compiled_bytes: u64,
}

/// Bakes a guest and compiles every flavour, unless that is done. Blocks for seconds, or a minute for Python; several
/// processes may try at once, and one does the work.
///
/// # Errors
/// When the guest is missing, broken or of another version, when its `init` traps, or when the cache cannot be written.
pub fn bake(
    config: &HostConfig,
    guest: GuestName,
    force: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<BakeReport, Error> {
    let began = Instant::now();
    let artifacts = Artifacts::locate(config, guest)?;
    let name = artifacts.manifest.name.clone();
    let failed = |doing: &str| {
        let (name, doing) = (name.clone(), doing.to_owned());
        move |source: Cause| Error::Bake { name, doing, source }
    };
    let lock = prepare_folder(&artifacts.folder).map_err(|error| failed("preparing the cache")(error.into()))?;
    if fs2::FileExt::try_lock_exclusive(&lock).is_err() {
        progress(&format!("{name}: waiting for another process that bakes it"));
        fs2::FileExt::lock_exclusive(&lock).map_err(|error| failed("waiting for its lock")(error.into()))?;
    }
    let mut fresh = false;
    if force || !artifacts.baked().is_file() {
        fresh = true;
        progress(&format!("{name}: baking"));
        let image = bake_image(&artifacts.manifest).map_err(failed("running its init function"))?;
        let digest = hex(&Sha256::digest(&image));
        // The image last: where it is, its digest is.
        for (path, bytes) in [(artifacts.folder.join(DIGEST_FILE), digest.as_bytes()), (artifacts.baked(), &image)] {
            write_atomically(&path, bytes).map_err(|error| failed("storing the image")(error.into()))?;
        }
    }
    let mut compiled_bytes = 0;
    for flavour in Flavour::ALL {
        let engine = compiling_engine(flavour)?;
        let path = artifacts.compiled(flavour, &engine);
        if fresh || !path.is_file() {
            fresh = true;
            progress(&format!("{name}: compiling ({})", flavour.name()));
            let image = fs::read(artifacts.baked()).map_err(|error| failed("reading the image")(error.into()))?;
            let code = engine.precompile_component(&image).map_err(|error| failed("compiling it")(error.into()))?;
            write_atomically(&path, &code).map_err(|error| failed("storing the code")(error.into()))?;
        }
        compiled_bytes += size_of(&path);
    }
    let baked_bytes = size_of(&artifacts.baked());
    Ok(BakeReport { path: artifacts.folder, fresh, duration: began.elapsed(), baked_bytes, compiled_bytes })
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Makes the folder, for this user only, and opens its lock file.
fn prepare_folder(folder: &Path) -> std::io::Result<fs::File> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    fs::OpenOptions::new().create(true).truncate(false).write(true).mode_private().open(folder.join("lock"))
}

trait ModePrivate {
    fn mode_private(&mut self) -> &mut Self;
}

impl ModePrivate for fs::OpenOptions {
    fn mode_private(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::mode(self, 0o600)
    }
}

/// Writes a file so that it is whole or absent, whatever happens meanwhile.
fn write_atomically(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Runs the guest's `init` and returns the component with the memory it left behind.
fn bake_image(manifest: &Manifest) -> Result<Vec<u8>, Cause> {
    let path = manifest.folder.join("guest.wasm");
    let wasm = fs::read(&path)?;
    let digest = hex(&Sha256::digest(&wasm));
    if digest != manifest.digest {
        let path = path.display();
        return Err(format!("`{path}` has digest {digest}, its manifest says {}", manifest.digest).into());
    }
    let mut config = wasmtime::Config::new();
    config
        .cranelift_opt_level(wasmtime::OptLevel::None)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(WASM_STACK_BYTES + HOST_STACK_BYTES)
        .concurrency_support(false);
    let engine = wasmtime::Engine::new(&config)?;
    let linker = linker(&engine, Flavour::Epoch)?;
    let workspace = tempfile::tempdir()?;
    let files = Files::new(system_mounts(manifest, workspace.path())?, Quota::new(Default::default()));
    let limits = Limits { timeout: cellar_core::limits::TIMEOUT_MAX, ..Limits::default() };
    let mut store = wasmtime::Store::new(&engine, StoreData::new(Binding::spare(limits, files)));
    store.limiter(|data| &mut data.limiter);
    let mut wizer = wasmtime_wizer::Wizer::new();
    // The export must stay: the component aliases it.
    wizer.init_func("init").keep_init_func(true);
    let bake = wizer.run_component(&mut store, &wasm, async |store, component| {
        check_imports(component, store.engine(), manifest).map_err(wasmtime::Error::new)?;
        linker.instantiate_async(store, component).await
    });
    let (image, _) = block_on(bake)?;
    Ok(image)
}

/// Blocks on a future from a thread and a runtime of its own: the caller may be inside another runtime.
fn block_on<T, F>(future: F) -> Result<T, Cause>
where
    T: Send,
    F: Future<Output = wasmtime::Result<T>> + Send,
{
    let drive = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(future).map_err(Cause::from)
    };
    std::thread::scope(|scope| scope.spawn(drive).join()).unwrap_or_else(|_| Err("baking panicked".into()))
}

/// What every kernel of a guest sees besides its session's folders, and an empty workspace for baking.
pub(crate) fn system_mounts(manifest: &Manifest, workspace: &Path) -> Result<Vec<OpenMount>, Error> {
    let mut mounts = guest_mounts(manifest)?;
    mounts.push(Mount { host: workspace.to_owned(), guest: WORKSPACE.to_owned(), access: Access::ReadWrite }.open()?);
    Ok(mounts)
}

/// The guest's own read-only folders.
pub(crate) fn guest_mounts(manifest: &Manifest) -> Result<Vec<OpenMount>, Error> {
    let open = |(host, guest): &(String, String)| {
        Mount { host: manifest.folder.join(host), guest: guest.clone(), access: Access::ReadOnly }.open()
    };
    Ok(manifest.mounts.iter().map(open).collect::<Result<_, _>>()?)
}

/// A linker with the kernel world and nothing else.
pub(crate) fn linker(engine: &wasmtime::Engine, flavour: Flavour) -> wasmtime::Result<Linker<StoreData>> {
    let mut linker = Linker::new(engine);
    crate::kernel::bindings::Kernel::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data| data)?;
    if flavour == Flavour::Fuel {
        crate::kernel::imports::link_fuel(&mut linker)?;
    }
    Ok(linker)
}

/// Refuses a guest that speaks another version of the world, or imports anything else.
fn check_imports(component: &Component, engine: &wasmtime::Engine, manifest: &Manifest) -> Result<(), Error> {
    for (import, _) in component.component_type().imports(engine) {
        let path = manifest.folder.join("guest.wasm");
        let Some(interface) = import.strip_prefix(WORLD_PACKAGE) else {
            return Err(Error::GuestImport { path, import: import.to_owned() });
        };
        let found = interface.split_once('@').map_or("none", |(_, version)| version);
        if found != WORLD_VERSION {
            return Err(Error::GuestVersion { path, found: found.to_owned(), wanted: WORLD_VERSION.to_owned() });
        }
    }
    Ok(())
}

/// Digest of all that compiled code depends on besides the guest: wasmtime's version, its flags, the processor.
fn compatibility(engine: &wasmtime::Engine) -> String {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn finish(&self) -> u64 {
            0
        }
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
    }
    let mut sha = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sha);
    hex(&sha.0.finalize())
}
