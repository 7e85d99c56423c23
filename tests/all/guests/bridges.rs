//! Tools, models and agents, called from cells: real commands, a real service, a real shared session.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Held, cellar_with_guests, config, result_of, result_of_run, root, run, run_with_input, text};

/// Every script of `fixtures/bridges`, granted. `nap` is over when twenty calls are under way.
const CONFIG: &str = r#"
[tools.add]
command = ["python3", "SCRIPTS/add.py"]
description = "adds"
[tools.add.schema]
type = "object"
required = ["a", "b"]
[tools.add.schema.properties]
a = { type = "number" }
b = { type = "number" }
[tools.fail]
command = ["python3", "SCRIPTS/fail.py"]
[tools.slow]
command = ["python3", "SCRIPTS/slow.py"]
[tools.nap]
command = ["/bin/sh", "-c", "touch here/$$; until [ $(ls here | wc -l) -ge 20 ]; do sleep 0.05; done; echo 1"]
[agents.task]
command = ["python3", "SCRIPTS/agent.py"]
[agents.task.environment]
CELLAR = "PROGRAM"
"#;

fn granted() -> (tempfile::TempDir, String) {
    let (folder, path) = config(&CONFIG.replace("PROGRAM", env!("CARGO_BIN_EXE_cellar")));
    std::fs::create_dir(folder.path().join("here")).expect("a folder");
    (folder, path.to_str().expect("text").to_owned())
}

/// Runs cells with everything granted, and returns the combined text.
fn text_with_bridges(language: &str, cells: &[&str]) -> String {
    let (_folder, path) = granted();
    text(&result_of(language, cells, &["--config", &path])).to_owned()
}

/// The failure of the last cell.
fn failure(result: &Value) -> &Value {
    let cells = result["details"]["cells"].as_array().expect("cells");
    &cells.last().expect("a cell")["error"]
}

#[test]
fn a_tool_is_called_from_both_languages() {
    assert_eq!(text_with_bridges("py", &["print(tool.add(a=1, b=2.5))"]), "3.5");
    assert_eq!(text_with_bridges("py", &["print(await tool.add.aio(a=1, b=2))"]), "3");
    assert_eq!(text_with_bridges("js", &["print(await tool.add({a: 1, b: 2.5}))"]), "3.5");
}

#[test]
fn a_call_is_told_by_events() {
    let (_folder, path) = granted();
    let mut command = cellar_with_guests(["eval", "-l", "py", "tool.add(a=1, b=2)", "--events", "--config", &path]);
    let ended = run(&mut command);
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_type = |name: &str| events.iter().find(|event| event["type"] == name).expect(name);
    assert_eq!((&of_type("call_started")["bridge"], &of_type("call_started")["name"]), (&json!("tool"), &json!("add")));
    assert_eq!(of_type("call_finished")["error"], Value::Null);
    assert_eq!(of_type("call_finished")["call"], of_type("call_started")["call"]);
}

#[test]
fn a_tool_that_fails_raises_with_its_name_and_its_last_words() {
    let (_folder, path) = granted();
    for (language, code) in [("py", "tool.fail()"), ("js", "await tool.fail()")] {
        let result = result_of(language, &[code], &["--config", &path]);
        let message = failure(&result)["message"].as_str().expect("a message");
        assert!(message.contains("tool `fail` failed with exit status 3"), "{message}");
        assert!(message.contains("the disk is on fire"), "{message}");
        assert_eq!(failure(&result)["kind"], "raised");
    }
}

#[test]
fn a_tool_that_was_not_granted_is_unknown_and_named() {
    let (_folder, path) = granted();
    for (language, code) in [("py", "tool.nothing()"), ("js", "await tool.nothing()")] {
        let result = result_of(language, &[code], &["--config", &path]);
        let message = failure(&result)["message"].as_str().expect("a message");
        assert!(message.contains("no tool named `nothing`"), "{message}");
        let result = result_of(language, &[code], &[]);
        let message = failure(&result)["message"].as_str().expect("a message");
        assert!(message.contains("no tool named `nothing`"), "{message}");
    }
}

