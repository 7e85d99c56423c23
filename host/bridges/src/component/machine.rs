//! Compiles programs, caches the compiled code, and runs it.
//!
//! A process has one machine: an engine with fuel, one without, a thread that advances their epochs, so that programs yield
//! to others, and a cache of the most recently used programs. Sessions come and go faster than programs change.

use std::{
    collections::VecDeque,
    fs,
    io::Read,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
};

use cellar_core::{limits::EPOCH_TICK, sync::lock};
use cellar_files::Access;
use tokio::sync::Semaphore;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasmtime::{
    Cache, CacheConfig, Config, Engine, Store, Trap,
    component::{self, Linker, ResourceTable},
};
use wasmtime_wasi::{
    FsPerms, I32Exit, WasiCtx, WasiCtxView, WasiView,
    p2::{self, bindings::CommandPre, pipe::MemoryInputPipe},
};
use wit_component::ComponentEncoder;

use super::{
    bounds::Bounds,
    printed::Printed,
    program::{ComponentProgram, ERROR_BYTES_MAX, OUTPUT_BYTES_MAX, RunError},
};

/// Bytes of a program's file.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Compiled programs that are kept in memory.
const PROGRAMS_MAX: usize = 32;
/// MiB that all calls that are under way may have together; a call that may have more runs alone.
const ROOM_MIB: u32 = 2_048;
/// MiB that a call takes of that at least.
const CALL_MIB_MIN: u32 = 16;
/// Maximum number of host resources that a call may hold at once: files, streams, pollables.
const RESOURCES_MAX: usize = 256;
/// Bytes of native stack of a program.
const STACK_BYTES: usize = 1 << 20;
/// Bytes of compiled programs that the folder of the cache may hold.
const CACHE_BYTES_MAX: u64 = 1 << 30;

/// Folder in which compiled programs are cached.
static KEPT_IN: OnceLock<PathBuf> = OnceLock::new();

/// Sets the folder in which compiled programs are cached, in addition to memory. It is created, for this user alone, when a
/// program is first compiled; a folder that others may write to is not used. Only the first call takes effect, and only
/// before the first program is compiled.
pub fn keep_compiled_in(folder: PathBuf) {
    // A second one changes nothing, as is said.
    let _ = KEPT_IN.set(folder);
}

/// Runs a program with `input` on its standard input, and returns its standard output.
///
/// # Errors
/// The program cannot be used, reached a limit, or failed: see [`RunError`].
///
/// # Cancel safety
/// Dropping the future ends the program.
pub(super) async fn run(program: &ComponentProgram, input: Vec<u8>) -> Result<Vec<u8>, RunError> {
    let machine = Machine::get()?;
    let compiled = machine.compiled(program).await?;
    let called = async {
        let mib = u32::try_from(program.memory_bytes >> 20).unwrap_or(u32::MAX);
        let room = machine.room.acquire_many(mib.clamp(CALL_MIB_MIN, ROOM_MIB)).await;
        let _room = room.map_err(|_| RunError::Unusable("the host ends".to_owned()))?;
        machine.call(&compiled, program, input).await
    };
    tokio::time::timeout(program.timeout, called).await.unwrap_or(Err(RunError::Timeout(program.timeout)))
}

/// Compiles a program unless that was done, and says whether it can be run.
///
/// # Errors
/// `Unusable`.
pub(super) async fn check(program: &ComponentProgram) -> Result<(), RunError> {
    Machine::get()?.compiled(program).await?;
    program.mounts.iter().try_for_each(|mount| {
        let folder = fs::metadata(&mount.host).and_then(|_| fs::read_dir(&mount.host));
        folder.map(|_| ()).map_err(|error| cannot_open(&mount.host, &error))
    })
}

fn cannot_open(path: &Path, error: &dyn std::fmt::Display) -> RunError {
    RunError::Unusable(format!("`{}`: {error}", path.display()))
}

/// Host state of a call.
struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    bounds: Bounds,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// A program that was compiled and linked.
type Compiled = CommandPre<State>;

