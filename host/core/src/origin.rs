//! Origins of the names of a session.

use serde::{Deserialize, Serialize};

use crate::cell::{CellId, Language};

/// Bytes of a producer's name.
pub const PRODUCER_BYTES_MAX: usize = 1_000;
/// Names that a run may say its caller has seen.
pub const SEEN_MAX: usize = 10_000;
/// Bytes of each of these, and of its kind.
pub const SEEN_BYTES_MAX: usize = 256;

/// Origin of a name. It is created when a cell of a run that names its producer ends, and never changes: another origin
/// replaces it when such a cell binds the name anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Producer of the run: the path of a notebook, the name of an agent.
    pub producer: String,
    /// The cell that bound the name.
    pub cell: CellId,
    /// Its language.
    pub language: Language,
    /// Time at which that cell ended, in nanoseconds since the Unix epoch.
    pub stamped_at: u64,
    /// The datasets that the run had loaded by then, each version once, in the order of their first use.
    pub datasets: Vec<DatasetRef>,
    /// The fetches that the run had made by then, each table once, in the order of their first use.
    pub fetches: Vec<FetchRef>,
    /// The names with an origin that the cell has read, as they were then.
    #[serde(default)]
    pub derived_from: Vec<DerivedFrom>,
}

/// A name that a cell has read, with the origin that it had then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedFrom {
    /// The name.
    pub name: String,
    /// Producer of its origin.
    pub producer: String,
    /// The cell that had bound it, which tells its origin apart from all others of the session.
    pub cell: CellId,
}

/// A version of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRef {
    /// The live name of the dataset.
    pub name: String,
    /// Number of the version, from 1.
    pub version: u64,
    /// The artifact that has its rows.
    pub artifact: String,
}

/// A table that a connector gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchRef {
    /// The connector.
    pub connector: String,
    /// Name of the connector's fetch.
    pub fetch: String,
    /// The artifact that has its rows, where they were kept.
    pub artifact: Option<String>,
}

impl Origin {
    /// Bytes of its texts.
    pub fn size_bytes(&self) -> usize {
        let datasets = self.datasets.iter().map(|each| each.name.len().saturating_add(each.artifact.len()));
        let fetches = self.fetches.iter().map(|each| {
            let artifact = each.artifact.as_ref().map_or(0, String::len);
            each.connector.len().saturating_add(each.fetch.len()).saturating_add(artifact)
        });
        let derived = self.derived_from.iter().map(|each| each.name.len().saturating_add(each.producer.len()));
        datasets.chain(fetches).chain(derived).fold(self.producer.len(), usize::saturating_add)
    }
}
