//! Configuration file `cellar.toml`: grants and limits of sessions.
//!
//! One file, given with `--config`, and never searched for: the current folder must not grant commands. Every key is a
//! field below, or of [`Options`], with its meaning. Unknown keys are refused. Relative paths and commands are taken
//! from the file's own folder. Read [`Config`] first.

mod parse;
mod toml;

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use cellar_bridges::Options;
use cellar_connectors::ObjectsOptions;
use cellar_engine::{
    GuestName, Language,
    artifacts::ArtifactQuota,
    audit::AuditBounds,
    config::{HistoryOptions, KernelMode, Seed, Stops},
    files::Mount,
    limits::{INPUT_IDLE_TIMEOUT, LimitSettings},
    results::OutputPolicy,
};
use cellar_packages::Source;
use url::Url;

use cellar_wire::{
    Grants,
    check::{At, Invalid, Problems},
};

/// Bytes of a configuration, and of a file of text that one names.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Error of a `cellar.toml` that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// It has content that this version does not know, or that makes no sense.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A whole `cellar.toml`. An absent one is the default: nothing granted, usual limits.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// `[tools.NAME]`, `[runtime.PACK.NAME]`, `[mcp.NAME]`, `[llm]`, `[agents.NAME]`, `[http]`, `[connectors.NAME]`:
    /// interfaces that cells may call. `secrets`: variables and files with values that cells must not see.
    pub bridges: Options,
    /// `[limits]`: limits of a session. `cellar doctor` prints those in force.
    pub limits: LimitSettings,
    /// `[mounts]`: folders that cells see. `"/data" = "data"` is read-only, `"/out" = { host = "out", write = true }`
    /// is not.
    pub mounts: Vec<Mount>,
    /// `packages`: packages that cells can import. `"tabulate"` and `"npm:lodash"` are packages that `cellar packages
    /// add` has added, with their dependencies; `"./site"`, with a slash, is a folder with Python packages, as `pip
    /// install --target` leaves it. The first folder wins, and folders win over packages.
    pub packages: Vec<Source>,
    /// `[environment]`: variables that cells see. `NAME = "value"`.
    pub environment: Vec<(String, String)>,
    /// `[session]`: initial state and lifetime of its kernels.
    pub session: SessionTable,
    /// `[artifacts]`: how much of the outputs that results do not show whole is kept.
    pub artifacts: ArtifactsTable,
    /// `[datasets]`: whether cells may publish datasets.
    pub publish_datasets: bool,
    /// `[audit]`: log of what sessions do.
    pub audit: Option<AuditTable>,
    /// `[host]`: limits of the process itself. Only the file that the process was started with is read.
    pub host: HostTable,
    /// `[server]`: settings of `cellar serve`.
    pub server: ServerTable,
    /// `[tenants.NAME]`: its tenants. Without any, the user who started it.
    pub tenants: BTreeMap<String, TenantTable>,
    /// `[templates.NAME]`: what sessions have that callers of `cellar serve` open by this name.
    pub templates: BTreeMap<String, Template>,
}

/// Template of sessions: `[templates.NAME.limits]`, `mounts`, `packages`, `environment` and `session`, each as it stands in the
/// file itself, and besides what the file grants.
#[derive(Debug, Clone, Default)]
pub struct Template {
    /// `limits`, which win over those of the file.
    pub limits: LimitSettings,
    /// `mounts`, in the place of one of the file at the same path.
    pub mounts: Vec<Mount>,
    /// `packages`, which win over those of the file.
    pub packages: Vec<Source>,
    /// `environment`, which wins over that of the file.
    pub environment: Vec<(String, String)>,
    /// `session`: what it says wins over what the file says.
    pub session: SessionTable,
}

