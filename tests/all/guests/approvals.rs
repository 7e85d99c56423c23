//! Calls that wait for a person, who decides from another process.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Output},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{cellar, cellar_with_guests, check_shape, config, eventually, run};

const CONFIG: &str = r#"
[tools.add]
command = ["python3", "SCRIPTS/add.py"]
confirm = true
[tools.pay]
command = ["python3", "SCRIPTS/add.py"]
confirm = { required = ["a"], properties = { a = { exclusiveMinimum = 100 } } }
[agents.task]
command = ["python3", "-c", "print('{\"output\": \"done\"}')"]
confirm = true
[http]
allow = [{ host = "pay.test", confirm = true }]
[audit]
file = "audit.jsonl"
"#;

/// A store, and a configuration whose tools wait.
struct Desk {
    store: tempfile::TempDir,
    folder: tempfile::TempDir,
    config: String,
}

impl Desk {
    fn new() -> Desk {
        let (folder, path) = config(CONFIG);
        let store = tempfile::tempdir().expect("a folder");
        Desk { store, folder, config: path.to_str().expect("text").to_owned() }
    }

    fn store(&self) -> &str {
        self.store.path().to_str().expect("text")
    }

    /// Starts a cell, whose calls wait.
    fn start(&self, language: &str, code: &str, more: &[&str]) -> Waiting {
        let eval = ["eval", "-l", language, code, "--config", &self.config, "--store", self.store()];
        Waiting(Some(cellar_with_guests(eval.iter().chain(more)).spawn().expect("starts")))
    }

    fn calls(&self, arguments: &[&str]) -> crate::support::Ended {
        run(cellar(["calls"].iter().chain(arguments)).args(["--store", self.store()]))
    }

    fn waiting(&self) -> Vec<Value> {
        let listed: Value = serde_json::from_str(&self.calls(&["list", "--json"]).stdout).expect("JSON");
        check_shape("calls", &listed);
        listed["calls"].as_array().expect("calls").clone()
    }

    /// Waits until one call waits, and returns it with its id.
    fn one(&self) -> (String, Value) {
        let call = eventually("no call waits", || self.waiting().into_iter().next());
        (call["call"].as_str().expect("an id").to_owned(), call)
    }
}

/// A process that is killed when a test fails, and would wait for a day.
struct Waiting(Option<Child>);

impl Waiting {
    fn kill(mut self) {
        let mut child = self.0.take().expect("a process");
        child.kill().expect("killed");
        child.wait().expect("ends");
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
        }
    }
}

