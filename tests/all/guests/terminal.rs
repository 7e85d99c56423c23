//! What a person at a terminal sees: the transcript in its rich form, and the prompt.

use std::{fs, process::Command};

use serde_json::json;

use crate::support::{Ended, cellar_with_guests, root};

/// What a terminal, or a CI machine, says of itself; each changes what is shown.
const TERMINAL_VARIABLES: &[&str] =
    &["CI", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "LC_TERMINAL", "NO_COLOR", "TERM_PROGRAM"];

/// A command to be run by a script of `fixtures/terminal`, which gives it a terminal of its own.
fn through(script: &str, options: &[String], arguments: &[&str]) -> Command {
    let inner = cellar_with_guests(arguments);
    let mut command = Command::new("python3");
    command.arg(root().join("fixtures/terminal").join(script)).args(options);
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(root());
    for variable in TERMINAL_VARIABLES {
        command.env_remove(variable);
    }
    command.env("CELLAR_GUESTS", root().join("target/guests")).env("TERM", "xterm-256color");
    command
}

/// Types at a command; see `fixtures/terminal/type.py`.
fn at_terminal(arguments: &[&str], steps: &serde_json::Value) -> Ended {
    let state = tempfile::tempdir().expect("a folder");
    let mut command = through("type.py", &[steps.to_string()], arguments);
    command.env("COLUMNS", "90").env("XDG_STATE_HOME", state.path());
    Ended::from(command.output().expect("python3 runs"))
}

#[test]
fn a_prompt_keeps_state_completes_and_is_interrupted() {
    let endless = r#"print("go" + "ing"); [0 for _ in iter(int, 1)]"#;
    let steps = json!([
        ["prompt", ""],
        ["type", "rows = [1, 2, 3]\r"],
        ["prompt", ""],
        ["type", "def total():\r    return sum(rows)\r\r"],
        ["prompt", ""],
        ["type", "total() * 7\r"],
        ["wait", "42"],
        ["prompt", ""],
        ["type", "rows.app\t"],
        ["wait", "append"],
        ["type", "(4)\r"],
        ["prompt", ""],
        ["type", format!("{endless}\r")],
        ["wait", "going"],
        ["type", "\u{3}"],
        ["wait", "interrupted after"],
        ["prompt", ""],
        ["type", "f'{len(rows)} rows are left'\r"],
        ["wait", "4 rows are left"],
        ["prompt", ""],
        ["type", ":vars\r"],
        ["wait", "list[4]"],
        ["prompt", ""],
        ["type", ":js\r"],
        ["prompt", ""],
        ["type", "[1, 2].map(n => {\rreturn n * 21})\r"],
        ["wait", "[21, 42]"],
        ["prompt", ""],
        ["type", "missing.name\r"],
        ["wait", "ReferenceError"],
        ["prompt", ""],
        ["type", "Math.max?\r"],
        ["wait", "max"],
        ["prompt", ""],
        ["type", ":nothing\r"],
        ["wait", ":help lists what there is"],
        ["prompt", ""],
        ["type", ":quit\r"],
    ]);
    let ended = at_terminal(&["repl"], &steps);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stderr, ended.stdout);
}

