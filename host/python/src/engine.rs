//! The engine of a process: its runtime, and the host that all of its sandboxes are on.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use cellar_bridges::NoDoors;
use cellar_config::HostTable;
use cellar_core::sync::lock;
use cellar_engine::{Host, HostConfig, HostFolders, artifacts::ArtifactStore, store::SessionStore};
use cellar_hub::{Hub, HubConfig, HubError, Lines, TASKS_MAX};
use cellar_wire::Caller;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use tokio::runtime::{Builder, Runtime};

use crate::{
    EngineError, check_process,
    connection::Connection,
    functions::{Functions, OverBridges},
    place::InProcess,
    refused, remote, replay,
    state::Local,
};

/// KiB of events of one sandbox that wait to be read.
const LINES_KIB_MAX: u32 = 64 << 10;
/// Sessions of one sandbox with its forks.
const SESSIONS_MAX: usize = 4_096;

/// Engine of this process, as Python holds it. After a fork the child must make one of its own: no thread of this one is there.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Engine {
    parts: Mutex<Option<Parts>>,
    process: u32,
}

struct Parts {
    runtime: Runtime,
    host: Arc<Host>,
    config: HostConfig,
}

#[pymethods]
impl Engine {
    /// Opens an engine. `program` is the command of the same build, which draws charts and converts tables in processes of its
    /// own; `code_list` is the SHA-256 of the list of machine code that came with the guests, in hexadecimal.
    #[new]
    #[pyo3(signature = (guests, cache, program=None, code_list=None, kernels=None))]
    fn new(
        py: Python<'_>,
        guests: PathBuf,
        cache: PathBuf,
        program: Option<PathBuf>,
        code_list: Option<&str>,
        kernels: Option<u32>,
    ) -> PyResult<Engine> {
        if let Some(program) = program {
            cellar_worker::offer(program, vec!["work".into()]);
        }
        let mut config = HostConfig::new(HostFolders { guests, cache });
        config.kernels_max = kernels.unwrap_or_else(|| cellar_config::kernels_max(&HostTable::default()));
        config.code_list = code_list.map(digest).transpose()?;
        let open = || -> Result<Parts, PyErr> {
            let runtime = Builder::new_multi_thread().thread_name("cellar").enable_all().build();
            let runtime = runtime.map_err(|error| refused("start", &error))?;
            let host = {
                let _entered = runtime.enter();
                Host::open(config.clone()).map_err(|error| refused(error.code(), &error))?
            };
            Ok(Parts { runtime, host: Arc::new(host), config })
        };
        let parts = py.detach(open)?;
        Ok(Engine { parts: Mutex::new(Some(parts)), process: std::process::id() })
    }

    /// Opens a connection whose sessions are in this process. The first of the `handlers` is called with each call of a function, as JSON, on a
    /// thread of the engine's. Sessions of a connection with a `store` are kept in that folder.
    /// The second answers a call of a tool: it is given the id of the call, the name and JSON, and returns the bytes of JSON, a text that says
    /// why it failed, or `None` for an answer by `Connection.answer`. `functions` names the bridges that the handler answers for.
    #[pyo3(signature = (handlers, store=None, record=None, config=None, functions=Vec::new()))]
    fn open(
        &self,
        py: Python<'_>,
        handlers: (Py<PyAny>, Py<PyAny>),
        store: Option<PathBuf>,
        record: Option<PathBuf>,
        config: Option<PathBuf>,
        functions: Vec<String>,
    ) -> PyResult<Connection> {
        let (handler, tools) = handlers;
        let handler = Arc::new(handler);
        let functions = Functions::new(handler.clone(), tools, &functions);
        let (handle, host, host_config) = self.parts()?;
        py.detach(|| {
            let _entered = handle.enter();
            let mut hub_config = HubConfig::default();
            (hub_config.runs_max, hub_config.sessions_max) = (TASKS_MAX, SESSIONS_MAX);
            hub_config.overrides.config = config;
            hub_config.layer = Some(Arc::new(OverBridges(Arc::downgrade(&functions))));
            let is_kept = store.is_some();
            if let Some(folder) = store {
                let artifacts =
                    ArtifactStore::open(folder.join("artifacts"), cellar_engine::artifacts::ArtifactQuota::default());
                hub_config.artifacts = Some(artifacts.map_err(|error| refused(error.code(), &error))?);
                hub_config.store = Some(SessionStore::open(folder).map_err(|error| refused(error.code(), &error))?);
            }
            let hub = Hub::on((*host).clone(), host_config, hub_config, Arc::new(NoDoors));
            let hub = hub.map_err(|error| hub_refused(&error))?;
            let place = InProcess::new(hub.clone(), is_kept, record);
            let (lines, queue) = Lines::new(place, Caller::Trusted, LINES_KIB_MAX);
            Ok(Connection::in_process(handle.clone(), Local::new(handle, hub, functions), lines, queue, handler))
        })
    }

    /// Opens a connection to a server.
    fn connect(&self, py: Python<'_>, handler: Py<PyAny>, url: &str, token: &str) -> PyResult<Connection> {
        let (handle, ..) = self.parts()?;
        py.detach(|| remote::connect(&handle, handler, url, token))
    }

    /// Plays a recording again, and returns its events as JSON, each with the number of its run.
    fn replay<'py>(&self, py: Python<'py>, file: PathBuf) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let (handle, host, _) = self.parts()?;
        let events = py.detach(|| handle.block_on(replay::play(&host, file)))?;
        Ok(events.iter().map(|event| PyBytes::new(py, event)).collect())
    }

    /// Ends the engine: its sandboxes, their runs and its threads.
    fn close(&self, py: Python<'_>) {
        let parts = lock(&self.parts).take();
        py.detach(|| end(parts, self.process));
    }
}

impl Engine {
    fn parts(&self) -> PyResult<(tokio::runtime::Handle, Arc<Host>, HostConfig)> {
        check_process(self.process)?;
        let parts = lock(&self.parts);
        let parts =
            parts.as_ref().ok_or_else(|| EngineError::new_err(("closed", "the engine has ended", None::<String>)))?;
        Ok((parts.runtime.handle().clone(), parts.host.clone(), parts.config.clone()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        end(lock(&self.parts).take(), self.process);
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

/// Turns a refusal of the hub into the exception that Python sees.
pub(crate) fn hub_refused(error: &HubError) -> PyErr {
    let code = if let HubError::Engine(error) = error { error.code() } else { "usage" };
    EngineError::new_err((code.to_owned(), cellar_core::text::describe(error), error.hint()))
}

/// Reads a SHA-256 in hexadecimal.
fn digest(text: &str) -> PyResult<[u8; 32]> {
    let byte = |at: usize| text.get(at..at.saturating_add(2)).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let digest = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    digest.ok_or_else(|| PyValueError::new_err("`code_list` is a SHA-256 in hexadecimal"))
}
