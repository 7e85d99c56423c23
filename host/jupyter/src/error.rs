//! Why there is no kernel.

use std::{io, path::PathBuf};

use cellar_config::SetupError;

/// Why a kernel cannot be installed, or cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The connection file asks for signatures that nobody here can make.
    #[error("{0}")]
    Signature(String),
    /// A socket cannot be bound.
    #[error("cannot listen at {address}")]
    Bind {
        /// Where.
        address: String,
        /// What the host says.
        #[source]
        source: io::Error,
    },
    /// The process cannot be set up.
    #[error("cannot start")]
    Start(#[source] io::Error),
    /// What was asked for makes no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do instead.
        hint: String,
    },
    /// A file of a kernel cannot be written.
    #[error("cannot write `{}`", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// What the host says.
        #[source]
        source: io::Error,
    },
}
