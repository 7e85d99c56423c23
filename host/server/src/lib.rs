//! Sessions and runs over HTTP and the Model Context Protocol, for many tenants.
//!
//! A [`Server`] translates requests into the words of `cellar_hub`: it has no run path, no table of sessions and no
//! journal of its own. Each tenant has a hub of its own, on one host, so that what is another's is not there. Tokens say
//! who asks: see [`TokenFile`]. The pages for operators and clients are in this crate's README. Read [`Server`] first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod access;
mod api;
mod configuration;
mod e2b;
mod http;
mod jupyter;
mod mcp;
mod problem;
mod router;
mod tenant;
mod workers;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, RwLock},
    time::Duration,
};

use ::http::Uri;
use cellar_bridges::{Afar, Doors};
use cellar_config::{Progress, SetupError};
use cellar_engine::{Host, HostConfig};
use cellar_hub::HubError;
use tokio::{net::TcpListener, sync::watch};

pub use access::{NewToken, Scope, Token, TokenError, TokenFile, mint};
pub use configuration::{ConfineError, Confined, Isolation, LISTEN, OWN_TENANT};
pub use mcp::serve_mcp;
pub use tenant::{Quota, TenantConfig};
pub use workers::{WorkerConfig, serve_worker};

use self::http::{listen, metrics::Metrics, traces::Traces};
use access::{Tokens, oauth};
use cellar_config::{Isolate, OauthTable};
use tenant::{Tenant, quotas, times};
use workers::Workers;

/// What a server serves, and how.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The host of all sessions.
    pub host: HostConfig,
    /// Whom it serves.
    pub tenants: Vec<TenantConfig>,
    /// The tokens that it takes, but where somebody else says which those are.
    pub tokens: Option<TokenFile>,
    /// The authorization server whose tokens it takes as well.
    pub oauth: Option<OauthTable>,
    /// Tokens that it takes besides, for as long as it runs.
    pub own_tokens: Vec<Token>,
    /// Bytes of a request's body that is not a file.
    pub body_bytes_max: usize,
    /// Connections that may be open; more wait.
    pub connections_max: usize,
    /// How long runs may take to end when the server is told to stop.
    pub drain: Duration,
    /// The collector that requests are told to.
    pub traces: Option<Uri>,
    /// How the process is confined.
    pub isolate: Isolate,
    /// How the processes of tenants are run, where each has one of its own.
    pub worker: Option<WorkerConfig>,
    /// What hears that a guest is being made ready.
    pub progress: Progress,
}

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// What tenants are granted cannot be.
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
    /// The address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the host says.
        #[source]
        source: io::Error,
    },
}

fn list(faults: &[(String, SetupError)]) -> String {
    let lines: Vec<String> = faults.iter().map(|(tenant, fault)| format!("tenant `{tenant}`: {fault}")).collect();
    lines.join("\n")
}

/// A server. A cheap handle.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("tenants", &self.0.tenants).finish_non_exhaustive()
    }
}

struct Inner {
    tenants: BTreeMap<String, Arc<Tenant>>,
    tokens: RwLock<Tokens>,
    token_file: Option<TokenFile>,
    own_tokens: Vec<Token>,
    body_bytes_max: usize,
    connections_max: usize,
    drain: Duration,
    /// It takes no new work.
    is_draining: watch::Sender<bool>,
    /// Runs were given their time, and everything ends.
    is_over: watch::Sender<bool>,
    metrics: Metrics,
    traces: Traces,
    /// The endpoint of each tenant.
    mcp: BTreeMap<String, mcp::Endpoint>,
    /// Whose tokens it takes besides its own.
    issuer: Option<oauth::Issuer>,
    /// What holds for this process.
    isolation: Isolation,
    /// The processes of tenants, where each has one of its own: then there are no `tenants` here.
    workers: Option<Workers>,
}

