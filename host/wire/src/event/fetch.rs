//! The entries of the fetch log as JSON.

use std::time::Duration;

use cellar_core::event::Fetch;
use cellar_results::artifacts::ARTIFACT_SCHEME;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::{duration, milliseconds};

/// One fetch from a connector, as it stands in the fetch log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FetchJson {
    connector: String,
    fetch: String,
    /// In their canonical form: checked, with the defaults.
    arguments: Value,
    /// When the source was asked, in milliseconds since the Unix epoch.
    fetched_at: Number,
    /// Whether the rows are those of an earlier fetch, and the source was not asked.
    is_cached: bool,
    duration_ms: Number,
    row_count: u64,
    columns: Vec<ColumnJson>,
    /// The first rows, an object each; long values are cut.
    head: Value,
    /// The last rows, likewise; empty where the first are all.
    tail: Value,
    /// All rows, as Parquet: `artifact://` and an id.
    artifact: Option<String>,
    /// Why the rows are in no artifact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    notice: Option<String>,
    /// Why the fetch failed: it has no rows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<String>,
}

/// A column of what was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct ColumnJson {
    pub(super) name: String,
    /// In Arrow's words: `int64`, `timestamp[us, UTC]`.
    #[serde(rename = "type")]
    pub(super) kind: String,
}

impl From<&Fetch> for FetchJson {
    fn from(fetch: &Fetch) -> FetchJson {
        let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::Array(Vec::new()));
        let column = |(name, kind): &(String, String)| ColumnJson { name: name.clone(), kind: kind.clone() };
        FetchJson {
            connector: fetch.connector.clone(),
            fetch: fetch.fetch.clone(),
            arguments: value(&fetch.arguments),
            fetched_at: milliseconds(Duration::from_nanos(fetch.fetched_at)),
            is_cached: fetch.is_cached,
            duration_ms: milliseconds(fetch.duration),
            row_count: fetch.rows,
            columns: fetch.columns.iter().map(column).collect(),
            head: value(&fetch.head),
            tail: value(&fetch.tail),
            artifact: fetch.artifact.as_ref().map(|id| format!("{ARTIFACT_SCHEME}{id}")),
            notice: fetch.notice.clone(),
            error: fetch.error.clone(),
        }
    }
}

impl From<FetchJson> for Fetch {
    fn from(fetch: FetchJson) -> Fetch {
        let text =
            |value: &Value| if value.as_array().is_some_and(Vec::is_empty) { String::new() } else { value.to_string() };
        let id = |uri: String| uri.strip_prefix(ARTIFACT_SCHEME).unwrap_or(&uri).to_owned();
        Fetch {
            connector: fetch.connector,
            fetch: fetch.fetch,
            arguments: fetch.arguments.to_string(),
            fetched_at: u64::try_from(duration(&fetch.fetched_at).as_nanos()).unwrap_or(u64::MAX),
            is_cached: fetch.is_cached,
            duration: duration(&fetch.duration_ms),
            rows: fetch.row_count,
            columns: fetch.columns.into_iter().map(|column| (column.name, column.kind)).collect(),
            head: fetch.head.to_string(),
            tail: text(&fetch.tail),
            artifact: fetch.artifact.map(id),
            notice: fetch.notice,
            error: fetch.error,
        }
    }
}
