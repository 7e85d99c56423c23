//! Events as JSON, both ways: one object each, told apart by `type`, numbered by `seq`.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_core::{
    cell::{Cell, CellId, Language},
    event::{Bridge, Event, EventKind, Fetch, KeptText, Scalar},
    mime::{MimeBundle, MimeData, is_json},
    origin::Origin,
    outcome::{Failure, FailureCode, FailureKind, Outcome, Usage},
};
use cellar_results::artifacts::ARTIFACT_SCHEME;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};

mod fetch;
mod form;
mod origin;

use crate::request::Seconds;
use form::As;

pub(crate) use fetch::FetchJson;
pub use origin::{DatasetJson, OriginJson, OriginsJson};

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventJson {
    seq: u64,
    #[serde(flatten, with = "KindJson")]
    kind: EventKind,
}

// The form of [`EventKind`] in JSON: the same fields, by other names or in another form where an attribute says so.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KindJson")]
#[serde(remote = "EventKind", tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum KindJson {
    RunStarted {
        session: String,
        #[serde(with = "As::<Vec<CellJson>>")]
        cells: Vec<Cell>,
    },
    CellStarted {
        index: usize,
        #[schemars(with = "u32")]
        cell: CellId,
    },
    Stdout {
        index: usize,
        text: String,
    },
    Stderr {
        index: usize,
        text: String,
    },
    Display {
        index: usize,
        #[serde(with = "As::<Map<String, Value>>")]
        data: MimeBundle,
        display_id: Option<String>,
        /// Whether it is the value of the cell's last expression.
        #[serde(skip_serializing_if = "is_false", default)]
        is_value: bool,
    },
    UpdateDisplay {
        index: usize,
        #[serde(with = "As::<Map<String, Value>>")]
        data: MimeBundle,
        display_id: String,
    },
    ClearOutput {
        index: usize,
        wait: bool,
    },
    #[serde(with = "StatusJson")]
    Status {
        index: usize,
        op: String,
        fields: Vec<(String, Scalar)>,
    },
    CallStarted {
        index: usize,
        call: u64,
        #[serde(with = "As::<String>")]
        bridge: Bridge,
        name: String,
    },
    CallFinished {
        index: usize,
        call: u64,
        #[serde(rename = "durationMs", with = "As::<Number>")]
        duration: Duration,
        error: Option<String>,
    },
    #[serde(rename_all = "snake_case")]
    InputRequest {
        index: usize,
        request_id: String,
        prompt: String,
        #[serde(rename = "idle_timeout_seconds", with = "As::<u64>")]
        idle_timeout: Duration,
    },
    #[serde(with = "CellFinishedJson")]
    CellFinished {
        index: usize,
        outcome: Outcome,
        duration: Duration,
        usage: Usage,
        kept: Option<KeptText>,
    },
    RunFinished {
        is_error: bool,
        #[serde(
            rename = "artifact",
            with = "As::<Option<KeptJson>>",
            skip_serializing_if = "Option::is_none",
            default
        )]
        kept: Option<KeptText>,
    },
    /// Output of code that outlived a cell, since the cell before ended or while this one runs. Without a text it stands
    /// before a display of such code.
    Background {
        index: usize,
        /// The cell that began what has written it.
        #[schemars(with = "u32")]
        cell: CellId,
        #[serde(rename = "stream", with = "As::<StreamJson>")]
        is_stderr: bool,
        text: String,
        /// Bytes before it that are not kept.
        #[serde(skip_serializing_if = "is_zero", default)]
        left_out: u64,
    },
    /// What happened in a fork that a cell made.
    Fork {
        index: usize,
        /// The fork, by the id that its maker got: `fork-1`, and `fork-1.2` for one that was made in it.
        fork: String,
        /// What happened there; its `index` is the place in the fork's run.
        #[serde(rename = "event", with = "nested")]
        #[schemars(with = "Box<KindJson>")]
        kind: Box<EventKind>,
    },
    /// A connector gave rows to a call, which ends next.
    Fetched {
        index: usize,
        call: u64,
        #[serde(with = "As::<Box<FetchJson>>")]
        fetch: Box<Fetch>,
    },
    /// A cell of a run that names its producer, which ends next, has bound names at the top level, and deleted others.
    Bound {
        index: usize,
        /// Where the names come from.
        #[serde(with = "As::<Box<OriginJson>>")]
        origin: Box<Origin>,
        names: Vec<String>,
        deleted: Vec<String>,
    },
}

