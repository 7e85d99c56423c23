//! What the server reads and writes besides runs, events and results. Requests are read by hand, for the sake of the
//! messages.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

mod bodies;

use cellar_core::{
    cell::{Cell, Language},
    looks::{Completion, Completions, Variable},
    mime::MimeBundle,
    run::RunOptions,
    tool::ToolSpec,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    check::{At, Fields, Invalid, Problems},
    event::bundle_json,
    json::{self, Node},
    lineage::run_options,
    request::{LANGUAGES, language, languages, run_fields},
    stdio::{Grants, reply_result, tools},
};

pub use bodies::server_schemas;

/// Bytes of a name that a caller chooses.
const NAME_BYTES_MAX: usize = 100;
/// Bytes of a line of input or of a name in a session.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Seconds without use after which a session may be put to sleep, at most.
pub const IDLE_AFTER_MAX: u64 = 30 * 24 * 3_600;
/// The latest end that a session may be given, in seconds since the Unix epoch: that of the year 9999.
pub(crate) const EXPIRES_AT_MAX: u64 = 253_402_300_799;

/// A session to open.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// Its name; made up when absent.
    pub session: Option<String>,
    /// Whether requests for input are answered.
    pub input: bool,
    /// The snapshot that it begins with.
    pub snapshot: Option<String>,
    /// Tools that the caller answers for.
    pub tools: Vec<ToolSpec>,
    /// When it is put to sleep, and when it ends.
    pub times: SessionTimes,
}

/// When a session is put to sleep, and when it ends, as far as somebody says.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    /// Seconds without use after which it is put to sleep.
    pub idle_after: Option<u64>,
    /// Seconds since the Unix epoch, or never.
    pub expires_at: Option<Option<u64>>,
}

/// What a server is asked to run.
#[derive(Debug)]
pub struct RunBody {
    pub cells: Vec<Cell>,
    /// Later cells run although one failed.
    pub keep_going: bool,
    /// What it says of itself.
    pub options: RunOptions,
    /// It goes on when its reader goes away.
    pub is_kept: bool,
    /// Tools that the caller answers for, of a run that has a session of its own.
    pub tools: Vec<ToolSpec>,
}

/// A session of a server.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServedSessionJson {
    pub session: String,
    /// The ids of its runs that are under way, in order.
    pub runs: Vec<String>,
    /// Whether it is in memory, or is woken by what needs it next.
    pub is_open: bool,
    /// Whether requests for input are answered.
    pub input: bool,
    /// Seconds since the Unix epoch.
    pub created_at: u64,
    /// Seconds since the Unix epoch; null for one whose state was never stored.
    pub stored_at: Option<u64>,
    /// Bytes of its stored state.
    pub state_bytes: u64,
    /// Seconds without use after which it is put to sleep, until something needs it.
    pub idle_after: u64,
    /// When it ends and is removed, in seconds since the Unix epoch; null for never.
    pub expires_at: Option<u64>,
    /// The tools that its caller answers for.
    pub tools: Vec<String>,
}

/// A run of a server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunJson<T> {
    pub run: String,
    pub session: String,
    /// `running`, `complete` or `error`.
    pub status: &'static str,
    /// What it came to, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<T>,
    /// Calls of its cells that wait for the caller's answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallJson>,
}

/// A call of a tool that its caller answers for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallJson {
    /// Names the call in the answer.
    pub call: String,
    pub session: String,
    /// The cell that calls.
    pub cell: u32,
    pub tool: String,
    /// A JSON object.
    pub arguments: Value,
}

/// A name that cells have bound.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VariableJson {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub size: Option<u64>,
    pub preview: String,
}

/// Completions at a cursor. Positions count characters.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompletionsJson {
    pub start: u32,
    pub end: u32,
    pub items: Vec<CompletionJson>,
}

/// One of them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompletionJson {
    pub text: String,
    pub kind: String,
}

/// An entry of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileJson {
    pub name: String,
    /// `file`, `folder`, `link` or `other`.
    pub kind: &'static str,
    /// Null for what is no file.
    pub size: Option<u64>,
    /// Seconds since the Unix epoch.
    #[serde(rename = "modifiedAt")]
    pub modified_at: Option<u64>,
}

/// A snapshot that is kept.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotJson {
    pub snapshot: String,
    pub size_bytes: u64,
    /// Seconds since the Unix epoch.
    pub created_at: u64,
}

impl From<Variable> for VariableJson {
    fn from(variable: Variable) -> VariableJson {
        let Variable { name, type_name, size, preview } = variable;
        VariableJson { name, kind: type_name, size, preview }
    }
}

