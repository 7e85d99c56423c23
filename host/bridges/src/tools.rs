//! Tools, which run when a cell calls `tool.<name>(…)`, whatever their source.
//!
//! Each has a name, a description and, usually, a JSON Schema of its arguments, against which every call is checked before
//! the tool receives it. Read [`Tools`] first.

use std::{collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use cellar_engine::{
    CellId,
    bridges::{CallError, CallErrorKind, CallFuture, Response, ToolSpec},
};
use futures::FutureExt;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};

use crate::{arguments, checked::Checked, command, component, json_text, options::Program};

/// Tools that are functions of the embedding program.
///
/// ```
/// use cellar_bridges::{HostBridges, Options, Tools};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     a: i64,
///     /// Two when left out.
///     b: Option<i64>,
/// }
///
/// let tools = Tools::new()
///     .tool("add", "adds two numbers", |args: Add| async move { Ok(args.a + args.b.unwrap_or(2)) })
///     .blocking_tool("digits", "counts digits", |args: Add| Ok(args.a.checked_ilog10().map(|n| n + 1)));
/// let bridges = HostBridges::new(Options::default()).with_tools(tools);
/// # let _ = bridges;
/// ```
///
/// Cells call them as `tool.add(a=1)` and `await tool.add({a: 1})`. The schema of the arguments is that of the
/// argument type; an error, or a panic, becomes an exception that names the tool.
#[derive(Clone, Default)]
pub struct Tools(BTreeMap<String, Arc<Granted>>);

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Failure of a tool, a primitive or an agent, as a message for the cell. It must not contain a credential or a path of the
/// host. Any error converts into it with `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFailure(String);

impl ToolFailure {
    /// Creates a failure with this message.
    pub fn new(message: impl Into<String>) -> ToolFailure {
        ToolFailure(message.into())
    }
}

impl fmt::Display for ToolFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for ToolFailure {
    fn from(error: E) -> ToolFailure {
        ToolFailure(error.to_string())
    }
}

impl Tools {
    /// No tools.
    pub fn new() -> Tools {
        Tools::default()
    }

    /// Adds an asynchronous function. A later tool of the same name takes the place of an earlier one.
    ///
    /// The future is dropped when the cell that called is stopped: it must leave nothing running.
    pub fn tool<A, T, F, W>(self, name: &str, description: &str, function: F) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + Send + 'static,
        F: Fn(A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, ToolFailure>> + Send + 'static,
    {
        let schema = Some(schema_of::<A>());
        let spec = ToolSpec { name: name.to_owned(), description: description.to_owned(), schema };
        let mut tools = self;
        tools.add(Granted::new(who(name), spec, Box::new(typed(who(name), function))));
        tools
    }

    /// Adds a function that computes or blocks; it runs on a thread that may. It is not stopped when the cell is, but
    /// nobody waits for it then.
    pub fn blocking_tool<A, T, F>(self, name: &str, description: &str, function: F) -> Tools
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + Send + 'static,
        F: Fn(A) -> Result<T, ToolFailure> + Send + Sync + 'static,
    {
        self.tool(name, description, blocking(function))
    }

    /// Adds a tool whose arguments and results are JSON texts; it is told which cell calls. Its schema, if it has one,
    /// is held to, within the bounds of schemas that strangers give: it has 10,000 nodes at most once its references are
    /// written out, none of which leads back to itself. Calls are refused where it is beyond them.
    pub fn with(
        mut self,
        spec: ToolSpec,
        handler: impl Fn(String, CellId) -> CallFuture + Send + Sync + 'static,
    ) -> Tools {
        self.add(Granted::of_stranger(who(&spec.name), spec, Box::new(handler)));
        self
    }

    pub(crate) fn add(&mut self, tool: Granted) {
        self.0.insert(tool.spec.name.clone(), Arc::new(tool));
    }

    /// Adds all of `others`, and replaces tools with the same names.
    pub(crate) fn extend(&mut self, others: Tools) {
        self.0.extend(others.0);
    }

    /// Adds those of `others` whose names are free; returns the names that are not.
    pub(crate) fn add_all(&mut self, others: &Tools) -> Vec<String> {
        let (taken, free): (Vec<_>, Vec<_>) = others.0.iter().partition(|(name, _)| self.0.contains_key(*name));
        self.0.extend(free.into_iter().map(|(name, tool)| (name.clone(), tool.clone())));
        taken.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// The tool of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Granted>> {
        self.0.get(name).cloned()
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the specifications of the tools for cells.
    pub(crate) fn specs(&self) -> impl Iterator<Item = ToolSpec> {
        self.0.values().map(|tool| tool.spec.clone())
    }

    /// Returns the number of tools.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

pub(crate) type Handler = dyn Fn(String, CellId) -> CallFuture + Send + Sync;

/// A granted tool or primitive.
pub(crate) struct Granted {
    /// Name in messages.
    who: String,
    spec: ToolSpec,
    schema: Option<Arc<Checked>>,
    /// Schema of a primitive's result.
    result: Option<Arc<Checked>>,
    handler: Box<Handler>,
}

impl Granted {
    /// A tool whose schema is the operator's, or the embedding program's.
    pub(crate) fn new(who: String, spec: ToolSpec, handler: Box<Handler>) -> Granted {
        let schema = spec.schema.clone().map(Checked::own);
        Granted { who, spec, schema, result: None, handler }
    }

    /// A tool whose schema is a caller's or a server's.
    pub(crate) fn of_stranger(who: String, spec: ToolSpec, handler: Box<Handler>) -> Granted {
        let schema = spec.schema.clone().map(Checked::of_stranger);
        Granted { who, spec, schema, result: None, handler }
    }

    /// Adds a schema that its results must match.
    pub(crate) fn with_result(self, schema: Option<String>) -> Granted {
        Granted { result: schema.map(Checked::own), ..self }
    }

    /// Checks the arguments and calls.
    ///
    /// # Cancel safety
    /// Dropping the future drops that of the tool.
    pub(crate) async fn call(self: Arc<Granted>, arguments: String, cell: CellId) -> Result<Response, CallError> {
        let who = self.who.as_str();
        let invalid = |what: String| CallError::new(CallErrorKind::Invalid, format!("{who}: {what}"));
        // What was checked, and nothing else that the text might have said. The tree goes before the tool begins.
        let arguments = {
            let value =
                arguments::read(&arguments).map_err(|fault| invalid(format!("the arguments are no JSON: {fault}")))?;
            let checked = match &self.schema {
                Some(schema) => schema.check(value).await,
                None => Ok(value),
            };
            checked.map_err(|fault| invalid(format!("the arguments do not fit its schema: {fault}")))?.to_string()
        };
        let work = AssertUnwindSafe(async { (self.handler)(arguments, cell).await });
        let answer = work.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!("{who} panicked");
            Err(CallError::new(CallErrorKind::Failed, format!("{who} panicked")))
        })?;
        self.check_result(&answer).await.map_err(|fault| {
            CallError::new(CallErrorKind::Failed, format!("{who}: the result does not fit its schema: {fault}"))
        })?;
        Ok(answer)
    }

    async fn check_result(&self, answer: &Response) -> Result<(), String> {
        let (Some(schema), Response::Json(text)) = (&self.result, answer) else { return Ok(()) };
        let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        schema.check(value).await.map(drop)
    }
}

/// The tool in messages.
pub(crate) fn who(name: &str) -> String {
    format!("tool `{name}`")
}

pub(crate) fn schema_of<A: JsonSchema>() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<A>();
    schema.to_value().to_string()
}

