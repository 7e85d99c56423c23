//! Commands: processes that the embedder starts in a session, beside its cells.
//!
//! A command is a process without a cell that waits for it: its events are those of a run of its own, and it ends with
//! that run. It shares what processes share: the folders, the disk quota, and the memory of the session's processes.

use std::sync::{Arc, Mutex};

use cellar_core::{exact::escape_bytes, sync::lock};

use super::{Process, Processes};
use crate::{
    contract::{bridge::PipeEnd, error::Error},
    kernel::scheduling::Spent,
    session::Session,
};

impl Session {
    /// Opens the session of a command: its first run, of one cell, is the command. `order` makes the order that this cell
    /// reads, of the number of the pipe that is its standard input. `environment` is added to that of this session.
    ///
    /// # Errors
    /// As for any session.
    pub fn command(
        &self,
        environment: Vec<(String, String)>,
        order: impl FnOnce(u64) -> String,
    ) -> Result<(Session, CommandInput), Error> {
        let inner = &self.inner;
        let processes = inner.shared.processes.clone();
        let pipe = processes.channels.make(self.id(), None);
        let reply = Arc::<Mutex<Option<String>>>::default();
        let mut input = CommandInput { processes: processes.clone(), pipe, child: None, reply: reply.clone() };
        let process = Process {
            root: (format!("{}::command::{pipe}", self.id()), 0),
            order: order(pipe),
            reply,
            bill: Arc::new(Spent::default()),
            memory: processes.memory.clone(),
            place: None,
            starter: inner.link(),
            home: inner.claimed_home(),
        };
        let mut all = inner.config.environment.clone();
        all.retain(|(name, _)| environment.iter().all(|(own, _)| own != name));
        all.extend(environment);
        let child = self.process_session(Arc::new(process), all, None)?;
        input.child = Some(child.id().to_owned());
        Ok((child, input))
    }
}

/// Standard input of a command. The pipe, and all channels that the command made, end when this is dropped.
#[derive(Debug)]
pub struct CommandInput {
    processes: Arc<Processes>,
    pipe: u64,
    /// Session of the command.
    child: Option<String>,
    reply: Arc<Mutex<Option<String>>>,
}

impl CommandInput {
    /// Writes bytes, and waits for room. Returns false if nobody reads them any more.
    ///
    /// # Cancel safety
    /// Not cancel safe: a part may be written, and stays.
    pub async fn write(&self, bytes: &[u8]) -> bool {
        self.processes.channels.write(self.pipe, &escape_bytes(bytes)).await
    }

    /// Ends the input: the command reads what was written, and then the end.
    pub fn close(&self) {
        self.processes.channels.close(self.pipe, PipeEnd::Writing);
    }

    /// Latest reply of the command, which the host does not parse.
    pub fn reply(&self) -> Option<String> {
        lock(&self.reply).clone()
    }
}

impl Drop for CommandInput {
    fn drop(&mut self) {
        self.processes.channels.close(self.pipe, PipeEnd::Reading);
        self.child.iter().for_each(|child| self.processes.channels.forget_of(child));
    }
}
