//! Recordings, played again.

use std::path::PathBuf;

use cellar_engine::Host;
use cellar_wire::EventJson;
use pyo3::prelude::*;

use crate::refused;

/// Plays a recording, and returns its events as JSON: `{"run": …, "event": …}`.
///
/// # Errors
/// The recording cannot be read or is damaged, or a guest does something else than it did.
pub(crate) async fn play(host: &Host, file: PathBuf) -> PyResult<Vec<Vec<u8>>> {
    let mut replay = host.replay(&file).map_err(|error| refused(error.code(), &error))?;
    let mut events = Vec::new();
    while let Some(played) = replay.next().await.map_err(|error| refused(error.code(), &error))? {
        let event = serde_json::json!({ "run": played.run, "event": EventJson::from(&played.event) });
        events.push(serde_json::to_vec(&event).unwrap_or_default());
    }
    Ok(events)
}
