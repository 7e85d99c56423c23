//! Errors as they are reported to the person who typed the command: a message, its causes, a hint, an exit code.
//!
//! Messages say what is; hints say what to do, and live here alone.

use std::{error::Error as _, io, path::PathBuf, process::ExitCode, sync::Arc};

use anstyle::{AnsiColor, Style};
use cellar_engine::{
    Error, GuestName,
    artifacts::{ArtifactError, datasets::DatasetError},
    replay::ReplayError,
    snapshot::{FormatError, SnapshotError},
};

use crate::{
    socket::is_request_fault,
    terminal::{Look, escaped, escaped_lines, say, tell},
};
use cellar_config::{ConfigError, SetupError};
use cellar_hub::{HubError, LineError};
use cellar_jupyter::KernelError;
use cellar_packages::PackageError;
use cellar_server::{ConfineError, ServeError, TokenError};
use cellar_wire::{Refusal, check::Invalid};

/// All cells ran to their end.
pub(crate) const EXIT_COMPLETE: u8 = 0;
/// A cell failed.
pub(crate) const EXIT_CELL_FAILED: u8 = 1;
/// The request or the command line is wrong.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Cellar itself failed.
pub(crate) const EXIT_FAILURE: u8 = 3;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The engine failed or refused.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The store of artifacts failed or refused.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The datasets of the store failed or refused.
    #[error(transparent)]
    Dataset(DatasetError),
    /// A package cannot be had, or the store of packages fails.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A document is not what it should be.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The command line makes no sense.
    #[error("{message}")]
    Usage { message: String, hint: Option<String> },
    /// A file that was named cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Save {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// A session of another process cannot be reached.
    #[error("cannot use the session behind `{}`", path.display())]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A session of another process refused a run.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The hub of sessions refused.
    #[error("{}", .0)]
    Hub(Arc<HubError>),
    /// No folder for guests or caches is known.
    #[error("no {what} folder is known")]
    Folder { what: &'static str, flag: &'static str },
    /// The events of a run ended before the run did.
    #[error("the run broke off")]
    BrokeOff,
    /// The server cannot be started.
    #[error(transparent)]
    Serve(ServeError),
    /// The tokens of the server cannot be read or changed.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A kernel for Jupyter cannot be run.
    #[error(transparent)]
    Kernel(KernelError),
    /// The process cannot be set up.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> CliError {
        match error {
            ConfigError::Read { path, source } => CliError::Read { path, source },
            ConfigError::Invalid(invalid) => CliError::Invalid(invalid),
            other => CliError::usage(other.to_string(), "see host/cli/README.md for its keys"),
        }
    }
}

impl From<HubError> for CliError {
    fn from(error: HubError) -> CliError {
        match error {
            HubError::Engine(error) => CliError::Engine(error),
            HubError::Artifact(error) => CliError::Artifact(error),
            HubError::Setup(error) => error.into(),
            other => CliError::Hub(Arc::new(other)),
        }
    }
}

impl From<LineError> for CliError {
    fn from(error: LineError) -> CliError {
        match error {
            LineError::Hub(error) => match Arc::try_unwrap(error) {
                Ok(error) => error.into(),
                Err(shared) => CliError::Hub(shared),
            },
            LineError::Invalid(invalid) => CliError::Invalid(invalid),
            LineError::Refused(refusal) => CliError::Refused(refusal),
            other => CliError::usage(other.to_string(), "see `cellar schema request`"),
        }
    }
}

impl From<SetupError> for CliError {
    fn from(error: SetupError) -> CliError {
        match error {
            SetupError::Engine(error) => CliError::Engine(error),
            SetupError::Artifact(error) => CliError::Artifact(error),
            SetupError::Config(error) => error.into(),
            SetupError::Package(error) => CliError::Package(error),
            SetupError::Usage { message, hint } => CliError::usage(message, hint),
            SetupError::Folder { what, flag } => CliError::Folder { what, flag },
            SetupError::Start(source) => CliError::Start(source),
            other => CliError::Start(io::Error::other(other)),
        }
    }
}

