//! Models, agents and hosts that are functions of a program whose handler takes lines of JSON.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use cellar_core::sync::lock;
use cellar_engine::bridges::{Bridges, CallError, CallErrorKind};
use cellar_hub::Layer;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    Handler,
    program::{Answering, Program, over_bridges},
};

/// Answer of the program: JSON, or why the call failed.
pub(crate) type Reply = Result<Value, String>;

/// Calls that the program answers, and those that wait for it.
pub(crate) struct Functions {
    handler: Handler,
    answering: Answering,
    open: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
    count: AtomicU64,
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("open", &lock(&self.open).len()).finish_non_exhaustive()
    }
}

impl Functions {
    /// Functions by the names of the bridges that they answer for: `llm`, `agent`, `http`.
    pub(crate) fn new(handler: Handler, names: &[String]) -> Arc<Functions> {
        let answering = Answering::of(names);
        Arc::new(Functions { handler, answering, open: Mutex::default(), count: AtomicU64::new(1) })
    }

    /// Answers a call; returns true if it was waiting.
    pub(crate) fn answer(&self, call: &str, reply: Reply) -> bool {
        lock(&self.open).remove(call).is_some_and(|sender| sender.send(reply).is_ok())
    }

    fn tell(&self, line: &Value) {
        (self.handler)(serde_json::to_vec(line).unwrap_or_default());
    }
}

/// Call that waits for its answer. Dropped before that, it says that nobody waits any more.
struct Open {
    functions: Arc<Functions>,
    call: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        if lock(&self.functions.open).remove(&self.call).is_some() {
            self.functions.tell(&json!({ "type": "call_cancelled", "call": self.call }));
        }
    }
}

/// Asks the program.
async fn ask(functions: Arc<Functions>, bridge: &str, arguments: Value) -> Result<Value, CallError> {
    let call = format!("own-{}", functions.count.fetch_add(1, Ordering::Relaxed));
    let (sender, reply) = oneshot::channel();
    lock(&functions.open).insert(call.clone(), sender);
    let open = Open { functions, call };
    open.functions.tell(&json!({ "type": "call", "call": open.call, "bridge": bridge, "arguments": arguments }));
    match reply.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(message)) => Err(CallError::new(CallErrorKind::Failed, format!("{bridge} failed: {message}"))),
        Err(_) => Err(CallError::new(CallErrorKind::Cancelled, format!("{bridge} was not answered"))),
    }
}

impl Program for Functions {
    fn answering(&self) -> Answering {
        self.answering
    }

    fn ask(
        self: Arc<Functions>,
        bridge: &'static str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        Box::pin(ask(self, bridge, arguments))
    }
}

/// Layer over the bridges of a hub. The hub goes with its connection, which keeps the functions.
#[derive(Debug)]
pub(crate) struct OverBridges(pub(crate) Weak<Functions>);

impl Layer for OverBridges {
    fn over(&self, inner: Arc<dyn Bridges>) -> Arc<dyn Bridges> {
        over_bridges(inner, self.0.clone())
    }
}
