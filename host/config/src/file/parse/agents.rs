//! `[agents]` of a `cellar.toml`, and who may call them.

use std::{collections::BTreeMap, time::Duration};

use cellar_bridges::{Agent, AgentTransport, Spawns};
use cellar_core::text::list;
use cellar_engine::limits::AGENT_DEPTH_MAX;
use cellar_wire::{
    check::{At, Fields},
    json::Node,
};

use super::Parser;

/// Seconds that an agent is given unless the file says more.
const TIMEOUT_SECONDS: u64 = 600;

impl Parser<'_> {
    pub(super) fn agents(&mut self, fields: &Fields<'_>) -> BTreeMap<String, Agent> {
        self.named(fields, "agents", Parser::agent)
    }

    fn agent(&mut self, at: &At<'_>) -> Option<Agent> {
        let known = [
            "command",
            "environment",
            "inherit",
            "url",
            "headers_env",
            "timeout",
            "description",
            "model",
            "spawns",
            "depth",
            "confirm",
        ];
        let fields = at.fields(&known, &mut self.problems)?;
        let transport = match (fields.get("command"), fields.get("url")) {
            (Some(_), None) => {
                self.only_beside(&fields, "headers_env", "url");
                self.command(&fields, TIMEOUT_SECONDS).map(AgentTransport::Command)
            }
            (None, Some(at)) => {
                self.only_beside(&fields, "environment", "command");
                self.only_beside(&fields, "inherit", "command");
                let headers = self.headers(&fields);
                let timeout: Duration = self.timeout(&fields, TIMEOUT_SECONDS);
                self.endpoint(&at).map(|url| AgentTransport::Http { url, headers, timeout })
            }
            _ => {
                self.problems.add(&at.path, "expected either `command`, to start the agent, or `url`, to ask it");
                None
            }
        };
        let depth = fields.get("depth").and_then(|at| at.integer(1..=AGENT_DEPTH_MAX.into(), &mut self.problems));
        Some(Agent {
            description: self.text(&fields, "description").unwrap_or_default(),
            model: self.text(&fields, "model"),
            spawns: self.spawns(&fields),
            confirm: self.confirm(&fields),
            depth: depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(AGENT_DEPTH_MAX),
            ..Agent::new(transport?)
        })
    }

    /// `spawns`: `"*"`, or the names of agents.
    pub(super) fn spawns(&mut self, fields: &Fields<'_>) -> Spawns {
        let Some(at) = fields.get("spawns") else { return Spawns::All };
        let name = |node: &Node| if let Node::Text(name) = node { Some(name.clone()) } else { None };
        match at.node {
            Node::Text(all) if all == "*" => Spawns::All,
            Node::Array(items) => match items.iter().map(name).collect::<Option<Vec<_>>>() {
                Some(names) if names.iter().any(|name| name == "*") => Spawns::All,
                Some(names) => Spawns::Only(names),
                None => self.no_spawns(&at),
            },
            _ => self.no_spawns(&at),
        }
    }

    fn no_spawns(&mut self, at: &At<'_>) -> Spawns {
        at.expected("`\"*\"` or an array of names of agents", &mut self.problems);
        Spawns::All
    }

    /// Refuses policies that name agents which there are not.
    pub(super) fn check_spawns(&mut self, agents: &BTreeMap<String, Agent>, of_session: &Spawns) {
        let of_agents = agents.iter().map(|(name, agent)| (format!("agents.{name}.spawns"), &agent.spawns));
        for (path, spawns) in of_agents.chain([("session.spawns".to_owned(), of_session)]) {
            let Spawns::Only(names) = spawns else { continue };
            for name in names.iter().filter(|name| !agents.contains_key(*name)) {
                let known: Vec<&str> = agents.keys().map(String::as_str).collect();
                let known =
                    if known.is_empty() { "there is none".to_owned() } else { format!("known are {}", list(&known)) };
                self.problems.add(&path, format_args!("no agent is named `{name}`, {known}"));
            }
        }
    }
}
