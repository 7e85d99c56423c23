//! `[server]` and `[tenants.NAME]` of a `cellar.toml`.

use std::net::SocketAddr;

use super::Parser;
use crate::{
    check::At,
    config::{ServerTable, TenantTable},
};

/// Requests a second that a tenant may be allowed.
const RATE_MAX: u64 = 1_000_000;

impl Parser<'_> {
    pub(super) fn server(&mut self, at: &At<'_>) -> Option<ServerTable> {
        let known = ["listen", "tokens", "durable", "body_mib", "connections", "drain"];
        let fields = at.fields(&known, &mut self.problems)?;
        let mut number = |key, least, most| fields.get(key).and_then(|at| at.integer(least..=most, &mut self.problems));
        let mut table = ServerTable {
            body_mib: number("body_mib", 1, 1_024),
            connections: number("connections", 1, 1_000_000),
            drain: number("drain", 0, 3_600),
            ..ServerTable::default()
        };
        if let Some(at) = fields.get("listen") {
            let address = at.text(&mut self.problems).map(str::parse::<SocketAddr>);
            match address {
                Some(Ok(address)) => table.listen = Some(address),
                Some(Err(_)) => at.expected("an address and a port, such as \"127.0.0.1:8700\"", &mut self.problems),
                None => {}
            }
        }
        let tokens = fields.get("tokens").and_then(|at| at.filled_text(&mut self.problems));
        table.tokens = tokens.map(|path| self.path(path));
        table.durable = fields.get("durable").and_then(|at| at.boolean(&mut self.problems));
        Some(table)
    }

    pub(super) fn tenant(&mut self, at: &At<'_>) -> Option<TenantTable> {
        let known = ["config", "store", "sessions", "runs", "requests_per_second"];
        let fields = at.fields(&known, &mut self.problems)?;
        let mut number = |key, most| fields.get(key).and_then(|at| at.integer(1..=most, &mut self.problems));
        let mut table = TenantTable {
            sessions: number("sessions", 1_000_000),
            runs: number("runs", 100_000),
            requests_per_second: number("requests_per_second", RATE_MAX),
            ..TenantTable::default()
        };
        let config = fields.get("config").and_then(|at| at.filled_text(&mut self.problems));
        table.config = config.map(|path| self.path(path));
        let store = fields.get("store").and_then(|at| at.filled_text(&mut self.problems));
        table.store = store.map(|path| self.path(path));
        Some(table)
    }
}
