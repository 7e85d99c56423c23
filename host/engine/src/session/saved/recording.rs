//! Recording a session.

use std::{path::Path, sync::Arc};

use cellar_core::{
    limits::{Limits, RECORDING_BYTES_MAX},
    time::wall_nanos,
};

use cellar_results::artifacts::ArtifactKey;

use crate::{
    contract::error::Error,
    formats::tape::Head,
    kernel::{
        border::WORLD_VERSION,
        record::{Recorder, RunRecord},
    },
    session::Session,
};

impl Session {
    /// Ends the recording that [`SessionConfig::record`](crate::SessionConfig::record) began: it does not contain what the
    /// session does from now on. [`Host::replay`](crate::Host::replay) can replay it, on other machines as well. A recording
    /// ends by itself when its session is gone, but then its errors are not reported. Does nothing when the session is not
    /// recorded.
    ///
    /// A recording contains the input of cells: their code, their environment, what they read from files, the answers of
    /// tools and models. It contains nothing that bridges keep to themselves, such as keys; it contains the key that makes
    /// the ids of the session's artifacts. At most [`RECORDING_BYTES_MAX`].
    ///
    /// # Errors
    /// `Recording` when it could not be written, or not all of it.
    pub fn end_recording(&self) -> Result<(), Error> {
        self.inner.recorder.as_ref().map_or(Ok(()), |recorder| recorder.end())
    }

    /// Returns a recorder for a new run; `None` if the session is not recorded.
    pub(crate) fn run_record(&self) -> Option<RunRecord> {
        self.inner.recorder.as_ref().map(Recorder::run)
    }
}

/// Begins the recording of a session.
pub(crate) fn begin(
    path: &Path,
    session: &str,
    limits: &Limits,
    artifacts: &ArtifactKey,
) -> Result<Arc<Recorder>, Error> {
    let head = Head {
        session: session.to_owned(),
        began: wall_nanos(),
        world: WORLD_VERSION.to_owned(),
        limits: limits.clone(),
        artifacts: artifacts.clone(),
    };
    Ok(Arc::new(Recorder::create(path, &head, RECORDING_BYTES_MAX)?))
}
