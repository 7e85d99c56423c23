//! Calls of tools that the caller answers for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cellar_engine::{CallError, CallErrorKind, CallFuture, CellId, Response};
use tokio::sync::{mpsc, oneshot};

use crate::wire::Answer;

type Reply = Result<String, String>;

/// The calls that wait for the caller.
pub(super) struct Calls {
    open: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
    count: AtomicU64,
    /// The caller says nothing more.
    is_over: AtomicBool,
    /// Weak, because what holds this may outlive its session a little, and the output ends with its last writer.
    answers: mpsc::WeakSender<Answer>,
}

/// A call that waits. Dropped before its answer, it tells the caller that nobody waits for it.
struct Open {
    calls: Arc<Calls>,
    call: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.calls.take(&self.call).is_some() {
            let call = std::mem::take(&mut self.call);
            if let Some(answers) = self.calls.answers.upgrade() {
                tokio::spawn(async move {
                    let _ = answers.send(Answer::CallCancelled { call }).await;
                });
            }
        }
    }
}

impl Calls {
    pub(super) fn new(answers: mpsc::WeakSender<Answer>) -> Calls {
        Calls { open: Mutex::default(), count: AtomicU64::new(1), is_over: AtomicBool::new(false), answers }
    }

    /// What calls the tool of this name for a session.
    pub(super) fn tool(
        self: &Arc<Calls>,
        session: &str,
        tool: &str,
    ) -> impl Fn(String, CellId) -> CallFuture + Send + Sync + use<> {
        let (calls, session, tool) = (self.clone(), session.to_owned(), tool.to_owned());
        move |arguments: String, cell: CellId| -> CallFuture {
            Box::pin(calls.clone().call(session.clone(), tool.clone(), arguments, cell))
        }
    }

    async fn call(
        self: Arc<Calls>,
        session: String,
        tool: String,
        arguments: String,
        cell: CellId,
    ) -> Result<Response, CallError> {
        let failed = |kind, what: &str| CallError::new(kind, format!("tool `{tool}` {what}"));
        let arguments = serde_json::from_str(&arguments)
            .map_err(|error| failed(CallErrorKind::Invalid, &format!("cannot be given its arguments: {error}")))?;
        let call = format!("call-{}", self.count.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        self.lock().insert(call.clone(), sender);
        let _open = Open { calls: self.clone(), call: call.clone() };
        let asked = Answer::Call { call, session, cell: cell.0, tool: tool.clone(), arguments };
        let answers = self.answers.upgrade().filter(|_| !self.is_over.load(Ordering::Relaxed));
        let is_asked = match answers {
            Some(answers) => answers.send(asked).await.is_ok(),
            None => false,
        };
        if !is_asked {
            return Err(failed(CallErrorKind::Cancelled, "cannot be answered: the caller has gone"));
        }
        match reply.await {
            Ok(Ok(json)) => Ok(Response::Json(json)),
            Ok(Err(message)) => Err(failed(CallErrorKind::Failed, &format!("failed: {message}"))),
            Err(_) => Err(failed(CallErrorKind::Cancelled, "was not answered: the caller has gone")),
        }
    }

    /// Answers a call; whether it was waiting.
    pub(super) fn reply(&self, call: &str, reply: Reply) -> bool {
        self.take(call).is_some_and(|sender| sender.send(reply).is_ok())
    }

    /// Fails all calls that wait, and those to come.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.lock().clear();
    }

    fn take(&self, call: &str) -> Option<oneshot::Sender<Reply>> {
        self.lock().remove(call)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Reply>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