/// A stream of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamJson {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl StreamJson {
    /// Standard error, or standard output.
    pub fn new(is_stderr: bool) -> StreamJson {
        if is_stderr { StreamJson::Stderr } else { StreamJson::Stdout }
    }
}

// A status event, whose fields stand beside its name.
#[derive(Serialize, Deserialize, JsonSchema)]
struct StatusJson {
    index: usize,
    status: Map<String, Value>,
}

impl StatusJson {
    fn serialize<S: Serializer>(
        index: &usize,
        op: &str,
        fields: &[(String, Scalar)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Serialize::serialize(&StatusJson { index: *index, status: status_map(op, fields) }, serializer)
    }

    #[expect(clippy::type_complexity, reason = "serde takes the fields of the variant as a tuple")]
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<(usize, String, Vec<(String, Scalar)>), D::Error> {
        let StatusJson { index, status } = Deserialize::deserialize(from)?;
        let (op, fields) = status_from_json(status);
        Ok((index, op, fields))
    }
}

// The end of a cell, whose outcome is told by several members.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CellFinishedJson {
    index: usize,
    status: CellStatusJson,
    exit_code: i32,
    duration_ms: Number,
    usage: UsageJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Box<FailureJson>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    artifact: Option<KeptJson>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "StatusJson")]
enum CellStatusJson {
    Complete,
    Error,
}

impl CellFinishedJson {
    fn serialize<S: Serializer>(
        index: &usize,
        outcome: &Outcome,
        duration: &Duration,
        usage: &Usage,
        kept: &Option<KeptText>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let finished = CellFinishedJson {
            index: *index,
            status: if outcome.is_success() { CellStatusJson::Complete } else { CellStatusJson::Error },
            exit_code: i32::from(!outcome.is_success()),
            duration_ms: milliseconds(*duration),
            usage: UsageJson::from(*usage),
            error: outcome.failure().as_ref().map(|failure| Box::new(FailureJson::from(failure))),
            artifact: kept.as_ref().map(KeptJson::from),
        };
        Serialize::serialize(&finished, serializer)
    }

    #[expect(clippy::type_complexity, reason = "serde takes the fields of the variant as a tuple")]
    fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<(usize, Outcome, Duration, Usage, Option<KeptText>), D::Error> {
        let CellFinishedJson { index, duration_ms, usage, error, artifact, .. } = Deserialize::deserialize(from)?;
        let outcome = error.map_or(Outcome::Complete, |error| Outcome::Failed(Box::new((*error).into())));
        Ok((index, outcome, duration(&duration_ms), usage.into(), artifact.map(KeptText::from)))
    }
}

/// Events of a fork.
mod nested {
    use super::{Deserializer, EventKind, KindJson, Serializer};

