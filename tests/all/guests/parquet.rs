//! Files of tables, read by pandas with pyarrow: see `fixtures/oracle/README.md`.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    cellar_with_guests, config, native_python, python_packages, result_of, root, run, run_with_input, text,
};

const RESOURCE: &str = "application/vnd.dataresource+json";

/// Titles and code of the cells of a fixture.
fn cells(text: &str) -> Vec<(String, String)> {
    let cells = text.split("\n# %% ").skip(1);
    cells
        .map(|cell| cell.split_once('\n').map(|(title, code)| (title.to_owned(), code.to_owned())).expect("code"))
        .collect()
}

/// Returns the displays of the cells.
fn displays(cells: &[(String, String)], store: &str) -> Vec<Value> {
    let cell = |(_, code): &(String, String)| json!({"language": "py", "code": format!("{code}\nframe")});
    let request = json!({"cells": cells.iter().map(cell).collect::<Vec<_>>()});
    let mut command = cellar_with_guests(["run", "-", "--events", "--guest", "python-data", "--store", store]);
    let ended = run_with_input(&mut command, request.to_string().as_bytes());
    let failed = || ended.stdout.lines().find(|line| line.contains("\"traceback\"")).unwrap_or_default();
    assert_eq!(ended.code, 0, "{}{}", ended.stderr, failed());
    let events = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.filter(|event| event["type"] == "display").map(|mut event| event["data"].take()).collect()
}

#[test]
fn pyarrow_reads_the_table_that_was_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store").to_str().expect("text").to_owned();
    let fixture = fs::read_to_string(root().join("fixtures/oracle/tables/frames.py")).expect("a fixture");
    let cells = cells(&fixture);
    let displays = displays(&cells, &store);
    assert_eq!(displays.len(), cells.len());
    let cases = cells.iter().zip(&displays).enumerate().map(|(number, ((title, code), shown))| {
        let resource = &shown[RESOURCE];
        let uri = resource["path"].as_str().unwrap_or_else(|| panic!("{title}: {}", resource["notice"]));
        let file = folder.path().join(format!("{number}.parquet")).to_str().expect("text").to_owned();
        let got = run(&mut cellar_with_guests(["artifact", "get", uri, &file, "--store", &store]));
        assert_eq!(got.code, 0, "{}", got.stderr);
        let fields = resource["schema"]["fields"].as_array().expect("fields");
        let types: Vec<&Value> = fields.iter().map(|field| &field["dtype"]).collect();
        json!({"code": code, "file": file, "types": types, "text": shown["text/plain"]})
    });
    let cases: Value = cases.collect();
    let mut python = Command::new(native_python("python-data"));
    python.arg(root().join("fixtures/oracle/tables/read.py"));
    python.arg(python_packages("pyarrow", "fixtures/oracle/tables/requirements.txt"));
    let ended = run_with_input(python.stdout(Stdio::piped()).stderr(Stdio::piped()), cases.to_string().as_bytes());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let found: Vec<Option<String>> = serde_json::from_str(&ended.stdout).expect("a list");
    assert_eq!(found.len(), cells.len());
    let differences =
        found.iter().zip(&cells).filter_map(|(why, (title, _))| Some(format!("{title}: {}", why.as_ref()?)));
    let differences: Vec<String> = differences.collect();
    assert!(differences.is_empty(), "{} tables differ\n\n{}", differences.len(), differences.join("\n\n"));
}

/// Writes the table of each cell, and reads it again from its file, a dataset and Feather, and as pyarrow has written it; notes the
/// error where it is refused.
const FILES: &str = "
import json, os
found = []
for number, code in enumerate(json.loads(CASES)):
    names = dict(NAMES)
    exec(code, names)
    frame, mine, native = names['frame'], f'/files/cellar-{number}.parquet', f'/files/native-{number}.parquet'
    case = {'refused': names.get('refused')}
    try:
        frame.to_parquet(mine)
        case['own'] = described(pd.read_parquet(mine))
        publish_dataset('case', frame)
        case['dataset'] = described(load_dataset('case'))
        if isinstance(frame.index, pd.RangeIndex) and frame.index.name is None and len(frame.columns):
            frame.to_feather('t.feather')
            case['feather'] = described(pd.read_feather('t.feather'))
    except ValueError as error:
        case['error'] = str(error)
        try:
            publish_dataset('case', frame)
        except RuntimeError as error:
            case['published'] = str(error)
    try:
        case['theirs'] = described(pd.read_parquet(native)) if os.path.exists(native) else None
    except ValueError as error:
        case['theirs'] = str(error)
    found.append(case)
