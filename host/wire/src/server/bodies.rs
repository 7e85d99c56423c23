//! What the bodies of requests look like, for schemas alone: they are read by hand, for the sake of the messages. An API
//! description names them as it names what is answered.

#![expect(dead_code, reason = "nothing is made of these but schemas")]

use cellar_core::{
    limits,
    origin::{PRODUCER_BYTES_MAX, SEEN_MAX},
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    CallJson, CompletionsJson, EXPIRES_AT_MAX, FileJson, IDLE_AFTER_MAX, RunJson, ServedSessionJson, SnapshotJson,
    VariableJson,
};
use crate::{
    EventJson, OriginsJson, OutputJson, ProblemJson, ResultJson, ResultLine, request::CellJson, stdio::ToolJson,
};

/// A session to open.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct NewSession {
    /// Its name; made up when absent.
    #[schemars(default, extend("type" = "string"))]
    session: Option<String>,
    /// Whether requests for input are answered.
    #[schemars(default)]
    input: bool,
    /// The id of the snapshot that it begins with.
    #[schemars(default, extend("type" = "string"))]
    snapshot: Option<String>,
    /// Tools that the caller answers for.
    #[schemars(default)]
    tools: Vec<ToolJson>,
    /// Seconds without use after which it is put to sleep.
    #[schemars(default, range(min = 1, max = IDLE_AFTER_MAX), extend("type" = "integer"))]
    idle_after: Option<u64>,
    /// When it ends and is removed, in seconds since the Unix epoch; never unless given.
    #[schemars(default, range(min = 1, max = EXPIRES_AT_MAX))]
    expires_at: Option<u64>,
}

/// When a session is put to sleep, and when it ends. What is absent stays as it is.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct SessionChange {
    /// Seconds without use after which it is put to sleep.
    #[schemars(default, range(min = 1, max = IDLE_AFTER_MAX), extend("type" = "integer"))]
    idle_after: Option<u64>,
    /// Seconds since the Unix epoch; null for never.
    #[schemars(default, range(min = 1, max = EXPIRES_AT_MAX))]
    expires_at: Option<u64>,
}

/// Cells to run in a session.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct NewRun {
    /// They run in order. The first that fails is the last that runs.
    #[schemars(length(min = 1, max = limits::CELLS_MAX))]
    cells: Vec<CellJson>,
    /// Later cells run although one failed.
    #[schemars(default)]
    keep_going: bool,
    /// Whether the run is cancelled when its reader has gone away, or continues.
    #[schemars(default, extend("enum" = ["cancel", "continue"]), extend("type" = "string"))]
    on_disconnect: Option<String>,
    /// Who makes the run: the path of a notebook, the name of an agent. The names that its cells bind get an origin.
    #[schemars(default, length(min = 1, max = PRODUCER_BYTES_MAX), extend("type" = "string"))]
    producer: Option<String>,
    /// No name gets an origin although there is a producer.
    #[schemars(default)]
    dry_run: bool,
    /// What the caller has seen, as kinds and names: cells load no other dataset.
    #[schemars(default, length(max = SEEN_MAX), extend("type" = "array"))]
    seen: Option<Vec<(String, String)>>,
}

/// Cells to run in a session of their own.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct NewEval {
    /// They run in order. The first that fails is the last that runs.
    #[schemars(length(min = 1, max = limits::CELLS_MAX))]
    cells: Vec<CellJson>,
    /// Later cells run although one failed.
    #[schemars(default)]
    keep_going: bool,
    /// Whether the run is cancelled when its reader has gone away, or continues.
    #[schemars(default, extend("enum" = ["cancel", "continue"]), extend("type" = "string"))]
    on_disconnect: Option<String>,
    /// Who makes the run: the path of a notebook, the name of an agent. The names that its cells bind get an origin.
    #[schemars(default, length(min = 1, max = PRODUCER_BYTES_MAX), extend("type" = "string"))]
    producer: Option<String>,
    /// No name gets an origin although there is a producer.
    #[schemars(default)]
    dry_run: bool,
    /// What the caller has seen, as kinds and names: cells load no other dataset.
    #[schemars(default, length(max = SEEN_MAX), extend("type" = "array"))]
    seen: Option<Vec<(String, String)>>,
    /// Tools that the caller answers for.
    #[schemars(default)]
    tools: Vec<ToolJson>,
}

/// The answer to a request for input.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Input {
    /// The request, as its event names it.
    request_id: String,
    /// A line, or null for the end of the input.
    #[schemars(required)]
    value: Option<String>,
}

/// The answer to a call of a tool: either what it gave, or why it failed.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Reply {
    /// Any JSON value.
    #[schemars(default)]
    result: Value,
    /// Why it failed.
    #[schemars(default, extend("type" = "string"))]
    error: Option<String>,
}

/// What of a session is reset.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Reset {
    /// The only language, unless all.
    #[schemars(default, extend("enum" = ["py", "js"]), extend("type" = "string"))]
    language: Option<String>,
}

/// A fork to make.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Fork {
    /// Its name; made up when absent.
    #[schemars(default, extend("type" = "string"))]
    session: Option<String>,
}

/// A snapshot to take a session back to.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Rewind {
    /// The id of the snapshot.
    snapshot: String,
}

/// A place in code.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Look {
    #[schemars(extend("enum" = ["py", "js"]))]
    language: String,
    code: String,
    /// In characters; the end unless given.
    #[schemars(default, extend("type" = "integer"))]
    cursor: Option<u32>,
}

/// A page of sessions.
#[derive(JsonSchema)]
struct Sessions {
    sessions: Vec<ServedSessionJson>,
    /// What to give as `after` for the next page; null on the last.
    next: Option<String>,
}

/// A page of snapshots.
#[derive(JsonSchema)]
struct Snapshots {
    snapshots: Vec<SnapshotJson>,
    /// What to give as `after` for the next page; null on the last.
    next: Option<String>,
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
    read.subschema_for::<NewSession>();
    read.subschema_for::<SessionChange>();
    read.subschema_for::<NewRun>();
    read.subschema_for::<NewEval>();
    read.subschema_for::<Input>();
    read.subschema_for::<Reply>();
    read.subschema_for::<Reset>();
    read.subschema_for::<Fork>();
    read.subschema_for::<Rewind>();
    read.subschema_for::<Look>();
    let mut written: SchemaGenerator = settings(true).into_generator();
    written.subschema_for::<Sessions>();
    written.subschema_for::<Snapshots>();
    written.subschema_for::<Calls>();
    written.subschema_for::<Variables>();
    written.subschema_for::<OriginsJson>();
    written.subschema_for::<Bundle>();
    written.subschema_for::<Folder>();
    written.subschema_for::<CompletionsJson>();
    written.subschema_for::<RunJson<ResultJson>>();
    written.subschema_for::<ResultJson>();
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
