use super::*;
use cellar_bridges::{AgentTransport, HeaderTemplate, HttpRule, McpTransport, Program, Spawns};
use cellar_engine::{Limits, files::Access};
use cellar_secrets::SecretSource;

fn parse(text: &str) -> Result<Config, Invalid> {
    Config::parse(text, Path::new("/etc/cellar"), "`cellar.toml`")
}

fn problems(text: &str) -> Vec<String> {
    parse(text).expect_err("refused").problems
}

#[test]
fn an_mcp_server_is_started_or_reached() {
    let either = "mcp.a: expected either `command`, to start the server, or `url`, to reach it";
    assert_eq!(problems("[mcp.a]\ntimeout = 1"), [either]);
    assert_eq!(problems("[mcp.a]\ncommand = [\"x\"]\nurl = \"http://x\""), [either]);
    let beside = "mcp.a.headers_env: only has a meaning beside `url`";
    assert_eq!(problems("[mcp.a]\ncommand = [\"x\"]\nheaders_env = {}"), [beside]);
    assert_eq!(problems("[mcp.a]\nurl = \"x\""), ["mcp.a.url: expected an http or https URL, found \"x\""]);
}

#[test]
fn an_agent_is_started_or_asked_and_policies_name_agents() {
    let either = "agents.a: expected either `command`, to start the agent, or `url`, to ask it";
    assert_eq!(problems("[agents.a]\ndepth = 1"), [either]);
    assert_eq!(
        problems("[agents.a]\nurl = \"http://x\"\ninherit = [\"A\"]"),
        ["agents.a.inherit: only has a meaning beside `command`"]
    );
    let agent = "[agents.a]\nurl = \"http://x\"\n";
    assert_eq!(problems(&format!("{agent}depth = 4")), ["agents.a.depth: expected an integer from 1 to 3, found 4"]);
    let expected = "agents.a.spawns: expected `\"*\"` or an array of names of agents, found \"a\"";
    assert_eq!(problems(&format!("{agent}spawns = \"a\"")), [expected]);
    assert_eq!(
        problems(&format!("{agent}spawns = [\"b\"]")),
        ["agents.a.spawns: no agent is named `b`, known are `a`"]
    );
    assert_eq!(problems("[session]\nspawns = [\"b\"]"), ["session.spawns: no agent is named `b`, there is none"]);
    let config = parse(&format!("{agent}spawns = [\"*\"]")).expect("valid");
    assert_eq!(config.bridges.agents["a"].spawns, Spawns::All);
}

#[test]
fn a_server_is_confined_as_far_as_can_be_or_as_it_says() {
    let isolate = |text: &str| parse(text).expect("valid").server.isolate;
    assert_eq!(isolate(""), Isolate::Usual);
    assert_eq!(isolate("[server]\nisolate = \"process\""), Isolate::Process);
    assert_eq!(isolate("[server]\nisolate = \"none\""), Isolate::None);
    assert_eq!(isolate("[server]\nisolate = \"tenant\""), Isolate::Tenant);
    let expected = "server.isolate: expected \"process\", \"tenant\" or \"none\", found \"all\"";
    assert_eq!(problems("[server]\nisolate = \"all\""), [expected]);
    let server = parse("[server]\nworkers = 2\nworker_idle = 3\nworker_memory_mib = 256").expect("valid").server;
    assert_eq!((server.workers, server.worker_idle, server.worker_memory_mib), (Some(2), Some(3), Some(256)));
}

#[test]
fn a_tool_is_a_command_or_a_component() {
    let either = "tools.a: expected either `command`, a program of this machine, or `component`, one for a sandbox";
    assert_eq!(problems("[tools.a]\ntimeout = 1"), [either]);
    assert_eq!(problems("[tools.a]\ncommand = [\"x\"]\ncomponent = \"x.wasm\""), [either]);
    let beside = "tools.a.memory_mib: only has a meaning beside `component`";
    assert_eq!(problems("[tools.a]\ncommand = [\"x\"]\nmemory_mib = 5"), [beside]);
    let component = "[tools.a]\ncomponent = \"x.wasm\"\n";
    let most = "tools.a.memory_mib: expected an integer from 1 to 2048, found 4096";
    assert_eq!(problems(&format!("{component}memory_mib = 4096")), [most]);
    let config = parse(component).expect("valid");
    let Program::Component(granted) = &config.bridges.tools["a"].program else { panic!("a component") };
    assert_eq!(granted.program.memory_bytes, 64 << 20);
    assert_eq!((granted.program.timeout, granted.program.fuel), (Duration::from_secs(60), None));
    assert!(granted.program.mounts.is_empty() && granted.program.environment.is_empty());
}

