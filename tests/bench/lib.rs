//! Paths that measurements use. The package is one of its own so that it is optimised, which the command and its tests are not.

use std::path::{Path, PathBuf};

/// Returns the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the command, as `make build` leaves it.
pub fn command() -> PathBuf {
    root().join("target/release/cellar")
}
