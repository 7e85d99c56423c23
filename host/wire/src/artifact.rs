//! What `cellar artifact --json` prints.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::path::PathBuf;

use cellar_engine::artifacts::{Artifact, Collected};
use schemars::JsonSchema;
use serde::Serialize;

use crate::unix_seconds;

/// A kept output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactJson {
    pub id: String,
    /// `artifact://` and its id.
    pub uri: String,
    pub size_bytes: u64,
    pub mime_type: String,
    /// What it is of.
    pub title: Option<String>,
    /// The sessions that refer to it.
    pub sessions: Vec<String>,
    /// Its names as an agent's output, without `agent://`.
    pub labels: Vec<String>,
    /// Seconds since the Unix epoch.
    pub used_at: u64,
    /// Where its bytes are.
    pub path: PathBuf,
}

/// What garbage collection removed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectedJson {
    pub count: usize,
    pub size_bytes: u64,
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