    pub(super) fn serialize<S: Serializer>(kind: &EventKind, serializer: S) -> Result<S::Ok, S::Error> {
        KindJson::serialize(kind, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<EventKind>, D::Error> {
        KindJson::deserialize(from).map(Box::new)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct CellJson {
    language: String,
    code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Seconds>,
    reset: bool,
}

/// The whole of a text that is too long for a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeptJson {
    /// `artifact://` and its id.
    uri: String,
    bytes: u64,
    /// False when what was kept is only the beginning.
    is_complete: bool,
    /// The file it is in, where there is no store to ask for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    path: Option<PathBuf>,
}

impl From<&KeptText> for KeptJson {
    fn from(kept: &KeptText) -> KeptJson {
        KeptJson {
            uri: format!("{ARTIFACT_SCHEME}{}", kept.id),
            bytes: kept.bytes,
            is_complete: kept.is_complete,
            path: kept.path.clone(),
        }
    }
}

impl From<KeptJson> for KeptText {
    fn from(kept: KeptJson) -> KeptText {
        let id = kept.uri.strip_prefix(ARTIFACT_SCHEME).unwrap_or(&kept.uri).to_owned();
        KeptText { id, bytes: kept.bytes, is_complete: kept.is_complete, path: kept.path }
    }
}

/// What a cell used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageJson {
    fuel: Option<u64>,
    cpu_ms: Number,
    memory_peak_bytes: u64,
}

/// Why a cell failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct FailureJson {
    kind: String,
    /// What stopped the cell, where it was not its own doing: `busy`, which may pass, `deadlock`, `start`, `audit`, `seed`,
    /// `closed`, `lost`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    code: Option<String>,
    #[serde(rename = "type")]
    name: String,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
    snippet: Option<String>,
    pointer: Option<String>,
    summary: String,
    traceback: String,
    /// Whether the session keeps all that its cells made. It is said where it does not.
    #[serde(rename = "stateKept", skip_serializing_if = "is_true", default = "yes")]
    state_kept: bool,
}

fn yes() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> EventJson {
        EventJson { seq: event.seq, kind: event.kind.clone() }
    }
}

impl From<EventJson> for Event {
    fn from(event: EventJson) -> Event {
        Event { seq: event.seq, kind: event.kind }
    }
}

impl From<&Cell> for CellJson {
    fn from(cell: &Cell) -> CellJson {
        CellJson {
            language: cell.language.code().to_owned(),
            code: cell.code.to_string(),
            title: cell.title.clone(),
            timeout: cell.timeout.map(Seconds),
            reset: cell.reset,
        }
    }
}

impl From<CellJson> for Cell {
    fn from(cell: CellJson) -> Cell {
        Cell {
            language: Language::from_code(&cell.language).unwrap_or(Language::Probe),
            code: cell.code.into(),
            title: cell.title,
            timeout: cell.timeout.map(|Seconds(timeout)| timeout),
            reset: cell.reset,
        }
    }
}

impl From<Usage> for UsageJson {
    fn from(usage: Usage) -> UsageJson {
        UsageJson { fuel: usage.fuel, cpu_ms: milliseconds(usage.cpu), memory_peak_bytes: usage.memory_peak_bytes }
    }
}

impl From<UsageJson> for Usage {
    fn from(usage: UsageJson) -> Usage {
        Usage { fuel: usage.fuel, cpu: duration(&usage.cpu_ms), memory_peak_bytes: usage.memory_peak_bytes }
    }
}

impl From<&Failure> for FailureJson {
    fn from(failure: &Failure) -> FailureJson {
        FailureJson {
            kind: failure.kind.as_str().to_owned(),
            code: failure.code.map(|code| code.as_str().to_owned()),
            name: failure.name.clone(),
            message: failure.message.clone(),
            line: failure.line,
            column: failure.column,
            snippet: failure.snippet.clone(),
            pointer: failure.pointer.clone(),
            summary: failure.summary(),
            traceback: failure.traceback.clone(),
            state_kept: failure.state_kept,
        }
    }
}

impl From<FailureJson> for Failure {
    fn from(failure: FailureJson) -> Failure {
        Failure {
            kind: kind_from_json(&failure.kind),
            code: failure.code.as_deref().and_then(code_from_json),
            name: failure.name,
            message: failure.message,
            line: failure.line,
            column: failure.column,
            snippet: failure.snippet,
            pointer: failure.pointer,
            traceback: failure.traceback,
            state_kept: failure.state_kept,
        }
    }
}

