//! `cellar doctor`: what is installed, what is in force, what is missing.

mod server;

use std::{error::Error as _, fmt::Write as _, fs, path::Path};

use anstyle::{AnsiColor, Style};
use cellar_bridges::{HostBridges, Llm, Options, Program, Tool, check_component, keep_compiled_in};
use cellar_connectors::ObjectsOptions;
use cellar_core::files::exposed_above;
use cellar_engine::{
    GuestName, HostConfig,
    artifacts::{ArtifactQuota, RemoteStore},
    audit::AuditFile,
    config::{ALIASES, KernelMode, Seed},
    files::Access,
    guests::{GuestState, GuestStatus, guest_status},
    limits::{LIMITS, LimitsJson},
};
use cellar_isolation::Available;

use crate::{
    args::{DoctorArguments, Folders},
    output,
    report::{CliError, EXIT_COMPLETE, EXIT_FAILURE},
    setup,
    terminal::{Look, escaped},
};
use cellar_config::{Config, Isolate, ObjectRemote};
use cellar_secrets::{is_too_short, learn_named};
use cellar_wire::{AuditJson, ConfigJson, DoctorJson, FoldersJson, GuestJson, HostJson, LlmJson, MachineJson};

const HEADER: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Prints the report. Something needed is missing: that is a failure.
///
/// # Errors
/// The configuration is not valid, or the report cannot be written.
pub(crate) async fn doctor(folders: &Folders, arguments: &DoctorArguments) -> Result<u8, CliError> {
    let config = arguments.config.as_deref().map(Config::load).transpose()?;
    let config = config.unwrap_or_default();
    let host = setup::host_config(folders, config.host.stops)?;
    keep_compiled_in(host.cache.join("tools"));
    let mut report = report(&host, arguments.config.as_deref(), &config);
    server::check(&mut report, folders, arguments.config.as_deref());
    check_packages(&mut report, arguments.package_store.as_deref(), &config);
    ask_servers(&mut report, config.bridges).await;
    ask_remote(&mut report, config.artifacts.remote).await;
    match arguments.json {
        true => output::print_json(&report)?,
        false => output::print(&text(&report, Look::of_stdout()))?,
    }
    Ok(if report.problems.is_empty() { EXIT_COMPLETE } else { EXIT_FAILURE })
}

fn report(host: &HostConfig, path: Option<&Path>, config: &Config) -> DoctorJson {
    let guests: Vec<GuestJson> = GuestName::ALL
        .into_iter()
        .filter(|name| *name != GuestName::Probe)
        .map(|name| guest(&guest_status(host, name)))
        .collect();
    let mut problems: Vec<String> = guests
        .iter()
        .filter(|guest| matches!(guest.state, "missing" | "broken") && is_needed(guest.guest, config))
        .map(|guest| {
            let target = if guest.guest == GuestName::PythonData.name() { "data-guest" } else { "guests" };
            format!(
                "the guest `{}` is {}: run `make {target}`, or name the folder of the guests with --guests",
                guest.guest, guest.state
            )
        })
        .collect();
    if let Some(table) = &config.audit
        && let Err(error) = AuditFile::open(&table.file, table.sync)
    {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        problems.push(format!("nothing can run: {error}{cause}"));
    }
    let host_json = HostJson {
        kernels: cellar_config::kernels_max(&config.host),
        memory_mib: cellar_config::memory_bytes() >> 20,
        is_set: config.host.kernels.is_some(),
        stops: config.host.stops.name(),
    };
    let isolation = isolation(config.server.isolate, &mut problems);
    let exposed = [Some(host.cache.as_path()), path].into_iter().flatten();
    problems.extend(exposed.filter_map(|path| {
        let folder = exposed_above(path).ok()??;
        let (path, folder) = (path.display(), folder.display());
        Some(format!("all users of this machine may put something else in the place of `{path}`: `chmod o-w {folder}`"))
    }));
    let config = config_json(path, config);
    if let Some(name) = config.llm_key_missing() {
        problems.push(format!("llm() has no key: set the environment variable `{name}`"));
    }
    let machine = machine(&host.guests);
    if config.charts && machine.font.is_none() {
        let remedy = "charts are drawn as SVG and not as PNG: install a font, such as Debian's `fonts-liberation`";
        problems.push(remedy.to_owned());
    }
    DoctorJson {
        version: env!("CARGO_PKG_VERSION"),
        wasmtime: wasmtime_version(),
        guests,
        folders: FoldersJson { guests: host.guests.clone(), cache: host.cache.clone() },
        config,
        host: host_json,
        isolation,
        server: None,
        machine,
        problems,
    }
}

