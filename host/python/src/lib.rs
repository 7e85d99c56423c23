//! The engine as a module of Python, `cellar._cellar`. It carries the lines of `cellar stdio`: to a hub in this process, or to a
//! server over a WebSocket. What they mean to a program is said in Python, in the package `cellar` beside this crate.
//!
//! Whatever waits here waits without the interpreter's lock. Read `engine::Engine` first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod connection;
mod engine;
mod files;
mod functions;
mod here;
mod remote;
mod state;

use cellar_embed::EmbedError;
use pyo3::{create_exception, exceptions::PyException, prelude::*};

create_exception!(cellar, EngineError, PyException, "Refusal of the engine: its code, its message and a hint.");

/// Turns an error into the exception that Python sees.
fn refused(code: &str, error: &dyn std::error::Error) -> PyErr {
    EngineError::new_err((code.to_owned(), cellar_core::text::describe(error), None::<String>))
}

/// Turns a refusal into the exception that Python sees.
fn embed_refused(EmbedError { code, message, hint }: EmbedError) -> PyErr {
    EngineError::new_err((code, message, hint))
}

/// Refuses what was made before this process was forked: its threads are not here.
fn check_process(process: u32) -> PyResult<()> {
    EmbedError::check_process(process).map_err(embed_refused)
}

/// The module.
#[pymodule]
fn _cellar(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<engine::Engine>()?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<connection::Mailbox>()?;
    module.add_class::<files::Files>()?;
    module.add_class::<state::Sessions>()?;
    module.add_class::<remote::Server>()?;
    module.add("EngineError", module.py().get_type::<EngineError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