impl From<KernelError> for CliError {
    fn from(error: KernelError) -> CliError {
        match error {
            KernelError::Setup(error) => error.into(),
            KernelError::Usage { message, hint } => CliError::usage(message, hint),
            KernelError::Save { path, source } => CliError::Save { path, source },
            KernelError::Start(source) => CliError::Start(source),
            other => CliError::Kernel(other),
        }
    }
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> CliError {
        match error {
            ServeError::Setup(error) | ServeError::Confine(ConfineError::Setup(error)) => error.into(),
            ServeError::Hub(error) => error.into(),
            ServeError::Tokens(error) => CliError::Token(error),
            other => CliError::Serve(other),
        }
    }
}

impl From<DatasetError> for CliError {
    fn from(error: DatasetError) -> CliError {
        match error {
            DatasetError::Artifact(error) => CliError::Artifact(error),
            other => CliError::Dataset(other),
        }
    }
}

impl CliError {
    /// A command line that makes no sense.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> CliError {
        CliError::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// A stable word for the error.
    pub(crate) fn code(&self) -> &str {
        match self {
            CliError::Engine(error) => error.code(),
            CliError::Artifact(error) => error.code(),
            CliError::Dataset(error) => error.code(),
            CliError::Invalid(_) => Invalid::CODE,
            CliError::Usage { .. } => "usage",
            CliError::Read { .. } => "read",
            CliError::Save { .. } | CliError::Output(_) => "write",
            CliError::Socket { .. } => "socket",
            CliError::Refused(refusal) => &refusal.code,
            CliError::Hub(error) => match &**error {
                HubError::Engine(error) => error.code(),
                HubError::Artifact(error) => error.code(),
                _ => "usage",
            },
            CliError::Folder { .. } => "folder",
            CliError::BrokeOff => "broke-off",
            CliError::Serve(_) => "serve",
            CliError::Kernel(_) => "kernel",
            CliError::Token(_) => "token",
            CliError::Package(_) => "package",
            CliError::Start(_) => "start",
        }
    }

