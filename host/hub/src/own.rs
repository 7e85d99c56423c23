//! A session and the hub that its runs are in, for front ends that run cells in one session.

use std::{sync::Arc, time::Duration};

use cellar_bridges::Doors;
use cellar_config::{Folders, Progress, SessionRequest};
use cellar_engine::{Cell, Language, Session, config::RunOptions, made_up_id, store::check_name};

use crate::{
    approvals::approver,
    error::HubError,
    hub::{Hub, HubConfig, Keep, OpenRequest},
    run::{OnDisconnect, RunHandle, RunRequest},
};

/// A session, and the hub that its runs are in.
#[derive(Clone, Debug)]
pub struct OwnSession {
    hub: Hub,
    session: Session,
}

impl OwnSession {
    /// A session of a hub that others use as well.
    ///
    /// # Errors
    /// `SessionUnknown`.
    pub fn of(hub: Hub, name: &str) -> Result<OwnSession, HubError> {
        let session = hub.session(name)?.session;
        Ok(OwnSession { hub, session })
    }

    /// Opens a session on a host of its own. `kernels_max` is the number of live kernels of each flavour.
    ///
    /// # Errors
    /// The configuration is not valid, the session is in use, a folder cannot be granted.
    pub async fn open(
        folders: &Folders,
        request: SessionRequest,
        doors: Arc<dyn Doors>,
        kernels_max: u32,
        progress: Progress,
    ) -> Result<OwnSession, HubError> {
        let SessionRequest { name, record, overrides } = request;
        let keep = if name.is_some() { Keep::Either } else { Keep::No };
        // Without a store, what is kept goes where temporary files go.
        let has_store = name.is_some() || folders.store.is_some();
        // Before anything is made.
        name.as_deref().map(check_name).transpose()?;
        let file = overrides.file()?;
        let config = HubConfig {
            overrides,
            store: name.is_some().then(|| folders.sessions()).transpose()?,
            artifacts: has_store.then(|| folders.artifacts(&file.artifacts)).transpose()?,
            // Whoever opened the session says when it is saved.
            is_durable: false,
            approver: approver(folders),
            progress,
            ..HubConfig::default()
        };
        let hub = Hub::open(folders.host_config(kernels_max, file.host.stops)?, config, doors)?;
        let name = Some(name.unwrap_or_else(made_up_id));
        let name = hub.open_session(OpenRequest { name, record, keep, ..OpenRequest::default() }, None).await?;
        let session = hub.session(&name)?.session;
        Ok(OwnSession { hub, session })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Bakes the guests of these languages that are not baked. A run does it for those of its cells.
    ///
    /// # Errors
    /// A guest cannot be baked.
    pub async fn make_ready(&self, languages: &[Language]) -> Result<(), HubError> {
        self.hub.make_ready(&self.session, languages).await
    }

    /// Starts a run that its caller reads as its owner from the first event on. The run is cancelled when its reader is
    /// dropped.
    ///
    /// # Errors
    /// `RunsFull`. Later errors are those of [`RunHandle::result`].
    pub fn start(&self, cells: Vec<Cell>, keep_going: bool, options: RunOptions) -> Result<RunHandle, HubError> {
        let request = RunRequest {
            // Runs of other sessions may be in the hub.
            id: format!("{}-{}", self.session.id(), self.session.next_cell().0),
            cells,
            keep_going,
            options,
            is_owned: true,
            on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
        };
        self.hub.start(self.session.id(), request)
    }
}
