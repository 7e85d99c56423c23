//! From a `cellar.toml` to what a server serves.

mod isolation;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use cellar_config::{Config, Isolate, TenantTable};
use cellar_config::{Folders, Overrides, Progress, SetupError, kernels_max};
use cellar_engine::config::WEIGHT;

use crate::{
    ServerConfig,
    access::{NewToken, Scope, TokenFile, mint},
    tenant::{Quota, TenantConfig},
    workers::WorkerConfig,
};

pub use isolation::{ConfineError, Confined, Isolation};

/// Where a server listens that was told nothing: nothing but this machine reaches it.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8_700);
/// The tenant of a server without tenants: the user who started it.
pub const OWN_TENANT: &str = "own";

/// Where tenants have their sessions, by a name that no session can have.
const TENANTS: &str = ".tenants";
/// The file of the tokens, likewise.
const TOKENS: &str = ".tokens.json";

const SESSIONS_MAX: u64 = 1_024;
const RUNS_MAX: u64 = 256;
const BODY_MIB_MAX: u64 = 64;
const CONNECTIONS_MAX: u64 = 1_024;
const DRAIN_SECONDS: u64 = 30;
const IDLE_AFTER_SECONDS: u64 = 300;
const WORKERS_MAX: u64 = 64;
/// Where is kept what is counted in front of the processes of tenants, likewise by a name that no session can have.
const COUNTS: &str = ".counts";
const WORKER_IDLE_SECONDS: u64 = 300;

impl ServerConfig {
    /// What the file that `overrides` names says, with the text of a token that is made for this run if there are no
    /// tenants.
    ///
    /// # Errors
    /// The file is not valid, or no folder is known.
    pub fn new(
        folders: &Folders,
        overrides: &Overrides,
        progress: Progress,
    ) -> Result<(ServerConfig, Option<String>), SetupError> {
        let config = match &overrides.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let server = &config.server;
        let store = folders.store()?;
        let is_durable = server.durable.unwrap_or(true);
        let tenant = |name: &str, table: &TenantTable, overrides: Overrides, store: PathBuf| TenantConfig {
            name: name.to_owned(),
            overrides,
            store,
            sessions_max: count(table.sessions, SESSIONS_MAX),
            runs_max: count(table.runs, RUNS_MAX),
            requests_per_second: table.requests_per_second,
            weight: table.weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(WEIGHT),
            quota: Quota {
                cpu_seconds_per_day: table.cpu_seconds_per_day,
                model_tokens_per_day: table.model_tokens_per_day,
                memory_mib: table.memory_mib,
                disk_mib: table.disk_mib,
            },
            is_durable,
            idle_after: server.idle_after.unwrap_or(IDLE_AFTER_SECONDS),
        };
        let mut own = None;
        let tenants = if config.tenants.is_empty() {
            own = Some(mint(NewToken {
                tenant: OWN_TENANT.to_owned(),
                name: "this run".to_owned(),
                scopes: Scope::ALL.to_vec(),
                lifetime: None,
            }));
            vec![tenant(OWN_TENANT, &TenantTable::default(), overrides.clone(), store.clone())]
        } else {
            let of_table = |(name, table): (&String, &TenantTable)| {
                let overrides = match &table.config {
                    Some(path) => Overrides {
                        config: Some(path.clone()),
                        package_store: overrides.package_store.clone(),
                        ..Overrides::default()
                    },
                    None => overrides.clone(),
                };
                let folder = table.store.clone().unwrap_or_else(|| store.join(TENANTS).join(name));
                tenant(name, table, overrides, folder)
            };
            config.tenants.iter().map(of_table).collect()
        };
        let (text, own_tokens) = match own {
            Some((text, token)) => (Some(text), vec![token]),
            None => (None, Vec::new()),
        };
        let config = ServerConfig {
            listen: server.listen.unwrap_or(LISTEN),
            host: folders.host_config(kernels_max(&config.host), config.host.stops)?,
            tenants,
            tokens: Some(token_file(folders, &config)?),
            oauth: server.oauth.clone(),
            own_tokens,
            body_bytes_max: count(server.body_mib, BODY_MIB_MAX) << 20,
            connections_max: count(server.connections, CONNECTIONS_MAX),
            drain: Duration::from_secs(server.drain.unwrap_or(DRAIN_SECONDS)),
            traces: server.traces.as_ref().and_then(|url| url.parse().ok()),
            isolate: server.isolate,
            worker: (server.isolate == Isolate::Tenant).then(|| WorkerConfig {
                argv: Vec::new(),
                counts: store.join(COUNTS),
                count_max: count(server.workers, WORKERS_MAX),
                idle_after: Duration::from_secs(server.worker_idle.unwrap_or(WORKER_IDLE_SECONDS)),
                memory_bytes: server.worker_memory_mib.map(|mib| mib << 20),
            }),
            progress,
        };
        Ok((config, text))
    }
}

impl ServerConfig {
    /// The same for one user alone, who needs no token.
    ///
    /// # Errors
    /// The file is not valid, names tenants, or no folder is known.
    pub fn for_one(folders: &Folders, overrides: &Overrides, progress: Progress) -> Result<ServerConfig, SetupError> {
        match ServerConfig::new(folders, overrides, progress)? {
            (config, Some(_)) => Ok(config),
            (_, None) => Err(SetupError::Usage {
                message: "this configuration is for several tenants".to_owned(),
                hint: "have `cellar serve` serve it: its path /mcp takes their tokens".to_owned(),
            }),
        }
    }
}

impl TokenFile {
    /// The file that a server with this configuration takes its tokens from, and the tenants that they may be for.
    ///
    /// # Errors
    /// The file is not valid, or no folder is known.
    pub fn of(folders: &Folders, config: Option<&std::path::Path>) -> Result<(TokenFile, Vec<String>), SetupError> {
        let config = match config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let tenants = match config.tenants.is_empty() {
            true => vec![OWN_TENANT.to_owned()],
            false => config.tenants.keys().cloned().collect(),
        };
        Ok((token_file(folders, &config)?, tenants))
    }
}

fn token_file(folders: &Folders, config: &Config) -> Result<TokenFile, SetupError> {
    Ok(TokenFile::new(match &config.server.tokens {
        Some(path) => path.clone(),
        None => folders.store()?.join(TOKENS),
    }))
}

fn count(given: Option<u64>, usual: u64) -> usize {
    usize::try_from(given.unwrap_or(usual)).unwrap_or(usize::MAX)
}
