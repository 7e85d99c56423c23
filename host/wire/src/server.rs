//! Bodies of requests to the server, and its answers besides runs, events and results.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

mod bodies;
mod commands;

use cellar_core::{
    cell::{Cell, Language},
    limits::LimitSettings,
    looks::{Completion, Completions, Variable},
    mime::MimeBundle,
    run::RunOptions,
    tool::ToolSpec,
};
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    check::{At, Fields, Invalid, Problems},
    event::bundle_json,
    json::{self, Node},
    lineage::run_options,
    object::{Members, Object},
    request::{CELL_KEYS, cell, cells, languages},
    stdio::{Grants, reply_result, tools},
};

use bodies::{FORK, INPUT, LOOK, NEW_EVAL, NEW_RUN, NEW_SESSION, REPLY, RESET, REWIND, SESSION_CHANGE, STATE_CHANGE};

pub use bodies::server_schemas;
pub use commands::{CommandBody, CommandJson, command_body};

/// Bytes of a name that a caller chooses.
const NAME_BYTES_MAX: usize = 100;
/// Bytes of a line of input or of a name in a session.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a path.
const PATH_BYTES_MAX: usize = 4_096;

/// Bytes of the environment that a caller gives a session.
const ENVIRONMENT_BYTES_MAX: usize = 256 << 10;

/// Seconds without use after which a session may be put to sleep, at most.
pub const IDLE_AFTER_MAX: u64 = 30 * 24 * 3_600;
/// The latest end that a session may be given, in seconds since the Unix epoch: that of the year 9999.
pub(crate) const EXPIRES_AT_MAX: u64 = 253_402_300_799;

/// A session to open.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// Its name; made up when absent.
    pub session: Option<String>,
    /// True if requests for input are answered.
    pub input: bool,
    /// The snapshot that it begins with.
    pub snapshot: Option<String>,
    /// Tools that the caller answers for.
    pub tools: Vec<ToolSpec>,
    /// Times at which it is put to sleep and ends.
    pub times: SessionTimes,
    /// Grants of the session.
    pub grants: SessionGrants,
}

/// Grants that a caller asks for: no more than its tenant has, or a template of the operator.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SessionGrants {
    /// Template of the operator.
    pub template: Option<String>,
    /// Guest that runs its language in the place of the usual one.
    pub guest: Option<String>,
    /// Environment variables of cells.
    pub environment: Vec<(String, String)>,
    /// Limits, lower than those of the tenant or the template.
    pub limits: LimitSettings,
}

/// Times at which a session is put to sleep and ends. `None` for a time that the request does not give.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    /// Seconds without use after which it is put to sleep.
    pub idle_after: Option<u64>,
    /// Seconds since the Unix epoch, or never.
    pub expires_at: Option<Option<u64>>,
}

/// Request to run cells.
#[derive(Debug)]
pub struct RunBody {
    pub cells: Vec<Cell>,
    /// True to run later cells although one failed.
    pub keep_going: bool,
    /// Lineage of the run: its producer, and the datasets that its caller has seen.
    pub options: RunOptions,
    /// True to continue the run when its reader disconnects.
    pub is_kept: bool,
    /// Tools that the caller answers for, of a run that has a session of its own.
    pub tools: Vec<ToolSpec>,
    /// Grants of the session that is made for the run.
    pub grants: SessionGrants,
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
    /// The template that it was opened with; null for none.
    pub template: Option<String>,
    /// Guests that it was opened with in the place of those of the configuration.
    pub guests: Vec<String>,
    /// Limits that it was opened with, by their keys in `[limits]`.
    pub limits: BTreeMap<String, serde_json::Number>,
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
pub(super) fn body<T>(bytes: &[u8], read: impl FnOnce(&At<'_>, &mut Problems) -> Option<T>) -> Result<T, Invalid> {
    let mut problems = Problems::default();
    let node = match bytes.trim_ascii() {
        [] => Ok(Node::Object(Vec::new())),
        bytes => json::parse(bytes),
    };
    let value = match node {
        Ok(node) => read(&At::root(&node, "$"), &mut problems),
        Err(fault) => {
            problems.add("$", fault);
            None
        }
    };
    problems.finish("the body of the request", value)
}

/// The same of an object of this kind.
pub(crate) fn read<T>(
    object: &'static Object,
    bytes: &[u8],
    read: impl FnOnce(&Members<'_>, &mut Problems) -> Option<T>,
) -> Result<T, Invalid> {
    body(bytes, |at, problems| read(&object.read(at, None, problems)?, problems))
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

/// Reads a session to open.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn session_request<G: Grants>(bytes: &[u8]) -> Result<SessionRequest, Invalid> {
    read(&NEW_SESSION, bytes, |members, problems| {
        Some(SessionRequest {
            session: members.text("session", problems),
            input: members.boolean("input", problems).unwrap_or_default(),
            snapshot: members.text("snapshot", problems),
            tools: tools::<G>(members, problems).unwrap_or_default(),
            times: times(members, problems),
            grants: grants(members, problems),
        })
    })
}

/// Reads what a session is to be granted.
fn grants(members: &Members<'_>, problems: &mut Problems) -> SessionGrants {
    SessionGrants {
        template: members.text("template", problems),
        guest: members.word("guest", problems).map(str::to_owned),
        environment: environment(members, problems),
        limits: members.limits("limits", problems),
    }
}

fn environment(members: &Members<'_>, problems: &mut Problems) -> Vec<(String, String)> {
    let Some(at) = members.get("environment", problems) else { return Vec::new() };
    let (mut variables, mut size) = (Vec::new(), 0_usize);
    for (name, value) in at.entries(problems).unwrap_or_default() {
        if name.is_empty() || name.contains(['=', '\0']) {
            problems.add(&value.path, "expected a name without `=`");
        } else if let Some(text) = value.text(problems) {
            size = size.saturating_add(name.len()).saturating_add(text.len());
            variables.push((name.to_owned(), text.to_owned()));
        }
    }
    if size > ENVIRONMENT_BYTES_MAX {
        problems.add(&at.path, format_args!("expected at most {ENVIRONMENT_BYTES_MAX} bytes, found {size}"));
    }
    variables
}

/// Reads when a session is put to sleep, and when it ends.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn times_body(bytes: &[u8]) -> Result<SessionTimes, Invalid> {
    read(&SESSION_CHANGE, bytes, |members, problems| Some(times(members, problems)))
}

fn times(members: &Members<'_>, problems: &mut Problems) -> SessionTimes {
    let idle_after = members.integer("idleAfter", problems);
    let expires_at = members.get("expiresAt", problems).map(|_| members.integer("expiresAt", problems));
    SessionTimes { idle_after, expires_at }
}

/// Reads a run of a session.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn run_body(bytes: &[u8]) -> Result<RunBody, Invalid> {
    let cells = |members: &Members<'_>, problems: &mut Problems| cells(&members.get("cells", problems)?, problems);
    read(&NEW_RUN, bytes, |members, problems| run_of(members, cells, problems))
}

/// Reads a run that has a session of its own.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn eval_body<G: Grants>(bytes: &[u8]) -> Result<RunBody, Invalid> {
    read(&NEW_EVAL, bytes, |members, problems| {
        let tools = tools::<G>(members, problems);
        let grants = grants(members, problems);
        let run = run_of(members, cells_or_one, problems)?;
        Some(RunBody { tools: tools?, grants, ..run })
    })
}

