//! Commands of the shell, over `/v1` and as a tool of MCP.

use super::*;

const GRANTED: &str = "[session]\ncommands = true\n";

/// A server with this configuration.
fn server(text: &str) -> (Served, tempfile::TempDir) {
    let (folder, path) = config(text);
    let served = Served::start(&folder.path().join("store"), &["--config", path.to_str().expect("text")]);
    (served, folder)
}

impl Served {
    fn command(&self, session: &str, body: Value) -> Answer {
        self.post(&format!("/v1/sessions/{session}/commands"), body)
    }

    /// Runs a command to its end.
    fn came(&self, session: &str, body: Value) -> Value {
        let answer = self.command(session, body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

#[test]
fn commands_are_refused_that_are_not_granted_and_name_the_switch() {
    let (served, _folder) = server("[templates.shell.session]\ncommands = true\n");
    let session = served.session(json!({}));
    let refused = served.command(&session, json!({"command": "echo a"}));
    assert_eq!((refused.status, refused.problem().as_str()), (403, "commands"));
    assert!(refused.text().contains("commands = true"), "{}", refused.text());
    let tools = served.message(&served.token, "tools/list", json!({}))["result"]["tools"].clone();
    assert!(tools.as_array().expect("tools").iter().all(|tool| tool["name"] != "shell"), "{tools}");
    let told = served.told(&served.token, "shell", json!({"command": "echo a"}));
    assert!(told.contains("commands = true"), "{told}");
    let sandbox = served.ask("POST", "/e2b/v2/sandboxes", &[], b"{}").json()["sandboxID"].clone();
    let named = [("E2b-Sandbox-Id", sandbox.as_str().expect("an id"))];
    for procedure in ["Start", "List"] {
        let path = format!("/e2b/process.Process/{procedure}");
        let answer = served.ask("POST", &path, &named, b"\0\0\0\0\x02{}");
        assert!(answer.text().contains("permission_denied"), "{}", answer.text());
        assert!(answer.text().contains("commands = true"), "{}", answer.text());
    }
    // A template grants what the rest is not granted.
    let session = served.session(json!({"template": "shell"}));
    assert_eq!(served.came(&session, json!({"command": "echo a"}))["stdout"], "a\n");
}

#[test]
fn a_command_comes_to_a_status_and_its_output() {
    let (served, _folder) = server(GRANTED);
    let session = served.session(json!({"environment": {"STAGE": "test"}}));
    served.run(&session, "py", "import os; os.mkdir('sub'); open('sub/a.txt', 'w').write('b a')");
    let came = served.came(
        &session,
        json!({"command": "echo $STAGE $MORE; cat - a.txt | tr a-z A-Z; echo oops >&2; exit 3", "cwd": "sub",
               "environment": {"MORE": "more"}, "stdin": "typed "}),
    );
    assert_eq!(came["stdout"], "test more\nTYPED B A", "{came}");
    assert_eq!((&came["exitCode"], &came["stderr"], &came["error"]), (&json!(3), &json!("oops\n"), &Value::Null));
    // Its run can be looked at as any other.
    let shown = served.get(&format!("/v1/runs/{}", came["run"].as_str().expect("a run"))).json();
    assert_eq!(shown["session"], session.as_str(), "{shown}");
    let late = served.came(&session, json!({"command": "echo begun; sleep 600", "timeout": 1}));
    assert_eq!((&late["exitCode"], &late["stdout"]), (&Value::Null, &json!("begun\n")), "{late}");
    assert!(late["error"].as_str().expect("words").contains("past the time"), "{late}");
    for (body, status) in [
        (json!({}), 400),
        (json!({"command": " "}), 400),
        (json!({"command": "ls", "cwd": "none"}), 400),
        (json!({"command": "ls", "cwd": "../.."}), 400),
        (json!({"command": "ls", "environment": {"A=B": "c"}}), 400),
        (json!({"command": "ls", "user": "root"}), 400),
    ] {
        assert_eq!(served.command(&session, body.clone()).status, status, "{body}");
    }
    assert_eq!(served.command("none", json!({"command": "ls"})).status, 404);
}

#[test]
fn long_output_is_cut_and_an_artifact_has_all_of_it() {
    let (served, _folder) = server(GRANTED);
    let session = served.session(json!({}));
    let came = served.came(&session, json!({"command": "seq 1 200000; echo end"}));
    let stdout = came["stdout"].as_str().expect("text");
    assert!(
        stdout.starts_with("1\n2\n") && stdout.ends_with("200000\nend\n") && stdout.len() < 200_000,
        "{}",
        stdout.len()
    );
    assert_eq!(came["isCut"], true);
    let uri = came["artifact"]["uri"].as_str().expect("an artifact");
    let id = uri.strip_prefix("artifact://").expect("an address");
    let whole = served.get(&format!("/v1/artifacts/{id}"));
    assert_eq!(whole.text().lines().count(), 200_001, "{}", whole.head);
}

#[test]
fn a_command_is_a_stream_that_comes_as_it_is_written_and_is_cancelled() {
    let (served, _folder) = server(GRANTED);
    let session = served.session(json!({}));
    let path = format!("/v1/sessions/{session}/commands");
    let body = json!({"command": "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last"}).to_string();
    let mut stream = served.connect();
    served.send(&mut stream, &served.token, "POST", &path, &[("Accept", "text/event-stream")], body.as_bytes());
    let mut events = Events::new(stream);
    let mut stdout = || loop {
        let (_, event) = events.next().expect("an event");
        if event["type"] == "stdout" {
            return event["text"].as_str().expect("text").to_owned();
        }
    };
    assert_eq!(stdout(), "first\n");
    served.run(&session, "py", "open('go', 'w').close()");
    assert_eq!(stdout(), "last\n");
    // One that goes on by itself is cancelled by its run.
    let endless = json!({"command": "while true; do :; done"}).to_string();
    let begun = served.ask("POST", &path, &[("Prefer", "respond-async")], endless.as_bytes());
    assert_eq!(begun.status, 202, "{}", begun.text());
    let run = begun.json()["run"].as_str().expect("a run").to_owned();
    assert_eq!(served.ask("POST", &format!("/v1/runs/{run}/cancel"), &[], b"").status, 204);
    let ended = served.get(&format!("/v1/runs/{run}?wait=60")).json();
    assert_eq!(ended["status"], "error", "{ended}");
}

#[test]
fn the_same_key_runs_a_command_once() {
    let (served, _folder) = server(GRANTED);
    let session = served.session(json!({}));
    let path = format!("/v1/sessions/{session}/commands");
    let body = json!({"command": "echo x >> count; wc -l < count"}).to_string();
    let ask = || served.ask("POST", &path, &[("Idempotency-Key", "k-1")], body.as_bytes()).json();
    let (first, again) = (ask(), ask());
    assert_eq!((&first["run"], first["stdout"].as_str().map(str::trim)), (&again["run"], Some("1")));
    assert_eq!(first["stdout"], again["stdout"]);
}

#[test]
fn the_tool_shell_runs_commands_in_the_session() {
    let (served, _folder) = server(GRANTED);
    let tools = served.message(&served.token, "tools/list", json!({}))["result"]["tools"].clone();
    let tool = tools.as_array().expect("tools").iter().find(|tool| tool["name"] == "shell").expect("shell").clone();
    assert_eq!(tool["inputSchema"]["required"], json!(["command"]));
    let call = |arguments: Value| {
        served.message(&served.token, "tools/call", json!({"name": "shell", "arguments": arguments}))
    };
    served.told(
        &served.token,
        "eval",
        json!({"session": "s", "language": "py", "code": "open('a', 'w').write('of a cell')"}),
    );
    let answer = call(json!({"session": "s", "command": "cat a -; echo; echo err >&2; exit 4", "stdin": " typed"}));
    let result = &answer["result"];
    assert_eq!(result["structuredContent"]["exitCode"], 4, "{answer}");
    let schema = jsonschema::validator_for(&tool["outputSchema"]).expect("a schema");
    assert!(schema.is_valid(&result["structuredContent"]), "{answer}");
    let text = result["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("of a cell typed\nerr\n") && text.contains("exit status 4"), "{text}");
    assert_eq!(result["isError"], true);
    let fine = call(json!({"session": "s", "command": "echo fine"}));
    assert_eq!(fine["result"]["content"][0]["text"], "fine\n", "{fine}");
}