#[test]
fn a_pack_has_primitives_of_commands() {
    assert_eq!(problems("[runtime.a]\nversion = 1"), ["runtime.a.version: expected a string, found 1"]);
    let name = "expected a name of letters, digits, `_` and `-`, with dots between such";
    assert_eq!(problems("[runtime.a.\"b..c\"]\ncommand = [\"x\"]"), [format!("runtime.a[\"b..c\"]: {name}")]);
    let missing =
        "runtime.a.b: expected either `command`, a program of this machine, or `component`, one for a sandbox";
    assert_eq!(problems("[runtime.a.b]\ndescription = \"x\""), [missing]);
}

/// Every key that the documentation names, as its readers would write them.
const WHOLE: &str = r#"
packages = ["./packages", "/opt/packages", "Tabulate", "npm:@scope/name"]
secrets = ["WEBHOOK", "./secret.txt"]
[tools.add]
command = ["python3", "add.py"]
description = "adds"
timeout = 5
inherit = ["TOKEN"]
[tools.add.environment]
MODE = "fast"
[tools.add.schema]
type = "object"
required = ["a"]
[tools.words]
component = "words.wasm"
arguments = ["--all"]
mounts = { "/data" = "data", "/out" = { host = "/srv/out", write = true } }
environment = { MODE = "fast" }
inherit = ["TOKEN"]
memory_mib = 16
fuel = 1000
timeout = 5
[runtime.geo]
version = "2"
description = "places"
[runtime.geo."route.length"]
command = ["./length"]
timeout = 5
result = { type = "number" }
[mcp.files]
command = ["./mcp-server", "--stdio"]
inherit = ["TOKEN"]
tools = ["read"]
prefix = "files_"
[mcp.remote]
url = "https://example.com/mcp"
timeout = 5
headers_env = { Authorization = "Bearer ${TOKEN}" }
[llm]
endpoint = "http://127.0.0.1:9999/v1/"
api_key_env = "CELLAR_LLM_KEY"
[llm.tiers]
smol = "small-model"
default = "medium-model"
slow = "large-model"
[agents.task]
command = ["./agent.py"]
spawns = ["remote"]
depth = 1
[agents.remote]
url = "https://agents.example.com/run/"
headers_env = { Authorization = "Bearer ${TOKEN}" }
model = "large"
spawns = []
[http]
allow = [{ host = "api.example.com", methods = ["GET"], ports = [443] }, { host = "*.Example.org.", methods = ["get"], private = true, paths = ["/v1"], headers_env = { Authorization = "Bearer ${TOKEN}" } }]
calls = 5
response_mib = 1
[limits]
timeout = 10
memory_mib = 64
fuel = 1000
[mounts]
"/data" = "data"
"/out" = { host = "/tmp/out", write = true }
[environment]
LANG = "C"
[session]
kernel_mode = "per-call"
spawns = ["task"]
charts = false
aliases = ["/home/agent"]
input_timeout = 60
[artifacts]
session_mib = 5
unused_days = 7
[session.python.bindings]
limit = 10
names = ["Ada", { deep = true }]
"#;

