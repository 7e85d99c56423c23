//! Origins of names as JSON.

use std::time::Duration;

use cellar_core::{
    cell::{CellId, Language},
    origin::{DatasetRef, DerivedFrom, FetchRef, Origin},
};
use cellar_results::artifacts::{ARTIFACT_SCHEME, datasets::DatasetVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::{duration, fetch::ColumnJson, milliseconds};

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
    /// The names with an origin that the cell has read, as they were then.
    #[serde(default)]
    derived_from: Vec<DerivedFromJson>,
}

/// A name that a cell has read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DerivedFromJson {
    name: String,
    /// Producer of its origin.
    producer: String,
    /// The cell that had bound it, which tells its origin apart from all others of the session.
    cell: u32,
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

/// Names, each with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OriginsJson {
    origins: Vec<NamedOriginJson>,
    /// Origins that names of these derive from, directly or by others, and that no name has any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former: Vec<OriginJson>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
struct NamedOriginJson {
    name: String,
    origin: OriginJson,
}

impl OriginsJson {
    /// Creates the list from names with their origins, and from the former origins that these derive from.
    pub fn new(
        named: impl IntoIterator<Item = (String, OriginJson)>,
        former: impl IntoIterator<Item = OriginJson>,
    ) -> OriginsJson {
        let named = named.into_iter().map(|(name, origin)| NamedOriginJson { name, origin });
        OriginsJson { origins: named.collect(), former: former.into_iter().collect() }
    }
}

/// A version of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatasetJson {
    /// The live name of the dataset.
    name: String,
    /// Number of the version, from 1.
    version: u64,
    /// Its rows, as Parquet: `artifact://` and an id.
    artifact: String,
    size_bytes: u64,
    row_count: u64,
    column_count: u64,
    /// The first columns.
    columns: Vec<ColumnJson>,
    publisher: String,
    /// In milliseconds since the Unix epoch.
    published_at: Number,
    /// Where the rows come from, as far as that is known.
    origin: Option<OriginJson>,
}

impl From<&DatasetVersion> for DatasetJson {
    fn from(version: &DatasetVersion) -> DatasetJson {
        let column = |(name, kind): &(String, String)| ColumnJson { name: name.clone(), kind: kind.clone() };
        DatasetJson {
            name: version.name.clone(),
            version: version.version,
            artifact: uri(&version.artifact),
            size_bytes: version.size_bytes,
            row_count: version.rows,
            column_count: version.column_count,
            columns: version.columns.iter().map(column).collect(),
            publisher: version.publisher.clone(),
            published_at: milliseconds(Duration::from_nanos(version.published_at)),
            origin: version.origin.as_ref().map(OriginJson::from),
        }
    }
}

impl From<&DerivedFrom> for DerivedFromJson {
    fn from(from: &DerivedFrom) -> DerivedFromJson {
        let DerivedFrom { name, producer, cell } = from;
        DerivedFromJson { name: name.clone(), producer: producer.clone(), cell: cell.0 }
    }
}

impl From<DerivedFromJson> for DerivedFrom {
    fn from(from: DerivedFromJson) -> DerivedFrom {
        DerivedFrom { name: from.name, producer: from.producer, cell: CellId(from.cell) }
    }
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
            derived_from: origin.derived_from.iter().map(DerivedFromJson::from).collect(),
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
            derived_from: origin.derived_from.into_iter().map(DerivedFrom::from).collect(),
        }
    }
}
