//! Bridge calls of one kernel: begun by its guest, answered through [`Answers`], which is all that a kernel sees of its session
//! and of what the embedder grants.

use std::sync::{Arc, OnceLock};

use cellar_core::{
    cell::CellId,
    event::{Bridge, Fetch},
};
use futures::future::{BoxFuture, Shared};

use crate::{
    contract::bridge::{Call, CallError, CallFuture, ConnectorSpec, PackSpec, ToolsFuture, denied},
    kernel::{
        events::Hearer,
        origins::{CellScope, Scope},
        scheduling::{Spent, StopFlag},
    },
};

mod account;
mod input;
mod memo;
mod open;

pub use account::Account;
pub(crate) use input::Requests;
pub(crate) use memo::{FetchKey, Memo, UnderWay};
pub(crate) use open::{Beginning, CallEnd, CallOrigin, Calls, Permits};

/// Calls that a run serves, and the agent that makes the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    /// The calls, the owner's first, each by its cell and its number: of an agent that runs a cell, the call that started
    /// it, and the call that started the agent that made that call.
    calls: Option<Arc<Vec<(u32, u64)>>>,
    /// The type of the agent that makes the run.
    agent: Option<Arc<str>>,
    /// Scope of the run that the last of these calls comes from. It holds for the run.
    scope: Option<Arc<Scope>>,
}

impl Lineage {
    /// Returns the lineage of a run that serves this call; if an agent makes that run, `agent` is its type.
    pub(crate) fn with(&self, cell: u32, call: u64, agent: Option<&str>) -> Lineage {
        let calls = self.calls.iter().flat_map(|calls| calls.iter().copied());
        let calls = Some(Arc::new(calls.chain([(cell, call)]).collect()));
        let agent = agent.map(Arc::from).or_else(|| self.agent.clone());
        Lineage { calls, agent, scope: self.scope.clone() }
    }

    /// Returns the same lineage for a call that comes from a run of this scope.
    pub(crate) fn within(self, scope: Option<Arc<Scope>>) -> Lineage {
        Lineage { scope: scope.or(self.scope), ..self }
    }

    /// Scope of the run that this one is a part of.
    pub(crate) fn scope(&self) -> Option<&Arc<Scope>> {
        self.scope.as_ref()
    }

    /// The call that the run itself serves.
    pub(crate) fn last(&self) -> Option<(u32, u64)> {
        self.calls.as_ref()?.last().copied()
    }

    /// Returns true if the run serves this call.
    pub(crate) fn contains(&self, site: (u32, u64)) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.contains(&site))
    }

    /// The type of the agent that makes the run; none when the session's owner does.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// Returns the lineage of the same agent, or of this one, in another session, whose kernels do not know these calls.
    pub(crate) fn elsewhere(&self, agent: Option<&str>) -> Lineage {
        let agent = agent.map(Arc::from).or_else(|| self.agent.clone());
        Lineage { calls: None, agent, scope: self.scope.clone() }
    }
}

/// An agent's output that is kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptOutput {
    /// The type of the agent.
    pub(crate) agent_type: String,
    /// `agent://<name>`.
    pub(crate) uri: String,
    pub(crate) bytes: u64,
}

/// Results that a call keeps besides its answer.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// Output of an agent.
    Output(KeptOutput),
    /// Rows of a fetch, which may still be on their way to the disk.
    Rows(KeptRows),
    /// A fetch that failed, for the fetch log.
    Failed(Box<Fetch>),
}

/// Rows that are kept: their artifact, or why there is none, once either is known.
pub(crate) type KeptRows = Shared<BoxFuture<'static, Result<String, String>>>;

/// Slot in which a call records what it keeps, before it answers.
pub(crate) type KeptSlot = Arc<OnceLock<Kept>>;

/// A call that was begun.
pub(crate) struct Begun {
    pub(crate) future: CallFuture,
    /// Slot for what the call keeps; present for agents and fetches.
    pub(crate) kept: Option<KeptSlot>,
    /// True for a process, which ends with the cell that started it.
    pub(crate) is_process: bool,
    /// True if the call waits for other calls of the session, so that it must not take a permit from one of them.
    pub(crate) is_free: bool,
    /// True if the call may wait for a person, which does not count as the cell's time.
    pub(crate) waits: bool,
}

impl From<CallFuture> for Begun {
    fn from(future: CallFuture) -> Begun {
        Begun { future, kept: None, is_process: false, is_free: false, waits: false }
    }
}

/// A call that holds a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// `agent` or `runtime`.
    pub(crate) bridge: Bridge,
    /// Its cell and its number.
    pub(crate) site: (u32, u64),
}

impl Block {
    /// A call, if it may need the kernel that it holds.
    pub(crate) fn of(bridge: Bridge, site: (u32, u64)) -> Option<Block> {
        matches!(bridge, Bridge::Agent | Bridge::Runtime).then_some(Block { bridge, site })
    }
}

/// The place in a session from which a call is made.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) cell: CellId,
    /// The number of the call.
    pub(crate) call: u64,
    /// Agents and forks between the session's owner and the cell.
    pub(crate) depth: u32,
    /// The calls that the calling run serves.
    pub(crate) lineage: Lineage,
    /// Set when the run that calls is stopped; absent for code that outlived its cell.
    pub(crate) stop: Option<Arc<StopFlag>>,
    /// Fuel that the cell and its processes may still burn, where that is counted.
    pub(crate) fuel_left: Option<u64>,
    /// Usage of the cell's processes; absent for code that outlived its cell.
    pub(crate) spent: Option<Arc<Spent>>,
    /// Scope of the calling run.
    pub(crate) scope: Option<CellScope>,
    /// The reader of the cell's run, for what the call has to say before it is answered; absent for code that outlived its
    /// cell.
    pub(crate) hearer: Option<Hearer>,
}

/// Answers the calls of a kernel's cells. A kernel knows neither its session nor what the embedder grants: this is all
/// that it sees of either.
pub(crate) trait Answers: Send + Sync {
    /// Every tool that cells may call.
    fn tools(&self) -> ToolsFuture;

    /// Every pack of primitives that cells may call.
    fn packs(&self) -> Vec<PackSpec>;

    /// Every connector that cells may fetch from.
    fn connectors(&self) -> Vec<ConnectorSpec>;

    /// Begins a call, or refuses it. No permit has been awaited yet: the work is done by the future.
    fn call(&self, call: Call, site: Site) -> Result<Begun, CallError>;
}

/// Answers the calls of a kernel that belongs to no session yet: each is denied.
#[derive(Debug)]
pub(crate) struct NoAnswers;

impl Answers for NoAnswers {
    fn tools(&self) -> ToolsFuture {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn packs(&self) -> Vec<PackSpec> {
        Vec::new()
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        Vec::new()
    }

    fn call(&self, call: Call, _site: Site) -> Result<Begun, CallError> {
        Err(denied(&call))
    }
}