impl From<Completions> for CompletionsJson {
    fn from(list: Completions) -> CompletionsJson {
        let item = |item: Completion| CompletionJson { text: item.text, kind: item.kind };
        CompletionsJson { start: list.start, end: list.end, items: list.items.into_iter().map(item).collect() }
    }
}

/// A value as a MIME bundle.
pub fn bundle_value(bundle: &MimeBundle) -> Map<String, Value> {
    bundle_json(bundle)
}

/// Reads the object that a request has as its body; an empty body is an empty object.
pub(super) fn body<T>(
    bytes: &[u8],
    known: &[&str],
    read: impl FnOnce(&Fields<'_>, &mut Problems) -> Option<T>,
) -> Result<T, Invalid> {
    let mut problems = Problems::default();
    let node = match bytes.trim_ascii() {
        [] => Ok(Node::Object(Vec::new())),
        bytes => json::parse(bytes),
    };
    let value = match node {
        Ok(node) => At::root(&node, "$").fields(known, &mut problems).and_then(|fields| read(&fields, &mut problems)),
        Err(fault) => {
            problems.add("$", fault);
            None
        }
    };
    problems.finish("the body of the request", value)
}

pub(super) fn bounded(at: &At<'_>, bytes_max: usize, problems: &mut Problems) -> Option<String> {
    let text = at.text(problems)?;
    if text.len() > bytes_max {
        problems.add(&at.path, format_args!("expected at most {bytes_max} bytes, found {}", text.len()));
        return None;
    }
    Some(text.to_owned())
}

pub(super) fn name(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Option<String> {
    fields.get(key).and_then(|at| bounded(&at, NAME_BYTES_MAX, problems))
}

/// `{"session"?, "input"?, "snapshot"?, "tools"?, "idleAfter"?, "expiresAt"?}`
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn session_request<G: Grants>(bytes: &[u8]) -> Result<SessionRequest, Invalid> {
    body(bytes, &["session", "input", "snapshot", "tools", "idleAfter", "expiresAt"], |fields, problems| {
        Some(SessionRequest {
            session: name(fields, "session", problems),
            input: fields.get("input").and_then(|at| at.boolean(problems)).unwrap_or_default(),
            snapshot: name(fields, "snapshot", problems),
            tools: tools::<G>(fields, problems).unwrap_or_default(),
            times: times(fields, problems),
        })
    })
}

/// `{"idleAfter"?, "expiresAt"?}`
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn times_body(bytes: &[u8]) -> Result<SessionTimes, Invalid> {
    body(bytes, &["idleAfter", "expiresAt"], |fields, problems| Some(times(fields, problems)))
}

fn times(fields: &Fields<'_>, problems: &mut Problems) -> SessionTimes {
    let idle_after = fields.get("idleAfter").and_then(|at| at.integer(1..=IDLE_AFTER_MAX, problems));
    let expires_at = fields.get("expiresAt").map(|at| match at.node {
        Node::Null => None,
        _ => at.integer(1..=EXPIRES_AT_MAX, problems),
    });
    SessionTimes { idle_after, expires_at }
}

/// `{"cells": […], "keepGoing"?, "onDisconnect"?, "producer"?, "dryRun"?, "seen"?}`
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn run_body(bytes: &[u8]) -> Result<RunBody, Invalid> {
    body(bytes, &["cells", "keepGoing", "onDisconnect", "producer", "dryRun", "seen"], run_of)
}

/// The same for a run that has a session of its own, and `"tools"?`.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn eval_body<G: Grants>(bytes: &[u8]) -> Result<RunBody, Invalid> {
    body(bytes, &["cells", "keepGoing", "onDisconnect", "producer", "dryRun", "seen", "tools"], |fields, problems| {
        let tools = tools::<G>(fields, problems);
        let run = run_of(fields, problems)?;
        Some(RunBody { tools: tools?, ..run })
    })
}

fn run_of(fields: &Fields<'_>, problems: &mut Problems) -> Option<RunBody> {
    let keep_going = fields.get("keepGoing").and_then(|at| at.boolean(problems)).unwrap_or_default();
    let is_kept = fields.get("onDisconnect").is_some_and(|at| match at.node {
        Node::Text(text) if text == "continue" => true,
        Node::Text(text) if text == "cancel" => false,
        _ => {
            at.expected("\"cancel\" or \"continue\"", problems);
            false
        }
    });
    let options = run_options(fields, "dryRun", problems);
    let cells = run_fields(fields, problems)?;
    Some(RunBody { cells, keep_going, options: options?, is_kept, tools: Vec::new() })
}

/// `{"result"}` or `{"error"}`: what a tool gave, as JSON, or why it failed.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn reply_body(bytes: &[u8]) -> Result<Result<String, String>, Invalid> {
    body(bytes, &["result", "error"], reply_result)
}

