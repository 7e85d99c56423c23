//! Calls of tools that a caller of the hub answers for.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use cellar_core::sync::lock;
use cellar_engine::{
    CellId,
    bridges::{CallError, CallErrorKind, CallFuture, Response},
};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

type Reply = Result<String, String>;

/// Requests to an answerer.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// A cell calls a tool; answer with [`Answerer::reply`].
    Call {
        /// Id of the call, to be given with the answer.
        call: String,
        /// The session of the cell.
        session: String,
        /// The cell.
        cell: CellId,
        /// The tool.
        tool: String,
        /// Its arguments, a JSON object.
        arguments: Value,
    },
    /// Withdrawal of a call: nobody waits for its answer any more.
    Cancelled {
        /// The call.
        call: String,
    },
}

/// Sends a request to the answerer. Returns `false` when nobody answers any more.
type Send = Box<dyn Fn(Ask) -> BoxFuture<'static, bool> + std::marker::Send + Sync>;

/// Answerer of calls and input for some sessions: one connection of a front end. A cheap handle.
#[derive(Clone)]
pub struct Answerer(Arc<Inner>);

struct Inner {
    open: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
    count: AtomicU64,
    /// True when nobody answers any more.
    is_over: AtomicBool,
    over: watch::Sender<bool>,
    send: Send,
}

impl fmt::Debug for Answerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerer").field("open", &lock(&self.0.open).len()).finish_non_exhaustive()
    }
}

/// Call that waits for its answer. Dropped before the answer, it reports that nobody waits for it.
struct Open {
    inner: Weak<Inner>,
    call: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        if lock(&inner.open).remove(&self.call).is_some() {
            let call = std::mem::take(&mut self.call);
            tokio::spawn(async move { (inner.send)(Ask::Cancelled { call }).await });
        }
    }
}

impl Answerer {
    /// Creates an answerer that is asked by `send`. The future of `send` is polled on the runtime and may wait: then
    /// the call waits.
    pub fn new(send: impl Fn(Ask) -> BoxFuture<'static, bool> + std::marker::Send + Sync + 'static) -> Answerer {
        Answerer(Arc::new(Inner {
            open: Mutex::default(),
            count: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
            over: watch::Sender::new(false),
            send: Box::new(send),
        }))
    }

    /// Returns a function that calls the tool of this name for a session.
    pub(crate) fn tool(
        &self,
        session: &str,
        tool: &str,
    ) -> impl Fn(String, CellId) -> CallFuture + std::marker::Send + Sync + use<> {
        let (inner, session, tool) = (Arc::downgrade(&self.0), session.to_owned(), tool.to_owned());
        move |arguments: String, cell: CellId| -> CallFuture {
            Box::pin(call(inner.clone(), session.clone(), tool.clone(), arguments, cell))
        }
    }

    /// Answers a call; returns true if it was waiting.
    pub fn reply(&self, call: &str, reply: Reply) -> bool {
        lock(&self.0.open).remove(call).is_some_and(|sender| sender.send(reply).is_ok())
    }

    /// Says that nobody answers any more: calls and requests for input that wait fail, and so do those to come.
    pub fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        lock(&self.0.open).clear();
        self.0.over.send_replace(true);
    }

    /// Waits until nobody answers any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as this handle.
        let _ = self.0.over.subscribe().wait_for(|over| *over).await;
    }
}

async fn call(
    inner: Weak<Inner>,
    session: String,
    tool: String,
    arguments: String,
    cell: CellId,
) -> Result<Response, CallError> {
    let failed = |kind, what: &str| CallError::new(kind, format!("tool `{tool}` {what}"));
    let gone = || failed(CallErrorKind::Cancelled, "cannot be answered: the caller has gone");
    let arguments = serde_json::from_str(&arguments)
        .map_err(|error| failed(CallErrorKind::Invalid, &format!("cannot be given its arguments: {error}")))?;
    let reply = {
        let inner = inner.upgrade().filter(|inner| !inner.is_over.load(Ordering::Relaxed)).ok_or_else(gone)?;
        let call = format!("call-{}", inner.count.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        lock(&inner.open).insert(call.clone(), sender);
        let open = Open { inner: Arc::downgrade(&inner), call: call.clone() };
        let asked = Ask::Call { call, session, cell, tool: tool.clone(), arguments };
        if !(inner.send)(asked).await {
            return Err(gone());
        }
        // Whatever holds this call must not keep the answerer: the front end's output ends with its last writer.
        drop(inner);
        let reply = reply.await;
        drop(open);
        reply
    };
    match reply {
        Ok(Ok(json)) => Ok(Response::Json(json)),
        Ok(Err(message)) => Err(failed(CallErrorKind::Failed, &format!("failed: {message}"))),
        Err(_) => Err(failed(CallErrorKind::Cancelled, "was not answered: the caller has gone")),
    }
}
