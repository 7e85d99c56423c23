//! Calls that leave a cell, as data: tools, models, agents, input, hosts.
//!
//! The engine carries calls; whoever embeds it answers them, through [`Bridges`](crate::Bridges). The engine knows no
//! HTTP, starts no process and holds no credential.

use std::{borrow::Cow, fmt, future::Future, pin::Pin, time::Duration};

use cellar_core::event::{Bridge, Fetch};
use cellar_tables::{Batches, Columns};
use serde::{Deserialize, Serialize};

pub use cellar_core::{audit::BridgeGrants, tool::ToolSpec};

pub use super::{
    processes::{
        ChannelAnswer, ChannelCall, OutputStream, PipeEnd, PipeText, Pipes, ProcessCall, ProcessEnd, ProcessFailure,
        ProcessFailureKind, ProcessRequest, Transferred,
    },
    tables::{Compression, Conversion, Direction, Drawing, Format, LoadedDataset, TableCall},
};

/// A connector as cells see it: a source of data that the host holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorSpec {
    /// The name that cells have it by: a Python and JavaScript identifier.
    pub name: String,
    /// Description of the source, for people and models.
    pub description: String,
    /// Fetches that the connector offers.
    pub fetches: Vec<FetchSpec>,
}

/// One fetch of a connector as cells see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchSpec {
    /// The `fetch` in `connector.fetch(…)` and `connector["fetch"](…)`.
    pub name: String,
    /// Description of the rows, for people and models.
    pub description: String,
    /// JSON Schema of its parameters, an object. The order of the properties is that of arguments without names.
    pub schema: String,
    /// Its columns with their types, as far as they are known beforehand.
    pub columns: Vec<(String, String)>,
}

/// Name of a fetch, with that of its connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchName {
    /// Name of the connector.
    pub connector: String,
    /// Name of the fetch within its connector.
    pub fetch: String,
}

impl fmt::Display for FetchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&qualified(&self.connector, &self.fetch))
    }
}

/// A pack of primitives as cells see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackSpec {
    /// The `pack` in `runtime.<pack>.<primitive>(…)`.
    pub name: String,
    /// Its version, for people.
    pub version: Option<String>,
    /// Description of the purpose, for people and models.
    pub description: String,
    /// Primitives in the pack.
    pub primitives: Vec<PrimitiveSpec>,
}

/// A primitive as cells see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimitiveSpec {
    /// The `primitive` in `runtime.<pack>.<primitive>(…)`. It may have dots.
    pub name: String,
    /// Description of the effect, for people and models.
    pub description: String,
    /// JSON Schema of its arguments. The order of the properties is that of arguments without names.
    pub schema: Option<String>,
    /// JSON Schema of its result.
    pub result: Option<String>,
}

/// One call, with typed arguments. JSON appears only where a tool, a model or an agent wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the calls in the cell")]
#[non_exhaustive]
pub enum Call {
    /// `tool.<name>(…)`; `arguments` is a JSON object.
    Tool { name: String, arguments: String },
    /// `runtime.<pack>.<name>(…)`; `arguments` is a JSON object.
    Primitive { pack: String, name: String, arguments: String },
    /// `llm(prompt, …)`
    Llm { prompt: String, model: String, system: Option<String>, schema: Option<String> },
    /// `agent(prompt, …)`
    Agent(AgentCall),
    /// `input(prompt)`
    Input { prompt: String },
    /// `fetch(url, …)`
    Http(HttpCall),
    /// `<connector>.<fetch>(…)`; `arguments` is a JSON object. With `refresh` the source is asked again although the same
    /// rows are remembered.
    Fetch { name: FetchName, arguments: String, refresh: bool },
    /// The disk usage of the session, which answers it itself, as it does the following.
    Disk,
    /// Files of tables, datasets and charts.
    Table(TableCall),
    /// Processes and the channels between them.
    Process(ProcessCall),
}

impl Call {
    /// Returns the bridge that the call goes through.
    pub fn bridge(&self) -> Bridge {
        match self {
            Call::Tool { .. } | Call::Disk | Call::Table(_) => Bridge::Tool,
            Call::Primitive { .. } | Call::Process(_) => Bridge::Runtime,
            Call::Llm { .. } => Bridge::Llm,
            Call::Agent(_) => Bridge::Agent,
            Call::Input { .. } => Bridge::Input,
            Call::Http(_) => Bridge::Http,
            Call::Fetch { .. } => Bridge::Connector,
        }
    }

    /// Returns the name of the callee in events, logs and messages: the tool, the primitive with its pack, the tier, the
    /// agent type, the URL, the fetch with its connector; empty for input.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Call::Tool { name, .. } => name.into(),
            Call::Primitive { pack, name, .. } => qualified(pack, name),
            Call::Llm { model, .. } => model.into(),
            Call::Agent(call) => (&call.agent_type).into(),
            Call::Input { .. } => "".into(),
            Call::Http(call) => (&call.url).into(),
            Call::Fetch { name, .. } => qualified(&name.connector, &name.fetch),
            Call::Disk => "cellar.disk".into(),
            Call::Table(call) => call.name().into(),
            Call::Process(call) => call.name().into(),
        }
    }
}

/// Returns the name of a member with that of its pack or connector; the latter alone if no member is named.
fn qualified<'a>(of: &'a str, name: &str) -> Cow<'a, str> {
    if name.is_empty() { of.into() } else { format!("{of}.{name}").into() }
}

/// Arguments of `agent(…)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the call in the cell")]
pub struct AgentCall {
    pub prompt: String,
    pub agent_type: String,
    pub model: Option<String>,
    pub context: Option<String>,
    pub label: Option<String>,
    pub schema: Option<String>,
}

