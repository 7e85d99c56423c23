//! Storage of a session's long outputs, and the artifacts that the session may read.

use std::sync::{Arc, Mutex};

use cellar_core::{event::EventKind, mime::MimeBundle, sync::lock};
use cellar_results::{
    artifacts::{ArtifactError, ArtifactKeys, SessionArtifacts},
    renderer,
    result::OutputPolicy,
    tables::Tables,
};
use futures::future::pending;

use super::Session;

/// Artifacts that a session may read. Forks that its cells make share it.
pub(crate) struct Reach {
    /// Id of the session that owns the artifacts.
    session: String,
    keys: Mutex<Arc<ArtifactKeys>>,
}

impl Reach {
    pub(crate) fn new(session: &str, keys: ArtifactKeys) -> Reach {
        Reach { session: session.to_owned(), keys: Mutex::new(Arc::new(keys)) }
    }

    pub(crate) fn keys(&self) -> Arc<ArtifactKeys> {
        lock(&self.keys).clone()
    }

    /// Adds the artifacts that a session with the keys `from` could read at the moment `until`.
    pub(crate) fn inherit(&self, from: &ArtifactKeys, until: u64) {
        Arc::make_mut(&mut *lock(&self.keys)).inherit(from, until);
    }
}

impl Session {
    /// Bounds on the part of a long output that results show.
    pub fn output_policy(&self) -> OutputPolicy {
        self.inner.config.outputs.policy
    }

    /// Artifacts that the session's cells can read. Blocks on the disk on first use of the temporary store.
    ///
    /// # Errors
    /// The temporary store cannot be created.
    pub fn artifacts(&self) -> Result<SessionArtifacts, ArtifactError> {
        self.tables().artifacts()
    }

    /// Returns the store for the tables that the session's cells display.
    pub(crate) fn tables(&self) -> Tables {
        let Reach { session, keys } = &*self.inner.shared.reach;
        Tables::new(session, lock(keys).clone(), self.inner.config.outputs.artifacts.clone())
    }

    /// Adds to an inspected value what renderers add on display: the file of a table, the picture of a chart.
    pub(crate) async fn rendered(&self, data: MimeBundle) -> MimeBundle {
        let shown = EventKind::Display { index: 0, data, display_id: None, is_value: true };
        let event = match renderer::begin(self.renderers(), || self.tables(), shown, || Box::pin(pending())) {
            renderer::Begun::Rendering(rendering) => rendering.await.into_iter().next(),
            renderer::Begun::AsItIs(event) => Some(event),
        };
        match event {
            Some(EventKind::Display { data, .. }) => data,
            _ => MimeBundle::default(),
        }
    }
}