/// A file as it was when it was compiled, and how it was.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    path: PathBuf,
    has_fuel: bool,
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(program: &ComponentProgram) -> Result<Identity, RunError> {
        let metadata = fs::metadata(&program.file).map_err(|error| cannot_open(&program.file, &error))?;
        if !metadata.is_file() {
            return Err(cannot_open(&program.file, &"is no file"));
        }
        if metadata.len() > FILE_BYTES_MAX {
            let most = format!("is larger than {} MiB", FILE_BYTES_MAX >> 20);
            return Err(cannot_open(&program.file, &most));
        }
        Ok(Identity {
            path: program.file.clone(),
            has_fuel: program.fuel.is_some(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

struct Machine {
    /// Engines without fuel, and with.
    engines: [Engine; 2],
    /// Compiled programs, the most recently used last.
    programs: Mutex<VecDeque<(Identity, Compiled)>>,
    /// Lock for compiling one program at a time, so that none is compiled twice.
    compiling: tokio::sync::Mutex<()>,
    room: Semaphore,
}

impl Machine {
    /// The machine of this process.
    fn get() -> Result<&'static Machine, RunError> {
        static MACHINE: OnceLock<Result<Machine, RunError>> = OnceLock::new();
        MACHINE.get_or_init(Machine::new).as_ref().map_err(Clone::clone)
    }

    fn new() -> Result<Machine, RunError> {
        let cache = KEPT_IN.get().and_then(|folder| cache(folder));
        let engine = |has_fuel| Engine::new(&config(has_fuel, cache.clone()));
        let unusable = |error: wasmtime::Error| RunError::Unusable(format!("no engine can be made: {error:#}"));
        let engines = [engine(false).map_err(unusable)?, engine(true).map_err(unusable)?];
        let ticked = engines.clone();
        let ticker = std::thread::Builder::new().name("cellar-tools".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(EPOCH_TICK);
                ticked.iter().for_each(Engine::increment_epoch);
            }
        });
        ticker.map_err(|error| RunError::Unusable(format!("no thread can be started: {error}")))?;
        let room = Semaphore::new(usize::try_from(ROOM_MIB).unwrap_or(usize::MAX));
        Ok(Machine { engines, programs: Mutex::default(), compiling: tokio::sync::Mutex::default(), room })
    }

    fn kept(&self, identity: &Identity) -> Option<Compiled> {
        let mut programs = lock(&self.programs);
        let place = programs.iter().position(|(kept, _)| kept == identity)?;
        let found = programs.remove(place)?;
        let compiled = found.1.clone();
        programs.push_back(found);
        Some(compiled)
    }

    async fn compiled(&self, program: &ComponentProgram) -> Result<Compiled, RunError> {
        let identity = Identity::of(program)?;
        if let Some(compiled) = self.kept(&identity) {
            return Ok(compiled);
        }
        let _turn = self.compiling.lock().await;
        if let Some(compiled) = self.kept(&identity) {
            return Ok(compiled);
        }
        let (engine, path) = (self.engines[usize::from(identity.has_fuel)].clone(), identity.path.clone());
        let compiled = tokio::task::spawn_blocking(move || compile(&engine, &path)).await;
        let compiled = compiled.unwrap_or_else(|_| Err("cannot be compiled".to_owned()));
        let compiled = compiled.map_err(|fault| cannot_open(&identity.path, &fault))?;
        let mut programs = lock(&self.programs);
        // What the file was before is of no use any more.
        programs.retain(|(kept, _)| (&kept.path, kept.has_fuel) != (&identity.path, identity.has_fuel));
        programs.push_back((identity, compiled.clone()));
        let excess = programs.len().saturating_sub(PROGRAMS_MAX);
        programs.drain(..excess);
        Ok(compiled)
    }

    async fn call(&self, compiled: &Compiled, program: &ComponentProgram, input: Vec<u8>) -> Result<Vec<u8>, RunError> {
        let (output, errors) = (Printed::whole(OUTPUT_BYTES_MAX), Printed::end(ERROR_BYTES_MAX));
        let mut wasi = wasi(program)?;
        wasi.stdin(MemoryInputPipe::new(input)).stdout(output.clone()).stderr(errors.clone());
        let (mut table, bounds) = (ResourceTable::new(), Bounds::new(program.memory_bytes));
        table.set_max_capacity(RESOURCES_MAX);
        let mut store = Store::new(compiled.engine(), State { wasi: wasi.build(), table, bounds });
        store.limiter(|state| &mut state.bounds);
        store.epoch_deadline_async_yield_and_update(1);
        let unusable = |error: wasmtime::Error| RunError::Unusable(format!("{error:#}"));
        program.fuel.map_or(Ok(()), |fuel| store.set_fuel(fuel)).map_err(unusable)?;
        let ended = start(compiled, &mut store).await;
        if output.is_over() {
            return Err(RunError::Output);
        }
        let status = match ended {
            Ok(status) => status,
            Err(error) => match (error.downcast_ref::<I32Exit>(), error.downcast_ref::<Trap>(), program.fuel) {
                (Some(exit), ..) => exit.0,
                (_, Some(Trap::OutOfFuel), Some(fuel)) => return Err(RunError::Fuel(fuel)),
                (_, trap, _) => {
                    let what = trap.map_or_else(|| format!("{:#}", error), Trap::to_string);
                    return Err(RunError::Trap { what: because(&what, store.data(), program), errors: errors.take() });
                }
            },
        };
        if status == 0 { Ok(output.take()) } else { Err(RunError::Exit { status, errors: errors.take() }) }
    }
}

/// Starts a program in a store, and returns its exit status.
async fn start(program: &Compiled, store: &mut Store<State>) -> wasmtime::Result<i32> {
    let command = program.instantiate_async(&mut *store).await?;
    Ok(i32::from(command.wasi_cli_run().call_run(&mut *store).await?.is_err()))
}

/// Returns an error message with the probable reason.
fn because(what: &str, state: &State, program: &ComponentProgram) -> String {
    match state.bounds.was_refused {
        true => format!("{what}, after it was refused more than {} MiB of memory", program.memory_bytes >> 20),
        false => what.to_owned(),
    }
}

/// All that a call is granted, but for its three streams.
fn wasi(program: &ComponentProgram) -> Result<wasmtime_wasi::WasiCtxBuilder, RunError> {
    let mut wasi = WasiCtx::builder();
    wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
    wasi.envs(&program.environment);
    let name = program.file.file_stem().unwrap_or_default().to_string_lossy();
    wasi.arg(name).args(&program.arguments);
    for mount in &program.mounts {
        let permissions = if mount.access == Access::ReadWrite { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
        let opened = wasi.preopened_dir(&mount.host, &mount.guest, permissions);
        opened.map_err(|error| cannot_open(&mount.host, &error))?;
    }
    Ok(wasi)
}

fn config(has_fuel: bool, cache: Option<Cache>) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(has_fuel)
        .max_wasm_stack(STACK_BYTES)
        .concurrency_support(false)
        .wasm_component_model_async(false)
        .wasm_component_model_threading(false)
        .wasm_memory64(false)
        .wasm_gc(false)
        .wasm_function_references(false)
        .cache(cache);
    config
}

/// Opens the cache in a folder, if nobody else may write to it: its contents are executed without a check.
fn cache(folder: &Path) -> Option<Cache> {
    let opened = || -> Result<Cache, String> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| error.to_string())?;
        let folder = folder.canonicalize().map_err(|error| error.to_string())?;
        let metadata = fs::metadata(&folder).map_err(|error| error.to_string())?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err("belongs to another user".to_owned());
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err("may be written by other users".to_owned());
        }
        let mut config = CacheConfig::new();
        config.with_directory(folder).with_files_total_size_soft_limit(CACHE_BYTES_MAX);
        Cache::new(config).map_err(|error| format!("{error:#}"))
    };
    let folder = folder.display();
    opened().inspect_err(|reason| tracing::warn!("compiled tools are not kept: `{folder}` {reason}")).ok()
}

