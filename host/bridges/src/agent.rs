//! `agent(…)`: a command, a service or a part of the embedding program, which may run cells in the calling session.
//!
//! The policy is checked first: the nesting depth of agents, the maximum depth of this one, and the agents that the caller
//! may spawn. The output is checked against the schema of the call. Read [`Agents::call`] first.

mod bundled;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use cellar_core::text::{describe, list};
use cellar_engine::{
    Session,
    bridges::{AgentCall, CallError, CallErrorKind, Caller, Response},
    limits::AGENT_DEPTH_MAX,
};
use cellar_secrets::clip;
use reqwest::{Client, redirect::Policy};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::{
    client, command, json_text,
    schema::{Schema, object_of},
};
use bundled::{Bundled, eval_afar, eval_in};

use crate::{
    Origin,
    http::HeaderTemplate,
    llm::{Models, TokenBudget},
    options::{Agent, AgentTransport, Spawns},
    tools::ToolFailure,
};

/// The variable that tells an agent where its session is.
pub const SOCKET_VARIABLE: &str = "CELLAR_SESSION_SOCKET";
/// Agent that cells call by default.
const DEFAULT_AGENT: &str = "task";
/// Bytes that a service may answer with.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A way into a session for another process; closed when dropped.
pub trait Door: Send + Sync {
    /// Returns the path of its socket, which is passed to the agent as [`SOCKET_VARIABLE`].
    fn path(&self) -> &Path;
}

/// Future that serves one visitor of a door; polled on the engine's runtime. Dropping it ends the visit.
pub type MeetFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Callback that serves every visitor of a door.
pub type Usher = Arc<dyn Fn(UnixStream) -> MeetFuture + Send + Sync>;

/// Opens doors. The protocol spoken through them is the embedder's choice.
pub trait Doors: Send + Sync + fmt::Debug {
    /// Opens a door for one agent.
    ///
    /// # Errors
    /// The socket cannot be made.
    fn open(&self, usher: Usher) -> io::Result<Box<dyn Door>>;

    /// Lets a visitor of a door run cells in `session` until it disconnects.
    fn meet(&self, session: Session, visitor: UnixStream) -> MeetFuture;
}

/// Doors of a program whose agents need no session of another process: none opens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDoors;

impl Doors for NoDoors {
    fn open(&self, _usher: Usher) -> io::Result<Box<dyn Door>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn meet(&self, _session: Session, _visitor: UnixStream) -> MeetFuture {
        Box::pin(std::future::ready(()))
    }
}

/// Request to an agent.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are those of the call in the cell")]
pub struct AgentRequest {
    pub prompt: String,
    pub context: Option<String>,
    pub label: Option<String>,
    pub model: Option<String>,
    /// JSON Schema that the output must satisfy.
    pub schema: Option<Value>,
    /// The id of the session that calls.
    pub session: String,
    /// Nesting depth of the agent, from 1.
    pub depth: u32,
}

impl AgentRequest {
    /// Returns the request as commands and services receive it.
    fn to_json(&self) -> Value {
        json!({
            "prompt": self.prompt,
            "context": self.context,
            "label": self.label,
            "model": self.model,
            "schema": self.schema,
            "session": self.session,
            "depth": self.depth,
        })
    }
}

/// Future of an agent's output, to be polled on the engine's runtime: text as a JSON string, or an object of the schema.
pub type AgentFuture = Pin<Box<dyn Future<Output = Result<Value, ToolFailure>> + Send>>;

