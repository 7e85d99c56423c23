//! Origins of names as JSON.

use std::time::Duration;

use cellar_engine::{
    CellId, Language,
    artifacts::ARTIFACT_SCHEME,
    origin::{DatasetRef, FetchRef, Origin},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::{duration, milliseconds};

/// Where a name comes from: the cell of a run with a producer that bound it last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OriginJson {
    producer: String,
    /// Number of the cell in its session.
    cell: u32,
    language: String,
    /// When the cell ended, in milliseconds since the Unix epoch.
    stamped_at: Number,
    /// The datasets that the run had loaded by then.
    datasets: Vec<DatasetRefJson>,
    /// The fetches that the run had made by then.
    fetches: Vec<FetchRefJson>,
}

/// A version of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DatasetRefJson {
    name: String,
    version: u64,
    /// Its rows: `artifact://` and an id.
    artifact: String,
}

/// A table that a connector gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FetchRefJson {
    connector: String,
    fetch: String,
    /// Its rows, where they were kept: `artifact://` and an id.
    artifact: Option<String>,
}

fn uri(id: &String) -> String {
    format!("{ARTIFACT_SCHEME}{id}")
}

fn id(uri: String) -> String {
    uri.strip_prefix(ARTIFACT_SCHEME).map(str::to_owned).unwrap_or(uri)
}

impl From<&Origin> for OriginJson {
    fn from(origin: &Origin) -> OriginJson {
        let dataset = |each: &DatasetRef| DatasetRefJson {
            name: each.name.clone(),
            version: each.version,
            artifact: uri(&each.artifact),
        };
        let fetch = |each: &FetchRef| FetchRefJson {
            connector: each.connector.clone(),
            fetch: each.fetch.clone(),
            artifact: each.artifact.as_ref().map(uri),
        };
        OriginJson {
            producer: origin.producer.clone(),
            cell: origin.cell.0,
            language: origin.language.code().to_owned(),
            stamped_at: milliseconds(Duration::from_nanos(origin.stamped_at)),
            datasets: origin.datasets.iter().map(dataset).collect(),
            fetches: origin.fetches.iter().map(fetch).collect(),
        }
    }
}

impl From<OriginJson> for Origin {
    fn from(origin: OriginJson) -> Origin {
        let dataset =
            |each: DatasetRefJson| DatasetRef { name: each.name, version: each.version, artifact: id(each.artifact) };
        let fetch = |each: FetchRefJson| FetchRef {
            connector: each.connector,
            fetch: each.fetch,
            artifact: each.artifact.map(id),
        };
        Origin {
            producer: origin.producer,
            cell: CellId(origin.cell),
            language: Language::from_code(&origin.language).unwrap_or(Language::Probe),
            stamped_at: u64::try_from(duration(&origin.stamped_at).as_nanos()).unwrap_or(u64::MAX),
            datasets: origin.datasets.into_iter().map(dataset).collect(),
            fetches: origin.fetches.into_iter().map(fetch).collect(),
        }
    }
}
