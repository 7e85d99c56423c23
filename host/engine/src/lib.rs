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

mod artifact;
mod artifacts;
mod audit;
mod bindings;
mod bridge;
mod calls;
mod cell;
mod checkpoint;
mod config;
mod error;
mod event;
mod files;
mod guest;
mod history;
mod host;
mod input;
mod introspection;
mod kernel;
pub mod limits;
mod locals;
mod manifest;
mod memory;
mod meter;
mod mime;
mod outcome;
mod prefix;
mod reactor;
mod record;
mod remembered;
mod renderer;
mod replay;
mod result;
mod run;
mod session;
mod snapshot;
mod store;
mod store_files;
mod store_imports;
mod store_state;
mod sweep;
mod tables;
mod tape;
mod vault;
mod workspace;

pub use artifact::{BakeReport, bake};
pub use artifacts::*;
pub use audit::*;
pub use bridge::{
    AgentCall, BridgeGrants, Bridges, Call, CallError, CallErrorKind, CallFuture, Caller, HttpCall, HttpResponse,
    NoBridges, PackSpec, PrimitiveSpec, Response, ToolSpec, ToolsFuture, denied,
};
pub use cell::{Cell, CellId, GuestName, Language, RunId};
pub use config::{HostConfig, KernelMode, PACKAGES, Rests, Seed, WORKSPACE};
pub use error::Error;
pub use event::{Bridge, Event, EventKind, KeptText, Scalar};
pub use files::{Access, Mount, MountError};
pub use history::CellSource;
pub use host::{GuestState, GuestStatus, Host, guest_status};
pub use introspection::{Completion, Completions, Variable};
pub use limits::Limits;
pub use mime::{MimeBundle, MimeData, RESOURCE_TYPE};
pub use outcome::{Failure, FailureKind, Outcome, Usage};
pub use prefix::{FileKind, FormatError};
pub use remembered::{Experience, Remembered, Summary};
pub use renderer::{RenderError, RenderFuture, Rendered, Renderer};
pub use replay::{Replay, Replayed};
pub use result::*;
pub use run::{Canceller, Run};
pub use session::{Session, SessionConfig, selfref_pack};
pub use snapshot::{Snapshot, SnapshotError};
pub use tape::ReplayError;
pub use vault::{Claim, SessionStore, StateFile, StoredInfo, StoredSession, Vault};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