    /// The error as it is told to another program, with its causes.
    pub(crate) fn refusal(&self) -> Refusal {
        let causes = std::iter::successors(self.source(), |cause| (*cause).source());
        let message = causes.fold(self.to_string(), |message, cause| format!("{message}: {cause}"));
        Refusal { code: self.code().to_owned(), message, hint: self.hint() }
    }

    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            CliError::Invalid(_) | CliError::Usage { .. } | CliError::Read { .. } => EXIT_USAGE,
            CliError::Serve(ServeError::Tenants(_) | ServeError::Listen { .. } | ServeError::StoreServed(_)) => {
                EXIT_USAGE
            }
            CliError::Serve(ServeError::Confine(ConfineError::Layer(_))) => EXIT_USAGE,
            CliError::Kernel(_) => EXIT_USAGE,
            CliError::Token(TokenError::NameFull { .. } | TokenError::Full | TokenError::Unknown(_)) => EXIT_USAGE,
            CliError::Engine(error) if is_caller_fault(error) => EXIT_USAGE,
            CliError::Hub(error) if matches!(&**error, HubError::Engine(error) if is_caller_fault(error)) => EXIT_USAGE,
            CliError::Artifact(
                ArtifactError::Io { .. }
                | ArtifactError::Damaged(_)
                | ArtifactError::Remote { .. }
                | ArtifactError::Full,
            ) => EXIT_FAILURE,
            CliError::Artifact(_) => EXIT_USAGE,
            CliError::Dataset(_) => EXIT_USAGE,
            CliError::Package(
                PackageError::Name { .. }
                | PackageError::Unknown { .. }
                | PackageError::Native { .. }
                | PackageError::Outdated { .. }
                | PackageError::Unresolved { .. },
            ) => EXIT_USAGE,
            CliError::Refused(refusal) if is_request_fault(refusal) => EXIT_USAGE,
            _ => EXIT_FAILURE,
        }
    }

    /// Returns true if the reader of the output went away, which is no fault.
    pub(crate) fn is_reader_gone(&self) -> bool {
        matches!(self, CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns a hint at a remedy, if there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            CliError::Engine(error) => return engine_hint(error).map(str::to_owned),
            CliError::Usage { hint, .. } => return hint.clone(),
            CliError::Refused(refusal) => return refusal.hint.clone(),
            CliError::Hub(error) => {
                return match &**error {
                    HubError::Engine(error) => engine_hint(error).map(str::to_owned),
                    other => other.hint(),
                };
            }
            CliError::Folder { what, flag } => return Some(format!("name the {what} folder with {flag}")),
            CliError::Artifact(ArtifactError::Unknown(_) | ArtifactError::Ambiguous(_) | ArtifactError::NotAnId(_)) => {
                "list them with `cellar artifact list`, those of runs without --session with --temporary"
            }
            CliError::Artifact(ArtifactError::NoRemote) => {
                "say `remote` under [artifacts] in a cellar.toml, and name that with --config"
            }
            CliError::Artifact(ArtifactError::Damaged(_)) => "try its remote copy again with `cellar artifact pull ID`",
            CliError::Dataset(DatasetError::Unknown { .. } | DatasetError::Ambiguous { .. }) => {
                "list them with `cellar dataset list`"
            }
            CliError::Artifact(_) | CliError::Dataset(_) => return None,
            CliError::Package(error) => return package_hint(error),
            CliError::Socket { .. } => "the socket lives as long as the agent call that it was made for",
            CliError::Invalid(_) | CliError::Read { .. } | CliError::Save { .. } | CliError::Output(_) => return None,
            CliError::Serve(ServeError::StoreServed(_)) => "stop it first, or name another folder with --store",
            CliError::Serve(ServeError::Listen { .. }) => "name another address with --listen",
            CliError::Serve(ServeError::Confine(_)) => {
                "without `isolate = \"process\"` under [server], the layers that the kernel has are enough"
            }
            CliError::Token(TokenError::NameFull { .. }) => "revoke one of them with `cellar token revoke ID`",
            CliError::Token(TokenError::Unknown(_)) => "list them with `cellar token list`",
            CliError::Kernel(KernelError::Bind { .. }) => "Jupyter chooses other ports when it starts the kernel again",
            CliError::Kernel(_) | CliError::BrokeOff | CliError::Serve(_) | CliError::Token(_) | CliError::Start(_) => {
                return None;
            }
        };
        Some(hint.to_owned())
    }
}

/// Returns true if the engine refused the request in a way that no other try would change.
fn is_caller_fault(error: &Error) -> bool {
    match error {
        Error::Request(_)
        | Error::Mount { .. }
        | Error::Snapshot(_)
        | Error::Replay(ReplayError::File(_) | ReplayError::CutOff { .. })
        | Error::SessionName(_)
        | Error::SessionUnknown(_)
        | Error::SessionExists(_)
        | Error::SessionBusy(_)
        | Error::StateUnknown(_) => true,
        Error::Recording { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory
        ),
        _ => false,
    }
}

