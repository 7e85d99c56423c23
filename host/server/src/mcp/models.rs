//! Models that clients offer to the cells of their calls, where none is configured.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use cellar_bridges::{Sample, SampleFuture, Sampler};
use cellar_core::sync::lock;
use cellar_engine::bridges::{CallError, CallErrorKind};
use tokio::sync::{mpsc, oneshot};

/// Questions that wait for a client; then cells wait.
const QUESTIONS_MAX: usize = 16;

/// Prompt of a cell for the model of a client.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) sample: Sample,
    /// Sender of the client's reply. Closed when the cell no longer waits.
    pub(super) reply: oneshot::Sender<Result<String, CallError>>,
}

/// Offers of models, by session: each is a call of a client that is under way; the latest is last and is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offers(Arc<Mutex<HashMap<String, Vec<mpsc::Sender<Question>>>>>);

/// Client's offer to answer the prompts of a session, while this lives.
#[derive(Debug)]
pub(super) struct Offer {
    offers: Offers,
    session: String,
    questions: mpsc::Receiver<Question>,
}

impl Offers {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Vec<mpsc::Sender<Question>>>> {
        lock(&self.0)
    }

    pub(super) fn offer(&self, session: &str) -> Offer {
        let (sender, questions) = mpsc::channel(QUESTIONS_MAX);
        self.all().entry(session.to_owned()).or_default().push(sender);
        Offer { offers: self.clone(), session: session.to_owned(), questions }
    }
}

impl Offer {
    /// Waits for the next prompt.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Question> {
        self.questions.recv().await
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.questions.close();
        let mut all = self.offers.all();
        if let Some(offers) = all.get_mut(&self.session) {
            offers.retain(|offer| !offer.is_closed());
            if offers.is_empty() {
                all.remove(&self.session);
            }
        }
    }
}

impl Sampler for Offers {
    fn ask(&self, session: &str, sample: Sample) -> Option<SampleFuture> {
        let offer = self.all().get(session)?.last()?.clone();
        let (reply, answer) = oneshot::channel();
        Some(Box::pin(async move {
            let gone = || CallError::new(CallErrorKind::Failed, "the client that offers a model has gone");
            offer.send(Question { sample, reply }).await.map_err(|_| gone())?;
            // Whatever holds the offer must not outlive the call of the client.
            drop(offer);
            answer.await.unwrap_or_else(|_| Err(gone()))
        }))
    }
}
