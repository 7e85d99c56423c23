//! Errors of a hub.

use cellar_config::SetupError;
use cellar_engine::{Error, artifacts::ArtifactError};

use crate::bounds::QuotaError;

/// Reason for which a hub refuses a request. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The engine failed or refused.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The store of artifacts failed or refused.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A session cannot be set up.
    #[error(transparent)]
    Setup(SetupError),
    /// No session has this name.
    #[error("no session `{0}` is open")]
    SessionUnknown(String),
    /// A session has this name already.
    #[error("a session `{0}` is open")]
    SessionOpen(String),
    /// No more sessions may be open.
    #[error("{0} sessions are open")]
    SessionsFull(usize),
    /// No run that is under way has this id.
    #[error("no run `{0}` is under way")]
    RunUnknown(String),
    /// No run that has ended and is still kept has this id.
    #[error("no run `{id}` is kept that has ended")]
    RunForgotten {
        /// The id.
        id: String,
        /// Number of ended runs that the hub keeps.
        kept: usize,
    },
    /// A run that is under way has this id.
    #[error("a run `{0}` is under way")]
    RunUnderWay(String),
    /// No more runs may be under way.
    #[error("{0} runs are under way")]
    RunsFull(usize),
    /// A quota that the sessions of the hub share is used up.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// No call of this id waits for an answer.
    #[error("no call `{0}` waits for an answer")]
    CallUnknown(String),
    /// A task of the runtime failed.
    #[error("a task of the host failed")]
    Task(#[source] tokio::task::JoinError),
}

/// Passes on errors of the engine and of the artifact store as they are, so that they are the same for every caller.
impl From<SetupError> for HubError {
    fn from(error: SetupError) -> HubError {
        match error {
            SetupError::Engine(error) => HubError::Engine(error),
            SetupError::Artifact(error) => HubError::Artifact(error),
            other => HubError::Setup(other),
        }
    }
}

impl HubError {
    /// A stable word for the error, for programs to match on.
    pub fn code(&self) -> &'static str {
        match self {
            HubError::Engine(error) => error.code(),
            HubError::Artifact(error) => error.code(),
            HubError::Setup(_) => "setup",
            HubError::SessionUnknown(_) => "session-not-open",
            HubError::SessionOpen(_) => "session-open",
            HubError::SessionsFull(_) => "sessions-full",
            HubError::RunUnknown(_) | HubError::RunForgotten { .. } => "run-unknown",
            HubError::RunUnderWay(_) => "run-under-way",
            HubError::RunsFull(_) => "runs-full",
            HubError::Quota(_) => "quota",
            HubError::CallUnknown(_) => "call-unknown",
            HubError::Task(_) => "task",
        }
    }

    /// Returns advice for the caller, where the message does not suggest it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            HubError::SessionOpen(_) => "close it, or choose another name".to_owned(),
            HubError::SessionsFull(_) => "close some of them".to_owned(),
            HubError::RunForgotten { kept, .. } => {
                format!("ask when its result has come, and before {kept} others have ended")
            }
            HubError::RunUnderWay(_) => "give each run an id of its own".to_owned(),
            HubError::RunsFull(_) => "wait until some of them have ended".to_owned(),
            _ => return None,
        })
    }
}