/// Returns true if a session would miss the guest.
fn is_needed(guest: &str, config: &Config) -> bool {
    match GuestName::from_name(guest) {
        Some(GuestName::PythonData) => config.session.guests.contains(&GuestName::PythonData),
        Some(GuestName::JavaScriptCharts) => config.session.charts.unwrap_or(true),
        _ => true,
    }
}

/// Adds a problem if the packages that the file grants cannot be granted.
fn check_packages(report: &mut DoctorJson, store: Option<&Path>, config: &Config) {
    if let Err(error) = cellar_config::package_folders(store, config.packages.clone()) {
        report.problems.push(format!("packages: {error}"));
    }
}

/// Compiles components, starts the MCP servers and asks the connectors, which is the only way to know that they can be reached.
async fn ask_servers(report: &mut DoctorJson, bridges: Options) {
    for (place, program) in programs(&bridges) {
        if let Program::Component(component) = program
            && let Err(reason) = check_component(component).await
        {
            report.problems.push(format!("{place} {reason}"));
        }
    }
    let bridges = HostBridges::new(bridges);
    for (name, probed) in bridges.probe_connectors().await {
        match probed {
            Ok(what) => report.config.connectors.push(format!("{name} ({what})")),
            Err(reason) => {
                report.config.connectors.push(format!("{name} (out of reach)"));
                report.problems.push(format!("connectors.{name}: {reason}"));
            }
        }
    }
    for (name, started) in bridges.start_servers().await {
        match started {
            Ok(tools) => report.config.mcp.push(format!("{name} ({tools} tools)")),
            Err(error) => {
                report.config.mcp.push(format!("{name} (out of reach)"));
                report.problems.push(error.message);
            }
        }
    }
}

/// Asks the remote store of artifacts for something that it may well not have.
async fn ask_remote(report: &mut DoctorJson, options: Option<ObjectsOptions>) {
    let Some(options) = options else { return };
    let url = options.url.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let remote = ObjectRemote::open(&options)?;
        remote.list("probe/").map(drop).map_err(|error| error.to_string())
    });
    let asked = asked.await.unwrap_or_else(|_| Err("what asks it has panicked".to_owned()));
    report.config.artifacts_remote = Some(match &asked {
        Ok(()) => url,
        Err(_) => format!("{url} (out of reach)"),
    });
    report.problems.extend(asked.err().map(|reason| format!("artifacts.remote: {reason}")));
}

fn guest(status: &GuestStatus) -> GuestJson {
    let (state, reason) = match &status.state {
        GuestState::Missing => ("missing", None),
        GuestState::Broken(reason) => ("broken", Some(reason.clone())),
        GuestState::NotBaked(reason) => ("not baked", Some(reason.clone())),
        GuestState::Ready => ("ready", None),
    };
    GuestJson {
        guest: status.guest.name(),
        language: status.guest.language().title(),
        path: status.path.clone(),
        state,
        reason,
        digest: status.digest.clone(),
        world: status.world.clone(),
    }
}

