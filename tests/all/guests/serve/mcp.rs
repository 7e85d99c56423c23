//! Cellar as an MCP server, used by the official Python SDK over both transports.

use super::*;
use crate::support::{cache, node};

pub(super) fn client(arguments: &[&str], case: &str) {
    let python = root().join("target/mcp/bin/python");
    assert!(python.exists(), "no Python SDK of MCP at `{}`; run `make packages` first", python.display());
    let cellar = cellar_with_guests(["--version"]);
    let mut command = Command::new(python);
    command.arg(root().join("fixtures/mcp/client.py")).args(arguments).current_dir(root());
    let output = command.envs(cellar.get_envs().filter_map(|(name, value)| Some((name, value?)))).output();
    let output = output.expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("ok {case}")), "{said}");
}

impl Served {
    /// Sends a request of the newest protocol, and returns the message that answers it.
    pub(super) fn message(&self, token: &str, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut headers = vec![
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        headers.extend((!name.is_empty()).then_some(("Mcp-Name", name.as_str())));
        let text = self.ask_as(token, "POST", "/mcp", &headers, body.as_bytes()).text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).find(|line| line.contains("\"id\""));
        serde_json::from_str::<Value>(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{text}"))
    }

    /// Calls a tool, and returns the first text of its answer, or the error of the protocol.
    pub(super) fn told(&self, token: &str, tool: &str, arguments: Value) -> String {
        let answer = self.message(token, "tools/call", json!({"name": tool, "arguments": arguments}));
        words(&answer)
    }
}

/// The first text of an answer, or the error that it is.
fn words(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.or(answer["error"]["message"].as_str()).unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn check(case: &str) {
    check_with(case, &[]);
}

/// Runs a case over both transports, with further arguments for the server.
fn check_with(case: &str, arguments: &[&str]) {
    let store = tempfile::tempdir().expect("a folder");
    let folder = store.path().join("stdio");
    let program = cellar(["--version"]).get_program().to_str().expect("text").to_owned();
    let started = [&["stdio", case, &program, "mcp", "--store", folder.to_str().expect("text")], arguments].concat();
    client(&started, case);
    let served = Served::start(&store.path().join("http"), arguments);
    client(&["http", case, &format!("http://{}/mcp", served.address), &served.token], case);
}

#[test]
fn tools_are_listed() {
    check("tools");
}

#[test]
fn a_language_that_is_off_is_not_told_of() {
    let (folder, path) = config("[session]\nlanguages = [\"js\"]\n");
    let served = Served::start(&folder.path().join("store"), &["--config", path.to_str().expect("text")]);
    let listed = served.message(&served.token, "tools/list", json!({}))["result"]["tools"].clone();
    let eval = listed.as_array().expect("tools").iter().find(|tool| tool["name"] == "eval").expect("eval");
    assert_eq!(eval["inputSchema"]["properties"]["language"]["enum"], json!(["js", "javascript"]));
    let about = eval["description"].as_str().expect("a text");
    assert!(about.contains("JavaScript") && !about.contains("Python"), "{about}");
    let languages = served.get("/v1/languages").json();
    assert_eq!(languages, json!({"languages": [{"language": "js", "title": "JavaScript"}]}));
}

#[test]
fn sessions_are_arguments() {
    check("sessions");
}

#[test]
fn a_connection_goes_on_where_its_last_call_ended() {
    check("remembers");
}

#[test]
fn answers_have_a_structure_that_fits_its_schema() {
    check("structured");
}

#[test]
fn a_header_names_the_session_of_a_client() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let case = "named_by_header";
    client(&["http", case, &format!("http://{}/mcp", served.address), &served.token], case);
}

#[test]
fn files_of_a_session() {
    check("files");
}

#[test]
fn outputs_that_are_too_large() {
    check("outputs");
}

#[test]
fn progress_is_told_and_a_timeout_keeps_what_was_printed() {
    check("progress");
}

#[test]
fn a_run_that_is_cancelled_stops() {
    check("cancel");
}

#[test]
fn people_answer_what_cells_ask() {
    check("asks");
}

#[test]
fn nobody_is_asked_who_does_not_say_that_they_answer() {
    check("mute");
}

#[test]
fn models_of_clients_answer_where_none_is_configured() {
    check("models");
}

#[test]
fn outputs_of_agents_are_resources() {
    let (_folder, path) = config("[agents.task]\ncommand = [\"python3\", \"SCRIPTS/agent.py\"]\n");
    check_with("agents", &["--config", path.to_str().expect("text")]);
}

/// Its scenarios, of the newest protocol and of the last one with sessions.
#[test]
fn the_conformance_suite_finds_what_is_noted_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(&folder.path().join("store"), &[]);
    let mut command = Command::new(node());
    command.arg(root().join("fixtures/mcp/conformance.mjs")).arg(format!("http://{}/mcp", served.address));
    let ended = run(command.arg(&served.token).arg(folder.path()));
    assert!(ended.code == 0 && ended.stdout.ends_with("ok\n"), "{}{}", ended.stdout, ended.stderr);
}

