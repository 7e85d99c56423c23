//! Refusals, as programs hear of them.

use std::error::Error as StdError;

use cellar_core::text::describe;
use cellar_engine::Error;
use cellar_hub::HubError;

/// Refusal of the engine.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct EmbedError {
    /// A stable word for programs, such as `usage`, `closed` or `quota`.
    pub code: String,
    /// The reason.
    pub message: String,
    /// A remedy, if there is one.
    pub hint: Option<String>,
}

impl EmbedError {
    /// A refusal with this code.
    pub fn new(code: &str, message: impl Into<String>) -> EmbedError {
        EmbedError { code: code.to_owned(), message: message.into(), hint: None }
    }

    /// A refusal with the message of an error and of its causes.
    pub(crate) fn of(code: &str, error: &dyn StdError) -> EmbedError {
        EmbedError::new(code, describe(error))
    }

    /// The refusal of a connection that has ended.
    pub(crate) fn closed() -> EmbedError {
        EmbedError::new("closed", "the sandbox is closed")
    }

    /// Refuses what was made before this process was forked: its threads are not here.
    ///
    /// # Errors
    /// `process` is another one than this.
    pub fn check_process(process: u32) -> Result<(), EmbedError> {
        if process == std::process::id() {
            return Ok(());
        }
        let message = "this was opened before the process was forked".to_owned();
        Err(EmbedError { code: "forked".into(), message, hint: Some("open sandboxes in the child itself".into()) })
    }
}

impl From<Error> for EmbedError {
    fn from(error: Error) -> EmbedError {
        EmbedError::of(error.code(), &error)
    }
}

impl From<HubError> for EmbedError {
    fn from(error: HubError) -> EmbedError {
        let code = if let HubError::Engine(error) = &error { error.code() } else { "usage" };
        EmbedError { code: code.to_owned(), message: describe(&error), hint: error.hint() }
    }
}
