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
//! use cellar_engine::{Cell, Host, HostConfig, HostFolders, Language, SessionConfig};
//!
//! # async fn example() -> Result<(), cellar_engine::Error> {
//! let host = Host::open(HostConfig::new(HostFolders::installed()?))?;
//! let session = host.session(SessionConfig::default())?;
//! session.run(vec![Cell::new(Language::Python, "squares = [n * n for n in range(10)]")])?.collect_result().await;
//! let result = session.run(vec![Cell::new(Language::Python, "sum(squares)")])?.collect_result().await;
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

//!
//! # What it needs
//!
//! - tokio, with its timers: sessions are opened and runs are polled within a runtime. Kernels are tasks of it. With the
//!   current-thread runtime the engine works too, but a cell that computes then holds all others up until its next poll.
//! - Linux on a 64-bit processor: memory images are mapped, and address space is reserved for each kernel.
//!
//! # Features
//!
//! All are off unless asked for.
//!
//! - `bake`: [`guests::bake`], and with it a compiler. Without it, a host loads what another build with the same wasmtime
//!   has baked and compiled, for a processor like its own.
//! - `tables`: tables that cells display are kept as Parquet, and read back a page at a time.
//! - `tokens`: long texts are cut where a model's tokenizer says, not where a rule of thumb does.
//!
//! # Changes to come
//!
//! Enumerations that will grow are `#[non_exhaustive]`. Structures of options have public fields and a constructor or a
//! `Default`: fields are added to them, so build them with `..Default::default()`.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod audit;
mod contract;
mod formats;
mod kernel;
mod session;
mod storage;

pub use cellar_core::{
    cell::{Cell, CellId, GuestName, Language, RunId},
    event::{self, Event, EventKind},
    limits::{self, Limits},
    mime, origin,
    outcome::{self, Outcome},
};
pub use cellar_results::{
    artifacts, pictures, renderer,
    result::{self as results, RunResult},
};

pub use self::{
    bridges::Bridges,
    contract::{
        config::{HostConfig, HostFolders},
        error::Error,
    },
    formats::snapshot::Snapshot,
    kernel::host::Host,
    session::{
        CommandInput, DiskBudget, Driver, Session, SessionConfig, made_up_id,
        run::{Canceller, Run},
    },
};

/// Output of a session's code while none of its cells runs.
pub mod background {
    pub use crate::kernel::events::{Background, BackgroundReader};
}

/// Calls that leave cells, and the trait that answers them.
pub mod bridges {
    pub use cellar_stubs::{Catalog, SEARCHED_FROM};

    pub use crate::{
        contract::bridge::{
            AgentCall, BridgeGrants, Call, CallError, CallErrorKind, CallFuture, ChannelAnswer, ChannelCall,
            Compression, ConnectorSpec, Conversion, Direction, DiskUsage, Drawing, FetchFuture, FetchName, FetchSpec,
            FetchedTable, Format, HttpCall, HttpResponse, LentTable, LoadedDataset, OutputStream, PackSpec, PipeEnd,
            PipeText, Pipes, PrimitiveSpec, ProcessCall, ProcessEnd, ProcessFailure, ProcessFailureKind,
            ProcessRequest, Response, TableCall, ToolSpec, ToolsFuture, Transferred, denied,
        },
        kernel::{calls::Account, scheduling::answers_soon},
        session::{
            catalog,
            granted::{Bridges, Caller, NoBridges},
            selfref_pack,
            waits::{Verdict, Wait},
        },
    };
}

/// Configuration types of embedders besides [`HostConfig`] and [`SessionConfig`].
pub mod config {
    pub use cellar_core::run::RunOptions;

    pub use crate::{
        contract::config::{
            ALIASES, HistoryOptions, KernelMode, PACKAGES, Rests, Seed, Stops, TEMPORARY, Target, WORKSPACE,
        },
        kernel::{
            events::{Unread, UnreadBytes},
            scheduling::{CpuShare, MemoryBudget, WEIGHT, WEIGHT_MAX},
        },
        session::{FolderGrants, KernelOptions, OutputOptions, SharedBudgets},
    };
}

/// Granted folders.
pub mod files {
    pub use cellar_files::{Access, DiskPool, Mount, MountError};
}

/// Guests: their state, and how to prepare them.
pub mod guests {
    #[cfg(feature = "bake")]
    pub use crate::kernel::code::{BakeOptions, BakeReport, bake};
    pub use crate::kernel::host::{GuestState, GuestStatus, former_languages, guest_status};
}

/// Answers to questions about a session.
pub mod looks {
    pub use cellar_core::looks::{Completeness, Completion, Completions, Variable};

    pub use crate::session::history::CellSource;
}

/// Playing a recording again.
pub mod replay {
    pub use crate::{
        formats::tape::ReplayError,
        session::saved::replay::{Replay, Replayed},
    };
}

/// Contents of a [`Snapshot`], and errors of reading one.
pub mod snapshot {
    pub use crate::formats::{
        header::{FileKind, FormatError},
        remembered::{Experience, Remembered, Summary},
        snapshot::SnapshotError,
    };
}

/// The states of a session that are kept, as a tree.
pub mod states {
    pub use crate::{
        session::states::{FileChange, NameChange, StateDiff},
        storage::states::{Change, StateChange, StateInfo, StateList},
    };
}

/// Stored sessions, and their storage.
pub mod store {
    pub use crate::storage::{
        vault::{Claim, SessionStore, StateFile, StoredInfo, StoredSession, Vault, check_name},
        workspace::OwnFolder,
    };
}

/// Compile-time check: embedders move these types between tasks and threads.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    const fn is_sent<T: Send>() {}
    is_shared::<Host>();
    is_shared::<Session>();
    is_shared::<SessionConfig>();
    is_shared::<Canceller>();
    is_shared::<Snapshot>();
    is_shared::<Event>();
    is_shared::<RunResult>();
    is_shared::<Error>();
    is_shared::<artifacts::ArtifactStore>();
    is_shared::<store::SessionStore>();
    is_shared::<store::StoredSession>();
    is_sent::<Run>();
    is_sent::<replay::Replay>();
};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the library's manual.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Manual;
