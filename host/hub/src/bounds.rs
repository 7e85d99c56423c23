//! Limits that the sessions of a hub share, besides those of each session.

use std::{fmt, sync::Arc, time::Duration};

use cellar_bridges::TokenBudget;
use cellar_engine::{
    SessionConfig,
    config::{CpuShare, MemoryBudget},
    files::DiskPool,
};

/// Limits that all sessions of a hub share. An absent one limits nothing.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Share of processor time.
    pub share: Option<CpuShare>,
    /// Memory of their kernels.
    pub memory: Option<MemoryBudget>,
    /// Disk space of the sessions.
    pub disk: Option<DiskPool>,
    /// Tokens that their models may use.
    pub tokens: Option<Arc<dyn TokenBudget>>,
    /// Decides whether a run may begin.
    pub admission: Option<Arc<dyn Admission>>,
}

/// Decides whether new work may begin.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Checks whether a run may begin.
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
    /// Message for the caller.
    pub message: String,
    /// Time until some of it may be available again; absent where waiting does not help.
    pub retry_after: Option<Duration>,
}

impl Bounds {
    /// Applies these limits to a session.
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
