//! Sessions as agents write them, against what they come to natively: see `fixtures/agents/README.md` and `fixtures/reports/README.md`.

#![allow(clippy::print_stdout, reason = "the share is for who runs it by hand")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{cellar_with_guests, root, run_with_input};

/// A cell of a session.
struct AgentCell {
    code: String,
    /// Native output and displays.
    expected: String,
    /// Reason for another result here.
    differs: Option<String>,
}

/// Splits a file at lines that begin with the marker: the rest of such a line, with the text below it.
fn parts<'t>(text: &'t str, marker: &str) -> Vec<(&'t str, String)> {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix(marker) {
            parts.push((said.trim(), String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

/// Without what cannot be seen.
fn trimmed(text: &str) -> String {
    text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn cells(path: &Path, marker: &str) -> Vec<AgentCell> {
    let source = fs::read_to_string(path).expect("a session");
    let beside = fs::read_to_string(format!("{}.expected", path.display())).expect("what it comes to");
    let (source, beside) = (parts(&source, marker), parts(&beside, marker));
    assert_eq!(source.len(), beside.len(), "{}", path.display());
    let cell = |((said, code), (_, expected)): (&(&str, String), &(&str, String))| AgentCell {
        code: trimmed(code),
        expected: trimmed(expected),
        differs: said.strip_prefix("differs: ").map(str::to_owned),
    };
    source.iter().zip(&beside).map(cell).collect()
}

/// Runs a session; what each cell came to, and what a model is shown of all of them.
fn play(cells: &[AgentCell], language: &str, guest: Option<&str>) -> (Vec<String>, String) {
    let cell = |cell: &AgentCell| json!({"language": language, "code": cell.code, "timeout": 120});
    let request = json!({ "cells": cells.iter().map(cell).collect::<Vec<_>>() }).to_string();
    let guest = guest.map(|guest| ["--guest", guest]);
    let run = |how: &str| {
        let flags = ["run", "-", "--keep-going", how].into_iter().chain(guest.into_iter().flatten());
        let ended = run_with_input(&mut cellar_with_guests(flags), request.as_bytes());
        assert!(ended.code <= 1, "{}", ended.stderr);
        ended.stdout
    };
    let mut came_to = vec![String::new(); cells.len()];
    for line in run("--events").lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let Some(index) = event["index"].as_u64() else { continue };
        let text = &mut came_to[usize::try_from(index).expect("an index")];
        match event["type"].as_str().expect("a type") {
            "stdout" => text.push_str(event["text"].as_str().expect("text")),
            "display" => {
                text.push_str(event["data"]["text/plain"].as_str().unwrap_or_default());
                text.push('\n');
            }
            "cell_finished" if !event["error"].is_null() => {
                let part = |name: &str| event["error"][name].as_str().unwrap_or_default().to_owned();
                text.push_str(&format!("{}: {}", part("type"), part("message")));
            }
            _ => {}
        }
    }
    let result: Value = serde_json::from_str(&run("--json")).expect("JSON");
    let blocks = result["content"].as_array().expect("a list").iter();
    let shown = blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n");
    (came_to.iter().map(|text| trimmed(text)).collect(), shown)
}

/// Returns true if a model sees every word of a text.
fn is_shown(shown: &str, text: &str) -> bool {
    text.split_whitespace().all(|word| shown.contains(word))
}

#[test]
fn sessions_of_agents_come_to_what_they_come_to_natively() {
    play_all("fixtures/agents");
}

#[test]
fn what_was_reported_of_other_sandboxes_comes_to_what_it_comes_to_natively() {
    play_all("fixtures/reports");
}

/// Plays the sessions of a folder, and compares.
fn play_all(folder: &str) {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    let paths: BTreeSet<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let (mut all, mut right, mut visible, mut wrong) = (0, 0, 0, Vec::new());
    for path in &paths {
        let (language, marker) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("py") => ("py", "# %%"),
            Some("js") => ("js", "// %%"),
            _ => continue,
        };
        let first = fs::read_to_string(path).expect("a session");
        let guest = first.lines().next().and_then(|line| line.strip_prefix("# guest: "));
        let cells = cells(path, marker);
        let (came_to, shown) = play(&cells, language, guest);
        for (number, (cell, text)) in cells.iter().zip(&came_to).enumerate() {
            let is_right = *text == cell.expected;
            all += 1;
            right += usize::from(is_right);
            visible += usize::from(is_right && is_shown(&shown, text));
            let name = format!("{}, cell {}", path.file_name().expect("a name").display(), number + 1);
            match &cell.differs {
                None if !is_right => {
                    wrong.push(format!("{name}:\n{}\n--- here\n{text}\n--- natively\n{}", cell.code, cell.expected));
                }
                Some(why) if is_right => wrong.push(format!("{name} no longer differs: {why}")),
                _ => {}
            }
        }
    }
    println!("of {all} cells in {folder} {right} come to the same as natively, {visible} in full view of a model");
    assert!(all >= 100, "{all} cells are few");
    assert!(wrong.is_empty(), "{} cells are not as told\n\n{}", wrong.len(), wrong.join("\n\n"));
}
