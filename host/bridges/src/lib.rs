//! Answers the calls of cells: tools are functions, commands, components or on MCP servers, agents are functions, commands
//! or services, models are behind an OpenAI-compatible endpoint.
//!
//! [`Options`] define the grants; [`HostBridges`] answer for a session. Credentials stay on this side: they are added to a
//! request or a command's environment, and removed from all answers. Calls that are not granted are refused with the
//! engine's own messages. The engine does not depend on this crate, and this crate does not depend on the command line.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod afar;
mod agent;
mod approval;
mod arguments;
mod checked;
mod clean;
mod client;
mod command;
mod component;
mod connectors;
mod http;
mod llm;
mod mcp;
mod options;
mod packs;
mod sampling;
mod schema;
#[cfg(test)]
mod service;
mod tools;

use std::{collections::BTreeMap, fmt, sync::Arc};

use cellar_core::text::nearest;
use cellar_engine::{
    Bridges, CellId,
    bridges::{
        BridgeGrants, Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture, FetchName,
        PackSpec, ToolSpec, ToolsFuture, denied, selfref_pack,
    },
};
use cellar_secrets::{Named, quote};
use futures::future::join_all;
use serde_json::{Map, Value};

use agent::Agents;
use http::Network;
use llm::Models;
use mcp::Server;
use tools::Granted;

pub use afar::{Afar, Answers, ArtifactsAfar, Notes, OwnAndAfar, Visits, answer_afar};
pub use agent::{AgentFuture, AgentProgram, AgentRequest, Door, Doors, MeetFuture, NoDoors, SOCKET_VARIABLE, Usher};
pub use approval::{Approver, Confirmations, WaitingCall, confirmed};
pub use cellar_connectors::{FilesPlace, Kind as ConnectorKind};
pub use client::builder as http_client;
pub use command::recipes as command_recipes;
pub use component::{ComponentProgram, check as check_component, keep_compiled_in};
pub use http::{HeaderTemplate, Lookup, LookupFuture, host_pattern};
pub use llm::TokenBudget;
pub use options::{
    Agent, AgentTransport, Command, Component, Confirm, Connector, Http, HttpRule, Llm, McpServer, McpTransport,
    Options, Primitive, Program, RuntimePack, Spawns, TIERS, Tool,
};
pub use packs::Pack;
pub use sampling::{Sample, SampleFuture, Sampler};
pub use schema::Schema;
pub use tools::{ToolFailure, Tools};

/// Names that a message lists.
const NAMES_MAX: usize = 20;

/// The bridges that some [`Options`] describe. One value may serve many sessions, and so may its clones, which share
/// servers and connections.
#[derive(Clone)]
pub struct HostBridges {
    tools: Arc<Sources>,
    packs: BTreeMap<String, Arc<Pack>>,
    agents: Arc<Agents>,
    models: Option<Arc<Models>>,
    /// Sampler that forwards prompts to the models of clients, if no models are configured.
    sampler: Option<Arc<dyn Sampler>>,
    /// Budget that its models share with others.
    token_budget: Option<Arc<dyn TokenBudget>>,
    network: Option<Arc<Network>>,
    connectors: connectors::Held,
    doors: Option<Arc<dyn Doors>>,
}

/// Sources of tools, in order of precedence.
#[derive(Clone, Default)]
struct Sources {
    own: Tools,
    servers: Vec<Arc<Server>>,
}

