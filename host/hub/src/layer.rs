//! Answers to the calls of cells, where more than the bridges of a hub's configuration gives them.

use std::{fmt, sync::Arc};

use cellar_bridges::{Confirmations, HostBridges, OwnAndAfar, Tools, confirmed};
use cellar_engine::{
    CellId,
    bridges::{Bridges, CallFuture, ToolSpec},
};

use crate::{answers::Answerer, hub::HubConfig};

/// Answers the calls of one tool: it is given the arguments, a JSON object that fits the schema, and the cell.
pub type ToolAnswer = Box<dyn Fn(String, CellId) -> CallFuture + Send + Sync>;

/// Bridges that a program lays over those of its hub: what they do not answer themselves they hand on.
pub trait Layer: Send + Sync + fmt::Debug {
    /// Returns the bridges of a session.
    fn over(&self, bridges: Arc<dyn Bridges>) -> Arc<dyn Bridges>;

    /// Returns what answers a tool that the caller of a session declares, in the place of the caller's lines; `None` leaves it to those.
    fn tool(&self, _name: &str) -> Option<ToolAnswer> {
        None
    }
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

    /// The bridges of the session of this name, with the tools that the layer or its answerer answers for.
    pub(crate) fn with_tools(
        &self,
        name: &str,
        bridges: &HostBridges,
        tools: &[ToolSpec],
        answerer: Option<&Answerer>,
    ) -> HostBridges {
        let Some(answerer) = answerer else { return bridges.clone() };
        let of_caller =
            |tools: Tools, spec: &ToolSpec| match self.layer.as_ref().and_then(|layer| layer.tool(&spec.name)) {
                Some(answer) => tools.with(spec.clone(), answer),
                None => tools.with(spec.clone(), answerer.tool(name, &spec.name)),
            };
        bridges.clone().with_tools(tools.iter().fold(Tools::new(), of_caller))
    }
}
