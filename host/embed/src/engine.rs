//! The engine of a process: its runtime, and the host that all of its sandboxes are on.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use cellar_bridges::NoDoors;
use cellar_config::HostTable;
use cellar_core::sync::lock;
use cellar_engine::{
    Host, HostConfig, HostFolders,
    artifacts::{ArtifactQuota, ArtifactStore},
    store::SessionStore,
};
use cellar_hub::{Hub, HubConfig, Layer, Line, Lines, TASKS_MAX};
use cellar_wire::Caller;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc,
};

use crate::{
    Connection, EmbedError, Handler, Local,
    functions::{Functions, OverBridges},
    place::InProcess,
    remote, replay,
};

/// KiB of events of one sandbox that wait to be read.
const LINES_KIB_MAX: u32 = 64 << 10;
/// Sessions of one sandbox with its forks.
const SESSIONS_MAX: usize = 4_096;

/// Settings of an engine.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Folder of the guests.
    pub guests: PathBuf,
    /// Folder where compiled code is kept.
    pub cache: PathBuf,
    /// The command of the same build, which draws charts and converts tables in processes of its own.
    pub program: Option<PathBuf>,
    /// SHA-256 of the list of machine code that came with the guests.
    pub code_list: Option<[u8; 32]>,
    /// Interpreters in memory at the same time.
    pub kernels: Option<u32>,
}

/// Settings of a connection whose sessions are in this process.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Folder in which sessions are kept.
    pub store: Option<PathBuf>,
    /// File that the first session is recorded in.
    pub record: Option<PathBuf>,
    /// A `cellar.toml`.
    pub config: Option<PathBuf>,
}

/// A hub, and the lines by which it is asked.
#[derive(Debug)]
pub struct OpenHub {
    /// The runtime that it works on.
    pub handle: Handle,
    /// The hub.
    pub hub: Hub,
    /// Its end of the lines.
    pub lines: Lines<InProcess>,
    /// Answers of the hub.
    pub queue: mpsc::Receiver<Line>,
}

/// Engine of this process. After a fork the child must make one of its own: no thread of this one is there.
pub struct Engine {
    parts: Mutex<Option<Parts>>,
    process: u32,
}

struct Parts {
    runtime: Runtime,
    host: Arc<Host>,
    config: HostConfig,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine. Blocks while code is mapped.
    ///
    /// # Errors
    /// The guests are not there, or the settings are wrong.
    pub fn start(settings: Settings) -> Result<Engine, EmbedError> {
        let Settings { guests, cache, program, code_list, kernels } = settings;
        if let Some(program) = program {
            cellar_worker::offer(program, vec!["work".into()]);
        }
        let mut config = HostConfig::new(HostFolders { guests, cache });
        config.kernels_max = kernels.unwrap_or_else(|| cellar_config::kernels_max(&HostTable::default()));
        config.code_list = code_list;
        let runtime = Builder::new_multi_thread().thread_name("cellar").enable_all().build();
        let runtime = runtime.map_err(|error| EmbedError::of("start", &error))?;
        let host = {
            let _entered = runtime.enter();
            Host::open(config.clone())?
        };
        let parts = Parts { runtime, host: Arc::new(host), config };
        Ok(Engine { parts: Mutex::new(Some(parts)), process: std::process::id() })
    }

    /// The runtime on which connections work.
    ///
    /// # Errors
    /// The engine has ended, or this process is a child of the one that has it.
    pub fn runtime(&self) -> Result<Handle, EmbedError> {
        Ok(self.parts()?.0)
    }

