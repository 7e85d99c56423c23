//! Locations of credentials.

use std::{fmt, path::PathBuf};

/// Location of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A variable of Cellar's own environment.
    Variable(String),
    /// A file with the credential in it and nothing else.
    File(PathBuf),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Variable(name) => f.write_str(name),
            SecretSource::File(path) => write!(f, "{}", path.display()),
        }
    }
}
