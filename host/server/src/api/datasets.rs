//! Datasets of a tenant: tables under a name, version by version, that its sessions load and publish.

use std::sync::Arc;

use axum_core::response::IntoResponse;
use cellar_engine::artifacts::datasets::{DatasetError, Publication};
use cellar_wire::DatasetJson;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{
    http::{
        Call, answers,
        body::next_piece,
        files::{Head, Source, serve},
    },
    problem::{Answer, Problem, of_artifact},
    tenant::{Repeat, fingerprint, on_a_thread},
};

/// Type of the rows of a dataset.
pub(super) const PARQUET_TYPE: &str = "application/vnd.apache.parquet";
/// Bytes of the name of a publisher.
const PUBLISHER_BYTES_MAX: usize = 256;

/// `GET /v1/datasets`
pub(crate) async fn list(call: Call) -> Answer {
    let asked = call.query(&["limit", "after"])?;
    let datasets = call.tenant.artifacts.datasets();
    let list = on_a_thread(move || datasets.list()).await??;
    let (list, next) = answers::page(&asked, list, |version| &version.name)?;
    let list: Vec<DatasetJson> = list.iter().map(DatasetJson::from).collect();
    answers::json(StatusCode::OK, &answers::with_next(json!({ "datasets": list }), next))
}

/// `GET /v1/datasets/{dataset}`
pub(crate) async fn show(call: Call, name: &str) -> Answer {
    let (datasets, name) = (call.tenant.artifacts.datasets(), name.to_owned());
    let versions = on_a_thread(move || datasets.versions(&name)).await??;
    let versions: Vec<DatasetJson> = versions.iter().map(DatasetJson::from).collect();
    answers::json(StatusCode::OK, &json!({ "versions": versions }))
}

/// `GET /v1/datasets/{dataset}/rows`
pub(crate) async fn read(call: Call, name: &str) -> Answer {
    let asked = call.query(&["version"])?;
    let version = match asked.get("version") {
        None => None,
        Some(text) => {
            let number = text.parse::<u64>().ok().filter(|number| *number > 0);
            Some(number.ok_or_else(|| Problem::bad("`version` is a number from 1"))?)
        }
    };
    let (datasets, name) = (call.tenant.artifacts.datasets(), name.to_owned());
    let (version, file) = on_a_thread(move || datasets.open(&name, version)).await??;
    let head = Head {
        size: version.size_bytes,
        etag: Some(format!("\"{}\"", version.artifact)),
        mime_type: PARQUET_TYPE.to_owned(),
    };
    let mut response = serve(Source::Host(Arc::new(file)), head, &call.parts.headers)?;
    response.headers_mut().insert("cellar-dataset-version", HeaderValue::from(version.version));
    Ok(response)
}

/// `POST /v1/datasets/{dataset}`
pub(crate) async fn publish(mut call: Call, name: &str) -> Answer {
    let asked = call.query(&["publisher"])?;
    let publisher = asked.get("publisher").cloned().unwrap_or_else(|| "http".to_owned());
    if publisher.is_empty() || publisher.len() > PUBLISHER_BYTES_MAX {
        return Err(Problem::bad(format!("`publisher` has 1 to {PUBLISHER_BYTES_MAX} bytes")));
    }
    let (datasets, owned) = (call.tenant.artifacts.datasets(), name.to_owned());
    let version = match call.tenant.repeat(call.key()?.as_deref(), fingerprint(&("dataset", name, &publisher)))? {
        Repeat::Again(number) => on_a_thread(move || datasets.get(&owned, number.parse().ok())).await??,
        Repeat::First(ticket) => {
            let mut body = call.stream();
            let mut writer = on_a_thread(move || datasets.writer(&owned)).await??;
            while let Some(piece) = next_piece(&mut body, "dataset").await? {
                writer = on_a_thread(move || writer.write(&piece).map(|()| writer)).await??;
            }
            let publication = Publication { publisher, ..Publication::default() };
            let version = on_a_thread(move || writer.publish(publication)).await??;
            if let Some(ticket) = ticket {
                ticket.made(&version.version.to_string());
            }
            version
        }
    };
    let mut response = answers::json(StatusCode::CREATED, &DatasetJson::from(&version))?;
    let place = format!("/v1/datasets/{name}/rows?version={}", version.version);
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// `DELETE /v1/datasets/{dataset}`
pub(crate) async fn delete(call: Call, name: &str) -> Answer {
    let (datasets, name) = (call.tenant.artifacts.datasets(), name.to_owned());
    on_a_thread(move || datasets.remove(&name)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl From<DatasetError> for Problem {
    fn from(error: DatasetError) -> Problem {
        let status = match &error {
            DatasetError::Artifact(error) => return of_artifact(error),
            DatasetError::Unknown { .. } | DatasetError::Ambiguous { .. } | DatasetError::NoVersion { .. } => {
                StatusCode::NOT_FOUND
            }
            DatasetError::Unseen { .. } => StatusCode::FORBIDDEN,
            DatasetError::TooMany => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, error.code(), cellar_core::text::describe(&error))
    }
}
