//! Baking: makes an image, and code that can be loaded, of a guest as built.
//!
//! *Baking* runs the guest's `init` and keeps the resulting memory image as a new component. *Compiling* turns that
//! into machine code, once per [`Flavour`]. Both are done by the engine that later loads the result, so that the
//! wasmtime version, the flags and the processor are the same.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cellar_core::{cell::GuestName, files::replace, limits::Limits, text::hex};
use cellar_files::{Access, Files, Mount, Quota};
use sha2::{Digest, Sha256};

use super::{
    image::{
        Artifacts, DIGEST_FILE, Flavour, FlavourStops, HOST_STACK_BYTES, WASM_STACK_BYTES, check_imports,
        check_trusted, compiling_engine, guest_mounts, linker, set_threads, targeted_engine,
    },
    manifest::Manifest,
    safepoints::add_safepoints,
};
use crate::{
    contract::{
        config::{HostConfig, Target, WORKSPACE},
        error::{Cause, Error},
    },
    kernel::state::{Binding, StoreData},
};

/// Report of [`bake`].
#[derive(Clone, Debug)]
pub struct BakeReport {
    /// The folder with the artifacts.
    pub path: PathBuf,
    /// True if anything had to be baked or compiled.
    pub fresh: bool,
    /// Wall-clock time of all of it.
    pub duration: Duration,
    /// Bytes of the baked component.
    pub baked_bytes: u64,
    /// Bytes of compiled code, all flavours together.
    pub compiled_bytes: u64,
    /// The files: the image, its digest, the code of each flavour.
    pub files: Vec<PathBuf>,
}

/// Options of [`bake`].
#[derive(Default)]
pub struct BakeOptions<'a> {
    /// True to bake and compile again what is there already.
    pub force: bool,
    /// True to compile the code that counts fuel as well. Otherwise it is compiled when a kernel first needs it.
    pub fuel: bool,
    /// Processors that the code is for.
    pub target: Target,
    /// Called with a line for each step.
    pub progress: Option<&'a mut dyn FnMut(&str)>,
}

impl std::fmt::Debug for BakeOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("BakeOptions");
        shown
            .field("force", &self.force)
            .field("fuel", &self.fuel)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// Bakes a guest and compiles it, unless that is done. Blocks for seconds, or a minute for Python; several
/// processes may try at once, and one does the work.
///
/// # Errors
/// When the guest is missing, broken or of another version, when its `init` traps, or when the cache cannot be written.
pub fn bake(config: &HostConfig, guest: GuestName, options: BakeOptions<'_>) -> Result<BakeReport, Error> {
    let BakeOptions { force, fuel, target, progress } = options;
    let mut unheard = |_: &str| {};
    let progress = progress.unwrap_or(&mut unheard);
    let began = Instant::now();
    let artifacts = Artifacts::locate(config, guest)?;
    let name = artifacts.manifest.name.clone();
    let failed = |doing: &str| failed(&artifacts, doing);
    let mut flavours = Vec::new();
    for has_fuel in [false, true].into_iter().filter(|has_fuel| fuel || !has_fuel) {
        let flavour = Flavour::of(guest.language(), config.stops, has_fuel);
        flavours.push((flavour, targeted_engine(flavour, target)?));
    }
    let is_baked = || artifacts.open_trusted(&artifacts.baked()).is_ok();
    let is_compiled = |(flavour, engine): &(Flavour, wasmtime::Engine)| match target {
        Target::Native => artifacts.problem(*flavour, engine).is_none(),
        _ => artifacts.open_trusted(&artifacts.compiled(*flavour, target, engine)).is_ok(),
    };
    let mut fresh = false;
    // Where nothing is to be done, nothing need be writable.
    if force || !is_baked() || !flavours.iter().all(is_compiled) {
        let (lock, was_exposed) =
            prepare_folder(&artifacts.folder).map_err(|error| failed("preparing the cache")(error.into()))?;
        if lock.try_lock().is_err() {
            progress(&format!("{name}: waiting for another process that bakes it"));
            lock.lock().map_err(|error| failed("waiting for its lock")(error.into()))?;
        }
        fresh = force || was_exposed || !is_baked();
        if fresh && !artifacts.is_installed() {
            progress(&format!("{name}: baking"));
            let image = bake_image(&artifacts.manifest).map_err(failed("running its init function"))?;
            let digest = hex(&Sha256::digest(&image));
            // The image last: where it is, its digest is.
            for (path, bytes) in [(artifacts.folder.join(DIGEST_FILE), digest.as_bytes()), (artifacts.baked(), &image)]
            {
                replace(&path, bytes).map_err(|error| failed("storing the image")(error.into()))?;
            }
        }
        let is_new = fresh;
        for each in flavours.iter().filter(|each| is_new || !is_compiled(each)) {
            fresh = true;
            progress(&format!("{name}: compiling ({})", each.0.name()));
            compile(&artifacts, each.0, target, &each.1)?;
        }
    }
    let code = |(flavour, engine): &(Flavour, wasmtime::Engine)| match target {
        Target::Native => artifacts.candidates(*flavour, engine).into_iter().find(|path| path.is_file()),
        _ => Some(artifacts.compiled(*flavour, target, engine)),
    };
    let mut files: Vec<PathBuf> = flavours.iter().filter_map(code).collect();
    let compiled_bytes = files.iter().map(|path| size_of(path)).fold(0, u64::saturating_add);
    let baked_bytes = size_of(&artifacts.baked());
    let path = artifacts.home().to_owned();
    files.extend([artifacts.baked(), path.join(DIGEST_FILE)]);
    Ok(BakeReport { path, fresh, duration: began.elapsed(), baked_bytes, compiled_bytes, files })
}