impl Template {
    /// Returns the configuration of a session that is opened with this template.
    pub fn applied_to(&self, file: &Config) -> Config {
        let mut config = file.clone();
        config.limits = self.limits.clone().or(&file.limits);
        config.mounts.retain(|mount| self.mounts.iter().all(|own| own.guest != mount.guest));
        config.mounts.extend(self.mounts.iter().cloned());
        config.packages.splice(0..0, self.packages.iter().cloned());
        config.environment.retain(|(name, _)| self.environment.iter().all(|(own, _)| own != name));
        config.environment.extend(self.environment.iter().cloned());
        let (session, own) = (&mut config.session, &self.session);
        session.guests.extend(own.guests.iter().copied());
        if !own.languages.is_empty() {
            session.languages.clone_from(&own.languages);
        }
        session.seeds.extend(own.seeds.iter().map(|(language, seed)| (*language, seed.clone())));
        session.input_timeout = own.input_timeout.or(session.input_timeout);
        session.charts = own.charts.or(session.charts);
        session.history = own.history.or(session.history);
        session.commands = own.commands.or(session.commands);
        if own.aliases.is_some() {
            session.aliases.clone_from(&own.aliases);
        }
        if own.kernel_mode != KernelMode::default() {
            session.kernel_mode = own.kernel_mode;
        }
        if own.output_policy != OutputPolicy::default() {
            session.output_policy = own.output_policy;
        }
        config
    }
}

/// Settings of `cellar serve`. An absent one keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTable {
    /// `listen`: address and port, `127.0.0.1:8700` unless given; a port alone is one of 127.0.0.1. Port 0 is any that is free.
    pub listen: Option<SocketAddr>,
    /// `tokens`: the file that `cellar token` keeps the digests of tokens in; `.tokens.json` in the folder of the sessions
    /// unless given.
    pub tokens: Option<PathBuf>,
    /// `durable`: whether a result is told only when the state that it leaves is on the disk. It is unless given.
    pub durable: Option<bool>,
    /// `body_mib`: the body of a request that is not a file, 1 to 1024; 64 unless given.
    pub body_mib: Option<u64>,
    /// `connections`: how many may be open, 1 to 1000000; 1024 unless given.
    pub connections: Option<u64>,
    /// `drain`: seconds that runs may take to end when the server is told to stop, 0 to 3600; 30 unless given.
    pub drain: Option<u64>,
    /// `oauth`: an authorization server whose tokens are taken besides those of `cellar token`.
    pub oauth: Option<OauthTable>,
    /// `idle_after`: seconds without use after which a session is put to sleep that says nothing else, 1 to 2592000; 300
    /// unless given.
    pub idle_after: Option<u64>,
    /// `logs`: `text`, the default, or `json`, an object a line.
    pub logs: Option<Logs>,
    /// `isolate`: how the process is confined.
    pub isolate: Isolate,
    /// `workers`: tenants that have a process at once, where each has one of its own.
    pub workers: Option<u64>,
    /// `worker_memory_mib`: MiB of memory that such a process may hold of its own.
    pub worker_memory_mib: Option<u64>,
    /// `worker_idle`: seconds without use after which such a process goes.
    pub worker_idle: Option<u64>,
    /// `traces`: the collector that requests are told to as OpenTelemetry has it, `http://127.0.0.1:4318/v1/traces`; none
    /// unless given.
    pub traces: Option<String>,
}

/// An authorization server, of which `cellar serve` takes JSON Web Tokens. Addresses are encrypted, but for those of this
/// machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthTable {
    /// `issuer`: what its tokens have as `iss`, an address, at which it says where its keys are.
    pub issuer: String,
    /// `audience`: what they have as `aud`: this server's own address, as clients reach it.
    pub audience: String,
    /// `jwks`: where its keys are; asked of the issuer unless given.
    pub jwks: Option<String>,
    /// `tenant_claim`: the claim that names the tenant; `tenant` unless given.
    pub tenant_claim: String,
}

/// Address to listen at: an address with a port, or a port of the loopback address alone.
pub fn listen_address(text: &str) -> Option<SocketAddr> {
    let local = |port: &str| Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)));
    match text.strip_prefix("localhost:") {
        Some(port) => local(port),
        None => text.parse().ok().or_else(|| local(text)),
    }
}

/// An address that is encrypted, or of this very machine.
pub fn secure_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_here = match url.host()? {
        url::Host::Domain(name) => name == "localhost",
        url::Host::Ipv4(address) => address.is_loopback(),
        url::Host::Ipv6(address) => address.is_loopback(),
    };
    (url.scheme() == "https" || (url.scheme() == "http" && is_here)).then_some(url)
}

/// Confinement of the server's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolate {
    /// By each layer that the kernel has: when nothing is said.
    #[default]
    Usual,
    /// `process`: by landlock and seccomp, without which it does not start.
    Process,
    /// `tenant`: the same, and each tenant has a process of its own, which may start no program and make no connection.
    Tenant,
    /// `none`: not at all.
    None,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logs {
    /// Lines for people.
    Text,
    /// An object a line.
    Json,
}

