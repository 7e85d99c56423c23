//! The code and the image of a guest: where the cache has them, and how they are loaded. Baking (`kernel/code/bake.rs`) leaves
//! them there.
//!
//! The wasmtime version, the flags and the processor are part of the path at which an artifact is stored, so that one of
//! another build is never even looked at.
//!
//! ```text
//! <cache>/baked/<guest>-<identity>/baked.wasm
//!                                 /baked.sha256
//!                                 /<flavour>-<compatibility>.cwasm
//!                                 /<flavour>-<level>-<compatibility>.cwasm
//! ```
//!
//! An installation has the same beside its guests, in `<guests>/baked`: it is read first, and never written. A package has code for a
//! level of processors there, `<flavour>-<level>.cwasm`, and lists it (`kernel/code/listed.rs`).

use std::{
    fs,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Once,
    time::SystemTime,
};

use cellar_core::{
    cell::{GuestName, Language},
    files::exposed_above,
    limits::{HOST_THREADS_MAX, KERNEL_THREADS_MAX, THREADS_OF_KERNEL_MEAN},
    text::hex,
};
use cellar_files::{Access, Mount, OpenMount};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use sha2::{Digest, Sha256};
use wasmtime::component::{Component, Linker};

use super::{listed::Listed, manifest::Manifest, processor};
#[cfg(feature = "bake")]
use crate::contract::config::Target;
use crate::{
    contract::{
        config::{HostConfig, Stops},
        error::Error,
    },
    formats::snapshot::Image,
    kernel::{
        border::{WORLD_PACKAGE, WORLD_VERSION},
        scheduling::TABLE_ELEMENTS_MAX,
        state::StoreData,
    },
};

/// Changes whenever baking itself does, so that older images are not used.
const BAKE_VERSION: u32 = 2;
/// The baked component.
pub(super) const IMAGE_FILE: &str = "baked.wasm";
/// Holds the SHA-256 of the baked component.
pub(super) const DIGEST_FILE: &str = "baked.sha256";
/// Native stack of a guest, in bytes. Deep recursion in the interpreters' C code must hit their own limits first.
pub(super) const WASM_STACK_BYTES: usize = 16 << 20;
/// Stack of host functions, which run on the guest's fiber above the wasm frames.
pub(super) const HOST_STACK_BYTES: usize = 1 << 20;
/// Memory that a freed slot keeps for the next kernel, so that it need not fault its pages in again.
const KEEP_RESIDENT_BYTES: usize = 16 << 20;
/// Largest linear memory of any kernel: what a wasm32 guest can address.
const MEMORY_BYTES_MAX: usize = 4 << 30;

/// Largest record that the engine keeps of a module instance: 32 bytes for each function that the table refers to.
const CORE_INSTANCE_BYTES_MAX: usize = 4 << 20;

/// Native stacks that kernels with threads may hold besides one for each kernel and each thread: one that was left is given
/// back a little later.
const STACKS_LEFT: u32 = 64;

/// Threads that all kernels of an engine with room for `kernels_max` may have at once.
pub(crate) fn threads_max(kernels_max: u32) -> u32 {
    kernels_max.saturating_mul(THREADS_OF_KERNEL_MEAN).clamp(KERNEL_THREADS_MAX, HOST_THREADS_MAX)
}

/// The native stacks of an engine with room for `kernels_max` kernels that may have threads. An entry takes two: its work has one
/// of its own, so that it can stand still when the entry returns.
fn stacks_max(kernels_max: u32) -> u32 {
    kernels_max.saturating_mul(2).saturating_add(threads_max(kernels_max)).saturating_add(STACKS_LEFT)
}

/// State that code polls to learn that it must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlavourStops {
    /// The epoch of its engine.
    Epochs,
    /// The same, and it counts fuel. Not by default: counting costs speed.
    Fuel,
    /// A byte of its own memory: see `kernel/code/safepoints.rs`.
    Safepoints,
}

/// Variant in which a guest's code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flavour {
    /// State that the code polls to learn that it must stop.
    pub(crate) stops: FlavourStops,
    /// The guest may have threads that take turns, for which each entry and each import costs more.
    pub(crate) has_threads: bool,
}

impl Flavour {
    /// Number of flavours.
    pub(crate) const COUNT: usize = 6;

