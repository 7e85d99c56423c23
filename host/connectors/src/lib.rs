//! Sources of data that a host holds, and from which cells fetch rows in columns.
//!
//! [`ConnectorOptions`] configure the sources; [`Connectors`] check every fetch before they send a request, limit the size
//! of the response, and return the rows as [`Batches`]. Credentials stay here: no error contains a credential, a path of
//! the host, or the output of a driver. This crate does not depend on sessions or cells. Read [`Connectors`] first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod error;
mod files;
mod http;
mod json;
mod mysql;
mod objects;
mod options;
mod parameters;
mod postgres;
mod rows;
mod sql;
mod sqlite;
mod tool;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use cellar_core::{budget::Budget, time::later};
use cellar_tables::Batches;
use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

pub use error::{FetchError, FetchFault};
pub use json::rows_of_json;
pub use objects::{Objects, ObjectsOptions};
pub use options::{
    Bounds, Comparison, ConnectorOptions, CsvOptions, Database, FetchOptions, FileFormat, FilesFetch, FilesPlace,
    Filter, HttpFetch, Kind, Pages, Secret, Sheet, TableColumn,
};
pub use parameters::{Parameter, ParameterKind};
pub use tool::{ToolAnswer, ToolSource};

use error::near;
use sql::Dialect;
use tool::Queries;

/// Bytes of rows that this process gathers at once, for all fetches together.
const ROWS_BYTES_MAX: usize = 2 << 30;
static ROWS: LazyLock<Budget> = LazyLock::new(|| Budget::new(ROWS_BYTES_MAX));

/// The fetch of free SQL, where a connector has it.
pub const SQL_FETCH: &str = "sql";

/// Specification of a connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectorSpec {
    /// Name of the connector in cells.
    pub name: String,
    /// Description for people and models.
    pub description: String,
    /// Fetches of the connector.
    pub fetches: Vec<FetchSpec>,
}

/// Specification of a fetch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FetchSpec {
    /// Name of the fetch in cells.
    pub name: String,
    /// Description of the rows, for people and models.
    pub description: String,
    /// Parameters, in the order of positional arguments.
    pub parameters: Vec<Parameter>,
    /// Columns, where they are known.
    pub columns: Vec<TableColumn>,
}

/// One fetch, with its limits.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the fetch.
    pub fetch: String,
    /// Arguments, which are checked and include the defaults.
    pub arguments: Map<String, Value>,
    /// Limits of the fetch.
    pub bounds: Bounds,
    /// Deadline of the fetch.
    pub deadline: Instant,
}

/// A source of rows. The kinds of this crate are sources; an embedder may implement others.
pub trait Source: Send + Sync {
    /// Returns the specifications of the fetches.
    fn fetches(&self) -> Vec<FetchSpec>;

    /// Fetches rows within the limits of the request. Exceeding a limit is an error; rows are never left out.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the fetch, also at the source where that is possible.
    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>>;

    /// Checks whether the source is reachable, and describes it for people who configure a connector.
    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>>;
}

/// All connectors of a host. Cheap to clone; clones share connections and limits.
#[derive(Clone, Default)]
pub struct Connectors(Arc<BTreeMap<String, Held>>);

struct Held {
    description: String,
    bounds: Bounds,
    fetches: BTreeMap<String, FetchSpec>,
    /// Permits of concurrent fetches.
    permits: Arc<Semaphore>,
    source: Arc<dyn Source>,
}

impl fmt::Debug for Connectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connectors").field(&self.0.keys()).finish()
    }
}

impl Connectors {
    /// Creates the connectors of these options. No source is opened or contacted before a cell fetches. The credentials are
    /// registered, so that they are removed from answers from then on. A connector whose credentials are missing exists,
    /// and reports that when it is used.
    ///
    /// # Errors
    /// All faults of the options, each with its connector.
    pub fn new(options: BTreeMap<String, ConnectorOptions>) -> Result<Connectors, Vec<String>> {
        let (mut held, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, options) in options {
            let ConnectorOptions { description, bounds, kind } = options;
            match source(kind, bounds.bytes) {
                Ok(source) => {
                    held.insert(name, Held::new(description, bounds, source));
                }
                Err(problem) => problems.push(format!("connectors.{name}: {problem}")),
            }
        }
        if problems.is_empty() { Ok(Connectors(Arc::new(held))) } else { Err(problems) }
    }

    /// Creates connectors from the specifications of another process: they check arguments in the same way, and fetch
    /// nothing.
    pub fn told(specs: Vec<ConnectorSpec>) -> Connectors {
        let held = |spec: ConnectorSpec| {
            let source = Arc::new(Elsewhere(spec.fetches));
            (spec.name, Held::new(spec.description, Bounds::default(), source))
        };
        Connectors(Arc::new(specs.into_iter().map(held).collect()))
    }

    /// Returns true if there are no connectors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the connectors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the specifications of the connectors.
    pub fn specs(&self) -> Vec<ConnectorSpec> {
        let spec = |(name, held): (&String, &Held)| ConnectorSpec {
            name: name.clone(),
            description: held.description.clone(),
            fetches: held.fetches.values().cloned().collect(),
        };
        self.0.iter().map(spec).collect()
    }

