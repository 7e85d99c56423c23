//! Primitives of packs from `cellar.toml`, what a session remembers in the store, forks: their events, and how to turn them off;
//! languages that are off.

use serde_json::{Value, json};

use crate::support::{cellar, cellar_with_guests, config, result_of, run, text};

const PACK: &str = r#"
[runtime.numbers]
version = "1.2"
description = "numbers of many kinds"
[runtime.numbers.add]
command = ["python3", "SCRIPTS/add.py"]
description = "adds"
result = { type = "number" }
[runtime.numbers.add.schema]
type = "object"
required = ["a", "b"]
[runtime.numbers.add.schema.properties]
a = { type = "number" }
b = { type = "number" }
[runtime.numbers."hard.problem"]
command = ["python3", "SCRIPTS/fail.py"]
[runtime.numbers.told]
command = ["cat"]
schema = { type = "object", properties = { zeta = { type = "integer" }, alpha = { type = "integer" } } }
result = { type = "object", required = ["zeta"] }
"#;

#[test]
fn primitives_of_a_file_are_called_by_name_and_by_position() {
    let (_folder, path) = config(PACK);
    let flags = ["--config", path.to_str().expect("text")];
    let python = "print(runtime.numbers.add(1, b=2), runtime.numbers.add.spec()['result'])";
    assert_eq!(text(&result_of("py", &[python], &flags)), "3 {'type': 'number'}");
    let javascript = "print(await runtime.numbers.add(1, {b: 2}), runtime.numbers.add.spec().pack.version)";
    assert_eq!(text(&result_of("js", &[javascript], &flags)), "3 1.2");
    let check = |code: &str, expected: &str| {
        let result = result_of("py", &[code], &flags);
        let message = result["details"]["cells"][0]["error"]["message"].as_str().expect("a message");
        assert!(message.contains(expected), "{message}");
    };
    check(
        "runtime.numbers.add('x', 1)",
        "primitive `numbers.add`: the arguments do not fit its schema: `/a`: expected number",
    );
    let told = "print(runtime.numbers.told(1, 2))";
    assert_eq!(text(&result_of("py", &[told], &flags)), "{'zeta': 1, 'alpha': 2}");
    check(
        "runtime.numbers.told(alpha=2)",
        "primitive `numbers.told`: the result does not fit its schema: `/zeta`: expected a value, found nothing",
    );
    check("runtime.numbers.hard.problem()", "primitive `numbers.hard.problem` failed with exit status 3");
    check(
        "runtime.numbers.ad()",
        "no primitive named `numbers.ad`; packs of them are granted under [runtime] in cellar.toml; did you mean `numbers.add`",
    );
}

#[test]
fn a_call_of_a_primitive_is_told_by_events() {
    let (_folder, path) = config(PACK);
    let mut command =
        cellar_with_guests(["eval", "-l", "js", "await runtime.numbers.add(1, 2)", "--events", "--config"]);
    let ended = run(command.arg(&path));
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let started: Vec<&Value> = events.iter().filter(|event| event["type"] == "call_started").collect();
    assert_eq!(started.len(), 1, "{started:?}");
    assert_eq!((&started[0]["bridge"], &started[0]["name"]), (&json!("runtime"), &json!("numbers.add")));
}

#[test]
fn what_a_session_remembers_is_stored_and_forked_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let eval = |session: &str, code: &str| {
        let mut command = cellar_with_guests(["eval", "-l", "py", code, "--session", session, "--store"]);
        let ended = run(command.arg(folder.path()));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout
    };
    eval("work", "_ = runtime.selfref.context.remember('be brief')");
    let inspect = "print([each['text'] for each in runtime.selfref.context.inspect()['experiences']])";
    assert_eq!(eval("work", inspect), "['be brief']\n");
    let forked = run(cellar(["session", "fork", "work", "other", "--store"]).arg(folder.path()));
    assert_eq!(forked.code, 0, "{}", forked.stderr);
    eval("other", "_ = runtime.selfref.context.remember('be exact')");
    assert_eq!(eval("other", inspect), "['be brief', 'be exact']\n");
    assert_eq!(eval("work", inspect), "['be brief']\n");
}

