//! What bounds the sessions of a hub together, besides what bounds each.

use std::{fmt, sync::Arc, time::Duration};

use cellar_bridges::TokenBudget;
use cellar_engine::{
    SessionConfig,
    config::{CpuShare, MemoryBudget},
    files::DiskPool,
};

/// What all sessions of a hub share. What is absent bounds nothing.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Their share of processor time.
    pub share: Option<CpuShare>,
    /// The memory that their kernels have.
    pub memory: Option<MemoryBudget>,
    /// What they have on the disk.
    pub disk: Option<DiskPool>,
    /// What their models may say.
    pub tokens: Option<Arc<dyn TokenBudget>>,
    /// Says whether a run may begin.
    pub admission: Option<Arc<dyn Admission>>,
}

/// Says whether new work may begin.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Whether a run may begin.
    ///
    /// # Errors
    /// The quota that is used up.
    fn admit(&self) -> Result<(), QuotaError>;
}

/// A quota that is used up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QuotaError {
    /// Its name in the configuration.
    pub quota: &'static str,
    /// What is said of it.
    pub message: String,
    /// When there may be some of it again, where time brings that about.
    pub retry_after: Option<Duration>,
}

impl Bounds {
    /// Has a session share all this.
    pub(crate) fn apply(&self, config: &mut SessionConfig) {
        let shared = &mut config.shared;
        shared.cpu = self.share.clone();
        shared.memory = self.memory.clone();
        shared.disk_pool = self.disk.clone();
    }

    pub(crate) fn admit(&self) -> Result<(), QuotaError> {
        self.admission.as_ref().map_or(Ok(()), |admission| admission.admit())
    }
}