impl fmt::Debug for HostBridges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBridges")
            .field("tools", &self.tools.own)
            .field("agents", &self.agents.names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl HostBridges {
    /// The bridges that `options` grant. Nothing is started or asked before a cell calls.
    pub fn new(options: Options) -> HostBridges {
        for source in &options.secrets {
            let named = cellar_secrets::learn_named(source);
            if named != Named::Hidden {
                tracing::warn!("the credential `{source}` is {named}");
            }
        }
        let mut own = Tools::new();
        options.tools.into_iter().for_each(|(name, tool)| own.add(program_tool(&name, tool)));
        let packs = options.runtime.into_iter().map(|(name, pack)| (name.clone(), Arc::new(program_pack(&name, pack))));
        let packs = packs.collect();
        let servers = options.mcp.into_iter().map(|(name, server)| Server::new(name, server)).collect();
        let models = options.llm.map(|llm| Arc::new(Models::new(llm)));
        let agents = Arc::new(Agents::new(options.agents, options.spawns, models.clone()));
        let network = (!options.http.allow.is_empty()).then(|| Arc::new(Network::new(options.http)));
        let tools = Arc::new(Sources { own, servers });
        let connectors = connectors::Held::new(options.connectors, &tools);
        HostBridges {
            tools,
            packs,
            agents,
            models,
            sampler: None,
            token_budget: None,
            network,
            connectors,
            doors: None,
        }
    }

    /// Grants these tools as well. They take the place of others with their names.
    pub fn with_tools(self, tools: Tools) -> HostBridges {
        let mut sources = (*self.tools).clone();
        sources.own.extend(tools);
        HostBridges { tools: Arc::new(sources), ..self }
    }

    /// Grants this pack of primitives as well. It takes the place of one with its name, the session's own included.
    pub fn with_pack(mut self, pack: Pack) -> HostBridges {
        self.packs.insert(pack.name().to_owned(), Arc::new(pack));
        self
    }

    /// Lets agents run cells in the session that called them, through doors that `doors` opens.
    pub fn with_doors(self, doors: Arc<dyn Doors>) -> HostBridges {
        HostBridges { doors: Some(doors), ..self }
    }

    /// Has models answer that others offer, where no endpoint is configured.
    pub fn with_sampler(self, sampler: Arc<dyn Sampler>) -> HostBridges {
        HostBridges { sampler: Some(sampler), ..self }
    }

    /// Has models of its own say no more than a budget allows, which others have as well.
    pub fn with_token_budget(self, budget: Arc<dyn TokenBudget>) -> HostBridges {
        HostBridges { token_budget: Some(budget), ..self }
    }

    /// Looks up the names of hosts in another way than this machine does.
    pub fn with_lookup(self, lookup: Arc<dyn Lookup>) -> HostBridges {
        let network = self.network.map(|network| Arc::new(network.with_lookup(lookup)));
        HostBridges { network, ..self }
    }

    /// Starts all MCP servers, or connects to them. Returns, by name, the number of tools that cells get from each, or the
    /// error. For hosts that need the result, or warm servers, before a cell uses them.
    pub async fn start_servers(&self) -> Vec<(String, Result<usize, CallError>)> {
        let start = |server: &Arc<Server>| {
            let server = server.clone();
            async move {
                let tools = server.tools().await.map_err(clean::clean_error);
                (server.name().to_owned(), tools.map(|tools| tools.len()))
            }
        };
        join_all(self.tools.servers.iter().map(start)).await
    }
}

impl HostBridges {
    fn doors(&self) -> Option<Arc<dyn Doors>> {
        self.doors.clone()
    }

    /// Returns the specifications of the connectors for another process, in JSON.
    fn connectors_told(&self) -> String {
        self.connectors.told_of()
    }

    /// Rows for another process, whose arguments are checked again.
    fn fetch_afar(&self, name: FetchName, arguments: String) -> FetchFuture {
        let given: Option<Map<String, Value>> = serde_json::from_str(&arguments).ok();
        let checked = self.connectors.check(&name, given.unwrap_or_default());
        match checked {
            Ok(arguments) => Box::pin(self.connectors.clone().fetch(name, arguments)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    /// Checks whether each connector is reachable. Returns, by name, its description or the error.
    pub async fn probe_connectors(&self) -> Vec<(String, Result<String, String>)> {
        self.connectors.probe().await
    }
}

/// Larger answers are searched for credentials on a thread of their own.
const CLEANED_HERE_BYTES: usize = 256 << 10;

impl Bridges for HostBridges {
    fn tools(&self) -> ToolsFuture {
        let sources = self.tools.clone();
        Box::pin(async move { sources.all().await.specs().map(clean::clean_tool).collect() })
    }

    fn grants(&self) -> BridgeGrants {
        BridgeGrants {
            tools: self.tools.own.names().map(str::to_owned).collect(),
            mcp: self.tools.servers.iter().map(|server| server.name().to_owned()).collect(),
            llm: self.models.as_ref().map(|models| models.tiers()).unwrap_or_default(),
            agents: self.agents.names().map(str::to_owned).collect(),
            packs: self.packs.keys().cloned().collect(),
            http: self.network.as_ref().map(|network| network.rules()).unwrap_or_default(),
            connectors: self.connectors.names(),
        }
    }

    fn packs(&self) -> Vec<PackSpec> {
        self.packs.values().map(|pack| pack.spec().clone()).collect()
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        self.connectors.specs()
    }

    fn fetch_arguments(
        &self,
        name: &FetchName,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        self.connectors.check(name, arguments)
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        Box::pin(self.connectors.clone().fetch(name.clone(), arguments))
    }

    fn has_tool(&self, name: &str) -> bool {
        self.tools.own.get(name).is_some()
    }

    fn has_pack(&self, name: &str) -> bool {
        self.packs.contains_key(name)
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        self.clean_answer(call, Origin::Here(caller))
    }
}

/// Usage of a session of another process. Sessions of this process hold their own.
#[derive(Debug, Default)]
struct Held {
    llm: Arc<llm::Spent>,
    http: Arc<http::Spent>,
}

/// Origin of a call.
enum Origin {
    /// A session of this process.
    Here(Caller),
    /// A session of another process, with the number of the call.
    Afar { number: u64, asker: afar::Asker, held: Arc<Held>, visits: Visits },
}

impl Origin {
    fn session(&self) -> &str {
        match self {
            Origin::Here(caller) => caller.session.id(),
            Origin::Afar { asker, .. } => &asker.session,
        }
    }

    /// Returns the nesting depth of the calling agent.
    fn depth(&self) -> u32 {
        match self {
            Origin::Here(caller) => caller.depth,
            Origin::Afar { asker, .. } => asker.depth,
        }
    }

    /// The type of the agent whose cell calls.
    fn agent(&self) -> Option<&str> {
        match self {
            Origin::Here(caller) => caller.agent.as_deref(),
            Origin::Afar { asker, .. } => asker.agent.as_deref(),
        }
    }

    fn cell(&self) -> CellId {
        match self {
            Origin::Here(caller) => caller.cell,
            Origin::Afar { asker, .. } => asker.cell(),
        }
    }

    fn spent_on_models(&self) -> Arc<llm::Spent> {
        match self {
            Origin::Here(caller) => caller.session.local(),
            Origin::Afar { held, .. } => held.llm.clone(),
        }
    }

    fn spent_on_hosts(&self) -> Arc<http::Spent> {
        match self {
            Origin::Here(caller) => caller.session.local(),
            Origin::Afar { held, .. } => held.http.clone(),
        }
    }
}

impl HostBridges {
    /// Answers a call, and removes credentials from the answer.
    fn clean_answer(&self, call: Call, origin: Origin) -> CallFuture {
        let answer = self.answer(call, origin);
        Box::pin(async move {
            let answer = answer.await;
            if answer.as_ref().is_ok_and(|response| response.size_bytes() > CLEANED_HERE_BYTES) {
                let cleaned = tokio::task::spawn_blocking(move || clean::clean(answer)).await;
                return cleaned.unwrap_or_else(|_| {
                    Err(CallError::new(CallErrorKind::Failed, "the answer could not be searched for credentials"))
                });
            }
            clean::clean(answer)
        })
    }
}

impl HostBridges {
    /// Answers a call. The answer may contain credentials.
    fn answer(&self, call: Call, origin: Origin) -> CallFuture {
        match &call {
            Call::Tool { name, arguments } => {
                let (sources, name, arguments) = (self.tools.clone(), name.clone(), arguments.clone());
                let cell = origin.cell();
                return Box::pin(async move { sources.find(&name).await?.call(arguments, cell).await });
            }
            Call::Llm { prompt, model, system, schema } => {
                let question = llm::Question {
                    prompt: prompt.clone(),
                    tier: model.clone(),
                    system: system.clone(),
                    schema: schema.clone(),
                };
                if let Some(models) = &self.models {
                    return Box::pin(Arc::clone(models).ask(
                        question,
                        origin.spent_on_models(),
                        self.token_budget.clone(),
                    ));
                }
                let asked = self.sampler.as_ref();
                if let Some(asked) = asked.and_then(|sampler| sampling::ask(sampler, origin.session(), question)) {
                    return asked;
                }
            }
            Call::Agent(asked) if self.agents.has(&asked.agent_type) => {
                let (doors, budget) = (self.doors.clone(), self.token_budget.clone());
                return Box::pin(Arc::clone(&self.agents).call(doors, asked.clone(), origin, budget));
            }
            Call::Http(request) => {
                if let Some(network) = &self.network {
                    return Box::pin(Arc::clone(network).ask(request.clone(), origin.spent_on_hosts()));
                }
            }
            Call::Primitive { pack, name, arguments } => {
                if let Some(primitive) = self.packs.get(pack).and_then(|pack| pack.get(name)) {
                    return Box::pin(primitive.call(arguments.clone(), origin.cell()));
                }
            }
            // Input is the session's own, and a kind of call that is not known here is not granted.
            _ => {}
        }
        let names: Vec<String> = match &call {
            Call::Agent(_) => self.agents.names().map(str::to_owned).collect(),
            Call::Primitive { .. } => self.primitives(),
            _ => Vec::new(),
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Box::pin(std::future::ready(Err(refusal(&call, &names))))
    }
}

impl HostBridges {
    /// The primitives that cells may call, the session's own included, by their whole names.
    fn primitives(&self) -> Vec<String> {
        let own = Some(selfref_pack()).filter(|own| !self.has_pack(&own.name));
        let names = |pack: PackSpec| {
            let of = pack.name;
            pack.primitives.into_iter().map(move |primitive| format!("{of}.{}", primitive.name)).collect::<Vec<_>>()
        };
        self.packs().into_iter().chain(own).flat_map(names).collect()
    }
}

impl Sources {
    /// The tool of this name. Servers that may have it are started if nothing else has.
    async fn find(&self, name: &str) -> Result<Arc<Granted>, CallError> {
        if let Some(tool) = self.own.get(name) {
            return Ok(tool);
        }
        let candidates = self.servers.iter().filter(|server| server.may_have(name));
        let mut listed = join_all(candidates.map(Server::tools)).await;
        if let Some(tool) = listed.iter().flatten().find_map(|tools| tools.get(name)) {
            return Ok(tool);
        }
        // Which server would have had it nobody knows: the failure of one is the better reason.
        if let Some(failed) = listed.iter().position(Result::is_err) {
            let error = listed.swap_remove(failed).err();
            let message = error.map(|error| error.message).unwrap_or_default();
            return Err(CallError::new(CallErrorKind::Failed, format!("{}: {message}", tools::who(name))));
        }
        let all = self.all().await;
        let names: Vec<&str> = all.names().collect();
        Err(refusal(&Call::Tool { name: name.to_owned(), arguments: String::new() }, &names))
    }

    /// All that can be reached now.
    async fn all(&self) -> Tools {
        let mut all = self.own.clone();
        for (server, tools) in self.servers.iter().zip(join_all(self.servers.iter().map(Server::tools)).await) {
            let hidden = tools.map(|tools| all.add_all(&tools)).unwrap_or_default();
            if !hidden.is_empty() {
                tracing::debug!(server = server.name(), ?hidden, "tools whose names are taken");
            }
        }
        all
    }
}

/// The engine's refusal, with the place in `cellar.toml` that would grant it and the names that would have been understood.
fn refusal(call: &Call, names: &[&str]) -> CallError {
    let mut error = denied(call);
    error.message.push_str(match call {
        Call::Tool { .. } => "; tools are granted under [tools] in cellar.toml",
        Call::Primitive { .. } => "; packs of them are granted under [runtime] in cellar.toml",
        Call::Llm { .. } => "; set [llm] endpoint and [llm.tiers] in cellar.toml",
        Call::Agent(_) => "; agents are granted under [agents] in cellar.toml",
        Call::Http(_) => "; hosts are granted under [http] allow in cellar.toml",
        Call::Fetch { .. } => "; connectors are granted under [connectors] in cellar.toml",
        _ => "",
    });
    if let Some(near) = nearest(&call.name(), names) {
        error.message.push_str(&format!("; did you mean `{near}`"));
    }
    if !names.is_empty() {
        let more = match names.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let listed = names[..names.len().min(NAMES_MAX)].join(", ");
        error.message.push_str(&format!("; known are: {listed}{more}"));
    }
    error
}

/// A tool that is a command or a component.
fn program_tool(name: &str, tool: options::Tool) -> Granted {
    let spec = ToolSpec {
        name: name.to_owned(),
        description: tool.description,
        schema: tool.schema.as_ref().map(serde_json::Value::to_string),
    };
    let who = tools::who(name);
    Granted::new(who.clone(), spec, tools::program_handler(who, tool.program))
}

/// A pack of commands and components.
fn program_pack(name: &str, pack: options::RuntimePack) -> Pack {
    let empty = Pack::new(name, &pack.description);
    let empty = pack.version.iter().fold(empty, |pack, version| pack.version(version));
    pack.primitives.into_iter().fold(empty, |pack, (name, primitive)| pack.with_program(&name, primitive))
}

/// The output of a program as a JSON text.
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
