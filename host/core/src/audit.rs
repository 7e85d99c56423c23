//! Entries of the audit log: code, grants, calls and ends of runs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    limits::LimitGrants,
    outcome::{Outcome, Usage},
    time::fractional_millis,
};

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Time of writing, by the host's clock, in UTC (RFC 3339).
    pub time: String,
    /// The session.
    pub session: String,
    /// User or service that the session works for, if the host names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Tenant whose quota and grants apply, if the host names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The run; absent for calls by code whose run is gone, or by none: a session's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Kind of the entry, with its own fields.
    #[serde(flatten)]
    pub kind: AuditKind,
}

/// Event that an entry records.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "an entry is written and dropped")]
#[non_exhaustive]
pub enum AuditKind {
    /// A run is about to begin.
    RunStarted(RunStarted),
    /// A bridge call ended.
    Call(CallEntry),
    /// A person decided on a call that waited for that.
    Decision(DecisionEntry),
    /// A run ended.
    RunFinished(RunFinished),
}

/// Start of a run: its cells and its grants.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// Its cells, in order.
    pub cells: Vec<CellAsked>,
    /// True if later cells run although one failed.
    pub keep_going: bool,
    /// Agents between the session's owner and the run.
    pub depth: u32,
    /// The type of the agent that makes the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The call of that agent, where it was called in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<CallSite>,
    /// Grants and limits of its cells.
    pub grants: Grants,
}

/// A cell as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellAsked {
    /// Place in its run, from 0.
    pub index: usize,
    /// `py` or `js`.
    pub language: String,
    /// SHA-256 of its source.
    pub code_sha256: String,
    /// Bytes of its source.
    pub code_bytes: usize,
    /// True if its language is reset before it.
    pub reset: bool,
}

/// Decision of a person on a call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionEntry {
    /// Id of the wait.
    pub wait: String,
    /// The cell that made the call.
    pub cell: u32,
    /// Bridge of the call.
    pub bridge: String,
    /// Name of the callee.
    pub name: String,
    /// `approved`, `edited` or `rejected`.
    pub decision: String,
    /// The one who decided.
    pub by: String,
    /// Time that the call waited, in milliseconds.
    pub waited_ms: f64,
}

/// A bridge call by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallSite {
    /// The cell that made it.
    pub cell: u32,
    /// Its number in the cell's kernel.
    pub call: u64,
}

/// Grants and limits of a session's cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grants {
    /// Folders.
    pub folders: Vec<FolderGrant>,
    /// Bridges that cells may call.
    #[serde(flatten)]
    pub bridges: BridgeGrants,
    /// True if requests for input are answered.
    pub input: bool,
    /// Names of the environment variables that cells see.
    pub environment: Vec<String>,
    /// Sources that fresh kernels run before any cell: the language, and SHA-256.
    pub seeds: Vec<SeedGrant>,
    /// True if each cell has a kernel of its own.
    pub per_call: bool,
    /// Bounds.
    pub limits: LimitGrants,
}

/// A folder that cells see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FolderGrant {
    /// Path on the host; absent for a private folder of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path that cells see.
    pub guest: String,
    /// True if cells may write to it.
    pub write: bool,
}

/// Seed of a language's kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeedGrant {
    /// `py` or `js`.
    pub language: String,
    /// SHA-256 of its source.
    pub code_sha256: String,
    /// Names that it binds.
    pub bindings: Vec<String>,
}

/// A bridge call that ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallEntry {
    /// The cell that made it; a task may outlive its cell. Absent for a session's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// Its number in the cell's kernel.
    pub call: u64,
    /// `tool`, `llm`, `agent`, `input` or `http`.
    pub bridge: String,
    /// The tool, the tier, the type of agent, or the method and URL of a request without its query.
    pub name: String,
    /// `ok`, or the class of the error: `failed`, `denied`, `unknown`, `invalid`, `cancelled`, `limit`.
    pub outcome: String,
    /// Duration in milliseconds.
    pub duration_ms: f64,
    /// Bytes of its arguments.
    pub request_bytes: usize,
    /// Bytes of its answer; none for an error.
    pub response_bytes: usize,
}

/// End of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunFinished {
    /// `complete`, `error`, or `cancelled` when nobody read it to its end.
    pub outcome: String,
    /// From its first entry, in milliseconds.
    pub duration_ms: f64,
    /// The cells that began, in order.
    pub cells: Vec<CellRan>,
    /// Bridge calls that its cells made while it was read.
    pub calls: u64,
    /// Bridge calls that ended with an error.
    pub calls_failed: u64,
}

/// End of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellRan {
    /// Place in its run, from 0.
    pub index: usize,
    /// Its number in the session; absent when it never got a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// SHA-256 of its source.
    pub code_sha256: String,
    /// `complete`, `exited`, the kind of its error (`raised`, `timeout`, …), or `cancelled` when nobody waited for its end.
    pub outcome: String,
    /// Duration in milliseconds.
    pub duration_ms: f64,
    /// Instructions, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Processor time, in milliseconds.
    pub cpu_ms: f64,
    /// The largest memory of its kernel so far.
    pub memory_peak_bytes: u64,
}

impl CellRan {
    /// A cell that has begun: cancelled, unless it is said to have ended.
    pub fn begun(index: usize, cell: Option<u32>, code_sha256: String) -> CellRan {
        let outcome = "cancelled".to_owned();
        let (fuel, cpu_ms, memory_peak_bytes) = (None, 0.0, 0);
        CellRan { index, cell, code_sha256, outcome, duration_ms: 0.0, fuel, cpu_ms, memory_peak_bytes }
    }

    /// Notes how it ended.
    pub fn ended(&mut self, outcome: &Outcome, duration: Duration, usage: &Usage) {
        self.outcome = outcome.as_str().to_owned();
        self.duration_ms = fractional_millis(duration);
        self.fuel = usage.fuel;
        self.cpu_ms = fractional_millis(usage.cpu);
        self.memory_peak_bytes = usage.memory_peak_bytes;
    }
}

/// Grants of some bridges: names and rules, no credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeGrants {
    /// Tools, by the names that cells call.
    pub tools: Vec<String>,
    /// Servers of tools, which are asked for them when a cell first needs one.
    pub mcp: Vec<String>,
    /// Tiers of models, each with its model.
    pub llm: Vec<String>,
    /// Types of agents.
    pub agents: Vec<String>,
    /// Packs of primitives, but for those of the engine.
    pub packs: Vec<String>,
    /// Rules for hosts.
    pub http: Vec<String>,
    /// Connectors.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub connectors: Vec<String>,
}
