//! Protocol of `cellar stdio`: one JSON object a line, told apart by `type`.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::{borrow::Cow, ops::RangeInclusive, path::PathBuf};

use cellar_core::{
    cell::{Cell, Language},
    run::RunOptions,
    text::list,
    tool::ToolSpec,
};
use cellar_results::result::View;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use super::{
    EventJson, OriginsJson, OutputJson, PageJson, Refusal, ResultJson, StatesJson, StreamJson, StubsJson,
    request::{CELLS, cells, languages},
};
use crate::{
    check::{At, Invalid, Problems},
    json,
    lineage::{DRY_RUN, PRODUCER, SEEN, run_options},
    object::{Kind, Member, Members, Object, Text, described, member},
};

/// Bytes of an id or a name that the caller chooses.
const ID_BYTES_MAX: usize = 256;
/// Expected value where a file is named.
const FILE: &str = "the path of a file";
/// Expected value where a snapshot of a server is named.
const SNAPSHOT_NAME: &str = "the name of a snapshot: letters, digits, `-`, `_` and `.`";
/// Bytes of such a name.
const SNAPSHOT_NAME_BYTES_MAX: usize = 64;
/// Keys under `[session]` that remote callers may set.
const REMOTE_SESSION: [&str; 5] = ["input_timeout", "guests", "kernel_mode", "output_policy", "charts"];
/// Message about any other key of a remote caller.
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
    Opened {
        id: Option<String>,
        session: String,
        /// Its name in paths of the server, where that is another one.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// The sessions that are open, by their names.
    Sessions { id: Option<String>, sessions: Vec<OpenSessionJson> },
    /// The states of a session that are kept.
    States {
        id: Option<String>,
        #[serde(flatten)]
        states: StatesJson,
    },
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
    /// What a model is told that cells may call.
    Stubs {
        id: Option<String>,
        #[serde(flatten)]
        stubs: StubsJson,
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

/// Expected answer to a request for input.
pub(crate) const INPUT_VALUE: &str = "a string, or null for the end of the input";

const ID_TEXT: Text = Text::ANY.at_most(ID_BYTES_MAX).filled();
const NAME: Kind = Kind::Text(ID_TEXT);
/// Expected id of a run.
const RUN_ID: &str = "a string that names the run";
const FILLED: Kind = Kind::Text(Text::ANY.filled());
const ID: Member = member("id", NAME, "");
const SESSION: Member = member("session", NAME, "");
const TOOLS: Member = member("tools", Kind::Tools, "Tools that the caller answers for.");
const LANGUAGE: Member = member("language", Kind::Language, "The only one, unless all.");
const FILE_MEMBER: Member = member("file", FILLED, "").required(FILE);
const FROM: Member = member(
    "from",
    Kind::Integer { least: 0, most: u32::MAX as u64, format: "uint64" },
    "Where the output's page begins: a row of a table, a character of a text.",
);
const ROWS: Member = member("rows", range(&PAGE_ROWS), "Rows of a table on a page.");
const CHARACTERS: Member =
    member("characters", range(&PAGE_CHARACTERS), "Characters of a text, bytes of a table's rows on a page.");
const VALUE_CHARACTERS: Member =
    member("value_characters", range(&PAGE_CHARACTERS), "Characters of one value of a table.");

const fn range(range: &RangeInclusive<u64>) -> Kind {
    Kind::Integer { least: *range.start(), most: *range.end(), format: "uint64" }
}

/// Lines that callers write, by their types.
static REQUESTS: [Object; 17] = [
    Object::new(
        "open",
        "Opens a session, and is answered by `opened`.",
        &[
            member("id", NAME, "What the answer is to carry."),
            member("session", NAME, "Its name; made up when absent."),
            member("grants", Kind::Entries, "A `cellar.toml` as JSON, in the place of the one on the command line."),
            member("workspace", FILLED, "Folder to use as its workspace."),
            TOOLS,
            member("input", Kind::Boolean, "Whether the caller answers requests for input."),
            member("snapshot", FILLED, "File of a snapshot to begin with."),
        ],
    ),
    Object::new(
        "run",
        "Runs cells, and is answered by events and a result with its id.",
        &[
            member("id", NAME, "What tells it apart from the other runs under way.").required(RUN_ID),
            SESSION,
            CELLS,
            member("keep_going", Kind::Boolean, "Runs the cells after one that fails too."),
            PRODUCER,
            member("dry_run", Kind::Boolean, DRY_RUN),
            SEEN,
        ],
    ),
    Object::new("cancel", "Stops the run with this id, which goes on to its proper end.", &[ID.required(RUN_ID)]),
    Object::new(
        "to_llm",
        "Asks for what a model is given of a run that has ended, one of the latest, and is answered by `outputs`.",
        &[
            ID,
            member("run", Kind::Text(Text::ANY), "The id of the run.").required("the id of a run"),
            member(
                "output",
                Kind::Integer { least: 0, most: u32::MAX as u64, format: "uint" },
                "The number of the only output, unless the first page of each.",
            ),
            FROM,
            ROWS,
            CHARACTERS,
            VALUE_CHARACTERS,
        ],
    ),
    Object::new(
        "get",
        "Asks for the value of a name, as it is between two steps of the session's cells, and is answered by `value`.",
        &[
            ID,
            SESSION,
            member("language", Kind::Language, "Whose name it is: Python's, unless this says otherwise."),
            member("name", FILLED, "").required("a name of the session"),
            FROM,
            ROWS,
            CHARACTERS,
            VALUE_CHARACTERS,
        ],
    ),
    Object::new(
        "origins",
        "Asks where names come from that runs with a `producer` have bound, and is answered by `origins`.",
        &[ID, SESSION, LANGUAGE, member("name", FILLED, "The only one, unless all.")],
    ),
    Object::new(
        "stubs",
        "Asks for the text that tells a model what cells may call, and is answered by `stubs`.",
        &[
            ID,
            SESSION,
            member("language", Kind::Language, "Whose signatures they are: Python's, unless this says otherwise."),
            member("all", Kind::Boolean, "All of them, however many they are."),
        ],
    ),
    Object::new(
        "reply",
        "Answers a `call`: with any value as `result`, or with why it failed.",
        &[
            ID,
            member("call", Kind::Text(Text::ANY), "").required("that of the call"),
            member("result", Kind::Any, ""),
            member("error", Kind::Text(Text::ANY), ""),
        ],
    ),
    Object::new(
        "submit_input",
        "Answers an `input_request` event; null is the end of the input.",
        &[
            ID,
            SESSION,
            member("request_id", Kind::Text(Text::ANY), "").required("that of the event"),
            member("value", Kind::TextOrNull(Text::ANY), "").required(INPUT_VALUE),
        ],
    ),
    Object::new("reset", "Gives languages of a session fresh kernels.", &[ID, SESSION, LANGUAGE]),
    Object::new(
        "snapshot",
        "Writes the state of a session into a file, between two steps of its cells.",
        &[ID, SESSION, FILE_MEMBER],
    ),
    Object::new(
        "restore",
        "Takes a session back to a snapshot; its files stay as they are.",
        &[ID, SESSION, FILE_MEMBER],
    ),
    Object::new(
        "fork",
        "Opens a session with the state of another one, its grants and tools, and is answered by `opened`.",
        &[
            ID,
            SESSION,
            member("new", NAME, "The name of the fork; made up when absent."),
            member(
                "state",
                NAME,
                "The state that it begins with, by number or name, with the files of then; the present one unless given.",
            ),
        ],
    ),
    Object::new(
        "states",
        "Asks for the states of a session that are kept, each the end of a cell, and is answered by `states`.",
        &[ID, SESSION],
    ),
    Object::new(
        "back",
        "Takes a session back to a state, with its files.",
        &[
            ID,
            SESSION,
            member("state", NAME, "Its number or its name; `~1` is one back.")
                .required("the number or the name of a state"),
        ],
    ),
    Object::new("sessions", "Lists the sessions that are open.", &[ID]),
    Object::new("close", "Ends a session and its runs.", &[ID, SESSION]),
];

/// Tools of the caller.
static TOOL: Object = Object::new(
    "ToolJson",
    "A tool of the caller.",
    &[
        member("name", NAME, "").required("the name of a tool"),
        member("description", Kind::Text(Text::ANY), "What it does, for people and models."),
        member(
            "schema",
            Kind::Entries,
            "JSON Schema of its arguments, which are held to it before the caller is asked.",
        ),
    ],
);

/// A tool of the caller, as it is described.
pub(crate) struct ToolJson;

described!(ToolJson: TOOL);

/// A line that the caller writes, as it is described.
pub(super) struct RequestJson;

impl JsonSchema for RequestJson {
    fn schema_name() -> Cow<'static, str> {
        "RequestJson".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds: Vec<Value> = REQUESTS.iter().map(|kind| kind.schema(Some("type"), generator).into()).collect();
        json_schema!({"oneOf": kinds, "description": "A line that the caller writes."})
    }
}

/// Trust in the caller that wrote the lines.
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
    /// Asks for the text that tells a model what cells may call.
    Stubs { session: Option<String>, language: Language, all: bool },
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
    /// Opens a session with the state of another one: the present one, or one that is kept.
    Fork { session: Option<String>, new: Option<String>, state: Option<String> },
    /// Asks for the states of a session that are kept.
    States { session: Option<String> },
    /// Takes a session back to a state.
    Back { session: Option<String>, state: String },
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
    /// True if the caller answers requests for input; `None` if it does not say.
    pub input: Option<bool>,
    /// File of a snapshot to begin with.
    pub snapshot: Option<PathBuf>,
}

