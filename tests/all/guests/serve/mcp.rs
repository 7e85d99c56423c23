//! Cellar as an MCP server, used by the official Python SDK over both transports.

use super::*;

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
fn sessions_are_arguments() {
    check("sessions");
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

/// What only a session of the protocol can do is not done without one; all else is.
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
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let mut params = json!({"_meta": meta, "name": "eval", "arguments": {"language": "py", "code": code}});
        if let Some((state, answer)) = again {
            params["requestState"] = state.clone();
            params["inputResponses"] = json!({"input-1": answer});
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let headers = [
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "eval"),
        ];
        let answer = served.ask_as(token, "POST", "/mcp", &headers, body.as_bytes());
        let text = answer.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).find(|line| line.contains("\"id\""));
        serde_json::from_str::<Value>(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{text}"))["result"].clone()
    };
    let code = "print(input('who? '))";
    let waits = ask(&red, code, None);
    assert_eq!(waits["resultType"], "input_required", "{waits}");
    let asked = &waits["inputRequests"]["input-1"];
    assert_eq!((&asked["method"], &asked["params"]["message"]), (&json!("elicitation/create"), &json!("who?")));
    let state = &waits["requestState"];
    let answer = json!({"action": "accept", "content": {"line": "Ada"}});
    let told = |result: Value| result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned();
    let gone = "waited for too long";
    // Nothing tells a name of another tenant from one that never was.
    let others = told(ask(&blue, code, Some((state, answer.clone()))));
    assert_eq!(others, told(ask(&blue, code, Some((&json!("wait-of-nobody"), answer.clone())))));
    assert!(others.contains(gone), "{others}");
    assert!(told(ask(&red, "print(1)", Some((state, answer.clone())))).contains(gone));
    assert!(told(ask(&red, code, Some((state, answer.clone())))).starts_with("Ada"));
    assert!(told(ask(&red, code, Some((state, answer)))).contains(gone), "it is gone on with once");
}
