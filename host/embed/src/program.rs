//! Models, agents and hosts that are functions of a program: calls of cells that it answers itself, in the place of bridges.

use std::sync::{Arc, Weak};

use cellar_engine::bridges::{
    AgentCall, BridgeGrants, Bridges, Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture,
    FetchName, HttpCall, HttpResponse, PackSpec, Response, ToolsFuture,
};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Bridges that a program answers for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answering {
    /// Models.
    pub llm: bool,
    /// Agents.
    pub agent: bool,
    /// Hosts.
    pub http: bool,
}

impl Answering {
    /// Bridges by their names: `llm`, `agent`, `http`.
    pub fn of(names: &[String]) -> Answering {
        let has = |name: &str| names.iter().any(|one| one == name);
        Answering { llm: has("llm"), agent: has("agent"), http: has("http") }
    }
}

/// A program whose functions answer calls of cells.
pub trait Program: Send + Sync {
    /// Returns the bridges that it answers for.
    fn answering(&self) -> Answering;

    /// Asks the program for the answer to a call, in JSON.
    ///
    /// # Errors
    /// The function failed, or nobody answers any more.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the call.
    fn ask(self: Arc<Self>, bridge: &'static str, arguments: Value) -> BoxFuture<'static, Result<Value, CallError>>;
}

/// Lays a program over bridges, which answer for the rest, and for all of it once the program has gone.
pub fn over_bridges<P: Program + 'static>(inner: Arc<dyn Bridges>, program: Weak<P>) -> Arc<dyn Bridges> {
    Arc::new(Over { inner, program })
}

struct Over<P> {
    inner: Arc<dyn Bridges>,
    program: Weak<P>,
}

impl<P: Program + 'static> Bridges for Over<P> {
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
        if let Some(program) = self.program.upgrade() {
            let own = || "a function of the program".to_owned();
            let Answering { llm, agent, http } = program.answering();
            grants.llm.extend(llm.then(own));
            grants.agents.extend(agent.then(own));
            grants.http.extend(http.then(own));
        }
        grants
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let Some(program) = self.program.upgrade() else { return self.inner.call(call, caller) };
        let answering = program.answering();
        match call {
            Call::Llm { prompt, model, system, schema } if answering.llm => Box::pin(async move {
                let has_schema = schema.is_some();
                let schema = schema.map(|text| document(&text)).transpose()?;
                let arguments = json!({ "prompt": prompt, "model": model, "system": system, "schema": schema });
                words(program.ask("llm", arguments).await?, has_schema)
            }),
            Call::Agent(AgentCall { prompt, agent_type, model, context, label, schema }) if answering.agent => {
                let depth = caller.depth;
                Box::pin(async move {
                    let has_schema = schema.is_some();
                    let schema = schema.map(|text| document(&text)).transpose()?;
                    let arguments = json!({
                        "prompt": prompt, "agent_type": agent_type, "model": model, "context": context, "label": label,
                        "schema": schema, "depth": depth,
                    });
                    words(program.ask("agent", arguments).await?, has_schema)
                })
            }
            Call::Http(request) if answering.http => Box::pin(async move {
                let HttpCall { method, url, headers, body, timeout } = request;
                let timeout = timeout.map(|timeout| timeout.as_secs_f64());
                let arguments =
                    json!({ "method": method, "url": url, "headers": headers, "body": body, "timeout": timeout });
                let answered = program.ask("http", arguments).await?;
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
