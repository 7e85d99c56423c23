//! Grants of a host: plain data, read from `cellar.toml` by the command line or built by an embedder.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use cellar_connectors::{Bounds, ConnectorOptions, FetchOptions};

use cellar_secrets::SecretSource;

use crate::{agent::AgentProgram, http::HeaderTemplate};

/// All that the cells of a session may call. The default grants nothing.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `[tools.NAME]`: what `tool.NAME(…)` runs.
    pub tools: BTreeMap<String, Tool>,
    /// `[runtime.PACK]`: what `runtime.PACK.PRIMITIVE(…)` runs.
    pub runtime: BTreeMap<String, RuntimePack>,
    /// `[mcp.NAME]`: servers whose tools cells may call.
    pub mcp: BTreeMap<String, McpServer>,
    /// `[llm]`: what `llm(…)` asks.
    pub llm: Option<Llm>,
    /// `[agents.NAME]`: what `agent(…, agent_type="NAME")` runs. `task` is the one that cells call by default.
    pub agents: BTreeMap<String, Agent>,
    /// `spawns` under `[session]`: the agents that the session's own cells may call.
    pub spawns: Spawns,
    /// `[http]`: the hosts that cells may reach.
    pub http: Http,
    /// `[connectors.NAME]`: sources of data that cells fetch rows from.
    pub connectors: BTreeMap<String, Connector>,
    /// `confirm` under `[connectors.NAME]`: the fetches that wait for a person.
    pub confirm_connectors: BTreeMap<String, Confirm>,
    /// `secrets`: what else is a credential, besides those that are used here. Taken out of all that cells are told.
    pub secrets: Vec<SecretSource>,
}

/// A source of data.
#[derive(Debug, Clone)]
pub enum Connector {
    /// A database, files, an interface over HTTP, or an embedder's own.
    Source(ConnectorOptions),
    /// A command, which reads `{"fetch": name, "arguments": {…}}` and writes an array of objects.
    Command {
        /// Description for people and models.
        description: String,
        /// Limits of a fetch.
        bounds: Bounds,
        /// Command to run for each fetch.
        command: Command,
        /// Fetches by name.
        fetches: BTreeMap<String, FetchOptions<()>>,
    },
    /// Tools of the session's MCP servers, or others of its tools, that give rows; each fetch names its tool.
    Mcp {
        /// Description for people and models.
        description: String,
        /// Limits of a fetch.
        bounds: Bounds,
        /// Fetches by name.
        fetches: BTreeMap<String, FetchOptions<String>>,
    },
}

/// Configuration of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// `command`: the program and its arguments. A program with a `/` in it is relative to `folder`, and the command
    /// runs there; others are looked for on `PATH`.
    pub argv: Vec<String>,
    /// Working directory: for a command in a configuration file, the folder of that file.
    pub folder: PathBuf,
    /// `environment`: variables the command gets besides `PATH`, `HOME` and `LANG`. `NAME = "value"`.
    pub environment: Vec<(String, String)>,
    /// `inherit`: names of variables that it gets from Cellar's own environment, such as credentials.
    pub inherit: Vec<String>,
    /// `timeout`: seconds it may take, 1 to 3600; 600 for an agent, 60 for a tool unless given.
    pub timeout: Duration,
}

/// A WASI program, run in a sandbox of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// `component`, `arguments`, `mounts`, `environment`, `memory_mib`, `fuel`, `timeout`. It sees nothing but these.
    pub program: crate::component::ComponentProgram,
    /// `inherit`: names of variables that it gets from Cellar's own environment, such as credentials.
    pub inherit: Vec<String>,
}

/// Program that runs when a tool is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// `command`: a program of this machine.
    Command(Command),
    /// `component`: a WASI program, which is itself in a sandbox.
    Component(Component),
}

impl Program {
    /// The variables that it is given by `environment`, and the names of those of `inherit`.
    pub fn variables(&self) -> (&[(String, String)], &[String]) {
        match self {
            Program::Command(command) => (&command.environment, &command.inherit),
            Program::Component(component) => (&component.program.environment, &component.inherit),
        }
    }
}

/// A tool.
#[derive(Debug, Clone)]
pub struct Tool {
    /// `command`, or `component`. It reads its arguments as one JSON object and writes its result as one JSON value.
    pub program: Program,
    /// `description`: what it does, for people and models.
    pub description: String,
    /// `schema`: JSON Schema of its arguments. Calls that do not fit are refused before the program starts.
    pub schema: Option<serde_json::Value>,
    /// `confirm`: which of its calls wait for a person; none when absent.
    pub confirm: Option<Confirm>,
}

