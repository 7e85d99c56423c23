//! What `cellar artifact --json` prints.

use std::path::PathBuf;

use cellar_engine::{Artifact, Collected};
use schemars::JsonSchema;
use serde::Serialize;

use crate::sessions::unix_seconds;

/// A kept output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ArtifactJson {
    pub(crate) id: String,
    /// `artifact://` and its id.
    pub(crate) uri: String,
    pub(crate) size_bytes: u64,
    pub(crate) mime_type: String,
    /// What it is of.
    pub(crate) title: Option<String>,
    /// The sessions that refer to it.
    pub(crate) sessions: Vec<String>,
    /// Its names as an agent's output, without `agent://`.
    pub(crate) labels: Vec<String>,
    /// Seconds since the Unix epoch.
    pub(crate) used_at: u64,
    /// Where its bytes are.
    pub(crate) path: PathBuf,
}

/// What garbage collection removed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CollectedJson {
    pub(crate) count: usize,
    pub(crate) size_bytes: u64,
}

impl From<&Artifact> for ArtifactJson {
    fn from(artifact: &Artifact) -> ArtifactJson {
        ArtifactJson {
            id: artifact.id.clone(),
            uri: artifact.uri(),
            size_bytes: artifact.size_bytes,
            mime_type: artifact.mime_type.clone(),
            title: artifact.title.clone(),
            sessions: artifact.sessions.clone(),
            labels: artifact.labels.clone(),
            used_at: unix_seconds(artifact.used_at),
            path: artifact.path.clone(),
        }
    }
}

impl From<Collected> for CollectedJson {
    fn from(collected: Collected) -> CollectedJson {
        CollectedJson { count: collected.count, size_bytes: collected.size_bytes }
    }
}
