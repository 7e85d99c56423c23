//! Tools of MCP servers, over stdio and streamable HTTP. This process is the client.
//!
//! A server is started, or connected to, when a cell first needs it: when the cell calls a tool that no other source has,
//! or lists the tools. All servers that may have the tool start at once. A server that ends is started again by the next
//! call, after a pause that grows while it keeps failing. Read [`Server`] first.

mod connection;
mod content;
mod transport;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cellar_engine::bridges::{CallError, CallErrorKind, Response};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use crate::{
    options::McpServer,
    tools::{Tools, who},
};
use connection::Connection;

/// Pause after a server's first failure; doubled by each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum of that pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A server that lived as long has not failed to start.
const LIFE_MIN: Duration = Duration::from_secs(10);

/// A connection that is being made, or was; many may wait for it.
type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<str>>>>;

/// A server that is granted, running or not.
pub(crate) struct Server {
    name: String,
    options: McpServer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connecting: Option<Connecting>,
    /// Failures one after another.
    failures: u32,
    retry_at: Option<Instant>,
}

impl Server {
    pub(crate) fn new(name: String, options: McpServer) -> Arc<Server> {
        Arc::new(Server { name, options, state: Mutex::default() })
    }

    /// The key under which it is granted.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the server may have a tool that cells call `name`.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        self.options.may_have(name)
    }

    /// Returns its tools, and starts the server if necessary.
    ///
    /// # Errors
    /// A message that names the server.
    ///
    /// # Cancel safety
    /// Cancel safe: a start continues without its caller, for later callers.
    pub(crate) async fn tools(self: &Arc<Server>) -> Result<Arc<Tools>, CallError> {
        let connection = self.connection().await?;
        connection.tools(self).await.map_err(|reason| self.failed(&reason))
    }

    /// Calls the tool that the server knows as `bare` and cells as `name`.
    ///
    /// # Cancel safety
    /// Dropping the future tells the server that the request is cancelled.
    async fn call(self: Arc<Server>, name: String, bare: String, arguments: String) -> Result<Response, CallError> {
        let connection = self.connection().await?;
        let timeout = self.options.timeout;
        let who = who(&name);
        let reply = tokio::time::timeout(timeout, connection.call(bare, &arguments)).await.map_err(|_| {
            let seconds = timeout.as_secs();
            CallError::new(CallErrorKind::Limit, format!("{who} did not answer within {seconds} s and was cancelled"))
        })?;
        let result = reply.map_err(|reason| self.failed(&format!("{who}: {reason}")))?;
        content::response(&who, result)
    }

    fn failed(&self, reason: &str) -> CallError {
        CallError::new(CallErrorKind::Failed, format!("MCP server `{}`: {reason}", self.name))
    }

    async fn connection(self: &Arc<Server>) -> Result<Arc<Connection>, CallError> {
        let connecting = self.connecting();
        connecting.await.map_err(|reason| self.failed(&reason))
    }

    /// Returns the current connection, or a new one if it is closed and the pause is over.
    fn connecting(self: &Arc<Server>) -> Connecting {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = state.connecting.clone() {
            match current.peek() {
                None => return current,
                Some(Ok(connection)) if !connection.is_closed() => return current,
                Some(Ok(connection)) if connection.age() >= LIFE_MIN => state.failures = 0,
                // It died young: as good as a start that failed.
                Some(Ok(connection)) if state.retry_at.is_none() => {
                    state.failed();
                    let reason = connection.last_words();
                    state.connecting = Some(futures::future::ready(Err(reason.into())).boxed().shared());
                }
                Some(_) => {}
            }
            if let (Some(current), Some(_)) = (&state.connecting, state.retry_at.filter(|at| Instant::now() < *at)) {
                return current.clone();
            }
        }
        state.retry_at = None;
        let server = self.clone();
        let connecting = async move { server.start().await }.boxed().shared();
        state.connecting = Some(connecting.clone());
        tokio::spawn(connecting.clone());
        connecting
    }

    async fn start(&self) -> Result<Arc<Connection>, Arc<str>> {
        let result = match tokio::time::timeout(self.options.timeout, Connection::open(&self.options)).await {
            Ok(result) => result,
            Err(_) => Err(format!("did not start within {} s", self.options.timeout.as_secs())),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        result.map(Arc::new).map_err(|reason| {
            tracing::warn!(server = self.name, reason, "an MCP server cannot be reached");
            state.failed();
            reason.into()
        })
    }
}

/// The answer to a call whose server was ungranted meanwhile.
fn gone(name: &str) -> CallError {
    CallError::new(CallErrorKind::Cancelled, format!("{}: its server was closed", who(name)))
}

impl State {
    fn failed(&mut self) {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Instant::now().checked_add(pause);
    }
}

#[cfg(test)]
mod tests;
