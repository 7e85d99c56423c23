//! Overrides of a tenant's defaults for one session, stored so that it can be opened again.

use std::{collections::BTreeMap, path::PathBuf};

use cellar_config::Config;
use cellar_core::text::list;
use cellar_engine::{
    DiskBudget, GuestName, Language, Limits,
    bridges::ToolSpec,
    limits::{LIMITS, LimitSettings},
};
use cellar_secrets::quote;
use cellar_wire::SessionGrants;
use serde::{Deserialize, Serialize};

use super::Tenant;
use crate::problem::Problem;

/// Overrides of one session. They are kept with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Opening {
    /// Name of the template of the tenant's configuration.
    pub(crate) template: Option<String>,
    /// Names of guests in the place of the usual ones.
    pub(crate) guests: Vec<String>,
    /// Limits by their keys, each no higher than that of the tenant or the template.
    pub(crate) limits: BTreeMap<String, u64>,
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
    /// Its limits by their keys, in the units of these.
    pub(crate) fn limits_in_units(&self) -> BTreeMap<String, serde_json::Number> {
        let settings = settings(&self.limits);
        LIMITS
            .iter()
            .filter_map(|limit| Some((limit.key.to_owned(), limit.in_unit(limit.setting(&settings)?))))
            .collect()
    }

    /// The same of a session whose caller answers for these tools.
    pub(crate) fn with_tools(self, tools: &[ToolSpec]) -> Opening {
        let kept = |tool: &ToolSpec| {
            let ToolSpec { name, description, schema } = tool.clone();
            KeptTool { name, description, schema }
        };
        Opening { tools: tools.iter().map(kept).collect(), ..self }
    }

    /// The same with these guests.
    pub(crate) fn with_guests(self, guests: &[GuestName]) -> Opening {
        Opening { guests: guests.iter().map(|guest| guest.name().to_owned()).collect(), ..self }
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
    ///
    /// # Errors
    /// Its template is not in the file any more.
    pub(crate) fn config(&self, file: &Config) -> Result<Option<Config>, Problem> {
        let is_usual = self.template.is_none()
            && self.guests.is_empty()
            && self.environment.is_empty()
            && self.limits.is_empty()
            && self.folder.is_none();
        if is_usual {
            return Ok(None);
        }
        let mut config = match &self.template {
            None => file.clone(),
            Some(name) => file.templates.get(name).map(|template| template.applied_to(file)).ok_or_else(|| {
                let detail = format!("the template `{name}` of this session is not configured any more");
                Problem::new(http::StatusCode::CONFLICT, "template-gone", detail)
            })?,
        };
        config.limits = settings(&self.limits).or(&config.limits);
        config.session.guests.extend(self.guests.iter().filter_map(|name| GuestName::from_name(name)));
        config.environment.retain(|(name, _)| self.environment.iter().all(|(own, _)| own != name));
        config.environment.extend(self.environment.iter().cloned());
        if let Some(folder) = &self.folder {
            // JSON writes a text as Python does.
            let folder = serde_json::Value::from(folder.as_str());
            let seed = config.session.seeds.entry(Language::Python).or_default();
            seed.source.push_str(&format!("\ntry: __import__('os').chdir({folder})\nexcept OSError: pass\n"));
        }
        Ok(Some(config))
    }
}

/// Limits by their keys.
fn settings(limits: &BTreeMap<String, u64>) -> LimitSettings {
    let mut settings = LimitSettings::default();
    for limit in LIMITS {
        *limit.setting_mut(&mut settings) = limits.get(limit.key).copied();
    }
    settings
}

impl Tenant {
    /// Opening of a session that a caller asks for, who is granted no more than the tenant, or the template that it names.
    ///
    /// # Errors
    /// It names a template that it may not name, or asks for more.
    pub(crate) fn requested_opening(&self, requested: &SessionGrants) -> Result<Opening, Problem> {
        let SessionGrants { template, guest, environment, limits } = requested;
        let file = self.hub.file();
        let base = match template {
            None => file,
            Some(name) => {
                let allowed = self.templates.as_ref().is_none_or(|allowed| allowed.contains(name));
                &file
                    .templates
                    .get(name)
                    .filter(|_| allowed)
                    .ok_or_else(|| self.unknown_template(name))?
                    .applied_to(file)
            }
        };
        check_limits(base, limits, "$.")?;
        let has_python = base.session.guests.iter().any(|guest| guest.language() == Language::Python);
        let guests = match guest {
            Some(guest) => vec![guest.clone()],
            None if has_python => Vec::new(),
            None => self.usual_guests().iter().map(|guest| guest.name().to_owned()).collect(),
        };
        let limits = LIMITS.iter().filter_map(|limit| Some((limit.key.to_owned(), limit.setting(limits)?)));
        Ok(Opening {
            template: template.clone(),
            guests,
            limits: limits.collect(),
            environment: environment.clone(),
            ..Opening::default()
        })
    }

    fn unknown_template(&self, name: &str) -> Problem {
        let may = |name: &&String| self.templates.as_ref().is_none_or(|allowed| allowed.contains(*name));
        let known: Vec<&str> = self.hub.file().templates.keys().filter(may).map(String::as_str).collect();
        let hint = match known.as_slice() {
            [] => "`[templates.NAME]` in the `cellar.toml` of the server makes one".to_owned(),
            known => format!("there is {}", list(known)),
        };
        Problem::bad(format!("$.template: there is no template {}", quote(name))).hint(hint)
    }

    /// Opening of a session whose caller says nothing.
    pub(crate) fn usual_opening(&self) -> Opening {
        Opening::default().with_guests(self.usual_guests())
    }

    /// Guests of a session whose caller names none: Python has NumPy and pandas where that guest is installed, unless the
    /// configuration names another one.
    pub(crate) fn usual_guests(&self) -> &[GuestName] {
        self.usual_guests.get_or_init(|| {
            let configured = self.hub.file().session.guests.iter().any(|guest| guest.language() == Language::Python);
            let is_usual = !configured && self.hub.has(GuestName::PythonData);
            is_usual.then_some(GuestName::PythonData).into_iter().collect()
        })
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
    check_limits(base, &requested.limits, "$.grants.")?;
    let most = base.session.input_timeout().as_secs();
    check("$.grants.session.input_timeout", requested.session.input_timeout, most, &most.into())?;
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

/// Checks that limits are no higher than those of `base`. `$.` or what precedes them is their path.
fn check_limits(base: &Config, requested: &LimitSettings, path: &str) -> Result<(), Problem> {
    let allowed = base.limits.limits();
    // Its cells could ask for as much in any case.
    let allowed = Limits { timeout: allowed.timeout_max, ..allowed };
    LIMITS.iter().try_for_each(|limit| {
        let most = limit.value(&allowed).unwrap_or(u64::MAX);
        check(&format!("{path}limits.{}", limit.key), limit.setting(requested), most, &limit.in_unit(most))
    })
}

fn check(path: &str, requested: Option<u64>, most: u64, told: &serde_json::Number) -> Result<(), Problem> {
    match requested {
        Some(requested) if requested > most => {
            Err(Problem::bad(format!("{path}: expected at most {told}, which is what is granted here")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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