    /// Returns the flavour in which guests of a language run. Code that counts fuel polls epochs, whatever `stops` says.
    pub(crate) fn of(language: Language, stops: Stops, has_fuel: bool) -> Flavour {
        let stops = match (has_fuel, stops) {
            (true, _) => FlavourStops::Fuel,
            (false, Stops::Epochs) => FlavourStops::Epochs,
            (false, Stops::Safepoints) => FlavourStops::Safepoints,
        };
        Flavour { stops, has_threads: language == Language::Python }
    }

    /// Returns the index among all flavours.
    pub(crate) fn index(self) -> usize {
        usize::from(self.has_threads).saturating_mul(3).saturating_add(self.stops as usize)
    }

    pub(crate) fn has_fuel(self) -> bool {
        self.stops == FlavourStops::Fuel
    }

    pub(crate) fn has_safepoints(self) -> bool {
        self.stops == FlavourStops::Safepoints
    }

    pub(crate) fn name(self) -> &'static str {
        match self.stops {
            FlavourStops::Epochs => "epoch",
            FlavourStops::Fuel => "fuel",
            FlavourStops::Safepoints => "safepoint",
        }
    }
}

/// The wasmtime configuration that compiles and runs a flavour.
fn wasm_config(flavour: Flavour) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(!flavour.has_safepoints())
        .consume_fuel(flavour.has_fuel())
        // Safepoints say of their branches that they are seldom taken.
        .wasm_branch_hinting(flavour.has_safepoints())
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(WASM_STACK_BYTES + HOST_STACK_BYTES)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(1 << 30)
        // Guests that throw exceptions make them on a heap of the engine, which starts empty.
        .collector(wasmtime::Collector::DeferredReferenceCounting);
    set_threads(&mut config, flavour.has_threads);
    config
}

/// Says whether guests may have threads that take turns.
pub(crate) fn set_threads(config: &mut wasmtime::Config, may: bool) {
    config.concurrency_support(may).wasm_component_model_async(may).wasm_component_model_threading(may);
}

/// The wasmtime engine that compiles a flavour, where there is a compiler. It reserves nothing, and what it makes is what
/// [`wasm_engine`] loads.
pub(crate) fn compiling_engine(flavour: Flavour) -> Result<wasmtime::Engine, Error> {
    wasmtime::Engine::new(&wasm_config(flavour)).map_err(|error| Error::Engine(error.into()))
}

/// The same for other processors than this one. Where in a guest an instruction of theirs comes from is left out: nothing asks for it,
/// and it is a twentieth of the code.
#[cfg(feature = "bake")]
#[expect(unsafe_code, reason = "code for a processor that this one is not is unsafe to run; see the SAFETY note")]
pub(super) fn targeted_engine(flavour: Flavour, target: Target) -> Result<wasmtime::Engine, Error> {
    if target == Target::Native {
        return compiling_engine(flavour);
    }
    let mut config = wasm_config(flavour);
    config.generate_address_map(false);
    config.target("x86_64-unknown-linux-gnu").map_err(|error| Error::Engine(error.into()))?;
    // SAFETY: what is enabled are features of processors. Who loads the code has wasmtime compare what it needs with what is there.
    unsafe { config.cranelift_flag_enable(target.name()) };
    if target == Target::X86_64V3 {
        // Cranelift's level leaves it out, and then uses neither AVX2 nor FMA.
        // SAFETY: as above.
        unsafe { config.cranelift_flag_enable("has_avx") };
    }
    wasmtime::Engine::new(&config).map_err(|error| Error::Engine(error.into()))
}

/// The wasmtime engine that runs a flavour, with room for `kernels_max` kernels.
pub(crate) fn wasm_engine(flavour: Flavour, kernels_max: u32) -> Result<wasmtime::Engine, Error> {
    let mut pool = wasmtime::PoolingAllocationConfig::new();
    pool.total_component_instances(kernels_max)
        .total_core_instances(kernels_max.saturating_mul(8))
        // A guest that has exceptions has a second memory, for those that were thrown.
        .total_memories(kernels_max.saturating_mul(2))
        .total_tables(kernels_max.saturating_mul(4))
        .total_stacks(if flavour.has_threads { stacks_max(kernels_max) } else { kernels_max })
        .total_gc_heaps(kernels_max)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_component_instance_size(1 << 20)
        .max_core_instance_size(CORE_INSTANCE_BYTES_MAX)
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

/// Locations of the artifacts of a guest.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) manifest: Manifest,
    /// In the cache. Baking writes here.
    pub(super) folder: PathBuf,
    /// Beside the guests.
    pub(super) installed: PathBuf,
    /// The code that came with the guests, of those that came with this program.
    pub(super) listed: Option<Listed>,
}

