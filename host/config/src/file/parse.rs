//! Parser of a `cellar.toml` into [`Config`].

mod agents;
mod connectors;
mod http;
mod runtime;
mod server;
mod tools;

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use cellar_bridges::{Command, Confirm, Llm, McpServer, McpTransport, Options, Schema, Spawns, TIERS};
use cellar_engine::{
    GuestName, Language,
    audit::AuditBounds,
    config::{HistoryOptions, KernelMode, Seed, Stops},
    files::{Access, Mount},
    limits::{INPUT_IDLE_TIMEOUT_MAX, LIMITS, LimitSettings},
    results::OutputPolicy,
};
use cellar_packages::Source;
use cellar_secrets::{SecretSource, quote};
use cellar_wire::{
    check::{At, Fields, Invalid, Problems},
    json::Node,
};

use super::{ArtifactsTable, AuditTable, Config, History, HostTable, SessionTable, Template, text_of};

/// Keys of the remote store of artifacts: its URL, and its options.
const REMOTE: [&str; 2] = ["remote", "remote_options"];
/// Seconds a command or a model may be given.
const TIMEOUT_SECONDS_MAX: u64 = 3_600;
/// States of a session that may be kept, and MiB of them.
const STATES_MAX: u64 = 10_000;
const HISTORY_MIB_MAX: u64 = 1 << 20;
/// Kernels that a host may be given room for.
const KERNELS_MAX: u64 = 2_048;
/// MiB of a file of the audit log, and files of it besides the one that is written to.
const AUDIT_MIB_MAX: u64 = 1_048_576;
const AUDIT_KEPT_MAX: u64 = 1_000;
/// Seconds that an MCP server, and each of its calls, is given unless the file says more.
const MCP_TIMEOUT_SECONDS: u64 = 60;

pub(super) fn config(text: &str, folder: &Path, what: &str) -> Result<Config, Invalid> {
    let mut problems = Problems::default();
    let value = match super::toml::from_toml(text) {
        Ok(value) => value,
        Err(error) => {
            problems.add("", format_args!("expected TOML: {}", place(text, &error)));
            return problems.finish(what, None);
        }
    };
    let mut parser = Parser { folder, problems };
    let config = parser.config(&At::root(&value, ""));
    parser.problems.finish(what, config)
}

/// Reads a part of another document, whose faults `problems` are.
pub(super) fn within<T>(problems: &mut Problems, read: impl FnOnce(&mut Parser<'_>) -> Option<T>) -> Option<T> {
    let mut parser = Parser { folder: Path::new("."), problems: std::mem::take(problems) };
    let value = read(&mut parser);
    *problems = parser.problems;
    value
}

/// Formats the parser's message with its line and column, on one line.
fn place(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            let line = before.matches('\n').count().saturating_add(1);
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count().saturating_add(1);
            format!("{message} at line {line} column {column}")
        }
        None => message,
    }
}

pub(super) struct Parser<'a> {
    folder: &'a Path,
    problems: Problems,
}

