//! Bodies of requests, member by member, and the schemas of bodies and answers, which an API description names.

#![expect(dead_code, reason = "answers are made where they are sent: nothing is made of these but schemas")]

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    CallJson, CommandJson, CompletionsJson, EXPIRES_AT_MAX, FileJson, IDLE_AFTER_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX,
    RunJson, ServedSessionJson, SnapshotJson, TEXT_BYTES_MAX, VariableJson,
};
use crate::{
    DatasetJson, EventJson, OriginsJson, OutputJson, ProblemJson, ResultJson, ResultLine, StateDiffJson, StatesJson,
    StubsJson, WaitingCallsJson,
    approval::DECISION,
    lineage::{self, PRODUCER, SEEN},
    object::{Kind, Member, Object, Text, member},
    request::{CELL_CODE, CELL_LANGUAGE, CELL_TIMEOUT, CELL_TITLE, CELLS, CELLS_OR_ONE},
    stdio::INPUT_VALUE,
};

const NAME: Kind = Kind::Text(Text::ANY.at_most(NAME_BYTES_MAX));
const CONTENT: Text = Text::ANY.at_most(TEXT_BYTES_MAX);
const TOOLS: Member = member("tools", Kind::Tools, "Tools that the caller answers for.");
const IDLE_AFTER: Member = member(
    "idleAfter",
    Kind::Integer { least: 1, most: IDLE_AFTER_MAX, format: "uint64" },
    "Seconds without use after which it is put to sleep.",
);
const EXPIRES_AT: Kind = Kind::IntegerOrNull { least: 1, most: EXPIRES_AT_MAX, format: "uint64" };
const KEEP_GOING: Member = member("keepGoing", Kind::Flag, "Later cells run although one failed.");
const ON_DISCONNECT: Member = member(
    "onDisconnect",
    Kind::Word(&["cancel", "continue"]),
    "Whether the run is cancelled when its reader has gone away, or continues.",
);
const DRY_RUN: Member = member("dryRun", Kind::Flag, lineage::DRY_RUN);
const LANGUAGE: Member = member("language", Kind::Language, "The only language, unless all.");

const TEMPLATE: Member = member("template", NAME, "A template of the operator, whose grants it has.");
const GUEST: Member = member(
    "guest",
    Kind::Word(&["python", "python-data", "javascript"]),
    "The guest that runs its language; for Python the one with NumPy and pandas unless given, where it is installed.",
);
const ENVIRONMENT: Member = member("environment", Kind::Texts, "Environment variables that its cells see.");
const LIMITS: Member = member(
    "limits",
    Kind::Limits,
    "Limits by their keys in a `cellar.toml`, none higher than that of the tenant or of the template.",
);

pub(super) static NEW_SESSION: Object = Object::new(
    "NewSession",
    "A session to open.",
    &[
        member("session", NAME, "Its name; made up when absent."),
        member("input", Kind::Flag, "Whether requests for input are answered."),
        member("snapshot", NAME, "The id of the snapshot that it begins with."),
        TOOLS,
        TEMPLATE,
        GUEST,
        ENVIRONMENT,
        LIMITS,
        IDLE_AFTER,
        member(
            "expiresAt",
            EXPIRES_AT,
            "When it ends and is removed, in seconds since the Unix epoch; never unless given.",
        ),
    ],
);
pub(super) static SESSION_CHANGE: Object = Object::new(
    "SessionChange",
    "When a session is put to sleep, and when it ends. What is absent stays as it is.",
    &[IDLE_AFTER, member("expiresAt", EXPIRES_AT, "Seconds since the Unix epoch; null for never.")],
);
pub(super) static NEW_RUN: Object =
    Object::new("NewRun", "Cells to run in a session.", &[CELLS, KEEP_GOING, ON_DISCONNECT, PRODUCER, DRY_RUN, SEEN]);