/// An agent that is part of the embedding program; closures of this shape are such.
///
/// ```
/// use std::sync::Arc;
/// use cellar_bridges::{Agent, AgentFuture, AgentRequest, AgentTransport, HostBridges, Options};
/// use cellar_engine::{Cell, Language, Session};
///
/// let counts = |request: AgentRequest, session: Session| -> AgentFuture {
///     Box::pin(async move {
///         let run = session.run(vec![Cell::new(Language::Python, request.prompt)])?;
///         Ok(run.collect_result().await.text().into())
///     })
/// };
/// let mut options = Options::default();
/// options.agents.insert("task".to_owned(), Agent::new(AgentTransport::Program(Arc::new(counts))));
/// let bridges = HostBridges::new(options);
/// # let _ = bridges;
/// ```
pub trait AgentProgram: Send + Sync {
    /// Handles a request. `session` is the caller's, for runs that share its state.
    ///
    /// # Cancel safety
    /// The future is dropped when the calling cell is stopped: it must leave nothing running.
    fn run(&self, request: AgentRequest, session: Session) -> AgentFuture;
}

impl<F: Fn(AgentRequest, Session) -> AgentFuture + Send + Sync> AgentProgram for F {
    fn run(&self, request: AgentRequest, session: Session) -> AgentFuture {
        self(request, session)
    }
}

/// All agents of some options.
pub(super) struct Agents {
    named: BTreeMap<String, Agent>,
    /// Agents that the session's own cells may call.
    spawns: Spawns,
    /// Models of the bundled agent.
    models: Option<Arc<Models>>,
    /// Keeps connections to services open. An error when the system's TLS cannot be set up.
    client: OnceLock<Result<Client, String>>,
}

impl Agents {
    /// Agents of some options. With models there is one that is called by default, unless the options have it.
    pub(super) fn new(mut named: BTreeMap<String, Agent>, spawns: Spawns, models: Option<Arc<Models>>) -> Agents {
        if models.is_some() {
            let bundled = || Agent {
                description: "asks the model of [llm] in a loop, with cells of the session as its tool".to_owned(),
                ..Agent::new(AgentTransport::Model)
            };
            named.entry(DEFAULT_AGENT.to_owned()).or_insert_with(bundled);
        }
        Agents { named, spawns, models, client: OnceLock::new() }
    }