/// Calls that wait until a person approves, changes or rejects them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirm {
    /// `true`: each.
    Always,
    /// Schema of the arguments of calls that wait.
    When(serde_json::Value),
}

/// A pack of primitives that are commands or components.
#[derive(Debug, Clone, Default)]
pub struct RuntimePack {
    /// `description`: what it is for, for people and models.
    pub description: String,
    /// `version`: for people.
    pub version: Option<String>,
    /// `[runtime.PACK.PRIMITIVE]`: what is in it.
    pub primitives: BTreeMap<String, Primitive>,
}

/// A primitive that is a command or a component.
#[derive(Debug, Clone)]
pub struct Primitive {
    /// As those of a tool.
    pub tool: Tool,
    /// `result`: JSON Schema of its result, for people and models.
    pub result: Option<serde_json::Value>,
}

/// A server that speaks the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// `command`, or `url`.
    pub transport: McpTransport,
    /// `timeout`: seconds that its start, and each call, may take, 1 to 3600; 60 unless given.
    pub timeout: Duration,
    /// `tools`: those that cells may call, by the server's own names; all when absent.
    pub tools: Option<Vec<String>>,
    /// `prefix`: what cells write before the server's own names; nothing unless given. A tool whose name is taken, by
    /// one under `[tools]` or of a server before in the alphabet, cannot be reached without one.
    pub prefix: String,
    /// `confirm`: which calls of its tools wait for a person; none when absent.
    pub confirm: Option<Confirm>,
}

impl McpServer {
    /// Returns true if the server may have a tool that cells call `name`.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        let Some(bare) = name.strip_prefix(&self.prefix) else { return false };
        self.tools.as_ref().is_none_or(|allowed| allowed.iter().any(|each| each == bare))
    }
}

/// Transport to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// `command`, with `environment` and `inherit`: a process that speaks on standard input and output. It is started
    /// when a cell first needs it, and killed with the session.
    Command(Command),
    /// Streamable HTTP.
    Http {
        /// `url`: such as `https://example.com/mcp`.
        url: String,
        /// `headers_env`: headers and where the environment holds their values: `Authorization = "Bearer ${TOKEN}"`, or
        /// the name of one variable. Cells never see them.
        headers: Vec<(String, HeaderTemplate)>,
    },
}

/// Tiers of models that cells may name.
pub const TIERS: [&str; 3] = ["smol", "default", "slow"];

/// The language model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Llm {
    /// `endpoint`: base URL of an OpenAI-compatible service, such as `http://127.0.0.1:9999/v1`.
    pub endpoint: String,
    /// `api_key_env`: the environment variable that holds the key. Without it, no key is sent.
    pub api_key_env: Option<String>,
    /// `timeout`: seconds one answer may take, 1 to 3600; 120 unless given.
    pub timeout: Duration,
    /// `[llm.tiers]`: the models behind `smol`, `default` and `slow`. A tier that is absent cannot be asked.
    pub tiers: BTreeMap<String, String>,
    /// `[llm.reasoning_effort]`: how much a tier's model is to think, in the service's own word, such as `high`. Where it is
    /// absent the service is told nothing.
    pub reasoning_effort: BTreeMap<String, String>,
    /// `calls`: questions a session may ask; as many as it likes unless given.
    pub calls: Option<u64>,
    /// `tokens`: tokens of questions and answers, as the service counts them, after which a session is given no more
    /// answers.
    pub tokens: Option<u64>,
}

/// An agent.
#[derive(Debug, Clone)]
pub struct Agent {
    /// `command`, or `url`.
    pub transport: AgentTransport,
    /// `description`: what it is good at.
    pub description: String,
    /// `model`: the model it is told to use when the call names none.
    pub model: Option<String>,
    /// `spawns`: the agents that the cells it runs may call: names, or `"*"` for all, which it is when absent.
    pub spawns: Spawns,
    /// `depth`: how deep it may be nested in other agents, 1 to 3, 1 being called by the session's own cells alone; 3
    /// unless given.
    pub depth: u32,
    /// `confirm`: which of its calls wait for a person, by `prompt`, `context`, `label` and `model`; none when absent.
    pub confirm: Option<Confirm>,
}

impl Agent {
    /// One that is run so, by anybody and as deep as can be.
    pub fn new(transport: AgentTransport) -> Agent {
        Agent {
            transport,
            description: String::new(),
            model: None,
            spawns: Spawns::All,
            depth: cellar_engine::limits::AGENT_DEPTH_MAX,
            confirm: None,
        }
    }
}

