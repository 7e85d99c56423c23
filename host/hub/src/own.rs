//! A hub of one session, for programs that run cells in a session of their own and end with it.

use std::{sync::Arc, time::Duration};

use cellar_bridges::Doors;
use cellar_engine::{Cell, Language, Session};
use cellar_setup::{Folders, Progress, SessionRequest};

use crate::{
    error::HubError,
    hub::{Hub, HubConfig, SessionEntry},
    run::{OnDisconnect, RunHandle, RunRequest},
};

/// A session on a host of its own, and the hub that its runs are in.
#[derive(Clone, Debug)]
pub struct OwnSession {
    hub: Hub,
    session: Session,
}

impl OwnSession {
    /// Opens the session, with what its languages need made ready. `kernels_max` is the number of live kernels a flavour.
    ///
    /// # Errors
    /// The configuration is not valid, a guest is missing or cannot be baked, a folder cannot be granted.
    pub async fn open(
        folders: &Folders,
        request: &SessionRequest,
        doors: Arc<dyn Doors>,
        languages: Vec<Language>,
        kernels_max: u32,
        progress: Progress,
    ) -> Result<OwnSession, HubError> {
        let opened =
            cellar_setup::open_session(folders, request, doors.clone(), languages, kernels_max, progress).await;
        let session = opened?;
        let host = session.host().clone();
        let host_config = host.config().clone();
        let hub = Hub::on(host, host_config, HubConfig { progress, ..HubConfig::default() }, doors)?;
        hub.add(session.id().to_owned(), SessionEntry::adopted(session.clone()))?;
        Ok(OwnSession { hub, session })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Starts a run that its caller reads as its owner from the first event on, and that is cancelled when its reader is
    /// dropped.
    ///
    /// # Errors
    /// `RunsFull`. What is found out later is said by [`RunHandle::result`].
    pub fn start(&self, cells: Vec<Cell>, keep_going: bool) -> Result<RunHandle, HubError> {
        let request = RunRequest {
            id: self.session.next_cell().0.to_string(),
            cells,
            keep_going,
            is_owned: true,
            on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
        };
        self.hub.start(self.session.id(), request)
    }
}