with open('/files/found.json', 'w') as file:
    json.dump(found, file)
";

#[test]
fn files_come_back_as_with_pyarrow_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = folder.path().to_str().expect("text");
    let tables = root().join("fixtures/oracle/tables");
    let cells = cells(&fs::read_to_string(tables.join("files.py")).expect("a fixture"));
    let codes = json!(cells.iter().map(|(_, code)| code).collect::<Vec<_>>());
    // The second time, there are Cellar's files as well.
    let native = || -> Vec<[Option<String>; 3]> {
        let mut python = Command::new(native_python("python-data"));
        python.arg(tables.join("native.py"));
        python.arg(python_packages("pyarrow", "fixtures/oracle/tables/requirements.txt")).arg(files);
        let ended = run_with_input(python.stdout(Stdio::piped()).stderr(Stdio::piped()), codes.to_string().as_bytes());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        serde_json::from_str(&ended.stdout).expect("a list")
    };
    native();
    let (_config, config) = config("[datasets]\npublish = true\n");
    let described = fs::read_to_string(tables.join("described.py")).expect("a fixture");
    let code = format!("{described}\nCASES = {}\n{FILES}", json!(codes.to_string()));
    let (store, mount) = (format!("{files}/store"), format!("{files}:/files:rw"));
    let flags =
        ["--guest", "python-data", "--mount", &mount, "--timeout", "300", "--store", &store, "--session", "files"];
    let flags = [&flags[..], &["--config", config.to_str().expect("text")]].concat();
    let result = result_of("py", &[&code], &flags);
    assert!(result["error"].is_null(), "{}", text(&result));
    let found = fs::read_to_string(folder.path().join("found.json")).expect("what was found");
    let found: Vec<Value> = serde_json::from_str(&found).expect("a list");
    let mut differences = Vec::new();
    for (((title, _), case), [natively, of_ours, kept]) in cells.iter().zip(&found).zip(native()) {
        let mut check = |what: &str, found: Option<&str>, expected: Option<&str>| {
            if found != expected {
                let told = |text: Option<&str>| text.unwrap_or("nothing").chars().take(2_000).collect::<String>();
                differences.push(format!("{title}, {what}\n{}\ninstead of\n{}", told(found), told(expected)));
            }
        };
        let error = case["error"].as_str();
        if let Some(refused) = case["refused"].as_str() {
            let is_told = |error: Option<&str>| error.filter(|error| error.contains(refused)).map(|_| refused);
            check("refused", is_told(error).or(error), Some(refused));
            check("not published", is_told(case["published"].as_str()), Some(refused));
            continue;
        }
        check("error", error, None);
        let expected = kept.as_deref().or(natively.as_deref());
        check("own", case["own"].as_str(), expected);
        check("dataset", case["dataset"].as_str(), expected);
        if let Some(feather) = case["feather"].as_str() {
            check("Feather", Some(feather), expected);
        }
        if kept.is_none() {
            check("theirs", case["theirs"].as_str(), natively.as_deref());
            check("ours read by pyarrow", of_ours.as_deref(), natively.as_deref());
        }
    }
    assert!(differences.is_empty(), "{} differences\n\n{}", differences.len(), differences.join("\n\n"));
    assert_eq!(found.len(), cells.len());
}

/// Files that are no tables, or were damaged, are errors of the cell. The session goes on, and nothing is left behind.
#[test]
fn a_damaged_file_is_an_error_like_any_other() {
    let code = fs::read_to_string(root().join("fixtures/oracle/tables/damaged.py")).expect("a fixture");
    let result = result_of("py", &[&code], &["--guest", "python-data"]);
    let told = result["content"][0]["text"].as_str().expect("text");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..3], ["True True", "True True []", "True 10000000"], "{told}");
    let expected = [
        "`t.feather` cannot be read: ",
        "`t.parquet` cannot be read: it has no column `absent`",
        "`t.parquet` cannot be written: path leads out of every granted folder",
        "b'\\x89PNG' <svg []",
    ];
    for (line, expected) in lines[3..].iter().zip(expected) {
        assert!(line.starts_with(expected), "{told}");
    }
    assert_eq!(lines.len(), 7, "{told}");
}
