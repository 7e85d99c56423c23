//! Why packages cannot be had.

use std::{io, path::PathBuf};

/// Why a package cannot be added, granted or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The text names no package.
    #[error("`{text}` names no package")]
    Name {
        /// What was asked for.
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
        /// What was found.
        found: String,
    },
    /// The registry's client found nothing that fits.
    #[error("{client} cannot resolve {asked}: {said}")]
    Unresolved {
        /// Which client.
        client: &'static str,
        /// What it was asked for.
        asked: String,
        /// The end of what it said.
        said: String,
    },
    /// The registry's client cannot be run, or ended as it should not.
    #[error("cannot run {client}")]
    Client {
        /// Which client.
        client: &'static str,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// An archive is not what it should be, or too large.
    #[error("the archive of `{name}` is refused: {why}")]
    Archive {
        /// The package.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The lock file is damaged, or of another version.
    #[error("cannot read the lock file `{}`: {why}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The folder of the store cannot be used.
    #[error("cannot use `{}`", path.display())]
    Store {
        /// What cannot be used.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl PackageError {
    /// Makes an error of the store of what the system says of `path`.
    pub(crate) fn store(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> PackageError {
        let path = path.into();
        move |source| PackageError::Store { path, source }
    }
}