impl Artifacts {
    pub(crate) fn locate(config: &HostConfig, guest: GuestName) -> Result<Artifacts, Error> {
        let manifest = Manifest::load(&config.guests, guest)?;
        let key = hex(&Sha256::digest(format!("{BAKE_VERSION} {}", manifest.identity)));
        let name = format!("{}-{}", manifest.name, &key[..16]);
        let [folder, installed] = [&config.cache, &config.guests].map(|root| root.join("baked").join(&name));
        let listed = Listed::of(config);
        Ok(Artifacts { manifest, folder, installed, listed })
    }

    /// Returns true if the image came with the guests, from a trusted user.
    pub(super) fn is_installed(&self) -> bool {
        self.open_trusted(&self.installed.join(IMAGE_FILE)).is_ok()
    }

    /// The folder that has the image, or will have it.
    pub(super) fn home(&self) -> &Path {
        if self.is_installed() { &self.installed } else { &self.folder }
    }

    pub(super) fn baked(&self) -> PathBuf {
        self.home().join(IMAGE_FILE)
    }

    /// Returns the path of the code of a flavour that is compiled here, by this engine.
    #[cfg(feature = "bake")]
    pub(super) fn compiled(&self, flavour: Flavour, target: Target, engine: &wasmtime::Engine) -> PathBuf {
        let level = if target == Target::Native { String::new() } else { format!("{}-", target.name()) };
        self.folder.join(format!("{}-{level}{}.cwasm", flavour.name(), &compatibility(engine)[..16]))
    }

    /// Returns the paths at which code of a flavour that the engine can load may be: what is for this very processor before what a
    /// package has for its like.
    #[cfg(feature = "bake")]
    pub(super) fn candidates(&self, flavour: Flavour, engine: &wasmtime::Engine) -> Vec<PathBuf> {
        let here = self.compiled(flavour, Target::Native, engine);
        let installed = here.file_name().map(|name| self.installed.join(name));
        let level = |target: Target| self.installed.join(format!("{}-{}.cwasm", flavour.name(), target.name()));
        let levels = Target::LEVELS.into_iter().filter(|_| self.listed.is_some()).map(level);
        installed.into_iter().chain([here]).chain(levels).collect()
    }

    /// Returns the same without a compiler, which alone can tell the exact name: wasmtime refuses those that are for another engine.
    #[cfg(not(feature = "bake"))]
    fn candidates(&self, flavour: Flavour, _engine: &wasmtime::Engine) -> Vec<PathBuf> {
        let begin = format!("{}-", flavour.name());
        let is_code = |name: &str| name.starts_with(&begin) && name.ends_with(".cwasm");
        let entries = [&self.installed, &self.folder].into_iter().filter_map(|folder| fs::read_dir(folder).ok());
        let entries = entries.flatten().flatten();
        let mut found: Vec<PathBuf> =
            entries.filter(|entry| entry.file_name().to_str().is_some_and(is_code)).map(|entry| entry.path()).collect();
        found.sort();
        found
    }