/// Runs the inspector from its command line, with a home of its own, and returns its exit code and its output.
fn inspect(home: &Path, flags: &[&str]) -> (i32, Value) {
    let script = "target/node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = Command::new(node());
    let ended = run(command.arg(root().join(script)).args(["--cli", "--format", "json"]).args(flags).env("HOME", home));
    let said = serde_json::from_str(&ended.stdout);
    (ended.code, said.unwrap_or_else(|_| json!(ended.stdout + &ended.stderr)))
}

#[test]
fn the_inspector_lists_calls_and_reads_over_both_transports() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |path: std::path::PathBuf| path.display().to_string();
    let program = cellar_with_guests(["--version"]).get_program().to_str().expect("text").to_owned();
    let [store, guests, cache] = [folder.path().join("stdio"), root().join("target/guests"), cache()].map(place);
    let served = Served::start(&folder.path().join("http"), &[]);
    let (url, token) = (format!("http://{}/mcp", served.address), format!("Authorization: Bearer {}", served.token));
    let stdio: [&str; 8] = [&program, "mcp", "--store", &store, "--guests", &guests, "--cache", &cache];
    let http = ["--transport", "http", "--server-url", &url, "--header", &token];
    for (server, era) in [(&stdio[..], "legacy"), (&stdio[..], "modern"), (&http[..], "legacy"), (&http[..], "modern")]
    {
        let ask = |flags: &[&str]| inspect(folder.path(), &[flags, &["--protocol-era", era], server].concat());
        let call = |code: &str| {
            let arguments = json!({"language": "py", "code": code}).to_string();
            ask(&["--method", "tools/call", "--tool-name", "eval", "--tool-args-json", &arguments])
        };
        // It finds nothing in the schemas that some client would not understand.
        let (code, listed) = ask(&["--method", "tools/list", "--strict"]);
        assert_eq!((code, &listed["result"]["tools"][0]["name"]), (0, &json!("eval")), "{era} {server:?}: {listed}");
        let (code, answer) = call("print(6 * 7)\nfor n in range(100_000): print(n)");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(code == 0 && text.starts_with("42"), "{era} {server:?}: {answer}");
        assert_eq!(call("1 / 0").0, 5, "{era} {server:?}: an answer that is an error");
        let uri = text.split_whitespace().find(|word| word.starts_with("artifact://")).expect("a resource");
        let (code, read) = ask(&["--method", "resources/read", "--uri", uri]);
        let whole = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
        assert!(code == 0 && whole.starts_with("42\n0\n1\n"), "{era} {server:?}: {whole:.100}");
    }
}

#[test]
fn a_token_comes_before_the_protocol() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let headers = [("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")];
    let answer = served.ask_as("cel_nothing", "POST", "/mcp", &headers, body.as_bytes());
    assert_eq!((answer.status, answer.problem().as_str()), (401, "token"));
}

#[test]
fn pages_of_this_machine_may_ask_and_others_may_not() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let ask = |origin| {
        let accept = ("Accept", "application/json, text/event-stream");
        let headers = [accept, ("Content-Type", "application/json"), ("Origin", origin)];
        served.ask("POST", "/mcp", &headers, body.as_bytes()).status
    };
    for origin in ["http://localhost", "http://localhost:5173", "http://127.0.0.1:8700", "http://[::1]:80"] {
        assert_eq!(ask(origin), 200, "{origin}");
    }
    for origin in ["http://evil.example", "http://localhost.evil.example", "null", "http://127.0.0.1.nip.io"] {
        assert_eq!(ask(origin), 403, "{origin}");
    }
}

/// Requests that name an unknown session of the protocol are served without it. Only requests that need one fail.
#[test]
fn a_session_that_is_not_known_any_more_is_done_without() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Mcp-Session-Id", "of-an-earlier-server"),
    ];
    let arguments = json!({"language": "py", "code": "6 * 7"});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "eval", "arguments": arguments}});
    let answer = served.ask("POST", "/mcp", &headers, body.to_string().as_bytes());
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("42"), "{}", answer.text());
}