impl Parser<'_> {
    pub(super) fn config(&mut self, at: &At<'_>) -> Option<Config> {
        let known = [
            "tools",
            "runtime",
            "mcp",
            "llm",
            "agents",
            "http",
            "connectors",
            "limits",
            "mounts",
            "packages",
            "environment",
            "session",
            "artifacts",
            "datasets",
            "audit",
            "secrets",
            "server",
            "tenants",
            "templates",
            "host",
        ];
        let fields = at.fields(&known, &mut self.problems)?;
        let session = fields.get("session").and_then(|at| self.session(&at));
        let (session, spawns) = session.unwrap_or_default();
        let agents = self.agents(&fields);
        self.check_spawns(&agents, &spawns);
        Some(Config {
            bridges: Options {
                tools: self.tools(&fields),
                runtime: self.packs(&fields),
                mcp: self.named(&fields, "mcp", Parser::mcp),
                llm: fields.get("llm").and_then(|at| self.llm(&at)),
                agents,
                spawns,
                http: fields.get("http").and_then(|at| self.http(&at)).unwrap_or_default(),
                connectors: self.connectors(&fields),
                confirm_connectors: self.confirmed_connectors(&fields),
                secrets: self.secrets(&fields),
            },
            limits: fields.get("limits").and_then(|at| self.limits(&at)).unwrap_or_default(),
            mounts: fields.get("mounts").map(|at| self.mounts(&at)).unwrap_or_default(),
            packages: self.packages(&fields),
            environment: self.environment(&fields),
            session,
            artifacts: fields.get("artifacts").and_then(|at| self.artifacts(&at)).unwrap_or_default(),
            publish_datasets: fields.get("datasets").is_some_and(|at| self.datasets(&at)),
            audit: fields.get("audit").and_then(|at| self.audit(&at)),
            server: fields.get("server").and_then(|at| self.server(&at)).unwrap_or_default(),
            tenants: self.named(&fields, "tenants", Parser::tenant),
            templates: self.named(&fields, "templates", Parser::template),
            host: fields.get("host").and_then(|at| self.host(&at)).unwrap_or_default(),
        })
    }

    fn template(&mut self, at: &At<'_>) -> Option<Template> {
        let known = ["limits", "mounts", "packages", "environment", "session"];
        let fields = at.fields(&known, &mut self.problems)?;
        let session = fields.get("session");
        let entries = session.as_ref().and_then(|at| at.entries(&mut Problems::default())).unwrap_or_default();
        for (_, at) in entries.iter().filter(|(key, _)| *key == "spawns") {
            self.problems.add(&at.path, "only has a meaning in `[session]`");
        }
        Some(Template {
            limits: fields.get("limits").and_then(|at| self.limits(&at)).unwrap_or_default(),
            mounts: fields.get("mounts").map(|at| self.mounts(&at)).unwrap_or_default(),
            packages: self.packages(&fields),
            environment: self.environment(&fields),
            session: session.and_then(|at| self.session(&at)).map(|(table, _)| table).unwrap_or_default(),
        })
    }

    fn host(&mut self, at: &At<'_>) -> Option<HostTable> {
        let fields = at.fields(&["kernels", "stops"], &mut self.problems)?;
        let stops = fields.get("stops").and_then(|at| {
            let stops = if let Node::Text(name) = at.node { Stops::from_name(name) } else { None };
            if stops.is_none() {
                at.expected("`epochs` or `safepoints`", &mut self.problems);
            }
            stops
        });
        Some(HostTable {
            kernels: fields.get("kernels").and_then(|at| at.integer(1..=KERNELS_MAX, &mut self.problems)),
            stops: stops.unwrap_or_default(),
        })
    }

    fn audit(&mut self, at: &At<'_>) -> Option<AuditTable> {
        let fields = at.fields(&["file", "sync", "tenant", "file_mib", "kept"], &mut self.problems)?;
        let file = fields.required("file", "a file to write to", &mut self.problems);
        let file = file.and_then(|at| at.filled_text(&mut self.problems));
        let sync = fields.get("sync").and_then(|at| at.boolean(&mut self.problems)).unwrap_or_default();
        let tenant = fields.get("tenant").and_then(|at| at.filled_text(&mut self.problems)).map(str::to_owned);
        let usual = AuditBounds::default();
        let mib = fields.get("file_mib").and_then(|at| at.integer(1..=AUDIT_MIB_MAX, &mut self.problems));
        let kept = fields.get("kept").and_then(|at| at.integer(0..=AUDIT_KEPT_MAX, &mut self.problems));
        let bounds = AuditBounds {
            bytes_max: mib.map_or(usual.bytes_max, |mib| mib << 20),
            kept_max: kept.and_then(|kept| u32::try_from(kept).ok()).unwrap_or(usual.kept_max),
        };
        Some(AuditTable { file: self.path(file?), sync, tenant, bounds })
    }

    fn session(&mut self, at: &At<'_>) -> Option<(SessionTable, Spawns)> {
        let languages = [Language::Python, Language::JavaScript];
        let known = [
            "aliases",
            "charts",
            "commands",
            "guests",
            "history",
            "kernel_mode",
            "languages",
            "output_policy",
            "input_timeout",
            "spawns",
            "python",
            "javascript",
        ];
        let fields = at.fields(&known, &mut self.problems)?;
        let mut table = SessionTable::default();
        if let Some(at) = fields.get("kernel_mode") {
            match at.node {
                Node::Text(mode) if mode == "session" => {}
                Node::Text(mode) if mode == "per-call" => table.kernel_mode = KernelMode::PerCall,
                _ => at.expected("`session` or `per-call`", &mut self.problems),
            }
        }
        if let Some(at) = fields.get("output_policy") {
            match at.node {
                Node::Text(policy) if policy == "window" => {}
                Node::Text(policy) if policy == "tokens" => table.output_policy = OutputPolicy::Tokens,
                _ => at.expected("`window` or `tokens`", &mut self.problems),
            }
        }
        let longest = INPUT_IDLE_TIMEOUT_MAX.as_secs();
        let seconds = fields.get("input_timeout").and_then(|at| at.integer(1..=longest, &mut self.problems));
        table.input_timeout = seconds;
        table.aliases = fields.get("aliases").map(|at| at.texts("path", &mut self.problems).unwrap_or_default());
        table.history = fields.get("history").and_then(|at| self.history(&at));
        table.charts = fields.get("charts").and_then(|at| at.boolean(&mut self.problems));
        table.commands = fields.get("commands").and_then(|at| at.boolean(&mut self.problems));
        if let Some(at) = fields.get("guests") {
            for name in at.texts("guest", &mut self.problems).unwrap_or_default() {
                match GuestName::from_name(&name).filter(|guest| *guest != GuestName::Probe) {
                    Some(guest) => table.guests.push(guest),
                    None => at.expected("`python`, `python-data` or `javascript`", &mut self.problems),
                }
            }
        }
        if let Some(at) = fields.get("languages") {
            let names = at.texts("language", &mut self.problems).unwrap_or_default();
            for name in &names {
                match languages
                    .iter()
                    .find(|language| [language.code(), language.guest().name()].contains(&name.as_str()))
                {
                    Some(language) => table.languages.push(*language),
                    None => at.expected("`python` or `javascript`", &mut self.problems),
                }
            }
            if names.is_empty() {
                at.expected("a language at least", &mut self.problems);
            }
        }
        for language in languages {
            if let Some(seed) = fields.get(language.guest().name()).and_then(|at| self.seed(&at)) {
                table.seeds.insert(language, seed);
            }
        }
        let spawns = self.spawns(&fields);
        Some((table, spawns))
    }

    /// A number of states, or the rules by which they are kept.
    fn history(&mut self, at: &At<'_>) -> Option<History> {
        let count = |at: &At<'_>, least, problems: &mut Problems| {
            at.integer(least..=STATES_MAX, problems).and_then(|count| u32::try_from(count).ok())
        };
        let usual = HistoryOptions::default();
        if !matches!(at.node, Node::Object(_)) {
            return Some(match count(at, 0, &mut self.problems)? {
                0 => History::Off,
                last => History::Kept(HistoryOptions { last, ..usual }),
            });
        }
        let fields = at.fields(&["last", "every", "mib"], &mut self.problems)?;
        let last = fields.get("last").and_then(|at| count(&at, 1, &mut self.problems));
        let every = fields.get("every").and_then(|at| count(&at, 1, &mut self.problems));
        let mib = fields.get("mib").and_then(|at| at.integer(1..=HISTORY_MIB_MAX, &mut self.problems));
        Some(History::Kept(HistoryOptions {
            last: last.unwrap_or(usual.last),
            every,
            bytes_max: mib.map_or(usual.bytes_max, |mib| mib.saturating_mul(1 << 20)),
        }))
    }

    fn seed(&mut self, at: &At<'_>) -> Option<Seed> {
        let fields = at.fields(&["source", "bindings"], &mut self.problems)?;
        let mut seed = Seed::default();
        if let Some(at) = fields.get("source")
            && let Some(path) = at.filled_text(&mut self.problems)
        {
            match text_of(&self.path(path)) {
                Ok(source) => seed.source = source,
                Err(error) => at.expected(format_args!("a file with source text ({error})"), &mut self.problems),
            }
        }
        for (name, at) in fields.get("bindings").and_then(|at| at.entries(&mut self.problems)).unwrap_or_default() {
            match at.node {
                Node::Other(_) => at.expected("a value that JSON has", &mut self.problems),
                node => seed.bindings.push((name.to_owned(), serde_json::Value::from(node).to_string())),
            }
        }
        Some(seed)
    }

    /// Names of packages, and folders, which have a slash in them.
    fn packages(&mut self, fields: &Fields<'_>) -> Vec<Source> {
        let Some(at) = fields.get("packages") else { return Vec::new() };
        let texts = at.texts("the name of a package, or a folder", &mut self.problems).unwrap_or_default();
        let mut sources = Vec::with_capacity(texts.len());
        for text in &texts {
            match text.parse() {
                Ok(Source::Folder(_)) => sources.push(Source::Folder(self.path(text))),
                Ok(named) => sources.push(named),
                Err(_) => {
                    let expected = "the name of a package without a version, such as \"tabulate\" or \"npm:lodash\", or a folder \
                                    with a slash in it";
                    self.problems.add(&at.path, format_args!("expected {expected}, found {}", quote(text)));
                }
            }
        }
        sources
    }

    /// Names of variables, and paths of files, which have a slash in them.
    fn secrets(&mut self, fields: &Fields<'_>) -> Vec<SecretSource> {
        let Some(at) = fields.get("secrets") else { return Vec::new() };
        let names = at.texts("the name of a variable, or the path of a file", &mut self.problems).unwrap_or_default();
        let source = |name: &String| match name.contains('/') {
            true => SecretSource::File(self.path(name)),
            false => SecretSource::Variable(name.clone()),
        };
        names.iter().map(source).collect()
    }

    /// A table of tables whose keys are names that cells write.
    fn named<T>(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        read: impl Fn(&mut Self, &At<'_>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let Some(entries) = fields.get(key).and_then(|at| at.entries(&mut self.problems)) else {
            return BTreeMap::new();
        };
        let mut named = BTreeMap::new();
        for (name, at) in entries {
            if !is_name(name) {
                let expected = "a name of letters, digits, `_` and `-` that begins with a letter or `_`";
                self.problems.add(&at.path, format_args!("expected {expected}, found {}", quote(name)));
            } else if let Some(value) = read(self, &at) {
                named.insert(name.to_owned(), value);
            }
        }
        named
    }

    fn mcp(&mut self, at: &At<'_>) -> Option<McpServer> {
        let known =
            ["command", "environment", "inherit", "url", "headers_env", "timeout", "tools", "prefix", "confirm"];
        let fields = at.fields(&known, &mut self.problems)?;
        let timeout = self.timeout(&fields, MCP_TIMEOUT_SECONDS);
        let tools = fields.get("tools").map(|at| at.texts("tool", &mut self.problems).unwrap_or_default());
        let prefix = self.text(&fields, "prefix").unwrap_or_default();
        let transport = match (fields.get("command"), fields.get("url")) {
            (Some(_), None) => {
                self.only_beside(&fields, "headers_env", "url");
                McpTransport::Command(self.command(&fields, MCP_TIMEOUT_SECONDS)?)
            }
            (None, Some(at)) => {
                self.only_beside(&fields, "environment", "command");
                self.only_beside(&fields, "inherit", "command");
                let headers = self.headers(&fields);
                McpTransport::Http { url: self.endpoint(&at)?, headers }
            }
            _ => {
                self.problems.add(&at.path, "expected either `command`, to start the server, or `url`, to reach it");
                return None;
            }
        };
        Some(McpServer { transport, timeout, tools, prefix, confirm: self.confirm(&fields) })
    }

    /// Refuses a key that says something of the other way to do it.
    fn only_beside(&mut self, fields: &Fields<'_>, key: &str, other: &str) {
        if let Some(at) = fields.get(key) {
            self.problems.add(&at.path, format_args!("only has a meaning beside `{other}`"));
        }
    }

    fn command(&mut self, fields: &Fields<'_>, timeout_seconds: u64) -> Option<Command> {
        let expected = "an array of strings, the program first";
        let at = fields.required("command", expected, &mut self.problems)?;
        let argv = at.texts("string", &mut self.problems);
        if argv.as_ref().is_some_and(|argv| argv.iter().take(1).any(String::is_empty)) {
            self.problems.add(&format!("{}[0]", at.path), "expected a program, found \"\"");
        }
        let inherit = fields.get("inherit").and_then(|at| at.texts("name", &mut self.problems)).unwrap_or_default();
        let environment = self.environment(fields);
        let timeout = self.timeout(fields, timeout_seconds);
        Some(Command { argv: argv?, folder: self.folder.to_owned(), environment, inherit, timeout })
    }

    fn llm(&mut self, at: &At<'_>) -> Option<Llm> {
        let known = ["endpoint", "api_key_env", "timeout", "tiers", "reasoning_effort", "calls", "tokens"];
        let fields = at.fields(&known, &mut self.problems)?;
        let endpoint = fields
            .required("endpoint", "the base URL of an OpenAI-compatible service", &mut self.problems)
            .and_then(|at| self.endpoint(&at));
        let api_key_env = fields.get("api_key_env").and_then(|at| at.filled_text(&mut self.problems));
        let timeout = self.timeout(&fields, 120);
        let tiers = fields.required("tiers", "a table with a model for each tier", &mut self.problems);
        let tiers = tiers.map(|at| self.tiers(&at)).unwrap_or_default();
        let reasoning_effort = fields.get("reasoning_effort").map(|at| self.tiers(&at)).unwrap_or_default();
        let mut budget = |key| fields.get(key).and_then(|at| at.integer(1..=u64::MAX, &mut self.problems));
        let (calls, tokens) = (budget("calls"), budget("tokens"));
        let api_key_env = api_key_env.map(str::to_owned);
        Some(Llm { endpoint: endpoint?, api_key_env, timeout, tiers, reasoning_effort, calls, tokens })
    }

    fn endpoint(&mut self, at: &At<'_>) -> Option<String> {
        let text = at.text(&mut self.problems)?;
        let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if url.is_none() {
            at.expected("an http or https URL", &mut self.problems);
        }
        url.map(|_| text.trim_end_matches('/').to_owned())
    }

    /// A word for each tier that is named.
    fn tiers(&mut self, at: &At<'_>) -> BTreeMap<String, String> {
        let Some(fields) = at.fields(&TIERS, &mut self.problems) else { return BTreeMap::new() };
        let mut tiers = BTreeMap::new();
        for tier in TIERS {
            if let Some(model) = fields.get(tier).and_then(|at| at.filled_text(&mut self.problems)) {
                tiers.insert(tier.to_owned(), model.to_owned());
            }
        }
        tiers
    }

    fn artifacts(&mut self, at: &At<'_>) -> Option<ArtifactsTable> {
        let mut table = ArtifactsTable::default();
        let numbers = [
            ("artifact_mib", 1..=1 << 20, &mut table.artifact_mib),
            ("session_mib", 1..=1 << 20, &mut table.session_mib),
            ("session_count", 1..=1_000_000, &mut table.session_count),
            ("total_mib", 1..=1 << 20, &mut table.total_mib),
            ("total_count", 1..=1_000_000, &mut table.total_count),
            ("unused_days", 1..=36_500, &mut table.unused_days),
        ];
        let known: Vec<&str> = numbers.each_ref().map(|(key, ..)| *key).into_iter().chain(REMOTE).collect();
        let fields = at.fields(&known, &mut self.problems)?;
        self.numbers_of(&fields, numbers);
        table.remote = self.objects(&fields, REMOTE);
        Some(table)
    }

    fn datasets(&mut self, at: &At<'_>) -> bool {
        let fields = at.fields(&["publish"], &mut self.problems);
        fields.and_then(|fields| fields.get("publish")?.boolean(&mut self.problems)).unwrap_or_default()
    }

    fn limits(&mut self, at: &At<'_>) -> Option<LimitSettings> {
        let known: Vec<&str> = LIMITS.iter().map(|limit| limit.key).collect();
        let fields = at.fields(&known, &mut self.problems)?;
        let mut settings = LimitSettings::default();
        for limit in LIMITS {
            let given = fields.get(limit.key);
            *limit.setting_mut(&mut settings) = given.and_then(|at| at.limit(limit, &mut self.problems));
        }
        Some(settings)
    }

    /// Numbers, each within its range.
    fn numbers_of<const N: usize>(
        &mut self,
        fields: &Fields<'_>,
        slots: [(&str, RangeInclusive<u64>, &mut Option<u64>); N],
    ) {
        for (key, range, slot) in slots {
            *slot = fields.get(key).and_then(|at| at.integer(range, &mut self.problems));
        }
    }

    fn mounts(&mut self, at: &At<'_>) -> Vec<Mount> {
        let entries = at.entries(&mut self.problems).unwrap_or_default();
        entries.into_iter().filter_map(|(guest, at)| self.mount(guest, &at)).collect()
    }

    fn mount(&mut self, guest: &str, at: &At<'_>) -> Option<Mount> {
        if !guest.starts_with('/') {
            let found = quote(guest);
            self.problems.add(&at.path, format_args!("expected an absolute path in the sandbox, found {found}"));
            return None;
        }
        let (host, is_writable) = match at.node {
            Node::Text(host) => (host.as_str(), false),
            Node::Object(_) => {
                let fields = at.fields(&["host", "write"], &mut self.problems)?;
                let host = fields.required("host", "a folder", &mut self.problems)?.filled_text(&mut self.problems)?;
                let write = fields.get("write").and_then(|at| at.boolean(&mut self.problems));
                (host, write.unwrap_or_default())
            }
            _ => {
                at.expected("a folder, or a table with `host` and `write`", &mut self.problems);
                return None;
            }
        };
        let access = if is_writable { Access::ReadWrite } else { Access::ReadOnly };
        Some(Mount { host: self.path(host), guest: guest.to_owned(), access })
    }

    /// `environment`, which is the same table wherever it stands.
    fn environment(&mut self, fields: &Fields<'_>) -> Vec<(String, String)> {
        let Some(at) = fields.get("environment") else { return Vec::new() };
        let entries = at.entries(&mut self.problems).unwrap_or_default();
        let mut variables = Vec::new();
        for (name, at) in entries {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problems.add(&at.path, "expected a name without `=`");
            } else if let Some(value) = at.text(&mut self.problems) {
                variables.push((name.to_owned(), value.to_owned()));
            }
        }
        variables
    }

    pub(super) fn schema(&mut self, at: &At<'_>) -> Option<serde_json::Value> {
        at.entries(&mut self.problems)?;
        let value = serde_json::Value::from(at.node);
        if let Err(fault) = Schema::compile(&value) {
            self.problems.add(&at.path, format_args!("expected a JSON Schema: {fault}"));
            return None;
        }
        Some(value)
    }

    /// `confirm`: `true`, or a JSON Schema of arguments.
    fn confirm(&mut self, fields: &Fields<'_>) -> Option<Confirm> {
        let at = fields.get("confirm")?;
        match at.node {
            Node::Boolean(true) => Some(Confirm::Always),
            Node::Boolean(false) => None,
            Node::Object(_) => self.schema(&at).map(Confirm::When),
            _ => {
                at.expected("`true`, or a JSON Schema of the arguments that need a person", &mut self.problems);
                None
            }
        }
    }

    fn timeout(&mut self, fields: &Fields<'_>, default_seconds: u64) -> Duration {
        let at = fields.get("timeout");
        let seconds = at.and_then(|at| at.integer(1..=TIMEOUT_SECONDS_MAX, &mut self.problems));
        Duration::from_secs(seconds.unwrap_or(default_seconds))
    }

    fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        fields.get(key).and_then(|at| at.text(&mut self.problems)).map(str::to_owned)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && name.len() <= 64
}
