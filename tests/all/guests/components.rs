//! Tools that are WASI programs, compiled from C, called from cells.

use std::{path::Path, process::Command, sync::LazyLock};

use serde_json::Value;

use crate::support::{cellar_with_guests, config, root, run};

/// The path of a program of `fixtures/components`, compiled by the compiler of the guests.
fn compiled(name: &str) -> String {
    let guests = Path::new(env!("CARGO_BIN_EXE_cellar")).with_file_name("cellar-guests");
    let source = root().join("fixtures/components").join(name).with_extension("c");
    let ended = run(Command::new(guests).arg("program").arg(source).stdout(std::process::Stdio::piped()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.stdout.trim().to_owned()
}

static WORDS: LazyLock<String> = LazyLock::new(|| compiled("words"));
static ATTACKS: LazyLock<String> = LazyLock::new(|| compiled("attacks"));

/// A folder with a configuration that grants both, a folder with a file in it, and a link that leads out.
fn granted() -> (tempfile::TempDir, String) {
    let text = format!(
        r#"
[tools.words]
component = {:?}
description = "counts lines, words and bytes"
mounts = {{ "/data" = "data" }}
schema = {{ type = "object", properties = {{ path = {{ type = "string" }} }}, required = ["path"] }}
[tools.attack]
component = {:?}
mounts = {{ "/data" = "data", "/out" = {{ host = "out", write = true }} }}
environment = {{ GIVEN = "given" }}
memory_mib = 16
timeout = 2
[tools.counted]
component = {:?}
fuel = 1000000
[runtime.text.words]
component = {:?}
mounts = {{ "/data" = "data" }}
"#,
        *WORDS, *ATTACKS, *ATTACKS, *WORDS
    );
    let (folder, path) = config(&text);
    std::fs::create_dir(folder.path().join("data")).expect("a folder");
    std::fs::create_dir(folder.path().join("out")).expect("a folder");
    std::fs::write(folder.path().join("data/a.txt"), "one two\nthree\n").expect("written");
    std::fs::write(folder.path().join("outside.txt"), "secret").expect("written");
    std::os::unix::fs::symlink("../outside.txt", folder.path().join("data/link")).expect("a link");
    (folder, path.to_str().expect("text").to_owned())
}

fn eval(language: &str, code: &str) -> String {
    let (_folder, path) = granted();
    let ended = run(&mut cellar_with_guests(["eval", "-l", language, "--config", &path, code]));
    format!("{}{}", ended.stdout, ended.stderr).trim().to_owned()
}

#[test]
fn a_component_is_called_from_both_languages() {
    let counted = "{'lines': 2, 'words': 3, 'bytes': 14}";
    assert_eq!(eval("py", "print(tool.words(path='/data/a.txt'))"), counted);
    assert_eq!(eval("py", "print(await tool.words.aio(path='/data/a.txt'))"), counted);
    assert_eq!(eval("py", "print(runtime.text.words(path='/data/a.txt'))"), counted);
    assert_eq!(eval("js", "(await tool.words({ path: '/data/a.txt' })).words"), "3");
    let failed = "try:\n    tool.words(path='/data/b.txt')\nexcept ToolError as error:\n    print(error)";
    let message = "tool `words` failed with exit status 1:\n/data/b.txt: No such file or directory";
    assert_eq!(eval("py", failed), message);
    let unfit = "try:\n    tool.words(path=1)\nexcept ToolError as error:\n    print(error)";
    assert!(eval("py", unfit).contains("the arguments do not fit its schema"));
}

/// Each way, and what its caller is told. What is opened is opened by the host alone.
const ATTACKS_AND_ANSWERS: [(&str, &str); 16] = [
    ("spin", "tool `attack` did not end within 2 s and was stopped"),
    ("sleep", "tool `attack` did not end within 2 s and was stopped"),
    ("print", "tool `attack` printed more than 16 MiB and was stopped"),
    ("complain", "tool `attack` failed with exit status 1:\ncomplaint 199990\n"),
    ("abort", "after it was refused more than 16 MiB of memory"),
    ("recurse", "tool `attack` was stopped: "),
    ("grow", "is fewer than 16"),
    ("hoard", "is fewer than 129"),
    ("passwd", "/etc/passwd: No such file or directory"),
    ("above", "/data/../outside.txt: "),
    ("link", "/data/link: "),
    ("create", "/data/new.txt: "),
    ("remove", "Operation not permitted"),
    ("write", "/out/new.txt: opened"),
    ("environment", "['given', False]"),
    ("nonsense", "tool `attack` printed what is not one JSON value"),
];

#[test]
fn what_a_component_may_not_do_it_cannot_and_the_session_goes_on() {
    let (folder, path) = granted();
    let ways: Vec<&str> = ATTACKS_AND_ANSWERS.iter().map(|(way, _)| *way).collect();
    let code = format!(
        "answers = []\nfor way in {ways:?}:\n    try:\n        answers.append(str(tool.attack(way=way)))\n    except ToolError as \
         error:\n        answers.append(str(error))\nimport json\nprint(json.dumps(answers))"
    );
    let ended = run(&mut cellar_with_guests(["eval", "-l", "py", "--config", &path, &code]));
    let answers: Vec<String> = serde_json::from_str(ended.stdout.trim()).expect(&ended.stderr);
    for ((way, expected), answer) in ATTACKS_AND_ANSWERS.iter().zip(&answers) {
        match expected.strip_prefix("is fewer than ") {
            Some(most) => {
                let (most, number): (u64, u64) = (most.parse().expect("a number"), answer.parse().expect(answer));
                assert!((1..most).contains(&number), "{way}: {answer}");
            }
            None => assert!(answer.contains(expected), "{way}: {answer}"),
        }
        let is_open = answer.ends_with("opened");
        assert_eq!(is_open, *way == "write", "{way}: {answer}");
    }
    assert!(folder.path().join("data/a.txt").exists() && folder.path().join("out/new.txt").exists());
    let fuel = "try:\n    tool.counted(way='spin')\nexcept ToolError as error:\n    print(error)";
    assert_eq!(eval("py", fuel), "tool `counted` used its fuel of 1000000 and was stopped");
}

#[test]
fn the_doctor_tells_components_and_what_is_wrong_with_them() {
    let (folder, path) = granted();
    let doctor = |path: &str| {
        let ended = run(&mut cellar_with_guests(["doctor", "--json", "--config", path]));
        let report: Value = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
        crate::support::check_shape("doctor", &report);
        report
    };
    let report = doctor(&path);
    let tools = [
        "attack (a component with 16 MiB, 2 s)",
        "counted (a component with 64 MiB, 60 s, 1000000 of fuel)",
        "words (a component with 64 MiB, 60 s)",
    ];
    assert_eq!(report["config"]["tools"], serde_json::json!(tools));
    std::fs::remove_dir_all(folder.path().join("data")).expect("removed");
    std::fs::write(folder.path().join("text.wasm"), "text").expect("written");
    std::fs::write(&path, "[tools.text]\ncomponent = \"text.wasm\"\n[tools.none]\ncommand = [\"true\"]")
        .expect("written");
    let problems = doctor(&path)["problems"].to_string();
    assert!(problems.contains("tools.text cannot be used: ") && problems.contains("is no WebAssembly"), "{problems}");
}