/// Compiles and links a file. Blocks.
fn compile(engine: &Engine, path: &Path) -> Result<Compiled, String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let is_module = match bytes.get(..8) {
        Some([0, b'a', b's', b'm', 1, 0, 0, 0]) => true,
        Some([0, b'a', b's', b'm', _, 0, 1, 0]) => false,
        _ => return Err("is no WebAssembly".to_owned()),
    };
    let bytes = if is_module { adapted(&bytes)? } else { bytes };
    let linked = || -> wasmtime::Result<Compiled> {
        let component = component::Component::new(engine, &bytes)?;
        let mut linker = Linker::new(engine);
        p2::add_to_linker_async(&mut linker)?;
        opening::restrict(&mut linker)?;
        CommandPre::new(linker.instantiate_pre(&component)?)
    };
    linked().map_err(|error| format!("{error:#}"))
}

/// The component that a module becomes by the adapter between the two interfaces of WASI.
fn adapted(module: &[u8]) -> Result<Vec<u8>, String> {
    let encoder = ComponentEncoder::default().module(module).and_then(|encoder| {
        encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
    });
    let component = encoder.and_then(|encoder| encoder.validate(true).encode());
    component.map_err(|error| format!("is a module that makes no command: {error:#}"))
}

mod opening;
#[cfg(test)]
mod tests;
