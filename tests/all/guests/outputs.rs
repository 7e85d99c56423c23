//! Displays of cells on the command line: tables and charts as a model is given them.

use serde_json::{Value, json};

use crate::support::{cellar_with_guests, check_shape, root, run};

/// Returns the exit code of `--llm` with these flags, and its output.
fn shown(code: &str, flags: &[&str]) -> (i32, Value) {
    let arguments = ["eval", "--guest", "python-data", "-l", "py", code, "--llm"];
    let ended = run(&mut cellar_with_guests(arguments.iter().chain(flags)));
    let given = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    check_shape("outputs", &given);
    (ended.code, given)
}

#[test]
fn a_model_is_given_blocks() {
    let code = "print('first')\npd.DataFrame({'n': np.arange(5)}, index=pd.Index(list('abcde'), name='key'))";
    let (exit, given) = shown(code, &["--rows", "2"]);
    let outputs = given["outputs"].as_array().expect("outputs");
    assert_eq!((exit, &given["isError"], outputs.len()), (0, &json!(false), 2));
    assert_eq!(outputs[0]["blocks"], json!([{"type": "text", "text": "first\n"}]));
    let path = outputs[1]["path"].as_str().expect("a path");
    let head = format!("DataFrame of 5 rows × 1 column, {path}\nkey str, n int64");
    let rows = "key,n\na,0\nb,1\n[3 more rows, from row 2]";
    let expected = json!({
        "output": 1, "index": 0, "kind": "dataframe", "path": path, "next": 2,
        "blocks": [{"type": "text", "text": head}, {"type": "text", "text": rows}],
    });
    assert_eq!(outputs[1], expected);
    let (exit, given) = shown("print('x' * 100)\n1 / 0", &["--characters", "30"]);
    let outputs = given["outputs"].as_array().expect("outputs");
    assert_eq!((exit, &given["isError"]), (1, &json!(true)));
    assert_eq!((&outputs[0]["next"], &outputs[1]["kind"]), (&json!(30), &json!("exception")));
    let text = format!("{}\n[71 more characters, from character 30]", "x".repeat(30));
    assert_eq!(outputs[0]["blocks"], json!([{"type": "text", "text": text}]));
}

#[test]
fn a_model_is_given_pictures_of_charts() {
    let chart = "alt.Chart(pd.DataFrame({'a': [1, 2]})).mark_bar().encode(x='a:Q')";
    let (_, given) = shown(chart, &[]);
    let url = given["outputs"][0]["blocks"][0]["image_url"]["url"].as_str().expect("an image");
    // How every PNG begins.
    assert!(url.starts_with("data:image/png;base64,iVBORw0KGgo"), "{url:.60}");
    let (_, given) = shown(chart, &["--no-charts"]);
    let output = &given["outputs"][0];
    let text = output["blocks"][0]["text"].as_str().expect("a specification");
    assert!(output["kind"] == "figure" && text.contains("vega-lite") && text.contains("\"bar\""), "{text}");
}

#[test]
fn a_replay_gives_a_model_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("run.cellar");
    let path = recording.to_str().expect("text");
    let (_, expected) = shown("pd.DataFrame({'n': np.arange(70)})", &["--record", path]);
    let ended = run(cellar_with_guests(["replay", path, "--llm"]).current_dir(root()));
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).ok(), Some(expected), "{}", ended.stderr);
}

#[test]
fn a_chart_is_told_of_as_a_picture_or_printed_as_a_specification() {
    let chart = "alt.Chart(pd.DataFrame({'a': [1, 2]})).mark_bar().encode(x='a:Q')";
    let arguments = ["eval", "--guest", "python-data", "-l", "py", chart];
    let drawn = run(&mut cellar_with_guests(arguments));
    assert!(drawn.stdout.is_empty() && drawn.stderr.starts_with("[image/png, "), "{drawn:?}");
    let plain = run(&mut cellar_with_guests(arguments.iter().chain(&["--no-charts"])));
    let specification: Value = serde_json::from_str(&plain.stdout).unwrap_or_else(|error| panic!("{error}: {plain:?}"));
    assert_eq!(specification["mark"], json!({"type": "bar"}));
}

#[test]
fn a_notebook_keeps_tables_and_charts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("n.ipynb");
    let code = |source: &str| json!({"cell_type": "code", "metadata": {}, "execution_count": null, "outputs": [], "source": source});
    let cells = [
        code("import altair, pandas\nframe = pandas.DataFrame({'a': [1, 2]})\nframe"),
        code("altair.Chart(frame).mark_bar().encode(x='a')"),
    ];
    let notebook = json!({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells});
    std::fs::write(&path, notebook.to_string()).expect("written");
    let mut command = cellar_with_guests(["run", "--inplace", "--plain", "--guest", "python-data"]);
    let ended = run(command.arg(&path));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("| 0 | 1 |") && ended.stdout.contains("[image/png, "), "{}", ended.stdout);
    let saved: Value = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    let shown = |cell: usize| saved["cells"][cell]["outputs"][0]["data"].as_object().expect("a bundle").clone();
    let types = |cell: usize| shown(cell).keys().cloned().collect::<Vec<_>>();
    assert_eq!(types(0), ["application/vnd.dataresource+json", "text/html", "text/markdown", "text/plain"]);
    assert_eq!(types(1), ["application/vnd.vegalite.v5+json", "image/png", "image/svg+xml", "text/plain"]);
    assert_eq!(shown(0)["application/vnd.dataresource+json"]["data"], json!([{"a": 1}, {"a": 2}]));
}