    /// The arguments of a fetch in their canonical form: each checked, defaults filled in, names sorted.
    ///
    /// # Errors
    /// There is no such fetch, or it does not take these arguments.
    pub fn check(
        &self,
        connector: &str,
        fetch: &str,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, FetchError> {
        let (_, spec) = self.find(connector, fetch)?;
        parameters::canonical(&format!("{connector}.{fetch}"), &spec.parameters, arguments)
    }

    /// Fetches rows, with arguments that [`Connectors::check`] returned. The time spent waiting for other fetches of the
    /// connector counts.
    ///
    /// # Errors
    /// The error of the source, in words for a cell; an exceeded limit.
    ///
    /// # Cancel safety
    /// As [`Source::fetch`].
    pub async fn fetch(
        &self,
        connector: &str,
        fetch: &str,
        arguments: Map<String, Value>,
    ) -> Result<Batches, FetchError> {
        let (held, _) = self.find(connector, fetch)?;
        let bounds = held.bounds.clone();
        let deadline = later(Instant::now(), bounds.timeout);
        let request = Request { fetch: fetch.to_owned(), arguments, bounds: bounds.clone(), deadline };
        let asked = async {
            // The semaphore is never closed.
            let _permit = held.permits.acquire().await;
            held.source.fetch(request).await
        };
        let answer = tokio::time::timeout_at(deadline.into(), asked).await;
        let answer = answer.unwrap_or_else(|_| Err(FetchError::timeout(bounds.timeout)));
        answer.map_err(|error| error.of(&format!("{connector}.{fetch}")))
    }

    /// Checks whether a connector is reachable, and describes it.
    ///
    /// # Errors
    /// The connector is not reachable: the reason in words.
    pub async fn probe(&self, connector: &str) -> Result<String, FetchError> {
        let held = self.held(connector)?;
        let patience = held.bounds.timeout.min(Duration::from_secs(10));
        let probed = tokio::time::timeout(patience, held.source.probe()).await;
        probed.unwrap_or_else(|_| Err(FetchError::timeout(patience)))
    }

    fn held(&self, connector: &str) -> Result<&Held, FetchError> {
        self.0.get(connector).ok_or_else(|| {
            let message = format!("no connector is named `{connector}`{}", near(connector, self.names()));
            FetchError::new(FetchFault::Unknown, message)
        })
    }

    fn find(&self, connector: &str, fetch: &str) -> Result<(&Held, &FetchSpec), FetchError> {
        let held = self.held(connector)?;
        let spec = held.fetches.get(fetch).ok_or_else(|| {
            let names = held.fetches.keys().map(String::as_str);
            let message = format!("`{connector}` has no fetch named `{fetch}`{}", near(fetch, names));
            FetchError::new(FetchFault::Unknown, message)
        })?;
        Ok((held, spec))
    }
}

impl Held {
    fn new(description: String, bounds: Bounds, source: Arc<dyn Source>) -> Held {
        let fetches = source.fetches().into_iter().map(|fetch| (fetch.name.clone(), fetch)).collect();
        let permits = Arc::new(Semaphore::new(bounds.concurrency));
        Held { description, bounds, fetches, permits, source }
    }
}

/// Stands for a source that another process asks.
struct Elsewhere(Vec<FetchSpec>);

impl Source for Elsewhere {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.0.clone()
    }

    fn fetch(&self, _request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        std::future::ready(Err(unready("another process holds it"))).boxed()
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        std::future::ready(Err(unready("another process holds it"))).boxed()
    }
}

/// Creates the source of a kind.
///
/// # Errors
/// The options are invalid: the reason in words.
fn source(kind: Kind, bytes_max: usize) -> Result<Arc<dyn Source>, String> {
    Ok(match kind {
        Kind::Postgres(database) => {
            let queries = Queries::new(Dialect::Postgres, database.sql, database.fetches)?;
            let server = database.url.resolve().and_then(|url| postgres::Server::new(&url, bytes_max, ROWS.clone()));
            Arc::new(postgres::Postgres::new(server.inspect(postgres::Server::learn), queries))
        }
        Kind::Mysql(database) => {
            let queries = Queries::new(Dialect::Mysql, database.sql, database.fetches)?;
            let url = database.url.resolve();
            Arc::new(mysql::Mysql::new(url.and_then(|url| mysql::Server::new(&url, bytes_max)), queries))
        }
        Kind::Sqlite { file, sql, fetches } => {
            Arc::new(sqlite::Sqlite::new(file, Queries::new(Dialect::Sqlite, sql, fetches)?))
        }
        Kind::Files { place, fetches } => Arc::new(files::Files::new(place, fetches)?),
        Kind::Http { url, headers, rate, fetches } => {
            let fetches = http::read(fetches)?;
            let headers: Result<Vec<_>, String> =
                headers.into_iter().map(|(name, value)| Ok((name, value.resolve()?))).collect();
            let server = url.resolve().and_then(|url| http::Server::new(&url, headers?, rate));
            Arc::new(http::Endpoint::new(server, fetches))
        }
        Kind::Source(source) => source,
    })
}

/// Creates the error of a connector that is not ready for requests.
pub(crate) fn unready(reason: &str) -> FetchError {
    FetchError::failed(format!("the connector is not ready: {reason}; its owner has to see to that"))
}
