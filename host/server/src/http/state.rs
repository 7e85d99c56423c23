//! State that all requests to a server share.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::sync::watch;

use super::{metrics::Metrics, shares::Shares};
use crate::{
    access::{Access, Grant, Scope, bearer},
    configuration::Isolation,
    problem::Problem,
    tenant::Tenant,
};

/// State of a server, below its interfaces.
pub(crate) struct State {
    /// Tenants that this process serves, by name. Empty where each has a process of its own.
    pub(crate) tenants: BTreeMap<String, Arc<Tenant>>,
    pub(crate) access: Arc<Access>,
    /// Shares of tenants in the requests under way.
    pub(crate) shares: Shares,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) metrics: Metrics,
    /// Bytes of a request's body that is not a file.
    pub(crate) body_bytes_max: usize,
    /// Confinement of this process.
    pub(crate) isolation: Isolation,
}

impl State {
    /// Authorises the bearer of a token for an operation that needs `scope`, and returns its tenant.
    ///
    /// # Errors
    /// As [`Access::authorize`]; 404 where the tenant is not served by this process.
    pub(crate) fn authorize(&self, text: Option<&str>, scope: Scope) -> Result<(Grant, Arc<Tenant>), Problem> {
        let grant = self.access.authorize(text, scope)?;
        let tenant = self.tenants.get(&grant.tenant).cloned().ok_or_else(|| Problem::unknown("resource"))?;
        Ok((grant, tenant))
    }

    /// Authorises the bearer token of a request, as [`State::authorize`].
    ///
    /// # Errors
    /// As [`State::authorize`].
    pub(crate) fn caller(&self, headers: &HeaderMap, scope: Scope) -> Result<(Grant, Arc<Tenant>), Problem> {
        self.authorize(bearer(headers), scope)
    }
}

/// Beginning of the end: a server first takes no new work, then ends everything.
pub(crate) struct Lifecycle {
    is_draining: watch::Sender<bool>,
    is_over: watch::Sender<bool>,
    /// Time that runs may take to end when the server is told to stop.
    pub(crate) drain: Duration,
}

impl Lifecycle {
    pub(crate) fn new(drain: Duration) -> Lifecycle {
        Lifecycle { is_draining: watch::Sender::new(false), is_over: watch::Sender::new(false), drain }
    }

    /// True while no new work is taken.
    pub(crate) fn is_draining(&self) -> bool {
        *self.is_draining.borrow()
    }

    /// Takes no new work from now on, or takes it again.
    pub(crate) fn set_draining(&self, is_draining: bool) {
        self.is_draining.send_replace(is_draining);
    }

    /// Refuses new work while none is taken.
    ///
    /// # Errors
    /// 503
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        if self.is_draining() { Err(Problem::draining()) } else { Ok(()) }
    }

    /// Ends everything: runs were given their time.
    pub(crate) fn end(&self) {
        self.is_over.send_replace(true);
    }

    /// Waits until everything ends.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut over = self.is_over.subscribe();
        async move {
            // The server that would say so is gone as well.
            let _ = over.wait_for(|over| *over).await;
        }
    }
}
