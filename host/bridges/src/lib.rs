//! Answers the calls of cells: tools and agents are commands, models are behind an OpenAI-compatible endpoint.
//!
//! [`Options`] say what is granted; [`HostBridges`] answer for a session. Credentials stay on this side: they go into a
//! request or a command's environment, never into a message. What cells are not granted is refused by the engine's own
//! words. The engine knows nothing of this crate, and this crate knows nothing of the command line.

mod agent;
mod client;
mod command;
mod http;
mod llm;
mod options;
mod schema;
#[cfg(test)]
mod service;
mod text;

use std::{collections::BTreeMap, fmt, sync::Arc};

use cellar_engine::{Bridges, Call, CallError, CallErrorKind, CallFuture, Caller, Response, ToolSpec, denied};

use http::Network;
use llm::Models;

pub use agent::{Door, Doors, SOCKET_VARIABLE};
pub use http::{HeaderTemplate, Lookup, LookupFuture, host_pattern};
pub use options::{Agent, Command, Http, HttpRule, Llm, Options, Tool};
pub use schema::Schema;
pub use text::quote;

/// The bridges that some [`Options`] describe. One value may serve many sessions.
pub struct HostBridges {
    tools: BTreeMap<String, Arc<GrantedTool>>,
    agents: BTreeMap<String, Arc<Agent>>,
    models: Option<Arc<Models>>,
    network: Option<Arc<Network>>,
    doors: Option<Arc<dyn Doors>>,
}

impl fmt::Debug for HostBridges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBridges")
            .field("tools", &self.tools.keys())
            .field("agents", &self.agents.keys())
            .finish_non_exhaustive()
    }
}

/// A tool, with its schema ready to check arguments.
struct GrantedTool {
    tool: Tool,
    /// An error when the schema is none; reading `cellar.toml` refuses those.
    schema: Option<Result<Schema, String>>,
}

impl From<&Tool> for GrantedTool {
    fn from(tool: &Tool) -> GrantedTool {
        GrantedTool { tool: tool.clone(), schema: tool.schema.as_ref().map(Schema::compile) }
    }
}

impl HostBridges {
    /// The bridges that `options` grant. Nothing is started or asked before a cell calls.
    pub fn new(options: Options) -> HostBridges {
        let tools = options.tools.iter().map(|(name, tool)| (name.clone(), Arc::new(tool.into()))).collect();
        let agents = options.agents.into_iter().map(|(name, agent)| (name, Arc::new(agent))).collect();
        let models = options.llm.map(|llm| Arc::new(Models::new(llm)));
        let network = (!options.http.allow.is_empty()).then(|| Arc::new(Network::new(options.http)));
        HostBridges { tools, agents, models, network, doors: None }
    }

    /// Lets agents run cells in the session that called them, through doors that `doors` opens.
    pub fn with_doors(self, doors: Arc<dyn Doors>) -> HostBridges {
        HostBridges { doors: Some(doors), ..self }
    }

    /// Looks up the names of hosts in another way than this machine does.
    pub fn with_lookup(self, lookup: Arc<dyn Lookup>) -> HostBridges {
        let network = self.network.map(|network| Arc::new(network.with_lookup(lookup)));
        HostBridges { network, ..self }
    }
}

impl Bridges for HostBridges {
    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |(name, granted): (&String, &Arc<GrantedTool>)| ToolSpec {
            name: name.clone(),
            description: granted.tool.description.clone(),
            schema: granted.tool.schema.as_ref().map(serde_json::Value::to_string),
        };
        self.tools.iter().map(spec).collect()
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        match &call {
            Call::Tool { name, arguments } => {
                if let Some(tool) = self.tools.get(name) {
                    return Box::pin(call_tool(Arc::clone(tool), name.clone(), arguments.clone()));
                }
            }
            Call::Llm { prompt, model, system, schema } => {
                if let Some(models) = &self.models {
                    let question = llm::Question {
                        prompt: prompt.clone(),
                        tier: model.clone(),
                        system: system.clone(),
                        schema: schema.clone(),
                    };
                    return Box::pin(Arc::clone(models).ask(question, caller.session.local()));
                }
            }
            Call::Agent(asked) => {
                if let Some(agent) = self.agents.get(&asked.agent_type) {
                    return Box::pin(agent::call(Arc::clone(agent), self.doors.clone(), asked.clone(), caller));
                }
            }
            Call::Http(request) => {
                if let Some(network) = &self.network {
                    return Box::pin(Arc::clone(network).ask(request.clone(), caller.session.local()));
                }
            }
            Call::Input { .. } => {}
        }
        let error = self.refusal(&call);
        Box::pin(std::future::ready(Err(error)))
    }
}

impl HostBridges {
    /// The engine's refusal, with the names that would have been understood.
    fn refusal(&self, call: &Call) -> CallError {
        let names: Vec<&str> = match call {
            Call::Tool { .. } => self.tools.keys().map(String::as_str).collect(),
            Call::Agent(_) => self.agents.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        let mut error = denied(call);
        if !names.is_empty() {
            error.message = format!("{}; known are: {}", error.message, names.join(", "));
        }
        error
    }
}

/// Runs a tool's command.
///
/// # Cancel safety
/// Dropping the future kills the command and all that it started in its process group.
async fn call_tool(granted: Arc<GrantedTool>, name: String, arguments: String) -> Result<Response, CallError> {
    let who = format!("tool `{name}`");
    if let Some(schema) = &granted.schema {
        check_arguments(schema.as_ref().map_err(String::as_str), &arguments).map_err(|fault| {
            let message = format!("{who}: the arguments do not fit its schema: {fault}");
            CallError::new(CallErrorKind::Invalid, message)
        })?;
    }
    let output = command::run(&granted.tool.command, &who, arguments.into_bytes(), &[]).await?;
    let text = json_text(&who, output)?;
    Ok(Response::Json(text))
}

fn check_arguments(schema: Result<&Schema, &str>, arguments: &str) -> Result<(), String> {
    let value: serde_json::Value = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    schema?.check(&value)
}

/// The output of a command as a JSON text.
fn json_text(who: &str, output: Vec<u8>) -> Result<String, CallError> {
    let failed = |what: String| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
    let text = String::from_utf8(output).map_err(|_| failed("printed bytes that are not UTF-8".to_owned()))?;
    if text.trim().is_empty() {
        return Err(failed("printed nothing; its result must be a JSON value on standard output".to_owned()));
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text),
        Err(error) => {
            let start = quote(text.trim());
            Err(failed(format!("printed what is not one JSON value ({error}): {start}")))
        }
    }
}

#[cfg(test)]
mod tests;
