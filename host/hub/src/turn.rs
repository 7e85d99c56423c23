//! Order of the requests to a session: each begins when the one before it has begun.

use std::sync::Mutex;

use cellar_core::sync::lock;
use cellar_engine::Language;
use tokio::sync::oneshot;

use crate::SessionEntry;

impl SessionEntry {
    /// Gives languages fresh kernels, once all runs have begun that were started before. Their cells on these kernels end.
    ///
    /// # Cancel safety
    /// Dropped before it ends, it may have done nothing.
    pub async fn reset(&self, languages: Vec<Language>) {
        self.turns.take().come().await;
        languages.into_iter().for_each(|language| self.session.reset(language));
    }
}

/// Queue of one session's requests.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Option<oneshot::Receiver<()>>>);

impl Turns {
    /// Takes a position behind all that were taken before.
    pub(crate) fn take(&self) -> Turn {
        let (begun, next) = oneshot::channel();
        Turn { before: lock(&self.0).replace(next), _begun: begun }
    }
}

/// Position in the queue. Dropping it lets the next one proceed.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Closed when the request before has begun.
    before: Option<oneshot::Receiver<()>>,
    _begun: oneshot::Sender<()>,
}

impl Turn {
    /// Waits until the request before has begun.
    pub(crate) async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await;
        }
    }
}
