//! A WASI program that is a tool, and why a call of it has no result.

use std::{path::PathBuf, time::Duration};

use cellar_files::Mount;

/// Bytes a program may print on standard output.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Bytes of its standard error that are kept, the last ones.
pub(crate) const ERROR_BYTES_MAX: usize = 8 << 10;

/// A WASI program, and the grants of each call: folders, variables, memory, fuel and time, and nothing else. There is no
/// network and no other program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentProgram {
    /// The component, or the module.
    pub file: PathBuf,
    /// Its arguments, behind its name.
    pub arguments: Vec<String>,
    /// Folders that it sees.
    pub mounts: Vec<Mount>,
    /// Variables that it sees.
    pub environment: Vec<(String, String)>,
    /// Bytes that its memories and tables may have together.
    pub memory_bytes: u64,
    /// Instructions that a call may take; any number unless given. Counting them makes it slower.
    pub fuel: Option<u64>,
    /// Timeout of a call, including the wait for room.
    pub timeout: Duration,
}

/// Error of running a program. Messages continue after the name of the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// The program is missing, invalid, or imports something that does not exist.
    #[error("cannot be used: {0}")]
    Unusable(String),
    /// The call exceeded its timeout.
    #[error("did not end within {} s and was stopped", .0.as_secs())]
    Timeout(Duration),
    /// The call used up its fuel.
    #[error("used its fuel of {0} and was stopped")]
    Fuel(u64),
    /// The output exceeded its limit.
    #[error("printed more than {} MiB and was stopped", OUTPUT_BYTES_MAX >> 20)]
    Output,
    /// The program exited with an error status.
    #[error("failed with exit status {status}")]
    Exit {
        /// Exit status, which is not 0.
        status: i32,
        /// End of its standard error output.
        errors: Vec<u8>,
    },
    /// The program trapped, or failed otherwise, and was stopped.
    #[error("was stopped: {what}")]
    Trap {
        /// Description of the error.
        what: String,
        /// End of its standard error output.
        errors: Vec<u8>,
    },
}

impl RunError {
    /// Returns true if a limit was reached: the same call would reach it again.
    pub(crate) fn is_limit(&self) -> bool {
        matches!(self, RunError::Timeout(_) | RunError::Fuel(_) | RunError::Output)
    }

    /// Returns the end of the standard error output, if the error has it.
    pub(crate) fn errors(&self) -> &[u8] {
        match self {
            RunError::Exit { errors, .. } | RunError::Trap { errors, .. } => errors,
            _ => &[],
        }
    }
}
