//! How a session is opened that is to have other things than its tenant's sessions have, kept for whoever wakes it.

use std::path::PathBuf;

use cellar_engine::{DiskBudget, GuestName, Language};
use cellar_wire::config::Config;
use serde::{Deserialize, Serialize};

/// What is said of a session beside what its tenant is granted. It is kept with the session.
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
}

impl Opening {
    /// What the session is granted in the place of what the file of its tenant says; nothing, if that is the same.
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

/// What a session is opened with.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) config: Option<Config>,
    pub(crate) workspace: Option<PathBuf>,
    /// The budget of the session whose workspace that is.
    pub(crate) disk_budget: Option<DiskBudget>,
}