impl ServerConfig {
    /// Finds out whether tenants can be granted what they are.
    ///
    /// # Errors
    /// `Tenants`, with all that is wrong.
    pub fn check(&self) -> Result<(), ServeError> {
        let fault = |tenant: &TenantConfig| tenant.check().err().map(|fault| (tenant.name.clone(), fault));
        let faults: Vec<(String, SetupError)> = self.tenants.iter().filter_map(fault).collect();
        if faults.is_empty() { Ok(()) } else { Err(ServeError::Tenants(faults)) }
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

impl Server {
    /// Makes a server ready in a process for which `isolation` holds. Nothing is answered before [`Server::serve`].
    ///
    /// # Errors
    /// What is wrong with the configuration, all of it at once; the host or a store fails.
    pub fn open(config: ServerConfig, isolation: Isolation, doors: Arc<dyn Doors>) -> Result<Server, ServeError> {
        Server::open_with(config, isolation, doors, None)
    }

    /// The same, where another process answers the calls of cells.
    pub(crate) fn open_with(
        config: ServerConfig,
        isolation: Isolation,
        doors: Arc<dyn Doors>,
        afar: Option<Afar>,
    ) -> Result<Server, ServeError> {
        config.check()?;
        let issuer = config.oauth.map(oauth::Issuer::new).transpose().map_err(ServeError::Oauth)?;
        let tokens = config.tokens.as_ref().map(TokenFile::list).transpose()?.unwrap_or_default();
        let host = Host::open(config.host.clone()).map_err(HubError::from)?;
        let workers =
            config.worker.as_ref().map(|worker| Workers::new(worker, &config.tenants, &host, &doors)).transpose()?;
        let mut tenants = BTreeMap::new();
        for tenant in config.tenants.into_iter().filter(|_| workers.is_none()) {
            let name = tenant.name.clone();
            let ground = tenant::Ground {
                host: host.clone(),
                config: config.host.clone(),
                doors: doors.clone(),
                afar: afar.clone(),
                progress: config.progress,
            };
            let tenant = Tenant::open(tenant, ground)?;
            tenants.insert(name, Arc::new(tenant));
        }
        let endpoint = |tenant: &Arc<Tenant>| mcp::Endpoint::new(mcp::Mcp::new(tenant.clone()));
        let mcp = tenants.iter().map(|(name, tenant)| (name.clone(), endpoint(tenant))).collect();
        let server = Server(Arc::new(Inner {
            tenants,
            tokens: RwLock::new(Tokens::new(tokens.into_iter().chain(config.own_tokens.iter().cloned()))),
            token_file: config.tokens,
            own_tokens: config.own_tokens,
            body_bytes_max: config.body_bytes_max,
            connections_max: config.connections_max,
            drain: config.drain,
            is_draining: watch::Sender::new(false),
            is_over: watch::Sender::new(false),
            metrics: Metrics::default(),
            traces: Traces::new(config.traces),
            mcp,
            issuer,
            isolation,
            workers,
        }));
        Ok(server)
    }

    /// Answers requests until `stop` comes; then it takes no new work, gives what runs the time that it may take, stores
    /// every session, and returns.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        self.serve_with(listen::accept(self.clone(), listener), stop).await;
    }

    /// The same, where `served` answers.
    pub(crate) async fn serve_with(&self, served: impl Future<Output = ()>, stop: impl Future<Output = ()>) {
        let mut served = std::pin::pin!(served);
        let ends = e2b::end_in_time(self.clone());
        let mut ends = std::pin::pin!(ends);
        let times = times::keep(self.clone());
        let mut times = std::pin::pin!(times);
        let quotas = quotas::keep(self.clone());
        let mut quotas = std::pin::pin!(quotas);
        let workers = workers::keep(self.clone());
        let mut workers = std::pin::pin!(workers);
        tokio::select! {
            () = &mut served => return,
            () = &mut ends => return,
            () = &mut times => return,
            () = &mut quotas => return,
            () = &mut workers => return,
            () = stop => {}
        }
        let refused = async {
            // By the workers first: who sees that this process is not ready any more is refused by all.
            if let Some(workers) = &self.0.workers {
                workers.tell(self, true).await;
            }
            self.0.is_draining.send_replace(true);
        };
        tokio::select! {
            () = &mut served => return,
            () = refused => {}
        }
        // Connections go on meanwhile: results are read, and new work is refused.
        tokio::select! {
            () = &mut served => return,
            () = self.drained() => {}
        }
        self.0.is_over.send_replace(true);
        store_all(self.0.tenants.values()).await;
        self.0.tenants.values().for_each(|tenant| tenant.quotas.save());
        // What was said last is sent, as far as somebody reads it.
        let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, served).await;
    }

    /// What holds for the process.
    pub(crate) fn isolation(&self) -> &Isolation {
        &self.0.isolation
    }

    /// Takes up what the file of tokens says now.
    ///
    /// # Errors
    /// The file cannot be read; then the tokens stay as they are.
    pub fn reload(&self) -> Result<(), TokenError> {
        let tokens = self.0.token_file.as_ref().map(TokenFile::list).transpose()?.unwrap_or_default();
        self.take_tokens(tokens.into_iter().chain(self.0.own_tokens.iter().cloned()));
        Ok(())
    }

    /// Takes these tokens from now on, and none else.
    pub(crate) fn take_tokens(&self, tokens: impl IntoIterator<Item = Token>) {
        *self.0.tokens.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Tokens::new(tokens);
    }

    /// Has the processes of tenants know what was taken up.
    pub async fn tell_workers(&self) {
        if let Some(workers) = &self.0.workers {
            let is_draining = *self.0.is_draining.borrow();
            workers.tell(self, is_draining).await;
        }
    }

    /// Waits until no run is under way, or they had their time.
    async fn drained(&self) {
        let ended = async {
            for tenant in self.0.tenants.values() {
                for id in tenant.hub.sessions().into_iter().flat_map(|(_, runs)| runs) {
                    if let Ok(run) = tenant.hub.run(&id) {
                        let _ = run.result().await;
                    }
                }
            }
        };
        let _ = tokio::time::timeout(self.0.drain, ended).await;
        if let Some(workers) = &self.0.workers {
            // Each waits for its own, and stores its sessions.
            workers.end(self.0.drain.saturating_add(SAVE_TIMEOUT)).await;
        }
    }
}

/// Ends what still runs, and stores every session.
async fn store_all(tenants: impl Iterator<Item = &Arc<Tenant>>) {
    let mut saves = tokio::task::JoinSet::new();
    for tenant in tenants {
        for (name, runs) in tenant.hub.sessions() {
            runs.iter().filter_map(|id| tenant.hub.run(id).ok()).for_each(|run| run.cancel());
            let Ok(entry) = tenant.hub.session(&name) else { continue };
            if entry.is_stored() {
                saves.spawn(async move {
                    if let Err(error) = entry.session.save().await {
                        tracing::error!(session = name, %error, "a session was not stored");
                    }
                });
            }
        }
    }
    let saved = async { while saves.join_next().await.is_some() {} };
    if tokio::time::timeout(SAVE_TIMEOUT, saved).await.is_err() {
        tracing::error!("not every session could be stored in time; those have what was stored last");
    }
}

/// Connections that may wait until they are taken.
const LISTEN_BACKLOG: i32 = 4_096;
/// How long readers may take to read the last answers when the server stops.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long sessions may take to be stored when the server stops.
const SAVE_TIMEOUT: Duration = Duration::from_secs(60);