#[test]
#[expect(clippy::too_many_lines, reason = "a file with every key, and all that is made of it")]
fn the_documented_file_is_understood() {
    let config = parse(WHOLE).expect("valid");
    let file = SecretSource::File(Path::new("/etc/cellar/./secret.txt").to_owned());
    assert_eq!(config.bridges.secrets, [SecretSource::Variable("WEBHOOK".to_owned()), file]);
    let add = &config.bridges.tools["add"];
    let Program::Command(command) = &add.program else { panic!("a command: {add:?}") };
    assert_eq!(command.argv, ["python3", "add.py"]);
    assert_eq!(command.folder, Path::new("/etc/cellar"));
    assert_eq!(command.timeout, Duration::from_secs(5));
    assert_eq!(command.environment, [("MODE".to_owned(), "fast".to_owned())]);
    assert_eq!(command.inherit, ["TOKEN"]);
    assert_eq!(add.schema, Some(serde_json::json!({"type": "object", "required": ["a"]})));
    let Program::Component(words) = &config.bridges.tools["words"].program else { panic!("a component") };
    assert_eq!(
        (words.program.file.as_path(), &words.inherit[..]),
        (Path::new("/etc/cellar/words.wasm"), &["TOKEN".to_owned()][..])
    );
    let folders: Vec<_> = words.program.mounts.iter().map(|mount| (mount.host.as_path(), mount.access)).collect();
    let expected = [(Path::new("/etc/cellar/data"), Access::ReadOnly), (Path::new("/srv/out"), Access::ReadWrite)];
    assert_eq!(folders, expected);
    assert_eq!((words.program.memory_bytes, words.program.fuel), (16 << 20, Some(1_000)));
    let geo = &config.bridges.runtime["geo"];
    assert_eq!((geo.version.as_deref(), geo.description.as_str()), (Some("2"), "places"));
    let length = &geo.primitives["route.length"];
    assert_eq!(length.result, Some(serde_json::json!({"type": "number"})));
    let Program::Command(length) = &length.tool.program else { panic!("a command: {length:?}") };
    assert_eq!((&length.argv[0][..], length.timeout), ("./length", Duration::from_secs(5)));
    let files = &config.bridges.mcp["files"];
    assert_eq!((files.tools.as_deref(), files.prefix.as_str()), (Some(&["read".to_owned()][..]), "files_"));
    assert!(matches!(&files.transport, McpTransport::Command(command) if command.inherit == ["TOKEN"]));
    let template = HeaderTemplate::parse("Bearer ${TOKEN}").expect("a template");
    let McpTransport::Http { url, headers } = &config.bridges.mcp["remote"].transport else { panic!("a URL") };
    assert_eq!(
        (url.as_str(), headers),
        ("https://example.com/mcp", &vec![("Authorization".to_owned(), template.clone())])
    );
    assert_eq!(config.bridges.mcp["remote"].timeout, Duration::from_secs(5));
    assert_eq!(config.session.kernel_mode, KernelMode::PerCall);
    assert_eq!(config.session.input_timeout(), Duration::from_secs(60));
    assert_eq!(config.session.charts, Some(false));
    assert_eq!(config.session.aliases, Some(vec!["/home/agent".to_owned()]));
    let kept = config.artifacts.quota(ArtifactQuota::TEMPORARY);
    let expected = ArtifactQuota {
        session_bytes: 5 << 20,
        unused_for: Some(Duration::from_secs(7 * 86_400)),
        ..ArtifactQuota::TEMPORARY
    };
    assert_eq!(kept, expected);
    let seed = &config.session.seeds[&Language::Python];
    let binding = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(seed.bindings, [binding("limit", "10"), binding("names", "[\"Ada\",{\"deep\":true}]")]);
    let llm = config.bridges.llm.expect("[llm]");
    assert_eq!(llm.endpoint, "http://127.0.0.1:9999/v1");
    assert_eq!(llm.tiers.len(), 3);
    let (task, remote) = (&config.bridges.agents["task"], &config.bridges.agents["remote"]);
    assert!(matches!(&task.transport, AgentTransport::Command(run) if run.timeout == Duration::from_secs(600)));
    assert_eq!((task.depth, &task.spawns), (1, &Spawns::Only(vec!["remote".to_owned()])));
    let AgentTransport::Http { url, headers, timeout } = &remote.transport else { panic!("a URL") };
    assert_eq!((url.as_str(), *timeout), ("https://agents.example.com/run", Duration::from_secs(600)));
    assert_eq!((headers[0].0.as_str(), headers[0].1.to_string().as_str()), ("Authorization", "Bearer ${TOKEN}"));
    assert_eq!((remote.model.as_deref(), &remote.spawns), (Some("large"), &Spawns::Only(Vec::new())));
    assert_eq!(config.bridges.spawns, Spawns::Only(vec!["task".to_owned()]));
    let http = config.bridges.http;
    assert_eq!((http.calls, http.response_bytes, http.timeout), (5, 1 << 20, Duration::from_secs(30)));
    let rule = HttpRule { host: "api.example.com".to_owned(), methods: vec!["GET".to_owned()], ..HttpRule::default() };
    assert_eq!(http.allow[0], rule);
    let template = HeaderTemplate::parse("Bearer ${TOKEN}").expect("a template");
    let rule = HttpRule {
        host: "*.example.org".to_owned(),
        schemes: vec!["https".to_owned()],
        paths: vec!["/v1".to_owned()],
        headers: vec![("Authorization".to_owned(), template)],
        private: true,
        ..rule
    };
    assert_eq!(http.allow[1], rule);
    let mount = |host: &str, guest: &str, access| Mount { host: host.into(), guest: guest.into(), access };
    assert_eq!(
        config.mounts,
        [mount("/etc/cellar/data", "/data", Access::ReadOnly), mount("/tmp/out", "/out", Access::ReadWrite)]
    );
    let packages: Vec<String> = config.packages.iter().map(ToString::to_string).collect();
    assert_eq!(packages, ["/etc/cellar/./packages", "/opt/packages", "tabulate", "npm:@scope/name"]);
    let limits = config.limits.limits();
    assert_eq!(limits.timeout, Duration::from_secs(10));
    assert_eq!((limits.memory_bytes, limits.fuel), (64 << 20, Some(1000)));
    assert_eq!(limits.grace, Limits::default().grace);
}

