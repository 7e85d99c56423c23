//! Cells that IPython and Cellar must run alike: see `fixtures/oracle/README.md`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{cellar_with_guests, native_python, python_packages, root, run_with_input};

/// Cell of a fixture, with the reason for another result if there must be one.
struct OracleCell {
    code: String,
    differs: Option<String>,
}

fn cells(path: &Path) -> Vec<OracleCell> {
    let mut cells: Vec<OracleCell> = Vec::new();
    for line in fs::read_to_string(path).expect("a fixture").lines() {
        if let Some(marker) = line.strip_prefix("# %%") {
            let differs = marker.trim().strip_prefix("differs: ").map(str::to_owned);
            cells.push(OracleCell { code: String::new(), differs });
        } else {
            let cell = cells.last_mut().expect("a fixture begins with a marker");
            cell.code.push_str(line);
            cell.code.push('\n');
        }
    }
    for cell in &mut cells {
        cell.code.truncate(cell.code.trim_end().len());
    }
    cells
}

fn in_ipython(cells: &[OracleCell]) -> Vec<Value> {
    let sources: Vec<&str> = cells.iter().map(|cell| cell.code.as_str()).collect();
    let mut command = Command::new(native_python("python"));
    command
        .arg(root().join("fixtures/oracle/ipython_cells.py"))
        .env("PYTHONPATH", python_packages("ipython", "fixtures/oracle/requirements.txt"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = run_with_input(&mut command, json!(sources).to_string().as_bytes());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("a list of records")
}

fn in_cellar(cells: &[OracleCell]) -> Vec<Value> {
    let request: Vec<Value> = cells.iter().map(|cell| json!({"language": "py", "code": cell.code})).collect();
    let mut command = cellar_with_guests(["run", "-", "--keep-going", "--events", "--no-charts"]);
    let ended = run_with_input(&mut command, json!({ "cells": request }).to_string().as_bytes());
    assert!(ended.code <= 1, "{}", ended.stderr);
    let empty = json!({"stdout": "", "stderr": "", "displays": [], "error": null});
    let mut records = vec![empty; cells.len()];
    for line in ended.stdout.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let Some(index) = event["index"].as_u64() else { continue };
        note(&mut records[usize::try_from(index).expect("an index")], &event);
    }
    records
}

/// Adds an event to what is known of its cell.
fn note(record: &mut Value, event: &Value) {
    let kind = event["type"].as_str().expect("a type");
    let mut show = |shown: Value| record["displays"].as_array_mut().expect("a list").push(shown);
    match kind {
        "stdout" | "stderr" => {
            let text = format!("{}{}", record[kind].as_str().expect("text"), event["text"].as_str().expect("text"));
            record[kind] = text.into();
        }
        "display" => show(event["data"].clone()),
        "update_display" => {
            let mut shown = event["data"].clone();
            shown["update"] = true.into();
            show(shown);
        }
        "clear_output" => show(json!({"clear": event["wait"]})),
        "cell_finished" if !event["error"].is_null() => {
            let error = &event["error"];
            record["error"] = json!({"name": error["type"], "message": error["message"], "line": error["line"]});
        }
        _ => {}
    }
}

/// A record without what may always differ.
fn comparable(mut record: Value) -> Value {
    for shown in record["displays"].as_array_mut().expect("a list") {
        let shown = shown.as_object_mut().expect("a bundle");
        shown.remove("application/json");
        if shown.contains_key("text/html") {
            shown.remove("text/markdown");
        }
    }
    let text = without_addresses(&record.to_string());
    serde_json::from_str(&with_our_names(&text)).expect("JSON")
}

/// `0x7f0a…` as `0x…`.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.chars().take_while(char::is_ascii_hexdigit).count();
        out.push_str("0x");
        out.push_str(if digits >= 5 { "…" } else { &part[..digits] });
        out.push_str(&part[digits..]);
    }
    out
}

/// `<ipython-input-3-0123456789ab>` as `<cell 3>`.
fn with_our_names(text: &str) -> String {
    let mut parts = text.split("<ipython-input-");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('>').expect("the end of a name");
        let (number, _digest) = name.split_once('-').expect("a number and a digest");
        out.push_str(&format!("<cell {number}>{rest}"));
    }
    out
}

fn differences(path: &Path) -> Vec<String> {
    let cells = cells(path);
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let records = in_cellar(&cells).into_iter().zip(in_ipython(&cells));
    let mut found = Vec::new();
    for (number, ((ours, theirs), cell)) in records.zip(&cells).enumerate() {
        let (ours, theirs) = (comparable(ours), comparable(theirs));
        match &cell.differs {
            None if ours != theirs => found.push(format!("{name}:\n{}\nhere:    {ours}\nIPython: {theirs}", cell.code)),
            Some(why) if ours == theirs => found.push(format!("{name}: cell {}: no longer differs: {why}", number + 1)),
            _ => {}
        }
    }
    found
}

#[test]
fn cells_come_to_the_same_as_in_ipython() {
    let entries = fs::read_dir(root().join("fixtures/oracle/python")).expect("a folder");
    let paths: BTreeSet<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!paths.is_empty());
    let found: Vec<String> = paths.iter().flat_map(|path| differences(path)).collect();
    assert!(found.is_empty(), "{} cells differ\n\n{}", found.len(), found.join("\n\n"));
}
