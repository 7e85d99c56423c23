//! Every JSON shape that Cellar reads and writes.
//!
//! The engine's types know nothing of JSON; here they get their names in it. Nothing else names a field. Requests are
//! checked by hand, because their senders are models and people who need to be told what to mend; events and results
//! are written and read by serde.

mod artifact;
mod doctor;
mod event;
mod llm;
mod request;
mod result;
mod schema;
mod session;
mod stdio;

pub(crate) use artifact::{ArtifactJson, CollectedJson};
pub(crate) use doctor::{AuditJson, ConfigJson, DoctorJson, FoldersJson, GuestJson, LimitsJson, MachineJson};
pub(crate) use event::EventJson;
pub(crate) use llm::{OutputJson, OutputsJson, first_outputs, output_page};
pub(crate) use request::{REQUEST_BYTES_MAX, run_from_json, run_json};
pub(crate) use result::ResultJson;
pub(crate) use schema::Shape;
pub(crate) use session::StoredSessionJson;
pub(crate) use stdio::{
    Answer, Open, OpenSessionJson, PAGE_CHARACTERS, PAGE_ROWS, Request, request_from_json, request_types,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of an answer on a session's socket: the events of the run, then its result or why there is none.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Line {
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
pub(crate) struct ResultLine {
    /// What the run came to.
    pub(crate) result: ResultJson,
}

/// `{"type": "error", "error": …}`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "error")]
pub(crate) struct RefusalLine {
    /// Why.
    pub(crate) error: Refusal,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Refusal {
    /// A stable word.
    pub(crate) code: String,
    /// What people read.
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

#[cfg(test)]
mod tests;