fn config_json(path: Option<&Path>, config: &Config) -> ConfigJson {
    let mount = |mount: &cellar_engine::files::Mount| {
        let access = if mount.access == Access::ReadWrite { "rw" } else { "ro" };
        format!("{}:{}:{access}", mount.host.display(), mount.guest)
    };
    ConfigJson {
        path: path.map(Path::to_owned),
        tools: config.bridges.tools.iter().map(|(name, each)| tool(name, each)).collect(),
        mcp: Vec::new(),
        runtime: config.bridges.runtime.keys().cloned().collect(),
        agents: config.bridges.agents.keys().cloned().collect(),
        llm: config.bridges.llm.as_ref().map(llm),
        http: config.bridges.http.allow.iter().map(ToString::to_string).collect(),
        connectors: Vec::new(),
        secrets: secrets(&config.bridges),
        mounts: config.mounts.iter().map(mount).collect(),
        aliases: config.session.aliases.clone(),
        packages: config.packages.iter().map(ToString::to_string).collect(),
        environment: config.environment.iter().map(|(name, _)| name.clone()).collect(),
        charts: config.session.charts.unwrap_or(true),
        kernel_mode: match config.session.kernel_mode {
            KernelMode::Session => "session",
            KernelMode::PerCall => "per-call",
        },
        seeds: config.session.seeds.iter().map(|(language, seed)| (language.title(), seed_parts(seed))).collect(),
        limits: LimitsJson(config.limits.limits()),
        artifacts: config.artifacts.quota(ArtifactQuota::default()).into(),
        artifacts_remote: None,
        audit: config.audit.as_ref().map(|audit| AuditJson {
            file: audit.file.clone(),
            sync: audit.sync,
            tenant: audit.tenant.clone(),
        }),
    }
}

/// Returns the programs of tools and primitives, each with its path in the file.
fn programs(options: &Options) -> impl Iterator<Item = (String, &Program)> {
    let tools = options.tools.iter().map(|(name, tool)| (format!("tools.{name}"), &tool.program));
    let primitives = options.runtime.iter().flat_map(|(pack, of)| {
        of.primitives.iter().map(move |(name, each)| (format!("runtime.{pack}.{name}"), &each.tool.program))
    });
    tools.chain(primitives)
}

/// Describes a tool: its name, and the limits of a component.
fn tool(name: &str, tool: &Tool) -> String {
    match &tool.program {
        Program::Command(_) => name.to_owned(),
        Program::Component(component) => {
            let program = &component.program;
            let fuel = program.fuel.map(|fuel| format!(", {fuel} of fuel")).unwrap_or_default();
            let (mib, seconds) = (program.memory_bytes >> 20, program.timeout.as_secs());
            format!("{name} (a component with {mib} MiB, {seconds} s{fuel})")
        }
    }
}

/// Credentials by their names, each with whether it is hidden; of commands' variables those that cannot be.
fn secrets(options: &Options) -> Vec<String> {
    let named = options.secrets.iter().map(|source| format!("{source} {}", learn_named(source)));
    let variables = programs(options).flat_map(|(_, program)| {
        let (environment, inherit) = program.variables();
        let inherited = inherit.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
        environment.iter().cloned().chain(inherited)
    });
    let short = variables.filter(|(name, value)| is_too_short(name, value));
    named.chain(short.map(|(name, _)| format!("{name} too short to be hidden"))).collect()
}

/// Lists the content of a seed: the names it binds, and the size of its source.
fn seed_parts(seed: &Seed) -> Vec<String> {
    let names = seed.bindings.iter().map(|(name, _)| name.clone());
    let source = (!seed.source.is_empty()).then(|| format!("source of {} bytes", seed.source.len()));
    names.chain(source).collect()
}

/// The wasmtime that this program was built with; it does not tell, so the lock file does.
fn wasmtime_version() -> &'static str {
    let mut packages = include_str!("../../Cargo.lock").split("[[package]]");
    let package = packages.find(|package| package.trim_start().starts_with("name = \"wasmtime\"\n"));
    let version = package.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

