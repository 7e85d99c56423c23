//! What the cells of a session start: forks of it, which go on from a copy of its state, and processes, which begin with nothing.

use std::sync::Arc;

use cellar_files::Quota;
use tokio::sync::Semaphore;

use super::{artifacts::Reach, locals::Locals};
use crate::kernel::calls::Permits;

mod channels;
mod forks;
mod processes;

pub(crate) use forks::{Forks, Order, Teller};
pub(crate) use processes::{Process, Processes};

/// The budgets that a session shares with the forks and the processes that its cells make: they grant cells nothing more.
pub(crate) struct Kin {
    pub(crate) fork_id: String,
    /// Absent where the two share no folder.
    pub(crate) quota: Option<Arc<Quota>>,
    pub(crate) permits: Permits,
    pub(crate) locals: Arc<Locals>,
    pub(crate) forks_left: Arc<Semaphore>,
    pub(crate) reach: Arc<Reach>,
    pub(crate) processes: Arc<Processes>,
    /// What makes it a process, and no fork.
    pub(crate) process: Option<Arc<Process>>,
}
