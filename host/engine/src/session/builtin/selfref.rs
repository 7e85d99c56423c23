//! The pack `selfref`, which every session has: what the session remembers, and forks of it.

use cellar_core::{
    cell::CellId,
    limits::{CODE_BYTES_MAX, MESSAGES_MAX},
    sync::lock,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    contract::bridge::{CallError, CallErrorKind, CallFuture, PackSpec, PrimitiveSpec, Response},
    formats::remembered::{Remembered, Summary},
    kernel::calls::Site,
    session::{Session, spawned::Order, trees},
};

/// Name of the pack. A pack of the same name that the embedder grants replaces it.
pub(crate) const SELFREF: &str = "selfref";

/// Values of the arguments of a primitive, and bytes of them: code may have escapes, and stands among others.
const ARGUMENTS_MAX: usize = 10_000;
const ARGUMENTS_BYTES_MAX: usize = 2 * CODE_BYTES_MAX;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inspect {
    key: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remember {
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    experience_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Compact {
    goal: String,
    instruction: String,
    discoveries: Vec<String>,
    completed: Vec<String>,
    current_status: String,
    likely_next_work: Vec<String>,
    relevant_files_directories: Vec<String>,
    #[serde(default)]
    remember: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GatherAll {
    #[serde(default)]
    fork_ids: Value,
    #[serde(default)]
    include_history: Option<bool>,
}

/// Specification of the pack, as cells see it.
#[expect(clippy::too_many_lines, reason = "a table: each primitive with its schema")]
pub fn selfref_pack() -> PackSpec {
    let primitive = |name: &str, description: &str, schema: Value, result: Value| PrimitiveSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: Some(schema.to_string()),
        result: Some(result.to_string()),
    };
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let text = |description: &str| json!({"type": "string", "description": description});
    let texts = |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    let primitives = vec![
        primitive(
            "context.inspect",
            "What the session remembers: `experiences`, `summary`, and as `messages` the cells since that summary",
            object(json!({"key": text("the `memory_key` of a fork; this session when absent")}), &[]),
            json!({"type": "object"}),
        ),
        primitive(
            "context.remember",
            "Keeps a lesson for later: resets leave it, snapshots and forks have it. Gives its `id` and `text`",
            object(json!({"text": text("a short lesson or rule")}), &["text"]),
            json!({"type": "object"}),
        ),
        primitive(
            "context.forget",
            "Drops a lesson; whether there was one of that id",
            object(json!({"experience_id": text("the `id` of the lesson")}), &["experience_id"]),
            json!({"type": "boolean"}),
        ),
        primitive(
            "context.compact",
            "Sums up what was done so far, at a milestone. `assistant_message` of the result is the summary as Markdown",
            object(
                json!({
                    "goal": text("what it is all for"),
                    "instruction": text("what was asked"),
                    "discoveries": texts("what was found out"),
                    "completed": texts("what is done"),
                    "current_status": text("where it stands"),
                    "likely_next_work": texts("what comes next"),
                    "relevant_files_directories": texts("what to look at"),
                    "remember": texts("lessons to remember as well"),
                }),
                &[
                    "goal",
                    "instruction",
                    "discoveries",
                    "completed",
                    "current_status",
                    "likely_next_work",
                    "relevant_files_directories",
                ],
            ),
            json!({"type": "object"}),
        ),
        primitive(
            "fork.spawn",
            "Begins to run code, or an agent, in a copy of this session's live state. Gives a handle with its `fork_id`",
            object(
                json!({
                    "message": text("what an agent is to do in the copy"),
                    "code": text("what to run in the copy, in the place of `message`"),
                    "language": {"enum": ["py", "js"], "description": "of `code`; that of the caller when absent"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": 600, "description": "seconds for `code`"},
                    "agent_type": text("`task` when absent"),
                    "model": text("for the agent"),
                    "context": text("for the agent"),
                    "label": text("names the agent's output"),
                    "schema": {"type": "object", "description": "JSON Schema of the agent's answer"},
                }),
                &[],
            ),
            json!({"type": "object"}),
        ),
        primitive(
            "fork.gather_all",
            "Waits for forks: by fork id, their `status` (`completed` or `error`), `response`, `result`, `error_type`, \
             `error_message`, `memory_key`, `history_count`",
            object(
                json!({
                    "fork_ids": {"description": "ids or handles, one or a list; all that were not gathered when absent"},
                    "include_history": {"type": "boolean", "description": "with the cells that ran in each"},
                }),
                &[],
            ),
            json!({"type": "object"}),
        ),
    ];
    PackSpec {
        name: SELFREF.to_owned(),
        version: Some("1".to_owned()),
        description: "The session itself: what it remembers, and forks of its live state".to_owned(),
        primitives,
    }
}

impl Session {
    /// Experiences and summary that the session remembers besides the state of its kernels.
    pub fn remembered(&self) -> Remembered {
        lock(&self.inner.remembered).clone()
    }

    /// Answers a call of the pack. `name` is that of the primitive in it.
    pub(crate) fn call_selfref(self, name: &str, arguments: String, site: Site) -> CallFuture {
        let name = name.to_owned();
        Box::pin(async move {
            let asked = Asked { name: &name, arguments: &arguments };
            let answer = match name.as_str() {
                "context.inspect" => self.inspect_context(&asked)?,
                "context.remember" => {
                    let Remember { text } = asked.read()?;
                    let mut remembered = lock(&self.inner.remembered);
                    let experience = remembered.remember(text).map_err(|fault| asked.limit(fault))?;
                    json!({"id": experience.id, "text": experience.text})
                }
                "context.forget" => {
                    let Forget { experience_id } = asked.read()?;
                    lock(&self.inner.remembered).forget(&experience_id).into()
                }
                "context.compact" => self.compact(&asked, site.cell)?,
                "fork.spawn" => {
                    let order: Order = asked.read()?;
                    self.spawn_fork(order, site).await.map_err(|error| asked.failed(error))?
                }
                "fork.gather_all" => {
                    let GatherAll { fork_ids, include_history } = asked.read_gather_all()?;
                    let gathered = self.gather_forks(&fork_ids, include_history.unwrap_or_default()).await;
                    gathered.map_err(|error| asked.failed(error))?
                }
                _ => return Err(unknown(&name)),
            };
            Ok(Response::Json(answer.to_string()))
        })
    }

    fn inspect_context(&self, asked: &Asked<'_>) -> Result<Value, CallError> {
        let Inspect { key } = asked.read()?;
        let key = key.unwrap_or_else(|| self.id().to_owned());
        if key == self.id() {
            return Ok(self.context());
        }
        let found = self.fork_context(&key);
        found.ok_or_else(|| {
            let message =
                format!("has no context `{key}`; known are `{}` and the `memory_key` of its forks", self.id());
            asked.failed(CallError::new(CallErrorKind::Unknown, message))
        })
    }

    /// Context of the session as JSON: its experiences, its summary, and the cells since that summary.
    pub(crate) fn context(&self) -> Value {
        let remembered = self.remembered();
        let messages = self.messages(remembered.covered);
        json!({
            "active_key": self.id(),
            "experiences": remembered.experiences,
            "summary": remembered.summary,
            "messages": messages,
            "has_pending_compaction": false,
        })
    }

    /// Returns the cells with a number greater than `covered`, oldest first, as far as the history has them; at most
    /// [`MESSAGES_MAX`].
    pub(crate) fn messages(&self, covered: u32) -> Vec<Value> {
        let sources = self.sources();
        let later: Vec<_> = sources.iter().filter(|source| source.id.0 > covered).collect();
        let message = |source: &&crate::session::history::CellSource| json!({"cell": source.id.0, "language": source.language.code(), "content": &*source.code});
        later[later.len().saturating_sub(MESSAGES_MAX)..].iter().map(message).collect()
    }

    fn compact(&self, asked: &Asked<'_>, cell: CellId) -> Result<Value, CallError> {
        let compact: Compact = asked.read()?;
        let summary = Summary {
            goal: compact.goal,
            instruction: compact.instruction,
            discoveries: compact.discoveries,
            completed: compact.completed,
            current_status: compact.current_status,
            likely_next_work: compact.likely_next_work,
            relevant_files_directories: compact.relevant_files_directories,
        };
        let notes = compact.remember.unwrap_or_default();
        let answer = json!({
            "status": "committed",
            "active_key": self.id(),
            "summary": summary,
            "assistant_message": summary.to_markdown(),
            "remember": notes,
        });
        let committed = lock(&self.inner.remembered).compact(summary, notes, cell.0);
        committed.map(|()| answer).map_err(|fault| asked.limit(fault))
    }
}

/// A call of the pack.
struct Asked<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl Asked<'_> {
    fn who(&self) -> String {
        format!("primitive `{SELFREF}.{}`", self.name)
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        let count = trees::count(self.arguments);
        if count > ARGUMENTS_MAX || self.arguments.len() > ARGUMENTS_BYTES_MAX {
            let message = format!(
                "{}: the arguments have {count} values and {} bytes, {ARGUMENTS_MAX} and {ARGUMENTS_BYTES_MAX} at most",
                self.who(),
                self.arguments.len()
            );
            return Err(CallError::new(CallErrorKind::Limit, message));
        }
        serde_json::from_str(self.arguments).map_err(|error| {
            // The place in the text is nobody's business.
            let fault = error.to_string();
            let fault = fault.rsplit_once(" at line ").map_or(fault.as_str(), |(fault, _)| fault);
            let message = format!("{}: the arguments do not fit: {fault}", self.who());
            CallError::new(CallErrorKind::Invalid, message)
        })
    }

    /// The arguments of `gather_all`, which may be one handle: in JavaScript a call with an object is one with its members.
    fn read_gather_all(&self) -> Result<GatherAll, CallError> {
        match self.read()? {
            handle @ Value::Object(_) if handle.get("fork_id").is_some() => {
                Ok(GatherAll { fork_ids: handle, include_history: None })
            }
            _ => self.read(),
        }
    }

    fn limit(&self, fault: String) -> CallError {
        self.failed(CallError::new(CallErrorKind::Limit, fault))
    }

    fn failed(&self, error: CallError) -> CallError {
        CallError::new(error.kind, format!("{}: {}", self.who(), error.message))
    }
}

fn unknown(name: &str) -> CallError {
    let pack = selfref_pack();
    let known: Vec<String> = pack.primitives.iter().map(|primitive| format!("{SELFREF}.{}", primitive.name)).collect();
    let message = format!("no primitive named `{SELFREF}.{name}`; known are: {}", known.join(", "));
    CallError::new(CallErrorKind::Unknown, message)
}