/// The models, and whether their key is there.
fn llm(llm: &Llm) -> LlmJson {
    let key = match &llm.api_key_env {
        None => "not asked for",
        Some(name) if std::env::var_os(name).is_some_and(|key| !key.is_empty()) => "set",
        Some(_) => "missing",
    };
    LlmJson { endpoint: llm.endpoint.clone(), tiers: llm.tiers.clone(), api_key_env: llm.api_key_env.clone(), key }
}

/// Features of this machine that make sandboxes faster or tighter.
fn machine(guests: &Path) -> MachineJson {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let Available { landlock, seccomp, protection_keys } = cellar_isolation::available();
    MachineJson {
        architecture: std::env::consts::ARCH,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        cpu_features: cpu_features(),
        // Finds the pages that a cell touched without reading them; in the kernel since 6.7.
        pagemap_scan: kernel_is_at_least(&release, (6, 7)),
        landlock,
        seccomp,
        protection_keys,
        font: cellar_charts::font(guests),
        kernel: release,
    }
}

/// Describes how `cellar serve` would be confined here. A setting that cannot be kept is added to `problems`.
fn isolation(asked: Isolate, problems: &mut Vec<String>) -> String {
    let Available { landlock, seccomp, .. } = cellar_isolation::available();
    let layers = [landlock.map(|_| "landlock"), seccomp.then_some("seccomp")];
    let layers: Vec<&str> = layers.into_iter().flatten().collect();
    let found = if layers.is_empty() { "nothing".to_owned() } else { layers.join(" and ") };
    if matches!(asked, Isolate::Process | Isolate::Tenant) && layers.len() < 2 {
        problems.push(format!("`[server] isolate` cannot be kept: the kernel has {found} of landlock and seccomp"));
    }
    match asked {
        Isolate::None => "none: `[server] isolate` says so".to_owned(),
        Isolate::Tenant => format!("`cellar serve` confines itself, and a process for each tenant, by {found}"),
        _ => format!("`cellar serve` confines itself by {found}"),
    }
}

/// The features that compiled guests gain from, as the kernel lists them.
fn cpu_features() -> Vec<String> {
    const KNOWN: [&str; 8] = ["sse4_2", "avx", "avx2", "avx512f", "bmi2", "popcnt", "pku", "asimd"];
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let flags: Vec<&str> = flags.unwrap_or_default().split_whitespace().collect();
    KNOWN.into_iter().filter(|feature| flags.contains(feature)).map(str::to_owned).collect()
}

fn kernel_is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= wanted
}

fn text(report: &DoctorJson, look: Look) -> String {
    let mut lines = Lines { text: String::new(), look };
    lines.header(&format!("cellar {}", report.version));
    lines.item("wasmtime", report.wasmtime);
    lines.item("guests", &report.folders.guests.display().to_string());
    lines.item("cache", &report.folders.cache.display().to_string());
    lines.header("guests");
    for guest in &report.guests {
        let reason = guest.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let style = if matches!(guest.state, "ready" | "not baked") { GOOD } else { BAD };
        let digest = guest.digest.as_deref().map(|digest| format!(" ({})", digest.get(..12).unwrap_or(digest)));
        let state = format!("{}{reason}{}", guest.state, digest.unwrap_or_default());
        lines.painted(guest.guest, style, &state);
    }
    config_lines(&mut lines, &report.config);
    let host = &report.host;
    let reason = match host.is_set {
        true => "set under [host]".to_owned(),
        false => format!("for {} MiB of memory; set `kernels` under [host] for another number", host.memory_mib),
    };
    lines.item("awake kernels", &format!("{} at a time, {reason}", host.kernels));
    lines.item("stops", host.stops);
    server::lines(&mut lines, report.server.as_ref());
    let machine = &report.machine;
    lines.header("machine");
    lines
        .item("cpu", &format!("{}, {} cores, {}", machine.architecture, machine.cores, or_none(&machine.cpu_features)));
    lines.item("kernel", &machine.kernel);
    lines.item("pagemap scan", yes(machine.pagemap_scan));
    let version = |version: u32| format!("yes, with version {version} of its interface");
    lines.item("landlock", &machine.landlock.map_or("no".to_owned(), version));
    lines.item("seccomp", yes(machine.seccomp));
    lines.item("protection keys", if machine.protection_keys { "yes, and not used" } else { "no" });
    lines.item("isolation", &report.isolation);
    lines.item("font", machine.font.as_deref().unwrap_or("none"));
    if !report.problems.is_empty() {
        lines.header("missing");
        for problem in &report.problems {
            let problem = look.paint(BAD, &escaped(problem));
            let _ = writeln!(lines.text, "  {problem}");
        }
    }
    lines.text
}

