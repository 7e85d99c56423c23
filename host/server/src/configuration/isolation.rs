//! Confines the process of the server to what its configuration needs, before anything else of it runs.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use cellar_bridges::{
    AgentTransport, Connector, ConnectorKind, FilesPlace, McpTransport, Options, Program, command_recipes,
};
use cellar_config::{Config, Isolate};
use cellar_config::{Granted, SetupError};
use cellar_files::{Access, Mount};
use cellar_isolation::{InForce, IsolationError, Needs, confine};
use cellar_packages::Source;
use cellar_secrets::SecretSource;
use tempfile::TempDir;

use super::ServerConfig;
use crate::tenant::TenantConfig;

/// Isolation of the process of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// Layers in force.
    pub layers: InForce,
    /// Tables of the configuration for which the process may connect to others. Empty when it may not.
    pub connects: Vec<&'static str>,
    /// True if the process serves one tenant alone.
    pub is_of_tenant: bool,
}

/// Confined process. Dropping this removes its temporary files.
#[derive(Debug)]
pub struct Confined {
    /// Isolation in force.
    pub isolation: Isolation,
    _temporary: Option<TempDir>,
}

/// Reason for which the process of a server cannot be confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The grants of a tenant cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A required layer is missing, or the kernel refuses.
    #[error("`[server] isolate` cannot be kept")]
    Layer(#[from] IsolationError),
    /// Tenants with processes of their own share a remote store of artifacts.
    #[error(
        "with `[server] isolate = \"tenant\"` each tenant has a remote store of artifacts to itself, but the tenants {} have one \
         together: give each its own, in a file of its own",
        .0.join(", ")
    )]
    SharedRemote(Vec<String>),
    /// A folder for temporary files, or the process that starts others, cannot be made.
    #[error("cannot confine this process")]
    Io(#[from] io::Error),
}

impl ServerConfig {
    /// Confines this process for good, unless the configuration disables it. From then on a helper runs other programs;
    /// `cellar_worker::offer` must have been called for it. The process must have a single thread, and cannot open
    /// listeners afterwards.
    ///
    /// # Errors
    /// The grants of a tenant cannot be used, a required layer is missing, or the system fails.
    pub fn confine(&self) -> Result<Confined, ConfineError> {
        if self.isolate == Isolate::None {
            return Ok(Confined { isolation: Isolation::default(), _temporary: None });
        }
        let temporary = temporary_folder()?;
        // Only the first one of a process can be set; a second server in it keeps to that.
        let _ = tempfile::env::override_temp_dir(temporary.path());
        let mut plan = Plan::default();
        plan.server(self)?;
        // What is removed must lie in a folder that may be written to.
        plan.needs.write.extend(temporary.path().parent().map(Path::to_owned));
        if let Some(worker) = &self.worker {
            let shared = self.shared_remotes()?;
            if !shared.is_empty() {
                return Err(ConfineError::SharedRemote(shared));
            }
            plan.folder(&worker.counts);
            plan.recipes.extend(self.tenants.iter().map(|tenant| worker.recipe(&tenant.name)));
        }
        let available = cellar_isolation::available();
        if available.landlock.is_none() && !available.seccomp && self.isolate == Isolate::Usual {
            tracing::warn!("this process is not confined: the kernel has neither landlock nor seccomp");
            return Ok(Confined { isolation: Isolation::default(), _temporary: Some(temporary) });
        }
        let recipes: Vec<_> = plan.recipes.into_iter().chain(cellar_worker::job_recipe()).collect();
        cellar_worker::use_helper(&recipes)?;
        let layers = confine(&plan.needs, matches!(self.isolate, Isolate::Process | Isolate::Tenant))?;
        let isolation = Isolation { layers, connects: plan.connects, is_of_tenant: false };
        Ok(Confined { isolation, _temporary: Some(temporary) })
    }

