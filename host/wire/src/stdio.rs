//! What `cellar stdio` reads and writes: one JSON object a line, told apart by `type`.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::{ops::RangeInclusive, path::PathBuf};

use cellar_core::{
    cell::{Cell, Language},
    limits,
    run::RunOptions,
    text::list,
    tool::ToolSpec,
};
use cellar_results::result::View;
use schemars::{JsonSchema, Schema, json_schema, transform::RecursiveTransform};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    EventJson, OriginsJson, OutputJson, PageJson, Refusal, ResultJson, StreamJson,
    request::{CellJson, LANGUAGES, language, languages, run_fields},
};
use crate::{
    check::{At, Fields, Invalid, Problems},
    json,
    lineage::{LineageJson, run_options},
};

/// Bytes of an id or a name that the caller chooses.
const ID_BYTES_MAX: usize = 256;
/// What is expected where a file is named.
const FILE: &str = "the path of a file";
/// What is expected where a snapshot of a server is named.
const SNAPSHOT_NAME: &str = "the name of a snapshot: letters, digits, `-`, `_` and `.`";
/// Bytes of such a name.
const SNAPSHOT_NAME_BYTES_MAX: usize = 64;
/// What callers that came over the network may say under `[session]`.
const REMOTE_SESSION: [&str; 5] = ["input_timeout", "guests", "kernel_mode", "output_policy", "charts"];
/// Why they may say nothing else.
const REMOTE_REFUSED: &str = "expected nothing: only the operator of the server grants this";
/// Tools that one session may be given by its caller.
const TOOLS_MAX: usize = 1_000;

/// Rows of a table on a page.
pub const PAGE_ROWS: RangeInclusive<u64> = 1..=10_000;
/// Characters of a text, bytes of a table's rows on a page.
pub const PAGE_CHARACTERS: RangeInclusive<u64> = 1..=1_000_000;

/// A line that Cellar writes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// The first line.
    Hello {
        /// Of this protocol; it changes when a caller must.
        protocol: u32,
        /// Of Cellar.
        version: &'static str,
        /// Those of sessions that are opened without grants of their own.
        languages: Vec<&'static str>,
        /// The types of lines that are understood.
        requests: Vec<&'static str>,
    },
    /// A session is open.
    Opened { id: Option<String>, session: String },
    /// The sessions that are open, by their names.
    Sessions { id: Option<String>, sessions: Vec<OpenSessionJson> },
    /// A request that has nothing to say was carried out.
    Done { id: Option<String> },
    /// Something happened in a run.
    Event { id: String, event: EventJson },
    /// Code of a session wrote text while none of its cells ran. The event `background` of its next run says it again.
    Background { session: String, cell: u32, stream: StreamJson, text: String },
    /// A run has ended.
    Result { id: String, result: Box<ResultJson> },
    /// What a model is given of a run that has ended.
    Outputs { id: Option<String>, outputs: Vec<OutputJson> },
    /// What a model is given of a value that a name of a session has.
    Value {
        id: Option<String>,
        name: String,
        #[serde(flatten)]
        page: PageJson,
    },
    /// Where names of a session come from, each that has an origin.
    Origins {
        id: Option<String>,
        #[serde(flatten)]
        origins: OriginsJson,
    },
    /// A cell calls a tool of the caller, who answers with `reply`.
    Call { call: String, session: String, cell: u32, tool: String, arguments: Value },
    /// Nobody waits for the answer to a call any more.
    CallCancelled { call: String },
    /// A request was refused, or a run that had been accepted could not be started.
    Error { id: Option<String>, line: u64, error: Refusal },
}

/// A session that is open.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OpenSessionJson {
    pub session: String,
    /// The ids of its runs that are under way, in order.
    pub runs: Vec<String>,
}