/// A handler of JSON texts around a function of types.
pub(crate) fn typed<A, T, F, W>(who: String, function: F) -> impl Fn(String, CellId) -> CallFuture + Send + Sync
where
    A: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
    F: Fn(A) -> W + Send + Sync + 'static,
    W: Future<Output = Result<T, ToolFailure>> + Send + 'static,
{
    move |arguments, _| {
        let who = who.clone();
        let begun = read::<A>(&who, &arguments).map(&function);
        Box::pin(async move { answer(&who, begun?.await) })
    }
}

/// A function that may wait around one that computes or blocks.
pub(crate) fn blocking<A, T, F>(function: F) -> impl Fn(A) -> BlockingFuture<T> + Send + Sync
where
    A: Send + 'static,
    T: Send + 'static,
    F: Fn(A) -> Result<T, ToolFailure> + Send + Sync + 'static,
{
    let function = Arc::new(function);
    move |arguments: A| {
        let function = function.clone();
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || function(arguments)).await {
                Ok(result) => result,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(ToolFailure::new("was stopped with the host")),
            }
        })
    }
}

/// Future that [`blocking`] returns.
pub(crate) type BlockingFuture<T> = Pin<Box<dyn Future<Output = Result<T, ToolFailure>> + Send>>;

/// A handler that runs a program. Dropping its call ends the program; a command, with all that it started in its process
/// group.
pub(crate) fn program_handler(who: String, program: Program) -> Box<Handler> {
    let program = Arc::new(program);
    Box::new(move |arguments: String, _: CellId| -> CallFuture {
        let (who, program, input) = (who.clone(), program.clone(), arguments.into_bytes());
        Box::pin(async move {
            let output = match &*program {
                Program::Command(command) => command::run(command, &who, input, &[]).await?,
                Program::Component(component) => component::run(component, &who, input).await?,
            };
            Ok(Response::Json(json_text(&who, output)?))
        })
    })
}

/// Parses the arguments for the function. Arguments that match the schema may still be invalid for the type.
fn read<A: DeserializeOwned>(who: &str, arguments: &str) -> Result<A, CallError> {
    serde_json::from_str(arguments).map_err(|error| {
        CallError::new(CallErrorKind::Invalid, format!("{who}: the arguments cannot be read: {error}"))
    })
}

fn answer<T: Serialize>(who: &str, result: Result<T, ToolFailure>) -> Result<Response, CallError> {
    let failed = |what: String| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
    let value = result.map_err(|failure| failed(format!("failed: {}", failure.0)))?;
    let text = serde_json::to_string(&value).map_err(|error| failed(format!("gave what JSON cannot hold: {error}")))?;
    Ok(Response::Json(text))
}

#[cfg(test)]
mod tests;