/// Compiles a flavour of a guest that is baked, unless that is done, where its folder may be written. Blocks for seconds.
///
/// # Errors
/// It does not compile.
pub(crate) fn compile_missing(artifacts: &Artifacts, flavour: Flavour) -> Result<(), Error> {
    let engine = compiling_engine(flavour)?;
    let is_there = || artifacts.problem(flavour, &engine).is_none();
    if is_there() || artifacts.open_trusted(&artifacts.baked()).is_err() {
        return Ok(());
    }
    let Ok((lock, false)) = prepare_folder(&artifacts.folder) else { return Ok(()) };
    lock.lock().map_err(|error| failed(artifacts, "waiting for its lock")(error.into()))?;
    if is_there() { Ok(()) } else { compile(artifacts, flavour, Target::Native, &engine) }
}

/// Compiles a flavour, and keeps its code.
fn compile(artifacts: &Artifacts, flavour: Flavour, target: Target, engine: &wasmtime::Engine) -> Result<(), Error> {
    let failed = |doing: &str| failed(artifacts, doing);
    let mut image = fs::read(artifacts.baked()).map_err(|error| failed("reading the image")(error.into()))?;
    if flavour.has_safepoints() {
        image = add_safepoints(&image).map_err(failed("adding safepoints"))?;
    }
    let code = engine.precompile_component(&image).map_err(|error| failed("compiling it")(error.into()))?;
    replace(&artifacts.compiled(flavour, target, engine), &code)
        .map_err(|error| failed("storing the code")(error.into()))
}

/// The error of a guest that fails while this is done with it.
fn failed(artifacts: &Artifacts, doing: &str) -> impl FnOnce(Cause) -> Error + use<> {
    let (name, doing) = (artifacts.manifest.name.clone(), doing.to_owned());
    move |source: Cause| Error::Bake { name, doing, source }
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Makes the folder, for this user only, and opens its lock file. Says whether others could have written into it.
fn prepare_folder(folder: &Path) -> std::io::Result<(fs::File, bool)> {
    fs::create_dir_all(folder)?;
    let was_exposed = check_trusted(&fs::File::open(folder)?).is_err();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let lock =
        fs::OpenOptions::new().create(true).truncate(false).write(true).mode_private().open(folder.join("lock"))?;
    Ok((lock, was_exposed))
}

trait ModePrivate {
    fn mode_private(&mut self) -> &mut Self;
}

impl ModePrivate for fs::OpenOptions {
    fn mode_private(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::mode(self, 0o600)
    }
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
        .async_stack_size(WASM_STACK_BYTES + HOST_STACK_BYTES);
    set_threads(&mut config, true);
    let engine = wasmtime::Engine::new(&config)?;
    let linker = linker(&engine, Flavour { stops: FlavourStops::Epochs, has_threads: true })?;
    let workspace = tempfile::tempdir()?;
    let mut mounts = guest_mounts(manifest)?;
    let empty = workspace.path().to_owned();
    mounts.push(Mount { host: empty, guest: WORKSPACE.to_owned(), access: Access::ReadWrite }.open()?);
    let files = Files::new(mounts, Quota::new(Default::default()));
    let limits = Limits { timeout: cellar_core::limits::TIMEOUT_MAX, ..Limits::default() };
    let mut store = wasmtime::Store::new(&engine, StoreData::new(Binding::nobodys(limits, files)));
    store.limiter(|data| &mut data.limiter);
    // The memory of the guest is read at once, as the result of one call.
    store.set_hostcall_fuel(usize::MAX);
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