    /// The first of the candidates that is of use, or what is wrong with the last.
    fn first<T>(
        &self,
        flavour: Flavour,
        engine: &wasmtime::Engine,
        take: impl Fn(&Path) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut found = Err(self.absence());
        for path in self.candidates(flavour, engine).iter().filter(|path| path.symlink_metadata().is_ok()) {
            found = take(path);
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// Opens a file of code, unless it is for another processor or somebody else could have written it.
    fn open_code(&self, path: &Path) -> Result<fs::File, String> {
        processor::check(path)?;
        let file = self.open_trusted(path)?;
        match &self.listed {
            Some(listed) if path.starts_with(&self.installed) => listed.check_name(path).map(|_| file),
            _ => Ok(file),
        }
    }

    /// Loads the code of a flavour.
    ///
    /// # Errors
    /// `NotBaked` with the reason when there is none for this engine, or when somebody else could have written it.
    pub(crate) fn load(&self, flavour: Flavour, engine: &wasmtime::Engine) -> Result<Component, Error> {
        let component = self.first(flavour, engine, |path| self.load_from(path, engine));
        let component = component.map_err(|reason| self.not_baked(reason))?;
        check_imports(&component, engine, &self.manifest)?;
        // So that whoever clears the cache knows what is in use. A cache that may only be read is used all the same.
        let _ = fs::File::open(&self.folder).and_then(|folder| folder.set_modified(SystemTime::now()));
        Ok(component)
    }

    #[expect(unsafe_code, reason = "loading machine code is unsafe by nature; see the SAFETY note")]
    fn load_from(&self, path: &Path, engine: &wasmtime::Engine) -> Result<Component, String> {
        let file = self.open_code(path)?;
        if let Some(listed) = self.listed.as_ref().filter(|_| path.starts_with(&self.installed)) {
            listed.check(path, &file, &self.folder)?;
        }
        // wasmtime opens a component by its path. This one leads to the file that was checked, whatever has its name now.
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: the file was compiled by `bake`, in a folder whose name holds the digest of the guest; wasmtime compares what
        // it was compiled for with this very engine, and its name does where there is a compiler; `open_trusted` has made sure
        // that it and its folder belong to this user and that nobody else may write them, and `file` keeps it open. Of a package,
        // `Listed` has compared its digest.
        let component = unsafe { Component::deserialize_file(engine, opened) };
        component.map_err(|error| format!("`{}` cannot be used: {error}", path.display()))
    }

    /// Returns the reason why `load` would fail, if any. Cheap: it loads nothing.
    pub(crate) fn problem(&self, flavour: Flavour, engine: &wasmtime::Engine) -> Option<String> {
        self.first(flavour, engine, |path| self.open_code(path)).err()
    }

    /// SHA-256 of the baked component, as baking has noted it.
    pub(crate) fn digest(&self) -> Result<String, Error> {
        let path = self.home().join(DIGEST_FILE);
        fs::read_to_string(&path).map_err(|error| self.not_baked(format!("`{}`: {error}", path.display())))
    }

    /// The memory that the baked component starts with.
    ///
    /// # Errors
    /// `NotBaked` when it is not there any more, or is not as baking leaves it.
    #[expect(unsafe_code, reason = "a mapped file must not change; see the SAFETY note")]
    pub(crate) fn image(&self) -> Result<Image, Error> {
        let path = self.baked();
        let file = self.open_trusted(&path).map_err(|reason| self.not_baked(reason))?;
        let damaged = |reason: String| self.not_baked(format!("`{}` is damaged: {reason}", path.display()));
        // SAFETY: the file is written once, beside, and then renamed; `open_trusted` has made sure that nobody else may
        // write it or its folder.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| damaged(error.to_string()))?;
        Image::of(Box::new(map)).map_err(damaged)
    }

    /// Returns the message for artifacts of this build that do not exist.
    fn absence(&self) -> String {
        match self.folder.is_dir() {
            true => "it was compiled by another build, for other flags or for another processor".to_owned(),
            false => format!("there is no image of this build in `{}`", self.folder.display()),
        }
    }

    fn not_baked(&self, reason: String) -> Error {
        Error::NotBaked { name: self.manifest.name.clone(), reason }
    }

    /// Opens an artifact. What is checked is what was opened: a name may lead elsewhere a moment later.
    pub(super) fn open_trusted(&self, path: &Path) -> Result<fs::File, String> {
        let failed = |path: &Path, error: Errno| match error {
            Errno::NOENT => self.absence(),
            _ => format!("`{}`: {}", path.display(), std::io::Error::from(error)),
        };
        let open = |path: &Path, flags| {
            // A name that leads to a pipe must not hold its reader.
            let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file: fs::File =
                rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(path, error))?.into();
            check_trusted(&file).map_err(|reason| format!("`{}` {reason}", path.display()))?;
            Ok::<_, String>(file)
        };
        open(path.parent().unwrap_or(&self.folder), OFlags::DIRECTORY)?;
        let file = open(path, OFlags::NOFOLLOW)?;
        warn_of_exposed(path);
        Ok(file)
    }
}

/// Warns, once a process, of a cache in whose place every user of the machine may put another one, with code of their own. It is used:
/// in a container there may be no other user.
fn warn_of_exposed(path: &Path) {
    // THREAT: T21
    static WARNED: Once = Once::new();
    if let Ok(Some(folder)) = exposed_above(path) {
        let folder = folder.display();
        WARNED.call_once(|| {
            tracing::warn!("all users of this machine may replace what is in `{folder}`, and with it code that runs here: `chmod o-w` it");
        });
    }
}

/// Refuses what another user could have written.
pub(super) fn check_trusted(file: &fs::File) -> Result<(), String> {
    let metadata = file.metadata().map_err(|error| format!("cannot be looked at: {error}"))?;
    // A pipe would hold whoever opens it once more.
    if !(metadata.is_file() || metadata.is_dir()) {
        return Err("is no plain file".to_owned());
    }
    if ![rustix::process::geteuid().as_raw(), 0].contains(&metadata.uid()) {
        return Err("belongs to another user".to_owned());
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return Err("may be written by other users".to_owned());
    }
    Ok(())
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
    crate::kernel::border::Kernel::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data| data)?;
    if flavour.has_fuel() {
        crate::kernel::imports::link_fuel(&mut linker)?;
    }
    Ok(linker)
}

