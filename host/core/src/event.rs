//! The stream of a run.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, CellId, SEED_CELL},
    mime::MimeBundle,
    origin::Origin,
    outcome::{Outcome, Usage},
};

/// Event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the run's stream, from 0; rises by one.
    pub seq: u64,
    /// Kind of the event, with its data.
    pub kind: EventKind,
}

/// Kind of an event, with its data. `index` is the cell's position in its run, from 0.
///
/// The enumeration is exhaustive on purpose, and grows: a front end that does not know a kind of event loses output of a
/// cell, so its `match` should stop compiling when a kind is added. A front end that is to go on compiling has a `_` arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub enum EventKind {
    /// First event of every run.
    RunStarted { session: String, cells: Vec<Cell> },
    /// A cell is about to run as `<cell id>`.
    CellStarted { index: usize, cell: CellId },
    /// Text on standard output.
    Stdout { index: usize, text: String },
    /// Text on standard error.
    Stderr { index: usize, text: String },
    /// A displayed value.
    Display { index: usize, data: MimeBundle, display_id: Option<String>, is_value: bool },
    /// Replaces the display of that id.
    UpdateDisplay { index: usize, data: MimeBundle, display_id: String },
    /// Drops the cell's output so far; with `wait`, when the next output comes.
    ClearOutput { index: usize, wait: bool },
    /// Status report of a helper or of the engine.
    Status { index: usize, op: String, fields: Vec<(String, Scalar)> },
    /// A bridge call left the cell.
    CallStarted { index: usize, call: u64, bridge: Bridge, name: String },
    /// It came back. `error` is its message.
    CallFinished { index: usize, call: u64, duration: Duration, error: Option<String> },
    /// The cell waits for a line of input: answer with `Session::submit_input`.
    InputRequest { index: usize, request_id: String, prompt: String, idle_timeout: Duration },
    /// A cell ended.
    CellFinished { index: usize, outcome: Outcome, duration: Duration, usage: Usage, kept: Option<KeptText> },
    /// Last event of every run that was not dropped. A run of one cell keeps no text besides that of its cell.
    RunFinished { is_error: bool, kept: Option<KeptText> },
    /// Output of code that outlived `cell`, written since the cell before ended or while this one runs. `left_out` is the number
    /// of bytes before it that were dropped. Without a text it stands before a display of such code.
    Background { index: usize, cell: CellId, is_stderr: bool, text: String, left_out: u64 },
    /// Event of a fork that a cell of the session made, or of a fork that a cell of that fork made. `kind` is neither a
    /// `Fork`, a `RunStarted`, a `RunFinished` nor an `InputRequest`; its own `index` is the position in the fork's run.
    /// `index` is that of the cell that made the fork, and once that cell has ended, that of the cell that runs.
    Fork { index: usize, fork: String, kind: Box<EventKind> },
    /// A connector gave rows to the call `call`, or failed to. The call ends next, unless it is that of a process whose code made the
    /// fetch.
    Fetched { index: usize, call: u64, fetch: Box<Fetch> },
    /// The cell, which ends next, has bound these names at the top level, all of this origin, and deleted those. Told in runs
    /// that name their producer.
    Bound { index: usize, origin: Box<Origin>, names: Vec<String>, deleted: Vec<String> },
}

/// Fetch from a connector, as the fetch log records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// The connector.
    pub connector: String,
    /// Name of the connector's fetch.
    pub fetch: String,
    /// The arguments in their canonical form, a JSON object: checked, with the defaults, names sorted.
    pub arguments: String,
    /// Time of the request to the source, in nanoseconds since the Unix epoch.
    pub fetched_at: u64,
    /// True if the rows are those of an earlier fetch, and the source was not queried.
    pub is_cached: bool,
    /// Time from the call until the rows were available.
    pub duration: Duration,
    /// Number of rows.
    pub rows: u64,
    /// The columns, each with its type in Arrow's words.
    pub columns: Vec<(String, String)>,
    /// The first rows, a JSON array of objects; long values are cut.
    pub head: String,
    /// The last rows, likewise; empty where the first ones are all.
    pub tail: String,
    /// The artifact with all rows as Parquet.
    pub artifact: Option<String>,
    /// Reason for which there is no artifact.
    pub notice: Option<String>,
    /// Message of a fetch that failed: it has no rows.
    pub error: Option<String>,
}

