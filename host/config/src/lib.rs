//! Conversion of a `cellar.toml` and of a caller's settings to the engine's configuration: guests, limits, grants,
//! bridges and sessions. A caller's setting wins over the file. Every front end sets its sessions up here.

// Callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod file;
mod package;
mod packages;
mod remote;
mod room;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use cellar_bridges::{Afar, ArtifactsAfar, Options};
use cellar_engine::{
    Cell, Error, GuestName, HostConfig, HostFolders, Language, SessionConfig,
    artifacts::{ArtifactError, ArtifactQuota, ArtifactStore},
    audit::{Audit, AuditFile},
    config::{FolderGrants, HistoryOptions, KernelMode, KernelOptions, OutputOptions, Stops},
    files::{Access, Mount},
    guests::{BakeOptions, GuestState, bake, guest_status},
    limits::{LimitSettings, TIMEOUT_GRANTED_MAX},
    results::OutputPolicy,
    store::SessionStore,
};
use cellar_packages::{PackageError, Source};

pub use file::{
    ArtifactsTable, AuditTable, Config, ConfigError, History, HostTable, Isolate, Logs, OauthTable, ServerTable,
    SessionTable, Template, TenantTable, listen_address, secure_url,
};
pub use packages::{package_folders, package_store};
pub use remote::ObjectRemote;
pub use room::{kernels_max, memory_bytes};

/// Folder of the artifacts in the folder of the sessions. No session can have its name.
const ARTIFACTS: &str = ".artifacts";

/// Error of setting up a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The engine failed or refused.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The store of artifacts failed or refused.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A package cannot be granted.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting that was given besides the file is not valid.
    #[error("{message}")]
    Usage {
        /// Description of the fault.
        message: String,
        /// Hint at a valid setting.
        hint: String,
    },
    /// No folder for guests or caches is known.
    #[error("no {what} folder is known")]
    Folder {
        /// Purpose of the folder.
        what: &'static str,
        /// The flag that names it.
        flag: &'static str,
    },
    /// A thread of the runtime failed.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// Folders for Cellar's own files. An absent one is the usual folder of this user.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// The guests.
    pub guests: Option<PathBuf>,
    /// Baked and compiled guests.
    pub cache: Option<PathBuf>,
    /// Stored sessions and kept outputs.
    pub store: Option<PathBuf>,
}

impl Folders {
    /// Returns the configuration of a host for so many kernels: the folders of the guests and of their cache.
    ///
    /// # Errors
    /// `Folder`: none was named and the user has none.
    pub fn host_config(&self, kernels_max: u32, stops: Stops) -> Result<HostConfig, SetupError> {
        let guests = self.guests.clone().or_else(HostFolders::installed_guests).or_else(|| {
            let data = dirs::data_dir()?;
            Some(data.join("cellar").join("guests"))
        });
        let cache = self.cache.clone().or_else(HostFolders::user_cache);
        let guests = guests.ok_or(SetupError::Folder { what: "guests", flag: "--guests" })?;
        let cache = cache.ok_or(SetupError::Folder { what: "cache", flag: "--cache" })?;
        // Room for more kernels would only cost the start.
        let code_list = package::code_list();
        Ok(HostConfig { kernels_max, stops, code_list, ..HostConfig::new(HostFolders { guests, cache }) })
    }

    /// The folder of the stored sessions.
    ///
    /// # Errors
    /// `Folder`: none was named and the user has none.
    pub fn store(&self) -> Result<PathBuf, SetupError> {
        let folder = self.store.clone().or_else(|| {
            let state = dirs::state_dir().or_else(dirs::data_local_dir)?;
            Some(state.join("cellar").join("sessions"))
        });
        folder.ok_or(SetupError::Folder { what: "store", flag: "--store" })
    }

    /// Opens the folder of the stored sessions. Blocks.
    ///
    /// # Errors
    /// `Folder`, or it cannot be made.
    pub fn sessions(&self) -> Result<SessionStore, SetupError> {
        Ok(SessionStore::open(self.store()?)?)
    }