/// Tenant of `cellar serve`. An absent setting keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantTable {
    /// `config`: a `cellar.toml` with the grants of its sessions, instead of the rest of this file.
    pub config: Option<PathBuf>,
    /// `store`: folder of its sessions; `.tenants/NAME` in the folder of the sessions unless given.
    pub store: Option<PathBuf>,
    /// `sessions`: how many it may have open, 1 to 1000000; 1024 unless given.
    pub sessions: Option<u64>,
    /// `runs`: how many it may have under way, 1 to 100000; 256 unless given.
    pub runs: Option<u64>,
    /// `requests_per_second`: how many it may make, 1 to 1000000; any number unless given.
    pub requests_per_second: Option<u64>,
    /// `weight`: its part of the processor time where tenants want more than there is, 1 to 10000; 100 unless given.
    pub weight: Option<u64>,
    /// `cpu_seconds_per_day`: processor time that its cells may use in a day, 1 to 1000000000; any unless given.
    pub cpu_seconds_per_day: Option<u64>,
    /// `memory_mib`: memory that its kernels may have beyond that of their guests, all together, 1 to 1048576; any unless
    /// given.
    pub memory_mib: Option<u64>,
    /// `disk_mib`: size of its store, 1 to 1073741824; any unless given.
    pub disk_mib: Option<u64>,
    /// `templates`: those of the `[templates.NAME]` of its configuration that its callers may name; all unless given.
    pub templates: Option<Vec<String>>,
    /// `model_tokens_per_day`: tokens of questions and answers of models in a day, 1 to 1000000000000; any unless given.
    pub model_tokens_per_day: Option<u64>,
}

/// Quotas for what is kept besides results. An absent one keeps its default, which is smaller without a store. The
/// least recently used is removed first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactsTable {
    /// `artifact_mib`: one of them, 1 to 1048576.
    pub artifact_mib: Option<u64>,
    /// `session_mib`: those of a session, 1 to 1048576.
    pub session_mib: Option<u64>,
    /// `session_count`: how many those may be, 1 to 1000000.
    pub session_count: Option<u64>,
    /// `total_mib`: all in the store, 1 to 1048576.
    pub total_mib: Option<u64>,
    /// `total_count`: how many those may be, 1 to 1000000.
    pub total_count: Option<u64>,
    /// `unused_days`: how long one is kept after its last use, 1 to 36500.
    pub unused_days: Option<u64>,
    /// `remote` and `remote_options`: an object store where all of them are kept as well, and come back from. Without a
    /// store they are not.
    pub remote: Option<ObjectsOptions>,
}

impl ArtifactsTable {
    /// Returns the quotas: these settings, with those of `quota` for the rest.
    pub fn quota(&self, mut quota: ArtifactQuota) -> ArtifactQuota {
        set(&mut quota.artifact_bytes, self.artifact_mib.map(|mib| mib << 20));
        set(&mut quota.session_bytes, self.session_mib.map(|mib| mib << 20));
        set(&mut quota.session_count, self.session_count.and_then(|count| usize::try_from(count).ok()));
        set(&mut quota.total_bytes, self.total_mib.map(|mib| mib << 20));
        set(&mut quota.total_count, self.total_count.and_then(|count| usize::try_from(count).ok()));
        let unused = self.unused_days.map(|days| Duration::from_secs(days.saturating_mul(24 * 3_600)));
        quota.unused_for = unused.or(quota.unused_for);
        quota
    }
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditTable {
    /// `file`: file to append to, one JSON object a line. Only its owner may read it.
    pub file: PathBuf,
    /// `sync`: true if runs wait until their entries are on the disk. Without it, entries outlive this process, but not
    /// the machine.
    pub sync: bool,
    /// `tenant`: for whom these sessions run, to be named in every line.
    pub tenant: Option<String>,
    /// `file_mib` and `kept`: how large a file becomes before another is begun, and how many older ones stay.
    pub bounds: AuditBounds,
}

/// Limits of a process that serves sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostTable {
    /// `kernels`: interpreters that may be in memory at the same time, 1 to 2048; unless given as many as half of the
    /// memory has room for at 64 MiB each, at least 4. Further ones wait in line until one falls asleep, which those
    /// that only wait do at once.
    pub kernels: Option<u64>,
    /// `stops`: how guests are stopped, `epochs`, the default, or `safepoints`, which are faster and for which guests must be
    /// baked with `--stops safepoints`.
    pub stops: Stops,
}