fn kind_from_json(word: &str) -> FailureKind {
    const KINDS: [FailureKind; 8] = [
        FailureKind::Raised,
        FailureKind::Timeout,
        FailureKind::Interrupted,
        FailureKind::Fuel,
        FailureKind::Memory,
        FailureKind::Output,
        FailureKind::Stdin,
        FailureKind::Trap,
    ];
    KINDS.into_iter().find(|kind| kind.as_str() == word).unwrap_or(FailureKind::Raised)
}

fn code_from_json(word: &str) -> Option<FailureCode> {
    FailureCode::ALL.into_iter().find(|code| code.as_str() == word)
}

/// Milliseconds to three places, as an integer where they are whole.
pub(super) fn milliseconds(duration: Duration) -> Number {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    match micros % 1_000 {
        0 => (micros / 1_000).into(),
        _ => Number::from_f64(micros as f64 / 1_000.0).unwrap_or_else(|| 0.into()),
    }
}

fn duration(milliseconds: &Number) -> Duration {
    let seconds = milliseconds.as_f64().unwrap_or_default() / 1_000.0;
    let exact = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    // Back to the microseconds that were written.
    Duration::from_micros(u64::try_from(exact.as_nanos().saturating_add(500) / 1_000).unwrap_or(u64::MAX))
}

/// A text of a MIME type as JSON: JSON types as what they say, all else as a string.
pub(super) fn mime_value(mime_type: &str, text: &str) -> Value {
    let parsed = if is_json(mime_type) { serde_json::from_str(text).ok() } else { None };
    parsed.unwrap_or_else(|| text.into())
}

pub(super) fn bundle_json(bundle: &MimeBundle) -> Map<String, Value> {
    let value = |mime_type: &str, data: &MimeData| match data {
        MimeData::Text(text) => mime_value(mime_type, text),
        MimeData::Binary(bytes) => STANDARD.encode(bytes).into(),
    };
    bundle.0.iter().map(|(mime_type, data)| (mime_type.clone(), value(mime_type, data))).collect()
}

fn bundle_from_json(data: Map<String, Value>) -> MimeBundle {
    let representation = |mime_type: &str, value: Value| match value {
        _ if is_json(mime_type) => MimeData::Text(value.to_string()),
        Value::String(text) if is_text(mime_type) => MimeData::Text(text),
        Value::String(text) => STANDARD.decode(&text).map_or(MimeData::Text(text), MimeData::Binary),
        other => MimeData::Text(other.to_string()),
    };
    MimeBundle(data.into_iter().map(|(name, value)| (name.clone(), representation(&name, value))).collect())
}

/// Returns true for a MIME type whose data is sent as text. Data of all others is sent as base64.
fn is_text(mime_type: &str) -> bool {
    mime_type.starts_with("text/")
        || mime_type.ends_with("+xml")
        || matches!(mime_type, "application/javascript" | "application/xml" | "application/x-latex")
}

/// A status event: what was done, and its fields beside it.
pub(super) fn status_map(op: &str, fields: &[(String, Scalar)]) -> Map<String, Value> {
    let scalar = |scalar: &Scalar| match scalar {
        Scalar::Text(text) => text.as_str().into(),
        Scalar::Integer(number) => (*number).into(),
        Scalar::Number(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Scalar::Boolean(value) => (*value).into(),
    };
    let mut status = Map::from_iter([("op".to_owned(), op.into())]);
    for (name, value) in fields.iter().filter(|(name, _)| name != "op") {
        status.insert(name.clone(), scalar(value));
    }
    status
}

fn status_from_json(status: Map<String, Value>) -> (String, Vec<(String, Scalar)>) {
    let mut op = String::new();
    let mut fields = Vec::new();
    for (name, value) in status {
        let scalar = match value {
            Value::String(text) if name == "op" => {
                op = text;
                continue;
            }
            Value::String(text) => Scalar::Text(text),
            Value::Bool(value) => Scalar::Boolean(value),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Scalar::Integer(whole),
                None => Scalar::Number(number.as_f64().unwrap_or(f64::NAN)),
            },
            other => Scalar::Text(other.to_string()),
        };
        fields.push((name, scalar));
    }
    (op, fields)
}