    /// Opens the store of artifacts beside the stored sessions. Blocks.
    ///
    /// # Errors
    /// `Folder`, or it cannot be made; its remote store is not configured validly.
    pub fn artifacts(&self, table: &ArtifactsTable) -> Result<ArtifactStore, SetupError> {
        artifacts(&self.store()?, table, None)
    }
}

/// Opens the store of artifacts beside the sessions of a folder; `afar` reaches its remote store where this process does not.
/// Blocks.
///
/// # Errors
/// It cannot be made; its remote store is not configured validly.
pub fn artifacts(sessions: &Path, table: &ArtifactsTable, afar: Option<&Afar>) -> Result<ArtifactStore, SetupError> {
    let (folder, quota) = (sessions.join(ARTIFACTS), table.quota(ArtifactQuota::default()));
    let Some(options) = &table.remote else { return Ok(ArtifactStore::open(folder, quota)?) };
    let remote = match afar {
        Some(afar) => afar.artifacts(),
        None => ObjectRemote::open(options).map_err(unusable)?,
    };
    Ok(ArtifactStore::open_with(folder, quota, remote)?)
}

/// The remote store of artifacts, for a process that has none itself.
///
/// # Errors
/// Its configuration is not valid.
pub fn artifacts_afar(table: &ArtifactsTable) -> Result<Option<ArtifactsAfar>, SetupError> {
    let Some(options) = &table.remote else { return Ok(None) };
    let objects = options.open().map_err(unusable)?;
    // What is said of artifacts lies there as well, and is small.
    let bytes_max = table.quota(ArtifactQuota::default()).artifact_bytes.max(1 << 20);
    Ok(Some(ArtifactsAfar { objects, bytes_max }))
}

fn unusable(what: String) -> SetupError {
    ArtifactError::Remote { doing: "use", source: io::Error::other(what) }.into()
}

/// Settings of a session that its caller gives besides its `cellar.toml`, or instead of it.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The `cellar.toml`.
    pub config: Option<PathBuf>,
    /// Folder that cells see as their workspace.
    pub workspace: Option<PathBuf>,
    /// Further folders, each `HOST:GUEST` or `HOST:GUEST:rw`.
    pub mounts: Vec<String>,
    /// Packages of the store by their names, and folders with Python packages.
    pub packages: Vec<Source>,
    /// The store of packages; that of this user when absent.
    pub package_store: Option<PathBuf>,
    /// Limits, which win over those of the file.
    pub limits: LimitSettings,
    /// Cells that ask for no timeout run until they are interrupted, unless a timeout is said here or in the file.
    pub untimed: bool,
    /// Guests in the place of the usual ones.
    pub guests: Vec<GuestName>,
    /// Charts are not drawn.
    pub no_charts: bool,
    /// Every cell has a fresh kernel.
    pub per_call: bool,
    /// Requests for input are answered.
    pub input: bool,
    /// Policy for long outputs in results.
    pub output: Option<OutputPolicy>,
    /// Environment variables of cells, each `NAME=VALUE`.
    pub environment: Vec<String>,
    /// The audit log.
    pub audit: Option<PathBuf>,
    /// Rules by which states are kept, where the file says nothing of that.
    pub history: Option<HistoryOptions>,
}

/// Request for a session on a host of its own.
#[derive(Clone, Debug, Default)]
pub struct SessionRequest {
    /// The name under which its state is kept; absent, it is not kept.
    pub name: Option<String>,
    /// The file to record it in.
    pub record: Option<PathBuf>,
    /// Grants of the session.
    pub overrides: Overrides,
}

/// Callback for the progress of long work, called with a line at a time.
pub type Progress = fn(&str);

