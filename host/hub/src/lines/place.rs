//! Service of one caller's lines: its hub, and the requests that it may make.

use std::{path::PathBuf, sync::Arc};

use cellar_config::Config;
use cellar_engine::Snapshot;
use cellar_wire::{Open, Refusal, check::Invalid};
use futures::future::BoxFuture;

use crate::{Hub, HubError, OpenRequest, SessionEntry};

/// Reason for the refusal of a line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The hub refused.
    #[error("{}", .0)]
    Hub(Arc<HubError>),
    /// The line is not a valid request.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The place refused; this is its own message.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl From<HubError> for LineError {
    fn from(error: HubError) -> LineError {
        LineError::Hub(Arc::new(error))
    }
}

impl From<Arc<HubError>> for LineError {
    fn from(error: Arc<HubError>) -> LineError {
        LineError::Hub(error)
    }
}

impl LineError {
    /// A refusal with this code.
    pub fn refused(code: &str, message: impl Into<String>) -> LineError {
        LineError::Refused(Refusal { code: code.to_owned(), message: message.into(), hint: None })
    }

    /// The refusal that says it.
    pub fn refusal(&self) -> Refusal {
        let hint = match self {
            LineError::Hub(error) => error.hint(),
            LineError::Refused(refusal) => refusal.hint.clone(),
            LineError::Invalid(_) => None,
        };
        Refusal { code: self.code().to_owned(), message: self.to_string(), hint }
    }

    /// A stable word for the error.
    pub fn code(&self) -> &str {
        match self {
            LineError::Hub(error) => match &**error {
                HubError::Engine(error) => error.code(),
                HubError::Artifact(error) => error.code(),
                HubError::Quota(_) => "quota",
                _ => "usage",
            },
            LineError::Invalid(_) => Invalid::CODE,
            LineError::Refused(refusal) => &refusal.code,
        }
    }
}

/// Service that the lines of one caller are sent to.
pub trait Place: Send + Sync + 'static {
    /// The hub of its sessions.
    fn hub(&self) -> &Hub;

    /// Returns the session of requests that name none: the caller's name for it and, if it exists already, the hub's
    /// name.
    fn default_session(&self) -> (String, Option<String>) {
        (DEFAULT_SESSION.to_owned(), None)
    }

    /// Returns the hub's name for a session that the caller calls `own`.
    fn session_name(&self, own: &str) -> String {
        own.to_owned()
    }

    /// Returns the hub's id for a run that the caller calls `own`.
    fn run_id(&self, own: &str) -> String {
        own.to_owned()
    }

    /// Checks whether new work may begin.
    ///
    /// # Errors
    /// Reason for the refusal.
    fn admit(&self) -> Result<(), LineError> {
        Ok(())
    }

    /// The session of this name in the hub.
    fn session<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SessionEntry, LineError>> {
        Box::pin(async move { Ok(self.hub().session(name)?) })
    }

    /// Opens a session with a state of another one, the present one unless named, and returns what the caller and the hub call it. The caller has named
    /// it so, or nothing, and then `unnamed` is a name that it does not use.
    fn fork<'a>(
        &'a self,
        from: &'a str,
        state: Option<&'a str>,
        named: Option<String>,
        unnamed: String,
    ) -> BoxFuture<'a, Result<(String, String), LineError>> {
        Box::pin(async move {
            let own = named.unwrap_or(unnamed);
            let new = Some(self.session_name(&own));
            let name = match state {
                Some(state) => self.hub().branch(from, state, new).await?,
                None => self.hub().fork(from, new).await?,
            };
            Ok((own, name))
        })
    }

    /// Ends a session.
    fn close<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), LineError>> {
        Box::pin(async move { Ok(self.hub().close(name)?) })
    }

    /// Answers a call that the caller learned of by other means than lines; returns true if it was waiting.
    fn reply(&self, _call: &str, _result: &Result<String, String>) -> bool {
        false
    }

    /// Turns a caller's request for a session into that of the hub.
    fn open(&self, open: Open<Config>) -> BoxFuture<'_, Result<OpenRequest, LineError>>;

    /// Returns the snapshot that a caller names by this path.
    fn read_snapshot(&self, file: PathBuf) -> BoxFuture<'_, Result<Snapshot, LineError>>;

    /// Keeps a snapshot by the name that a caller gives it.
    fn write_snapshot(&self, snapshot: Snapshot, file: PathBuf) -> BoxFuture<'_, Result<(), LineError>>;

    /// Returns an error in the form that the caller receives.
    fn refusal(&self, error: LineError) -> Refusal {
        error.refusal()
    }
}

/// The session of requests that name none, unless a place says otherwise; it is opened by the first of them.
const DEFAULT_SESSION: &str = "default";