/// `{"request_id", "value"}`: the request as its event names it, and a line, or null for the end of the input.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn input_body(bytes: &[u8]) -> Result<(String, Option<String>), Invalid> {
    body(bytes, &["request_id", "value"], |fields, problems| {
        let request = fields.required("request_id", "that of the event", problems);
        let request = request.and_then(|at| bounded(&at, NAME_BYTES_MAX, problems));
        let value = fields.required("value", "a string, or null for the end of the input", problems)?;
        let value = match value.node {
            Node::Null => None,
            _ => Some(bounded(&value, TEXT_BYTES_MAX, problems)?),
        };
        Some((request?, value))
    })
}

/// `{"language"?}`: the only one, unless all.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn reset_body(bytes: &[u8]) -> Result<Vec<Language>, Invalid> {
    body(bytes, &["language"], languages)
}

/// `{"session"?}`: the name of the fork.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn fork_body(bytes: &[u8]) -> Result<Option<String>, Invalid> {
    body(bytes, &["session"], |fields, problems| Some(name(fields, "session", problems)))
}

/// `{"snapshot"}`
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn rewind_body(bytes: &[u8]) -> Result<String, Invalid> {
    body(bytes, &["snapshot"], |fields, problems| {
        bounded(&fields.required("snapshot", "the id of a snapshot", problems)?, NAME_BYTES_MAX, problems)
    })
}

/// `{"language", "code", "cursor"?}`: the cursor counts characters, and is at the end unless given.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn look_body(bytes: &[u8]) -> Result<(Language, String, u32), Invalid> {
    body(bytes, &["language", "code", "cursor"], |fields, problems| {
        let known = fields.required("language", "\"py\" or \"js\"", problems).and_then(|at| language(&at, problems));
        let code = fields.required("code", "a string", problems);
        let code = code.and_then(|at| bounded(&at, TEXT_BYTES_MAX, problems));
        let cursor = fields.get("cursor").and_then(|at| at.integer(0..=u64::from(u32::MAX), problems));
        let code = code?;
        let end = u32::try_from(code.chars().count()).unwrap_or(u32::MAX);
        let cursor = cursor.and_then(|cursor| u32::try_from(cursor).ok()).unwrap_or(end).min(end);
        Some((known?, code, cursor))
    })
}

/// The language of this code, if a request may name it.
pub fn language_of(code: &str) -> Option<Language> {
    LANGUAGES.into_iter().find(|language| language.code() == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grants that nobody asks for here.
    struct Nothing;

    impl Grants for Nothing {
        fn from_json(_: &At<'_>, _: &mut Problems) -> Option<Nothing> {
            None
        }

        fn schema_from_json(_: &At<'_>, _: &mut Problems) -> Option<Value> {
            None
        }
    }

    #[test]
    fn every_fault_of_a_body_is_named() {
        let check = |found: Result<String, Invalid>, expected: &[&str]| {
            assert_eq!(found.expect_err("a refusal").problems, expected);
        };
        check(
            session_request::<Nothing>(br#"{"input": 1, "sesion": "a"}"#).map(|request| format!("{request:?}")),
            &["$.sesion: unknown field, did you mean `session`?", "$.input: expected true or false, found 1"],
        );
        check(
            times_body(br#"{"idleAfter": 0, "expiresAt": "soon"}"#).map(|times| format!("{times:?}")),
            &[
                "$.idleAfter: expected an integer from 1 to 2592000, found 0",
                "$.expiresAt: expected an integer from 1 to 253402300799, found \"soon\"",
            ],
        );
        check(
            reply_body(b"{}").map(|reply| format!("{reply:?}")),
            &["$: expected either `result`, or `error` with a message"],
        );
        check(
            run_body(br#"{"onDisconnect": "stop"}"#).map(|body| format!("{body:?}")),
            &[
                "$.onDisconnect: expected \"cancel\" or \"continue\", found \"stop\"",
                "$.cells: expected an array of at least one cell, found nothing",
            ],
        );
        check(rewind_body(b"").map(|_| String::new()), &["$.snapshot: expected the id of a snapshot, found nothing"]);
        assert_eq!(session_request::<Nothing>(b" ").expect("an empty body"), SessionRequest::default());
        assert_eq!(input_body(br#"{"request_id": "r", "value": null}"#).expect("valid"), ("r".to_owned(), None));
    }
}
