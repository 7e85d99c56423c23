//! Shared parts of the kinds: named queries, and sources that are tools of the host.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use cellar_tables::Batches;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::{
    FetchOptions, FetchSpec, Parameter, ParameterKind, Request, SQL_FETCH, Source,
    error::{FetchError, FetchFault},
    json::{self, kind_of, rows_of_json},
    sql::{self, Dialect, Statement},
};

/// The fetches of a database.
pub(crate) struct Queries {
    dialect: Dialect,
    /// The statements, as they are written.
    named: BTreeMap<String, (FetchSpec, String)>,
    has_free: bool,
}

impl Queries {
    /// # Errors
    /// What is wrong with a query.
    pub(crate) fn new(
        dialect: Dialect,
        has_free: bool,
        fetches: BTreeMap<String, FetchOptions<String>>,
    ) -> Result<Queries, String> {
        let mut named = BTreeMap::new();
        for (name, options) in fetches {
            let fault = |what: String| format!("fetches.{name}: {what}");
            let statement = sql::read(&options.asks, dialect, &Map::new()).map_err(fault)?;
            let (spec, text) = spec(&name, options)?;
            for parameter in &statement.names {
                if !spec.parameters.iter().any(|known| known.name == *parameter) {
                    return Err(fault(format!("the query has `:{parameter}`, of which `parameters` says nothing")));
                }
            }
            if let Some(unused) = spec.parameters.iter().find(|known| !statement.names.contains(&known.name)) {
                return Err(fault(format!("the query has no `:{}`", unused.name)));
            }
            named.insert(name, (spec, text));
        }
        Ok(Queries { dialect, named, has_free })
    }

    pub(crate) fn specs(&self) -> Vec<FetchSpec> {
        let free = self.has_free.then(|| {
            let parameter = |name: &str, kind, description: &str, is_required: bool| Parameter {
                name: name.to_owned(),
                kind,
                description: description.to_owned(),
                is_list: false,
                is_required,
                default: Value::Null,
                choices: Vec::new(),
                min: None,
                max: None,
            };
            let query = "one statement that reads; `:name` stands for a parameter";
            FetchSpec {
                name: SQL_FETCH.to_owned(),
                description: "Rows of a query of your own".to_owned(),
                parameters: vec![
                    parameter("query", ParameterKind::String, query, true),
                    parameter("parameters", ParameterKind::Object, "values of the parameters, by their names", false),
                ],
                columns: Vec::new(),
            }
        });
        self.named.values().map(|(spec, _)| spec.clone()).chain(free).collect()
    }

    /// The statement of a fetch, and the values of its parameters.
    pub(crate) fn statement(&self, request: &Request) -> Result<(Statement, Map<String, Value>), FetchError> {
        let denied = |what| FetchError::new(FetchFault::Denied, what);
        if let Some((_, text)) = self.named.get(&request.fetch) {
            let statement = sql::read(text, self.dialect, &request.arguments).map_err(denied)?;
            return Ok((statement, request.arguments.clone()));
        }
        let query = request.arguments.get("query").and_then(Value::as_str).unwrap_or_default();
        let given = match request.arguments.get("parameters") {
            Some(Value::Object(given)) => given.clone(),
            _ => Map::new(),
        };
        let invalid = |what: String| Err(FetchError::new(FetchFault::Invalid, what));
        let statement = sql::read(query, self.dialect, &given).map_err(denied)?;
        if let Some(missing) = statement.names.iter().find(|name| !given.contains_key(sql::name_of(name))) {
            return invalid(format!("the query has `:{missing}`, of which `parameters` has no value"));
        }
        if let Some(unused) = given.keys().find(|name| !statement.has(name)) {
            return invalid(format!("`parameters` has `{unused}`, and the query has no `:{unused}`"));
        }
        Ok((statement, given))
    }
}

/// Splits the options of a fetch into its specification and its query, and checks the parameters.
///
/// # Errors
/// A parameter is invalid.
pub(crate) fn spec<T>(name: &str, options: FetchOptions<T>) -> Result<(FetchSpec, T), String> {
    let FetchOptions { description, mut parameters, columns, asks } = options;
    for parameter in &mut parameters {
        parameter.check().map_err(|what| format!("fetches.{name}.parameters.{}: {what}", parameter.name))?;
    }
    Ok((FetchSpec { name: name.to_owned(), description, parameters, columns }, asks))
}

/// Stops work on another thread when the fetch that it is done for is dropped.
#[derive(Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns the flag that is set when the fetch is dropped.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A value as a text.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Response of a tool: a JSON text with an array of objects, or with an object that has one as `rows`.
pub type ToolAnswer = BoxFuture<'static, Result<String, FetchError>>;

type Ask = dyn Fn(&str, Map<String, Value>) -> ToolAnswer + Send + Sync;

/// Fetches that a tool of the host answers: a command, or a tool of an MCP server.
#[derive(Clone)]
pub struct ToolSource {
    fetches: Vec<FetchSpec>,
    what: String,
    ask: Arc<Ask>,
}

impl ToolSource {
    /// Creates a source. `what` describes the tool for people. `ask` is called with the name of a fetch and its arguments.
    ///
    /// # Errors
    /// A parameter is invalid.
    pub fn new<T>(
        what: &str,
        fetches: BTreeMap<String, FetchOptions<T>>,
        ask: impl Fn(&str, Map<String, Value>) -> ToolAnswer + Send + Sync + 'static,
    ) -> Result<ToolSource, String> {
        let fetches = fetches.into_iter().map(|(name, options)| spec(&name, options).map(|(spec, _)| spec));
        Ok(ToolSource { fetches: fetches.collect::<Result<_, _>>()?, what: what.to_owned(), ask: Arc::new(ask) })
    }
}

impl std::fmt::Debug for ToolSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ToolSource").field(&self.what).finish()
    }
}

impl Source for ToolSource {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.fetches.clone()
    }

    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        let answer = (self.ask)(&request.fetch, request.arguments);
        Box::pin(async move {
            let text = answer.await?;
            if text.len() > request.bounds.bytes {
                return Err(crate::rows::too_many_bytes(&request.bounds));
            }
            let made = tokio::task::spawn_blocking(move || table_of(&text, &request.bounds, request.deadline));
            made.await.unwrap_or_else(|_| Err(FetchError::failed("the answer could not be read")))
        })
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        let what = self.what.clone();
        Box::pin(async move { Ok(what) })
    }
}

fn table_of(text: &str, bounds: &crate::Bounds, deadline: Instant) -> Result<Batches, FetchError> {
    let rows = match json::read("the answer", text.as_bytes())? {
        Value::Object(mut members) => members.remove("rows").unwrap_or(Value::Null),
        other => other,
    };
    let Value::Array(rows) = rows else {
        let what = kind_of(&rows);
        return Err(FetchError::failed(format!("the answer is {what}, where rows were expected: an array of objects")));
    };
    rows_of_json(rows, bounds, deadline)
}
