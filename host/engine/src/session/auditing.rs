//! Entries about a session in the audit log.

use std::sync::Arc;

use cellar_core::cell::Cell;
use cellar_files::{Access, Mount};

use super::Session;
use crate::{
    audit::{Audit, Auditor, CallSite, CellAsked, Grants, LimitGrants, RunStarted, SeedGrant, code_digest},
    contract::{config::KernelMode, error::Error},
};

/// Checks that no mount lets cells write to the audit log.
///
/// # Errors
/// `Request`, naming the writable folder that contains the log.
pub(super) fn check(audit: Option<&Audit>, mounts: &[&Mount]) -> Result<(), Error> {
    let Some(file) = audit.and_then(Audit::path) else { return Ok(()) };
    let holds = |mount: &&&Mount| {
        mount.access == Access::ReadWrite && mount.host.canonicalize().is_ok_and(|folder| file.starts_with(folder))
    };
    match mounts.iter().find(holds) {
        None => Ok(()),
        Some(mount) => Err(Error::Request(format!(
            "the audit log `{}` lies in `{}`, to which cells may write as `{}`",
            file.display(),
            mount.host.display(),
            mount.guest
        ))),
    }
}

impl Session {
    /// Auditor of the session; `None` if it is not audited.
    pub(crate) fn auditor(&self) -> Option<Arc<Auditor>> {
        self.inner.auditor.clone()
    }

    /// The first entry of a run of these cells. Takes as long as digests take.
    pub(crate) fn run_started(&self, cells: &[Cell], keep_going: bool) -> RunStarted {
        let asked = |(index, cell): (usize, &Cell)| CellAsked {
            index,
            language: cell.language.code().to_owned(),
            code_sha256: code_digest(&cell.code),
            code_bytes: cell.code.len(),
            reset: cell.reset,
        };
        let serves = self.lineage.last().map(|(cell, call)| CallSite { cell, call });
        let agent = self.lineage.agent().map(str::to_owned);
        let cells = cells.iter().enumerate().map(asked).collect();
        RunStarted { cells, keep_going, depth: self.depth, agent, serves, grants: self.grants() }
    }

    /// Grants of the session's cells, as the audit log records them.
    fn grants(&self) -> Grants {
        let config = &self.inner.config;
        let mut seeds: Vec<_> = config.kernels.seeds.iter().collect();
        seeds.sort_by_key(|(language, _)| **language);
        let seeds = seeds.into_iter().map(|(language, seed)| SeedGrant {
            language: language.code().to_owned(),
            code_sha256: code_digest(&seed.source),
            bindings: seed.bindings.iter().map(|(name, _)| name.clone()).collect(),
        });
        Grants {
            folders: self.inner.folders.granted.clone(),
            bridges: config.bridges.grants(),
            input: config.input.is_some(),
            environment: config.environment.iter().map(|(name, _)| name.clone()).collect(),
            seeds: seeds.collect(),
            per_call: config.kernels.mode == KernelMode::PerCall,
            limits: LimitGrants(config.limits.clone()),
        }
    }
}