/// Kernels of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionTable {
    /// `kernel_mode`: `session`, the default, where cells share names, or `per-call`, where every cell begins afresh.
    pub kernel_mode: KernelMode,
    /// `output_policy`: how much of a long output results show. `window`, the default, is its head and tail, 50 KB and
    /// 3,000 lines together; `tokens` is all of 20,000 tokens and the first 4,096 of more.
    pub output_policy: OutputPolicy,
    /// `input_timeout`: seconds that a request for input waits for its answer, 1 to 86400; 300 unless given.
    pub input_timeout: Option<u64>,
    /// `guests`: those that run their languages in the place of `python` and `javascript`: `["python-data"]`.
    pub guests: Vec<GuestName>,
    /// `languages`: those that cells may be in; both unless given.
    pub languages: Vec<Language>,
    /// `aliases`: where the workspace is seen besides `/workspace`; `/mnt/data`, `/home/user` and `/content` unless given, of
    /// these what collides with nothing.
    pub aliases: Option<Vec<String>>,
    /// `history`: how many of the latest states are kept, 0 to 10000, or a table with `last`, `every` and `mib`: 20 states and
    /// 256 MiB unless given. Absent, states are kept of sessions that the command line keeps by name, and of notebooks.
    pub history: Option<History>,
    /// `charts`: whether charts that cells display as specifications are drawn, as SVG and PNG. They are unless given.
    pub charts: Option<bool>,
    /// `commands`: whether callers of `cellar serve` and `cellar mcp` may run commands of the sandbox's shell. They may not unless
    /// given.
    pub commands: Option<bool>,
    /// `[session.python]` and `[session.javascript]`: what fresh kernels begin with, before the first cell and after a
    /// reset. `source` is a file that runs once, without being a cell; under `bindings` stand names and their values:
    /// `limit = 10`.
    pub seeds: BTreeMap<Language, Seed>,
}

/// Choice to keep states of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// None are.
    Off,
    /// They are, by these rules.
    Kept(HistoryOptions),
}

impl History {
    /// The rules, if states are kept.
    pub fn options(self) -> Option<HistoryOptions> {
        match self {
            History::Off => None,
            History::Kept(options) => Some(options),
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is not TOML, or says something that this version does not know.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let cannot_read = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = text_of(path).map_err(cannot_read)?;
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(cannot_read)?;
        Config::parse(&text, &folder, &format!("`{}`", path.display())).map_err(ConfigError::Invalid)
    }

    /// Reads the text of a file that lies in `folder`; `what` names it in messages.
    ///
    /// # Errors
    /// Every fault, with the path to it.
    pub fn parse(text: &str, folder: &Path, what: &str) -> Result<Config, Invalid> {
        parse::config(text, folder, what)
    }
}

impl Grants for Config {
    /// Relative paths are taken from the working folder.
    fn from_json(at: &At<'_>, problems: &mut Problems) -> Option<Config> {
        let entries = at.entries(&mut Problems::default()).unwrap_or_default();
        for (_, at) in entries.iter().filter(|(key, _)| matches!(*key, "server" | "tenants" | "templates")) {
            problems.add(&at.path, "only has a meaning in the file of `cellar serve`");
        }
        parse::within(problems, |parser| parser.config(at))
    }

    fn schema_from_json(at: &At<'_>, problems: &mut Problems) -> Option<serde_json::Value> {
        parse::within(problems, |parser| parser.schema(at))
    }
}

/// Reads the file of a configuration, or one that it names. A device or a pipe without an end costs no more than the
/// largest file.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = cellar_core::files::open_input(path)?;
    // THREAT: T18
    if cellar_core::files::is_writable_by_all(&file)? {
        let message = "all users of this machine may write to it, and so grant what they like: `chmod o-w` it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("it has more than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Reads such a file as UTF-8 text.
fn text_of(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes_of(path)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

impl SessionTable {
    /// Returns the timeout of a request for input.
    pub fn input_timeout(&self) -> Duration {
        self.input_timeout.map_or(INPUT_IDLE_TIMEOUT, Duration::from_secs)
    }
}

fn set<T>(quota: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *quota = value;
    }
}

#[cfg(test)]
mod tests;
