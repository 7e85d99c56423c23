//! Runs a configured component: bytes in on standard input, bytes out on standard output, in a sandbox of its own.

use std::path::PathBuf;

use cellar_components::RunError;
use cellar_engine::bridges::{CallError, CallErrorKind};

use crate::{
    command::{inherited, last_lines},
    options::Component,
};

/// Has compiled components kept in this folder, besides in memory, from now on. The first call counts.
pub fn keep_compiled_in(folder: PathBuf) {
    cellar_components::keep_compiled_in(folder);
}

/// Compiles a component unless that was done, and opens its folders, which is the only way to know that it can be used.
///
/// # Errors
/// Why it cannot be, in words that go on after its name.
pub async fn check(component: &Component) -> Result<(), String> {
    cellar_components::check(&component.program).await.map_err(|error| error.to_string())
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
    cellar_components::run(&program, input).await.map_err(|error| failure(who, &error))
}

fn failure(who: &str, error: &RunError) -> CallError {
    let kind = if error.is_limit() { CallErrorKind::Limit } else { CallErrorKind::Failed };
    CallError::new(kind, format!("{who} {error}{}", last_lines(error.errors())))
}