    /// Opens a connection whose sessions are in this process. `handler` is called with each call of a tool or a bridge, as JSON;
    /// `functions` names the bridges that it answers for: `llm`, `agent`, `http`. Blocks while the disk works.
    ///
    /// # Errors
    /// As with [`Engine::hub`].
    pub fn open(&self, handler: Handler, functions: &[String], opening: Opening) -> Result<Connection, EmbedError> {
        let functions = Functions::new(handler.clone(), functions);
        let layer = Arc::new(OverBridges(Arc::downgrade(&functions)));
        let OpenHub { handle, hub, lines, queue } = self.hub(layer, opening)?;
        let _entered = handle.enter();
        Ok(Connection::in_process(&handle, Local::new(hub, functions), lines, queue, handler))
    }

    /// Opens a hub for the sessions of one connection, whose calls `layer` answers first. Blocks while the disk works.
    ///
    /// # Errors
    /// The store cannot be opened, the `cellar.toml` is wrong, or the engine has ended.
    pub fn hub(&self, layer: Arc<dyn Layer>, opening: Opening) -> Result<OpenHub, EmbedError> {
        let Opening { store, record, config } = opening;
        let (handle, host, host_config) = self.parts()?;
        let _entered = handle.enter();
        let mut hub_config = HubConfig::default();
        (hub_config.runs_max, hub_config.sessions_max) = (TASKS_MAX, SESSIONS_MAX);
        hub_config.overrides.config = config;
        hub_config.layer = Some(layer);
        let is_kept = store.is_some();
        if let Some(folder) = store {
            let artifacts = ArtifactStore::open(folder.join("artifacts"), ArtifactQuota::default());
            hub_config.artifacts = Some(artifacts.map_err(|error| EmbedError::of(error.code(), &error))?);
            hub_config.store = Some(SessionStore::open(folder).map_err(|error| EmbedError::of(error.code(), &error))?);
        }
        let hub = Hub::on((*host).clone(), host_config, hub_config, Arc::new(NoDoors))?;
        let place = InProcess::new(hub.clone(), is_kept, record);
        let (lines, queue) = Lines::new(place, Caller::Trusted, LINES_KIB_MAX);
        Ok(OpenHub { handle: handle.clone(), hub, lines, queue })
    }

    /// Opens a connection to a server.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    ///
    /// # Cancel safety
    /// Dropped, it gives the connection up.
    pub async fn connect(&self, handler: Handler, url: &str, token: &str) -> Result<Connection, EmbedError> {
        let (handle, ..) = self.parts()?;
        remote::connect(&handle, handler, url, token).await
    }

    /// Plays a recording again, and returns its events as JSON, each with the number of its run.
    ///
    /// # Errors
    /// The recording cannot be read or is damaged, or a guest does something else than it did.
    pub async fn replay(&self, file: PathBuf) -> Result<Vec<Vec<u8>>, EmbedError> {
        let (_, host, _) = self.parts()?;
        replay::play(&host, file).await
    }

    /// Ends the engine: its sandboxes, their runs and its threads.
    pub fn close(&self) {
        end(lock(&self.parts).take(), self.process);
    }

    fn parts(&self) -> Result<(Handle, Arc<Host>, HostConfig), EmbedError> {
        EmbedError::check_process(self.process)?;
        let parts = lock(&self.parts);
        let parts = parts.as_ref().ok_or_else(|| EmbedError::new("closed", "the engine has ended"))?;
        Ok((parts.runtime.handle().clone(), parts.host.clone(), parts.config.clone()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// Ends an engine without waiting for its threads. In a process that was forked of its own there are none to end.
fn end(parts: Option<Parts>, process: u32) {
    let Some(parts) = parts else { return };
    if process == std::process::id() {
        let Parts { runtime, host, .. } = parts;
        drop(host);
        runtime.shutdown_background();
    } else {
        std::mem::forget(parts);
    }
}

/// Reads a SHA-256 in hexadecimal.
///
/// # Errors
/// The text is none.
pub fn digest(text: &str) -> Result<[u8; 32], EmbedError> {
    let byte = |at: usize| text.get(at..at.saturating_add(2)).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let digest = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    digest.ok_or_else(|| EmbedError::new("usage", "`code_list` is no SHA-256 in hexadecimal"))
}