fn config_lines(lines: &mut Lines, config: &ConfigJson) {
    lines.header("in force");
    let path =
        config.path.as_ref().map_or("none; name one with --config".to_owned(), |path| path.display().to_string());
    lines.item("config", &path);
    lines.item("tools", &or_none(&config.tools));
    lines.item("mcp", &or_none(&config.mcp));
    lines.item("packs", &or_none(&config.runtime));
    lines.item("agents", &or_none(&config.agents));
    let llm = config.llm.as_ref().map_or("none".to_owned(), |llm| {
        let tiers: Vec<String> = llm.tiers.iter().map(|(tier, model)| format!("{tier} = {model}")).collect();
        format!("{}, {}, key {}", llm.endpoint, or_none(&tiers), llm.key)
    });
    lines.item("llm", &llm);
    lines.item("http", &or_none(&config.http));
    lines.item("connectors", &or_none(&config.connectors));
    lines.item("secrets", &or_none(&config.secrets));
    lines.item("mounts", &or_none(&config.mounts));
    let usual = || format!("{}, unless they collide with a mount", ALIASES.join(", "));
    lines.item("aliases", &config.aliases.as_deref().map_or_else(usual, or_none));
    lines.item("packages", &or_none(&config.packages));
    lines.item("environment", &or_none(&config.environment));
    lines.item("kernels", if config.kernel_mode == "per-call" { "one a cell" } else { "one a language" });
    lines.item("charts", if config.charts { "drawn" } else { "not drawn" });
    let seeds: Vec<String> =
        config.seeds.iter().map(|(language, parts)| format!("{language}: {}", or_none(parts))).collect();
    lines.item("seeds", &if seeds.is_empty() { "none".to_owned() } else { seeds.join("; ") });
    for limit in LIMITS {
        lines.item(limit.key, &limit.in_words(limit.value(&config.limits.0)));
    }
    let kept = &config.artifacts;
    let age = kept.unused_days.map(|days| format!("; gone when unused for {days} days")).unwrap_or_default();
    lines.item(
        "artifacts",
        &format!(
            "{} MiB each; {} MiB in {} a session; {} MiB in {} in all{age}",
            kept.artifact_mib, kept.session_mib, kept.session_count, kept.total_mib, kept.total_count
        ),
    );
    lines.item("remote store", config.artifacts_remote.as_deref().unwrap_or("none"));
    let audit = config.audit.as_ref().map_or("none; name a file with [audit] or --audit".to_owned(), |audit| {
        let tenant = audit.tenant.as_ref().map(|tenant| format!(", for {tenant}")).unwrap_or_default();
        let synced = if audit.sync { ", synced" } else { "" };
        format!("{}{synced}{tenant}", audit.file.display())
    });
    lines.item("audit log", &audit);
}

struct Lines {
    text: String,
    look: Look,
}

impl Lines {
    fn header(&mut self, text: &str) {
        let text = self.look.paint(HEADER, text);
        let _ = writeln!(self.text, "{text}");
    }

    fn item(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.text, "  {name:<18}{}", escaped(value));
    }

    fn painted(&mut self, name: &str, style: Style, value: &str) {
        let value = self.look.paint(style, &escaped(value));
        let _ = writeln!(self.text, "  {name:<18}{value}");
    }
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