/// The newest protocol, over which a run waits by a name that its client brings back.
#[test]
fn a_run_that_waits_is_gone_on_with_by_its_own_tenant_and_by_the_same_request() {
    let tenants = tenants::Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = tenants.serve();
    let ask = |token: &str, code: &str, again: Option<(&Value, Value)>| -> Value {
        let mut params = json!({"name": "eval", "arguments": {"language": "py", "code": code}});
        if let Some((state, answer)) = again {
            params["requestState"] = state.clone();
            params["inputResponses"] = json!({"input-1": answer});
        }
        served.message(token, "tools/call", params)
    };
    let code = "print(input('who? '))";
    let waits = ask(&red, code, None)["result"].clone();
    assert_eq!(waits["resultType"], "input_required", "{waits}");
    let asked = &waits["inputRequests"]["input-1"];
    assert_eq!((&asked["method"], &asked["params"]["message"]), (&json!("elicitation/create"), &json!("who?")));
    let state = &waits["requestState"];
    let answer = json!({"action": "accept", "content": {"line": "Ada"}});
    let gone = "waited for too long";
    // Nothing tells a name of another tenant from one that never was.
    let others = ask(&blue, code, Some((state, answer.clone())));
    assert_eq!(others["error"]["code"], -32602, "{others}");
    let others = words(&others);
    assert_eq!(others, words(&ask(&blue, code, Some((&json!("wait-of-nobody"), answer.clone())))));
    assert!(others.contains(gone), "{others}");
    assert!(words(&ask(&red, "print(1)", Some((state, answer.clone())))).contains(gone));
    // What is no answer is asked again.
    let again = ask(&red, code, Some((state, json!("Ada"))))["result"].clone();
    assert_eq!(again["inputRequests"], waits["inputRequests"], "{again}");
    let state = &again["requestState"];
    assert!(words(&ask(&red, code, Some((state, answer.clone())))).starts_with("Ada"));
    assert!(words(&ask(&red, code, Some((state, answer)))).contains(gone), "it is gone on with once");
}

/// Tools and resources answer another tenant as if what it asks for did not exist.
#[test]
fn tenants_see_nothing_of_each_other() {
    let tenants = tenants::Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = tenants.serve();
    let code = "open('f', 'w').write('of red')\nsecret = 1\nfor n in range(100_000): print(n)";
    let first = served.told(&red, "eval", json!({"language": "py", "code": code}));
    let found = |text: &str, begin: &str| -> String {
        let rest = &text[text.find(begin).unwrap_or_else(|| panic!("no {begin}: {text}"))..];
        rest.chars().take_while(|character| character.is_ascii_alphanumeric() || "-:/".contains(*character)).collect()
    };
    let session = found(&first, "ses-");
    let session = session.trim_end_matches(':');
    let artifact = found(&first, "artifact://");
    let snapshot = served.told(&red, "snapshot", json!({"session": session}));
    let snapshot = snapshot.split([' ', ';']).nth(1).expect("an id");
    let asks = [
        ("reset", json!({"session": session})),
        ("snapshot", json!({"session": session})),
        ("fork", json!({"session": session})),
        ("fork", json!({"snapshot": snapshot})),
        // A name that is not there opens a session of one's own.
        ("eval", json!({"session": session, "language": "py", "code": "secret"})),
        ("files", json!({"session": session, "action": "list"})),
        ("files", json!({"session": session, "action": "read", "path": "f"})),
        ("files", json!({"session": session, "action": "write", "path": "f", "text": "of blue"})),
        ("files", json!({"session": session, "action": "remove", "path": "f"})),
    ];
    let made_up = |id: &str| -> String {
        let turned: String = id.chars().rev().collect();
        id.split_once('-').map_or(turned.clone(), |(kind, _)| format!("{kind}-{}", &turned[..22]))
    };
    for (place, (tool, arguments)) in asks.into_iter().enumerate() {
        let others = served.told(&blue, tool, arguments.clone());
        let mut none = arguments.clone();
        for (member, id) in [("session", session), ("snapshot", snapshot)] {
            if none.get(member).is_some() {
                none[member] = made_up(id).into();
            }
        }
        let of_none = served.told(&blue, tool, none).replace(&made_up(session), session);
        assert_eq!(others, of_none, "{tool} {arguments}");
        assert!(!others.contains("of red"), "{tool} {arguments}: {others}");
        let said = ["no such", "NameError"][usize::from(place == 4)];
        assert!(place > 4 || others.contains(said), "{tool} {arguments}: {others}");
    }
    assert_eq!(served.told(&red, "files", json!({"session": session, "action": "read", "path": "f"})), "of red");
    let listed = |token: &str| served.message(token, "resources/list", json!({}))["result"]["resources"].clone();
    assert!(listed(&red).to_string().contains(&artifact));
    assert_eq!(listed(&blue), json!([]));
    let read = |token: &str, uri: &str| served.message(token, "resources/read", json!({"uri": uri}));
    assert!(read(&red, &artifact)["result"]["contents"][0]["text"].as_str().is_some_and(|text| text.starts_with('0')));
    assert_eq!(words(&read(&blue, &artifact)), format!("there is no `{artifact}`"));
    assert_eq!(served.told(&red, "files", json!({"session": session, "action": "read", "path": "f"})), "of red");
    assert_eq!(served.told(&red, "eval", json!({"session": session, "language": "py", "code": "secret"})), "1");
}

