//! A WASI program that is a tool, and why a call of it has no result.

use std::{path::PathBuf, time::Duration};

use cellar_files::Mount;

/// Bytes a program may print on standard output.
pub(crate) const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Bytes of its standard error that are kept, the last ones.
pub(crate) const ERROR_BYTES_MAX: usize = 8 << 10;

/// A WASI program, and what each of its calls is granted: folders, variables, memory, fuel and time, and nothing else. There is
/// no network and no other program.
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
    /// How long a call may take, the wait for room included.
    pub timeout: Duration,
}

/// Why there is no result. Messages go on after the name of the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// It is not there, is none, or imports what there is not.
    #[error("cannot be used: {0}")]
    Unusable(String),
    /// It took longer than it may.
    #[error("did not end within {} s and was stopped", .0.as_secs())]
    Timeout(Duration),
    /// It took more instructions than it may.
    #[error("used its fuel of {0} and was stopped")]
    Fuel(u64),
    /// It printed more than it may.
    #[error("printed more than {} MiB and was stopped", OUTPUT_BYTES_MAX >> 20)]
    Output,
    /// It said itself that it failed.
    #[error("failed with exit status {status}")]
    Exit {
        /// Its exit status, which is not 0.
        status: i32,
        /// The end of what it printed on standard error.
        errors: Vec<u8>,
    },
    /// It went wrong, and was stopped where it did.
    #[error("was stopped: {what}")]
    Trap {
        /// What went wrong.
        what: String,
        /// The end of what it printed on standard error.
        errors: Vec<u8>,
    },
}

impl RunError {
    /// Whether a bound was reached: the same call would reach it again.
    pub(crate) fn is_limit(&self) -> bool {
        matches!(self, RunError::Timeout(_) | RunError::Fuel(_) | RunError::Output)
    }

    /// What it said on standard error.
    pub(crate) fn errors(&self) -> &[u8] {
        match self {
            RunError::Exit { errors, .. } | RunError::Trap { errors, .. } => errors,
            _ => &[],
        }
    }
}
