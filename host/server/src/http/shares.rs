//! Shares of tenants in what a server has once: requests under way, WebSockets and streams among them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_core::sync::lock;

use crate::problem::Problem;

/// Time after which a client that found no permit may ask again.
const RETRY: Duration = Duration::from_secs(1);

/// Requests under way, by tenant. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    most: usize,
    under_way: Mutex<HashMap<String, usize>>,
}

/// Permit of a request under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    counts: Arc<Counts>,
    tenant: String,
}

impl Shares {
    /// Shares of `tenants` in `connections`: one tenant leaves an eighth to those who have shown no token yet, and of
    /// several each may have half.
    pub(crate) fn new(connections: usize, tenants: usize) -> Shares {
        let most = if tenants > 1 { connections / 2 } else { connections.saturating_sub(strangers(connections)) };
        Shares(Arc::new(Counts { most: most.max(1), under_way: Mutex::default() }))
    }

    /// Takes a permit for a request of a tenant.
    ///
    /// # Errors
    /// 429 where the tenant has as many under way as it may.
    pub(crate) fn take(&self, tenant: &str) -> Result<Permit, Problem> {
        // THREAT: T10
        let mut under_way = lock(&self.0.under_way);
        let count = under_way.entry(tenant.to_owned()).or_default();
        if *count >= self.0.most {
            let detail = format!("this tenant has {} requests, streams and WebSockets under way", self.0.most);
            return Err(Problem::limit("requests_under_way", detail, RETRY));
        }
        *count = count.saturating_add(1);
        Ok(Permit { counts: self.0.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut under_way = lock(&self.counts.under_way);
        if let Some(count) = under_way.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Connections of those who have shown no token that none has to give way for.
pub(super) fn strangers(connections: usize) -> usize {
    (connections / 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_half_of_what_several_share_and_gets_it_back() {
        let shares = Shares::new(8, 2);
        let taken: Vec<Permit> = (0..4).map(|_| shares.take("red").expect("its share")).collect();
        assert_eq!(shares.take("red").expect_err("it has its share").status().as_u16(), 429);
        let _other = shares.take("blue").expect("another's share");
        drop(taken);
        shares.take("red").expect("they have ended");
        let alone = Shares::new(8, 1);
        let taken: Vec<Permit> = (0..7).map(|_| alone.take("red").expect("its share")).collect();
        assert!(alone.take("red").is_err(), "{} are taken", taken.len());
    }
}
