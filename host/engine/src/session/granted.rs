//! The trait by which an embedder answers the calls of cells.

use cellar_core::cell::CellId;
use serde_json::{Map, Value};

use super::Session;
use crate::contract::bridge::{
    BridgeGrants, Call, CallError, CallFuture, ConnectorSpec, FetchFuture, PackSpec, ToolsFuture, denied,
};

/// Where a call comes from.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The calling session. An agent may run cells in it with [`crate::Session::for_agent`].
    pub session: Session,
    /// The calling cell.
    pub cell: CellId,
    /// How many agents deep the calling run is; 0 for a run of the session's owner.
    pub depth: u32,
    /// The type of the agent that runs it; absent for a run of the session's owner, and for what is left of the cells of
    /// agents of another life of the session.
    pub agent: Option<String>,
}

/// Answers calls. One value serves every session it is given to.
pub trait Bridges: Send + Sync {
    /// The tools that cells may call. A cell asks when it looks for one; it waits for the answer, until its deadline.
    fn tools(&self) -> ToolsFuture {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The packs of primitives that cells may call. They are the session's: a reset and a restore leave them.
    fn packs(&self) -> Vec<PackSpec> {
        Vec::new()
    }

    /// Whether it has a tool of this name for sure, without asking anybody: then it takes the place of the session's own.
    fn has_tool(&self, _name: &str) -> bool {
        false
    }

    /// Whether it has a pack of this name: then it takes the place of the session's own.
    fn has_pack(&self, _name: &str) -> bool {
        false
    }

    /// The connectors that cells may fetch from. A session asks when a kernel starts: the names must be there at once.
    fn connectors(&self) -> Vec<ConnectorSpec> {
        Vec::new()
    }

    /// The arguments of a fetch in their canonical form: checked, with the defaults filled in, names sorted. What is equal
    /// to the source must be equal here. `name` is that of the connector, a dot, and that of the fetch.
    ///
    /// # Errors
    /// There is no such fetch, or it does not take these arguments.
    fn fetch_arguments(&self, name: &str, _arguments: Map<String, Value>) -> Result<Map<String, Value>, CallError> {
        Err(denied(&Call::Fetch { name: name.to_owned(), arguments: String::new() }))
    }

    /// Begins a fetch, with arguments that [`Bridges::fetch_arguments`] gave.
    ///
    /// # Cancel safety
    /// As [`Bridges::call`].
    fn fetch(&self, name: &str, _arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        let error = denied(&Call::Fetch { name: name.to_owned(), arguments: String::new() });
        Box::pin(std::future::ready(Err(error)))
    }

    /// What it grants, for the audit log.
    fn grants(&self) -> BridgeGrants {
        BridgeGrants::default()
    }

    /// Begins a call. Called at once, before any permit is awaited: do the work inside the future. That is polled once while
    /// the calling kernel waits, and becomes a task of its own unless it has an answer then. A future that blocks its thread
    /// holds up the kernel, which cannot be stopped meanwhile.
    ///
    /// # Cancel safety
    /// The future is dropped when the call's run is cancelled: it must leave nothing running.
    fn call(&self, call: Call, caller: Caller) -> CallFuture;
}

/// Grants nothing: every call is denied.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBridges;

impl Bridges for NoBridges {
    fn call(&self, call: Call, _caller: Caller) -> CallFuture {
        let error = denied(&call);
        Box::pin(std::future::ready(Err(error)))
    }
}
