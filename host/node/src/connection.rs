//! Connections, as the package holds them.

#![expect(unreachable_pub, reason = "napi-derive takes public methods alone")]

use std::sync::{Arc, OnceLock};

use cellar_embed::{FileError, Files, Local, Runtime, SendError};
use napi::bindgen_prelude::{Buffer, Either, Error, Result};
use napi_derive::napi;
use serde_json::json;

use crate::{
    deliver::{Deliver, Failure, Value},
    engine::{array, runtime},
};

/// Answers that are delivered at once.
const BATCH_MAX: usize = 64;

type Opened = Arc<OnceLock<cellar_embed::Connection>>;

/// Carrier of the requests and answers of one sandbox and its forks.
#[napi]
pub(crate) struct Connection {
    opened: Opened,
    runtime: Runtime,
    deliver: Deliver,
}

#[napi]
impl Connection {
    /// Connection that is still to be opened.
    pub(crate) fn new(engine: &cellar_embed::Engine, deliver: Deliver) -> Result<(Connection, Opened)> {
        let opened = Opened::default();
        Ok((Connection { opened: opened.clone(), runtime: runtime(engine)?, deliver }, opened))
    }

    /// Sends a line that nobody waits for the answer of. Returns false if it has to be sent again, after `ready`.
    #[napi]
    pub fn send(&self, line: String) -> Result<bool> {
        match self.connection()?.send(line.into_bytes()) {
            Ok(()) => Ok(true),
            Err(SendError::Full(_)) => Ok(false),
            Err(SendError::Closed(error)) => Err(Error::from_reason(error.to_string())),
        }
    }

    /// Delivers `ticket` when a line can be sent.
    #[napi]
    pub fn ready(&self, ticket: u32) -> Result<()> {
        let (ready, deliver) = (self.connection()?.ready(), self.deliver.clone());
        self.runtime.spawn(async move {
            ready.await;
            deliver.value(ticket, None);
        });
        Ok(())
    }

    /// Has the last answer to the request that will have this id delivered; null is delivered when the connection ends.
    #[napi]
    pub fn expect(&self, ticket: u32, id: String) -> Result<()> {
        let deliver = self.deliver.clone();
        let waiting = self.connection()?.on_answer(&id, move |answer| deliver.line(ticket, answer));
        waiting.map_err(|error| Error::from_reason(error.to_string()))
    }

    /// Opens a mailbox for all answers to the request that will have this id.
    #[napi]
    pub fn mailbox(&self, id: String) -> Result<Mailbox> {
        let mailbox = self.connection()?.mailbox(&id).map_err(|error| Error::from_reason(error.to_string()))?;
        Ok(Mailbox { mailbox: Arc::new(mailbox), runtime: self.runtime.clone(), deliver: self.deliver.clone() })
    }

    /// Answers a call of a bridge, by JSON or by why it failed.
    #[napi]
    pub fn answer(&self, call: String, result: String, error: Option<String>) -> Result<bool> {
        let answered = self.connection()?.answer(&call, result.as_bytes(), error);
        answered.map_err(|error| Error::from_reason(error.to_string()))
    }

    /// Takes no more requests; runs that are under way end.
    #[napi]
    pub fn close(&self) {
        if let Some(connection) = self.opened.get() {
            connection.close();
        }
    }

    /// True if its sessions are in this process.
    #[napi(getter)]
    pub fn is_local(&self) -> bool {
        self.opened.get().is_some_and(|connection| connection.local().is_some())
    }

    /// The bytes of a file.
    #[napi]
    pub fn read_file(&self, ticket: u32, session: String, path: String) -> Result<()> {
        self.on_files(ticket, session, path, |files, path| {
            let bytes = files.read(path)?;
            Ok(Some(Either::B(Buffer::from(bytes))))
        })
    }

    /// Writes a file, and makes the folders that it is in.
    #[napi]
    pub fn write_file(&self, ticket: u32, session: String, path: String, bytes: &[u8]) -> Result<()> {
        let bytes = bytes.to_vec();
        self.on_files(ticket, session, path, move |files, path| {
            files.write(path, &bytes)?;
            Ok(None)
        })
    }