#[test]
fn an_empty_file_grants_nothing() {
    let config = parse("").expect("valid");
    assert!(config.bridges.tools.is_empty() && config.bridges.llm.is_none() && config.bridges.agents.is_empty());
    assert_eq!(config.limits.limits(), Limits::default());
}

#[test]
fn unknown_keys_are_refused_with_their_path_and_the_nearest_name() {
    assert_eq!(problems("[tool.add]"), ["tool: unknown field, did you mean `tools`?"]);
    assert_eq!(
        problems("[tools.add]\ncomand = ['a']\ncommand = ['a']"),
        ["tools.add.comand: unknown field, did you mean `command`?"]
    );
    assert_eq!(
        problems("[llm]\nendpoint = 'http://x'\n[llm.tiers]\nfast = 'm'"),
        ["llm.tiers.fast: unknown field, known are `smol`, `default` and `slow`"]
    );
    assert_eq!(problems("[limits]\nmemory = 3"), ["limits.memory: unknown field, did you mean `memory_mib`?"]);
}

#[test]
fn wrong_values_say_what_was_expected() {
    assert_eq!(
        problems("[tools.a]"),
        ["tools.a: expected either `command`, a program of this machine, or `component`, one for a sandbox"]
    );
    assert_eq!(
        problems("[tools.a]\ncommand = []"),
        ["tools.a.command: expected an array of at least one string, found an empty array"]
    );
    assert_eq!(problems("[tools.a]\ncommand = ['']"), ["tools.a.command[0]: expected a program, found \"\""]);
    assert_eq!(problems("[tools.a]\ncommand = ['x', 1]"), ["tools.a.command[1]: expected a string, found 1"]);
    assert_eq!(
        problems("[tools.'a b']\ncommand = ['x']"),
        [
            "tools[\"a b\"]: expected a name of letters, digits, `_` and `-` that begins with a letter or `_`, found \"a b\""
        ]
    );
    assert_eq!(problems("[limits]\ntimeout = 601"), ["limits.timeout: expected a number from 0.1 to 600, found 601"]);
    assert_eq!(
        problems("limits = 1979-05-27"),
        ["limits: expected a table with `timeout`, `timeout_max`, `grace_ms`, \
        `fuel`, `memory_mib`, `output_mib`, `display_mib`, `calls_in_flight`, `forks`, `disk_mib`, `disk_files` and \
        `descriptors`, found a date"]
    );
    assert_eq!(
        problems("[llm]\nendpoint = 'ftp://x'\n[llm.tiers]"),
        ["llm.endpoint: expected an http or https URL, found \"ftp://x\""]
    );
    assert_eq!(
        problems("[mounts]\ndata = 'data'"),
        ["mounts.data: expected an absolute path in the sandbox, found \"data\""]
    );
    assert_eq!(problems("[environment]\nA = 1"), ["environment.A: expected a string, found 1"]);
    assert!(
        problems("[tools.a]\ncommand = ['x']\n[tools.a.schema]\ntype = 'objekt'")[0]
            .starts_with("tools.a.schema: expected a JSON Schema: ")
    );
}

#[test]
fn hosts_are_checked_when_the_file_is_read() {
    let rule = |rule: &str| problems(&format!("[http]\nallow = [{{ {rule} }}]"));
    let host = "http.allow[0].host: expected the name of a host, `*.` and a name, or `*`";
    assert_eq!(rule("methods = ['GET']"), [format!("{host}, found nothing")]);
    assert_eq!(rule("host = 'http://a.test'"), [format!("{host}, found \"http://a.test\"")]);
    assert_eq!(
        rule("host = 'a', schemes = ['ftp']"),
        ["http.allow[0].schemes: expected `https` and `http`, found an array"]
    );
    assert_eq!(
        rule("host = 'a', headers_env = { a = 'Bearer x' }"),
        ["http.allow[0].headers_env.a: expected the name of an environment variable, or a text with `${NAME}` in it, \
          found \"Bearer x\""]
    );
    assert_eq!(
        rule("host = 'a', ports = [0]"),
        ["http.allow[0].ports[0]: expected an integer from 1 to 65535, found 0"]
    );
    assert_eq!(problems("[http]\nallows = []"), ["http.allows: unknown field, did you mean `allow`?"]);
}

