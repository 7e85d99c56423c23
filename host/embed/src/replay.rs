//! Recordings, played again.

use std::path::PathBuf;

use cellar_engine::Host;
use cellar_wire::EventJson;

use crate::EmbedError;

/// Plays a recording, and returns its events as JSON: `{"run": …, "event": …}`.
///
/// # Errors
/// The recording cannot be read or is damaged, or a guest does something else than it did.
///
/// # Cancel safety
/// Dropped, it has played a part.
pub(crate) async fn play(host: &Host, file: PathBuf) -> Result<Vec<Vec<u8>>, EmbedError> {
    let mut replay = host.replay(&file).map_err(EmbedError::from)?;
    let mut events = Vec::new();
    while let Some(played) = replay.next().await.map_err(EmbedError::from)? {
        let event = serde_json::json!({ "run": played.run, "event": EventJson::from(&played.event) });
        events.push(serde_json::to_vec(&event).unwrap_or_default());
    }
    Ok(events)
}
