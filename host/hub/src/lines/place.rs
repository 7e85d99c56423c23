//! Where the lines of a caller are served: what its hub is, and what it may ask for.

use std::{path::PathBuf, sync::Arc};

use cellar_engine::Snapshot;
use cellar_wire::{Open, Refusal, check::Invalid};
use futures::future::BoxFuture;

use crate::{Hub, HubError, OpenRequest, SessionEntry};

/// Why a line is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The hub refused.
    #[error("{}", .0)]
    Hub(Arc<HubError>),
    /// It is no request.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The place refused, in its own words.
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

    /// A stable word for the error.
    pub fn code(&self) -> &str {
        match self {
            LineError::Hub(error) => match &**error {
                HubError::Engine(error) => error.code(),
                HubError::Artifact(error) => error.code(),
                _ => "usage",
            },
            LineError::Invalid(_) => Invalid::CODE,
            LineError::Refused(refusal) => &refusal.code,
        }
    }
}

/// Where the lines of one caller are served.
pub trait Place: Send + Sync + 'static {
    /// The hub of its sessions.
    fn hub(&self) -> &Hub;

    /// The session of requests that name none: what the caller calls it and, if it is there already, what the hub does.
    fn default_session(&self) -> (String, Option<String>) {
        (DEFAULT_SESSION.to_owned(), None)
    }

    /// What the hub is to call a session that the caller calls so.
    fn session_name(&self, own: &str) -> String {
        own.to_owned()
    }

    /// What the hub is to call a run that the caller calls so.
    fn run_id(&self, own: &str) -> String {
        own.to_owned()
    }

    /// The session of this name in the hub.
    fn session<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SessionEntry, HubError>> {
        Box::pin(async move { self.hub().session(name) })
    }

    /// Opens a session with the state of another one: `new`, and what the hub is to call it.
    fn fork<'a>(&'a self, from: &'a str, new: &'a str) -> BoxFuture<'a, Result<String, HubError>> {
        Box::pin(async move { self.hub().fork(from, Some(self.session_name(new))).await })
    }

    /// Ends a session.
    fn close<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move { self.hub().close(name) })
    }

    /// What a session is opened with that the caller asks for.
    fn open(&self, open: Open) -> BoxFuture<'_, Result<OpenRequest, LineError>>;

    /// The snapshot that a caller names so.
    fn read_snapshot(&self, file: PathBuf) -> BoxFuture<'_, Result<Snapshot, LineError>>;

    /// Keeps a snapshot by the name that a caller gives it.
    fn write_snapshot(&self, snapshot: Snapshot, file: PathBuf) -> BoxFuture<'_, Result<(), LineError>>;

    /// An error as the caller is told of it.
    fn refusal(&self, error: LineError) -> Refusal {
        let hint = match &error {
            LineError::Hub(error) => error.hint(),
            LineError::Refused(refusal) => refusal.hint.clone(),
            LineError::Invalid(_) => None,
        };
        Refusal { code: error.code().to_owned(), message: error.to_string(), hint }
    }
}

/// The session of requests that name none, unless a place says otherwise; it is opened by the first of them.
const DEFAULT_SESSION: &str = "default";
