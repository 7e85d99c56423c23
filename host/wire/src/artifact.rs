//! Output of `cellar artifact --json`.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::path::PathBuf;

use cellar_results::artifacts::{Artifact, Collected, Pulled, Pushed, Verified};
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

/// What came of holding artifacts to their digests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedJson {
    /// How many are what they were when they were stored.
    pub sound: usize,
    /// How many an older program kept no digest of.
    pub unknown: usize,
    /// Ids of those that were missing or damaged here, and were fetched back.
    pub healed: Vec<String>,
    /// Ids of those that were sent to the remote store again.
    pub sent: Vec<String>,
    /// Ids of those of which there is no good copy.
    pub lost: Vec<String>,
}

/// What was sent to the remote store.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushedJson {
    pub sent: usize,
    /// What another process is about to send.
    pub queued: usize,
}

/// What came from the remote store.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PulledJson {
    /// Versions of datasets that others published.
    pub versions: usize,
    pub artifacts: usize,
    /// Ids of those of which there is no good copy.
    pub lost: Vec<String>,
}

impl From<&Verified> for VerifiedJson {
    fn from(verified: &Verified) -> VerifiedJson {
        let Verified { sound, unknown, healed, sent, lost, .. } = verified.clone();
        VerifiedJson { sound, unknown, healed, sent, lost }
    }
}

impl From<Pushed> for PushedJson {
    fn from(pushed: Pushed) -> PushedJson {
        PushedJson { sent: pushed.sent, queued: pushed.queued }
    }
}

impl From<&Pulled> for PulledJson {
    fn from(pulled: &Pulled) -> PulledJson {
        PulledJson { versions: pulled.versions, artifacts: pulled.artifacts, lost: pulled.lost.clone() }
    }
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
