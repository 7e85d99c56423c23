//! Overrides of a tenant's defaults for one session, stored so that it can be opened again.

use std::path::PathBuf;

use cellar_config::Config;
use cellar_engine::{DiskBudget, GuestName, Language, Limits, bridges::ToolSpec, limits::LIMITS};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// Overrides of one session. They are kept with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Opening {
    /// Names of guests in the place of the usual ones.
    pub(crate) guests: Vec<String>,
    /// Environment variables that its cells see besides.
    pub(crate) environment: Vec<(String, String)>,
    /// The session whose workspace it shares, which shares that of no other.
    pub(crate) beside: Option<String>,
    /// The folder that its Python kernels begin in.
    pub(crate) folder: Option<String>,
    /// Tools that its caller answers for.
    pub(crate) tools: Vec<KeptTool>,
}

/// A tool that a caller answers for, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptTool {
    name: String,
    description: String,
    schema: Option<String>,
}

impl Opening {
    /// Opening of a session whose caller answers for these tools.
    pub(crate) fn with_tools(tools: &[ToolSpec]) -> Opening {
        let kept = |tool: &ToolSpec| {
            let ToolSpec { name, description, schema } = tool.clone();
            KeptTool { name, description, schema }
        };
        Opening { tools: tools.iter().map(kept).collect(), ..Opening::default() }
    }

    /// The tools that its caller answers for.
    pub(crate) fn tools(&self) -> Vec<ToolSpec> {
        let spec = |tool: &KeptTool| {
            let KeptTool { name, description, schema } = tool.clone();
            ToolSpec { name, description, schema }
        };
        self.tools.iter().map(spec).collect()
    }

    /// True if there are any.
    pub(crate) fn has_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// Configuration in the place of the file of its tenant; none if it is the same.
    pub(crate) fn config(&self, file: &Config) -> Option<Config> {
        if self.guests.is_empty() && self.environment.is_empty() && self.folder.is_none() {
            return None;
        }
        let mut config = file.clone();
        config.session.guests.extend(self.guests.iter().filter_map(|name| GuestName::from_name(name)));
        config.environment.retain(|(name, _)| self.environment.iter().all(|(own, _)| own != name));
        config.environment.extend(self.environment.iter().cloned());
        if let Some(folder) = &self.folder {
            // JSON writes a text as Python does.
            let folder = serde_json::Value::from(folder.as_str());
            let seed = config.session.seeds.entry(Language::Python).or_default();
            seed.source.push_str(&format!("\ntry: __import__('os').chdir({folder})\nexcept OSError: pass\n"));
        }
        Some(config)
    }
}

/// Resolved [`Opening`].
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) config: Option<Config>,
    pub(crate) workspace: Option<PathBuf>,
    /// The budget of the session whose workspace that is.
    pub(crate) disk_budget: Option<DiskBudget>,
}

/// Grants of a session for a caller over the network, who asks for `requested`: those of its tenant, and no more.
///
/// # Errors
/// It asks for more.
pub(crate) fn tightened(base: &Config, requested: &Config) -> Result<Config, Problem> {
    let allowed = base.limits.limits();
    // Its cells could ask for as much in any case.
    let allowed = Limits { timeout: allowed.timeout_max, ..allowed };
    let limits = LIMITS.iter().map(|limit| {
        let most = limit.value(&allowed).unwrap_or(u64::MAX);
        (format!("limits.{}", limit.key), limit.setting(&requested.limits), most, limit.in_unit(most))
    });
    let most = base.session.input_timeout().as_secs();
    let input = ("session.input_timeout".to_owned(), requested.session.input_timeout, most, most.into());
    for (name, requested, most, told) in limits.chain([input]) {
        if requested.is_some_and(|requested| requested > most) {
            return Err(Problem::bad(format!(
                "$.grants.{name}: expected at most {told}, which is what is granted here"
            )));
        }
    }
    let mut config = base.clone();
    config.limits = requested.limits.clone().or(&base.limits);
    config.environment.retain(|(name, _)| requested.environment.iter().all(|(own, _)| own != name));
    config.environment.extend(requested.environment.iter().cloned());
    let session = &mut config.session;
    session.guests.extend(requested.session.guests.iter().copied());
    session.input_timeout = requested.session.input_timeout.or(session.input_timeout);
    session.charts = requested.session.charts.or(session.charts);
    if requested.session.kernel_mode != Default::default() {
        session.kernel_mode = requested.session.kernel_mode;
    }
    if requested.session.output_policy != Default::default() {
        session.output_policy = requested.session.output_policy;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use cellar_engine::limits::LimitSettings;

    use super::*;

    #[test]
    fn who_comes_over_the_network_is_granted_no_more_than_the_tenant() {
        let config = |limits: LimitSettings| Config { limits, ..Config::default() };
        let base = config(LimitSettings { memory_mib: Some(256), timeout: Some(5_000), ..LimitSettings::default() });
        let tight = config(LimitSettings { memory_mib: Some(64), ..LimitSettings::default() });
        let granted = tightened(&base, &tight).expect("it is less");
        assert_eq!((granted.limits.memory_mib, granted.limits.timeout), (Some(64), Some(5_000)));
        for limits in [
            LimitSettings { memory_mib: Some(257), ..LimitSettings::default() },
            LimitSettings { disk_mib: Some(1 << 20), ..LimitSettings::default() },
            LimitSettings { grace_ms: Some(60_000), ..LimitSettings::default() },
        ] {
            assert!(tightened(&base, &config(limits.clone())).is_err(), "{limits:?}");
        }
    }
}
