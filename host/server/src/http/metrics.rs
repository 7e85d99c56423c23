//! Counts and figures as Prometheus reads them. Labels are names of the configuration alone, so that they are bounded.

use std::{collections::BTreeMap, fmt::Write, sync::Mutex};

use axum_core::response::{IntoResponse, Response};
use cellar_core::sync::lock;
use http::{HeaderMap, StatusCode, header};

use super::State;
use crate::{
    access::{Scope, bearer},
    problem::{Answer, Problem},
};

/// Families of figures of quotas: the ends of their names, and their help texts.
pub(crate) const QUOTA_FAMILIES: [(&str, &str); 2] =
    [("limit", "What quotas allow."), ("used", "What was used of quotas.")];

/// Answers by tenant and status.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<BTreeMap<(String, u16), u64>>);

impl Metrics {
    pub(crate) fn count(&self, tenant: Option<&str>, status: StatusCode) {
        let key = (tenant.unwrap_or_default().to_owned(), status.as_u16());
        let mut counts = lock(&self.0);
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(1);
    }

    /// The answers of one tenant, by status.
    pub(crate) fn of(&self, tenant: &str) -> Vec<(u16, u64)> {
        let counts = lock(&self.0);
        counts.iter().filter(|((name, _), _)| name == tenant).map(|((_, status), count)| (*status, *count)).collect()
    }
}

/// `GET /metrics`
pub(crate) fn show(state: &State, headers: &HeaderMap) -> Answer {
    let mut text = requests(state, headers)?;
    tenants(state, &mut text);
    Ok(page(text))
}

/// Text as Prometheus reads it.
pub(crate) fn page(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Counts of requests.
///
/// # Errors
/// The request has no token of the scope `metrics`.
pub(crate) fn requests(state: &State, headers: &HeaderMap) -> Result<String, Problem> {
    state.access.tenant(bearer(headers), Scope::Metrics)?;
    let mut text = String::new();
    let _ = writeln!(text, "# HELP cellar_requests_total Requests by tenant and status.");
    let _ = writeln!(text, "# TYPE cellar_requests_total counter");
    for ((tenant, status), count) in lock(&state.metrics.0).iter() {
        let _ = writeln!(text, "cellar_requests_total{{tenant=\"{tenant}\",status=\"{status}\"}} {count}");
    }
    Ok(text)
}

/// Figures of the tenants that this process serves.
fn tenants(state: &State, text: &mut String) {
    let tenants: Vec<_> = state.tenants.iter().map(|(name, tenant)| (name, tenant.hub.sessions())).collect();
    let _ = writeln!(text, "# HELP cellar_sessions_open Sessions in memory.\n# TYPE cellar_sessions_open gauge");
    for (name, sessions) in &tenants {
        let _ = writeln!(text, "cellar_sessions_open{{tenant=\"{name}\"}} {}", sessions.len());
    }
    let _ =
        writeln!(text, "# HELP cellar_runs_under_way Runs that have not ended.\n# TYPE cellar_runs_under_way gauge");
    for (name, sessions) in &tenants {
        let runs: usize = sessions.iter().map(|(_, runs)| runs.len()).sum();
        let _ = writeln!(text, "cellar_runs_under_way{{tenant=\"{name}\"}} {runs}");
    }
    let _ = writeln!(text, "# HELP cellar_unread_bytes Events that wait for the readers of runs.");
    let _ = writeln!(text, "# TYPE cellar_unread_bytes gauge");
    for (name, tenant) in &state.tenants {
        let _ = writeln!(text, "cellar_unread_bytes{{tenant=\"{name}\"}} {}", tenant.hub.unread_bytes());
    }
    let _ = writeln!(text, "# HELP cellar_cpu_seconds_total Processor time of cells.");
    let _ = writeln!(text, "# TYPE cellar_cpu_seconds_total counter");
    for (name, tenant) in &state.tenants {
        let _ =
            writeln!(text, "cellar_cpu_seconds_total{{tenant=\"{name}\"}} {:.3}", tenant.quotas.cpu().as_secs_f64());
    }
    let quotas: Vec<_> = state.tenants.iter().map(|(name, tenant)| (name, tenant.quotas.list())).collect();
    for (kind, help) in QUOTA_FAMILIES {
        let _ = writeln!(text, "# HELP cellar_quota_{kind} {help}\n# TYPE cellar_quota_{kind} gauge");
        for (name, quotas) in &quotas {
            for (quota, limit, used) in quotas {
                let value = if kind == "limit" { limit } else { used };
                let _ = writeln!(text, "cellar_quota_{kind}{{tenant=\"{name}\",quota=\"{quota}\"}} {value}");
            }
        }
    }
}
