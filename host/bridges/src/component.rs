//! Tools that are WASI programs: components of the world `wasi:cli/command`, and plain modules that import
//! `wasi_snapshot_preview1`, of which components are made first. Each call has a sandbox of its own: bytes in on standard
//! input, bytes out on standard output.
//!
//! Compiled code is kept in memory, and in a folder if [`keep_compiled_in`] names one. Cells run in the engine's own sandboxes:
//! the two share no code but wasmtime's.

use cellar_engine::bridges::{CallError, CallErrorKind};

use crate::{
    command::{inherited, last_lines},
    options::Component,
};

mod bounds;
mod machine;
mod printed;
mod program;

pub use machine::keep_compiled_in;
pub use program::ComponentProgram;
use program::RunError;

/// Compiles a component unless it is cached, and opens its folders, which is the only way to know that it can be used.
///
/// # Errors
/// The component cannot be used: the reason in words that continue after its name.
pub async fn check(component: &Component) -> Result<(), String> {
    machine::check(&component.program).await.map_err(|error| error.to_string())
}

/// Runs `component` with `input` on its standard input and returns what it printed. `who` names it in messages.
///
/// # Errors
/// It cannot be used, reached a bound, or ended with a status other than 0: then with the last lines of its standard
/// error.
///
/// # Cancel safety
/// Dropping the future ends the component.
pub(crate) async fn run(component: &Component, who: &str, input: Vec<u8>) -> Result<Vec<u8>, CallError> {
    let mut program = component.program.clone();
    let inherited = inherited(&component.inherit, &program.environment);
    // WASI has variables that are text alone.
    let texts = inherited.into_iter().filter_map(|(name, value)| Some((name, value.into_string().ok()?)));
    program.environment.splice(0..0, texts);
    machine::run(&program, input).await.map_err(|error| failure(who, &error))
}

fn failure(who: &str, error: &RunError) -> CallError {
    let kind = if error.is_limit() { CallErrorKind::Limit } else { CallErrorKind::Failed };
    CallError::new(kind, format!("{who} {error}{}", last_lines(error.errors())))
}
