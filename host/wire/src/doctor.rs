//! The report of `cellar doctor` as JSON.

#![allow(missing_docs, reason = "the fields and variants are those of the document, which its schema describes")]

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use cellar_core::limits::LimitsJson;
use cellar_results::artifacts::ArtifactQuota;

/// The whole report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorJson {
    pub version: &'static str,
    pub wasmtime: &'static str,
    pub guests: Vec<GuestJson>,
    pub folders: FoldersJson,
    pub config: ConfigJson,
    pub host: HostJson,
    /// How `cellar serve` would be confined, in words.
    pub isolation: String,
    /// Server that the file describes.
    pub server: Option<ServerJson>,
    pub machine: MachineJson,
    /// What is needed and missing, each with its remedy.
    pub problems: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestJson {
    pub guest: &'static str,
    pub language: &'static str,
    pub path: PathBuf,
    /// `missing`, `broken`, `not baked` or `ready`.
    pub state: &'static str,
    pub reason: Option<String>,
    pub digest: Option<String>,
    pub world: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoldersJson {
    pub guests: PathBuf,
    pub cache: PathBuf,
}

/// What sessions are granted; of secrets, whether they are there.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigJson {
    pub path: Option<PathBuf>,
    pub tools: Vec<String>,
    /// The MCP servers, each with how many tools it has.
    pub mcp: Vec<String>,
    pub runtime: Vec<String>,
    pub agents: Vec<String>,
    pub llm: Option<LlmJson>,
    pub http: Vec<String>,
    /// The connectors, each with what it is.
    pub connectors: Vec<String>,
    /// What is named as a credential, and what of the variables of commands looks like one and cannot be hidden; of each,
    /// whether cells are kept from being told.
    pub secrets: Vec<String>,
    pub mounts: Vec<String>,
    /// Where the workspace is seen besides its own place; absent for the usual places.
    pub aliases: Option<Vec<String>>,
    /// Packages by their names, and folders of them.
    pub packages: Vec<String>,
    pub environment: Vec<String>,
    /// `session` or `per-call`.
    pub kernel_mode: &'static str,
    /// Whether charts are drawn.
    pub charts: bool,
    /// Languages whose kernels begin with more than nothing, each with its bindings.
    pub seeds: BTreeMap<&'static str, Vec<String>>,
    pub limits: LimitsJson,
    pub artifacts: ArtifactQuotaJson,
    /// Where they are kept as well, and whether it is out of reach.
    pub artifacts_remote: Option<String>,
    pub audit: Option<AuditJson>,
}

/// What the process itself may use.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostJson {
    /// Kernels that may be awake at the same time; more wait in line.
    pub kernels: u32,
    /// Memory of the machine, or of the control group, that their number follows from unless it was set.
    pub memory_mib: u64,
    pub is_set: bool,
    /// How guests are stopped: `epochs` or `safepoints`.
    pub stops: &'static str,
}

/// Configuration of `cellar serve`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerJson {
    /// Address and port.
    pub listen: String,
    /// Connections that may be open.
    pub connections: usize,
    /// Seconds that runs may take to end when it is told to stop.
    pub drain_seconds: u64,
    /// True if tokens of an authorization server are taken as well.
    pub has_authorization_server: bool,
    pub tenants: Vec<TenantJson>,
}

/// A tenant and its limits; those that are absent are not counted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantJson {
    pub name: String,
    pub store: PathBuf,
    /// Sessions that may be open.
    pub sessions: usize,
    /// Runs that may be under way.
    pub runs: usize,
    pub weight: u32,
    pub requests_per_second: Option<u64>,
    pub cpu_seconds_per_day: Option<u64>,
    pub model_tokens_per_day: Option<u64>,
    pub memory_mib: Option<u64>,
    pub disk_mib: Option<u64>,
}

/// The audit log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditJson {
    pub file: PathBuf,
    pub sync: bool,
    pub tenant: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LlmJson {
    pub endpoint: String,
    pub tiers: BTreeMap<String, String>,
    pub api_key_env: Option<String>,
    /// `not asked for`, `set` or `missing`.
    pub key: &'static str,
}

/// How much is kept besides results, in a store.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactQuotaJson {
    pub artifact_mib: u64,
    pub session_mib: u64,
    pub session_count: usize,
    pub total_mib: u64,
    pub total_count: usize,
    pub unused_days: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineJson {
    pub architecture: &'static str,
    pub cores: usize,
    pub cpu_features: Vec<String>,
    pub kernel: String,
    pub pagemap_scan: bool,
    /// The version of landlock's interface that is used, 1 to 6, if the kernel has it.
    pub landlock: Option<u32>,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether there are keys that protect memory.
    pub protection_keys: bool,
    /// The font that charts are drawn with.
    pub font: Option<String>,
}

impl ConfigJson {
    /// The variable that should hold the key of the models and does not.
    pub fn llm_key_missing(&self) -> Option<&str> {
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
