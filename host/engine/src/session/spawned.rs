//! What the cells of a session start: forks of it, which go on from a copy of its state, and processes, which begin with nothing.

use std::sync::Arc;

use cellar_core::limits::Limits;
use cellar_files::Quota;
use cellar_results::artifacts::ArtifactKeys;
use tokio::sync::Semaphore;

use super::{artifacts::Reach, locals::Locals};
use crate::kernel::calls::Permits;

mod channels;
mod forks;
mod processes;

pub(crate) use forks::{Forks, Order, Teller};
pub(crate) use processes::{Process, Processes};

/// What a session is to the one whose cell made it.
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

/// What a session shares with the forks and the processes that its cells make: they grant cells nothing more.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) permits: Permits,
    pub(crate) locals: Arc<Locals>,
    /// How many more forks may run.
    pub(crate) forks_left: Arc<Semaphore>,
    pub(crate) reach: Arc<Reach>,
    pub(crate) processes: Arc<Processes>,
}

impl Shared {
    /// That of a session of this name, which no cell made. It reaches what these keys open.
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

/// What a session gets from the one whose cell makes it.
pub(crate) struct Kin {
    pub(crate) role: Role,
    pub(crate) shared: Shared,
    /// What it may add to the disk, where the two share a folder.
    pub(crate) quota: Option<Arc<Quota>>,
}