// For the schema alone: requests are read by hand, for the sake of the messages.
/// A line that the caller writes.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", deny_unknown_fields, transform = RecursiveTransform(not_null))]
#[expect(dead_code, reason = "nothing is made of it but the schema")]
pub(super) enum RequestJson {
    /// Opens a session, and is answered by `opened`.
    Open {
        /// What the answer is to carry.
        id: Option<String>,
        /// Its name; made up when absent.
        session: Option<String>,
        /// A `cellar.toml` as JSON, in the place of the one on the command line.
        grants: Option<Map<String, Value>>,
        /// Folder to use as its workspace.
        workspace: Option<String>,
        /// Tools that the caller answers for.
        tools: Option<Vec<ToolJson>>,
        /// Whether the caller answers requests for input.
        input: Option<bool>,
        /// File of a snapshot to begin with.
        snapshot: Option<String>,
    },
    /// Runs cells, and is answered by events and a result with its id.
    Run {
        /// What tells it apart from the other runs under way.
        id: String,
        session: Option<String>,
        /// They run in order. The first that fails is the last that runs.
        #[schemars(length(min = 1, max = limits::CELLS_MAX))]
        cells: Vec<CellJson>,
        /// Runs the cells after one that fails too.
        keep_going: Option<bool>,
        #[schemars(flatten)]
        lineage: LineageJson,
    },
    /// Stops the run with this id, which goes on to its proper end.
    Cancel { id: String },
    /// Asks for what a model is given of a run that has ended, one of the latest, and is answered by `outputs`.
    ToLlm {
        id: Option<String>,
        /// The id of the run.
        run: String,
        /// The number of the only output, unless the first page of each.
        output: Option<usize>,
        #[schemars(flatten)]
        view: ViewJson,
    },
    /// Asks for the value of a name, as it is between two steps of the session's cells, and is answered by `value`.
    Get {
        id: Option<String>,
        session: Option<String>,
        /// Whose name it is: Python's, unless this says otherwise.
        #[schemars(extend("enum" = LANGUAGES.map(Language::code)))]
        language: Option<String>,
        name: String,
        #[schemars(flatten)]
        view: ViewJson,
    },
    /// Asks where names come from that runs with a `producer` have bound, and is answered by `origins`.
    Origins {
        id: Option<String>,
        session: Option<String>,
        /// The only one, unless all.
        #[schemars(extend("enum" = LANGUAGES.map(Language::code)))]
        language: Option<String>,
        /// The only one, unless all.
        name: Option<String>,
    },
    /// Answers a `call`: with any value as `result`, or with why it failed.
    Reply {
        id: Option<String>,
        call: String,
        #[schemars(schema_with = "anything", default)]
        result: Value,
        error: Option<String>,
    },
    /// Answers an `input_request` event; null is the end of the input.
    SubmitInput {
        id: Option<String>,
        session: Option<String>,
        request_id: String,
        #[schemars(schema_with = "text_or_null")]
        value: Value,
    },
    /// Gives languages of a session fresh kernels.
    Reset {
        id: Option<String>,
        session: Option<String>,
        /// The only one, unless all.
        #[schemars(extend("enum" = LANGUAGES.map(Language::code)))]
        language: Option<String>,
    },
    /// Writes the state of a session into a file, between two steps of its cells.
    Snapshot { id: Option<String>, session: Option<String>, file: String },
    /// Takes a session back to a snapshot; its files stay as they are.
    Restore { id: Option<String>, session: Option<String>, file: String },
    /// Opens a session with the state of another one, its grants and tools, and is answered by `opened`.
    Fork {
        id: Option<String>,
        session: Option<String>,
        /// The name of the fork; made up when absent.
        new: Option<String>,
    },
    /// Lists the sessions that are open.
    Sessions { id: Option<String> },
    /// Ends a session and its runs.
    Close { id: Option<String>, session: Option<String> },
}

/// How much of an output goes into one page.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "nothing is made of it but the schema")]
pub(super) struct ViewJson {
    /// Where the output's page begins: a row of a table, a character of a text.
    from: Option<u64>,
    /// Rows of a table on a page.
    #[schemars(range(min = *PAGE_ROWS.start(), max = *PAGE_ROWS.end()))]
    rows: Option<u64>,
    /// Characters of a text, bytes of a table's rows on a page.
    #[schemars(range(min = *PAGE_CHARACTERS.start(), max = *PAGE_CHARACTERS.end()))]
    characters: Option<u64>,
    /// Characters of one value of a table.
    #[schemars(range(min = *PAGE_CHARACTERS.start(), max = *PAGE_CHARACTERS.end()))]
    value_characters: Option<u64>,
}

/// A tool of the caller.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "nothing is made of it but the schema")]
pub(super) struct ToolJson {
    name: String,
    /// What it does, for people and models.
    description: Option<String>,
    /// JSON Schema of its arguments, which are held to it before the caller is asked.
    schema: Option<Map<String, Value>>,
}

/// A member that may be absent must not be null.
fn not_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            schema.insert("type".to_owned(), only);
        }
    }
}

fn anything(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!(true)
}

fn text_or_null(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "string"}, {"type": "null"}]})
}

/// Whose lines these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Someone on this machine, who may name its files and folders.
    Trusted,
    /// Someone who came over the network: what they name lies on the server, and what they are granted is its operator's to say.
    Remote,
}

