//! Connections: requests leave as lines, and answers come back to whoever waits for them, by their ids.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex},
};

use cellar_core::sync::lock;
use cellar_embed::{InProcess, Received, Recipient};
use cellar_hub::{Line, LineRead, Lines};
use futures::stream;
use pyo3::{prelude::*, types::PyBytes};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, mpsc},
};

use crate::{
    EngineError, check_process,
    files::Files,
    here::{self, wait},
    remote::Server,
    state::{Local, Sessions},
};

/// Requests that wait to be served.
const REQUESTS_MAX: usize = 256;
/// Answers to one request that wait to be read. Further ones hold up the connection, and so its guests.
const ANSWERS_MAX: usize = 256;

/// Requests that wait for answers, by their ids.
#[derive(Default)]
struct Routes {
    /// `None` once the connection has ended.
    waiting: Option<HashMap<String, Route>>,
}

#[derive(Clone)]
struct Route {
    answers: mpsc::Sender<Received>,
    has_events: bool,
}

/// Sends answers to where they belong.
pub(crate) struct Router {
    routes: Arc<Mutex<Routes>>,
    handler: Arc<Py<PyAny>>,
}

impl Router {
    pub(crate) async fn route(&self, recipient: Recipient, received: Received) {
        match recipient {
            Recipient::Request { id, is_event } => {
                let route = lock(&self.routes).waiting.as_ref().and_then(|waiting| waiting.get(&id).cloned());
                if let Some(route) = route.filter(|route| route.has_events || !is_event) {
                    // Whoever asked may have gone.
                    let _ = route.answers.send(received).await;
                }
            }
            Recipient::Handler => {
                let handler = self.handler.clone();
                // Code of the program may take its time, and waits for the interpreter's lock.
                tokio::task::spawn_blocking(move || {
                    let bytes = received.bytes();
                    Python::try_attach(|py| {
                        if let Err(error) = handler.call1(py, (PyBytes::new(py, &bytes),)) {
                            error.write_unraisable(py, None);
                        }
                    });
                });
            }
            Recipient::Nobody => {}
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        lock(&self.routes).waiting = None;
    }
}

/// Location of the sessions of a connection.
pub(crate) enum Carried {
    Here(Local),
    There(Server),
    /// They were left to the process that this one was forked from.
    Nowhere,
}

impl Carried {
    fn local(&self) -> Option<&Local> {
        if let Carried::Here(local) = self { Some(local) } else { None }
    }
}

/// Carrier of the requests and answers of one sandbox and its forks.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Connection {
    handle: Handle,
    carried: Carried,
    requests: Mutex<Option<mpsc::Sender<io::Result<LineRead>>>>,
    routes: Arc<Mutex<Routes>>,
    process: u32,
}

impl Connection {
    /// A connection, what sends answers to where they belong, and the requests to be carried.
    pub(crate) fn new(
        handle: Handle,
        carried: Carried,
        handler: Arc<Py<PyAny>>,
    ) -> (Connection, Router, mpsc::Receiver<io::Result<LineRead>>) {
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let routes = Arc::new(Mutex::new(Routes { waiting: Some(HashMap::new()) }));
        let router = Router { routes: routes.clone(), handler };
        let requests = Mutex::new(Some(requests));
        (Connection { handle, carried, requests, routes, process: std::process::id() }, router, waiting)
    }

    pub(crate) fn in_process(
        handle: Handle,
        local: Local,
        lines: Lines<InProcess>,
        mut queue: mpsc::Receiver<Line>,
        handler: Arc<Py<PyAny>>,
    ) -> Connection {
        let (connection, router, mut waiting) = Connection::new(handle.clone(), Carried::Here(local), handler);
        handle.spawn(lines.serve(stream::poll_fn(move |cx| waiting.poll_recv(cx))));
        handle.spawn(async move {
            while let Some(line) = queue.recv().await {
                let recipient = Recipient::of(&line.answer);
                router.route(recipient, Received::Line(Box::new(line))).await;
            }
        });
        connection
    }

    fn sender(&self) -> PyResult<mpsc::Sender<io::Result<LineRead>>> {
        check_process(self.process)?;
        lock(&self.requests).clone().ok_or_else(closed)
    }

    fn send_line(&self, py: Python<'_>, line: Vec<u8>) -> PyResult<()> {
        let requests = self.sender()?;
        match requests.try_send(Ok(LineRead::Whole(line))) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(closed()),
            Err(mpsc::error::TrySendError::Full(line)) => {
                py.detach(|| requests.blocking_send(line)).map_err(|_| closed())
            }
        }
    }
}

