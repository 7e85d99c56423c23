//! Runs cells of Python and JavaScript inside WebAssembly sandboxes, and keeps their state from cell to cell.
//!
//! # Brief overview
//!
//! A [`Host`] is a process's engine. It opens [`Session`]s, each with its own grants and limits. A session runs
//! [`Cell`]s: [`Session::run`] gives a [`Run`], the stream of [`Event`]s of those cells. What a cell may reach beyond
//! its folders (tools, models, agents) is answered by the embedder through [`Bridges`].
//!
//! # Example
//!
//! ```no_run
//! use cellar_engine::{Cell, Host, HostConfig, Language, SessionConfig};
//!
//! # async fn example() -> Result<(), cellar_engine::Error> {
//! let host = Host::open(HostConfig::new("target/guests".into(), "/var/cache/cellar".into()))?;
//! let session = host.session(SessionConfig::default())?;
//! let run = session.run(vec![
//!     Cell::new(Language::Python, "squares = [n * n for n in range(10)]"),
//!     Cell::new(Language::Python, "sum(squares)"),
//! ])?;
//! let result = run.collect_result().await;
//! assert_eq!(result.text(), "285");
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - One run path: everything that executes is a [`Run`], and its output leaves once, as events.
//! - A cell that raises, runs too long or uses too much is an [`Outcome`], not an [`Error`].
//! - Dropping a run cancels it; dropping a session or the host frees everything they hold.
//! - The engine holds no credential, opens no socket and starts no process.

#![deny(unsafe_code)]

mod audit;
mod contract;
mod formats;
mod kernel;
mod session;
mod storage;

pub use audit::*;
pub use cellar_core::{
    cell::{Cell, CellId, GuestName, Language, RunId},
    event::{Bridge, Event, EventKind, KeptText, Scalar},
    limits,
    limits::Limits,
    mime::{MimeBundle, MimeData, RESOURCE_TYPE},
    outcome::{Failure, FailureCode, FailureKind, Outcome, Usage},
};
pub use cellar_files::{Access, Mount, MountError};
pub use cellar_results::{
    artifacts::*,
    renderer::{RenderError, RenderFuture, Rendered, Renderer},
    result::*,
};
pub use contract::{
    bridge::{
        AgentCall, BridgeGrants, Call, CallError, CallErrorKind, CallFuture, HttpCall, HttpResponse, PackSpec,
        PrimitiveSpec, Response, ToolSpec, ToolsFuture, denied,
    },
    config::{HostConfig, KernelMode, PACKAGES, Rests, Seed, WORKSPACE},
    error::Error,
};
pub use formats::{
    header::{FileKind, FormatError},
    remembered::{Experience, Remembered, Summary},
    snapshot::{Snapshot, SnapshotError},
    tape::ReplayError,
};
pub use kernel::{
    host::{GuestState, GuestStatus, Host, guest_status},
    image::{BakeReport, bake},
    introspection::{Completeness, Completion, Completions, Variable},
};
pub use session::{
    Session, SessionConfig,
    granted::{Bridges, Caller, NoBridges},
    history::CellSource,
    replay::{Replay, Replayed},
    run::{Canceller, Run},
    selfref_pack,
};
pub use storage::vault::{Claim, SessionStore, StateFile, StoredInfo, StoredSession, Vault};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the library's manual.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Manual;
