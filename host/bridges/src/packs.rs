//! Packs of primitives: what `runtime.<pack>.<primitive>(…)` runs.
//!
//! A primitive is what a tool is, and made of the same parts; it has a schema of its result besides. Read [`Pack`] first.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc};

use cellar_engine::{
    CellId,
    bridges::{CallFuture, PackSpec, PrimitiveSpec, ToolSpec},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    options,
    tools::{Granted, Handler, ToolFailure, blocking, program_handler, schema_of, typed},
};

/// Primitives that are functions of the embedding program.
///
/// ```
/// use cellar_bridges::{HostBridges, Options, Pack};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Range {
///     first: u32,
///     last: u32,
/// }
///
/// let pack = Pack::new("numbers", "numbers of many kinds")
///     .version("1.2")
///     .primitive("sum", "the sum of a range", |range: Range| async move { Ok((range.first..=range.last).sum::<u32>()) })
///     .blocking_primitive("count", "how many there are", |range: Range| Ok(range.last.abs_diff(range.first)));
/// let bridges = HostBridges::new(Options::default()).with_pack(pack);
/// # let _ = bridges;
/// ```
///
/// Cells call them as `runtime.numbers.sum(first=1, last=3)`, `runtime.numbers.sum(1, 3)` and
/// `await runtime.numbers.sum(1, 3)`. Names may have dots: `"range.sum"` is `runtime.numbers.range.sum`.
#[derive(Clone, Default)]
pub struct Pack {
    spec: PackSpec,
    /// By their names in the pack.
    granted: BTreeMap<String, Arc<Granted>>,
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pack").field("name", &self.spec.name).field("primitives", &self.granted.keys()).finish()
    }
}

impl Pack {
    /// An empty pack.
    pub fn new(name: &str, description: &str) -> Pack {
        let spec = PackSpec { name: name.to_owned(), description: description.to_owned(), ..PackSpec::default() };
        Pack { spec, granted: BTreeMap::new() }
    }

    /// Sets the version, for people.
    #[must_use]
    pub fn version(mut self, version: &str) -> Pack {
        self.spec.version = Some(version.to_owned());
        self
    }

    /// Adds an asynchronous function. A later primitive of the same name takes the place of an earlier one.
    ///
    /// The future is dropped when the cell that called is stopped: it must leave nothing running.
    pub fn primitive<A, T, F, W>(self, name: &str, description: &str, function: F) -> Pack
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
        F: Fn(A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, ToolFailure>> + Send + 'static,
    {
        let spec = PrimitiveSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            schema: Some(schema_of::<A>()),
            result: Some(schema_of::<T>()),
        };
        let handler = typed(self.who(name), function);
        self.with(spec, handler)
    }

    /// Adds a function that computes or blocks; it runs on a thread that may. It is not stopped when the cell is, but
    /// nobody waits for it then.
    pub fn blocking_primitive<A, T, F>(self, name: &str, description: &str, function: F) -> Pack
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
        F: Fn(A) -> Result<T, ToolFailure> + Send + Sync + 'static,
    {
        self.primitive(name, description, blocking(function))
    }

    /// Adds a primitive whose arguments and results are JSON texts; it is told which cell calls. Its schema, if it has
    /// one, is held to.
    pub fn with(
        mut self,
        spec: PrimitiveSpec,
        handler: impl Fn(String, CellId) -> CallFuture + Send + Sync + 'static,
    ) -> Pack {
        let who = self.who(&spec.name);
        self.add(who, spec, Box::new(handler));
        self
    }

    /// Adds a primitive that is a command or a component.
    pub(crate) fn with_program(mut self, name: &str, primitive: options::Primitive) -> Pack {
        let options::Primitive { tool, result } = primitive;
        let spec = PrimitiveSpec {
            name: name.to_owned(),
            description: tool.description,
            schema: tool.schema.as_ref().map(serde_json::Value::to_string),
            result: result.as_ref().map(serde_json::Value::to_string),
        };
        let who = self.who(name);
        self.add(who.clone(), spec, program_handler(who, tool.program));
        self
    }

    fn add(&mut self, who: String, spec: PrimitiveSpec, handler: Box<Handler>) {
        let PrimitiveSpec { name, description, schema, result } = spec.clone();
        let tool = ToolSpec { name, description, schema };
        self.spec.primitives.retain(|earlier| earlier.name != spec.name);
        self.spec.primitives.push(spec);
        self.granted.insert(tool.name.clone(), Arc::new(Granted::new(who, tool, handler).with_result(result)));
    }

    /// A primitive of it in messages.
    fn who(&self, name: &str) -> String {
        format!("primitive `{}.{name}`", self.spec.name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(crate) fn spec(&self) -> &PackSpec {
        &self.spec
    }

    /// The primitive of this name in the pack.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Granted>> {
        self.granted.get(name).cloned()
    }
}
