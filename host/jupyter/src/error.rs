//! Errors of installing or running a kernel.

use std::{io, path::PathBuf};

use cellar_config::SetupError;

/// Reason for which a kernel cannot be installed or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The connection file asks for a signature scheme that is not supported.
    #[error("{0}")]
    Signature(String),
    /// A socket cannot be bound.
    #[error("cannot listen at {address}")]
    Bind {
        /// The address.
        address: String,
        /// Error of the host.
        #[source]
        source: io::Error,
    },
    /// The process cannot be set up.
    #[error("cannot start")]
    Start(#[source] io::Error),
    /// The request makes no sense.
    #[error("{message}")]
    Usage {
        /// Description of the mistake.
        message: String,
        /// Advice for the caller.
        hint: String,
    },
    /// A file of a kernel cannot be written.
    #[error("cannot write `{}`", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// Error of the host.
        #[source]
        source: io::Error,
    },
}