/// Cells, or one whose members stand in their place.
fn cells_or_one(members: &Members<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let single = members.gathered(&CELL_KEYS, problems);
    match (members.get("cells", &mut Problems::default()), single) {
        (None, Some(node)) => cell(&At::root(&node, "$"), problems).map(|cell| vec![cell]),
        (Some(at), single) => {
            if single.is_some() {
                problems.add("$", "expected either `cells`, or one cell by its `language` and `code`");
            }
            cells(&at, problems)
        }
        (None, None) => {
            problems.add("$.cells", "expected an array of at least one cell, found nothing");
            None
        }
    }
}

fn run_of(
    members: &Members<'_>,
    cells: impl FnOnce(&Members<'_>, &mut Problems) -> Option<Vec<Cell>>,
    problems: &mut Problems,
) -> Option<RunBody> {
    let keep_going = members.boolean("keepGoing", problems).unwrap_or_default();
    let is_kept = members.word("onDisconnect", problems) == Some("continue");
    let options = run_options(members, "dryRun", problems);
    let (cells, options) = (cells(members, problems)?, options?);
    Some(RunBody { cells, keep_going, options, is_kept, tools: Vec::new(), grants: SessionGrants::default() })
}

/// Reads what a tool gave, as JSON, or why it failed.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn reply_body(bytes: &[u8]) -> Result<Result<String, String>, Invalid> {
    read(&REPLY, bytes, reply_result)
}

/// Reads the id of a request for input, and a line, or nothing for the end of the input.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn input_body(bytes: &[u8]) -> Result<(String, Option<String>), Invalid> {
    read(&INPUT, bytes, |members, problems| {
        let request = members.text("request_id", problems);
        let value = members.text("value", problems);
        Some((request?, value))
    })
}

/// Reads which languages are reset.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn reset_body(bytes: &[u8]) -> Result<Vec<Language>, Invalid> {
    read(&RESET, bytes, |members, problems| languages(members.get("language", problems).as_ref(), problems))
}

/// Reads the name of a fork.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn fork_body(bytes: &[u8]) -> Result<Option<String>, Invalid> {
    read(&FORK, bytes, |members, problems| Some(members.text("session", problems)))
}

/// Reads the new name of a state, or null for none, and whether it is pinned.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn state_body(bytes: &[u8]) -> Result<(Option<Option<String>>, Option<bool>), Invalid> {
    read(&STATE_CHANGE, bytes, |members, problems| {
        let name = members.get("name", problems).map(|_| members.text("name", problems));
        Some((name, members.boolean("pinned", problems)))
    })
}

/// Reads the id of a snapshot.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn rewind_body(bytes: &[u8]) -> Result<String, Invalid> {
    read(&REWIND, bytes, |members, problems| members.text("snapshot", problems))
}

/// Reads a place in code: the cursor counts characters, and is at the end unless given.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn look_body(bytes: &[u8]) -> Result<(Language, String, u32), Invalid> {
    read(&LOOK, bytes, |members, problems| {
        let known = members.language("language", problems);
        let code = members.text("code", problems);
        let cursor = members.integer("cursor", problems);
        let code = code?;
        let end = u32::try_from(code.chars().count()).unwrap_or(u32::MAX);
        let cursor = cursor.and_then(|cursor| u32::try_from(cursor).ok()).unwrap_or(end).min(end);
        Some((known?, code, cursor))
    })
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
