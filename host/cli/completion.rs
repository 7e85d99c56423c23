//! Completion of the command line by shells: its words, and the names of sessions and datasets that are kept.

use std::{ffi::OsStr, path::PathBuf};

use cellar_config::{ArtifactsTable, Folders};
use clap::{Command, CommandFactory, builder::StyledStr};
use clap_complete::{
    CompleteEnv, Shell,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::Shells,
};

use crate::{args::Arguments, report::CliError, terminal::is_harmful};

/// Environment variable by which a shell asks for completions.
const VARIABLE: &str = "CELLAR_COMPLETE";
/// Names that are offered.
const NAMES_MAX: usize = 1_000;

/// Answers a shell that asks for completions, and ends the process then. Nothing else may run yet.
pub(crate) fn answer() {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// The script that has a shell ask.
///
/// # Errors
/// The shell is not known.
pub(crate) fn script(shell: Shell) -> Result<Vec<u8>, CliError> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let known = shells.completer(&name);
    let known = known.ok_or_else(|| CliError::usage(format!("there is no script for {name}"), "use another shell"))?;
    let mut script = Vec::new();
    known.write_registration(VARIABLE, "cellar", "cellar", "cellar", &mut script).map_err(CliError::Output)?;
    Ok(script)
}

/// The command line without its hidden commands.
fn command() -> Command {
    let whole = Arguments::command();
    let shown: Vec<Command> = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    Command::new("cellar")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(whole.get_arguments().cloned())
        .subcommands(shown)
}

/// Completes the names of kept sessions.
pub(crate) fn sessions() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let listed = folders().sessions().ok().and_then(|store| store.list().ok()).unwrap_or_default();
        candidates(begun, listed.into_iter().map(|session| (session.name, None)))
    })
}

/// Completes the ids of calls that wait.
pub(crate) fn calls() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let listed = crate::calls::waiting(&folders()).unwrap_or_default();
        candidates(begun, listed.into_iter().map(|call| (call.call, Some(format!("{} {}", call.bridge, call.name)))))
    })
}

/// Completes the names of datasets.
pub(crate) fn datasets() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| candidates(begun, published("")))
}

/// Completes what cells may be let load: `dataset:NAME`, and `none`.
pub(crate) fn seen() -> ArgValueCompleter {
    ArgValueCompleter::new(|begun: &OsStr| {
        let none = ("none".to_owned(), Some("no dataset at all".to_owned()));
        candidates(begun, std::iter::once(none).chain(published("dataset:")))
    })
}

/// Names of datasets behind a prefix, each with its version.
fn published(prefix: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let store = folders().artifacts(&ArtifactsTable::default()).ok();
    let listed = store.and_then(|store| store.datasets().list().ok()).unwrap_or_default();
    listed.into_iter().map(move |each| (format!("{prefix}{}", each.name), Some(format!("version {}", each.version))))
}

/// The folders as the environment names them: a line that is being typed is not read.
fn folders() -> Folders {
    Folders { store: std::env::var_os("CELLAR_STORE").map(PathBuf::from), ..Folders::default() }
}

fn candidates(begun: &OsStr, names: impl Iterator<Item = (String, Option<String>)>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let fits = names.filter(|(name, _)| name.starts_with(&*begun) && !name.contains(is_harmful));
    fits.take(NAMES_MAX).map(|(name, about)| CompletionCandidate::new(name).help(about.map(StyledStr::from))).collect()
}
