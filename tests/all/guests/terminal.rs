//! Sessions at a terminal: the transcript in its rich form, and the prompt.

use std::{fs, process::Command};

use serde_json::json;

use crate::support::{Ended, cellar_with_guests, root};

/// Variables of a terminal or a CI machine, each of which changes what is shown.
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
        ["type", "setTimeout(() => print('it is', 'late'), 500); 0\r"],
        ["prompt", ""],
        ["wait", "it is late"],
        ["type", "6 * 7\r"],
        ["wait", "42"],
        ["prompt", ""],
        ["type", "_ - 1\r"],
        ["wait", "41"],
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
    let table: Vec<&str> =
        narrow.lines().filter(|line| ["  │", "  ┌", "  └"].iter().any(|edge| line.starts_with(edge))).collect();
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
    // A spinner may be drawn between any two lines.
    for expected in
        ["  line 4\n", "… 90 more lines above these", "  line 99\n", "Some bold words", "│ Oslo", "├─ name: "]
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
    let plain = crate::support::run(&mut cellar_with_guests(["run", "--plain", path])).stdout;
    assert!(
        plain.contains("line 50\n") && plain.contains("Some **bold** words") && plain.contains("'city': 'Oslo'"),
        "{plain}"
    );
}

/// Text that must not reach a terminal: it sets the title, writes to the clipboard, moves the cursor and changes the direction of text.
const HOSTILE: &str = "\u{1b}]0;EVIL\u{7}\u{1b}]52;c;RVZJTA==\u{7}\u{1b}[31337;31337H\u{9b}31337H\u{9d}0;EVIL\u{9c}\u{202e}\u{2066}\u{7f}\u{8}";
/// The same as a text of Python and of JSON.
const HOSTILE_ESCAPED: &str = "\\u001b]0;EVIL\\u0007\\u001b]52;c;RVZJTA==\\u0007\\u001b[31337;31337H\\u009b31337H\\u009d0;EVIL\\u009c\\u202e\\u2066\\u007f\\u0008";

/// Returns what a command sends to a terminal of a hundred columns.
fn at_raw_terminal(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = through("raw.py", &[], arguments);
    command.env("COLUMNS", "100").envs(variables.iter().copied());
    Ended::from(command.output().expect("python3 runs")).stdout
}

/// Fails where there is more than text, colours, and what draws a line again.
fn check_harmless(what: &str, shown: &str) {
    let mut rest = shown;
    while let Some(place) =
        rest.find(|c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    {
        let found = &rest[place..];
        let length = match found.as_bytes()[0] {
            b'\n' | b'\r' | b'\t' => 1,
            0x1b => {
                let end = found.find(|c: char| c.is_ascii_alphabetic()).map(|end| end + 1);
                let sequence = end.map_or(found, |end| &found[..end]);
                let is_own =
                    ["m", "K", "A", "B", "G", "C", "D", "h", "l"].iter().any(|letter| sequence.ends_with(letter));
                assert!(
                    is_own && sequence.starts_with("\u{1b}[") && sequence.len() < 16,
                    "{what}: {sequence:?} in {shown:?}"
                );
                sequence.len()
            }
            _ => panic!("{what}: {:?} in {shown:?}", found.chars().next()),
        };
        rest = &found[length..];
    }
}

#[test]
fn no_name_and_no_output_steers_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("text");
    let check = |arguments: &[&str]| {
        let shown = at_raw_terminal(&[], &[&["--store", place], arguments].concat());
        check_harmless(&format!("{arguments:?}"), &shown);
        shown
    };
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    };
    // What the command line says, which a script may have from elsewhere.
    let missing = check(&["run", &format!("{HOSTILE}.py")]);
    assert!(missing.contains("\\u{1b}]0;EVIL\\u{7}"), "it is shown as what it is: {missing}");
    check(&["eval", "-l", HOSTILE, "1"]);
    check(&["eval", "-l", "py", "--session", HOSTILE, "1"]);
    check(&["eval", "-l", "py", "--mount", &format!("{HOSTILE}:/x"), "1"]);
    check(&["session", "remove", HOSTILE]);
    check(&["session", "snapshot", HOSTILE, "-"]);
    check(&["session", "fork", HOSTILE, "b"]);
    check(&["artifact", "get", HOSTILE]);
    check(&["replay", HOSTILE]);
    check(&["schema", HOSTILE]);
    // What files say.
    for language in [HOSTILE_ESCAPED.to_owned(), "python".to_owned()] {
        let cell = format!(
            r#"{{"cell_type": "code", "id": "a", "execution_count": null, "outputs": [], "source": "1", "metadata": {{"vscode": {{"languageId": "{HOSTILE_ESCAPED}"}}}}}}"#
        );
        let notebook = format!(
            r#"{{"nbformat": 4, "nbformat_minor": 5, "metadata": {{"kernelspec": {{"name": "{language}", "display_name": "{language}"}}}}, "cells": [{cell}]}}"#
        );
        check(&["run", &file("hostile.ipynb", &notebook)]);
    }
    check(&[
        "run",
        &file(
            "hostile.json",
            &format!(r#"{{"{HOSTILE_ESCAPED}": 1, "cells": [{{"language": "{HOSTILE_ESCAPED}", "code": 3}}]}}"#),
        ),
    ]);
    let toml = format!(
        "packages = [\"./{HOSTILE_ESCAPED}\"]\n[environment]\n\"{HOSTILE_ESCAPED}\" = \"1\"\n[mounts]\n\"/x\" = \"./{HOSTILE_ESCAPED}\"\n"
    );
    check(&["doctor", "--config", &file("hostile.toml", &toml)]);
    check(&["doctor", "--config", &file("hostile2.toml", &format!("packages = [\"./{HOSTILE_ESCAPED}\"]\n"))]);
    check(&[
        "doctor",
        "--json",
        "--config",
        &file("hostile2.toml", &format!("packages = [\"./{HOSTILE_ESCAPED}\"]\n")),
    ]);
    // Artifacts, their titles and their types.
    let content = file("content", &format!("{HOSTILE}\u{1b}[31mred\n"));
    check(&["artifact", "put", &content, "--session", "a", "--title", HOSTILE]);
    check(&["artifact", "list"]);
    let listed = check(&["artifact", "list", "--json"]);
    let json = listed.replace('\r', "");
    let listed: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let id = listed[0]["id"].as_str().expect("an id");
    assert!(listed[0]["title"].as_str().expect("a title").contains("\u{9d}0;EVIL"), "JSON means the same: {listed}");
    let got = check(&["artifact", "get", id]);
    assert!(got.contains("\\u{1b}]0;EVIL") && got.contains("red"), "{got}");
    assert!(at_raw_terminal(&[], &["--store", place, "artifact", "get", id, "--raw"]).contains("\u{1b}]0;EVIL\u{7}"));
}