#[test]
fn a_prompt_answers_cells_that_ask() {
    let steps = json!([
        ["prompt", ""],
        ["type", "name = input('name? ')\r"],
        ["wait", "waits for input: name?"],
        ["prompt", ""],
        ["type", "Ada\r"],
        ["prompt", ""],
        ["type", "name[::-1]\r"],
        ["wait", "'adA'"],
        ["prompt", ""],
        ["type", "input('none? ')\r"],
        ["wait", "none?"],
        ["prompt", ""],
        ["type", "\u{4}"],
        ["wait", "EOFError"],
        ["prompt", ""],
        ["type", "input('stop? ')\r"],
        ["wait", "stop?"],
        ["prompt", ""],
        ["type", "\u{3}"],
        ["wait", "interrupted after"],
        ["prompt", ""],
        ["type", ":js\r"],
        ["prompt", ""],
        ["type", "await input('number? ') * 2\r"],
        ["wait", "number?"],
        ["prompt", ""],
        ["type", "21\r"],
        ["wait", "42"],
        ["prompt", ""],
        ["type", "exit\r"],
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let recording = recording.to_str().expect("text");
    let ended = at_terminal(&["repl", "--record", recording], &steps);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stderr, ended.stdout);
    // What was typed is part of it.
    let replayed = crate::support::run(&mut cellar_with_guests(["replay", recording, "--run", "2"]));
    assert!(replayed.code == 0 && replayed.stdout.contains("'adA'"), "{replayed:?}");
}

#[test]
fn odd_terminals_get_what_they_can_show() {
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = through("raw.py", &[], arguments);
        Ended::from(command.envs(variables.iter().copied()).output().expect("python3 runs"))
    };
    let code = "import time\nprint('\\x1b[31mred', flush=True)\ntime.sleep(0.5)\n{'a': [1]}";
    let eval = ["eval", "-l", "py", code];
    let colored = with(&[], &eval).stdout;
    assert!(
        colored.contains("\u{1b}[31mred") && colored.ends_with("\u{1b}[0m"),
        "colours, and not for ever: {colored:?}"
    );
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let ended = with(&variables, &eval);
        assert!(ended.stdout.starts_with("red\r\n"), "{variables:?}: {ended:?}");
        assert!(!ended.stdout.contains("\u{1b}["), "{variables:?}: {ended:?}");
    }
    let ended = with(&[("TERM", "dumb")], &["repl"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stdout.contains("which TERM=dumb cannot") && ended.stdout.contains("hint: "), "{}", ended.stdout);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.py");
    fs::write(&file, "[{'city': 'Oslo', 'people': 7}, {'city': 'Bergen', 'people': 3}]").expect("written");
    let narrow = with(&[("COLUMNS", "20"), ("NO_COLOR", "1")], &["run", file.to_str().expect("text")]).stdout;
    let table: Vec<&str> = narrow.lines().filter(|line| line.starts_with(['│', '┌', '└'])).collect();
    assert!(table.len() >= 3 && table.iter().all(|line| line.trim_end().chars().count() <= 20), "{narrow}");
}

#[test]
fn a_prompt_without_a_terminal_says_what_to_do() {
    let ended = crate::support::run(&mut cellar_with_guests(["repl"]));
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("cellar run -l py -"), "{}", ended.stderr);
}

#[test]
fn a_terminal_gets_layout_and_a_file_gets_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rich.py");
    let source = "\
for n in range(100): print('line', n)
# %%
from IPython.display import Markdown
display(Markdown('# Head\\n\\nSome **bold** words'))
display([{'city': 'Oslo', 'people': 7}, {'city': 'Bergen', 'people': 3}])
display({'name': 'x' * 60, 'list': list(range(30))})
";
    fs::write(&file, source).expect("written");
    let path = file.to_str().expect("text");
    let rich = at_terminal(&["run", path], &json!([])).stdout;
    for expected in ["line 4\n… 90 more lines above these", "line 99\n", "Some bold words", "│ Oslo", "├─ name: "]
    {
        assert!(rich.contains(expected), "{expected:?} in {rich}");
    }
    // The words are in the cell's source as well.
    assert!(!rich.contains("line 50") && rich.matches("**bold**").count() == 1, "{rich}");
    for arguments in [vec!["run", path, "--plain", "--lines", "0"], vec!["run", path, "--lines", "0"]] {
        let all = at_terminal(&arguments, &json!([])).stdout;
        let bold = if arguments.contains(&"--plain") { 2 } else { 1 };
        assert_eq!((all.contains("line 50"), all.matches("**bold**").count()), (true, bold), "{all}");
    }
    let plain = crate::support::run(&mut cellar_with_guests(["run", path])).stdout;
    assert!(
        plain.contains("line 50\n") && plain.contains("Some **bold** words") && plain.contains("\"city\": \"Oslo\""),
        "{plain}"
    );
}
