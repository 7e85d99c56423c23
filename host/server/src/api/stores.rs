//! Stores besides sessions: snapshots, and outputs that results do not show whole.

use std::{fs, io, sync::Arc};

use axum_core::response::IntoResponse;
use cellar_engine::artifacts::{Artifact, ArtifactError};
use cellar_wire::{SnapshotJson, is_snapshot_name, unix_seconds};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    http::{
        Call, answers,
        files::{Head, Source, serve},
    },
    problem::{Answer, Problem},
    tenant::{Repeat, fingerprint, on_a_thread},
};

/// `POST /v1/sessions/{session}/snapshots`
pub(crate) async fn take_snapshot(call: Call, name: &str) -> Answer {
    let what = fingerprint(&("snapshot", name));
    let taken = match call.tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(id) => {
            let path = call.tenant.snapshot_file(&id).ok_or_else(|| Problem::unknown("snapshot"))?;
            let found = on_a_thread(move || fs::metadata(path)).await?.map_err(failed)?;
            let created_at = found.modified().map(unix_seconds).unwrap_or_default();
            SnapshotJson { snapshot: id, size_bytes: found.len(), created_at }
        }
        Repeat::First(ticket) => {
            let taken = call.tenant.take_snapshot(name).await?;
            if let Some(ticket) = ticket {
                ticket.made(&taken.snapshot);
            }
            taken
        }
    };
    let place = HeaderValue::from_str(&format!("/v1/snapshots/{}", taken.snapshot));
    let mut response = answers::json(StatusCode::CREATED, &taken)?;
    if let Ok(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// `GET /v1/snapshots`
pub(crate) async fn snapshots(call: Call) -> Answer {
    let asked = call.query(&["limit", "after"])?;
    let folder = call.tenant.snapshots();
    let listed = on_a_thread(move || {
        let mut list = Vec::new();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(list),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let (Ok(id), Ok(found)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
            if is_snapshot_name(&id) {
                let created_at = found.modified().map(unix_seconds).unwrap_or_default();
                list.push(SnapshotJson { snapshot: id, size_bytes: found.len(), created_at });
            }
        }
        list.sort_by(|a, b| a.snapshot.cmp(&b.snapshot));
        Ok(list)
    });
    let list = listed.await?.map_err(failed)?;
    let (snapshots, next) = answers::page(&asked, list, |snapshot| &snapshot.snapshot)?;
    answers::json(StatusCode::OK, &answers::with_next(json!({ "snapshots": snapshots }), next))
}

/// `GET /v1/snapshots/{snapshot}`
pub(crate) async fn read_snapshot(call: Call, id: &str) -> Answer {
    let path = call.tenant.snapshot_file(id).ok_or_else(|| Problem::unknown("snapshot"))?;
    let opened = on_a_thread(move || {
        let file = fs::File::open(path)?;
        let size = file.metadata()?.len();
        Ok::<_, io::Error>((file, size))
    });
    let (file, size) = opened.await?.map_err(failed)?;
    let head = Head { size, etag: Some(format!("\"{id}\"")), mime_type: "application/octet-stream".to_owned() };
    serve(Source::Host(Arc::new(file)), head, &call.parts.headers)
}

/// `DELETE /v1/snapshots/{snapshot}`
pub(crate) async fn delete_snapshot(call: Call, id: &str) -> Answer {
    let path = call.tenant.snapshot_file(id).ok_or_else(|| Problem::unknown("snapshot"))?;
    on_a_thread(move || fs::remove_file(path)).await?.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn failed(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::NotFound => Problem::unknown("snapshot"),
        _ => Problem::internal(&error, "store"),
    }
}

/// Description of an artifact for its tenant: all but its path on this machine.
fn artifact_json(artifact: &Artifact) -> Value {
    json!({
        "id": artifact.id,
        "uri": artifact.uri(),
        "sizeBytes": artifact.size_bytes,
        "mimeType": artifact.mime_type,
        "title": artifact.title,
        "sessions": artifact.sessions,
        "labels": artifact.labels,
        "usedAt": unix_seconds(artifact.used_at),
    })
}

/// `GET /v1/artifacts`
pub(crate) async fn artifacts(call: Call) -> Answer {
    let asked = call.query(&["limit", "after"])?;
    let store = call.tenant.artifacts.clone();
    let mut list = on_a_thread(move || store.list()).await??;
    list.sort_by(|a, b| a.id.cmp(&b.id));
    let (list, next) = answers::page(&asked, list, |artifact| &artifact.id)?;
    let list: Vec<Value> = list.iter().map(artifact_json).collect();
    answers::json(StatusCode::OK, &answers::with_next(json!({ "artifacts": list }), next))
}

/// `GET /v1/artifacts/{artifact}`
pub(crate) async fn read_artifact(call: Call, id: &str) -> Answer {
    let (store, id) = (call.tenant.artifacts.clone(), id.to_owned());
    let (artifact, file) = on_a_thread(move || {
        let artifact = store.get(&id)?;
        let file = store.read(&artifact.id)?;
        Ok::<_, ArtifactError>((artifact, file))
    })
    .await??;
    let head = Head {
        size: artifact.size_bytes,
        etag: Some(format!("\"{}\"", artifact.id)),
        // What cells have written must not be taken for a page of this server.
        mime_type: match artifact.mime_type.starts_with("text/plain") {
            true => "text/plain; charset=utf-8".to_owned(),
            false => "application/octet-stream".to_owned(),
        },
    };
    serve(Source::Host(Arc::new(file)), head, &call.parts.headers)
}
