//! Sessions that the cells of a session start: forks, restored from a copy of its state, and processes, which start empty.
//! Embedders start processes as well: commands.

use std::sync::Arc;

use cellar_core::limits::Limits;
use cellar_files::Quota;
use cellar_results::artifacts::ArtifactKeys;
use tokio::sync::Semaphore;

use super::{artifacts::Reach, locals::Locals};
use crate::kernel::calls::Permits;

mod channels;
mod commands;
mod forks;
mod processes;

pub use commands::CommandInput;
pub(crate) use forks::{Forks, Order, Teller};
pub(crate) use processes::{Process, Processes};

/// Relation of a session to the session whose cell made it.
pub(crate) enum Role {
    /// No cell made it.
    Own,
    /// A fork, by its name.
    Fork(String),
    Process(Arc<Process>),
}

impl Role {
    pub(crate) fn fork_id(&self) -> Option<&str> {
        match self {
            Role::Fork(id) => Some(id),
            Role::Own | Role::Process(_) => None,
        }
    }

    pub(crate) fn process(&self) -> Option<&Arc<Process>> {
        match self {
            Role::Process(process) => Some(process),
            Role::Own | Role::Fork(_) => None,
        }
    }
}

/// Resources that a session shares with the forks and processes that its cells make: they grant cells nothing more.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) permits: Permits,
    pub(crate) locals: Arc<Locals>,
    /// Permits for more forks at the same time.
    pub(crate) forks_left: Arc<Semaphore>,
    pub(crate) reach: Arc<Reach>,
    pub(crate) processes: Arc<Processes>,
}

impl Shared {
    /// Creates the resources of a session of this id that no cell made. It may read the artifacts that `keys` open.
    pub(crate) fn new(id: &str, limits: &Limits, keys: ArtifactKeys) -> Shared {
        Shared {
            permits: Permits::new(limits.calls_in_flight),
            locals: Arc::default(),
            forks_left: Arc::new(Semaphore::new(limits.forks)),
            reach: Arc::new(Reach::new(id, keys)),
            processes: Arc::new(Processes::new(limits)),
        }
    }
}

/// Resources that a session gets from the session whose cell makes it.
pub(crate) struct Kin {
    pub(crate) role: Role,
    pub(crate) shared: Shared,
    /// Disk quota, if the two share a folder.
    pub(crate) quota: Option<Arc<Quota>>,
}
