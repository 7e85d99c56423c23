//! What a host grants: plain data, read from `cellar.toml` by the command line or made by an embedder.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// All that the cells of a session may call. The default grants nothing.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `[tools.NAME]`: what `tool.NAME(…)` runs.
    pub tools: BTreeMap<String, Tool>,
    /// `[llm]`: what `llm(…)` asks.
    pub llm: Option<Llm>,
    /// `[agents.NAME]`: what `agent(…, agent_type="NAME")` runs. `task` is the one that cells call by default.
    pub agents: BTreeMap<String, Agent>,
    /// `[http]`: the hosts that cells may reach. Kept for the day when the bridge is built: until then every request
    /// is denied.
    pub http: Http,
}

/// How a command is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// `command`: the program and its arguments. A program with a `/` in it is relative to `folder`, and the command
    /// runs there; others are looked for on `PATH`.
    pub argv: Vec<String>,
    /// Where it runs: of a command in a file, the folder of the file.
    pub folder: PathBuf,
    /// `environment`: variables the command gets besides `PATH`, `HOME` and `LANG`. `NAME = "value"`.
    pub environment: Vec<(String, String)>,
    /// `inherit`: names of variables that it gets from Cellar's own environment, such as credentials.
    pub inherit: Vec<String>,
    /// `timeout`: seconds it may take, 1 to 3600; 600 for an agent, 60 for a tool unless given.
    pub timeout: Duration,
}

/// A tool.
#[derive(Debug, Clone)]
pub struct Tool {
    /// `command`, `environment`, `inherit`, `timeout`. The command reads its arguments as one JSON object and writes
    /// its result as one JSON value.
    pub command: Command,
    /// `description`: what it does, for people and models.
    pub description: String,
    /// `schema`: JSON Schema of its arguments. Calls that do not fit are refused before the command starts.
    pub schema: Option<serde_json::Value>,
}

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
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// `command`, `environment`, `inherit`, `timeout`. The command reads one JSON object (`prompt`, `context`,
    /// `label`, `model`, `schema`, `session`, `depth`) and writes `{"output": …}`. `CELLAR_SESSION_SOCKET` lets it run
    /// cells in the session that called it.
    pub command: Command,
    /// `description`: what it is good at.
    pub description: String,
}

/// The hosts that cells may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Http {
    /// `allow`: one entry for each host.
    pub allow: Vec<HttpRule>,
}

/// A host that cells may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRule {
    /// `host`: its name.
    pub host: String,
    /// `methods`: such as `GET`; all when absent.
    pub methods: Vec<String>,
    /// `ports`: 443 when absent.
    pub ports: Vec<u16>,
}

impl fmt::Display for HttpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let methods = if self.methods.is_empty() { "any method".to_owned() } else { self.methods.join(" ") };
        write!(f, "{methods} {}:{}", self.host, ports.join(","))
    }
}
