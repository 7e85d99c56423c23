//! From the command line and `cellar.toml` to what the engine takes. Flags win over the file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cellar_bridges::{HostBridges, Options};
use cellar_charts::Charts;
use cellar_engine::{
    Access, ArtifactQuota, ArtifactStore, Audit, AuditFile, Cell, GuestName, GuestState, Host, HostConfig, KernelMode,
    Language, Mount, OutputPolicy, Session, SessionConfig, bake, guest_status,
};

use crate::{
    args::{Folders, GrantArguments, SessionArguments},
    artifacts,
    config::{ArtifactsTable, AuditTable, Config},
    report::{CliError, print_progress},
    sessions,
    socket::SessionDoors,
};

/// Live kernels per flavour: one a language, and some that are being given back.
const KERNELS_MAX: u32 = 16;

/// The folders of the guests and of what is made from them.
///
/// # Errors
/// No folder was named and the user has none.
pub(crate) fn host_config(folders: &Folders) -> Result<HostConfig, CliError> {
    let guests = folders.guests.clone().or_else(guests_beside_program).or_else(|| {
        let data = dirs::data_dir()?;
        Some(data.join("cellar").join("guests"))
    });
    let cache = folders.cache.clone().or_else(|| Some(dirs::cache_dir()?.join("cellar")));
    let guests = guests.ok_or(CliError::Folder { what: "guests", flag: "--guests" })?;
    let cache = cache.ok_or(CliError::Folder { what: "cache", flag: "--cache" })?;
    // One session, and soon over: room for more, and spares, would only cost the start.
    Ok(HostConfig { kernels_max: KERNELS_MAX, spares: 0, ..HostConfig::new(guests, cache) })
}

/// `guests` beside the folder that the program is in, if it is there.
fn guests_beside_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let guests = program.parent()?.parent()?.join("guests");
    guests.is_dir().then_some(guests)
}

/// A session as the command line describes it, on a host of its own, with what its languages need made ready.
///
/// # Errors
/// The configuration is not valid, a guest is missing or cannot be baked, a folder cannot be granted.
pub(crate) async fn open_session(
    folders: &Folders,
    arguments: &SessionArguments,
    languages: Vec<Language>,
) -> Result<Session, CliError> {
    let granted = Granted::new(&arguments.granted, None)?;
    let charts = granted.charts;
    let quota = granted.artifacts.quota(ArtifactQuota::default());
    let mut session_config = granted.of_command_line(arguments);
    let host_config = host_config(folders)?;
    // Before anything is made ready: that a session is in use is told at once.
    let home = arguments.name.as_ref().map(|name| sessions::store(folders)?.claim(name).map_err(CliError::from));
    let home = home.transpose()?;
    // Without a store, what is kept goes where temporary files go.
    if arguments.name.is_some() || folders.store.is_some() {
        session_config.artifacts = Some(artifacts::store(folders, quota)?);
    }
    let guests = languages.into_iter().map(|language| session_config.guest(language)).collect();
    make_ready(&host_config, guests).await?;
    let host = Host::open(host_config)?;
    if charts {
        session_config.renderers = vec![Charts::new(host.clone()).into()];
    }
    Ok(match home {
        Some(home) => host.open_stored(home, session_config)?,
        None => host.session(session_config)?,
    })
}

/// The languages of a run, each once.
pub(crate) fn languages_of(cells: &[Cell]) -> Vec<Language> {
    let mut languages: Vec<Language> = cells.iter().map(|cell| cell.language).collect();
    languages.sort_unstable();
    languages.dedup();
    languages
}

/// Bakes what is not baked. A guest that is missing is left for the engine to report.
///
/// # Errors
/// A guest cannot be baked.
pub(crate) async fn make_ready(config: &HostConfig, guests: Vec<GuestName>) -> Result<(), CliError> {
    let config = config.clone();
    let work = move || -> Result<(), CliError> {
        for guest in guests {
            let GuestState::NotBaked(reason) = guest_status(&config, guest).state else { continue };
            print_progress(&format!("getting the guest `{guest}` ready, once: {reason}"));
            bake(&config, guest, false, &mut |doing| print_progress(&format!("  {doing}")))?;
        }
        Ok(())
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| CliError::Start(error.into()))?
}

/// What a session is granted, its bridges apart: their tools may come from elsewhere as well.
pub(crate) struct Granted {
    pub(crate) session: SessionConfig,
    pub(crate) bridges: Options,
    /// How long its requests for input wait.
    pub(crate) input_timeout: Duration,
    /// Whether its charts are drawn.
    pub(crate) charts: bool,
    artifacts: ArtifactsTable,
}

