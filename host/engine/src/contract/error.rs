//! Errors of the engine and of its caller. A cell that fails is not here: see [`crate::Outcome`].

use std::path::PathBuf;

use cellar_core::{
    cell::{GuestName, Language},
    outcome::{Failure, FailureCode},
    text::describe,
};
use cellar_files::MountError;

use crate::{
    contract::bridge::CallError,
    formats::{snapshot::SnapshotError, tape::ReplayError},
};

/// The cause of an error, as the layer below reported it.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of the engine or its caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum Error {
    /// A guest is not there.
    #[error("the guest `{guest}` is not there: nothing at `{}`", path.display())]
    GuestMissing { guest: GuestName, path: PathBuf },

    /// A guest's folder is there and cannot be used.
    #[error("guest `{}` cannot be loaded", path.display())]
    GuestBroken {
        path: PathBuf,
        #[source]
        source: Cause,
    },

    /// A guest implements another version of the kernel world.
    #[error("guest `{}` was built for cellar:kernel@{found}, this host speaks cellar:kernel@{wanted}", path.display())]
    GuestVersion { path: PathBuf, found: String, wanted: String },

    /// A guest imports something the kernel world does not have.
    #[error("guest `{}` imports `{import}`, which is not part of cellar:kernel", path.display())]
    GuestImport { path: PathBuf, import: String },

    /// No installed guests were found.
    #[error(
        "no guests are installed: neither with this program nor with the `cellar` in PATH, nor in the user's data folder; name \
         their folder in CELLAR_GUESTS"
    )]
    GuestsUnknown,

    /// A guest has not been baked by this build of the engine.
    #[error("guest `{name}` is not baked for this host, as `cellar bake` does: {reason}")]
    NotBaked { name: String, reason: String },

    /// Baking failed.
    #[error("cannot bake guest `{name}` while {doing}")]
    Bake {
        name: String,
        doing: String,
        #[source]
        source: Cause,
    },

    /// wasmtime refused its configuration or could not reserve memory.
    #[error("cannot start the wasm engine")]
    Engine(#[source] Cause),

    /// A kernel could not be started.
    #[error("cannot start a {} kernel", language.title())]
    Kernel {
        language: Language,
        #[source]
        source: Cause,
    },

    /// So many cells wait for a kernel that no more may.
    #[error("{count} cells wait for the {} kernel already", language.title())]
    CellsWaiting { language: Language, count: usize },

    /// A question about a session was not answered.
    #[error("cannot look into the {} session: {reason}", language.title())]
    Look { language: Language, reason: String },

    /// All kernels are in use.
    #[error("every kernel of this host is in use")]
    KernelsExhausted,

    /// A folder cannot be granted.
    #[error(transparent)]
    Mount(#[from] MountError),

    /// The private folders of a session could not be made.
    #[error("cannot make the private folders of a session")]
    Workspace(#[source] std::io::Error),

    /// A request that makes no sense, found after parsing.
    #[error("{0}")]
    Request(String),

    /// A run would wait for a kernel that waits for that very run.
    #[error("the {} kernel is blocked by a synchronous {bridge}() call in <cell {cell}>", language.title())]
    Deadlock { language: Language, bridge: &'static str, cell: u32 },

    /// A state with threads cannot be captured.
    #[error(
        "the {} kernel has threads, or code that waits in the middle of a function, which no snapshot can hold: join or end \
         those threads first, and await calls: `await ….aio(…)`", language.title()
    )]
    Threads { language: Language, count: u32 },

    /// Agents nested too deep.
    #[error("agents are nested {depth} deep, at most {max} are allowed")]
    AgentDepth { depth: u32, max: u32 },

    /// A run that names its producer within another one.
    #[error("a run that names its producer, `{producer}`, cannot be made within another such run of the session")]
    NestedProducer { producer: String },

    /// There is no such input request, or it has been answered.
    #[error("no input request `{0}` is open")]
    InputRequest(String),

    /// The session was closed.
    #[error("session `{0}` is closed")]
    SessionClosed(String),

    /// The name of a session to be stored is not one.
    #[error(
        "`{0}` cannot name a stored session: a name has 1 to 100 letters, digits, `.`, `-` and `_`, and begins with none of `.` and `-`"
    )]
    SessionName(String),

    /// A stored session is not there.
    #[error("no session `{0}` is stored")]
    SessionUnknown(String),

    /// A stored session is there already.
    #[error("a session `{0}` is stored already")]
    SessionExists(String),

    /// A stored session lives elsewhere.
    #[error("session `{0}` is in use by another process, or another part of this one")]
    SessionBusy(String),

    /// No state of the session has this number or name.
    #[error("no state `{0}` of the session is kept")]
    StateUnknown(String),

    /// The folder of stored sessions failed.
    #[error("cannot {doing} `{}`", path.display())]
    Store {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    /// A snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),

    /// The file of a recording failed.
    #[error("cannot {doing} the recording `{}`", path.display())]
    Recording {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    /// A recording cannot be replayed, or not to its end.
    #[error(transparent)]
    Replay(#[from] ReplayError),

    /// The file of an audit log cannot be used.
    #[error("cannot write the audit log `{}`", path.display())]
    Audit {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    /// A bridge refused a call made on the host's side.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Error {
    /// A stable word for the error, for clients to match on.
    pub fn code(&self) -> &'static str {
        match self {
            Error::GuestMissing { .. } => "guest-missing",
            Error::GuestBroken { .. } => "guest-broken",
            Error::GuestVersion { .. } => "guest-version",
            Error::GuestImport { .. } => "guest-import",
            Error::GuestsUnknown => "guests-unknown",
            Error::NotBaked { .. } => "not-baked",
            Error::Bake { .. } => "bake",
            Error::Engine(_) => "engine",
            Error::Kernel { .. } => "kernel",
            Error::CellsWaiting { .. } => "cells-waiting",
            Error::Look { .. } => "look",
            Error::KernelsExhausted => "kernels-exhausted",
            Error::Mount(_) => "mount",
            Error::Workspace(_) => "workspace",
            Error::Request(_) => "request",
            Error::Deadlock { .. } => "deadlock",
            Error::Threads { .. } => "threads",
            Error::AgentDepth { .. } => "agent-depth",
            Error::NestedProducer { .. } => "nested-producer",
            Error::InputRequest(_) => "input-request",
            Error::SessionClosed(_) => "session-closed",
            Error::SessionName(_) => "session-name",
            Error::SessionUnknown(_) => "session-unknown",
            Error::SessionExists(_) => "session-exists",
            Error::SessionBusy(_) => "session-busy",
            Error::StateUnknown(_) => "state-unknown",
            Error::Store { .. } => "store",
            Error::Snapshot(_) => "snapshot",
            Error::Recording { .. } => "recording",
            Error::Replay(_) => "replay",
            Error::Audit { .. } => "audit",
            Error::Call(_) => "call",
        }
    }

    /// The failure of a cell that could not be started for this reason.
    pub(crate) fn into_failure(self) -> Failure {
        let (code, name) = match &self {
            Error::Deadlock { .. } => (FailureCode::Deadlock, "Deadlock"),
            Error::KernelsExhausted | Error::CellsWaiting { .. } => (FailureCode::Busy, "KernelError"),
            Error::SessionClosed(_) => (FailureCode::Closed, "KernelError"),
            _ => (FailureCode::Start, "KernelError"),
        };
        Failure::refused(code, name, describe(&self))
    }
}