#[test]
fn arguments_that_do_not_fit_the_schema_are_refused() {
    let (_folder, path) = granted();
    let result = result_of("py", &["tool.add(a='x', b=1)"], &["--config", &path]);
    let message = failure(&result)["message"].as_str().expect("a message");
    assert!(message.contains("the arguments do not fit its schema"), "{message}");
}

#[test]
fn concurrent_calls_overlap() {
    let code = "import asyncio\nprint(sum(await asyncio.gather(*[tool.nap.aio() for _ in range(20)])))";
    assert_eq!(text_with_bridges("py", &[code]), "20");
    let code = "const all = await Promise.all(Array.from({length: 20}, () => tool.nap()));\nprint(all.length)";
    assert_eq!(text_with_bridges("js", &[code]), "20");
}

#[test]
fn a_timeout_ends_the_call_and_its_command() {
    let (folder, path) = granted();
    let mark = folder.path().join("mark");
    let held = Held::new(folder.path().join("held"));
    let path_text = |path: &Path| path.to_str().expect("text").to_owned();
    let code = format!("tool.slow(seconds=2.5, mark={:?}, held={:?})", path_text(&mark), path_text(&held.path));
    let request = json!({"cells": [{"language": "py", "code": code, "timeout": 1}]});
    let result = result_of_run(&request, &["--config", &path]);
    assert_eq!(failure(&result)["kind"], "timeout");
    held.until_gone();
    assert!(!mark.exists(), "the command outlived its call");
}

#[test]
fn an_agent_is_told_what_it_was_asked() {
    let cell = "import json\nrequest = json.loads(agent('request', context='c', label='l', model='m'))\n\
                print([request[key] for key in ('prompt', 'context', 'label', 'model', 'schema', 'depth')])\n\
                print(bool(request['session']))";
    assert_eq!(text_with_bridges("py", &[cell]), "['request', 'c', 'l', 'm', None, 1]\nTrue");
}

#[test]
fn an_agent_shares_the_session_both_ways() {
    let cells = ["x = 40", "print(agent('run x + 2'))", "_ = agent('run y = x * 2')", "print(y)"];
    assert_eq!(text_with_bridges("py", &cells), "[2/4]\n42\n\n[4/4]\n80");
    let cells = ["x = 1", "print(agent('eval x = x + 1; print(x)').strip(), x)"];
    assert_eq!(text_with_bridges("py", &cells), "[2/2]\n2 2");
    let file = "print(agent('file x = 7').strip(), x)";
    assert_eq!(text_with_bridges("py", &[file]), " 7");
}

/// However a function that asks an agent is called, the agent's cells run meanwhile, and `def`, `class` and names of earlier
/// cells count.
#[test]
fn an_agent_that_is_asked_in_a_function_shares_the_session() {
    let ways = [
        ("def ask(p):\n    return agent(p)", "ask('run 1 + 1')"),
        ("class A:\n    def ask(self, p):\n        return agent(p)\na = A()", "a.ask('run 1 + 1')"),
        ("class B:\n    def __init__(self, p):\n        self.text = agent(p)", "B('run 1 + 1').text"),
        ("def make():\n    def inner(p):\n        return agent(p)\n    return inner\nf = make()", "f('run 1 + 1')"),
        ("import functools\n@functools.cache\ndef ask(p):\n    return agent(p)", "ask('run 1 + 1')"),
        ("ask = lambda p: agent(p)", "next(map(ask, ['run 1 + 1']))"),
        ("def ask(p):\n    return agent(p)", "list(map(ask, ['run 1 + 1']))[0]"),
        ("def ask(p):\n    return agent(p)", "''.join(ask(p) for p in ['run 1 + 1'])"),
        ("def ask(p):\n    return agent(p)\ndef outer(p):\n    return ask(p)", "sorted([outer('run 1 + 1')])[0]"),
        ("import functools\nask = functools.partial(agent, 'run 1 + 1')", "ask()"),
        ("class A:\n    def ask(self):\n        return agent('run 1 + 1')\na = A()", "parallel([a.ask, a.ask])[1]"),
    ];
    for (definition, call) in ways {
        assert_eq!(
            text_with_bridges("py", &[definition, &format!("print({call})")]),
            "[2/2]\n2",
            "{definition}\n{call}"
        );
    }
}