impl Fetch {
    /// Bytes of its texts.
    pub fn size_bytes(&self) -> usize {
        let columns = self.columns.iter().map(|(name, kind)| name.len().saturating_add(kind.len()));
        let texts = [&self.connector, &self.fetch, &self.arguments, &self.head, &self.tail];
        let texts = texts.into_iter().chain(&self.error).map(String::len);
        columns.chain(texts).fold(0, usize::saturating_add)
    }

    /// One line that says what was fetched.
    pub fn summary(&self) -> String {
        if let Some(error) = &self.error {
            return format!("{}.{}: failed: {error}", self.connector, self.fetch);
        }
        let rows = if self.rows == 1 { "1 row".to_owned() } else { format!("{} rows", self.rows) };
        let columns =
            if self.columns.len() == 1 { "1 column".to_owned() } else { format!("{} columns", self.columns.len()) };
        let cached = if self.is_cached { ", cached" } else { "" };
        format!("{}.{}: {rows}, {columns}{cached}", self.connector, self.fetch)
    }
}

/// Artifact with the whole text of a cell or of a run, if that is too long for a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptText {
    /// The artifact: `artifact://<id>`.
    pub id: String,
    /// Bytes that were kept.
    pub bytes: u64,
    /// True if the artifact has the whole text. A text larger than an artifact may be is cut to that size.
    pub is_complete: bool,
    /// Path of its file, for a temporary store: references to its artifacts must include the path.
    pub path: Option<PathBuf>,
}

impl EventKind {
    /// Estimates the bytes of the event's data for its cell.
    pub fn size_bytes(&self) -> usize {
        match self {
            EventKind::Fork { fork, kind, .. } => fork.len().saturating_add(kind.size_bytes()),
            EventKind::Fetched { fetch, .. } => fetch.size_bytes(),
            EventKind::Bound { origin, names, deleted, .. } => {
                let names = names.iter().chain(deleted).map(String::len);
                names.fold(origin.size_bytes(), usize::saturating_add)
            }
            EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } | EventKind::Background { text, .. } => {
                text.len()
            }
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => data.size_bytes(),
            EventKind::Status { fields, .. } => {
                fields.iter().map(|(name, value)| name.len().saturating_add(value.size_bytes())).sum()
            }
            _ => 0,
        }
    }
}

/// Returns the text of a background event as a result shows it: its writer, and the text as lines of its own. Without a text it
/// stands before a display.
pub fn background_lines(cell: CellId, text: &str, left_out: u64) -> String {
    let gap = if left_out > 0 { format!("; {left_out} bytes before it are not kept") } else { String::new() };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let did = if text.is_empty() { "displayed" } else { "wrote" };
    let who = match cell.0 {
        0 => "code of an earlier cell".to_owned(),
        SEED_CELL => "<seed>".to_owned(),
        number => format!("<cell {number}>"),
    };
    format!("[{who} {did} this after it had ended{gap}]\n{text}{end}")
}

/// Returns the lines that show an event of a fork beside a cell's own output: its text output, its displays as text and its
/// failure, each line with the fork's id. `None` for an event that shows nothing.
pub fn fork_lines(fork: &str, kind: &EventKind) -> Option<String> {
    let failure;
    let text = match kind {
        EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } | EventKind::Background { text, .. } => text,
        EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => data.visible_text()?,
        EventKind::CellFinished { outcome, .. } => {
            failure = outcome.failure()?.summary();
            &failure
        }
        _ => return None,
    };
    Some(text.lines().map(|line| format!("[{fork}] {line}\n")).collect())
}

/// Interface that a call went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Bridge {
    /// `tool.<name>(…)`
    Tool,
    /// `llm(…)`
    Llm,
    /// `agent(…)`
    Agent,
    /// `input(…)`
    Input,
    /// `fetch(…)` and its kin
    Http,
    /// `runtime.<pack>.<primitive>(…)`
    Runtime,
    /// `<connector>.<fetch>(…)`
    Connector,
}