    /// Returns the tenants that share a remote store of artifacts: an attacker in the process of one could read those
    /// of the others.
    fn shared_remotes(&self) -> Result<Vec<String>, SetupError> {
        let mut remotes = Vec::new();
        for tenant in &self.tenants {
            let remote = tenant.overrides.file()?.artifacts.remote;
            remotes.extend(remote.map(|remote| (&tenant.name, format!("{}/", remote.url.trim_end_matches('/')))));
        }
        let is_within = |(name, url): &(&String, String), (other, theirs): &(&String, String)| {
            name != other && (url.starts_with(theirs) || theirs.starts_with(url))
        };
        let shared = remotes.iter().filter(|one| remotes.iter().any(|other| is_within(one, other)));
        Ok(shared.map(|(name, _)| format!("`{name}`")).collect())
    }

    /// Confines this process to the needs of the one tenant whose worker it is: no programs other than the helper's for
    /// charts and tables, no sockets, no files of other tenants; shared files are read-only.
    pub(crate) fn confine_for_tenant(&self, folder: &Path) -> Result<Confined, ConfineError> {
        let _ = tempfile::env::override_temp_dir(folder);
        let mut needs = Needs { read: vec![self.host.guests.clone(), self.host.cache.clone()], ..Needs::default() };
        needs.write.push(folder.to_owned());
        for tenant in &self.tenants {
            let mut plan = Plan::default();
            plan.folder(&tenant.store);
            let file = tenant.overrides.file()?;
            plan.needs.read.extend(tenant.overrides.config.clone());
            plan.kept(tenant, &file);
            plan.packages(tenant, &file)?;
            plan.templates(tenant, &file)?;
            plan.session(&Granted::new(&tenant.overrides, file)?);
            needs.read.extend(plan.needs.read);
            needs.write.extend(plan.needs.write);
        }
        let recipes: Vec<_> = cellar_worker::job_recipe().into_iter().collect();
        cellar_worker::use_helper(&recipes)?;
        let layers = confine(&needs, true)?;
        let isolation = Isolation { layers, connects: Vec::new(), is_of_tenant: true };
        Ok(Confined { isolation, _temporary: None })
    }
}