/// A line that the caller writes.
#[derive(Debug)]
pub enum Request<G> {
    /// Opens a session.
    Open(Box<Open<G>>),
    /// Runs cells.
    Run { session: Option<String>, cells: Vec<Cell>, keep_going: bool, options: RunOptions },
    /// Stops a run, which goes on to its proper end.
    Cancel,
    /// Asks for a page of one output of a run that has ended, or for the first of each.
    ToLlm { run: String, output: Option<usize>, view: View },
    /// Asks for a page of the value of a name.
    Get { session: Option<String>, language: Language, name: String, view: View },
    /// Asks where names come from: one, or all.
    Origins { session: Option<String>, languages: Vec<Language>, name: Option<String> },
    /// Answers a `call`: with any value, or with why it failed.
    Reply { call: String, result: Result<String, String> },
    /// Answers an `input_request` event; no value is the end of the input.
    SubmitInput { session: Option<String>, request_id: String, value: Option<String> },
    /// Gives languages of a session fresh kernels.
    Reset { session: Option<String>, languages: Vec<Language> },
    /// Writes the state of a session into a file.
    Snapshot { session: Option<String>, file: PathBuf },
    /// Takes a session back to a snapshot.
    Restore { session: Option<String>, file: PathBuf },
    /// Opens a session with the state of another one.
    Fork { session: Option<String>, new: Option<String> },
    /// Lists the sessions that are open.
    Sessions,
    /// Ends a session and its runs.
    Close { session: Option<String> },
}

/// Grants of a session in the form of a `cellar.toml` as JSON. The crate that opens them reads them.
pub trait Grants: Sized {
    /// Reads grants, and adds everything that is wrong with them to `problems`.
    fn from_json(at: &At<'_>, problems: &mut Problems) -> Option<Self>;

    /// Reads the JSON Schema of a tool's arguments.
    fn schema_from_json(at: &At<'_>, problems: &mut Problems) -> Option<Value>;
}

/// Options of a session that is opened.
#[derive(Debug)]
pub struct Open<G> {
    /// Its name; made up when absent.
    pub session: Option<String>,
    /// A `cellar.toml` as JSON, in the place of the one on the command line.
    pub grants: Option<G>,
    /// Folder to use as its workspace.
    pub workspace: Option<String>,
    /// Tools that the caller answers for.
    pub tools: Vec<ToolSpec>,
    /// Whether the caller answers requests for input.
    pub input: Option<bool>,
    /// File of a snapshot to begin with.
    pub snapshot: Option<PathBuf>,
}

impl<G> Default for Open<G> {
    fn default() -> Open<G> {
        Open { session: None, grants: None, workspace: None, tools: Vec::new(), input: None, snapshot: None }
    }
}

/// The types of requests, with the fields of each besides `type` and `id`.
pub(super) static REQUESTS: [(&str, &[&str]); 14] = [
    ("open", &["session", "grants", "workspace", "tools", "input", "snapshot"]),
    ("run", &["session", "cells", "keep_going", "producer", "dry_run", "seen"]),
    ("cancel", &[]),
    ("to_llm", &["run", "output", "from", "rows", "characters", "value_characters"]),
    ("get", &["session", "language", "name", "from", "rows", "characters", "value_characters"]),
    ("origins", &["session", "language", "name"]),
    ("reply", &["call", "result", "error"]),
    ("submit_input", &["session", "request_id", "value"]),
    ("reset", &["session", "language"]),
    ("snapshot", &["session", "file"]),
    ("restore", &["session", "file"]),
    ("fork", &["session", "new"]),
    ("sessions", &[]),
    ("close", &["session"]),
];

/// The types of requests.
pub fn request_types() -> Vec<&'static str> {
    REQUESTS.iter().map(|(name, _)| *name).collect()
}

/// Reads a line. The id comes back even when the rest is refused, if there is one.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn request_from_json<G: Grants>(
    bytes: &[u8],
    what: &str,
    caller: Caller,
) -> (Option<String>, Result<Request<G>, Invalid>) {
    let mut problems = Problems::default();
    let node = match json::parse(bytes) {
        Ok(node) => node,
        Err(fault) => {
            problems.add("$", fault);
            return (None, problems.finish(what, None));
        }
    };
    let at = At::root(&node, "$");
    let mut id = None;
    let request = request(&at, caller, &mut id, &mut problems);
    (id, problems.finish(what, request))
}