    /// The entries of a folder.
    #[napi]
    pub fn list_files(&self, ticket: u32, session: String, path: String) -> Result<()> {
        self.on_files(ticket, session, path, |files, path| {
            let entries = files.list(path)?;
            let entry = |one: cellar_embed::ListedFile| {
                json!({ "name": one.name, "kind": one.kind, "size": one.size, "modifiedAt": one.modified })
            };
            let entries: serde_json::Value = entries.into_iter().map(entry).collect();
            Ok(Some(Either::A(entries.to_string())))
        })
    }

    /// Removes a file, or a folder that is empty.
    #[napi]
    pub fn remove_file(&self, ticket: u32, session: String, path: String) -> Result<()> {
        self.on_files(ticket, session, path, |files, path| {
            files.remove(path)?;
            Ok(None)
        })
    }

    /// The names of a session.
    #[napi]
    pub fn variables(&self, ticket: u32, session: String, language: String) -> Result<()> {
        let (local, deliver) = (self.local()?, self.deliver.clone());
        self.runtime.spawn(async move {
            let variable = |one: cellar_embed::Variable| {
                json!({ "name": one.name, "type": one.type_name, "size": one.size, "preview": one.preview })
            };
            let found = local.variables(&session, &language).await;
            let found = found.map(|all| all.into_iter().map(variable).collect::<serde_json::Value>());
            deliver.end(ticket, found.map(|all| Some(Either::A(all.to_string()))).map_err(Failure::from));
        });
        Ok(())
    }

    /// Completions at a cursor, which is a number of characters.
    #[napi]
    pub fn complete(&self, ticket: u32, session: String, language: String, code: String, cursor: u32) -> Result<()> {
        let (local, deliver) = (self.local()?, self.deliver.clone());
        self.runtime.spawn(async move {
            let found = local.complete(&session, &language, &code, cursor).await;
            deliver.end(ticket, found.map(|all| Some(Either::A(json!(all).to_string()))).map_err(Failure::from));
        });
        Ok(())
    }

    /// Gives the memory of a session back until it is used again.
    #[napi]
    pub fn hibernate(&self, ticket: u32, session: String) -> Result<()> {
        let (local, deliver) = (self.local()?, self.deliver.clone());
        self.runtime.spawn(async move {
            deliver.end(ticket, local.hibernate(&session).await.map(|()| None).map_err(Failure::from));
        });
        Ok(())
    }

    /// Ends the recording of a session.
    #[napi]
    pub fn end_recording(&self, ticket: u32, session: String) -> Result<()> {
        self.work(ticket, move |local| {
            local.end_recording(&session)?;
            Ok(None)
        })
    }

    fn connection(&self) -> Result<&cellar_embed::Connection> {
        self.opened.get().ok_or_else(|| Error::from_reason("the sandbox has not been opened"))
    }

    fn local(&self) -> Result<Local> {
        let local = self.connection()?.local();
        local.ok_or_else(|| Error::from_reason("this is not there for a sandbox of a server yet"))
    }

    /// Does work on the files of a session, and delivers its end.
    fn on_files(
        &self,
        ticket: u32,
        session: String,
        path: String,
        work: impl FnOnce(Files<'_>, &str) -> std::result::Result<Option<Value>, FileError> + Send + 'static,
    ) -> Result<()> {
        self.work(ticket, move |local| {
            let session = local.session(&session)?;
            work(Files(&session), &path).map_err(|error| Failure::of_file(error, &path))
        })
    }

    /// Does work that blocks, and delivers its end.
    fn work(
        &self,
        ticket: u32,
        work: impl FnOnce(Local) -> std::result::Result<Option<Value>, Failure> + Send + 'static,
    ) -> Result<()> {
        let (local, deliver) = (self.local()?, self.deliver.clone());
        self.runtime.spawn_blocking(move || deliver.end(ticket, work(local)));
        Ok(())
    }
}

/// Answers to one request.
#[napi]
pub(crate) struct Mailbox {
    mailbox: Arc<cellar_embed::Mailbox>,
    runtime: Runtime,
    deliver: Deliver,
}

#[napi]
impl Mailbox {
    /// Delivers an array of the answers that are there, when there are any; null, when the connection has ended.
    #[napi]
    pub fn take(&self, ticket: u32) {
        let (mailbox, deliver) = (self.mailbox.clone(), self.deliver.clone());
        self.runtime.spawn(async move {
            let answers = mailbox.take_many(BATCH_MAX).await;
            deliver.value(ticket, (!answers.is_empty()).then(|| Either::A(array(answers))));
        });
    }
}
