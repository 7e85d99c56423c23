//! A kernel for Jupyter: notebooks of JupyterLab, VS Code, nbclient and papermill whose cells run in a sandbox.
//!
//! A kernel is a process that a client starts with a connection file, which says where to listen and how messages are
//! signed. This crate translates: messages into runs of the hub, events of runs into messages. It has no run path and no
//! state of cells of its own, and knows nothing of the command line.
//!
//! The sockets are this crate's own (`zmtp`), because what reaches them unsigned must be bounded. Read [`serve`] first.

mod connection;
mod error;
mod execute;
mod history;
mod install;
mod kernel;
mod looks;
mod magic;
mod message;
mod profile;
// It reads what anybody may send: nothing there wraps or panics.
#[cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
mod zmtp;

pub use connection::Connection;
pub use error::KernelError;
pub use install::{Place, Spec, install};
pub use kernel::{KernelConfig, serve};
pub use profile::display_name;