/// A session of the protocol is its own tenant's. Whoever ended it is told so afterwards.
#[test]
fn a_session_of_the_protocol_is_ended_by_its_tenant_alone() {
    let tenants = tenants::Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = tenants.serve();
    let accept = [("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")];
    let about =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}).to_string();
    let begun = served.ask_as(&red, "POST", "/mcp", &accept, begin.as_bytes());
    let session = begun.header("mcp-session-id").expect("a session").to_owned();
    let named = [&accept[..], &[("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")]].concat();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(served.ask_as(&red, "POST", "/mcp", &named, ready.as_bytes()).status, 202);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).to_string();
    let asked = |token: &str, method: &str| served.ask_as(token, method, "/mcp", &named, list.as_bytes()).status;
    assert_ne!(asked(&blue, "DELETE"), 204);
    assert_ne!(asked(&blue, "GET"), 200);
    assert_eq!((asked(&red, "POST"), asked(&red, "DELETE"), asked(&red, "POST")), (200, 204, 404));
}

/// Calls with the session of the protocol that `initialize` began, and what is kept of it.
#[test]
fn the_session_of_a_connection_outlives_the_server_and_ends_with_it_unless_it_was_named() {
    let tenants = tenants::Tenants::new("[tenants.red]\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let accept = ("Accept", "application/json, text/event-stream");
    let headers = [accept, ("Content-Type", "application/json")];
    let begin = |served: &Served| {
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
        let begun = served.ask_as(&red, "POST", "/mcp", &headers, body.as_bytes());
        begun.header("mcp-session-id").expect("a session").to_owned()
    };
    let eval = |served: &Served, session: &str, arguments: Value| {
        let params = json!({"name": "eval", "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string();
        let named = [&headers[..], &[("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")]].concat();
        let text = served.ask_as(&red, "POST", "/mcp", &named, body.as_bytes()).text();
        let line = text.lines().find_map(|line| line.strip_prefix("data: ").filter(|line| line.contains("\"id\"")));
        let answer: Value = serde_json::from_str(line.unwrap_or(&text)).unwrap_or_else(|_| panic!("{text}"));
        answer["result"]["structuredContent"].clone()
    };
    let end = |served: &Served, session: &str| {
        let named = [("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")];
        served.ask_as(&red, "DELETE", "/mcp", &named, b"").status
    };
    let kept = |served: &Served| -> Vec<Value> {
        let listed = served.ask_as(&red, "GET", "/v1/sessions", &[], b"").json();
        listed["sessions"].as_array().expect("a list").clone()
    };
    let served = tenants.serve();
    let (first, second) = (begin(&served), begin(&served));
    let name = eval(&served, &first, json!({"language": "js", "code": "var n = 1"}))["session"].clone();
    eval(&served, &second, json!({"language": "js", "code": "var n = 2"}));
    assert_eq!(kept(&served).len(), 2);
    let left = kept(&served)[0]["expiresAt"].as_u64().expect("an end") - now();
    assert!((23 * 3_600..=24 * 3_600).contains(&left), "{left}");
    assert_eq!(end(&served, &second), 204);
    assert_eq!(kept(&served).len(), 1, "it ends with its connection");
    // The same client goes on where it was when the server was started again.
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    let served = tenants.serve();
    let again = eval(&served, &first, json!({"language": "js", "code": "n"}));
    assert_eq!((&again["output"], &again["session"], &again["isNew"]), (&json!("1"), &name, &json!(false)), "{again}");
    // One that a call has named stays.
    let third = begin(&served);
    let own = eval(&served, &third, json!({"language": "js", "code": "var n = 3"}))["session"].clone();
    eval(&served, &third, json!({"session": own, "language": "js", "code": "n"}));
    assert_eq!(end(&served, &third), 204);
    assert!(kept(&served).iter().any(|session| session["session"] == own));
}
