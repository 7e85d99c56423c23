//! Typed signatures of what cells may call, and the pack `tools`, by which cells search for them.

use std::{future::Future, sync::Arc};

use cellar_core::cell::Language;
use cellar_stubs::{Catalog, Function, Group};
use serde::Deserialize;

use super::{
    reading::{READ_TOOL, read_tool},
    selfref::{SELFREF, selfref_pack},
};
use crate::{
    contract::bridge::{Call, CallError, CallErrorKind, CallFuture, ConnectorSpec, PackSpec, Response, ToolSpec},
    session::granted::Bridges,
};

/// Name of the pack. A pack of the same name that the embedder grants replaces it.
pub(crate) const TOOLS: &str = "tools";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Describe {
    name: String,
}

/// Gathers the functions that cells of a session with these bridges may call, its own included. Waits for the servers that
/// tools are on.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub fn catalog(bridges: &dyn Bridges) -> impl Future<Output = Catalog> + Send + use<> {
    let (tools, packs, connectors) = (bridges.tools(), bridges.packs(), bridges.connectors());
    async move {
        let tools = tools.await;
        let read = (!tools.iter().any(|tool| tool.name == READ_TOOL)).then(read_tool);
        let selfref = (!packs.iter().any(|pack| pack.name == SELFREF)).then(selfref_pack);
        let usual = |function: Function| Function { is_usual: true, ..function };
        let granted = tools.into_iter().map(of_tool);
        let granted = granted.chain(packs.into_iter().flat_map(of_pack));
        let granted = granted.chain(connectors.into_iter().flat_map(of_connector));
        let own = read.map(of_tool).into_iter().chain(selfref.into_iter().flat_map(of_pack)).map(usual);
        granted.chain(own).collect()
    }
}

fn of_tool(tool: ToolSpec) -> Function {
    let ToolSpec { name, description, schema } = tool;
    Function { group: Group::Tool, name, description, schema, result: None, columns: Vec::new(), is_usual: false }
}

fn of_pack(pack: PackSpec) -> impl Iterator<Item = Function> {
    let of = pack.name;
    pack.primitives.into_iter().map(move |primitive| Function {
        group: Group::Pack(of.clone()),
        name: primitive.name,
        description: primitive.description,
        schema: primitive.schema,
        result: primitive.result,
        columns: Vec::new(),
        is_usual: false,
    })
}

fn of_connector(connector: ConnectorSpec) -> impl Iterator<Item = Function> {
    let of = connector.name;
    connector.fetches.into_iter().map(move |fetch| Function {
        group: Group::Connector(of.clone()),
        name: fetch.name,
        description: fetch.description,
        schema: Some(fetch.schema),
        result: None,
        columns: fetch.columns,
        is_usual: false,
    })
}

/// Answers a call of the pack. `name` is that of the primitive in it.
pub(crate) fn answer(bridges: &dyn Bridges, language: Language, name: &str, arguments: String) -> CallFuture {
    let (name, catalog) = (name.to_owned(), catalog(bridges));
    Box::pin(async move {
        let answer = match name.as_str() {
            "search" => {
                let Search { query, limit } = read(&name, &arguments)?;
                catalog.await.search(&query, language, limit).into()
            }
            "describe" => {
                let Describe { name } = read(&name, &arguments)?;
                let described = catalog.await.describe(&name, language);
                described.map_err(|fault| CallError::new(CallErrorKind::Unknown, fault))?.into()
            }
            _ => {
                let message =
                    format!("no primitive named `{TOOLS}.{name}`; known are: {TOOLS}.search, {TOOLS}.describe");
                return Err(CallError::new(CallErrorKind::Unknown, message));
            }
        };
        Ok(Response::Json(serde_json::Value::to_string(&answer)))
    })
}

fn read<T: serde::de::DeserializeOwned>(name: &str, arguments: &str) -> Result<T, CallError> {
    serde_json::from_str(arguments).map_err(|error| {
        CallError::new(CallErrorKind::Invalid, format!("tools.{name}: the arguments do not fit: {error}"))
    })
}

/// Returns the name of the function that a call is for, if it has a signature.
pub(crate) fn callee(call: &Call) -> Option<String> {
    match call {
        Call::Tool { name, .. } => Some(format!("tool.{name}")),
        Call::Primitive { pack, name, .. } => Some(format!("runtime.{pack}.{name}")),
        _ => None,
    }
}

/// Adds the signature to the refusal of a call whose arguments do not fit.
pub(crate) fn with_signature(
    bridges: Arc<dyn Bridges>,
    language: Language,
    callee: String,
    answer: CallFuture,
) -> CallFuture {
    Box::pin(async move {
        let mut error = match answer.await {
            Err(error) if error.kind == CallErrorKind::Invalid => error,
            answer => return answer,
        };
        if let Some(function) = catalog(&*bridges).await.get(&callee) {
            error.message.push_str(&format!("; it is {}", function.line(language)));
        }
        Err(error)
    })
}
