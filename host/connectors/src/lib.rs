//! Sources of data that a host holds, and what cells fetch from them: rows in columns.
//!
//! [`ConnectorOptions`] say what there is; [`Connectors`] check every fetch before anything is asked, bound what comes, and
//! hand the rows over as [`Batches`]. Credentials stay here: no error has one in it, nor a path of the host, nor what a
//! driver prints. This crate knows nothing of sessions or cells. Read [`Connectors`] first.

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
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::time::later;
use cellar_tables::Batches;
use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

pub use error::{FetchError, FetchFault};
pub use json::rows_of_json;
pub use objects::{Objects, ObjectsOptions};
pub use options::{
    Bounds, Comparison, ConnectorOptions, Database, FetchOptions, FileFormat, FilesFetch, FilesPlace, Filter,
    HttpFetch, Kind, Pages, Secret, TableColumn,
};
pub use parameters::{Parameter, ParameterKind};
pub use tool::{ToolAnswer, ToolSource};

use error::near;
use sql::Dialect;
use tool::Queries;

/// The fetch of free SQL, where a connector has it.
pub const SQL_FETCH: &str = "sql";

/// What is said of a connector.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectorSpec {
    /// What cells call it.
    pub name: String,
    /// What it is, for people and models.
    pub description: String,
    /// What can be fetched.
    pub fetches: Vec<FetchSpec>,
}

/// What is said of a fetch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FetchSpec {
    /// What cells call it.
    pub name: String,
    /// What it gives, for people and models.
    pub description: String,
    /// What it takes, in the order of arguments without names.
    pub parameters: Vec<Parameter>,
    /// Its columns, where they are known.
    pub columns: Vec<TableColumn>,
}

/// One fetch: what is asked for, and how much may come.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which fetch.
    pub fetch: String,
    /// Checked, with the defaults.
    pub arguments: Map<String, Value>,
    /// How much may come.
    pub bounds: Bounds,
    /// When it must be here.
    pub deadline: Instant,
}

/// Where rows come from. The kinds of this crate are such sources, and so may be an embedder's own.
pub trait Source: Send + Sync {
    /// What can be fetched.
    fn fetches(&self) -> Vec<FetchSpec>;

    /// Fetches rows. Within the bounds of the request: more is an error, never less than there is.
    ///
    /// # Cancel safety
    /// Dropping the future gives the fetch up, at the source as well where that can be.
    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>>;

    /// Whether the source can be reached, and what it is. For people who set a connector up.
    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>>;
}

/// All connectors of a host. Cheap to clone; clones share connections and limits.
#[derive(Clone, Default)]
pub struct Connectors(Arc<BTreeMap<String, Held>>);

struct Held {
    description: String,
    bounds: Bounds,
    fetches: BTreeMap<String, FetchSpec>,
    /// Fetches that run at a time.
    permits: Arc<Semaphore>,
    source: Arc<dyn Source>,
}

impl fmt::Debug for Connectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connectors").field(&self.0.keys()).finish()
    }
}

impl Connectors {
    /// The connectors that these options describe. Nothing is opened or asked before a cell fetches. Credentials are known
    /// from now on. One whose credentials are missing is there, and says so when it is asked.
    ///
    /// # Errors
    /// All that is wrong with the options, each with its connector.
    pub fn new(options: BTreeMap<String, ConnectorOptions>) -> Result<Connectors, Vec<String>> {
        let (mut held, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, options) in options {
            let ConnectorOptions { description, bounds, kind } = options;
            match source(kind) {
                Ok(source) => {
                    held.insert(name, Held::new(description, bounds, source));
                }
                Err(problem) => problems.push(format!("connectors.{name}: {problem}")),
            }
        }
        if problems.is_empty() { Ok(Connectors(Arc::new(held))) } else { Err(problems) }
    }

    /// Connectors of another process, of which this was said: they check arguments as those do, and fetch nothing.
    pub fn told(specs: Vec<ConnectorSpec>) -> Connectors {
        let held = |spec: ConnectorSpec| {
            let source = Arc::new(Elsewhere(spec.fetches));
            (spec.name, Held::new(spec.description, Bounds::default(), source))
        };
        Connectors(Arc::new(specs.into_iter().map(held).collect()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What is said of each.
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

    /// Fetches rows, with arguments that [`Connectors::check`] gave. Time spent waiting for other fetches of the connector
    /// counts.
    ///
    /// # Errors
    /// What the source says, in words for a cell; a bound that was passed.
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

    /// Whether a connector can be reached, and what it is.
    ///
    /// # Errors
    /// Why not, in words.
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

/// The source of a kind.
///
/// # Errors
/// What is wrong with the options.
fn source(kind: Kind) -> Result<Arc<dyn Source>, String> {
    Ok(match kind {
        Kind::Postgres(database) => {
            let queries = Queries::new(Dialect::Postgres, database.sql, database.fetches)?;
            let server = database.url.resolve().and_then(|url| postgres::Server::new(&url));
            Arc::new(postgres::Postgres::new(server.inspect(postgres::Server::learn), queries))
        }
        Kind::Mysql(database) => {
            let queries = Queries::new(Dialect::Mysql, database.sql, database.fetches)?;
            let url = database.url.resolve();
            Arc::new(mysql::Mysql::new(url.and_then(|url| mysql::Server::new(&url)), queries))
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

/// What a connector says that cannot be asked.
pub(crate) fn unready(reason: &str) -> FetchError {
    FetchError::failed(format!("the connector is not ready: {reason}; its owner has to see to that"))
}
