//! Requests about the state of a session. It is captured between two steps of its cells, which may take as long as a cell
//! computes: those who wait for that are tasks of their own.

use std::path::PathBuf;

use cellar_engine::Session;

use crate::{report::CliError, sessions::write_snapshot};
use cellar_wire::OutputJson;

/// What a task leaves when it ends.
pub(super) enum Ended {
    /// A run was told of to its end.
    Run,
    /// A request to write a snapshot.
    Saved(Asked, Result<(), CliError>),
    /// A request for what a model is given of a run.
    Read(Asked, Result<Vec<OutputJson>, CliError>),
    /// A request for a fork, with the name of the fork.
    Forked(Asked, Result<String, CliError>),
}

/// Whom an answer is for.
pub(super) struct Asked {
    pub(super) id: Option<String>,
    pub(super) line: u64,
}

/// Writes the state of a session into a file.
pub(super) async fn save(session: Session, file: PathBuf, asked: Asked) -> Ended {
    let saved = match session.snapshot().await {
        Ok(snapshot) => on_a_thread(move || write_snapshot(&snapshot, &file)).await,
        Err(error) => Err(error.into()),
    };
    Ended::Saved(asked, saved)
}

/// Does what waits for the disk.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| CliError::Start(error.into()))?
}