fn request<G: Grants>(
    at: &At<'_>,
    caller: Caller,
    id: &mut Option<String>,
    problems: &mut Problems,
) -> Option<Request<G>> {
    let types = || list(&request_types());
    let entries = at.entries(problems)?;
    *id = entries.iter().find(|(key, _)| *key == "id").and_then(|(_, at)| name(at, problems));
    let Some((_, kind)) = entries.iter().find(|(key, _)| *key == "type") else {
        problems.add("$.type", format_args!("expected one of {}, found nothing", types()));
        return None;
    };
    let text = kind.text(problems)?;
    let Some((kind, known)) = REQUESTS.iter().find(|(name, _)| *name == text) else {
        kind.expected(format_args!("one of {}", types()), problems);
        return None;
    };
    let known: Vec<&str> = ["type", "id"].into_iter().chain(known.iter().copied()).collect();
    let fields = at.fields(&known, problems)?;
    if matches!(*kind, "run" | "cancel") && id.is_none() {
        fields.required("id", "a string that names the run", problems);
    }
    let session = |problems: &mut Problems| fields.get("session").and_then(|at| name(&at, problems));
    match *kind {
        "open" => open(&fields, caller, problems).map(|open| Request::Open(Box::new(open))),
        "run" => {
            let keep_going = fields.get("keep_going").and_then(|at| at.boolean(problems)).unwrap_or_default();
            let (session, options) = (session(problems), run_options(&fields, "dry_run", problems));
            Some(Request::Run { session, cells: run_fields(&fields, problems)?, keep_going, options: options? })
        }
        "cancel" => Some(Request::Cancel),
        "to_llm" => to_llm(&fields, problems),
        "get" => {
            let language = fields.get("language").map(|at| language(&at, problems));
            let variable =
                fields.required("name", "a name of the session", problems)?.filled_text(problems)?.to_owned();
            let (session, view) = (session(problems), view(&fields, problems));
            Some(Request::Get { session, language: language.unwrap_or(Some(Language::Python))?, name: variable, view })
        }
        "origins" => {
            let languages = languages(&fields, problems);
            let variable = fields.get("name").and_then(|at| at.filled_text(problems)).map(str::to_owned);
            Some(Request::Origins { session: session(problems), languages: languages?, name: variable })
        }
        "reply" => reply(&fields, problems),
        "submit_input" => {
            let session = session(problems);
            let request_id = fields.required("request_id", "that of the event", problems)?.text(problems)?.to_owned();
            let value = fields.required("value", "a string, or null for the end of the input", problems)?;
            let value = match value.node {
                json::Node::Null => None,
                _ => Some(value.text(problems)?.to_owned()),
            };
            Some(Request::SubmitInput { session, request_id, value })
        }
        "reset" => {
            let languages = languages(&fields, problems);
            Some(Request::Reset { session: session(problems), languages: languages? })
        }
        "snapshot" | "restore" => {
            let session = session(problems);
            let file = file(&fields.required("file", FILE, problems)?, caller, problems)?;
            Some(match *kind {
                "snapshot" => Request::Snapshot { session, file },
                _ => Request::Restore { session, file },
            })
        }
        "fork" => {
            let new = fields.get("new").and_then(|at| name(&at, problems));
            Some(Request::Fork { session: session(problems), new })
        }
        "sessions" => Some(Request::Sessions),
        _ => Some(Request::Close { session: session(problems) }),
    }
}

/// The file of a snapshot. Standard streams are none: they have requests and answers on them.
fn file(at: &At<'_>, caller: Caller, problems: &mut Problems) -> Option<PathBuf> {
    let path = at.filled_text(problems)?;

    let expected = match caller {
        _ if path == "-" => FILE,
        Caller::Remote if !is_snapshot_name(path) => SNAPSHOT_NAME,
        _ => return Some(path.into()),
    };
    at.expected(expected, problems);
    None
}

/// Whether this can be the name of a snapshot that a server keeps.
pub fn is_snapshot_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=SNAPSHOT_NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
}

/// Names what someone who came over the network cannot have; whether there is nothing of it.
fn is_for_remote(fields: &Fields<'_>, problems: &mut Problems) -> bool {
    let mut is_allowed = true;
    let mut refuse = |at: &At<'_>, why: &str| {
        problems.add(&at.path, why);
        is_allowed = false;
    };
    if let Some(at) = fields.get("workspace") {
        refuse(&at, "expected nothing: no folder of the server can be named over the network");
    }
    if let Some(grants) = fields.get("grants") {
        for (key, at) in grants.entries(&mut Problems::default()).unwrap_or_default() {
            match key {
                "limits" | "environment" => {}
                "session" => {
                    for (key, at) in at.entries(&mut Problems::default()).unwrap_or_default() {
                        if !REMOTE_SESSION.contains(&key) {
                            refuse(&at, REMOTE_REFUSED);
                        }
                    }
                }
                _ => refuse(&at, REMOTE_REFUSED),
            }
        }
    }
    is_allowed
}