/// Returns the languages of a run, each once.
pub fn languages_of(cells: &[Cell]) -> Vec<Language> {
    let mut languages: Vec<Language> = cells.iter().map(|cell| cell.language).collect();
    languages.sort_unstable();
    languages.dedup();
    languages
}

/// Bakes guests that are not baked, and compiles those that are not compiled: for cells with fuel as well, if
/// `has_fuel`. A guest that is missing is left for the engine to report.
///
/// # Errors
/// A guest cannot be baked.
pub async fn make_ready(
    config: &HostConfig,
    guests: Vec<GuestName>,
    has_fuel: bool,
    progress: Progress,
) -> Result<(), SetupError> {
    let config = config.clone();
    let work = move || -> Result<(), SetupError> {
        for guest in guests {
            match guest_status(&config, guest).state {
                GuestState::NotBaked(reason) => {
                    progress(&format!("getting the guest `{guest}` ready, once: {reason}"));
                }
                GuestState::Ready if has_fuel => {}
                _ => continue,
            }
            let mut tell = |doing: &str| progress(&format!("  {doing}"));
            bake(&config, guest, BakeOptions { fuel: has_fuel, progress: Some(&mut tell), ..BakeOptions::default() })?;
        }
        Ok(())
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| SetupError::Start(error.into()))?
}

/// Grants of a session, without its bridges, whose tools may come from elsewhere as well.
pub struct Granted {
    /// All but its bridges.
    pub session: SessionConfig,
    /// Options that its bridges are made from.
    pub bridges: Options,
    /// Timeout of its requests for input.
    pub input_timeout: Duration,
    /// True if its charts are drawn.
    pub charts: bool,
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Granted").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Overrides {
    /// Reads the configuration file that they name; an empty one when they name none.
    ///
    /// # Errors
    /// The file is not valid.
    pub fn file(&self) -> Result<Config, SetupError> {
        Ok(self.config.as_deref().map(Config::load).transpose()?.unwrap_or_default())
    }
}

impl Granted {
    /// Resolves the flags and `config`, which is used instead of the file that the flags name.
    ///
    /// # Errors
    /// The configuration or a flag is not valid.
    pub fn new(arguments: &Overrides, config: Config) -> Result<Granted, SetupError> {
        let settings = arguments.limits.clone().or(&config.limits);
        let mut limits = settings.limits();
        if arguments.untimed && settings.timeout.is_none() {
            (limits.timeout, limits.timeout_max) = (TIMEOUT_GRANTED_MAX, TIMEOUT_GRANTED_MAX);
        }
        let (mut mounts, mut environment) = (config.mounts, config.environment);
        for text in &arguments.mounts {
            mounts.push(mount(text)?);
        }
        for text in &arguments.environment {
            environment.push(variable(text)?);
        }
        // Those of the command line come first, and so win.
        let sources = arguments.packages.iter().cloned().chain(config.packages).collect();
        let (packages, modules) = package_folders(arguments.package_store.as_deref(), sources)?;
        mounts.extend(modules);
        let input_timeout = config.session.input_timeout();
        let folders =
            FolderGrants { workspace: arguments.workspace.clone(), aliases: config.session.aliases, mounts, packages };
        let kernels = KernelOptions {
            // Those of the command line come last, and so win.
            guests: config.session.guests.into_iter().chain(arguments.guests.iter().copied()).collect(),
            languages: config.session.languages,
            seeds: config.session.seeds.into_iter().collect(),
            mode: if arguments.per_call { KernelMode::PerCall } else { config.session.kernel_mode },
        };
        let outputs = OutputOptions {
            artifacts: temporary_store(&config.artifacts)?,
            publish_datasets: config.publish_datasets,
            policy: arguments.output.unwrap_or(config.session.output_policy),
            renderers: Vec::new(),
        };
        let session = SessionConfig {
            limits,
            folders,
            environment,
            input: arguments.input.then_some(input_timeout),
            kernels,
            outputs,
            audit: audit(arguments.audit.as_deref(), config.audit)?,
            history: config.session.history.map_or(arguments.history, History::options),
            ..SessionConfig::default()
        };
        let charts = !arguments.no_charts && config.session.charts.unwrap_or(true);
        Ok(Granted { session, bridges: config.bridges, input_timeout, charts })
    }
}