impl Bridge {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Bridge::Tool => "tool",
            Bridge::Llm => "llm",
            Bridge::Agent => "agent",
            Bridge::Input => "input",
            Bridge::Http => "http",
            Bridge::Runtime => "runtime",
            Bridge::Connector => "connector",
        }
    }
}

/// Kind of a status event of the host. Cells send status events as well, with any other name: see [`HostStatus::of_cell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostStatus {
    /// An agent's output was stored.
    Agent,
    /// The entries of a run could not be written to the audit log.
    AuditLost,
    /// A call came back. Results tell of it so, folded from the two events of the call.
    Call,
    /// Calls that a cell began go on although it has ended.
    CallsOpen,
    /// Calls of a cell wait for others of the session to end.
    CallsQueued,
    /// A call waits for a person to approve, change or reject it.
    CallWaits,
    /// A file that was open cannot be opened again.
    FileLost,
    /// A cell waits for capacity for its kernel.
    KernelAwaited,
    /// A kernel died.
    KernelLost,
    /// A cell runs on another kernel than an earlier cell of its run did, or on one that was cleared since.
    KernelReplaced,
    /// A kernel went back to its checkpoint.
    KernelRestored,
    /// Processes that a cell had started were ended with it.
    ProcessesEnded,
    /// Names that a cell has bound got no origin, because there are too many.
    OriginsLeftOut,
    /// A displayed value could not be rendered.
    RenderFailed,
    /// A cell has less time than it asked for.
    TimeoutTightened,
}

impl HostStatus {
    /// All of them.
    pub const ALL: [HostStatus; 15] = [
        HostStatus::Agent,
        HostStatus::AuditLost,
        HostStatus::Call,
        HostStatus::CallsOpen,
        HostStatus::CallsQueued,
        HostStatus::CallWaits,
        HostStatus::FileLost,
        HostStatus::KernelAwaited,
        HostStatus::KernelLost,
        HostStatus::KernelReplaced,
        HostStatus::KernelRestored,
        HostStatus::OriginsLeftOut,
        HostStatus::ProcessesEnded,
        HostStatus::RenderFailed,
        HostStatus::TimeoutTightened,
    ];

    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            HostStatus::Agent => "agent",
            HostStatus::AuditLost => "audit_lost",
            HostStatus::Call => "call",
            HostStatus::CallsOpen => "calls_open",
            HostStatus::CallsQueued => "calls_queued",
            HostStatus::CallWaits => "call_waits",
            HostStatus::FileLost => "file_lost",
            HostStatus::KernelAwaited => "kernel_awaited",
            HostStatus::KernelLost => "kernel_lost",
            HostStatus::KernelReplaced => "kernel_replaced",
            HostStatus::KernelRestored => "kernel_restored",
            HostStatus::OriginsLeftOut => "origins_left_out",
            HostStatus::ProcessesEnded => "processes_ended",
            HostStatus::RenderFailed => "render_failed",
            HostStatus::TimeoutTightened => "timeout_tightened",
        }
    }

    /// Returns the name of a cell's status event. One of the host's names becomes `cell:…`, so that a cell cannot pose as the
    /// host.
    pub fn of_cell(op: String) -> String {
        match HostStatus::ALL.iter().any(|status| status.as_str() == op) {
            true => format!("cell:{op}"),
            false => op,
        }
    }

    /// The event.
    pub fn event(self, index: usize, fields: Vec<(String, Scalar)>) -> EventKind {
        EventKind::Status { index, op: self.as_str().to_owned(), fields }
    }
}

/// A typed value in a status event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scalar {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Any number.
    Number(f64),
    /// Yes or no.
    Boolean(bool),
}

impl Scalar {
    /// Bytes of its text; numbers have none.
    pub fn size_bytes(&self) -> usize {
        match self {
            Scalar::Text(text) => text.len(),
            Scalar::Integer(_) | Scalar::Number(_) | Scalar::Boolean(_) => 0,
        }
    }
}

impl KeptText {
    /// Describes its location.
    pub fn place(&self) -> String {
        let what = if self.is_complete { "all of it" } else { "its beginning" };
        match &self.path {
            Some(path) => format!("{what} is in {}, artifact://{}", path.display(), self.id),
            None => format!("{what} is artifact://{}", self.id),
        }
    }
}