#[test]
fn no_cell_steers_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cells.py");
    let source = format!(
        "# %% {HOSTILE}\nimport sys\nh = \"{HOSTILE_ESCAPED}\"\nprint(h)\nprint(h, file=sys.stderr)\ndisplay({{h: [h, {{h: h}}]}})\n\
         display([{{h: h, 'a': 1}}, {{h: h, 'a': 2}}])\ndisplay({{'text/markdown': h}}, raw=True)\ndisplay({{'text/html': h}}, raw=True)\nh\n\
         # %%\nclass E(Exception): pass\nE.__name__ = h\ndef f(): raise E(h)  # {HOSTILE}\nf()\n"
    );
    fs::write(&file, source).expect("written");
    let path = file.to_str().expect("text");
    for flags in [&[][..], &["--plain"], &["--json"], &["--events"], &["--llm"], &["--lines", "0"]] {
        check_harmless(&format!("{flags:?}"), &at_raw_terminal(&[], &[&["run", path], flags].concat()));
    }
    let ask = format!("input(\"{HOSTILE_ESCAPED}\")");
    for arguments in
        [&["eval", "-l", "py", &ask, "--input"][..], &["eval", "-l", "py", &format!("1 + \"{HOSTILE_ESCAPED}\"")]]
    {
        // Nobody answers: the end of the input is given up for by the time limit of the cell.
        let mut command = through("type.py", &[json!([["type", "\u{4}"]]).to_string()], arguments);
        command.env("COLUMNS", "100");
        check_harmless(&format!("{arguments:?}"), &Ended::from(command.output().expect("python3 runs")).stdout);
    }
}

#[test]
fn pictures_are_made_of_pixels_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cells.py");
    // A picture with text in it, behind its end and in its type; and what only says that it is one.
    let source = "\
import struct, zlib
h = '\\x1b]0;EV' + 'IL\\x07'
def chunk(name, data): return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 16, 16, 8, 2, 0, 0, 0)) + chunk(b'tEXt', b'Title\\0' + h.encode()) \\
    + chunk(b'IDAT', zlib.compress((b'\\0' + bytes(48)) * 16)) + chunk(b'IEND', b'') + h.encode()
display({'image/png': png}, raw=True)
display({'image/png': h}, raw=True)
display({'image/png': b'\\x89PNG' + h.encode()}, raw=True)
display({'image/svg+xml': '<svg>' + h + '</svg>'}, raw=True)
";
    fs::write(&file, source).expect("written");
    for term in ["xterm-kitty", "iTerm.app", "foot"] {
        let images = folder.path().join(term);
        let arguments = ["run", file.to_str().expect("text"), "--images", images.to_str().expect("text")];
        let shown = at_raw_terminal(&[("TERM", term)], &arguments);
        assert!(!shown.contains("EVIL"), "{term}: {shown:?}");
        let sequences: Vec<&str> =
            shown.split('\u{1b}').skip(1).filter(|rest| !rest.starts_with(['[', '\\'])).collect();
        assert_eq!(sequences.len(), 1, "{term}: one picture, one sequence: {sequences:?}");
        let is_payload = |c: char| c.is_ascii_graphic() || matches!(c, '\r' | '\n' | '\u{7}');
        assert!(
            sequences[0].split(['\u{7}', '\r']).next().is_some_and(|payload| payload.chars().all(is_payload)),
            "{term}"
        );
    }
}