pub(super) static NEW_COMMAND: Object = Object::new(
    "NewCommand",
    "A command of the sandbox's shell.",
    &[
        member("command", Kind::Text(CONTENT.filled()), "A line, or a script, as after `bash -c`.")
            .required("a command"),
        member("cwd", Kind::Text(Text::ANY.at_most(PATH_BYTES_MAX)), "Its folder; the workspace unless given."),
        member("environment", Kind::Texts, "Environment variables, beside those of the session."),
        member("timeout", Kind::Timeout, "Seconds that it may take; as many as a cell at most unless given."),
        member("stdin", Kind::Text(CONTENT), "Its standard input, which is empty unless given."),
        ON_DISCONNECT,
    ],
);
pub(super) static NEW_EVAL: Object = Object::new(
    "NewEval",
    "Cells to run in a session of their own: `cells`, or one by its `language` and `code`.",
    &[
        CELLS_OR_ONE,
        CELL_LANGUAGE,
        CELL_CODE,
        CELL_TITLE,
        CELL_TIMEOUT,
        KEEP_GOING,
        ON_DISCONNECT,
        PRODUCER,
        DRY_RUN,
        SEEN,
        TOOLS,
        TEMPLATE,
        GUEST,
        ENVIRONMENT,
        LIMITS,
    ],
);
pub(super) static INPUT: Object = Object::new(
    "Input",
    "The answer to a request for input.",
    &[
        member("request_id", NAME, "The request, as its event names it.").required("that of the event"),
        member("value", Kind::TextOrNull(CONTENT), "A line, or null for the end of the input.").required(INPUT_VALUE),
    ],
);
pub(super) static REPLY: Object = Object::new(
    "Reply",
    "The answer to a call of a tool: either what it gave, or why it failed.",
    &[member("result", Kind::Any, "Any JSON value."), member("error", Kind::Text(Text::ANY), "Why it failed.")],
);
pub(super) static RESET: Object = Object::new("Reset", "What of a session is reset.", &[LANGUAGE]);
pub(super) static FORK: Object =
    Object::new("Fork", "A fork to make.", &[member("session", NAME, "Its name; made up when absent.")]);
pub(super) static STATE_CHANGE: Object = Object::new(
    "StateChange",
    "The name of a state, and whether it is kept whatever comes after. What is absent stays as it is.",
    &[
        member("name", Kind::TextOrNull(Text::ANY.at_most(NAME_BYTES_MAX)), "Its name; null for none."),
        member("pinned", Kind::Flag, "Whether it is kept until it is unpinned or forgotten."),
    ],
);
pub(super) static REWIND: Object = Object::new(
    "Rewind",
    "A snapshot to take a session back to.",
    &[member("snapshot", NAME, "The id of the snapshot.").required("the id of a snapshot")],
);
pub(super) static LOOK: Object = Object::new(
    "Look",
    "A place in code.",
    &[
        member("language", Kind::Language, "").required("\"py\" or \"js\""),
        member("code", Kind::Text(CONTENT), "").required("a string"),
        member(
            "cursor",
            Kind::Integer { least: 0, most: u32::MAX as u64, format: "uint32" },
            "In characters; the end unless given.",
        ),
    ],
);

/// A page of sessions.
#[derive(JsonSchema)]
struct Sessions {
    sessions: Vec<ServedSessionJson>,
    /// Value of `after` for the next page; null on the last page.
    next: Option<String>,
}

/// A page of snapshots.
#[derive(JsonSchema)]
struct Snapshots {
    snapshots: Vec<SnapshotJson>,
    /// Value of `after` for the next page; null on the last page.
    next: Option<String>,
}

/// A page of datasets, each with its latest version.
#[derive(JsonSchema)]
struct Datasets {
    datasets: Vec<DatasetJson>,
    /// Value of `after` for the next page; null on the last page.
    next: Option<String>,
}

/// The versions of a dataset, the oldest first.
#[derive(JsonSchema)]
struct DatasetVersions {
    versions: Vec<DatasetJson>,
}

/// Outputs of a run, for a model.
#[derive(JsonSchema)]
struct RunOutputs {
    outputs: Vec<OutputJson>,
}

/// A line of the stream of a run: an event, or what is no part of the run. The last is its result, or why there is none.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "nobody makes one: it has a schema")]
enum StreamLine {
    /// An event.
    Event(EventJson),
    /// The last line.
    Result(ResultLine),
    /// A line besides.
    Besides(Besides),
}

/// A line that is no part of a run.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Besides {
    /// The only line of a run that was refused.
    Error { error: ProblemJson },
    /// A cell calls a tool that its caller answers for.
    Call { call: String, session: String, cell: u32, tool: String, arguments: Value },
    /// Nobody waits for the answer to a call any more.
    CallCancelled { call: String },
    /// Events that are not kept any more, from the first number to before the second.
    Gap { from: u64, to: u64 },
    /// The stream is still there.
    Heartbeat,
}