#[test]
fn the_session_of_an_agent_is_private_and_ends_with_the_agent() {
    let told = text_with_bridges("py", &["print(agent('socket'))"]);
    let (modes, path) = told.split_once(' ').expect("modes and a path");
    // Nobody else comes into its folder.
    assert!(modes.starts_with("700:"), "{modes}");
    assert!(!Path::new(path).exists(), "{path} outlived its agent");
}

#[test]
fn an_agent_that_is_not_valid_is_told_so() {
    let told = text_with_bridges("py", &["print(agent('malformed'))"]);
    assert!(told.contains("$.cells[0].language: expected \"py\" or \"js\", found \"ruby\""), "{told}");
}

#[test]
fn an_agent_with_a_schema_gives_an_object() {
    let schema = "{'type': 'object', 'properties': {'answer': {'type': 'integer'}}, 'required': ['answer']}";
    let object = format!("print(agent('object 42', schema={schema})['answer'] + 1)");
    assert_eq!(text_with_bridges("py", &[&object]), "43");
    let (_folder, path) = granted();
    for prompt in ["text many", "request"] {
        let result = result_of("py", &[&format!("agent({prompt:?}, schema={schema})")], &["--config", &path]);
        let message = failure(&result)["message"].as_str().expect("a message");
        assert!(message.contains("agent `task` gave no object of the schema"), "{message}");
    }
}

#[test]
fn an_agent_that_fails_raises() {
    let (_folder, path) = granted();
    let check = |code: &str, expected: &str| {
        let result = result_of("py", &[code], &["--config", &path]);
        let message = failure(&result)["message"].as_str().expect("a message");
        assert!(message.contains(expected), "{message}");
    };
    check("agent('dance')", "agent `task` failed with exit status 1:\nthis agent does not know how to dance");
    check("agent('nothing')", "agent `task` printed no `output`");
    check("agent('run 1', agent_type='other')", "no agent named `other`");
}

#[test]
fn agents_are_three_deep_at_most() {
    let told = text_with_bridges("py", &["print(agent('deeper'))"]);
    assert!(told.contains("agent `task` would be nested 4 deep, at most 3 are allowed"), "{told}");
}

/// The service of `fixtures/bridges/llm_server.py`.
pub(crate) struct Service(Child, pub(crate) String);

impl Service {
    pub(crate) fn start() -> Service {
        let script = root().join("fixtures/bridges/llm_server.py");
        let mut process = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut port).expect("a port");
        let endpoint = format!("http://127.0.0.1:{}/v1", port.trim());
        Service(process, endpoint)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_model_is_asked_from_both_languages_and_the_key_stays_outside() {
    let service = Service::start();
    let text = format!(
        "[llm]\nendpoint = \"{}\"\napi_key_env = \"CELLAR_LLM_KEY\"\n[llm.tiers]\nsmol = \"small\"\ndefault = \"medium\"\n",
        service.1
    );
    let (_folder, path) = config(&text);
    let cells = |language: &str, code: &str| {
        let request = json!({"cells": [{"language": language, "code": code}]}).to_string();
        let mut command = cellar_with_guests(["run", "-", "--json", "--config"]);
        command.arg(&path as &Path).env("CELLAR_LLM_KEY", "sk-very-secret");
        let ended = run_with_input(&mut command, request.as_bytes());
        assert!(!ended.stdout.contains("sk-very-secret") && !ended.stderr.contains("sk-very-secret"));
        serde_json::from_str::<Value>(&ended.stdout).expect("a result")
    };
    let schema = "{'type': 'object', 'properties': {'n': {'type': 'integer'}}}";
    let python = format!(
        "import json\nprint(llm('echo hello'))\nprint(json.loads(llm('request', model='smol', system='s'))['model'])\n\
         print(llm('tool {{\"n\": 41}}', schema={schema})['n'] + 1)"
    );
    assert_eq!(crate::support::text(&cells("py", &python)), "hello\nsmall\n42");
    let javascript = format!("print((await llm('tool {{\"n\": 41}}', {{schema: {schema}}})).n + 1)");
    assert_eq!(crate::support::text(&cells("js", &javascript)), "42");
    let refused = cells("py", "llm('key')");
    assert!(failure(&refused)["message"].as_str().expect("a message").contains("the key was Bearer ***"));
    let unknown = cells("py", "llm('echo', model='slow')");
    assert!(failure(&unknown)["message"].as_str().expect("a message").contains("no model is set for tier"));
}

#[test]
fn a_model_that_was_not_granted_says_how_to_grant_it() {
    let result = result_of("py", &["llm('hello')"], &[]);
    let message = failure(&result)["message"].as_str().expect("a message");
    assert!(message.contains("no language model is granted; set [llm] endpoint and [llm.tiers]"), "{message}");
}

/// Runs cells with nothing but a model configured, and returns the result.
fn with_model(service: &Service, cells: &Value, flags: &[&str]) -> Value {
    let (_folder, path) = config(&format!("[llm]\nendpoint = \"{}\"\n[llm.tiers]\ndefault = \"medium\"\n", service.1));
    let mut command = cellar_with_guests(["run", "-", "--json", "--config"]);
    let ended = run_with_input(command.arg(&path as &Path).args(flags), json!({"cells": cells}).to_string().as_bytes());
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr))
}

