//! The states of sessions that are kept: every end of a cell, memory and files of one instant.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Command,
    sync::Arc,
};

use cellar_engine::{
    Cell, Error, Host, Language, Session, SessionConfig,
    config::{FolderGrants, HistoryOptions},
    store::SessionStore,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::snapshots::{Gate, host, on_runtime, text};
use crate::support::{cellar_with_guests, check_shape, run};

fn command(store: &TempDir, arguments: &[&str]) -> Command {
    let store = store.path().to_str().expect("text");
    cellar_with_guests([&["--store", store], arguments].concat())
}

fn ok(store: &TempDir, arguments: &[&str]) -> String {
    let ended = run(&mut command(store, arguments));
    assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout.trim_end().to_owned()
}

fn refused(store: &TempDir, arguments: &[&str]) -> String {
    let ended = run(&mut command(store, arguments));
    assert_eq!(ended.code, 2, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stderr
}

fn eval(store: &TempDir, session: &str, language: &str, code: &str) -> String {
    ok(store, &["eval", "--session", session, "-l", language, code])
}

fn log(store: &TempDir, session: &str) -> Value {
    let log = serde_json::from_str(&ok(store, &["session", "log", session, "--json"])).expect("JSON");
    check_shape("states", &log);
    log
}

/// The states of a log, each with its parent.
fn tree(log: &Value) -> Vec<(u64, Option<u64>)> {
    let states = log["states"].as_array().expect("states");
    states.iter().map(|state| (state["state"].as_u64().expect("a number"), state["parent"].as_u64())).collect()
}

#[test]
fn a_session_of_the_command_line_goes_back_branches_and_is_compared() {
    let store = TempDir::new().expect("a folder");
    eval(&store, "a", "py", "x = 1; open('f', 'w').write('one'); open('/tmp/t', 'w').write('tmp')");
    eval(&store, "a", "js", "let n = 10; await write('g', 'js')");
    eval(&store, "a", "py", "import os; x = 2; y = 3; open('f', 'w').write('two'); os.remove('g'); os.mkdir('d')");
    let first = log(&store, "a");
    assert_eq!((tree(&first), &first["current"]), (vec![(1, None), (2, Some(1)), (3, Some(2))], &json!(3)));
    let producers: Vec<(&Value, &Value)> =
        first["states"].as_array().expect("states").iter().map(|state| (&state["language"], &state["cell"])).collect();
    assert_eq!(producers, [(&json!("py"), &json!(1)), (&json!("js"), &json!(2)), (&json!("py"), &json!(3))]);
    assert!(first["states"].as_array().expect("states").is_sorted_by_key(|state| state["time"].as_u64()));
    assert_eq!(first["outside"], json!([]));

    let diff: Value = serde_json::from_str(&ok(&store, &["session", "diff", "a", "2", "3", "--json"])).expect("JSON");
    check_shape("state-diff", &diff);
    let names: Vec<(&str, &str)> = diff["names"]
        .as_array()
        .expect("names")
        .iter()
        .map(|name| (name["name"].as_str().expect("text"), name["change"].as_str().expect("text")))
        .collect();
    assert_eq!(names, [("x", "changed"), ("y", "added")]);
    let files: Vec<(&str, &str)> = diff["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|file| (file["path"].as_str().expect("text"), file["change"].as_str().expect("text")))
        .collect();
    assert_eq!(files, [("/workspace/d", "added"), ("/workspace/f", "changed"), ("/workspace/g", "removed")]);

    ok(&store, &["session", "back", "a", "2"]);
    let look = "import os; (x, 'y' in globals(), open('f').read(), open('g').read(), os.path.exists('d'), open('/tmp/t').read())";
    assert_eq!(eval(&store, "a", "py", look), "(1, False, 'one', 'js', False, 'tmp')");
    assert_eq!(eval(&store, "a", "js", "n"), "10");
    assert_eq!(tree(&log(&store, "a"))[2..], [(3, Some(2)), (4, Some(2)), (5, Some(4))]);

    ok(&store, &["session", "branch", "a", "3", "b"]);
    assert_eq!(eval(&store, "b", "py", "x, y, open('f').read(), os.listdir('.')"), "(2, 3, 'two', ['d', 'f'])");
    assert_eq!(tree(&log(&store, "b")), [(1, None)]);
    assert_eq!(eval(&store, "a", "py", "x, open('f').read()"), "(1, 'one')");

    ok(&store, &["session", "name", "a", "3", "two files"]);
    ok(&store, &["session", "pin", "a", "1"]);
    let named = log(&store, "a");
    assert_eq!((&named["states"][2]["name"], &named["states"][0]["pinned"]), (&json!("two files"), &json!(true)));
    ok(&store, &["session", "back", "a", "two files"]);
    assert_eq!(eval(&store, "a", "py", "x, y, os.listdir('.')"), "(2, 3, ['d', 'f'])");
    ok(&store, &["session", "back", "a", "~1"]);
    assert_eq!(log(&store, "a")["current"], json!(3));
    ok(&store, &["session", "forget", "a", "2"]);
    assert_eq!(tree(&log(&store, "a"))[..3], [(1, None), (3, Some(1)), (4, Some(1))]);
    assert!(refused(&store, &["session", "back", "a", "2"]).contains("cellar session log"));
    assert!(refused(&store, &["session", "name", "a", "1", "3"]).contains("cannot name a state"));
    assert!(refused(&store, &["session", "name", "a", "1", "two files"]).contains("another state"));
}

#[test]
fn states_are_kept_by_rules() {
    let store = TempDir::new().expect("a folder");
    let config = store.path().join("cellar.toml");
    let ruled = |rules: &str, code: &str| {
        fs::write(&config, format!("[session]\n{rules}\n")).expect("written");
        ok(&store, &["eval", "--session", "a", "--config", config.to_str().expect("text"), "-l", "py", code])
    };
    for n in 1..=6 {
        ruled("history = { last = 2, every = 3 }", &format!("x = {n}"));
        if n == 1 {
            ok(&store, &["session", "pin", "a", "1"]);
        }
    }
    assert_eq!(tree(&log(&store, "a")), [(1, None), (3, Some(1)), (5, Some(3)), (6, Some(5))]);
    // Contents that no state has any more are gone.
    let bytes = |log: &Value| log["bytes"].as_u64().expect("bytes");
    ruled("history = 1", "open('f', 'wb').write(bytes(range(256)) * 4096)");
    let large = bytes(&log(&store, "a"));
    ruled("history = 1", "open('f', 'wb').write(b'')");
    assert!(bytes(&log(&store, "a")) + 900_000 < large);
    ruled("history = 0", "x = 7");
    let none = log(&store, "a");
    assert_eq!(none["current"], json!(8), "{none}");
    ruled("history = { mib = 1 }", "import os; open('f', 'wb').write(os.urandom(3 << 20))");
    // What cannot be within the bounds is the present state and the pinned one.
    assert_eq!(tree(&log(&store, "a")).len(), 2);
}

#[test]
fn granted_folders_stay_as_they_are_and_the_answer_says_so() {
    let (store, granted) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let workspace = granted.path().to_str().expect("text");
    let eval = |code: &str| ok(&store, &["eval", "--session", "a", "--workspace", workspace, "-l", "py", code]);
    eval("open('f', 'w').write('one'); x = 1");
    eval("open('f', 'w').write('two'); x = 2");
    assert_eq!(log(&store, "a")["outside"], json!(["/workspace"]));
    let back = run(&mut command(&store, &["session", "back", "a", "1"]));
    assert!(back.code == 0 && back.stderr.contains("/workspace"), "{}", back.stderr);
    assert_eq!(eval("x, open('f').read()"), "(1, 'two')");
}

/// A process that is killed while it goes back leaves a session that has gone back.
#[test]
fn going_back_is_finished_by_the_next_process() {
    let store = TempDir::new().expect("a folder");
    eval(&store, "a", "py", "x = 1; open('f', 'w').write('one')");
    eval(&store, "a", "py", "x = 2; open('f', 'w').write('two'); open('g', 'w').write('two')");
    let session = store.path().join("a");
    fs::write(session.join("states/going"), "1").expect("written");
    fs::remove_file(session.join("workspace/f")).expect("removed");
    assert_eq!(eval(&store, "a", "py", "import os; x, open('f').read(), os.listdir('.')"), "(1, 'one', ['f'])");
    assert!(!session.join("states/going").exists());
}

/// Missing files cost the states that need them, and nothing else; files that no state needs are removed.
#[test]
fn states_of_which_something_is_missing_are_left_out() {
    let store = TempDir::new().expect("a folder");
    for n in 1..=3 {
        eval(&store, "a", "py", &format!("x = {n}; open('f', 'w').write('{n}' * 100_000)"));
    }
    let states = store.path().join("a/states");
    fs::write(states.join("contents/.unfinished-x"), "x").expect("written");
    fs::write(states.join("contents/00000000000000000000000000000007"), "x").expect("written");
    fs::write(states.join("99"), "x").expect("written");
    fs::write(states.join("2"), "damaged").expect("written");
    eval(&store, "a", "py", "x = 4");
    assert_eq!(tree(&log(&store, "a")), [(1, None), (3, Some(1)), (4, Some(3))]);
    let left = |name: &str| states.join(name).exists();
    assert!(!left("contents/.unfinished-x") && !left("contents/00000000000000000000000000000007") && !left("99"));
    ok(&store, &["session", "back", "a", "1"]);
    assert_eq!(eval(&store, "a", "py", "x, open('f').read() == '1' * 100_000"), "(1, True)");
}

/// However a process ends, the session opens, and every state that is listed can be gone back to.
#[test]
fn a_process_that_is_killed_leaves_states_that_open() {
    let store = TempDir::new().expect("a folder");
    let run_file = store.path().join("run.json");
    for round in 0..6_u32 {
        let cells: Vec<Value> = (0..20_u32)
            .map(|n| json!({"language": "py", "code": format!("x = {round}{n}; _ = open('f', 'w').write(str(x) * 1000)")}))
            .collect();
        fs::write(&run_file, json!({ "cells": cells }).to_string()).expect("written");
        let arguments = ["run", "--session", "a", "--events", run_file.to_str().expect("text")];
        let mut process = command(&store, &arguments).spawn().expect("it starts");
        // It is killed at some place among its cells.
        let mut events = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        events.by_ref().take(3 + round as usize * 8).for_each(|event| drop(event.expect("a line")));
        process.kill().expect("killed");
        process.wait().expect("it ended");
        let listed = tree(&log_of_any(&store, "a"));
        let Some((state, _)) = listed.get(listed.len() / 2) else { continue };
        ok(&store, &["session", "back", "a", &state.to_string()]);
        assert_eq!(eval(&store, "a", "py", "open('f').read() == str(x) * 1000"), "True", "round {round}");
    }
    assert!(!tree(&log(&store, "a")).is_empty());
}

/// The log of a session that may not be there yet.
fn log_of_any(store: &TempDir, session: &str) -> Value {
    let ended = run(&mut command(store, &["session", "log", session, "--json"]));
    serde_json::from_str(&ended.stdout).unwrap_or(json!({"states": []}))
}

const LANGUAGES: [Language; 2] = [Language::Python, Language::JavaScript];

/// A step of a session, and what the model does with it.
#[derive(Clone, Debug)]
enum Step {
    /// Bind a name of the language at this place.
    Bind(usize, u8, u16),
    Write(usize, u8, u16),
    Append(u8, u16),
    Remove(u8),
    Folder(u8),
    Link(u8, u8),
    /// Go back to one of the states so far.
    Back(u16),
    /// Go on in a session that begins with one of the states so far.
    Branch(u16),
    /// Go on in a fork of the present state.
    Fork,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (name, file) = (0..4_u8, 0..5_u8);
    let step = prop_oneof![
        4 => (0..2_usize, name, any::<u16>()).prop_map(|(language, name, value)| Step::Bind(language, name, value)),
        4 => (0..2_usize, file.clone(), any::<u16>()).prop_map(|(language, file, value)| Step::Write(language, file, value)),
        2 => (file.clone(), any::<u16>()).prop_map(|(file, value)| Step::Append(file, value)),
        2 => file.clone().prop_map(Step::Remove),
        1 => file.clone().prop_map(Step::Folder),
        1 => (file.clone(), file).prop_map(|(from, to)| Step::Link(from, to)),
        3 => any::<u16>().prop_map(Step::Back),
        1 => any::<u16>().prop_map(Step::Branch),
        1 => Just(Step::Fork),
    ];
    proptest::collection::vec(step, 1..16)
}

/// All of a session, copied whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    names: [BTreeMap<String, u16>; 2],
    /// Contents of files; nothing for folders.
    files: BTreeMap<String, Option<String>>,
}

impl Model {
    /// Takes a step that is a cell. Returns its language and its code.
    fn cell(&mut self, step: &Step) -> Option<(Language, String)> {
        let python = |code: String| Some((Language::Python, code));
        match step {
            Step::Bind(language, name, value) => {
                let name = format!("n{name}");
                let code =
                    if *language == 0 { format!("{name} = {value}") } else { format!("globalThis.{name} = {value}") };
                self.names[*language].insert(name, *value);
                Some((LANGUAGES[*language], code))
            }
            Step::Write(language, file, value) => {
                let (file, text) = (format!("f{file}"), format!("{value};").repeat(usize::from(*value % 300)));
                let is_folder = self.files.get(&file) == Some(&None);
                let code = match (is_folder, language) {
                    (true, _) => format!("import os; os.rmdir('{file}'); open('{file}', 'w').write('{text}'); None"),
                    (false, 0) => format!("_ = open('{file}', 'w').write('{text}')"),
                    (false, _) => format!("await write('{file}', '{text}')"),
                };
                let language = if is_folder { 0 } else { *language };
                self.files.insert(file, Some(text));
                Some((LANGUAGES[language], code))
            }
            Step::Append(file, value) => {
                let file = format!("f{file}");
                let text = self.files.get_mut(&file)?.as_mut()?;
                text.push_str(&value.to_string());
                python(format!("with open('{file}', 'a') as f: _ = f.write('{value}')"))
            }
            Step::Remove(file) => {
                let file = format!("f{file}");
                let removed = self.files.remove(&file)?;
                python(format!("import os; os.{}('{file}')", if removed.is_some() { "remove" } else { "rmdir" }))
            }
            Step::Folder(file) => {
                let file = format!("f{file}");
                if self.files.contains_key(&file) {
                    return None;
                }
                self.files.insert(file.clone(), None);
                python(format!("import os; os.mkdir('{file}')"))
            }
            Step::Link(from, to) => {
                let (from, to) = (format!("f{from}"), format!("f{to}"));
                let text = self.files.get(&from)?.clone()?;
                if self.files.contains_key(&to) {
                    return None;
                }
                // A copy, which has its contents once.
                self.files.insert(to.clone(), Some(text));
                python(format!("import shutil; _ = shutil.copyfile('{from}', '{to}')"))
            }
            Step::Back(_) | Step::Branch(_) | Step::Fork => None,
        }
    }

    /// Names and files of a session.
    async fn of(session: &Session) -> Model {
        let python = "import json, os\nprint(json.dumps({'names': {n: v for n, v in globals().items() if n[0] == 'n' and n[1:].isdigit()}, \
                      'files': {f: (open(f).read() if os.path.isfile(f) else None) for f in os.listdir('/workspace')}}))";
        let javascript = "console.log(JSON.stringify(Object.fromEntries(Object.entries(globalThis).filter(([n]) => /^n\\d$/.test(n)))))";
        let python = text(session, Language::Python, python).await;
        let javascript = text(session, Language::JavaScript, javascript).await;
        let seen: Value = serde_json::from_str(&python).unwrap_or_else(|_| panic!("no JSON: {python}"));
        let names = serde_json::from_value(seen["names"].clone()).expect("names");
        let files = serde_json::from_value(seen["files"].clone()).expect("files");
        Model { names: [names, serde_json::from_str(&javascript).expect("names")], files }
    }
}

fn kept() -> SessionConfig {
    let history = HistoryOptions { last: 1_000, ..HistoryOptions::default() };
    SessionConfig { history: Some(history), ..SessionConfig::default() }
}

/// Takes the steps in a session and in the model, and compares them.
async fn check(host: &Host, home: Option<&SessionStore>, steps: &[Step]) {
    let mut session = match home {
        Some(store) => host.open_stored(store.claim("p").expect("a new session"), kept()).expect("a session"),
        None => host.session(kept()).expect("a session"),
    };
    let mut model = Model::default();
    // The model of each state, by number.
    let mut states: BTreeMap<u64, Model> = BTreeMap::new();
    for step in steps {
        let numbers: Vec<u64> = states.keys().copied().collect();
        let chosen = |n: u16| numbers.get(usize::from(n) % numbers.len().max(1)).copied();
        match step {
            Step::Back(n) => {
                let Some(number) = chosen(*n) else { continue };
                session.back(&number.to_string()).await.expect("it goes back");
                model = states[&number].clone();
            }
            Step::Branch(n) => {
                let Some(number) = chosen(*n) else { continue };
                session = session.branch(&number.to_string(), None, None).await.expect("a branch");
                (model, states) = (states[&number].clone(), BTreeMap::new());
            }
            Step::Fork => {
                session = session.fork(None).await.expect("a fork");
                states = BTreeMap::new();
            }
            step => {
                let Some((language, code)) = model.cell(step) else { continue };
                let run = session.run(vec![Cell::new(language, &*code)]).expect("a run");
                let result = run.collect_result().await;
                assert!(!result.is_error, "{code}: {}", result.text());
                let list = session.states().await.expect("states");
                states.insert(list.current.expect("a state"), model.clone());
                assert_eq!(
                    list.states.iter().map(|state| state.number).collect::<Vec<_>>(),
                    states.keys().copied().collect::<Vec<_>>()
                );
            }
        }
    }
    // The cells that look are states too, and change nothing of these.
    assert_eq!(Model::of(&session).await, model);
    for (number, model) in &states {
        let other = session.branch(&number.to_string(), None, None).await.expect("a branch");
        assert_eq!(&Model::of(&other).await, model, "state {number}");
    }
    if let Some((number, model)) = states.first_key_value() {
        session.back(&number.to_string()).await.expect("it goes back");
        assert_eq!(&Model::of(&session).await, model, "back at state {number}");
    }
}

#[test]
fn random_trees_are_what_a_model_says_that_copies_everything() {
    on_runtime(async {
        let host = host();
        let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let ran = tokio::task::block_in_place(|| {
            runner.run(&(steps(), any::<bool>()), |(steps, is_stored)| {
                let folder = TempDir::new().expect("a folder");
                let store = is_stored.then(|| SessionStore::open(folder.path()).expect("a store"));
                tokio::runtime::Handle::current().block_on(check(&host, store.as_ref(), &steps));
                Ok(())
            })
        });
        ran.expect("every tree is as the model says");
    });
}

/// Contents that states share are kept once: a state costs as much as it changes.
#[test]
fn contents_are_kept_once() {
    on_runtime(async {
        let host = host();
        let session = host.session(kept()).expect("a session");
        text(&session, Language::Python, "import os; data = os.urandom(4 << 20); _ = open('f', 'wb').write(data)")
            .await;
        for n in 0..5 {
            text(&session, Language::Python, &format!("x = {n}")).await;
        }
        let list = session.states().await.expect("states");
        assert_eq!(list.states.len(), 6);
        assert!(list.states[0].added_bytes > 8 << 20);
        for state in &list.states[2..] {
            assert!(state.added_bytes < 1 << 20 && state.bytes > 8 << 20, "{state:?}");
        }
        assert!(list.bytes < 16 << 20, "{}", list.bytes);
    });
}

/// The hazards that the manual lists: what goes on from a state draws other numbers, and has other times and calls.
#[test]
fn a_branch_shares_neither_random_numbers_nor_the_time_of_its_state() {
    on_runtime(async {
        let host = host();
        let session = host.session(kept()).expect("a session");
        let draws = [
            (
                Language::Python,
                "import random, uuid, secrets, time\nrandom.random()",
                "(random.random(), uuid.uuid4(), secrets.token_hex(8))",
            ),
            (Language::JavaScript, "Math.random()", "[Math.random(), crypto.randomUUID()].join()"),
        ];
        for (language, begin, draw) in draws {
            text(&session, language, begin).await;
            let state = session.states().await.expect("states").current.expect("a state").to_string();
            let drawn = text(&session, language, draw).await;
            let (one, other) = (session.branch(&state, None, None).await, session.branch(&state, None, None).await);
            let (one, other) =
                (text(&one.expect("one"), language, draw).await, text(&other.expect("other"), language, draw).await);
            assert!(one != other && one != drawn && other != drawn, "{one} {other} {drawn}");
            // The session itself has them again: it is the same session, at an earlier time.
            session.back(&state).await.expect("it goes back");
            let again = text(&session, language, draw).await;
            let first = |text: &str| text.split(',').next().map(str::to_owned);
            assert_eq!(first(&again), first(&drawn));
        }
        let state = session.states().await.expect("states").current.expect("a state").to_string();
        let began = text(&session, Language::Python, "print(time.time())").await.trim().parse::<f64>().expect("a time");
        session.back(&state).await.expect("it goes back");
        let now = text(&session, Language::Python, "print(time.time())").await.trim().parse::<f64>().expect("a time");
        assert!(now >= began, "{now} {began}");
    });
}

#[test]
fn calls_under_way_end_as_cancelled_in_what_goes_on_from_them() {
    on_runtime(async {
        let gate = Gate(Arc::new(Semaphore::new(0)));
        let config = SessionConfig { bridges: Arc::new(gate.clone()), ..kept() };
        let session = host().session(config).expect("a session");
        let calls = [
            (
                Language::Python,
                "import asyncio\ntask = asyncio.ensure_future(tool.wait.aio())\nawait asyncio.sleep(0)",
                "try:\n    print(await task)\nexcept Exception as error:\n    print(error)",
            ),
            (
                Language::JavaScript,
                "globalThis.task = tool.wait().catch((error) => error.message); 1",
                "console.log(await task)",
            ),
        ];
        for (language, begin, end) in calls {
            text(&session, language, begin).await;
            let state = session.states().await.expect("states").current.expect("a state").to_string();
            gate.0.add_permits(1);
            assert_eq!(text(&session, language, end).await.trim(), "7");
            let branch = session.branch(&state, None, None).await.expect("a branch");
            session.back(&state).await.expect("it goes back");
            for session in [&session, &branch] {
                let answer = text(session, language, end).await;
                assert!(answer.contains("restored while the call was under way"), "{answer}");
            }
        }
    });
}

#[test]
fn a_session_that_keeps_none_says_so() {
    on_runtime(async {
        let session = host().session(SessionConfig::default()).expect("a session");
        text(&session, Language::Python, "x = 1").await;
        let refused = session.states().await.expect_err("it keeps none");
        assert!(matches!(&refused, Error::Request(why) if why.contains("history")), "{refused}");
    });
}

/// Granted folders that are writable are named; read-only ones cannot differ.
#[test]
fn writable_folders_of_the_host_are_outside() {
    on_runtime(async {
        let folder = TempDir::new().expect("a folder");
        let mount = |guest: &str, access| cellar_engine::files::Mount {
            host: folder.path().to_owned(),
            guest: guest.to_owned(),
            access,
        };
        let mounts = vec![
            mount("/data", cellar_engine::files::Access::ReadWrite),
            mount("/seen", cellar_engine::files::Access::ReadOnly),
        ];
        let config = SessionConfig { folders: FolderGrants { mounts, ..FolderGrants::default() }, ..kept() };
        let session = host().session(config).expect("a session");
        text(&session, Language::Python, "open('/data/f', 'w').write('one')").await;
        text(&session, Language::Python, "open('/data/f', 'w').write('two')").await;
        let list = session.states().await.expect("states");
        assert_eq!(list.outside, ["/data"]);
        session.back("1").await.expect("it goes back");
        assert_eq!(fs::read_to_string(Path::new(folder.path()).join("f")).expect("a file"), "two");
    });
}
