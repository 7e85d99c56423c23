//! Sessions that outlive their processes: `--session`, `cellar session`, and `kill -9`.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ended, cellar_with_guests, check_shape, run};

fn store() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn with_store(store: &Path, arguments: &[&str]) -> Command {
    let store = store.to_str().expect("text");
    cellar_with_guests([&["--store", store], arguments].concat())
}

fn cellar(store: &TempDir, arguments: &[&str]) -> Ended {
    run(&mut with_store(store.path(), arguments))
}

/// Runs a command that succeeds, and returns what it printed.
fn ok(store: &TempDir, arguments: &[&str]) -> String {
    let ended = cellar(store, arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout.trim_end().to_owned()
}

/// Runs a command that is refused, and returns why.
fn refused(store: &TempDir, arguments: &[&str]) -> String {
    let ended = cellar(store, arguments);
    assert_eq!(ended.code, 2, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stderr
}

fn eval(store: &TempDir, session: &str, language: &str, code: &str) -> String {
    ok(store, &["eval", "--session", session, "-l", language, code])
}

/// However a cell has left its interpreter, the next process has a session that answers.
#[test]
fn what_wedges_a_session_does_not_outlast_its_process() {
    let wedges = [
        "kept = []\ntry:\n    while True: kept.append(object())\nexcept MemoryError: pass",
        "import asyncio\ncalls = [asyncio.ensure_future(llm.aio('x')) for _ in range(20_000)]",
        "import builtins, sys\nfor name in list(vars(builtins)): setattr(builtins, name, None)",
        "import sys\nfor module in list(sys.modules.values()):\n    try: vars(module).clear()\n    except Exception: pass",
        "import sys\nsys.stdout = sys.stderr = None\ndef refuse(*args): raise RuntimeError('no')\nsys.addaudithook(refuse)",
        "import gc, sys\nsys.meta_path.clear(); sys.path_hooks.clear(); sys.path.clear(); gc.disable()",
    ];
    let store = store();
    for (number, wedge) in wedges.iter().enumerate() {
        let name = format!("wedged-{number}");
        let flags = ["eval", "--session", &name, "--memory", "96", "--timeout", "20", "-l", "py"];
        // It may fail, and say so.
        cellar(&store, &[&flags[..], &[wedge]].concat());
        for _ in 0..2 {
            assert_eq!(ok(&store, &[&flags[..], &["print('alive')"]].concat()), "alive", "{wedge}");
        }
    }
}

#[test]
fn a_session_goes_on_in_the_next_process() {
    let store = store();
    eval(&store, "a", "py", "def numbers():\n    yield from range(9)\nit = numbers()\nnext(it)");
    eval(&store, "a", "js", "let n = 1; const up = () => ++n;");
    assert_eq!(eval(&store, "a", "py", "next(it)"), "1");
    assert_eq!(eval(&store, "a", "js", "up()"), "2");
    assert_eq!(eval(&store, "a", "py", "next(it)"), "2");
    assert_eq!(eval(&store, "a", "js", "up()"), "3");
    // Files of the private workspace stay too, and so does an open one.
    eval(&store, "a", "py", "f = open('notes.txt', 'w'); f.write('one'); f.flush()");
    eval(&store, "a", "py", "f.write(' two'); f.close()");
    assert_eq!(eval(&store, "a", "js", "await read('notes.txt')"), "one two");
    // A cell that fails leaves what it did before.
    let failed = cellar(&store, &["eval", "--session", "a", "-l", "py", "kept = 1\n1 / 0"]);
    assert_eq!(failed.code, 1);
    assert_eq!(eval(&store, "a", "py", "kept"), "1");
}

#[test]
fn what_is_granted_now_is_seen_by_a_session_that_goes_on() {
    let store = store();
    eval(&store, "a", "py", "import os; x = 5");
    let seen = ok(&store, &["eval", "--session", "a", "--env", "WHO=Ada", "-l", "py", "x, os.environ['WHO']"]);
    assert_eq!(seen, "(5, 'Ada')");
}

#[test]
fn sessions_are_listed_forked_restored_and_removed() {
    let store = store();
    assert!(ok(&store, &["session", "list"]).starts_with("no sessions are kept; "));
    eval(&store, "a", "py", "import random; x = 1; open('f', 'w').write('mine')");
    let snapshot = store.path().join("file.snapshot");
    let snapshot = snapshot.to_str().expect("text");
    ok(&store, &["session", "snapshot", "a", snapshot]);
    ok(&store, &["session", "fork", "a", "b"]);
    assert_eq!(eval(&store, "b", "py", "x, open('f').read()"), "(1, 'mine')");
    eval(&store, "b", "py", "x = 2");
    assert_eq!(eval(&store, "a", "py", "x"), "1");
    assert_ne!(eval(&store, "a", "py", "random.random()"), eval(&store, "b", "py", "random.random()"));

    ok(&store, &["session", "restore", snapshot, "c"]);
    assert_eq!(eval(&store, "c", "py", "x"), "1");
    let drawn = eval(&store, "c", "py", "random.random()");
    ok(&store, &["session", "restore", "--force", snapshot, "c"]);
    assert_ne!(eval(&store, "c", "py", "random.random()"), drawn);
    eval(&store, "a", "py", "x = 3");
    ok(&store, &["session", "restore", "--force", snapshot]);
    assert_eq!(eval(&store, "a", "py", "x"), "1");

    let list: Value = serde_json::from_str(&ok(&store, &["session", "list", "--json"])).expect("JSON");
    check_shape("sessions", &list);
    let names: Vec<&str> = list.as_array().expect("a list").iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!((&list[0]["languages"][0], &list[0]["isLive"]), (&"py".into(), &false.into()));
    assert!(list[0]["stateBytes"].as_u64().expect("a size") < 400_000, "{list}");
    assert_eq!(ok(&store, &["session", "list"]).lines().count(), 4);
    ok(&store, &["session", "remove", "b", "c"]);
    assert_eq!(ok(&store, &["session", "list"]).lines().count(), 2);
}

/// The names that these commands had before are not shown any more, and do the same.
#[test]
fn former_names_of_the_commands_do_the_same() {
    let outcome = |verbs: [&[&str]; 5]| {
        let [list, snapshot, restore, fork, remove] = verbs;
        let store = store();
        ok(&store, &["eval", "--session", "a", "--producer", "me", "-l", "js", "var x = 1"]);
        let file = store.path().join("file.snapshot");
        let file = file.to_str().expect("text");
        ok(&store, &[snapshot, &["a", file]].concat());
        ok(&store, &[restore, &[file, "b"]].concat());
        ok(&store, &[fork, &["a", "c"]].concat());
        ok(&store, &[remove, &["b"]].concat());
        let missing = refused(&store, &[remove, &["b"]].concat());
        let mut listed: Value = serde_json::from_str(&ok(&store, &[list, &["--json"]].concat())).expect("JSON");
        // Times, and how well a state could be packed, differ.
        for session in listed.as_array_mut().expect("a list") {
            session["storedAt"] = Value::Null;
            session["stateBytes"] = Value::Null;
        }
        let origin: &[&str] = if list.len() == 1 { &["origin"] } else { &["session", "origin"] };
        let origin: Value = serde_json::from_str(&ok(&store, &[origin, &["c", "--json"]].concat())).expect("JSON");
        assert_eq!(origin["origins"][0]["origin"]["producer"], "me", "{origin}");
        (listed, missing)
    };
    let [snapshot, restore, fork, remove]: [&[&str]; 4] =
        [&["session", "snapshot"], &["session", "restore"], &["session", "fork"], &["session", "remove"]];
    let now = outcome([&["session", "list"], snapshot, restore, fork, remove]);
    let names: Vec<&str> = now.0.as_array().expect("a list").iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(outcome([&["sessions"], &["snapshot"], &["restore"], &["fork"], &["sessions", "--delete"]]), now);
}

#[test]
fn help_and_completion_offer_each_command_once() {
    let help = ok(&store(), &["--help"]);
    let shown: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(shown.contains(&"session") && shown.contains(&"artifact"), "{help}");
    let former = ["sessions", "snapshot", "restore", "fork", "origin", "work"];
    assert!(!former.iter().any(|former| shown.contains(former)), "{help}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(ok(&store(), &["completions", shell]).contains("cellar"), "{shell}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command
        .args(["--", "cellar", ""])
        .env("CELLAR_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "1")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_COMP_TYPE", "9");
    let offered = run(command.stdout(Stdio::piped()).stderr(Stdio::piped())).stdout;
    let offered: Vec<&str> = offered.lines().collect();
    assert!(offered.contains(&"session") && offered.contains(&"artifact"), "{offered:?}");
    assert!(!former.iter().any(|former| offered.contains(former)), "{offered:?}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_remedy() {
    let store = store();
    let unknown = refused(&store, &["session", "snapshot", "nobody", "-"]);
    assert!(unknown.contains("no session `nobody` is stored") && unknown.contains("cellar session list"), "{unknown}");
    for name in ["../a", ".a", "-a", "", "a/b", "a b"] {
        let argument = format!("--session={name}");
        let bad = refused(&store, &["eval", &argument, "-l", "js", "1"]);
        assert!(bad.contains("cannot name a stored session"), "{bad}");
    }
    assert!(std::fs::read_dir(store.path()).expect("the store").next().is_none());
    eval(&store, "a", "js", "1");
    assert!(refused(&store, &["session", "fork", "a", "a"]).contains("a session `a` is stored already"));
    let file = store.path().join("junk");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "junk that is long enough").expect("written");
    assert!(refused(&store, &["session", "restore", path, "b"]).contains("this is not a snapshot"));
    ok(&store, &["session", "snapshot", "a", path]);
    let bytes = std::fs::read(&file).expect("read");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    assert!(refused(&store, &["session", "restore", path, "b"]).contains("truncated"));
    assert!(refused(&store, &["session", "restore", path]).contains("truncated"));

    // A damaged state is reported, and its session can be removed.
    let state = store.path().join("a/state");
    std::fs::write(&state, &bytes[..bytes.len() - 1]).expect("written");
    assert!(refused(&store, &["eval", "--session", "a", "-l", "js", "1"]).contains("truncated"));
    ok(&store, &["session", "remove", "a"]);
}

#[test]
fn a_session_lives_in_one_process_at_a_time() {
    let store = store();
    let mut first = with_store(store.path(), &["run", "-", "-l", "py", "--events", "--session", "a"]);
    let mut first = first.stdin(std::process::Stdio::piped()).spawn().expect("cellar starts");
    let code = "print('up')\nawait __import__('asyncio').sleep(600)";
    std::io::Write::write_all(&mut first.stdin.take().expect("a pipe"), code.as_bytes()).expect("written");
    let mut lines = BufReader::new(first.stdout.take().expect("a pipe")).lines();
    while !lines.next().expect("an event").expect("a line").contains("up") {}
    let busy = refused(&store, &["eval", "--session", "a", "-l", "py", "1"]);
    assert!(busy.contains("session `a` is in use by another process"), "{busy}");
    assert!(refused(&store, &["session", "remove", "a"]).contains("in use"));
    assert!(ok(&store, &["session", "list"]).contains("in use"));
    first.kill().expect("killed");
    first.wait().expect("ended");
    assert_eq!(eval(&store, "a", "py", "1 + 1"), "2");
}

/// Stored state survives whole, at whatever moment the process is killed.
#[test]
fn killing_the_process_loses_nothing_that_was_stored() {
    let store = store();
    eval(&store, "a", "py", "n = 0; log = open('log', 'a')");
    let mut stored = 0;
    for round in 0..25_u64 {
        // Each process counts on; a checkpoint is stored after each cell, as far as the process gets.
        let cells = "# %%\nn += 1\n".repeat(200);
        let mut child = with_store(store.path(), &["run", "-", "-l", "py", "--session", "a"]);
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().expect("cellar starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), cells.as_bytes()).expect("written");
        std::thread::sleep(Duration::from_millis(round * 7919 % 60));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let n: u64 = eval(&store, "a", "py", "n").parse().expect("a number");
        assert!(n >= stored, "{n} after {stored} was stored");
        stored = n;
    }
    // Nothing is left of what was being written.
    let names: Vec<_> = std::fs::read_dir(store.path().join("a")).expect("the session").flatten().collect();
    assert_eq!(names.len(), 5, "{names:?}");
}

#[test]
fn what_a_reset_has_forgotten_does_not_come_back() {
    let store = store();
    eval(&store, "a", "py", "secret = 1");
    eval(&store, "a", "js", "const other = 2;");
    let mut child = with_store(store.path(), &["run", "-", "-l", "py", "--events", "--session", "a"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cellar starts");
    let cells = "# %% [reset]\npass\n# %%\nawait __import__('asyncio').sleep(600)\n";
    child.stdin.take().expect("a pipe").write_all(cells.as_bytes()).expect("written");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    while !lines.next().expect("an event").expect("a line").contains("\"cell_finished\"") {}
    child.kill().expect("killed");
    child.wait().expect("ended");
    let gone = cellar(&store, &["eval", "--session", "a", "-l", "py", "secret"]);
    assert!(gone.stderr.contains("NameError") || gone.stdout.contains("NameError"), "{}{}", gone.stdout, gone.stderr);
    assert_eq!(eval(&store, "a", "js", "other"), "2");
}