/// The prompt by which the model of the service does these steps.
pub(crate) fn script(steps: &Value) -> String {
    json!(format!("script {steps}")).to_string()
}

#[test]
fn an_agent_is_there_with_nothing_but_a_model() {
    let service = Service::start();
    let ask = |language: &str, code: &str| {
        script(&json!([{"eval": [{"language": language, "code": code}]}, {"say": "the sum is LAST"}]))
    };
    let python = ask("py", "total = sum(rows)\ntotal");
    let javascript = ask("js", "var total = rows.reduce((a, b) => a + b); total");
    let cells = json!([
        {"language": "py", "code": "rows = [1, 2, 3]"},
        {"language": "py", "code": format!("agent({python})")},
        {"language": "py", "code": "total, output('task')"},
        {"language": "js", "code": "var rows = [4, 5]"},
        {"language": "js", "code": format!("await agent({javascript})")},
        {"language": "js", "code": "total"},
    ]);
    let result = with_model(&service, &cells, &[]);
    let output = |index: usize| result["details"]["cells"][index]["output"].as_str().unwrap_or_default().to_owned();
    assert_eq!([1, 2, 4, 5].map(output), ["'the sum is 6'", "(6, 'the sum is 6')", "the sum is 9", "9"], "{result}");
}

#[test]
fn the_bundled_agent_ends_with_its_cell_is_nested_and_asks_nobody() {
    let service = Service::start();
    let eval = |code: &str| json!([{"eval": [{"language": "py", "code": code}]}, {"say": "LAST"}]);
    let cell = |steps: &Value| json!({"language": "py", "code": format!("agent({})", script(steps)), "timeout": 20});
    let mut endless = cell(&eval("while True: pass"));
    endless["timeout"] = 1.into();
    let result = with_model(&service, &json!([endless]), &[]);
    assert_eq!(result["details"]["cells"][0]["error"]["kind"], "timeout", "{result}");
    let nested = eval(&format!("agent({})", script(&eval("6 * 7"))));
    let result = with_model(&service, &json!([cell(&nested)]), &[]);
    assert!(crate::support::text(&result).contains("42"), "{result}");
    // The cell of an agent has nobody who could answer, whatever its session has.
    let result = with_model(&service, &json!([cell(&eval("input('name?')"))]), &["--input"]);
    assert!(crate::support::text(&result).contains("StdinNotImplementedError"), "{result}");
    let off = with_model(&service, &json!([{"language": "py", "code": "agent('echo 1', agent_type='other')"}]), &[]);
    assert!(crate::support::text(&off).contains("no agent named `other`"), "{off}");
}