/// Transport to an agent.
#[derive(Clone)]
pub enum AgentTransport {
    /// `command`, `environment`, `inherit`, `timeout`. The command reads one JSON object (`prompt`, `context`,
    /// `label`, `model`, `schema`, `session`, `depth`) and writes `{"output": …}`. `CELLAR_SESSION_SOCKET` lets it run
    /// cells in the session that called it.
    Command(Command),
    /// A service that is sent the same object by POST and answers with `{"output": …}`.
    Http {
        /// `url`: such as `https://agents.example.com/run`.
        url: String,
        /// `headers_env`: headers that the host adds, from its environment: `Authorization = "Bearer ${TOKEN}"`, or the
        /// name of one variable. Cells never see them.
        headers: Vec<(String, HeaderTemplate)>,
        /// `timeout`: seconds it may take, 1 to 3600; 600 unless given.
        timeout: Duration,
    },
    /// A part of the embedding program.
    Program(Arc<dyn AgentProgram>),
    /// The model of `[llm]`, asked in a loop with cells of the session as its tool. What `task` is where a model is configured
    /// and no other agent has that name.
    Model,
}

impl fmt::Debug for AgentTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentTransport::Command(command) => f.debug_tuple("Command").field(command).finish(),
            AgentTransport::Http { url, .. } => f.debug_struct("Http").field("url", url).finish_non_exhaustive(),
            AgentTransport::Program(_) => f.write_str("Program"),
            AgentTransport::Model => f.write_str("Model"),
        }
    }
}

/// Selection of the agents that may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Spawns {
    /// All agents.
    #[default]
    All,
    /// Only these agents.
    Only(Vec<String>),
}

impl Spawns {
    /// Returns true if this agent may be called.
    pub fn allow(&self, agent_type: &str) -> bool {
        match self {
            Spawns::All => true,
            Spawns::Only(names) => names.iter().any(|name| name == agent_type),
        }
    }
}

/// The hosts that cells may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// `allow`: one entry for each host. The first that fits a request decides.
    pub allow: Vec<HttpRule>,
    /// `timeout`: seconds one request may take, its answer included, 1 to 600; 30 unless given.
    pub timeout: Duration,
    /// `request_mib`: MiB of what is sent with a request, 1 to 64; 8 unless given.
    pub request_bytes: usize,
    /// `response_mib`: MiB of an answer, 1 to 64; 16 unless given.
    pub response_bytes: usize,
    /// `calls`: requests a session may make, redirects included; 1000 unless given.
    pub calls: u64,
    /// `certificates`: a file with certificates (PEM) to trust besides the system's.
    pub certificates: Vec<u8>,
}

impl Default for Http {
    fn default() -> Http {
        Http {
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            request_bytes: 8 << 20,
            response_bytes: 16 << 20,
            calls: 1_000,
            certificates: Vec::new(),
        }
    }
}

/// A host that cells may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRule {
    /// `host`: its name or address, `*.example.com` for all hosts below that one, or `*` for every host of the internet.
    /// As [`host_pattern`](crate::host_pattern) writes it.
    pub host: String,
    /// `methods`: such as `GET`; all when absent.
    pub methods: Vec<String>,
    /// `ports`: 443 when absent.
    pub ports: Vec<u16>,
    /// `schemes`: `https` and `http`; both when absent, and `https` alone beside `headers_env`.
    pub schemes: Vec<String>,
    /// `paths`: what is granted, with all that is below it; all when absent.
    pub paths: Vec<String>,
    /// `headers_env`: headers that the host adds, from its environment: `authorization = "Bearer ${TOKEN}"`, or the name
    /// of one variable. Cells never see them.
    pub headers: Vec<(String, HeaderTemplate)>,
    /// `private`: whether the host may have an address of this machine or of a private network.
    pub private: bool,
    /// `confirm`: which requests wait for a person, by `method`, `url` and `body`; none when absent.
    pub confirm: Option<Confirm>,
}

impl Default for HttpRule {
    fn default() -> HttpRule {
        HttpRule {
            host: String::new(),
            methods: Vec::new(),
            ports: vec![443],
            schemes: vec!["https".to_owned(), "http".to_owned()],
            paths: Vec::new(),
            headers: Vec::new(),
            private: false,
            confirm: None,
        }
    }
}

impl fmt::Display for HttpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let methods = if self.methods.is_empty() { "any method".to_owned() } else { self.methods.join(" ") };
        write!(f, "{methods} {}:{}", self.host, ports.join(","))
    }
}