fn engine_hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::GuestMissing { guest: GuestName::PythonData, .. } => {
            "build it with `make data-guest`, or name the folder of the guests with --guests"
        }
        Error::GuestsUnknown | Error::GuestMissing { .. } => {
            "build the guests with `make guests`, or name their folder with --guests"
        }
        Error::GuestBroken { .. } | Error::GuestVersion { .. } | Error::GuestImport { .. } => {
            "build the guests again with `make guests`"
        }
        Error::NotBaked { .. } => {
            "run `cellar bake`, with `--stops safepoints` where the configuration says so, and `--fuel` where cells have some"
        }
        Error::Bake { .. } => "build the guests again with `make guests`, then run `cellar bake --force`",
        Error::SessionUnknown(_) => "list the sessions that are kept with `cellar session list`",
        Error::StateUnknown(_) => "list the states that are kept with `cellar session log NAME`",
        Error::SessionExists(_) => {
            "choose another name, or remove it first with `cellar session remove NAME`; `cellar session restore --force` \
             takes it back to a snapshot"
        }
        Error::SessionBusy(_) => "wait until the run that uses it has ended, or choose another name",
        Error::Snapshot(SnapshotError::File(error)) if is_of_another_build(error) => {
            "name its guest with --guest, such as python-data, or use the build that made it; or remove the session with \
             `cellar session remove NAME`"
        }
        Error::Snapshot(SnapshotError::Memory { .. }) => "grant more with --memory",
        Error::Replay(ReplayError::File(error)) if is_of_another_build(error) => "use the build that made it",
        Error::KernelsExhausted => {
            "wait until other cells have ended, or raise `kernels` under [host] of the `cellar.toml`"
        }
        Error::Audit { .. } => "name a plain file in a folder that is there and that you may write to",
        Error::Mount { .. } => "grant a folder that exists: --mount HOST:GUEST, HOST a folder, GUEST an absolute path",
        Error::Deadlock { .. } => "await the call in that cell: its plain form holds the kernel until it returns",
        Error::Threads { .. } => "join the threads in a cell, or close what started them: an executor, a pool, a timer",
        _ => return None,
    })
}

fn package_hint(error: &PackageError) -> Option<String> {
    Some(match error {
        PackageError::Unknown { name, .. } if name.contains(':') => format!("add it with `cellar packages add {name}`"),
        PackageError::Unknown { name, .. } => {
            format!("add it with `cellar packages add {name}`; a folder is named with a slash: ./{name}")
        }
        PackageError::Missing { .. } => "fetch the rest with `cellar packages restore`".to_owned(),
        PackageError::Outdated { name, version, .. } => {
            format!(
                "name the version to have it: `cellar packages add '{name}=={version}'`; or let the host do the work as a tool"
            )
        }
        PackageError::Native { .. } => {
            "use a package without native code, or let the host do the work as a tool: [tools.NAME] in a cellar.toml"
                .to_owned()
        }
        PackageError::Client { client: "npm", .. } => "install Node, whose npm fetches packages".to_owned(),
        PackageError::Client { .. } => "install Python 3 with pip, which fetches packages".to_owned(),
        PackageError::Lock { .. } => "remove it, and add the packages again with `cellar packages add`".to_owned(),
        _ => return None,
    })
}

fn is_of_another_build(error: &FormatError) -> bool {
    matches!(error, FormatError::Guest { .. } | FormatError::World { .. } | FormatError::Version { .. })
}

/// Prints an error on standard error, with its causes and its hint.
pub(crate) fn print_error(error: &CliError) {
    let mut text = format!("{ERROR}error:{ERROR:#} {}\n", message(&error.to_string()));
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!("  {DIM}caused by:{DIM:#} {}\n", message(&error.to_string())));
        cause = error.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("{HINT}hint:{HINT:#} {}\n", escaped(&hint)));
    }
    tell(&text);
}

/// Formats a message without characters that control a terminal. Its further lines are indented, so that none looks
/// like a line of the program's own.
fn message(text: &str) -> String {
    let text = escaped_lines(text);
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |message, line| {
        let indent = if line.starts_with("  ") { "" } else { "  " };
        format!("{message}\n{indent}{line}")
    })
}

/// Prints a hint on standard error.
pub(crate) fn print_hint(hint: &str) {
    tell(&format!("{HINT}hint:{HINT:#} {}\n", escaped(hint)));
}

/// Prints a line of progress on standard error.
pub(crate) fn print_progress(text: &str) {
    tell(&format!("{DIM}{}{DIM:#}\n", escaped(text)));
}

/// Prints clap's error about a command line, which quotes it, or the help that was asked for. Returns the exit code.
pub(crate) fn print_usage(error: clap::Error) -> ExitCode {
    let text = error.render();
    if error.use_stderr() {
        tell(&text.ansi().to_string());
    } else {
        let text = if Look::of_stdout().has_colors { text.ansi().to_string() } else { text.to_string() };
        // Nobody is left to tell when standard output is closed.
        let _ = say(&text);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE))
}

#[cfg(test)]
mod tests;
