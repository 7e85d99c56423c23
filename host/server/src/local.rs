//! A server whose tenants are in this process: opened, kept while it serves, and stored when it ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cellar_bridges::{Afar, Doors};
use cellar_core::budget::Budget;
use cellar_engine::Host;
use cellar_hub::HubError;
use tokio::sync::Semaphore;

use crate::{
    access::{Access, Issuer},
    configuration::{Isolation, ServeError, ServerConfig},
    http::{
        Lifecycle, Shares, State,
        metrics::{self, Metrics},
    },
    router::{Interfaces, Router},
    tenant::{self, Ground, Tenant},
};

/// Bytes that a process has read for all tenants and not yet handed on; four bodies of requests, where that is more.
const BUFFERED_BYTES_MAX: usize = 1 << 30;
/// Time that readers may take to read the last answers when the server stops.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// Tenants, and the interfaces by which they are reached. A cheap handle.
#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) state: Arc<State>,
    pub(crate) host: Host,
    pub(crate) router: Router,
}

impl Local {
    /// Opens the tenants of a configuration, but for those that have processes of their own. Blocks.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, at once; the host or a store fails.
    pub(crate) fn open(
        config: ServerConfig,
        isolation: Isolation,
        doors: Arc<dyn Doors>,
        afar: Option<Afar>,
    ) -> Result<Local, ServeError> {
        config.check()?;
        metrics::begin();
        let issuer = config.oauth.map(Issuer::new).transpose().map_err(ServeError::Oauth)?;
        let names = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        let access = Arc::new(Access::open(config.tokens, config.own_tokens, issuer, names)?);
        let shares = Shares::new(config.connections_max, access.tenants());
        let host = Host::open(config.host.clone()).map_err(HubError::from)?;
        let buffers = Budget::new(BUFFERED_BYTES_MAX.max(config.body_bytes_max.saturating_mul(4)));
        let snapshots = Arc::new(Semaphore::new(tenant::SNAPSHOTS_MADE_MAX));
        let (mut tenants, mut interfaces) = (BTreeMap::new(), Interfaces::default());
        for tenant in config.tenants.into_iter().filter(|_| config.worker.is_none()) {
            let name = tenant.name.clone();
            let ground = Ground {
                host: host.clone(),
                config: config.host.clone(),
                doors: doors.clone(),
                afar: afar.clone(),
                progress: config.progress,
                buffers: buffers.part(access.tenants()),
                snapshots: snapshots.clone(),
            };
            tenants.insert(name, interfaces.open(tenant, ground)?);
        }
        let state = Arc::new(State {
            tenants,
            access,
            shares,
            lifecycle: Lifecycle::new(config.drain),
            metrics: Metrics::default(),
            body_bytes_max: config.body_bytes_max,
            isolation,
        });
        Ok(Local { router: Router::new(state.clone(), interfaces), state, host })
    }

    /// Polls `served`, which answers requests, until `stop` comes; then takes no new work, gives runs the time that they may
    /// take, waits for `ended`, stores every session, and returns. Returns early if `served` or `beside` ends before.
    pub(crate) async fn serve(
        &self,
        served: impl Future<Output = ()>,
        beside: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
        ended: impl Future<Output = ()>,
    ) {
        let tenants: Vec<Arc<Tenant>> = self.state.tenants.values().cloned().collect();
        let mut served = std::pin::pin!(served);
        tokio::select! {
            () = &mut served => return,
            () = beside => return,
            () = self.router.keep() => return,
            () = tenant::keep_times(tenants.clone()) => return,
            () = tenant::keep_quotas(tenants.clone()) => return,
            () = stop => {}
        }
        self.state.lifecycle.set_draining(true);
        // Connections go on meanwhile: results are read, and new work is refused.
        let drained = async {
            self.drained().await;
            ended.await;
        };
        tokio::select! {
            () = &mut served => return,
            () = drained => {}
        }
        self.state.lifecycle.end();
        tenant::store_all(&tenants).await;
        tenants.iter().for_each(|tenant| tenant.quotas.save());
        // The last answers are sent, as far as somebody reads them.
        let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, served).await;
    }

    /// Waits until no run is under way, or they had their time.
    async fn drained(&self) {
        let ended = async {
            for tenant in self.state.tenants.values() {
                for id in tenant.hub.sessions().into_iter().flat_map(|(_, runs)| runs) {
                    if let Ok(run) = tenant.hub.run(&id) {
                        let _ = run.result().await;
                    }
                }
            }
        };
        let _ = tokio::time::timeout(self.state.lifecycle.drain, ended).await;
    }
}
