//! Where a session's long outputs are kept, and which artifacts it reaches.

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

/// Which artifacts a session reaches. The forks that its cells make have the same.
pub(crate) struct Reach {
    /// In whose name they are kept.
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

    /// Reaches what a session with these keys reached at a moment as well.
    pub(crate) fn inherit(&self, from: &ArtifactKeys, until: u64) {
        Arc::make_mut(&mut *lock(&self.keys)).inherit(from, until);
    }
}

impl Session {
    /// How much of a long output its results show.
    pub fn output_policy(&self) -> OutputPolicy {
        self.inner.config.outputs.policy
    }

    /// Its artifacts: what its cells may read. Waits for the disk when they are in the temporary place and nobody has used
    /// that yet.
    ///
    /// # Errors
    /// The temporary place cannot be made.
    pub fn artifacts(&self) -> Result<SessionArtifacts, ArtifactError> {
        self.tables().artifacts()
    }

    /// Where the tables go that its cells display.
    pub(crate) fn tables(&self) -> Tables {
        let Reach { session, keys } = &*self.inner.shared.reach;
        Tables::new(session, lock(keys).clone(), self.inner.config.outputs.artifacts.clone())
    }

    /// What was looked at, with what is added to it when it is displayed: the file of a table, the picture of a chart.
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
