//! The trait by which an embedder answers the calls of cells.

use cellar_core::cell::CellId;
use serde_json::{Map, Value};

use super::{Session, waits::Wait};
use crate::contract::bridge::{
    BridgeGrants, Call, CallError, CallFuture, ConnectorSpec, FetchFuture, FetchName, PackSpec, ToolsFuture, denied,
};

/// Caller of a bridge call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The calling session. An agent may run cells in it with [`crate::Session::for_agent`].
    pub session: Session,
    /// The calling cell.
    pub cell: CellId,
    /// Agents between the session's owner and the calling run; 0 for a run of the owner.
    pub depth: u32,
    /// Type of the agent that makes the run; `None` for a run of the session's owner, and for cells of an agent that were
    /// restored with an earlier state of the session.
    pub agent: Option<String>,
    /// Wait for a person, of a call that [`Bridges::confirms`].
    pub wait: Option<Wait>,
}

/// Answers calls. One value serves every session it is given to.
pub trait Bridges: Send + Sync {
    /// Tools that cells may call. A cell queries them when it looks up a tool, and waits for the answer until its deadline.
    fn tools(&self) -> ToolsFuture {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Packs of primitives that cells may call. They belong to the session: a reset and a restore do not change them.
    fn packs(&self) -> Vec<PackSpec> {
        Vec::new()
    }

    /// Returns true if a tool of this name surely exists, known without any request; it then replaces the session's own tool.
    fn has_tool(&self, _name: &str) -> bool {
        false
    }

    /// Returns true if a pack of this name exists; it then replaces the session's own pack.
    fn has_pack(&self, _name: &str) -> bool {
        false
    }

    /// Connectors that cells may fetch from. A session queries them when a kernel starts, so the names must be available at
    /// once.
    fn connectors(&self) -> Vec<ConnectorSpec> {
        Vec::new()
    }

    /// The arguments of a fetch in their canonical form: checked, with the defaults filled in, names sorted. What is equal
    /// to the source must be equal here.
    ///
    /// # Errors
    /// There is no such fetch, or it does not take these arguments.
    fn fetch_arguments(
        &self,
        name: &FetchName,
        _arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        Err(no_fetch(name))
    }

    /// Begins a fetch, with arguments that [`Bridges::fetch_arguments`] gave.
    ///
    /// # Cancel safety
    /// As [`Bridges::call`].
    fn fetch(&self, name: &FetchName, _arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        Box::pin(std::future::ready(Err(no_fetch(name))))
    }

    /// Returns true if a call may wait for a person before it is carried out. That time does not count as the cell's, and
    /// the [`Caller`] has a [`Wait`]. Asked at once, before the call.
    fn confirms(&self, _call: &Call) -> bool {
        false
    }

    /// Grants of this bridge, for the audit log.
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

/// Error for a fetch that no connector has.
fn no_fetch(name: &FetchName) -> CallError {
    denied(&Call::Fetch { name: name.clone(), arguments: String::new(), refresh: false })
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