impl<G> Default for Open<G> {
    fn default() -> Open<G> {
        Open { session: None, grants: None, workspace: None, tools: Vec::new(), input: None, snapshot: None }
    }
}

/// The types of requests.
pub fn request_types() -> Vec<&'static str> {
    REQUESTS.iter().map(|kind| kind.name).collect()
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
    *id = entries.iter().find(|(key, _)| *key == "id").and_then(|(_, at)| ID_TEXT.read(at, problems));
    let Some((_, kind)) = entries.iter().find(|(key, _)| *key == "type") else {
        problems.add("$.type", format_args!("expected one of {}, found nothing", types()));
        return None;
    };
    let text = kind.text(problems)?;
    let Some(kind) = REQUESTS.iter().find(|kind| kind.name == text) else {
        kind.expected(format_args!("one of {}", types()), problems);
        return None;
    };
    let members = kind.read(at, Some("type"), problems)?;
    if id.is_none() {
        members.get("id", problems);
    }
    let session = |problems: &mut Problems| members.text("session", problems);
    match kind.name {
        "open" => open(&members, caller, problems).map(|open| Request::Open(Box::new(open))),
        "run" => {
            let keep_going = members.boolean("keep_going", problems).unwrap_or_default();
            let (session, options) = (session(problems), run_options(&members, "dry_run", problems));
            let cells = cells(&members.get("cells", problems)?, problems)?;
            Some(Request::Run { session, cells, keep_going, options: options? })
        }
        "cancel" => Some(Request::Cancel),
        "to_llm" => to_llm(&members, problems),
        "get" => {
            let language = members.language("language", problems).unwrap_or(Language::Python);
            let name = members.text("name", problems)?;
            let (session, view) = (session(problems), view(&members, problems));
            Some(Request::Get { session, language, name, view })
        }
        "origins" => {
            let languages = languages(members.get("language", problems).as_ref(), problems);
            let name = members.text("name", problems);
            Some(Request::Origins { session: session(problems), languages: languages?, name })
        }
        "stubs" => {
            let language = members.language("language", problems).unwrap_or(Language::Python);
            let all = members.boolean("all", problems).unwrap_or_default();
            Some(Request::Stubs { session: session(problems), language, all })
        }
        "reply" => {
            let call = members.text("call", problems)?;
            Some(Request::Reply { call, result: reply_result(&members, problems)? })
        }
        "submit_input" => {
            let session = session(problems);
            let request_id = members.text("request_id", problems)?;
            Some(Request::SubmitInput { session, request_id, value: members.text("value", problems) })
        }
        "reset" => {
            let languages = languages(members.get("language", problems).as_ref(), problems);
            Some(Request::Reset { session: session(problems), languages: languages? })
        }
        "snapshot" | "restore" => {
            let session = session(problems);
            let file = file(&members.get("file", problems)?, caller, problems)?;
            Some(match kind.name {
                "snapshot" => Request::Snapshot { session, file },
                _ => Request::Restore { session, file },
            })
        }
        "fork" => {
            let (new, state) = (members.text("new", problems), members.text("state", problems));
            Some(Request::Fork { session: session(problems), new, state })
        }
        "states" => Some(Request::States { session: session(problems) }),
        "back" => {
            let session = session(problems);
            Some(Request::Back { session, state: members.text("state", problems)? })
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

/// Returns true for a valid name of a snapshot that a server keeps.
pub fn is_snapshot_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=SNAPSHOT_NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
}

/// Names what someone who came over the network cannot have; whether there is nothing of it.
fn is_for_remote(members: &Members<'_>, problems: &mut Problems) -> bool {
    let mut is_allowed = true;
    let mut refuse = |at: &At<'_>, why: &str| {
        problems.add(&at.path, why);
        is_allowed = false;
    };
    if let Some(at) = members.get("workspace", &mut Problems::default()) {
        refuse(&at, "expected nothing: no folder of the server can be named over the network");
    }
    if let Some(grants) = members.get("grants", &mut Problems::default()) {
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

fn open<G: Grants>(members: &Members<'_>, caller: Caller, problems: &mut Problems) -> Option<Open<G>> {
    // What is refused is not read: it may name files.
    if caller == Caller::Remote && !is_for_remote(members, problems) {
        return None;
    }
    let tools = tools::<G>(members, problems)?;
    Some(Open {
        session: members.text("session", problems),
        grants: members.get("grants", problems).and_then(|at| G::from_json(&at, problems)),
        workspace: members.text("workspace", problems),
        tools,
        input: members.boolean("input", problems),
        snapshot: members.get("snapshot", problems).and_then(|at| file(&at, caller, problems)),
    })
}

/// The tools that a caller answers for.
pub(super) fn tools<G: Grants>(members: &Members<'_>, problems: &mut Problems) -> Option<Vec<ToolSpec>> {
    match members.get("tools", problems) {
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
    let members = TOOL.read(at, None, problems)?;
    let name = members.text("name", problems);
    let description = members.text("description", problems).unwrap_or_default();
    let schema = members.get("schema", problems).and_then(|at| G::schema_from_json(&at, problems));
    Some(ToolSpec { name: name?, description, schema: schema.map(|schema| schema.to_string()) })
}

fn to_llm<G>(members: &Members<'_>, problems: &mut Problems) -> Option<Request<G>> {
    let run = members.text("run", problems)?;
    let output = members.integer("output", problems);
    let view = view(members, problems);
    if members.get("from", problems).is_some() && output.is_none() {
        problems.add("$", "expected `output` beside `from`: pages behind the first are those of one output");
    }
    Some(Request::ToLlm { run, output: output.map(size), view })
}

/// Reads the limits of a page of output that a request asks for; the default for those it does not give.
fn view(members: &Members<'_>, problems: &mut Problems) -> View {
    let mut number = |key| members.integer(key, problems);
    let usual = View::default();
    View {
        from: number("from").unwrap_or_default(),
        rows: number("rows").unwrap_or(usual.rows),
        characters: number("characters").map_or(usual.characters, size),
        value_characters: number("value_characters").map_or(usual.value_characters, size),
        ..usual
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Reads the result of a tool, as JSON, or the message of its error.
pub(super) fn reply_result(members: &Members<'_>, problems: &mut Problems) -> Option<Result<String, String>> {
    match (members.get("result", problems), members.get("error", problems)) {
        (Some(result), None) => Some(Ok(Value::from(result.node).to_string())),
        (None, Some(_)) => members.text("error", problems).map(Err),
        _ => {
            problems.add("$", "expected either `result`, or `error` with a message");
            None
        }
    }
}