fn ended(mut child: Waiting) -> (bool, String, String) {
    let child = child.0.take().expect("a process");
    let Output { status, stdout, stderr } = child.wait_with_output().expect("ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.success(), text(stdout), text(stderr))
}

#[test]
fn a_call_waits_until_somebody_approves_edits_or_rejects_it() {
    let desk = Desk::new();
    assert_eq!(desk.calls(&["list"]).stdout, "no call waits\n");
    for (language, code) in [("py", "print(tool.add(a=1, b=2))"), ("js", "console.log(await tool.add({ a: 1, b: 2 }))")]
    {
        let child = desk.start(language, code, &[]);
        let (id, call) = desk.one();
        assert_eq!(call["arguments"], json!({"a": 1, "b": 2}));
        assert_eq!((&call["bridge"], &call["name"], &call["editable"]), (&json!("tool"), &json!("add"), &json!(true)));
        let shown = desk.calls(&["list"]).stdout;
        assert!(shown.contains(&id) && shown.contains("tool add"), "{shown}");
        assert_eq!(desk.calls(&["approve", &id]).code, 0);
        let (_, output, told) = ended(child);
        assert_eq!(output, "3\n");
        assert!(told.contains(&format!("tool `add` waits for approval: `cellar calls approve {id}`")), "{told}");
        let child = desk.start(language, code, &[]);
        let (id, _) = desk.one();
        assert_eq!(desk.calls(&["approve", &id, "--arguments", "{\"a\": 40, \"b\": 2}", "--by", "ada"]).code, 0);
        assert_eq!(ended(child).1, "42\n");
        let child = desk.start(language, code, &[]);
        let (id, _) = desk.one();
        assert_eq!(desk.calls(&["reject", &id, "--reason", "not today"]).code, 0);
        let (is_success, _, errors) = ended(child);
        assert!(!is_success && errors.contains("tool `add` was rejected: not today"), "{errors}");
    }
    let log = std::fs::read_to_string(desk.folder.path().join("audit.jsonl")).expect("the log");
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let decisions: Vec<Value> = entries.filter(|entry| entry["type"] == "decision").collect();
    decisions.iter().for_each(|decision| check_shape("audit", decision));
    let words: Vec<&str> = decisions.iter().filter_map(|decision| decision["decision"].as_str()).collect();
    assert_eq!(words, ["approved", "edited", "rejected"].repeat(2));
    assert_eq!(decisions[1]["by"], "ada");
    assert!(decisions[0]["by"].as_str().is_some_and(|by| by.starts_with("uid:")), "{decisions:?}");
    assert!(desk.waiting().is_empty());
}

#[test]
fn only_calls_that_meet_the_rule_wait() {
    let desk = Desk::new();
    assert_eq!(ended(desk.start("py", "print(tool.pay(a=100, b=1))", &[])).1, "101\n");
    let child = desk.start("py", "print(tool.pay(a=101, b=1))", &[]);
    let (id, _) = desk.one();
    for (arguments, said) in [
        (["approve", &id, "--arguments", "[1]"].as_slice(), "no JSON object"),
        (&["approve", "call-0"], "no call `call-0` waits"),
        (&["reject", "../../etc/passwd"], "no call `../../etc/passwd` waits"),
    ] {
        let refused = desk.calls(arguments);
        assert!(refused.code == 2 && refused.stderr.contains(said), "{}", refused.stderr);
    }
    assert_eq!(desk.calls(&["approve", &id]).code, 0);
    assert_eq!(ended(child).1, "102\n");
}

#[test]
fn agents_and_hosts_wait_too_and_keep_their_arguments() {
    let desk = Desk::new();
    let child = desk.start("py", "print(agent('look'))", &[]);
    let (id, call) = desk.one();
    assert_eq!((&call["arguments"]["prompt"], &call["editable"]), (&json!("look"), &json!(false)));
    let refused = desk.calls(&["approve", &id, "--arguments", "{}"]);
    assert!(refused.code == 2 && refused.stderr.contains("cannot be changed"), "{}", refused.stderr);
    assert_eq!(desk.calls(&["approve", &id]).code, 0);
    assert_eq!(ended(child).1, "done\n");
    let child = desk.start("js", "await fetch('https://pay.test/x', { method: 'POST', body: 'b' })", &[]);
    let (id, call) = desk.one();
    assert_eq!((&call["arguments"]["method"], &call["arguments"]["body"]), (&json!("POST"), &json!("b")));
    assert_eq!(desk.calls(&["reject", &id]).code, 0);
    assert!(ended(child).2.contains("was rejected"));
}

#[test]
fn calls_of_programs_that_speak_lines_wait_too() {
    let desk = Desk::new();
    let mut child = cellar_with_guests(["stdio", "--config", &desk.config, "--store", desk.store()])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let (mut input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let _child = Waiting(Some(child));
    let cells = json!([{"language": "py", "code": "tool.add(a=1, b=2)"}]);
    let run = json!({"type": "run", "id": "r", "session": "s", "cells": cells});
    let lines = [json!({"type": "open", "id": "o", "session": "s"}), run];
    lines.iter().for_each(|line| writeln!(input, "{line}").expect("it reads"));
    let (id, _) = desk.one();
    assert_eq!(desk.calls(&["approve", &id]).code, 0);
    let result =
        BufReader::new(output).lines().map(|line| line.expect("a line")).find(|line| line.contains(r#""result""#));
    let result = result.expect("a result");
    assert!(result.contains("call_waits") && result.contains(r#""text":"3""#), "{result}");
}

#[test]
fn the_time_of_people_is_not_the_cells() {
    let desk = Desk::new();
    for (language, code) in [
        ("py", "print(tool.add(a=1, b=2))"),
        ("py", "print(await tool.add.aio(a=1, b=2))"),
        ("js", "console.log(await tool.add({ a: 1, b: 2 }))"),
    ] {
        let child = desk.start(language, code, &["--timeout", "1"]);
        let (id, _) = desk.one();
        // Longer than the cell may take.
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(desk.calls(&["approve", &id]).code, 0);
        assert_eq!(ended(child).1, "3\n", "{code}");
    }
}

#[test]
fn the_calls_of_a_process_that_died_are_gone() {
    let desk = Desk::new();
    let child = desk.start("py", "tool.add(a=1, b=2)", &[]);
    let (id, _) = desk.one();
    child.kill();
    assert!(desk.calls(&["approve", &id]).stderr.contains("no call"), "it is not carried out");
    assert!(desk.waiting().is_empty());
    let left = std::fs::read_dir(Path::new(desk.store()).join(".calls")).expect("the folder");
    assert!(left.count() <= 1, "files are removed");
}
