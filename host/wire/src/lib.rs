//! Every document that Cellar reads and writes: runs, events, results, reports, the lines of `cellar stdio`.
//!
//! The engine's types know nothing of JSON; here they get their names in it. Nothing else names a field. Requests are
//! read by tables of their members, because their senders are models and people who need to be told what to mend; events
//! and results are written and read by serde.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod check;
pub mod json;

mod approval;
mod artifact;
mod doctor;
mod event;
mod lineage;
mod llm;
mod mcp;
mod object;
mod problem;
mod request;
mod result;
mod schema;
mod server;
mod session;
mod stdio;
mod stubs;

pub use approval::{Decision, DecisionOutcome, WaitingCallJson, WaitingCallsJson};
pub use artifact::{ArtifactJson, CollectedJson, PulledJson, PushedJson, VerifiedJson};
pub use doctor::{
    AuditJson, ConfigJson, DoctorJson, FoldersJson, GuestJson, HostJson, LlmJson, MachineJson, ServerJson, TenantJson,
};
pub use event::{DatasetJson, EventJson, OriginJson, OriginsJson, StreamJson};
pub use llm::{OutputJson, OutputsJson, PageJson, first_outputs, output_page, value_page};
pub use mcp::{FileAction, MCP_TOOLS, McpCall, mcp_call, mcp_output_schema, mcp_schema};
pub use problem::{FaultJson, ProblemJson, faults};
pub use request::{
    REQUEST_BYTES_MAX, language_meant, language_of, run_elsewhere_from_json, run_elsewhere_json, run_from_json,
    run_json,
};
pub use result::ResultJson;
pub use schema::Shape;
pub use server::{
    CallJson, CommandBody, CommandJson, CompletionJson, CompletionsJson, FileJson, IDLE_AFTER_MAX, RunBody, RunJson,
    ServedSessionJson, SessionGrants, SessionRequest, SessionTimes, SnapshotJson, VariableJson, bundle_value,
    command_body, eval_body, fork_body, input_body, look_body, reply_body, reset_body, rewind_body, run_body,
    server_schemas, session_request, state_body, times_body,
};
pub use session::{FileChangeJson, NameChangeJson, StateDiffJson, StateJson, StatesJson, StoredSessionJson};
pub use stdio::{
    Answer, Caller, Grants, Open, OpenSessionJson, PAGE_CHARACTERS, PAGE_ROWS, Request, is_snapshot_name,
    request_from_json, request_types,
};
pub use stubs::StubsJson;

use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of an answer on a session's socket: the events of the run, then its result or why there is none.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Line {
    /// An event.
    Event(EventJson),
    /// The last line of a run.
    Result(Box<ResultLine>),
    /// The only line of a run that was refused.
    Refusal(RefusalLine),
}

/// `{"type": "result", "result": …}`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "result")]
pub struct ResultLine {
    /// What the run came to.
    pub result: ResultJson,
}

/// `{"type": "error", "error": …}`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "error")]
pub struct RefusalLine {
    /// Why.
    pub error: Refusal,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// A stable word.
    pub code: String,
    /// What people read.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Seconds since the Unix epoch.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
