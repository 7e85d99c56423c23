//! A kernel for Jupyter: notebooks of JupyterLab, VS Code, nbclient and papermill whose cells run in a sandbox.
//!
//! This crate translates: messages into runs of the hub, events of runs into messages. It has no run path and no state of
//! cells of its own, and knows nothing of the command line. A kernel (`kernel`) is the same whoever carries its messages:
//!
//! * A client starts it as a process, with a connection file that says where to listen and how messages are signed: see
//!   [`serve`]. The sockets are this crate's own (`zmtp`), because what reaches them unsigned must be bounded.
//! * A server has it, and clients of the server come over WebSockets: see [`WebKernel`]. The server says who may.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

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
mod queue;
mod sockets;
mod web;
mod zmtp;

pub use connection::Connection;
pub use error::KernelError;
pub use execute::shown;
pub use install::{LOGO, Place, Spec, install};
pub use profile::{FOLDER_KERNEL, display_name, guest_named, spec_name};
pub use sockets::{KernelConfig, serve};
pub use web::{Client, FRAME_BYTES_MAX, Form, Frame, Hearing, Room, Speaking, State, WebKernel};
