//! Counts and figures as Prometheus reads them. Labels are names of the configuration alone, so that they are bounded.

use std::{collections::BTreeMap, fmt::Write, sync::Mutex, time::Duration};

use axum_core::response::{IntoResponse, Response};
use cellar_core::sync::lock;
use cellar_hub::{DURATION_BOUNDS, Histogram};
use http::{HeaderMap, StatusCode, header};

use super::State;
use crate::{
    access::{Scope, bearer},
    problem::{Answer, Problem},
    tenant::Tenant,
};

/// Families of figures of quotas: the ends of their names, and their help texts.
pub(crate) const QUOTA_FAMILIES: [(&str, &str); 2] =
    [("limit", "What quotas allow."), ("used", "What was used of quotas.")];

/// Answers by tenant and status, and their durations by route.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    answers: Mutex<BTreeMap<(String, u16), u64>>,
    durations: Mutex<BTreeMap<&'static str, Histogram>>,
}

impl Metrics {
    pub(crate) fn count(&self, tenant: Option<&str>, status: StatusCode) {
        let key = (tenant.unwrap_or_default().to_owned(), status.as_u16());
        let mut counts = lock(&self.answers);
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts the time that an answer took.
    pub(crate) fn took(&self, route: &'static str, duration: Duration) {
        lock(&self.durations).entry(route).or_default().add(duration);
    }

    /// The answers of one tenant, by status.
    pub(crate) fn of(&self, tenant: &str) -> Vec<(u16, u64)> {
        let counts = lock(&self.answers);
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

/// Counts and durations of requests, and figures of this process.
///
/// # Errors
/// The request has no token of the scope `metrics`.
pub(crate) fn requests(state: &State, headers: &HeaderMap) -> Result<String, Problem> {
    state.access.authorize(bearer(headers), Scope::Metrics)?;
    let mut text = String::new();
    family(&mut text, "cellar_build_info", "gauge", "Version of this server.");
    let _ = writeln!(text, "cellar_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    process::write(&mut text);
    family(&mut text, "cellar_requests_total", "counter", "Requests by tenant and status.");
    for ((tenant, status), count) in lock(&state.metrics.answers).iter() {
        let _ = writeln!(text, "cellar_requests_total{{tenant=\"{tenant}\",status=\"{status}\"}} {count}");
    }
    let name = "cellar_request_duration_seconds";
    family(&mut text, name, "histogram", "Time from a request to the head of its answer, by route.");
    for (route, durations) in lock(&state.metrics.durations).iter() {
        histogram(&mut text, name, &format!("route=\"{route}\""), durations);
    }
    Ok(text)
}

/// Begins a family.
fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Writes a histogram with these labels.
fn histogram(text: &mut String, name: &str, labels: &str, durations: &Histogram) {
    let mut up_to = 0_u64;
    for (bound, count) in DURATION_BOUNDS.iter().zip(durations.counts) {
        up_to = up_to.saturating_add(count);
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {up_to}");
    }
    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", durations.count);
    let _ = writeln!(text, "{name}_sum{{{labels}}} {}", durations.sum.as_secs_f64());
    let _ = writeln!(text, "{name}_count{{{labels}}} {}", durations.count);
}

/// Figures of the tenants that this process serves.
fn tenants(state: &State, text: &mut String) {
    let tenants: Vec<Figures> = state.tenants.iter().map(|(name, tenant)| Figures::of(name, tenant)).collect();
    type Gauge = (&'static str, &'static str, fn(&Figures<'_>) -> usize);
    let gauges: [Gauge; 6] = [
        ("cellar_sessions_open", "Sessions that are open, asleep or not.", |figures| figures.sessions.len()),
        ("cellar_sessions_sleeping", "Sessions that are kept and have no memory.", |figures| figures.sleeping),
        ("cellar_runs_under_way", "Runs that have not ended.", |figures| {
            figures.sessions.iter().map(|(_, runs)| runs.len()).sum()
        }),
        ("cellar_kernels_awake", "Kernels that have room in memory.", |figures| figures.kernels.0),
        ("cellar_kernels_waiting", "Kernels that wait for room in memory.", |figures| figures.kernels.1),
        ("cellar_unread_bytes", "Events that wait for the readers of runs.", |figures| {
            figures.tenant.hub.unread_bytes()
        }),
    ];
    for (name, help, value) in gauges {
        family(text, name, "gauge", help);
        for figures in &tenants {
            let _ = writeln!(text, "{name}{{tenant=\"{}\"}} {}", figures.name, value(figures));
        }
    }
    family(text, "cellar_cpu_seconds_total", "counter", "Processor time of cells.");
    for Figures { name, tenant, .. } in &tenants {
        let seconds = tenant.quotas.cpu().as_secs_f64();
        let _ = writeln!(text, "cellar_cpu_seconds_total{{tenant=\"{name}\"}} {seconds:.3}");
    }
    let cells = "cellar_cell_duration_seconds";
    family(text, cells, "histogram", "Cells by language and outcome, which is complete or the kind of the failure.");
    for Figures { name, tenant, .. } in &tenants {
        for ((language, outcome), durations) in tenant.hub.cells_ended() {
            let labels = format!("tenant=\"{name}\",language=\"{language}\",outcome=\"{outcome}\"");
            histogram(text, cells, &labels, &durations);
        }
    }
    for (kind, help) in QUOTA_FAMILIES {
        family(text, &format!("cellar_quota_{kind}"), "gauge", help);
        for Figures { name, tenant, .. } in &tenants {
            for (quota, limit, used) in tenant.quotas.list() {
                let value = if kind == "limit" { limit } else { used };
                let _ = writeln!(text, "cellar_quota_{kind}{{tenant=\"{name}\",quota=\"{quota}\"}} {value}");
            }
        }
    }
}

/// Figures of a tenant.
struct Figures<'a> {
    name: &'a str,
    tenant: &'a Tenant,
    sessions: Vec<(String, Vec<String>)>,
    /// Awake kernels, and those that wait.
    kernels: (usize, usize),
    sleeping: usize,
}

impl Figures<'_> {
    fn of<'a>(name: &'a str, tenant: &'a Tenant) -> Figures<'a> {
        let (sessions, kernels) = (tenant.hub.sessions(), tenant.hub.kernels());
        Figures { name, tenant, sessions, kernels, sleeping: tenant.sleeping() }
    }
}

/// Figures of this process by the names that Prometheus's clients give them. What the system does not tell is left out.
mod process {
    use std::{fmt::Write, fs, sync::OnceLock};

    use rustix::{
        param::{clock_ticks_per_second, page_size},
        process::{Resource, getrlimit},
    };

    use super::family;
    use crate::access::now;

    /// Time at which this process began to serve, in seconds since the Unix epoch.
    static START: OnceLock<u64> = OnceLock::new();

    /// Notes the start of this process.
    pub(crate) fn begin() {
        let _ = START.set(now());
    }

    pub(super) fn write(text: &mut String) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program, in brackets, may hold anything.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let field = |number: usize| fields.get(number.saturating_sub(3)).and_then(|field| field.parse::<u64>().ok());
        let ticks = clock_ticks_per_second().max(1) as f64;
        let cpu = field(14).zip(field(15)).map(|(user, system)| user.saturating_add(system) as f64 / ticks);
        let resident = field(24).map(|pages| pages.saturating_mul(page_size() as u64) as f64);
        let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
        let start = START.get().map(|start| *start as f64);
        for (name, kind, help, value) in [
            ("process_cpu_seconds_total", "counter", "Processor time of this process.", cpu),
            ("process_resident_memory_bytes", "gauge", "Memory of this process.", resident),
            ("process_virtual_memory_bytes", "gauge", "Addresses of this process.", field(23).map(|size| size as f64)),
            ("process_threads", "gauge", "Threads of this process.", field(20).map(|threads| threads as f64)),
            ("process_open_fds", "gauge", "Descriptors of this process.", open),
            ("process_max_fds", "gauge", "Descriptors that it may have.", most),
            ("process_start_time_seconds", "gauge", "Start, in seconds since the Unix epoch.", start),
        ] {
            if let Some(value) = value {
                family(text, name, kind, help);
                let _ = writeln!(text, "{name} {value}");
            }
        }
    }
}

pub(crate) use process::begin;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    /// Names of metrics in a text of ours, which begin with these words.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        words.filter(|word| word.starts_with("cellar_") || word.starts_with("process_")).collect()
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana.json");
        let board: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("the dashboard")).expect("JSON");
        let known = names(include_str!("metrics.rs"));
        let panels = board["panels"].as_array().expect("panels");
        let exprs = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
        let exprs: Vec<&str> = exprs.map(|target| target["expr"].as_str().expect("an expression")).collect();
        let variable = board["templating"]["list"][1]["query"].as_str().expect("a query");
        let mut count = 0;
        for name in exprs.iter().copied().chain([variable]).flat_map(names) {
            let plain = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let is_quota = ["cellar_quota_limit", "cellar_quota_used"].contains(&name);
            assert!(known.contains(plain) || is_quota, "{name}");
            count += 1;
        }
        assert!(count > 15, "{count}");
    }
}
