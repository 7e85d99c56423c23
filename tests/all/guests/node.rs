//! Programs that run in Node and here, and must print the same, but for differences that are listed with their reasons.

use std::{fmt::Write, fs, path::Path, process::Command};

use crate::support::{cellar_with_guests, root, run};

/// Lines that differ, in the format of the lists: Node's after `< `, ours after `> `.
fn differences(node: &str, ours: &str) -> String {
    let (node, ours): (Vec<&str>, Vec<&str>) = (node.lines().collect(), ours.lines().collect());
    let mut text = String::new();
    for at in 0..node.len().max(ours.len()) {
        let (expected, found) = (node.get(at), ours.get(at));
        if expected == found {
            continue;
        }
        for (mark, line) in [('<', expected), ('>', found)] {
            if let Some(line) = line {
                writeln!(text, "{mark} {line}").expect("text grows");
            }
        }
    }
    text
}

/// A list without its reasons, which are comments.
fn without_reasons(list: &str) -> String {
    list.lines().filter(|line| line.starts_with(['<', '>'])).map(|line| format!("{line}\n")).collect()
}

fn printed_by_node(program: &Path) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let module = folder.path().join("program.mjs"); // so that `await` works at its top level
    fs::copy(program, &module).expect("a program");
    // Sessions have an empty folder of their own, universal time, and American English.
    let output = Command::new("node")
        .arg(&module)
        .current_dir(&folder)
        .env("TZ", "UTC")
        .env("LC_ALL", "en_US.UTF-8")
        .env("TMPDIR", folder.path())
        .output()
        .expect("Node runs; `make setup` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn javascript_prints_what_node_prints() {
    let folder = root().join("fixtures/oracle/javascript");
    let mut programs: Vec<_> = fs::read_dir(&folder)
        .expect("programs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "js"))
        .collect();
    programs.sort();
    assert!(programs.len() >= 4, "{programs:?}");
    let mut wrong = String::new();
    for program in &programs {
        let source = fs::read_to_string(program).expect("a program");
        let ended = run(&mut cellar_with_guests(["eval", "-l", "js", &source]));
        assert_eq!(ended.code, 0, "{}: {}", program.display(), ended.stderr);
        let found = differences(&printed_by_node(program), &ended.stdout);
        let list = fs::read_to_string(program.with_extension("differences")).unwrap_or_default();
        if found != without_reasons(&list) {
            writeln!(wrong, "{}: these lines differ:\n{found}", program.display()).expect("text grows");
        }
    }
    assert!(wrong.is_empty(), "not what the lists in {} say:\n{wrong}", folder.display());
}

#[test]
fn every_difference_from_node_has_a_reason() {
    for entry in fs::read_dir(root().join("fixtures/oracle/javascript")).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|end| end != "differences") {
            continue;
        }
        for block in fs::read_to_string(&path).expect("a list").split("\n\n") {
            assert!(block.trim_start().starts_with('#'), "{}: no reason before:\n{block}", path.display());
        }
    }
}
