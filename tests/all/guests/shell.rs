//! Lines of the shell, whose bytes must be those of GNU's tools: see `fixtures/oracle/README.md`.

use std::{fmt::Write, fs};

use serde_json::{Value, json};

use crate::support::{cellar_with_guests, root, run_with_input};

/// Lines that one cell runs: each is a process, of which a cell may start so many.
const LINES: usize = 300;

/// Prints, for each line, its status and its bytes as characters of Latin-1.
const RUNNER: &str = r#"
import concurrent.futures, json, os, subprocess

def run(number, line):
    folder = f"{os.getcwd()}/{number}"
    os.mkdir(folder)
    make(folder)
    environment = os.environ | {"HOME": folder, "TZ": "UTC"}
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True)
    return [done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("utf-8", "replace")]

with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for found in pool.map(run, range(len(lines)), lines):
        print(json.dumps(found))
"#;

#[test]
fn the_shell_writes_the_bytes_that_gnu_tools_write() {
    let folder = root().join("fixtures/oracle/shell");
    let files = fs::read_to_string(folder.join("files.py")).expect("files");
    let recorded = fs::read_to_string(folder.join("lines.json")).expect("what was recorded");
    let recorded: Vec<(String, i64, String)> = serde_json::from_str(&recorded).expect("lines with what they give");
    let written = fs::read_to_string(folder.join("lines.txt")).expect("lines");
    let written: Vec<&str> = written.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(recorded.iter().map(|(line, ..)| line).collect::<Vec<_>>(), written, "lines that are not recorded");
    let mut wrong = String::new();
    for part in recorded.chunks(LINES) {
        let lines: Vec<&str> = part.iter().map(|(line, ..)| line.as_str()).collect();
        let lines = Value::from(json!(lines).to_string());
        let code = format!("{files}\nimport json\nlines = json.loads({lines})\n{RUNNER}");
        let mut command = cellar_with_guests(["run", "-", "--events", "--timeout", "300"]);
        let ended =
            run_with_input(&mut command, json!({"cells": [{"language": "py", "code": code}]}).to_string().as_bytes());
        assert_eq!(ended.code, 0, "{}\n{}", ended.stderr, ended.stdout);
        let events = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
        let printed: String = events
            .filter(|event| event["type"] == "stdout")
            .filter_map(|event| Some(event["text"].as_str()?.to_owned()))
            .collect();
        assert_eq!(printed.lines().count(), part.len(), "{printed}");
        for ((line, status, bytes), found) in part.iter().zip(printed.lines()) {
            let (our_status, our_bytes, said): (i64, String, String) =
                serde_json::from_str(found).expect("a line's end");
            if (our_status, &our_bytes) != (*status, bytes) {
                writeln!(wrong, "{line}\n  GNU: {status} {bytes:?}\n  ours: {our_status} {our_bytes:?} {said}")
                    .expect("text grows");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