/// A request to a granted host. Where its answer redirects to is another request. Characters of headers stand for bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of an HTTP request")]
pub struct HttpCall {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    /// Timeout of the response, where that is less than the host allows.
    pub timeout: Option<Duration>,
}

/// Response to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// A JSON text: from tools and primitives, and from models and agents that were given a schema.
    Json(String),
    /// Text: from models, agents and input.
    Text(String),
    /// Response of a granted host.
    Http(HttpResponse),
    /// Rows from a connector.
    Table(Box<FetchedTable>),
    /// The same rows once the kernel lends them to its guest.
    Lent(LentTable),
    /// Disk usage of the session.
    Disk(DiskUsage),
    /// Bytes of a file that was written.
    Written(u64),
    /// A dataset that was loaded or published.
    Dataset(LoadedDataset),
    /// End of a process.
    Process(Box<ProcessEnd>),
    /// Answer of the channels.
    Channel(ChannelAnswer),
    /// Nothing but that it is done.
    Done,
    /// Rows of a dataset.
    Rows(Box<DatasetRows>),
}

/// The rows of a dataset, on their way to a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRows {
    /// Number of rows.
    pub rows: u64,
    /// The columns, as a guest takes them.
    pub columns: Columns,
}

/// Disk usage of a session, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Bytes that it may write.
    pub total: u64,
    /// Bytes that it has written.
    pub used: u64,
}

/// A table that a kernel lends to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentTable {
    /// Number of the table.
    pub table: u64,
    /// Bytes of its columns.
    pub bytes: u64,
    /// Number of rows.
    pub rows: u64,
}

/// The rows of a fetch, on their way to a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedTable {
    /// Description of the fetch.
    pub fetch: Fetch,
    /// The columns, as a guest takes them.
    pub columns: Columns,
}

impl Response {
    /// Bytes of payload.
    pub fn size_bytes(&self) -> usize {
        match self {
            Response::Json(text) | Response::Text(text) => text.len(),
            Response::Http(response) => {
                let headers = response.headers.iter().map(|(name, value)| name.len().saturating_add(value.len()));
                headers.fold(response.body.len().saturating_add(response.url.len()), usize::saturating_add)
            }
            Response::Table(table) => table.columns.len(),
            Response::Rows(rows) => rows.columns.len(),
            Response::Dataset(dataset) => dataset.name.len().saturating_add(dataset.artifact.len()),
            Response::Process(end) => end.size_bytes(),
            Response::Channel(answer) => answer.size_bytes(),
            Response::Lent(_) | Response::Disk(_) | Response::Written(_) | Response::Done => 0,
        }
    }
}

/// An answer of a granted host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of an HTTP response")]
pub struct HttpResponse {
    pub status: u16,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Error of a call. The message reaches the cell as an exception: no credential and no host path belongs in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct CallError {
    /// The class of failure.
    pub kind: CallErrorKind,
    /// Message that says what was tried, what was found, what to do.
    pub message: String,
}

impl CallError {
    /// An error of this kind.
    pub fn new(kind: CallErrorKind, message: impl Into<String>) -> CallError {
        CallError { kind, message: message.into() }
    }
}

/// Class of a [`CallError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The call was made and failed.
    Failed,
    /// The session has no grant for it.
    Denied,
    /// No such tool, primitive, fetch, tier, agent, dataset or channel.
    Unknown,
    /// The arguments do not fit.
    Invalid,
    /// It was cancelled.
    Cancelled,
    /// It went past a limit.
    Limit,
}

impl CallErrorKind {
    /// The word used in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            CallErrorKind::Failed => "failed",
            CallErrorKind::Denied => "denied",
            CallErrorKind::Unknown => "unknown",
            CallErrorKind::Invalid => "invalid",
            CallErrorKind::Cancelled => "cancelled",
            CallErrorKind::Limit => "limit",
        }
    }
}

/// Result of a call.
pub(crate) type CallResult = Result<Response, CallError>;

/// The answer to a call, to be polled on the engine's runtime.
pub type CallFuture = Pin<Box<dyn Future<Output = Result<Response, CallError>> + Send>>;

/// The rows of a fetch, to be polled on the engine's runtime.
pub type FetchFuture = Pin<Box<dyn Future<Output = Result<Batches, CallError>> + Send>>;

/// The list of tools, to be polled on the engine's runtime.
pub type ToolsFuture = Pin<Box<dyn Future<Output = Vec<ToolSpec>> + Send>>;

/// The refusal for a bridge that a session was not granted. An embedder that can say how it is granted adds that to the
/// message.
pub fn denied(call: &Call) -> CallError {
    let (kind, message) = match call {
        Call::Tool { name, .. } => (CallErrorKind::Unknown, format!("no tool named `{name}`")),
        Call::Primitive { .. } => (CallErrorKind::Unknown, format!("no primitive named `{}`", call.name())),
        Call::Llm { .. } => (CallErrorKind::Denied, "no language model is granted".to_owned()),
        Call::Agent(call) => (CallErrorKind::Unknown, format!("no agent named `{}`", call.agent_type)),
        Call::Input { .. } => {
            (CallErrorKind::Denied, "Kernel requested stdin; interactive input is not supported".to_owned())
        }
        Call::Http(_) => (CallErrorKind::Denied, "the network is off".to_owned()),
        Call::Fetch { name, .. } => (CallErrorKind::Unknown, format!("no connector has a fetch named `{name}`")),
        Call::Disk | Call::Table(_) | Call::Process(_) => {
            (CallErrorKind::Failed, "the session has ended, which would have answered".to_owned())
        }
    };
    CallError::new(kind, message)
}
