//! Output of `cellar session list --json`, of `log --json` and of `diff --json`.

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

/// The states of a session that are kept.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatesJson {
    /// Oldest first.
    pub states: Vec<StateJson>,
    /// The state that the session is at, or was at before the cell that runs; null for none that is kept.
    pub current: Option<u64>,
    /// Bytes of all states, what they share counted once.
    pub bytes: u64,
    /// Guest paths of the writable folders of the host that the session was granted. States do not hold their files, and going
    /// back does not change them.
    pub outside: Vec<String>,
}

/// A state of a session that is kept.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateJson {
    /// Its number.
    pub state: u64,
    /// The state that it came from, or the nearest one before that is still kept; null for none.
    pub parent: Option<u64>,
    /// Seconds since the Unix epoch.
    pub time: u64,
    /// The run and the cell that ended with it.
    pub run: Option<String>,
    pub cell: Option<u32>,
    /// The language of that cell.
    pub language: Option<&'static str>,
    /// The languages that have a kernel in it.
    pub languages: Vec<&'static str>,
    /// Bytes of its memory and its files.
    pub bytes: u64,
    /// Bytes that no state before it had.
    pub added_bytes: u64,
    pub name: Option<String>,
    /// Whether it is kept until it is unpinned or forgotten.
    pub pinned: bool,
}

/// Differences between two states.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StateDiffJson {
    /// Names of variables, compared by type, size and the beginning of their text.
    pub names: Vec<NameChangeJson>,
    /// Files, folders and links.
    pub files: Vec<FileChangeJson>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct NameChangeJson {
    pub language: &'static str,
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct FileChangeJson {
    pub path: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
}
