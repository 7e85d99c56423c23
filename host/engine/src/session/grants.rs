//! Grants and initial state of a session.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use cellar_core::{
    cell::{GuestName, Language},
    limits::{Limits, SEED_BINDINGS_MAX, SEED_BYTES_MAX},
};
use cellar_files::{Access, DiskPool, Files, Mount, Quota};
use cellar_results::{artifacts::ArtifactStore, renderer::Renderer, result::OutputPolicy};

use super::{
    granted::{Bridges, NoBridges},
    spawned::Role,
};
use crate::{
    audit::Audit,
    contract::{
        config::{HistoryOptions, KernelMode, PACKAGES, Seed},
        error::Error,
    },
    kernel::{
        events::Unread,
        scheduling::{CpuShare, MemoryBudget},
    },
    storage::workspace::OwnFolder,
};

/// Disk budget that sessions with a common folder share.
#[derive(Clone, Debug)]
pub struct DiskBudget(pub(super) Arc<Quota>);

/// Grants of a session. The default grants nothing but an empty private workspace and an empty folder for temporary files.
#[derive(Clone)]
pub struct SessionConfig {
    /// Id of the session; generated when absent.
    pub id: Option<String>,
    /// Bounds.
    pub limits: Limits,
    /// Folders of the host.
    pub folders: FolderGrants,
    /// Environment variables of cells. The host's own are never passed on.
    pub environment: Vec<(String, String)>,
    /// Tools, models, agents.
    pub bridges: Arc<dyn Bridges>,
    /// Time that a request for input waits for [`Session::submit_input`](super::Session::submit_input); when absent,
    /// `input()` is refused. See [`INPUT_IDLE_TIMEOUT`](cellar_core::limits::INPUT_IDLE_TIMEOUT).
    pub input: Option<Duration>,
    /// The kernels that its cells run on.
    pub kernels: KernelOptions,
    /// Outputs of the session.
    pub outputs: OutputOptions,
    /// Budgets that the session shares with other sessions.
    pub shared: SharedBudgets,
    /// File to record the session in, from its beginning; see [`Session::end_recording`](super::Session::end_recording). A fork is not recorded.
    pub record: Option<PathBuf>,
    /// Audit log of what it does; a fork is audited as well.
    pub audit: Option<Audit>,
    /// Rules by which its states are kept; none are when absent. A state is captured between the end of a cell and what comes next,
    /// which takes as long as a [`Session::snapshot`](super::Session::snapshot) of it, and a look at its own folders.
    pub history: Option<HistoryOptions>,
}

/// Folders of the host that cells see.
#[derive(Clone, Debug, Default)]
pub struct FolderGrants {
    /// Folder to use as workspace, read-write; when absent a private temporary one, removed with the session.
    pub workspace: Option<PathBuf>,
    /// Guest paths where the workspace appears as well; when absent, those of [`ALIASES`](crate::config::ALIASES) where nothing
    /// else is.
    pub aliases: Option<Vec<String>>,
    /// Further folders. One at `/tmp`, or above it, is in the place of the private one.
    pub mounts: Vec<Mount>,
    /// Folders with installed Python packages (`pip install --target`), which cells import from and cannot change.
    /// The earlier wins.
    pub packages: Vec<PathBuf>,
}

/// Kernels of a session: which guests, for which languages, and what they begin with.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Guests that replace the default guests of their languages; the last one for a language wins.
    pub guests: Vec<GuestName>,
    /// The languages that cells may be in; all that the host has when empty.
    pub languages: Vec<Language>,
    /// Seeds of new kernels, by language.
    pub seeds: HashMap<Language, Seed>,
    /// Lifetime of kernels.
    pub mode: KernelMode,
}

/// Outputs of a session: storage of long ones, and how they are shown.
#[derive(Clone, Default)]
pub struct OutputOptions {
    /// Store for long outputs and agents' outputs; when absent, a temporary store of this user's.
    pub artifacts: Option<ArtifactStore>,
    /// True if cells may publish datasets into [`OutputOptions::artifacts`]. They may load existing datasets in any case.
    pub publish_datasets: bool,
    /// Bounds on the part of a long output that results show.
    pub policy: OutputPolicy,
    /// Renderers, which add to the values that cells display.
    pub renderers: Vec<Arc<dyn Renderer>>,
}

