//! Errors of packages.

use std::{io, path::PathBuf};

/// Error of adding, granting or removing a package.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The text names no package.
    #[error("`{text}` names no package")]
    Name {
        /// Requested text.
        text: String,
    },
    /// The package is not in the store.
    #[error("the package `{name}` is not in the store `{}`", folder.display())]
    Unknown {
        /// Its name, as `cellar packages add` takes it.
        name: String,
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The lock file names packages that the store has not.
    #[error("the store `{}` has not all that its lock file names", folder.display())]
    Missing {
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The package has machine code, which no sandbox runs.
    #[error("the package `{name}` has native code ({found}), which a sandbox does not run")]
    Native {
        /// Its name.
        name: String,
        /// Description of the native code.
        found: String,
    },
    /// Only an old version of the package can be had.
    #[error("of `{name}`, whose newest version is {newest}, only {version} goes with what there is")]
    Outdated {
        /// Its name.
        name: String,
        /// Version that can be had.
        version: String,
        /// Newest version.
        newest: String,
    },
    /// The registry's client found nothing that fits.
    #[error("{client} cannot resolve {asked}: {said}")]
    Unresolved {
        /// Name of the client.
        client: &'static str,
        /// Requested packages.
        asked: String,
        /// End of the client's error output.
        said: String,
    },
    /// The registry's client cannot be run, or ended as it should not.
    #[error("cannot run {client}")]
    Client {
        /// Name of the client.
        client: &'static str,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// An archive is invalid, or too large.
    #[error("the archive of `{name}` is refused: {why}")]
    Archive {
        /// The package.
        name: String,
        /// Reason.
        why: String,
    },
    /// The lock file is damaged, or of another version.
    #[error("cannot read the lock file `{}`: {why}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The folder of the store cannot be used.
    #[error("cannot use `{}`", path.display())]
    Store {
        /// Path that cannot be used.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl PackageError {
    /// Creates a store error from an operating system error on `path`.
    pub(crate) fn store(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> PackageError {
        let path = path.into();
        move |source| PackageError::Store { path, source }
    }
}