/// Opens a temporary store for sessions without one, if it is to have another quota than usual.
fn temporary_store(table: &ArtifactsTable) -> Result<Option<ArtifactStore>, SetupError> {
    let quota = table.quota(ArtifactQuota::TEMPORARY);
    Ok((quota != ArtifactQuota::TEMPORARY).then(|| ArtifactStore::temporary(quota)).transpose()?)
}

/// Opens the audit log that the flag or the file names, in the name of the user of this process.
fn audit(flag: Option<&Path>, table: Option<AuditTable>) -> Result<Option<Audit>, SetupError> {
    let (sync, tenant) = table.as_ref().map_or((false, None), |table| (table.sync, table.tenant.clone()));
    let Some(path) = flag.or(table.as_ref().map(|table| table.file.as_path())) else { return Ok(None) };
    let bounds = table.as_ref().map(|table| table.bounds).unwrap_or_default();
    let mut audit = Audit::to(AuditFile::open(path, sync)?.with_bounds(bounds));
    audit.actor = Some(user());
    audit.tenant = tenant;
    Ok(Some(audit))
}

/// The user of this process, as the audit log names it.
pub fn user() -> String {
    format!("uid:{}", rustix::process::getuid().as_raw())
}

/// `HOST:GUEST` or `HOST:GUEST:rw`.
fn mount(text: &str) -> Result<Mount, SetupError> {
    let (rest, access) = match text.strip_suffix(":rw") {
        Some(rest) => (rest, Access::ReadWrite),
        None => (text.strip_suffix(":ro").unwrap_or(text), Access::ReadOnly),
    };
    match rest.rsplit_once(':') {
        Some((host, guest)) if !host.is_empty() && guest.starts_with('/') => {
            Ok(Mount { host: host.into(), guest: guest.to_owned(), access })
        }
        _ => Err(SetupError::Usage {
            message: format!("cannot grant `{text}`"),
            hint: "say --mount HOST:GUEST or --mount HOST:GUEST:rw, with GUEST an absolute path".to_owned(),
        }),
    }
}

/// `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), SetupError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => {
            Err(SetupError::Usage { message: format!("cannot set `{text}`"), hint: "say --env NAME=VALUE".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let check = |text: &str, host: &str, guest: &str, access| {
            let expected = Mount { host: host.into(), guest: guest.to_owned(), access };
            assert_eq!(mount(text).expect(text), expected);
        };
        check("data:/data", "data", "/data", Access::ReadOnly);
        check("a:b:/data:rw", "a:b", "/data", Access::ReadWrite);
        check("/x:/data:ro", "/x", "/data", Access::ReadOnly);
        for text in ["", "data", "data:", ":/data", "data:data", "/data:rw"] {
            assert!(mount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn who_can_interrupt_has_no_time_limit_unless_one_is_said() {
        let granted = |text: &str, timeout| {
            let config = Config::parse(text, Path::new("."), "a test").expect("valid");
            let overrides = Overrides {
                untimed: true,
                limits: LimitSettings { timeout, ..Default::default() },
                ..Overrides::default()
            };
            let limits = Granted::new(&overrides, config).expect("granted").session.limits;
            limits.check().expect("limits");
            limits.timeout
        };
        assert_eq!(granted("", None), TIMEOUT_GRANTED_MAX);
        assert_eq!(granted("", Some(5_000)), Duration::from_secs(5));
        assert_eq!(granted("[limits]\ntimeout = 7", None), Duration::from_secs(7));
    }

    #[test]
    fn variables() {
        assert_eq!(variable("A=b=c").expect("valid"), ("A".to_owned(), "b=c".to_owned()));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