#[pymethods]
impl Connection {
    /// Sends a line that nobody waits for the answer of.
    fn send(&self, py: Python<'_>, line: Vec<u8>) -> PyResult<()> {
        self.send_line(py, line)
    }

    /// Sends a line, and returns the mailbox of its answers: all of them, or the last one alone.
    #[pyo3(signature = (id, line, events=false))]
    fn request(&self, py: Python<'_>, id: String, line: Vec<u8>, events: bool) -> PyResult<Mailbox> {
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        let route = Route { answers, has_events: events };
        lock(&self.routes).waiting.as_mut().ok_or_else(closed)?.insert(id.clone(), route);
        let (handle, routes, process) = (self.handle.clone(), self.routes.clone(), self.process);
        let mailbox = Mailbox { handle, id, routes, process, answers: Arc::new(AsyncMutex::new(receiver)) };
        self.send_line(py, line)?;
        Ok(mailbox)
    }

    /// Runs the cells of a request whose sessions are in this process, and returns the answer. The thread that calls this drives the run,
    /// without the interpreter's lock.
    fn run<'py>(&self, py: Python<'py>, line: Vec<u8>) -> PyResult<Bound<'py, PyBytes>> {
        drop(self.sender()?);
        let local = self.carried.local().ok_or_else(closed)?;
        let answer = here::run(py, &self.handle, local, &line)?;
        Ok(PyBytes::new(py, &serde_json::to_vec(&answer).unwrap_or_default()))
    }

    /// Answers a call of a bridge that the handler was called with, by JSON or by why it failed.
    #[pyo3(signature = (call, result, error=None))]
    fn answer(&self, call: &str, result: &[u8], error: Option<String>) -> PyResult<bool> {
        check_process(self.process)?;
        let reply = match error {
            Some(error) => Err(error),
            None => String::from_utf8(result.to_vec()).map_err(|error| error.to_string()),
        };
        Ok(self.carried.local().is_some_and(|local| local.functions.answer(call, reply)))
    }

    /// Takes no more requests; runs that are under way end.
    fn close(&self) {
        if self.process == std::process::id() {
            lock(&self.requests).take();
        }
    }

    /// Files of its sessions; `None` if a server has them.
    #[getter]
    fn files(&self) -> Option<Files> {
        self.carried.local().cloned().map(Files)
    }

    /// The server that has its sessions; `None` if they are in this process.
    #[getter]
    fn server(&self) -> Option<Server> {
        if let Carried::There(server) = &self.carried { Some(server.clone()) } else { None }
    }

    /// State of its sessions; `None` if a server has them.
    #[getter]
    fn sessions(&self) -> Option<Sessions> {
        self.carried.local().cloned().map(Sessions)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // In a process that was forked nobody is there to hear of it, and a lock may be held for ever.
        if self.process != std::process::id() {
            std::mem::forget((lock(&self.requests).take(), std::mem::replace(&mut self.carried, Carried::Nowhere)));
        }
    }
}

/// Answers to one request.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Mailbox {
    handle: Handle,
    id: String,
    routes: Arc<Mutex<Routes>>,
    process: u32,
    answers: Arc<AsyncMutex<mpsc::Receiver<Received>>>,
}

#[pymethods]
impl Mailbox {
    /// Waits for the next answer, without the interpreter's lock; `None` when the connection has ended. A signal whose handler
    /// raises ends the wait.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let taken = wait(py, &self.handle, async { self.answers.lock().await.recv().await.map(Received::bytes) })?;
        Ok(taken.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Calls `callback` with the next answer, or with `None` when the connection has ended, on a thread of the engine's.
    fn take_soon(&self, callback: Py<PyAny>) {
        let answers = self.answers.clone();
        self.handle.spawn(async move {
            let received = answers.lock().await.recv().await;
            let call = move || {
                let bytes = received.map(Received::bytes);
                Python::try_attach(|py| {
                    // Whoever waited may have gone, and its event loop with it.
                    let _ = callback.call1(py, (bytes.map(|bytes| PyBytes::new(py, &bytes)),));
                });
            };
            let _ = tokio::task::spawn_blocking(call).await;
        });
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.process == std::process::id()
            && let Some(waiting) = lock(&self.routes).waiting.as_mut()
        {
            waiting.remove(&self.id);
        }
    }
}

/// The exception of a connection that has ended.
fn closed() -> PyErr {
    EngineError::new_err(("closed", "the sandbox is closed", None::<String>))
}