fn open<G: Grants>(fields: &Fields<'_>, caller: Caller, problems: &mut Problems) -> Option<Open<G>> {
    // What is refused is not read: it may name files.
    if caller == Caller::Remote && !is_for_remote(fields, problems) {
        return None;
    }
    let tools = tools::<G>(fields, problems)?;
    Some(Open {
        session: fields.get("session").and_then(|at| name(&at, problems)),
        grants: fields.get("grants").and_then(|at| G::from_json(&at, problems)),
        workspace: fields.get("workspace").and_then(|at| at.filled_text(problems)).map(str::to_owned),
        tools,
        input: fields.get("input").and_then(|at| at.boolean(problems)),
        snapshot: fields.get("snapshot").and_then(|at| file(&at, caller, problems)),
    })
}

/// The tools that a caller answers for.
pub(super) fn tools<G: Grants>(fields: &Fields<'_>, problems: &mut Problems) -> Option<Vec<ToolSpec>> {
    match fields.get("tools") {
        None => Some(Vec::new()),
        Some(At { node: json::Node::Array(items), .. }) if items.is_empty() => Some(Vec::new()),
        Some(at) => {
            let items = at.items("tool", problems)?;
            if items.len() > TOOLS_MAX {
                problems.add(&at.path, format_args!("expected at most {TOOLS_MAX} tools, found {}", items.len()));
            }
            Some(items.iter().take(TOOLS_MAX).filter_map(|at| tool::<G>(at, problems)).collect())
        }
    }
}

fn tool<G: Grants>(at: &At<'_>, problems: &mut Problems) -> Option<ToolSpec> {
    let fields = at.fields(&["name", "description", "schema"], problems)?;
    let name = fields.required("name", "the name of a tool", problems).and_then(|at| name(&at, problems));
    let description = fields.get("description").and_then(|at| at.text(problems)).unwrap_or_default().to_owned();
    let schema = fields.get("schema").and_then(|at| G::schema_from_json(&at, problems));
    Some(ToolSpec { name: name?, description, schema: schema.map(|schema| schema.to_string()) })
}

fn to_llm<G>(fields: &Fields<'_>, problems: &mut Problems) -> Option<Request<G>> {
    let run = fields.required("run", "the id of a run", problems)?.text(problems)?.to_owned();
    let output = fields.get("output").and_then(|at| at.integer(0..=u64::from(u32::MAX), problems));
    let view = view(fields, problems);
    if fields.get("from").is_some() && output.is_none() {
        problems.add("$", "expected `output` beside `from`: pages behind the first are those of one output");
    }
    Some(Request::ToLlm { run, output: output.map(size), view })
}

/// How much of an output is asked for.
fn view(fields: &Fields<'_>, problems: &mut Problems) -> View {
    let mut number = |field, range| fields.get(field).and_then(|at| at.integer(range, problems));
    let usual = View::default();
    View {
        from: number("from", 0..=u64::from(u32::MAX)).unwrap_or_default(),
        rows: number("rows", PAGE_ROWS).unwrap_or(usual.rows),
        characters: number("characters", PAGE_CHARACTERS).map_or(usual.characters, size),
        value_characters: number("value_characters", PAGE_CHARACTERS).map_or(usual.value_characters, size),
        ..usual
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn reply<G>(fields: &Fields<'_>, problems: &mut Problems) -> Option<Request<G>> {
    let call = fields.required("call", "that of the call", problems)?.text(problems)?.to_owned();
    Some(Request::Reply { call, result: reply_result(fields, problems)? })
}

/// What a tool gave, as JSON, or why it failed.
pub(super) fn reply_result(fields: &Fields<'_>, problems: &mut Problems) -> Option<Result<String, String>> {
    match (fields.get("result"), fields.get("error")) {
        (Some(result), None) => Some(Ok(Value::from(result.node).to_string())),
        (None, Some(error)) => Some(Err(error.text(problems)?.to_owned())),
        _ => {
            problems.add("$", "expected either `result`, or `error` with a message");
            None
        }
    }
}

fn name(at: &At<'_>, problems: &mut Problems) -> Option<String> {
    let text = at.filled_text(problems)?;
    if text.len() > ID_BYTES_MAX {
        problems.add(&at.path, format_args!("expected at most {ID_BYTES_MAX} bytes, found {}", text.len()));
        return None;
    }
    Some(text.to_owned())
}