/// Calls that wait for an answer.
#[derive(JsonSchema)]
struct Calls {
    calls: Vec<CallJson>,
}

/// The names of a session.
#[derive(JsonSchema)]
struct Variables {
    variables: Vec<VariableJson>,
}

/// A value, or help, as what can be shown of it by MIME type; null when there is nothing.
#[derive(JsonSchema)]
struct Bundle {
    data: Option<Map<String, Value>>,
}

/// What is in a folder.
#[derive(JsonSchema)]
struct Folder {
    entries: Vec<FileJson>,
}

/// The schemas that an API description of the server refers to as `#/components/schemas/NAME`.
pub fn server_schemas() -> Map<String, Value> {
    let settings = |for_write: bool| {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        if for_write { settings.for_serialize() } else { settings.for_deserialize() }
    };
    let mut read: SchemaGenerator = settings(false).into_generator();
    let bodies = [
        &NEW_SESSION,
        &SESSION_CHANGE,
        &NEW_RUN,
        &NEW_COMMAND,
        &NEW_EVAL,
        &INPUT,
        &REPLY,
        &RESET,
        &FORK,
        &STATE_CHANGE,
        &REWIND,
        &LOOK,
        &DECISION,
    ];
    for body in bodies {
        let schema = body.schema(None, &mut read).into();
        read.definitions_mut().insert(body.name.to_owned(), schema);
    }
    let mut written: SchemaGenerator = settings(true).into_generator();
    written.subschema_for::<Sessions>();
    written.subschema_for::<Snapshots>();
    written.subschema_for::<StatesJson>();
    written.subschema_for::<StateDiffJson>();
    written.subschema_for::<Datasets>();
    written.subschema_for::<DatasetVersions>();
    written.subschema_for::<Calls>();
    written.subschema_for::<WaitingCallsJson>();
    written.subschema_for::<Variables>();
    written.subschema_for::<OriginsJson>();
    written.subschema_for::<StubsJson>();
    written.subschema_for::<Bundle>();
    written.subschema_for::<Folder>();
    written.subschema_for::<CompletionsJson>();
    written.subschema_for::<RunJson<ResultJson>>();
    written.subschema_for::<ResultJson>();
    written.subschema_for::<CommandJson>();
    written.subschema_for::<StreamLine>();
    written.subschema_for::<RunOutputs>();
    written.subschema_for::<ProblemJson>();
    let mut schemas = written.take_definitions(true);
    // Cells are read and written: what may be left out of one that is read is always there in one that is written.
    schemas.extend(read.take_definitions(true));
    let renamed = schemas.into_iter().map(|(name, schema)| (short(&name).to_owned(), schema));
    let mut schemas: Map<String, Value> = renamed.collect();
    schemas.values_mut().for_each(rename);
    schemas
}

/// The name of a type without what tells readers of code that it is a document.
fn short(name: &str) -> &str {
    match name {
        "RunJson_for_ResultJson" => "Run",
        "ServedSessionJson" => "Session",
        // Beside `Result`, generators of clients would make two types of one name.
        "result" => "ResultLine",
        name => name.strip_suffix("Json").unwrap_or(name),
    }
}

/// References by short names.
fn rename(schema: &mut Value) {
    match schema {
        Value::Object(members) => members.iter_mut().for_each(|(key, value)| match value {
            Value::String(place) if key == "$ref" => {
                if let Some(name) = place.strip_prefix("#/components/schemas/") {
                    *place = format!("#/components/schemas/{}", short(name));
                }
            }
            value => rename(value),
        }),
        Value::Array(items) => items.iter_mut().for_each(rename),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_to_a_schema() {
        fn references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
            match schema {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str));
                    members.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let schemas = server_schemas();
        let all = Value::Object(schemas.clone());
        let mut found = Vec::new();
        references(&all, &mut found);
        assert!(found.len() > 20);
        for place in found {
            let name = place.strip_prefix("#/components/schemas/").expect("a schema of the description");
            assert!(schemas.contains_key(name), "{place}");
        }
        for name in ["Run", "Session", "NewSession", "Result", "Problem", "Tool", "Event"] {
            assert!(schemas.contains_key(name), "{name}: {:?}", schemas.keys().collect::<Vec<_>>());
        }
    }
}
