//! Sessions that begin with the state of another one.

use std::sync::Arc;

use cellar_engine::store::StoredSession;
use tokio::task::spawn_blocking;

use super::{Hub, Keep, OpenRequest, SessionEntry};
use crate::error::HubError;

impl Hub {
    /// Opens a session with the state and the grants of another one, and copies of its own files at that instant. Returns its
    /// name. Waits for code that runs.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionOpen`, `SessionsFull`, or an error of the engine.
    pub async fn fork(&self, from: &str, new: Option<String>) -> Result<String, HubError> {
        self.begin_with(from, None, new).await
    }

    /// Opens a session with a state of another one that is kept, with its grants, and copies of its own files at that instant.
    /// Returns its name.
    ///
    /// # Errors
    /// As [`Hub::fork`].
    pub async fn branch(&self, from: &str, state: &str, new: Option<String>) -> Result<String, HubError> {
        self.begin_with(from, Some(state), new).await
    }

    async fn begin_with(&self, from: &str, state: Option<&str>, new: Option<String>) -> Result<String, HubError> {
        let entry = self.session(from)?;
        let name = self.name(new);
        self.check_new_session(&name)?;
        if let Some(home) = self.new_home(&entry, &name).await? {
            match state {
                Some(state) => entry.session.branch_into(state, home).await?,
                None => entry.session.fork_into(home).await?,
            }
            let SessionEntry { tools, input, config, answerer, .. } = entry;
            let keep = Keep::Existing;
            let open = OpenRequest { name: Some(name), tools, input, config, keep, ..OpenRequest::default() };
            return self.open_session(open, answerer).await;
        }
        let granted = self.0.config.with_tools(&name, &entry.bridges, &entry.tools, entry.answerer.as_ref());
        let bridges = self.0.config.answered(granted, entry.rules.as_ref());
        let session = match state {
            Some(state) => entry.session.branch(state, Some(name.clone()), Some(bridges)).await?,
            None => entry.session.fork_with(Some(name.clone()), bridges).await?,
        };
        self.add(name, SessionEntry { session, turns: Arc::default(), ..entry })
    }

    /// Place in the store for a session that begins with the state of one that is stored.
    async fn new_home(&self, entry: &SessionEntry, name: &str) -> Result<Option<StoredSession>, HubError> {
        let Some(store) = self.0.config.store.clone().filter(|_| entry.is_stored) else { return Ok(None) };
        let name = name.to_owned();
        let claimed = spawn_blocking(move || store.claim_new(&name));
        Ok(Some(claimed.await.map_err(HubError::Task)??))
    }
}