/// Refuses a guest that speaks another version of the world, or imports anything else.
pub(super) fn check_imports(
    component: &Component,
    engine: &wasmtime::Engine,
    manifest: &Manifest,
) -> Result<(), Error> {
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
#[cfg(feature = "bake")]
fn compatibility(engine: &wasmtime::Engine) -> String {
    use std::hash::{Hash, Hasher};
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

#[cfg(feature = "bake")]
#[cfg(test)]
mod tests {
    use super::*;

    fn checked(import: &str) -> Result<(), Error> {
        let engine = wasmtime::Engine::default();
        let bytes = wat::parse_str(format!("(component (import \"{import}\" (instance)))")).expect("a component");
        let component = Component::new(&engine, bytes).expect("it compiles");
        let (folder, name) = (PathBuf::from("/guests/python"), "python".to_owned());
        let world = WORLD_VERSION.to_owned();
        let (digest, identity, mounts) = (String::new(), String::new(), Vec::new());
        check_imports(&component, &engine, &Manifest { folder, name, world, digest, identity, mounts })
    }

    #[test]
    fn a_guest_that_imports_anything_but_the_world_is_refused_by_name() {
        checked(&format!("{WORLD_PACKAGE}files@{WORLD_VERSION}")).expect("the world");
        for import in ["wasi:cli/environment@0.2.0", "cellar:kernels/files@0.9.0", "files"] {
            let error = checked(import).expect_err(import);
            let is_named = matches!(&error, Error::GuestImport { import: found, .. } if found == import);
            assert!(is_named && error.to_string().contains(&format!("imports `{import}`")), "{error}");
        }
        let error = checked("cellar:kernel/files@9.9.9").expect_err("another version");
        assert!(matches!(&error, Error::GuestVersion { found, .. } if found == "9.9.9"), "{error}");
    }

    /// In 2026 wasmtime had two faults in code like this, which read 16 bytes where 8 were meant.
    #[test]
    fn loads_that_were_miscompiled_elsewhere_read_what_they_should() {
        let module = r#"(module
            (memory 1 1)
            (data (i32.const 65528) "\00\00\00\00\00\00\f8\bf")
            (func (export "copysign") (param i32) (result f64) (f64.copysign (f64.const 2) (f64.load (local.get 0))))
            (func (export "copied") (param i32) (result f64) (f64.copysign (f64.load (local.get 0)) (f64.const 2)))
            (func (export "splat") (param i32) (result f64)
                (f64x2.extract_lane 1 (f64x2.splat (f64.load (local.get 0))))))"#;
        let module = wat::parse_str(module).expect("a module");
        for stops in [FlavourStops::Epochs, FlavourStops::Fuel, FlavourStops::Safepoints] {
            let engine = compiling_engine(Flavour { stops, has_threads: false }).expect("an engine");
            let module = wasmtime::Module::new(&engine, &module).expect("it compiles");
            let mut store = wasmtime::Store::new(&engine, ());
            store.set_epoch_deadline(1);
            let _ = store.set_fuel(1_000);
            let instance = wasmtime::Instance::new(&mut store, &module, &[]).expect("an instance");
            for (name, expected) in [("copysign", -2.0), ("copied", 1.5), ("splat", -1.5)] {
                let function = instance.get_typed_func::<i32, f64>(&mut store, name).expect("a function");
                assert_eq!(function.call(&mut store, 65_528).ok(), Some(expected), "{stops:?}: {name}");
            }
        }
    }
}