/// Budgets that a session shares with other sessions. For each that is absent, the session has its own, as its limits say.
#[derive(Clone, Debug, Default)]
pub struct SharedBudgets {
    /// The share of processor time; when absent, that of all sessions of the host that have none.
    pub cpu: Option<CpuShare>,
    /// The memory of kernels; when absent, each has what [`Limits::memory_bytes`] says.
    pub memory: Option<MemoryBudget>,
    /// The disk budget of the session whose workspace this one has as well.
    pub disk: Option<DiskBudget>,
    /// Disk space that several sessions share, on top of each session's own quota.
    pub disk_pool: Option<DiskPool>,
    /// Counter of the bytes that wait for the readers of runs; when absent, the counter shared by all sessions of the process
    /// that have none.
    pub unread: Option<Unread>,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            id: None,
            limits: Limits::default(),
            folders: FolderGrants::default(),
            environment: Vec::new(),
            bridges: Arc::new(NoBridges),
            input: None,
            kernels: KernelOptions::default(),
            outputs: OutputOptions::default(),
            shared: SharedBudgets::default(),
            record: None,
            audit: None,
            history: None,
        }
    }
}

impl std::fmt::Debug for OutputOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputOptions").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl KernelOptions {
    /// The guest that runs a language.
    pub fn guest(&self, language: Language) -> GuestName {
        let chosen = self.guests.iter().rev().find(|guest| guest.language() == language);
        chosen.copied().unwrap_or_else(|| language.guest())
    }

    /// Returns true if cells may be in this language.
    pub fn allows(&self, language: Language) -> bool {
        self.languages.is_empty() || self.languages.contains(&language)
    }

    /// # Errors
    /// `Request` for a language that is off.
    pub(super) fn check_language(&self, language: Language) -> Result<(), Error> {
        if self.allows(language) {
            return Ok(());
        }
        let on: Vec<&str> = self.languages.iter().map(|language| language.title()).collect();
        let message = format!("{} is off in this session, whose cells are in {}", language.title(), on.join(" or "));
        Err(Error::Request(message))
    }
}

impl std::fmt::Debug for SessionConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionConfig").field("id", &self.id).field("folders", &self.folders).finish_non_exhaustive()
    }
}

impl super::Inner {
    /// Counter of the bytes that wait for the readers of its runs; `None` for a fork or a process of a cell, whose output
    /// counts where the run of that cell receives it.
    pub(super) fn unread(&self) -> Option<Unread> {
        matches!(self.role, Role::Own).then(|| self.config.shared.unread.clone().unwrap_or_default())
    }
}

impl super::Session {
    /// Files of the session for its embedder. Writes count against the quota like those of cells.
    pub fn files(&self) -> Files {
        Files::new(self.inner.folders.mounts.clone(), self.inner.quota.clone())
    }

    /// Disk budget of the session, for sessions that share its workspace.
    pub fn disk_budget(&self) -> DiskBudget {
        DiskBudget(self.inner.quota.clone())
    }

    /// The folder of the host that its cells have as their workspace, for sessions that are to share it.
    ///
    /// # Errors
    /// What the store says of a session that is stored.
    pub fn workspace(&self) -> Result<PathBuf, Error> {
        let inner = &self.inner;
        match (&inner.config.folders.workspace, &inner.folders.private, &inner.stored.home) {
            (Some(folder), ..) => Ok(folder.clone()),
            (None, Some(private), _) => private.path(OwnFolder::Workspace).map_err(Error::Workspace),
            (None, None, Some(home)) => home.folder(OwnFolder::Workspace),
            (None, None, None) => Err(Error::SessionUnknown(inner.id.clone())),
        }
    }

    /// Renderers of the values that the session's cells display.
    pub(crate) fn renderers(&self) -> &[Arc<dyn Renderer>] {
        &self.inner.config.outputs.renderers
    }
}

/// Mounts of folders with packages, each at a guest path of its own.
pub(super) fn package_mounts(folders: &[PathBuf]) -> Vec<Mount> {
    let mount = |(index, folder): (usize, &PathBuf)| Mount {
        host: folder.clone(),
        guest: format!("{PACKAGES}/{}", index.saturating_add(1)),
        access: Access::ReadOnly,
    };
    folders.iter().enumerate().map(mount).collect()
}

/// Makes sure that what seeds hold is bounded.
pub(super) fn check_seeds(seeds: &HashMap<Language, Seed>) -> Result<(), Error> {
    for (language, seed) in seeds {
        let bytes: usize = seed.bindings.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
        let (count, bytes) = (seed.bindings.len(), bytes.saturating_add(seed.source.len()));
        if count > SEED_BINDINGS_MAX || bytes > SEED_BYTES_MAX {
            return Err(Error::Request(format!(
                "the {} seed has {count} bindings and {bytes} bytes, \
                 at most {SEED_BINDINGS_MAX} and {SEED_BYTES_MAX} are allowed",
                language.title()
            )));
        }
    }
    Ok(())
}
