//! The engine for programs in other languages: one [`Engine`] a process, and [`Connection`]s that carry the lines of `cellar stdio`:
//! to a hub in this process, or to a server over a WebSocket. The crates that make modules of Python and of Node translate between
//! these and the objects of their language, and nothing else.
//!
//! Read [`Engine`] first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod connection;
mod engine;
mod error;
mod files;
mod functions;
mod place;
mod program;
mod remote;
mod replay;
mod state;

use std::sync::Arc;

pub use cellar_core::looks::Variable;
pub use cellar_files::{FileError, ListedFile};
pub use connection::{Connection, Mailbox, Received, Recipient, SendError};
pub use engine::{Engine, OpenHub, Opening, Settings, digest};
pub use error::EmbedError;
pub use files::Files;
pub use place::InProcess;
pub use program::{Answering, Program, over_bridges};
pub use remote::{carry, open_socket};
pub use state::Local;
pub use tokio::runtime::Handle as Runtime;

/// Recipient of the calls of cells, each a line of JSON. It is called by a task of the engine, and must not block.
pub type Handler = Arc<dyn Fn(Vec<u8>) + Send + Sync>;
