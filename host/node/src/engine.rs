//! The engine, as the package holds it: one a process, whatever threads of workers load the module.

#![expect(unreachable_pub, reason = "napi-derive takes public methods alone")]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use cellar_embed::{EmbedError, Handler, Opening, Settings};
use napi::bindgen_prelude::{Error, Result};
use napi_derive::napi;

use crate::{
    connection::Connection,
    deliver::{Callback, Deliver, Failure, text},
};

/// The engine of this process, while a thread of it has a use for it.
static RUNNING: Mutex<Weak<cellar_embed::Engine>> = Mutex::new(Weak::new());

/// Settings, as the package gives them.
#[napi(object)]
pub(crate) struct EngineSettings {
    /// Folder of the guests.
    pub guests: String,
    /// Folder where compiled code is kept.
    pub cache: String,
    /// The command of the same build.
    pub program: Option<String>,
    /// SHA-256 of the list of machine code that came with the guests.
    pub code_list: Option<String>,
    /// Interpreters in memory at the same time.
    pub kernels: Option<u32>,
}

/// Settings of a connection in this process.
#[napi(object)]
pub(crate) struct ConnectionSettings {
    /// Folder in which sessions are kept.
    pub store: Option<String>,
    /// File that the first session is recorded in.
    pub record: Option<String>,
    /// A `cellar.toml`.
    pub config: Option<String>,
    /// Bridges that the handler answers for.
    pub functions: Vec<String>,
}

/// Engine of this process.
#[napi]
pub(crate) struct Engine {
    engine: Arc<OnceLock<Arc<cellar_embed::Engine>>>,
    deliver: Deliver,
}

#[napi]
impl Engine {
    /// Engine whose ends `deliver` takes: a ticket, a value, and an error.
    #[napi(constructor)]
    pub fn new(deliver: Callback) -> Engine {
        Engine { engine: Arc::default(), deliver: Deliver(Arc::new(deliver)) }
    }

    /// Starts it, or joins the one that another thread has started.
    #[napi]
    pub fn start(&self, ticket: u32, settings: EngineSettings) {
        let (engine, deliver) = (self.engine.clone(), self.deliver.clone());
        std::thread::spawn(move || {
            let started = join(settings).map(|joined| drop(engine.set(joined)));
            deliver.end(ticket, started.map(|()| None).map_err(Failure::from));
        });
    }

    /// Opens a connection whose sessions are in this process. It can be used when `ticket` is delivered; calls of its cells come
    /// by the ticket `calls`.
    #[napi]
    pub fn open(&self, ticket: u32, calls: u32, settings: ConnectionSettings) -> Result<Connection> {
        let engine = self.engine()?;
        let (connection, opened) = Connection::new(&engine, self.deliver.clone())?;
        let ConnectionSettings { store, record, config, functions } = settings;
        let (store, record) = (store.map(PathBuf::from), record.map(PathBuf::from));
        let opening = Opening { store, record, config: config.map(PathBuf::from) };
        let (handler, deliver) = (self.handler(calls), self.deliver.clone());
        runtime(&engine)?.spawn_blocking(move || {
            let made = engine.open(handler, &functions, opening).map(|made| drop(opened.set(made)));
            deliver.end(ticket, made.map(|()| None).map_err(Failure::from));
        });
        Ok(connection)
    }

    /// Opens a connection to a server, likewise.
    #[napi]
    pub fn connect(&self, ticket: u32, calls: u32, url: String, token: String) -> Result<Connection> {
        let engine = self.engine()?;
        let (connection, opened) = Connection::new(&engine, self.deliver.clone())?;
        let (handler, deliver) = (self.handler(calls), self.deliver.clone());
        runtime(&engine)?.spawn(async move {
            let made = engine.connect(handler, &url, &token).await.map(|made| drop(opened.set(made)));
            deliver.end(ticket, made.map(|()| None).map_err(Failure::from));
        });
        Ok(connection)
    }

    /// Plays a recording again; an array of its events is delivered.
    #[napi]
    pub fn replay(&self, ticket: u32, file: String) -> Result<()> {
        let (engine, deliver) = (self.engine()?, self.deliver.clone());
        runtime(&engine)?.spawn(async move {
            let played = engine.replay(file.into()).await;
            let array = played.map(|events| Some(napi::Either::A(array(events))));
            deliver.end(ticket, array.map_err(Failure::from));
        });
        Ok(())
    }

    fn engine(&self) -> Result<Arc<cellar_embed::Engine>> {
        self.engine.get().cloned().ok_or_else(|| Error::from_reason("the engine has not started"))
    }

    fn handler(&self, calls: u32) -> Handler {
        let deliver = self.deliver.clone();
        Arc::new(move |line| deliver.line(calls, Some(line)))
    }
}

/// Joins the engine of this process, or starts it.
fn join(settings: EngineSettings) -> std::result::Result<Arc<cellar_embed::Engine>, EmbedError> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = running.upgrade() {
        return Ok(engine);
    }
    let EngineSettings { guests, cache, program, code_list, kernels } = settings;
    let (guests, cache, program) = (guests.into(), cache.into(), program.map(PathBuf::from));
    let code_list = code_list.as_deref().map(cellar_embed::digest).transpose()?;
    let engine = cellar_embed::Engine::start(Settings { guests, cache, program, code_list, kernels })?;
    let engine = Arc::new(engine);
    *running = Arc::downgrade(&engine);
    Ok(engine)
}

/// The runtime of an engine.
pub(crate) fn runtime(engine: &cellar_embed::Engine) -> Result<cellar_embed::Runtime> {
    engine.runtime().map_err(|error| Error::from_reason(error.to_string()))
}

/// Makes an array of JSON of documents of JSON.
pub(crate) fn array(documents: Vec<Vec<u8>>) -> String {
    let mut array = vec![b'['];
    for document in documents {
        if array.len() > 1 {
            array.push(b',');
        }
        array.extend(document);
    }
    array.push(b']');
    text(array)
}
