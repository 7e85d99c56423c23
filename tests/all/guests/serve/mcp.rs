//! Cellar as an MCP server, used by the official Python SDK over both transports.

use super::*;

fn client(arguments: &[&str], case: &str) {
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
    let store = tempfile::tempdir().expect("a folder");
    let folder = store.path().join("stdio");
    let program = cellar(["--version"]).get_program().to_str().expect("text").to_owned();
    client(&["stdio", case, &program, "mcp", "--store", folder.to_str().expect("text")], case);
    let served = Served::start(&store.path().join("http"), &[]);
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

/// Over HTTP a run is stopped when the stream of its answer is closed, which this client does not do.
#[test]
fn a_run_that_is_cancelled_stops() {
    let store = tempfile::tempdir().expect("a folder");
    let program = cellar(["--version"]).get_program().to_str().expect("text").to_owned();
    client(&["stdio", "cancel", &program, "mcp", "--store", store.path().to_str().expect("text")], "cancel");
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
