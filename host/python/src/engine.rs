//! The engine of a process, as Python holds it.

use std::{path::PathBuf, sync::Arc};

use cellar_embed::{OpenHub, Opening, Settings};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::{
    connection::Connection,
    embed_refused,
    functions::{Functions, OverBridges},
    remote,
    state::Local,
};

/// Engine of this process. After a fork the child must make one of its own: no thread of this one is there.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Engine(cellar_embed::Engine);

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
        let code_list = code_list.map(cellar_embed::digest).transpose();
        let code_list = code_list.map_err(|_| PyValueError::new_err("`code_list` is a SHA-256 in hexadecimal"))?;
        let settings = Settings { guests, cache, program, code_list, kernels };
        py.detach(|| cellar_embed::Engine::start(settings)).map(Engine).map_err(embed_refused)
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
        let layer = Arc::new(OverBridges(Arc::downgrade(&functions)));
        py.detach(|| {
            let opened = self.0.hub(layer, Opening { store, record, config }).map_err(embed_refused)?;
            let OpenHub { handle, hub, lines, queue } = opened;
            let _entered = handle.enter();
            let local = Local::new(handle.clone(), hub, functions);
            Ok(Connection::in_process(handle.clone(), local, lines, queue, handler))
        })
    }

    /// Opens a connection to a server.
    fn connect(&self, py: Python<'_>, handler: Py<PyAny>, url: &str, token: &str) -> PyResult<Connection> {
        let handle = self.0.runtime().map_err(embed_refused)?;
        py.detach(|| remote::connect(&handle, handler, url, token))
    }

    /// Plays a recording again, and returns its events as JSON, each with the number of its run.
    fn replay<'py>(&self, py: Python<'py>, file: PathBuf) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let handle = self.0.runtime().map_err(embed_refused)?;
        let events = py.detach(|| handle.block_on(self.0.replay(file))).map_err(embed_refused)?;
        Ok(events.iter().map(|event| PyBytes::new(py, event)).collect())
    }

    /// Ends the engine: its sandboxes, their runs and its threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
