//! Requests for input that wait for a reader of the session to answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cellar_core::sync::lock;
use tokio::sync::oneshot;

use crate::contract::bridge::{CallError, CallErrorKind, CallFuture, Response};

/// An answer: a line, or why there is none.
type Answer = Result<String, CallError>;

/// The open requests of one session, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: Mutex<HashMap<String, oneshot::Sender<Answer>>>,
    count: AtomicU64,
}

/// A request that waits; forgotten when dropped.
struct Open {
    requests: Arc<Requests>,
    id: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.requests.open).remove(&self.id);
    }
}

impl Requests {
    /// Opens a request. Returns its id and the call that waits for its answer, for `idle` from when it is polled.
    ///
    /// # Cancel safety
    /// Dropping the call takes the request back.
    pub(crate) fn open(self: &Arc<Requests>, idle: Duration) -> (String, CallFuture) {
        let id = format!("input-{}", self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let (sender, answer) = oneshot::channel();
        lock(&self.open).insert(id.clone(), sender);
        let open = Open { requests: self.clone(), id: id.clone() };
        let call = async move {
            let _open = open;
            let (kind, message) = match tokio::time::timeout(idle, answer).await {
                Ok(Ok(answer)) => return answer.map(Response::Text),
                Ok(Err(_)) => (CallErrorKind::Cancelled, "the request for input was taken back".to_owned()),
                Err(_) => (CallErrorKind::Limit, format!("no input came within {} s", idle.as_secs())),
            };
            Err(CallError::new(kind, message))
        };
        (id, Box::pin(call))
    }

    /// Answers a request. Returns true if it was open and its call still waited.
    pub(crate) fn answer(&self, id: &str, answer: Answer) -> bool {
        let sender = lock(&self.open).remove(id);
        sender.is_some_and(|sender| sender.send(answer).is_ok())
    }
}