    pub(super) fn has(&self, agent_type: &str) -> bool {
        self.named.contains_key(agent_type)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Runs an agent to its end.
    ///
    /// # Errors
    /// No agent has this type, a policy forbids the call, the agent fails, or its output does not match the schema.
    ///
    /// # Cancel safety
    /// Dropping the future kills a command and drops a request, and ends the runs that were made in the session.
    pub(super) async fn call(
        self: Arc<Agents>,
        doors: Option<Arc<dyn Doors>>,
        asked: AgentCall,
        origin: Origin,
        budget: Option<Arc<dyn TokenBudget>>,
    ) -> Result<Response, CallError> {
        let who = format!("agent `{}`", asked.agent_type);
        let Some(agent) = self.named.get(&asked.agent_type) else {
            return Err(CallError::new(CallErrorKind::Unknown, format!("no {who}")));
        };
        self.check(&who, agent, &asked.agent_type, &origin)?;
        let schema = asked.schema.as_deref().map(Schema::of_object).transpose().map_err(|fault| {
            CallError::new(CallErrorKind::Invalid, format!("{who} cannot be given this schema: {fault}"))
        })?;
        let (value, schema) = schema.unzip();
        let depth = origin.depth().saturating_add(1);
        let request = AgentRequest {
            prompt: asked.prompt,
            context: asked.context,
            label: asked.label,
            model: asked.model.or_else(|| agent.model.clone()),
            schema: value,
            session: origin.session().to_owned(),
            depth,
        };
        let output = match &agent.transport {
            AgentTransport::Command(command) => run(&who, command, doors, &request, origin).await?,
            AgentTransport::Http { url, headers, timeout } => {
                let work = self.post(&who, url, headers, &request);
                tokio::time::timeout(*timeout, work).await.unwrap_or_else(|_| Err(slow(&who, *timeout)))?
            }
            AgentTransport::Program(program) => {
                let failed = |reason: String| CallError::new(CallErrorKind::Failed, format!("{who} failed: {reason}"));
                let Origin::Here(Caller { session, .. }) = origin else {
                    return Err(failed("the session is in another process".to_owned()));
                };
                let ended = program.run(request, session.for_agent(depth)).await;
                ended.map_err(|failure| failed(failure.to_string()))?
            }
            AgentTransport::Model => self.ask_model(&who, request, origin, budget).await?,
        };
        answer(&who, schema, output)
    }

    /// Has the bundled agent work on a task.
    async fn ask_model(
        &self,
        who: &str,
        request: AgentRequest,
        origin: Origin,
        budget: Option<Arc<dyn TokenBudget>>,
    ) -> Result<Value, CallError> {
        let failed = |what: &str| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
        let models = self.models.clone().ok_or_else(|| failed("has no model: set [llm] in cellar.toml"))?;
        let spent = origin.spent_on_models();
        let bundled = Bundled { models, spent, budget };
        let ended = match origin {
            Origin::Here(Caller { session, .. }) => {
                let session = session.for_agent(request.depth);
                bundled.run(request, |cells| eval_in(&session, cells)).await
            }
            Origin::Afar { number, visits, .. } => {
                let eval = |cells| async {
                    let pair = UnixStream::pair().and_then(|(ours, theirs)| visits(number, theirs).map(|()| ours));
                    match pair {
                        Ok(ours) => eval_afar(ours, cells).await.unwrap_or_else(|error| error.to_string()),
                        Err(error) => error.to_string(),
                    }
                };
                bundled.run(request, eval).await
            }
        };
        ended.map_err(|error| CallError::new(error.kind, format!("{who} failed: {}", error.message)))
    }

    /// Checks that the caller may call this agent.
    fn check(&self, who: &str, agent: &Agent, agent_type: &str, origin: &Origin) -> Result<(), CallError> {
        let depth = origin.depth().saturating_add(1);
        let nested = |max: u32, rule: &str| {
            let message = format!("{who} would be nested {depth} deep, at most {max} {rule}");
            Err(CallError::new(CallErrorKind::Limit, message))
        };
        if depth > AGENT_DEPTH_MAX {
            return nested(AGENT_DEPTH_MAX, "are allowed");
        }
        if depth > agent.depth {
            return nested(agent.depth, &format!("by its policy (depth under [agents.{agent_type}] in cellar.toml)"));
        }
        let (spawns, what, place) = match origin.agent() {
            Some(name) => match self.named.get(name) {
                Some(agent) => (&agent.spawns, format!("agent `{name}`"), format!("agents.{name}")),
                None => return Ok(()),
            },
            None if depth == 1 => (&self.spawns, "the session's own cells".to_owned(), "session".to_owned()),
            // Which agent it was nobody knows any more: what one of them may not do, it may not.
            None => match self.named.iter().find(|(_, agent)| !agent.spawns.allow(agent_type)) {
                Some((name, agent)) => {
                    (&agent.spawns, "what an agent left running".to_owned(), format!("agents.{name}"))
                }
                None => return Ok(()),
            },
        };
        if spawns.allow(agent_type) {
            return Ok(());
        }
        let names: Vec<&str> = match spawns {
            Spawns::Only(names) => names.iter().map(String::as_str).collect(),
            Spawns::All => Vec::new(),
        };
        let allowed = if names.is_empty() { "no agent".to_owned() } else { list(&names) };
        let message = format!(
            "{who} may not be spawned by {what}: the policy allows {allowed} (spawns under [{place}] in cellar.toml)"
        );
        Err(CallError::new(CallErrorKind::Denied, message))
    }

    /// Asks a service.
    async fn post(
        &self,
        who: &str,
        url: &str,
        headers: &[(String, HeaderTemplate)],
        request: &AgentRequest,
    ) -> Result<Value, CallError> {
        let failed = |what: String| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
        // Redirects could carry the headers to another host.
        let build = || client::builder(&[])?.redirect(Policy::none()).build().map_err(|error| describe(&error));
        let client = self.client.get_or_init(build).as_ref();
        let client = client.map_err(|fault| failed(format!("cannot be asked: {fault}")))?;
        let mut post = client.post(url).json(&request.to_json());
        for (name, template) in headers {
            let value = template.fill().map_err(|variable| {
                failed(format!("has no `{name}`: the environment variable `{variable}` (headers_env) is not set"))
            })?;
            post = post.header(name, value);
        }
        let unreachable =
            |error: reqwest::Error| failed(format!("cannot be reached: {}", describe(&error.without_url())));
        let mut response = post.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if bytes.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
                let message = format!("{who} answered with more than {} MiB", ANSWER_BYTES_MAX >> 20);
                return Err(CallError::new(CallErrorKind::Limit, message));
            }
            bytes.extend_from_slice(&chunk);
        }
        let said = |bytes: &[u8]| clip(String::from_utf8_lossy(bytes).trim());
        if !status.is_success() {
            return Err(failed(format!("answered with HTTP status {status}: {}", said(&bytes))));
        }
        let reply: Value = serde_json::from_slice(&bytes)
            .map_err(|error| failed(format!("answered with what is not JSON ({error}): {}", said(&bytes))))?;
        output_of(reply).ok_or_else(|| failed("sent no `output`; it must answer {\"output\": …}".to_owned()))
    }
}

