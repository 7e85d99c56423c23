//! Rows of `cellar doctor` about the server: its address, its store, and each tenant with its limits.

use std::{error::Error as _, path::Path};

use cellar_config::Overrides;
use cellar_server::{ServeError, ServerConfig, TenantConfig};
use cellar_wire::{DoctorJson, ServerJson, TenantJson};

use super::Lines;
use crate::args::Folders;

/// Adds what `cellar serve` would serve with the file, or what would keep it from starting: faults of its tenants and of their own
/// files.
pub(super) fn check(report: &mut DoctorJson, folders: &Folders, config: Option<&Path>) {
    let Some(config) = config else { return };
    let overrides = Overrides { config: Some(config.to_owned()), ..Overrides::default() };
    let server = ServerConfig::new(&folders.into(), &overrides, |_| {}).map_err(ServeError::from);
    let checked = server.and_then(|(server, _)| {
        report.server = Some(described(&server));
        server.check()
    });
    if let Err(error) = checked {
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        let message = causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"));
        report.problems.push(format!("`cellar serve` would not start: {message}"));
    }
}

fn described(server: &ServerConfig) -> ServerJson {
    ServerJson {
        listen: server.listen.to_string(),
        connections: server.connections_max,
        drain_seconds: server.drain.as_secs(),
        has_authorization_server: server.oauth.is_some(),
        tenants: server.tenants.iter().map(tenant).collect(),
    }
}

fn tenant(tenant: &TenantConfig) -> TenantJson {
    TenantJson {
        name: tenant.name.clone(),
        store: tenant.store.clone(),
        sessions: tenant.sessions_max,
        runs: tenant.runs_max,
        weight: tenant.weight,
        requests_per_second: tenant.requests_per_second,
        cpu_seconds_per_day: tenant.quota.cpu_seconds_per_day,
        model_tokens_per_day: tenant.quota.model_tokens_per_day,
        memory_mib: tenant.quota.memory_mib,
        disk_mib: tenant.quota.disk_mib,
    }
}

/// Writes the rows; none without a file, which the server's own tenant needs none of.
pub(super) fn lines(lines: &mut Lines, server: Option<&ServerJson>) {
    let Some(server) = server else { return };
    lines.header("server");
    lines.item("listen", &server.listen);
    lines.item("connections", &format!("{} at a time", server.connections));
    lines.item("drain", &format!("{} s for runs to end", server.drain_seconds));
    lines.item("tokens", if server.has_authorization_server { "own, and of an authorization server" } else { "own" });
    for tenant in &server.tenants {
        lines.item(&format!("tenant {}", tenant.name), &in_words(tenant));
    }
}

fn in_words(tenant: &TenantJson) -> String {
    let mut parts = vec![format!("{} sessions", tenant.sessions), format!("{} runs", tenant.runs)];
    parts.push(format!("weight {}", tenant.weight));
    let quotas = [
        (tenant.requests_per_second, "requests a second"),
        (tenant.cpu_seconds_per_day, "s of processor a day"),
        (tenant.model_tokens_per_day, "tokens a day"),
        (tenant.memory_mib, "MiB of memory"),
        (tenant.disk_mib, "MiB of disk"),
    ];
    parts.extend(quotas.into_iter().filter_map(|(number, what)| Some(format!("{} {what}", number?))));
    format!("{}; in {}", parts.join(", "), tenant.store.display())
}
