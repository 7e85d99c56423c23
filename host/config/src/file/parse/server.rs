//! `[server]` and `[tenants.NAME]` of a `cellar.toml`.

use cellar_wire::{IDLE_AFTER_MAX, check::At, json::Node};
use url::Url;

use super::Parser;
use crate::file::{Isolate, Logs, OauthTable, ServerTable, TenantTable, listen_address, secure_url};

/// Requests a second that a tenant may be allowed.
const RATE_MAX: u64 = 1_000_000;

impl Parser<'_> {
    pub(super) fn server(&mut self, at: &At<'_>) -> Option<ServerTable> {
        let known = [
            "listen",
            "tokens",
            "durable",
            "body_mib",
            "connections",
            "drain",
            "idle_after",
            "isolate",
            "workers",
            "worker_memory_mib",
            "worker_idle",
            "logs",
            "traces",
            "oauth",
        ];
        let fields = at.fields(&known, &mut self.problems)?;
        let mut number = |key, least, most| fields.get(key).and_then(|at| at.integer(least..=most, &mut self.problems));
        let mut table = ServerTable {
            body_mib: number("body_mib", 1, 1_024),
            connections: number("connections", 1, 1_000_000),
            drain: number("drain", 0, 3_600),
            idle_after: number("idle_after", 1, IDLE_AFTER_MAX),
            workers: number("workers", 1, 10_000),
            worker_memory_mib: number("worker_memory_mib", 256, 1 << 20),
            worker_idle: number("worker_idle", 1, 86_400),
            ..ServerTable::default()
        };
        if let Some(at) = fields.get("listen") {
            table.listen = match at.node {
                Node::Text(text) => listen_address(text),
                Node::Number(port) => listen_address(&port.to_string()),
                _ => None,
            };
            if table.listen.is_none() {
                at.expected("an address and a port, such as \"127.0.0.1:8700\", or a port", &mut self.problems);
            }
        }
        let tokens = fields.get("tokens").and_then(|at| at.filled_text(&mut self.problems));
        table.tokens = tokens.map(|path| self.path(path));
        table.oauth = fields.get("oauth").and_then(|at| self.oauth(&at));
        table.durable = fields.get("durable").and_then(|at| at.boolean(&mut self.problems));
        if let Some(at) = fields.get("isolate") {
            match at.text(&mut self.problems) {
                Some("process") => table.isolate = Isolate::Process,
                Some("tenant") => table.isolate = Isolate::Tenant,
                Some("none") => table.isolate = Isolate::None,
                Some(_) => at.expected("\"process\", \"tenant\" or \"none\"", &mut self.problems),
                None => {}
            }
        }
        if let Some(at) = fields.get("logs") {
            match at.text(&mut self.problems) {
                Some("text") => table.logs = Some(Logs::Text),
                Some("json") => table.logs = Some(Logs::Json),
                Some(_) => at.expected("\"text\" or \"json\"", &mut self.problems),
                None => {}
            }
        }
        if let Some(at) = fields.get("traces") {
            match at.text(&mut self.problems) {
                Some(text) if Url::parse(text).is_ok_and(|url| url.scheme() == "http" && url.has_host()) => {
                    table.traces = Some(text.to_owned());
                }
                Some(_) => at.expected(
                    "the URL of a collector, such as \"http://127.0.0.1:4318/v1/traces\"",
                    &mut self.problems,
                ),
                None => {}
            }
        }
        Some(table)
    }

    fn oauth(&mut self, at: &At<'_>) -> Option<OauthTable> {
        let fields = at.fields(&["issuer", "audience", "jwks", "tenant_claim"], &mut self.problems)?;
        let mut address = |at: At<'_>| {
            let text = at.filled_text(&mut self.problems)?;
            if secure_url(text).is_none() {
                at.expected("an address that begins with https://, or one of this machine", &mut self.problems);
                return None;
            }
            Some(text.to_owned())
        };
        let jwks = fields.get("jwks").and_then(&mut address);
        let issuer = fields.get("issuer").and_then(&mut address);
        let audience = fields.get("audience").and_then(&mut address);
        fields.required("issuer", "the address of an authorization server", &mut self.problems);
        fields.required("audience", "the address of this server as clients reach it", &mut self.problems);
        let claim = fields.get("tenant_claim").and_then(|at| at.filled_text(&mut self.problems));
        let tenant_claim = claim.unwrap_or("tenant").to_owned();
        Some(OauthTable { issuer: issuer?, audience: audience?, jwks, tenant_claim })
    }

    pub(super) fn tenant(&mut self, at: &At<'_>) -> Option<TenantTable> {
        let known = [
            "config",
            "store",
            "sessions",
            "runs",
            "requests_per_second",
            "weight",
            "cpu_seconds_per_day",
            "memory_mib",
            "disk_mib",
            "model_tokens_per_day",
            "templates",
        ];
        let fields = at.fields(&known, &mut self.problems)?;
        let mut number = |key, most| fields.get(key).and_then(|at| at.integer(1..=most, &mut self.problems));
        let mut table = TenantTable {
            sessions: number("sessions", 1_000_000),
            runs: number("runs", 100_000),
            requests_per_second: number("requests_per_second", RATE_MAX),
            weight: number("weight", 10_000),
            cpu_seconds_per_day: number("cpu_seconds_per_day", 1_000_000_000),
            memory_mib: number("memory_mib", 1 << 20),
            disk_mib: number("disk_mib", 1 << 30),
            model_tokens_per_day: number("model_tokens_per_day", 1_000_000_000_000),
            ..TenantTable::default()
        };
        let config = fields.get("config").and_then(|at| at.filled_text(&mut self.problems));
        table.config = config.map(|path| self.path(path));
        let store = fields.get("store").and_then(|at| at.filled_text(&mut self.problems));
        table.store = store.map(|path| self.path(path));
        table.templates = fields.get("templates").map(|at| match at.node {
            Node::Array(names) if names.is_empty() => Vec::new(),
            _ => at.texts("template", &mut self.problems).unwrap_or_default(),
        });
        Some(table)
    }
}
