//! A server whose process is confined: what it says of that, what the kernel says, and that nothing is missed.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::Served;
use crate::support::config;

/// The lines of `/proc/PID/status` that begin so.
fn status(served: &Served, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", served.process.id())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim_start_matches(':').trim().to_owned()
}

fn isolation(served: &Served) -> Value {
    served.get("/v1/tenant").json()["isolation"].clone()
}

/// A server with this configuration, and folders of its own.
fn serve(text: &str) -> (tempfile::TempDir, Served) {
    let (folder, path) = config(text);
    fs::create_dir(folder.path().join("data")).expect("a folder");
    fs::write(folder.path().join("data/a.txt"), "text").expect("written");
    fs::create_dir(folder.path().join("out")).expect("a folder");
    let served = Served::start(&folder.path().join("store"), &["--config", path.to_str().expect("text")]);
    (folder, served)
}

#[test]
fn a_server_is_confined_unless_it_says_otherwise_and_tells() {
    let (_folder, served) = serve("");
    assert_eq!((status(&served, "NoNewPrivs").as_str(), status(&served, "Seccomp").as_str()), ("1", "2"));
    let told = isolation(&served);
    assert!(told["landlock"].as_u64().is_some_and(|version| (1..=6).contains(&version)), "{told}");
    assert_eq!((&told["seccomp"], &told["connects"]), (&json!(true), &json!([])));
    drop(served);
    let (_folder, served) = serve("[server]\nisolate = \"process\"\n[http]\nallow = [{ host = \"example.com\" }]\n");
    assert_eq!(isolation(&served)["connects"], json!(["http"]));
    drop(served);
    let (_folder, served) = serve("[server]\nisolate = \"none\"\n");
    assert_eq!(status(&served, "Seccomp"), "0");
    assert_eq!(isolation(&served), json!({"landlock": null, "seccomp": false, "connects": [], "ownProcess": false}));
}

#[test]
fn a_confined_server_does_all_that_it_is_granted() {
    let text = r#"
[mounts]
"/granted" = "data"
"/out" = { host = "out", write = true }
[tools.add]
command = ["python3", "SCRIPTS/add.py"]
[tools.variable]
command = ["/bin/sh", "-c", "echo \"\\\"$GIVEN\\\"\""]
environment = { GIVEN = "given" }
[audit]
file = "audit/log.jsonl"
"#;
    let (folder, path) = config(text);
    for name in ["data", "out", "audit"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    fs::write(folder.path().join("data/a.txt"), "text").expect("written");
    let store = folder.path().join("store");
    let served = Served::start(&store, &["--config", path.to_str().expect("text")]);
    assert_eq!(status(&served, "Seccomp"), "2");
    let session = served.session(json!({}));
    let run = |language: &str, code: &str| served.run(&session, language, code);
    assert_eq!(run("py", "print(tool.add(a=1, b=2), tool.variable())"), "3 given");
    assert_eq!(run("py", "print(open('/granted/a.txt').read())"), "text");
    assert_eq!(run("py", "open('/out/b.txt', 'w').write('b'); open('c.txt', 'w').write('c'); print(1)"), "1");
    assert_eq!(run("js", "print(await tool.add({a: 1, b: 2}))"), "3");
    assert_eq!(fs::read_to_string(folder.path().join("out/b.txt")).expect("written"), "b");
    // A chart is drawn by a program, and threads of cells are started.
    let chart = r#"display({"application/vnd.vegalite.v5+json": {"mark": "point", "data": {"values": [{"a": 1}]},
"encoding": {"x": {"field": "a", "type": "quantitative"}}}}, raw=True)"#;
    let answer = served.post(&format!("/v1/sessions/{session}/runs"), super::cell("py", chart));
    let shown = answer.json()["content"].to_string();
    assert!(shown.contains("image/png"), "{shown}");
    assert_eq!(run("py", "import threading; t = threading.Thread(target=print, args=(2,)); t.start(); t.join()"), "2");
    assert!(fs::read_to_string(folder.path().join("audit/log.jsonl")).expect("a log").lines().count() > 3);
    // What is kept is found again by another one.
    drop(served);
    let served = Served::start(&store, &["--config", path.to_str().expect("text")]);
    assert_eq!(served.run(&session, "py", "print(open('c.txt').read())"), "c");
}

/// The processes that a server has started.
fn children(served: &Served) -> Vec<String> {
    let id = served.process.id();
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("it runs");
    listed.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_server_whose_helper_is_gone_serves_what_needs_none() {
    let (_folder, served) = serve("[tools.add]\ncommand = [\"python3\", \"SCRIPTS/add.py\"]\n");
    let session = served.session(json!({}));
    assert_eq!(served.run(&session, "py", "print(tool.add(a=1, b=2))"), "3");
    let helpers = children(&served);
    let [helper] = &helpers[..] else { panic!("one helper: {helpers:?}") };
    assert!(Command::new("kill").args(["-9", helper]).status().expect("kill").success());
    let said = served.run(&session, "py", "try:\n    tool.add(a=1, b=2)\nexcept ToolError as error:\n    print(error)");
    assert_eq!(said, "tool `add` cannot be started: the helper that starts processes is gone");
    assert_eq!(served.run(&session, "py", "print(6 * 7)"), "42");
}

#[test]
fn what_a_server_leaves_ends_with_it() {
    let (_folder, served) = serve("[tools.nap]\ncommand = [\"/bin/sleep\", \"1000\"]\n");
    let helpers = children(&served);
    served.signal("-KILL");
    drop(served);
    while helpers.iter().any(|helper| is_helper(helper)) {
        std::thread::yield_now();
    }
}

/// Returns true if this process is still a helper of Cellar's.
fn is_helper(process: &str) -> bool {
    let line = fs::read(Path::new("/proc").join(process).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("help-start")
}