impl Granted {
    /// What the flags and `config` grant; without one, the file that the flags name.
    ///
    /// # Errors
    /// The file or a flag is not valid.
    pub(crate) fn new(arguments: &GrantArguments, config: Option<Config>) -> Result<Granted, CliError> {
        let file = || arguments.config.as_deref().map(Config::load).transpose();
        let config = config.map_or_else(file, |config| Ok(Some(config)))?.unwrap_or_default();
        let mut limits = config.limits.limits();
        limits.fuel = arguments.fuel.or(limits.fuel);
        limits.memory_bytes = arguments.memory.map_or(limits.memory_bytes, |mib| mib << 20);
        limits.timeout = arguments.timeout.map_or(limits.timeout, Duration::from_secs);
        let (mut mounts, mut environment) = (config.mounts, config.environment);
        for text in &arguments.mounts {
            mounts.push(mount(text)?);
        }
        for text in &arguments.environment {
            environment.push(variable(text)?);
        }
        // Those of the command line come first, and so win.
        let packages = arguments.packages.iter().cloned().chain(config.packages).collect();
        let kernel_mode = if arguments.per_call { KernelMode::PerCall } else { config.session.kernel_mode };
        let input_timeout = config.session.input_timeout();
        let session = SessionConfig {
            workspace: arguments.workspace.clone(),
            mounts,
            packages,
            environment,
            limits,
            input: arguments.input.then_some(input_timeout),
            artifacts: temporary_store(&config.artifacts)?,
            audit: audit(arguments.audit.as_deref(), config.audit)?,
            output: arguments.output_policy.map_or(config.session.output_policy, OutputPolicy::from),
            seeds: config.session.seeds.into_iter().collect(),
            kernel_mode,
            // Those of the command line come last, and so win.
            guests: config
                .session
                .guests
                .into_iter()
                .chain(arguments.chosen.iter().map(|guest| (*guest).into()))
                .collect(),
            ..SessionConfig::default()
        };
        let charts = !arguments.no_charts && config.session.charts.unwrap_or(true);
        Ok(Granted { session, bridges: config.bridges, input_timeout, charts, artifacts: config.artifacts })
    }

    /// The session of the command line, to which all is granted.
    fn of_command_line(self, arguments: &SessionArguments) -> SessionConfig {
        let bridges = HostBridges::new(self.bridges).with_doors(Arc::new(SessionDoors));
        SessionConfig { bridges: Arc::new(bridges), record: arguments.record.clone(), ..self.session }
    }
}

/// The place where things are kept that nobody gave a store for, if it is to have another quota than usual.
fn temporary_store(table: &ArtifactsTable) -> Result<Option<ArtifactStore>, CliError> {
    let is_usual = *table == ArtifactsTable::default();
    Ok((!is_usual).then(|| ArtifactStore::temporary(table.quota(ArtifactQuota::TEMPORARY))).transpose()?)
}

/// The audit log that the flag or the file names, in the name of whoever runs this process.
fn audit(flag: Option<&Path>, table: Option<AuditTable>) -> Result<Option<Audit>, CliError> {
    let (sync, tenant) = table.as_ref().map_or((false, None), |table| (table.sync, table.tenant.clone()));
    let Some(path) = flag.or(table.as_ref().map(|table| table.file.as_path())) else { return Ok(None) };
    let mut audit = Audit::to(AuditFile::open(path, sync)?);
    audit.actor = Some(format!("uid:{}", rustix::process::getuid().as_raw()));
    audit.tenant = tenant;
    Ok(Some(audit))
}

/// `HOST:GUEST` or `HOST:GUEST:rw`.
fn mount(text: &str) -> Result<Mount, CliError> {
    let (rest, access) = match text.strip_suffix(":rw") {
        Some(rest) => (rest, Access::ReadWrite),
        None => (text.strip_suffix(":ro").unwrap_or(text), Access::ReadOnly),
    };
    match rest.rsplit_once(':') {
        Some((host, guest)) if !host.is_empty() && guest.starts_with('/') => {
            Ok(Mount { host: host.into(), guest: guest.to_owned(), access })
        }
        _ => Err(CliError::usage(
            format!("cannot grant `{text}`"),
            "say --mount HOST:GUEST or --mount HOST:GUEST:rw, with GUEST an absolute path",
        )),
    }
}

/// `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), CliError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::usage(format!("cannot set `{text}`"), "say --env NAME=VALUE")),
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
    fn variables() {
        assert_eq!(variable("A=b=c").expect("valid"), ("A".to_owned(), "b=c".to_owned()));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
