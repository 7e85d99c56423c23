//! Output of `cellar session list --json`.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use schemars::JsonSchema;
use serde::Serialize;

/// A stored session.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredSessionJson {
    pub name: String,
    /// Seconds since the Unix epoch; null for a session that was never stored.
    pub stored_at: Option<u64>,
    pub state_bytes: u64,
    pub languages: Vec<&'static str>,
    /// Whether a process holds it.
    pub is_live: bool,
    /// Why its state cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
