//! Configuration of a server: from a `cellar.toml` to its tenants and limits, and the confinement of its process.

mod isolation;

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use cellar_config::{Config, Folders, Isolate, OauthTable, Overrides, Progress, SetupError, TenantTable, kernels_max};
use cellar_engine::{HostConfig, config::WEIGHT};
use cellar_hub::HubError;
use http::Uri;
use rustix::{fs::FlockOperation, io::Errno};

use crate::{
    access::{NewToken, Scope, Token, TokenError, TokenFile, mint},
    tenant::{Quota, TenantConfig},
};

pub use isolation::{ConfineError, Confined, Isolation};

/// Address of a server that was given none: nothing but this machine reaches it.
pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8_700);
/// The tenant of a server without tenants: the user who started it.
pub const OWN_TENANT: &str = "own";

/// Name of the folder of tenants' sessions, which no session can have.
pub const TENANTS: &str = ".tenants";
/// Name of the file of tokens, which no session can have.
const TOKENS: &str = ".tokens.json";
/// Name of the file that the server of a folder of sessions has locked, which no session can have.
const SERVING: &str = ".serving";

/// Connections that may wait until they are taken.
const LISTEN_BACKLOG: i32 = 4_096;
const SESSIONS_MAX: u64 = 1_024;
const RUNS_MAX: u64 = 256;
const BODY_MIB_MAX: u64 = 64;
const CONNECTIONS_MAX: u64 = 1_024;
const DRAIN_SECONDS: u64 = 30;
const IDLE_AFTER_SECONDS: u64 = 300;
const WORKERS_MAX: u64 = 64;
/// Name of the folder of usage that is counted in front of the processes of tenants, which no session can have.
const COUNTS: &str = ".counts";
const WORKER_IDLE_SECONDS: u64 = 300;

/// Configuration of a server.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Address at which it listens.
    pub listen: SocketAddr,
    /// The host of all sessions.
    pub host: HostConfig,
    /// Tenants that it serves.
    pub tenants: Vec<TenantConfig>,
    /// Tokens that it accepts; absent where another process provides them.
    pub tokens: Option<TokenFile>,
    /// Authorization server whose tokens it accepts as well.
    pub oauth: Option<OauthTable>,
    /// Further tokens that it accepts, for as long as it runs.
    pub own_tokens: Vec<Token>,
    /// Bytes of a request's body that is not a file.
    pub body_bytes_max: usize,
    /// Connections that may be open; more wait.
    pub connections_max: usize,
    /// Time that runs may take to end when the server is told to stop.
    pub drain: Duration,
    /// The collector that requests are told to.
    pub traces: Option<Uri>,
    /// Confinement of the process.
    pub isolate: Isolate,
    /// Processes of tenants, where each has one of its own.
    pub worker: Option<WorkerConfig>,
    /// Listener for the news that a guest is being made ready.
    pub progress: Progress,
}

/// Reason for which a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Grants of tenants that cannot be used.
    #[error("{}", list(.0))]
    Tenants(Vec<(String, SetupError)>),
    /// The engine, or a store, fails.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// Tokens of an authorization server cannot be checked.
    #[error("cannot ask an authorization server: {0}")]
    Oauth(String),
    /// The process cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The process of a tenant was not told what it needs.
    #[error("this process is for a server that is not there")]
    Worker(#[source] io::Error),
    /// Another server keeps its sessions in the same folder.
    #[error("another server keeps its sessions in `{}`", .0.display())]
    StoreServed(PathBuf),
    /// The folder of sessions cannot be claimed.
    #[error("cannot claim the folder of sessions `{}`", path.display())]
    Claim {
        /// The folder.
        path: PathBuf,
        /// Error of the host.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the host.
        #[source]
        source: io::Error,
    },
}

fn list(faults: &[(String, SetupError)]) -> String {
    let lines: Vec<String> = faults.iter().map(|(tenant, fault)| format!("tenant `{tenant}`: {fault}")).collect();
    lines.join("\n")
}

/// Claim to the folders of sessions of a server's tenants, for as long as it lives.
#[derive(Debug)]
pub struct StoreClaim(#[expect(dead_code, reason = "the locks are held by the open files")] Vec<File>);

/// Configuration of workers.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The program and its arguments, but for the name of the tenant, which comes last.
    pub argv: Vec<String>,
    /// Folder of the usage that is counted for tenants, which no worker can reach.
    pub counts: PathBuf,
    /// Workers that may run.
    pub count_max: usize,
    /// Time without use after which one goes.
    pub idle_after: Duration,
    /// Bytes of memory that one may hold of its own, if that is bounded.
    pub memory_bytes: Option<u64>,
}

impl ServerConfig {
    /// Checks the grants of all tenants.
    ///
    /// # Errors
    /// `Tenants`, with all that is wrong.
    pub fn check(&self) -> Result<(), ServeError> {
        let fault = |tenant: &TenantConfig| tenant.check().err().map(|fault| (tenant.name.clone(), fault));
        let faults: Vec<(String, SetupError)> = self.tenants.iter().filter_map(fault).collect();
        if faults.is_empty() { Ok(()) } else { Err(ServeError::Tenants(faults)) }
    }

    /// Claims the folders of sessions, which no two servers may serve: each would count quotas for itself. Blocks.
    ///
    /// # Errors
    /// `StoreServed`: another server has claimed one. `Claim`: one cannot be made or written.
    pub fn claim_stores(&self) -> Result<StoreClaim, ServeError> {
        let claim = |store: &PathBuf| -> Result<File, ServeError> {
            let failed = |source| ServeError::Claim { path: store.clone(), source };
            fs::create_dir_all(store).map_err(failed)?;
            let path = store.join(SERVING);
            let file = File::options().create(true).append(true).open(path).map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(file),
                Err(Errno::WOULDBLOCK) => Err(ServeError::StoreServed(store.clone())),
                Err(error) => Err(failed(error.into())),
            }
        };
        Ok(StoreClaim(self.tenants.iter().map(|tenant| claim(&tenant.store)).collect::<Result<_, _>>()?))
    }

    /// Listens, without answering yet.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn listen(&self) -> Result<std::net::TcpListener, ServeError> {
        let address = self.listen;
        let listen = || -> io::Result<std::net::TcpListener> {
            let listener = std::net::TcpListener::bind(address)?;
            // As many may wait as the system lets.
            rustix::net::listen(&listener, LISTEN_BACKLOG)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listen().map_err(|source| ServeError::Listen { address, source })
    }
}

impl ServerConfig {
    /// Reads the file that `overrides` names. Also returns the text of a token that is made for this run, if there are
    /// no tenants.
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
            templates: table.templates.clone(),
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