fn slow(who: &str, timeout: Duration) -> CallError {
    CallError::new(CallErrorKind::Limit, format!("{who} did not answer within {} s", timeout.as_secs()))
}

/// Runs a command.
async fn run(
    who: &str,
    command: &crate::options::Command,
    doors: Option<Arc<dyn Doors>>,
    request: &AgentRequest,
    origin: Origin,
) -> Result<Value, CallError> {
    let failed = |what: String| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
    let open = |doors: Arc<dyn Doors>| doors.open(usher(doors.clone(), origin, request.depth));
    let door = doors.map(open).transpose().map_err(|error| {
        tracing::warn!(%error, "{who} cannot be given its session");
        // The error itself may name a folder of the host.
        failed(format!("cannot be given its session: {}", error.kind()))
    })?;
    let socket = door.as_ref().map(|door| door.path().to_string_lossy().into_owned());
    let variables: Vec<_> = socket.iter().map(|path| (SOCKET_VARIABLE, path.as_str())).collect();
    let input = request.to_json().to_string().into_bytes();
    let printed = command::run(command, who, input, &variables).await?;
    drop(door);
    let reply = serde_json::from_str(&json_text(who, printed)?).map_err(|error| failed(error.to_string()))?;
    output_of(reply).ok_or_else(|| failed("printed no `output`; it must print {\"output\": …}".to_owned()))
}

/// Leads everybody who comes through the door of an agent to the session that called it.
fn usher(doors: Arc<dyn Doors>, origin: Origin, depth: u32) -> Usher {
    match origin {
        Origin::Here(caller) => {
            let session = caller.session.for_agent(depth);
            Arc::new(move |visitor| doors.meet(session.clone(), visitor))
        }
        Origin::Afar { number, visits, .. } => Arc::new(move |visitor| {
            if let Err(error) = visits(number, visitor) {
                tracing::warn!(%error, "what an agent has to say does not reach the process of its session");
            }
            Box::pin(std::future::ready(()))
        }),
    }
}

fn output_of(mut reply: Value) -> Option<Value> {
    reply.get_mut("output").map(Value::take)
}

/// The output of an agent, as the caller asked for it.
fn answer(who: &str, schema: Option<Schema>, output: Value) -> Result<Response, CallError> {
    let Some(schema) = schema else {
        return Ok(Response::Text(match output {
            Value::String(text) => text,
            other => other.to_string(),
        }));
    };
    // Agents that only have text to give put the object into it.
    let object = match &output {
        Value::String(text) => serde_json::from_str(text).unwrap_or(output),
        _ => output,
    };
    let object = object_of(&schema, &object).map_err(|fault| {
        CallError::new(CallErrorKind::Failed, format!("{who} gave no object of the schema: {fault}"))
    })?;
    Ok(Response::Json(object))
}
