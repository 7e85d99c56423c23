//! Outcomes of cells.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Outcome of a cell. A cell that raises is not an error of the engine: its outcome is `Failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It ran to its end.
    Complete,
    /// It ended itself with an exit status (`sys.exit`, `process.exit`).
    Exited(i32),
    /// It failed, or was stopped.
    Failed(Box<Failure>),
}

impl Outcome {
    /// Returns the failure of the cell, if it failed. An exit with a status other than 0 is a failure that the cell chose.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Outcome::Complete | Outcome::Exited(0) => None,
            Outcome::Exited(status) => {
                Some(Failure::new(FailureKind::Raised, "SystemExit", format!("the cell exited with status {status}")))
            }
            Outcome::Failed(failure) => Some((**failure).clone()),
        }
    }

    /// Returns true if later cells of the run may go on.
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Complete | Outcome::Exited(0))
    }

    /// The word used in logs: of a failure, its kind.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Complete => "complete",
            Outcome::Exited(_) => "exited",
            Outcome::Failed(failure) => failure.kind.as_str(),
        }
    }
}

/// Kind of a cell's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureKind {
    /// It raised or threw, or did not compile.
    Raised,
    /// It ran past its deadline.
    Timeout,
    /// Its run was cancelled, or its kernel was reset under it.
    Interrupted,
    /// Its fuel was spent.
    Fuel,
    /// Memory ran out.
    Memory,
    /// It printed more than it may.
    Output,
    /// It asked for input that its session does not provide.
    Stdin,
    /// The interpreter itself crashed: stack exhausted, `abort`, a broken guest.
    Trap,
}

impl FailureKind {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Raised => "raised",
            FailureKind::Timeout => "timeout",
            FailureKind::Interrupted => "interrupted",
            FailureKind::Fuel => "fuel",
            FailureKind::Memory => "memory",
            FailureKind::Output => "output",
            FailureKind::Stdin => "stdin",
            FailureKind::Trap => "trap",
        }
    }
}

/// Cause of a failure that is not the cell's own, for programs, which need not parse messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FailureCode {
    /// No capacity for another kernel, or for another cell of this kernel, now. The same run may succeed later.
    Busy,
    /// The cell waits for a kernel that waits for this very run.
    Deadlock,
    /// The kernel could not be started.
    Start,
    /// The audit log cannot be written, so nothing may run.
    Audit,
    /// The session's seed failed.
    Seed,
    /// The session is closed.
    Closed,
    /// The kernel was lost, and with it what was not in its last checkpoint.
    Lost,
}

impl FailureCode {
    /// Every code.
    pub const ALL: [FailureCode; 7] = [
        FailureCode::Busy,
        FailureCode::Deadlock,
        FailureCode::Start,
        FailureCode::Audit,
        FailureCode::Seed,
        FailureCode::Closed,
        FailureCode::Lost,
    ];

    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureCode::Busy => "busy",
            FailureCode::Deadlock => "deadlock",
            FailureCode::Start => "start",
            FailureCode::Audit => "audit",
            FailureCode::Seed => "seed",
            FailureCode::Closed => "closed",
            FailureCode::Lost => "lost",
        }
    }
}

/// Failure of a cell. Lines and columns are those of the cell, from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class of failure.
    pub kind: FailureKind,
    /// Cause that stopped the cell, if it is not the cell's own.
    pub code: Option<FailureCode>,
    /// Name of the exception class or error constructor.
    pub name: String,
    /// Message of the exception or error.
    pub message: String,
    /// Line at fault.
    pub line: Option<u32>,
    /// Column at fault.
    pub column: Option<u32>,
    /// The source line at fault.
    pub snippet: Option<String>,
    /// A caret line that marks the fault under `snippet`.
    pub pointer: Option<String>,
    /// The user's frames only, ending with the exception.
    pub traceback: String,
    /// True if the session keeps all state that its cells made. False if its kernel had to be killed; the message then says
    /// which state the next cell of the language continues from.
    pub state_kept: bool,
}

impl Failure {
    /// A failure that the host found, with no place in the source.
    pub fn new(kind: FailureKind, name: &str, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure {
            kind,
            code: None,
            name: name.to_owned(),
            traceback: format!("{name}: {message}"),
            message,
            line: None,
            column: None,
            snippet: None,
            pointer: None,
            state_kept: true,
        }
    }

    /// A cell that was not run, or not to its end, for a reason that is not its own.
    pub fn refused(code: FailureCode, name: &str, message: impl Into<String>) -> Failure {
        Failure { code: Some(code), ..Failure::new(FailureKind::Trap, name, message) }
    }

    /// A cell whose kernel went away, and with it some of the session's state.
    pub fn lost(message: impl Into<String>) -> Failure {
        Failure { state_kept: false, ..Failure::refused(FailureCode::Lost, "KernelError", message) }
    }

    /// One line for lists and logs: type, message and place.
    pub fn summary(&self) -> String {
        let what = if self.message.is_empty() { self.name.clone() } else { format!("{}: {}", self.name, self.message) };
        let what = what.lines().next().unwrap_or_default().to_owned();
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{what} (line {line}, column {column})"),
            (Some(line), None) => format!("{what} (line {line})"),
            _ => what,
        }
    }
}

/// Resources that a cell used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Fuel spent; `None` when the session has no fuel limit, because counting costs speed.
    pub fuel: Option<u64>,
    /// Processor time, with the host's part of bridge calls left out.
    pub cpu: Duration,
    /// The largest linear memory so far, in bytes.
    pub memory_peak_bytes: u64,
}
