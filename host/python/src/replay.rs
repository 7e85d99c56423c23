//! Recordings, played again.

use std::path::PathBuf;

use cellar_engine::Host;
use pyo3::prelude::*;

use crate::embed_refused;

/// Plays a recording, and returns its events as JSON: `{"run": …, "event": …}`.
///
/// # Errors
/// The recording cannot be read or is damaged, or a guest does something else than it did.
pub(crate) async fn play(host: &Host, file: PathBuf) -> PyResult<Vec<Vec<u8>>> {
    cellar_embed::play(host, file).await.map_err(embed_refused)
}