#[test]
fn forks_can_be_turned_off() {
    let (_folder, path) = config("[limits]\nforks = 0\n");
    let flags = ["--config", path.to_str().expect("text")];
    let result = result_of("py", &["runtime.selfref.fork.spawn(code='1')"], &flags);
    let message = result["details"]["cells"][0]["error"]["message"].as_str().expect("a message");
    assert_eq!(message, "primitive `selfref.fork.spawn`: forks are off (the limit `forks` is 0)");
}

/// The events of forks of a run, each with the fork's id.
fn told_of_forks(events: &str) -> Vec<(String, Value)> {
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of_forks = events.filter(|event| event["type"] == "fork");
    of_forks.map(|event| (event["fork"].as_str().expect("an id").to_owned(), event["event"].clone())).collect()
}

#[test]
fn what_happens_in_a_fork_is_told_with_its_origin() {
    let code = r#"
inner = "runtime.selfref.fork.gather_all(runtime.selfref.fork.spawn(code='print(3)'))"
handle = runtime.selfref.fork.spawn(code=f"print('there'); display({{'a': 1}}); {inner}; 1 / 0")
runtime.selfref.fork.gather_all(handle)["fork-1"]["error_type"]
"#;
    let ended = run(&mut cellar_with_guests(["eval", "-l", "py", "--events", code]));
    let told = told_of_forks(&ended.stdout);
    let find = |fork: &str, kind: &str| {
        let found = told.iter().find(|(id, event)| id == fork && event["type"] == kind);
        &found.unwrap_or_else(|| panic!("no {kind} of {fork} among {told:?}")).1
    };
    assert_eq!(find("fork-1", "stdout")["text"], "there\n");
    assert_eq!(find("fork-1", "display")["data"]["application/json"], json!({"a": 1}));
    assert_eq!(find("fork-1.1", "stdout")["text"], "3\n", "a fork within a fork");
    assert_eq!(find("fork-1", "cell_finished")["error"]["type"], "ZeroDivisionError");
    let shown = run(&mut cellar_with_guests(["eval", "-l", "py", code]));
    assert_eq!(shown.stdout, "'ZeroDivisionError'\n", "the output is the cell's own");
    assert!(shown.stderr.contains("[fork-1] there\n") && shown.stderr.contains("[fork-1.1] 3\n"), "{}", shown.stderr);
}

#[test]
fn a_fork_that_outlives_its_cell_is_told_of_in_the_next() {
    let cells = "# %% py\nhandle = runtime.selfref.fork.spawn(code='print(input.__name__)')\n\
                 # %% py\nimport time; time.sleep(0.05)\n\
                 later = runtime.selfref.fork.spawn(code='import time; time.sleep(0.2); print(\"late\")')\n\
                 # %% py\nlen(runtime.selfref.fork.gather_all())\n";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cells.py");
    std::fs::write(&path, cells).expect("a file");
    let ended = run(cellar_with_guests(["run", "--events"]).arg(&path));
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let late = events.iter().find(|event| event["event"]["text"] == "late\n");
    assert_eq!(late.unwrap_or_else(|| panic!("{events:?}"))["index"], 2, "it is told to the cell that runs by then");
}

#[test]
fn a_language_that_is_off_runs_nowhere() {
    let (_folder, path) = config("session.languages = [\"python\"]\n");
    let refused = run(cellar_with_guests(["eval", "-l", "js", "1", "--config"]).arg(&path));
    let message = "JavaScript is off in this session, whose cells are in Python";
    assert!(refused.code == 2 && refused.stderr.contains(message), "{} {}", refused.code, refused.stderr);
    let code = "made = runtime.selfref.fork.spawn(code='1', language='js')\n\
                print(list(runtime.selfref.fork.gather_all().values())[0]['error_message'])\n\
                import subprocess\ntry:\n  print(subprocess.run(['node', '-e', '1']))\n\
                except OSError as error:\n  print(error)";
    let flags = ["--config", path.to_str().expect("text")];
    let result = result_of("py", &[code], &flags);
    let text = text(&result);
    assert!(text.starts_with(message) && text.contains("cannot run programs in JavaScript"), "{text}");
}
