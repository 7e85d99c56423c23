//! Answers to the calls of cells, where more than the bridges of a hub's configuration gives them.

use std::{fmt, sync::Arc};

use cellar_bridges::{Confirmations, HostBridges, OwnAndAfar, confirmed};
use cellar_engine::bridges::Bridges;

use crate::hub::HubConfig;

/// Bridges that a program lays over those of its hub: what they do not answer themselves they hand on.
pub trait Layer: Send + Sync + fmt::Debug {
    /// Returns the bridges of a session.
    fn over(&self, bridges: Arc<dyn Bridges>) -> Arc<dyn Bridges>;
}

impl HubConfig {
    /// The bridges of a session: its own, what another process answers for, the calls of both that wait for a person, and the
    /// layer over all of it.
    pub(crate) fn answered(&self, own: HostBridges, rules: Option<&Arc<Confirmations>>) -> Arc<dyn Bridges> {
        let bridges: Arc<dyn Bridges> = match &self.afar {
            Some(afar) => Arc::new(OwnAndAfar { own, afar: afar.clone() }),
            None => Arc::new(own),
        };
        let bridges = match rules {
            Some(rules) => confirmed(bridges, rules.clone(), self.approver.clone()),
            None => bridges,
        };
        self.layer.iter().fold(bridges, |bridges, layer| layer.over(bridges))
    }
}