/// A folder for temporary files, in one that belongs to this user alone.
fn temporary_folder() -> io::Result<TempDir> {
    let user = rustix::process::geteuid().as_raw();
    let parent = std::env::temp_dir().join(format!("cellar-serve-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&parent)?;
    if !found.is_dir() || found.uid() != user || found.permissions().mode() & 0o077 != 0 {
        let parent = parent.display();
        return Err(io::Error::other(format!("`{parent}` is not a folder that belongs to this user alone")));
    }
    tempfile::tempdir_in(parent)
}

/// Needs of a server, as they are collected.
#[derive(Debug, Default)]
struct Plan {
    needs: Needs,
    connects: Vec<&'static str>,
    recipes: Vec<cellar_worker::Recipe>,
}

impl Plan {
    fn server(&mut self, server: &ServerConfig) -> Result<(), SetupError> {
        self.needs.read.push(server.host.guests.clone());
        self.folder(&server.host.cache);
        self.needs.read.extend(server.tokens.as_ref().and_then(|tokens| tokens.path().parent()).map(Path::to_owned));
        if server.traces.is_some() {
            self.connects("server.traces");
        }
        if server.oauth.is_some() {
            self.connects("server.oauth");
        }
        for tenant in &server.tenants {
            self.folder(&tenant.store);
            let file = tenant.overrides.file()?;
            self.needs.read.extend(tenant.overrides.config.clone());
            self.kept(tenant, &file);
            if let Some(remote) = &file.artifacts.remote {
                self.needs.read.extend(remote.credential_files());
                match remote.folder() {
                    Some(folder) => self.folder(&folder),
                    None => self.connects("artifacts"),
                }
            }
            self.packages(tenant, &file)?;
            self.templates(tenant, &file)?;
            let granted = Granted::new(&tenant.overrides, file)?;
            self.session(&granted);
            self.bridges(&granted.bridges);
        }
        self.needs.connects = !self.connects.is_empty();
        Ok(())
    }

    /// Adds the folders of the audit logs.
    fn kept(&mut self, tenant: &TenantConfig, file: &Config) {
        self.needs.write.extend(file.audit.as_ref().and_then(|audit| folder_of(&audit.file)));
        self.needs.write.extend(tenant.overrides.audit.as_deref().and_then(folder_of));
    }

    /// The store of packages, of which a session that is opened later may be granted others: its owner makes their folders.
    fn packages(&mut self, tenant: &TenantConfig, file: &Config) -> Result<(), SetupError> {
        let mut sources = tenant.overrides.packages.iter().chain(&file.packages);
        if sources.any(|source| matches!(source, Source::Named(_))) {
            let store = cellar_config::package_store(tenant.overrides.package_store.as_deref())?;
            self.needs.read.push(store.folder().to_owned());
        }
        Ok(())
    }

    /// Adds what sessions of templates need.
    fn templates(&mut self, tenant: &TenantConfig, file: &Config) -> Result<(), SetupError> {
        for template in file.templates.values() {
            let applied = template.applied_to(file);
            self.packages(tenant, &applied)?;
            self.session(&Granted::new(&tenant.overrides, applied)?);
        }
        Ok(())
    }

    /// Adds the folders that cells see.
    fn session(&mut self, granted: &Granted) {
        self.mounts(&granted.session.folders.mounts);
        self.needs.read.extend(granted.session.folders.packages.clone());
        self.needs.write.extend(granted.session.folders.workspace.clone());
    }

    /// Adds a folder that is written to. Makes it if it does not exist, because a rule can only name an existing
    /// folder.
    fn folder(&mut self, folder: &Path) {
        // Whoever uses it says what is wrong.
        let _ = fs::create_dir_all(folder);
        self.needs.write.push(folder.to_owned());
    }

    fn connects(&mut self, table: &'static str) {
        if !self.connects.contains(&table) {
            self.connects.push(table);
        }
    }

    fn mounts(&mut self, mounts: &[Mount]) {
        for mount in mounts {
            let list = if mount.access == Access::ReadWrite { &mut self.needs.write } else { &mut self.needs.read };
            list.push(mount.host.clone());
        }
    }

    fn bridges(&mut self, options: &Options) {
        self.recipes.extend(command_recipes(options));
        if options.llm.is_some() {
            self.connects("llm");
        }
        if !options.http.allow.is_empty() {
            self.connects("http");
        }
        if options.mcp.values().any(|server| matches!(server.transport, McpTransport::Http { .. })) {
            self.connects("mcp");
        }
        for agent in options.agents.values() {
            match &agent.transport {
                // It reaches its session by a socket of this process.
                AgentTransport::Command(_) => self.needs.local_sockets = true,
                _ => self.connects("agents"),
            }
        }
        for connector in options.connectors.values() {
            let Connector::Source(source) = connector else { continue };
            self.needs.read.extend(source.kind.credential_files());
            match &source.kind {
                // SQLite has files beside its own.
                ConnectorKind::Sqlite { file, .. } => self.needs.read.extend(folder_of(file)),
                ConnectorKind::Files { place: FilesPlace::Folder(folder), .. } => self.needs.read.push(folder.clone()),
                ConnectorKind::Files { place: FilesPlace::Objects(objects), .. } => match objects.folder() {
                    Some(folder) => self.needs.read.push(folder),
                    None => self.connects("connectors"),
                },
                // A server of databases may be reached by a socket of this machine.
                ConnectorKind::Postgres(_) | ConnectorKind::Mysql(_) => {
                    self.needs.local_sockets = true;
                    self.connects("connectors");
                }
                _ => self.connects("connectors"),
            }
        }
        self.needs.read.extend(options.secrets.iter().filter_map(|secret| match secret {
            SecretSource::File(path) => Some(path.clone()),
            SecretSource::Variable(_) => None,
        }));
        let primitives = options.runtime.values().flat_map(|pack| pack.primitives.values().map(|each| &each.tool));
        for tool in options.tools.values().chain(primitives) {
            if let Program::Component(component) = &tool.program {
                // An editor that changes the file may put another in its place.
                self.needs.read.extend(folder_of(&component.program.file));
                self.mounts(&component.program.mounts);
            }
        }
    }
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let parent = file.parent()?;
    Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
}
