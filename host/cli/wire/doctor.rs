//! The report of `cellar doctor` as JSON.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use cellar_bridges::Llm;
use cellar_engine::ArtifactQuota;

/// The whole report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DoctorJson {
    pub(crate) version: &'static str,
    pub(crate) wasmtime: &'static str,
    pub(crate) guests: Vec<GuestJson>,
    pub(crate) folders: FoldersJson,
    pub(crate) config: ConfigJson,
    pub(crate) machine: MachineJson,
    /// What is needed and missing, each with its remedy.
    pub(crate) problems: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GuestJson {
    pub(crate) guest: &'static str,
    pub(crate) language: &'static str,
    pub(crate) path: PathBuf,
    /// `missing`, `broken`, `not baked` or `ready`.
    pub(crate) state: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) digest: Option<String>,
    pub(crate) world: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FoldersJson {
    pub(crate) guests: PathBuf,
    pub(crate) cache: PathBuf,
}

/// What sessions are granted; of secrets, whether they are there.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigJson {
    pub(crate) path: Option<PathBuf>,
    pub(crate) tools: Vec<String>,
    /// The MCP servers, each with how many tools it has.
    pub(crate) mcp: Vec<String>,
    pub(crate) runtime: Vec<String>,
    pub(crate) agents: Vec<String>,
    pub(crate) llm: Option<LlmJson>,
    pub(crate) http: Vec<String>,
    pub(crate) mounts: Vec<String>,
    pub(crate) packages: Vec<PathBuf>,
    pub(crate) environment: Vec<String>,
    /// `session` or `per-call`.
    pub(crate) kernel_mode: &'static str,
    /// Whether charts are drawn.
    pub(crate) charts: bool,
    /// Languages whose kernels begin with more than nothing, each with its bindings.
    pub(crate) seeds: BTreeMap<&'static str, Vec<String>>,
    pub(crate) limits: LimitsJson,
    pub(crate) artifacts: ArtifactQuotaJson,
    pub(crate) audit: Option<AuditJson>,
}

/// The audit log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditJson {
    pub(crate) file: PathBuf,
    pub(crate) sync: bool,
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LlmJson {
    pub(crate) endpoint: String,
    pub(crate) tiers: BTreeMap<String, String>,
    pub(crate) api_key_env: Option<String>,
    /// `not asked for`, `set` or `missing`.
    pub(crate) key: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitsJson {
    pub(crate) timeout: u64,
    pub(crate) timeout_max: u64,
    pub(crate) grace_ms: u64,
    pub(crate) fuel: Option<u64>,
    pub(crate) memory_mib: u64,
    pub(crate) output_mib: u64,
    pub(crate) display_mib: usize,
    pub(crate) calls_in_flight: usize,
    pub(crate) forks: usize,
    pub(crate) disk_mib: u64,
    pub(crate) disk_files: u64,
    pub(crate) descriptors: u32,
}

/// How much is kept besides results, in a store.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ArtifactQuotaJson {
    pub(crate) artifact_mib: u64,
    pub(crate) session_mib: u64,
    pub(crate) session_count: usize,
    pub(crate) total_mib: u64,
    pub(crate) total_count: usize,
    pub(crate) unused_days: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineJson {
    pub(crate) architecture: &'static str,
    pub(crate) cores: usize,
    pub(crate) cpu_features: Vec<String>,
    pub(crate) kernel: String,
    pub(crate) pagemap_scan: bool,
    pub(crate) landlock: bool,
    /// The font that charts are drawn with.
    pub(crate) font: Option<String>,
}

impl ConfigJson {
    /// The variable that should hold the key of the models and does not.
    pub(crate) fn llm_key_missing(&self) -> Option<&str> {
        let llm = self.llm.as_ref().filter(|llm| llm.key == "missing")?;
        llm.api_key_env.as_deref()
    }
}

impl From<ArtifactQuota> for ArtifactQuotaJson {
    fn from(quota: ArtifactQuota) -> ArtifactQuotaJson {
        ArtifactQuotaJson {
            artifact_mib: quota.artifact_bytes >> 20,
            session_mib: quota.session_bytes >> 20,
            session_count: quota.session_count,
            total_mib: quota.total_bytes >> 20,
            total_count: quota.total_count,
            unused_days: quota.unused_for.map(|age| age.as_secs() / (24 * 3_600)),
        }
    }
}

impl From<&Llm> for LlmJson {
    fn from(llm: &Llm) -> LlmJson {
        let key = match &llm.api_key_env {
            None => "not asked for",
            Some(name) if std::env::var_os(name).is_some_and(|key| !key.is_empty()) => "set",
            Some(_) => "missing",
        };
        LlmJson { endpoint: llm.endpoint.clone(), tiers: llm.tiers.clone(), api_key_env: llm.api_key_env.clone(), key }
    }
}
