//! Models, agents and hosts that are functions of the program: calls of cells that it answers itself, in the place of bridges.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use cellar_core::sync::lock;
use cellar_engine::bridges::{
    AgentCall, BridgeGrants, Bridges, Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture,
    FetchName, HttpCall, HttpResponse, PackSpec, Response, ToolsFuture,
};
use cellar_hub::Layer;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::Handler;

/// Answer of the program: JSON, or why the call failed.
pub(crate) type Reply = Result<Value, String>;

/// Calls that the program answers, and those that wait for it.
pub(crate) struct Functions {
    handler: Handler,
    pub(crate) has_llm: bool,
    pub(crate) has_agent: bool,
    pub(crate) has_http: bool,
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
        let has = |name: &str| names.iter().any(|one| one == name);
        Arc::new(Functions {
            handler,
            has_llm: has("llm"),
            has_agent: has("agent"),
            has_http: has("http"),
            open: Mutex::default(),
            count: AtomicU64::new(1),
        })
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

/// Layer over the bridges of a hub. The hub goes with its connection, which keeps the functions.
#[derive(Debug)]
pub(crate) struct OverBridges(pub(crate) Weak<Functions>);

impl Layer for OverBridges {
    fn over(&self, inner: Arc<dyn Bridges>) -> Arc<dyn Bridges> {
        Arc::new(Over { inner, functions: self.0.clone() })
    }
}

struct Over {
    inner: Arc<dyn Bridges>,
    functions: Weak<Functions>,
}

impl Bridges for Over {
    fn tools(&self) -> ToolsFuture {
        self.inner.tools()
    }

    fn packs(&self) -> Vec<PackSpec> {
        self.inner.packs()
    }

    fn has_tool(&self, name: &str) -> bool {
        self.inner.has_tool(name)
    }

    fn has_pack(&self, name: &str) -> bool {
        self.inner.has_pack(name)
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        self.inner.connectors()
    }

    fn fetch_arguments(&self, name: &FetchName, given: Map<String, Value>) -> Result<Map<String, Value>, CallError> {
        self.inner.fetch_arguments(name, given)
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, caller: Caller) -> FetchFuture {
        self.inner.fetch(name, arguments, caller)
    }

    fn grants(&self) -> BridgeGrants {
        let mut grants = self.inner.grants();
        if let Some(functions) = self.functions.upgrade() {
            let own = || "a function of the program".to_owned();
            grants.llm.extend(functions.has_llm.then(own));
            grants.agents.extend(functions.has_agent.then(own));
            grants.http.extend(functions.has_http.then(own));
        }
        grants
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let Some(functions) = self.functions.upgrade() else { return self.inner.call(call, caller) };
        match call {
            Call::Llm { prompt, model, system, schema } if functions.has_llm => Box::pin(async move {
                let has_schema = schema.is_some();
                let schema = schema.map(|text| document(&text)).transpose()?;
                let arguments = json!({ "prompt": prompt, "model": model, "system": system, "schema": schema });
                words(ask(functions, "llm", arguments).await?, has_schema)
            }),
            Call::Agent(AgentCall { prompt, agent_type, model, context, label, schema }) if functions.has_agent => {
                let depth = caller.depth;
                Box::pin(async move {
                    let has_schema = schema.is_some();
                    let schema = schema.map(|text| document(&text)).transpose()?;
                    let arguments = json!({
                        "prompt": prompt, "agent_type": agent_type, "model": model, "context": context, "label": label,
                        "schema": schema, "depth": depth,
                    });
                    words(ask(functions, "agent", arguments).await?, has_schema)
                })
            }
            Call::Http(request) if functions.has_http => Box::pin(async move {
                let HttpCall { method, url, headers, body, timeout } = request;
                let timeout = timeout.map(|timeout| timeout.as_secs_f64());
                let arguments =
                    json!({ "method": method, "url": url, "headers": headers, "body": body, "timeout": timeout });
                let answered = ask(functions, "http", arguments).await?;
                let Answered { status, url: at, headers, body } =
                    serde_json::from_value(answered).map_err(|error| {
                        CallError::new(CallErrorKind::Failed, format!("the answer to the request is none: {error}"))
                    })?;
                Ok(Response::Http(HttpResponse { status, url: at.unwrap_or(url), headers, body }))
            }),
            call => self.inner.call(call, caller),
        }
    }
}

/// Answer to a request of HTTP.
#[derive(Deserialize)]
struct Answered {
    status: u16,
    url: Option<String>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn document(text: &str) -> Result<Value, CallError> {
    serde_json::from_str(text)
        .map_err(|error| CallError::new(CallErrorKind::Invalid, format!("the schema is no JSON: {error}")))
}

/// Answer of a model or an agent: an object where a schema was given, and text otherwise.
fn words(value: Value, has_schema: bool) -> Result<Response, CallError> {
    match value {
        Value::String(text) if !has_schema => Ok(Response::Text(text)),
        value if has_schema => Ok(Response::Json(value.to_string())),
        _ => Err(CallError::new(CallErrorKind::Failed, "the answer is no text")),
    }
}