#[test]
fn bad_toml_says_where() {
    assert_eq!(problems("[tools\n"), ["expected TOML: unclosed table, expected `]` at line 1 column 7"]);
}

#[test]
fn seeds_are_read_from_the_files_folder() {
    let folder = tempfile::TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("seed.py"), "x = 1\n").expect("written");
    let parse = |text: &str| Config::parse(text, folder.path(), "`cellar.toml`");
    let config = parse("[session.python]\nsource = \"seed.py\"").expect("valid");
    assert_eq!(config.session.seeds[&Language::Python].source, "x = 1\n");
    let faults = |text: &str| parse(text).expect_err("refused").problems;
    let missing = faults("[session.javascript]\nsource = \"none.js\"");
    assert!(
        missing[0].starts_with("session.javascript.source: expected a file with source text (No such file"),
        "{missing:?}"
    );
    assert_eq!(
        faults("session.kernel_mode = \"once\"\nsession.python.bindings.day = 2026-01-01"),
        [
            "session.kernel_mode: expected `session` or `per-call`, found \"once\"",
            "session.python.bindings.day: expected a value that JSON has, found a date",
        ]
    );
}

#[test]
fn names_that_every_session_has_are_refused() {
    assert_eq!(
        problems("tools.read.command = [\"true\"]\nruntime.selfref.p.command = [\"true\"]"),
        [
            "tools.read: every session has a tool `read`: choose another name",
            "runtime.selfref: every session has a `runtime.selfref`: choose another name",
        ]
    );
    let taken = |name: &str| problems(&format!("runtime.{name}.command = [\"true\"]"));
    for name in
        ["list_primitive_specs", "get_primitive_spec", "listPrimitives", "listPrimitiveSpecs", "getPrimitiveSpec"]
    {
        let message = format!("runtime.{name}: every session has a `runtime.{name}`: choose another name");
        assert_eq!(taken(&format!("{name}.p")), [message]);
    }
    for (name, message) in [
        ("p.spec", "runtime.p.spec: every primitive has a `spec`: choose another name"),
        ("p.\"a.aio\"", "runtime.p[\"a.aio\"]: every primitive has a `aio`: choose another name"),
        ("p.then", "runtime.p.then: `then` means something else in JavaScript: choose another name"),
        ("toString.p", "runtime.toString: `toString` means something else in JavaScript: choose another name"),
    ] {
        assert_eq!(taken(name), [message]);
    }
    assert_eq!(
        problems("tools.then.command = [\"true\"]"),
        ["tools.then: `then` means something else in JavaScript: choose another name"]
    );
}

#[test]
fn languages_are_turned_off_by_naming_the_others() {
    let config = Config::parse("session.languages = [\"py\"]", Path::new("."), "a text").expect("valid");
    assert_eq!(config.session.languages, [Language::Python]);
    assert_eq!(
        problems("session.languages = [\"rb\"]"),
        ["session.languages: expected `python` or `javascript`, found an array"]
    );
}

#[test]
fn a_configuration_that_all_may_write_is_refused() {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cellar.toml");
    std::fs::write(&path, "[limits]\ntimeout = 5\n").expect("written");
    for (mode, is_taken) in [(0o600, true), (0o644, true), (0o664, true), (0o646, false), (0o666, false)] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        assert_eq!(Config::load(&path).is_ok(), is_taken, "{mode:o}");
    }
}

#[test]
fn the_audit_log_has_bounds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cellar.toml");
    let bounds = |more: &str| {
        std::fs::write(&path, format!("[audit]\nfile = \"a.jsonl\"\n{more}")).expect("written");
        Config::load(&path).map(|config| config.audit.map(|audit| audit.bounds))
    };
    let of = |bytes_max, kept_max| Some(AuditBounds { bytes_max, kept_max });
    assert_eq!(bounds("").expect("valid"), of(256 << 20, 15));
    assert_eq!(bounds("file_mib = 2\nkept = 0\n").expect("valid"), of(2 << 20, 0));
    assert!(bounds("file_mib = 0\n").is_err() && bounds("kept = 1001\n").is_err());
}
