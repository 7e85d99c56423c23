//! Notebooks as runs, and outputs back in them.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::support::{cellar_with_guests, run};

fn code(source: &str) -> Value {
    json!({"cell_type": "code", "metadata": {}, "execution_count": null, "outputs": [], "source": [source]})
}

fn write(folder: &tempfile::TempDir, name: &str, notebook: &Value) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, notebook.to_string()).expect("written");
    path
}

#[test]
fn outputs_go_back_into_the_notebook() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut skipped = code("1 / 0");
    skipped["metadata"] = json!({"tags": ["skip-execution"]});
    let cells = json!([
        {"cell_type": "markdown", "metadata": {"kept": true}, "source": ["# Title\n", "text"]},
        code("import sys\nprint('a'); print('b')\nprint('c', file=sys.stderr)\n6 * 7"),
        skipped,
        code("h = display({'n': 1}, display_id='one')"),
        code("h.update({'n': 2})\n1 / 0"),
        code("print('not reached')"),
    ]);
    let notebook = json!({"nbformat": 4, "nbformat_minor": 4, "metadata": {"title": "kept"}, "cells": cells});
    let path = write(&folder, "a.ipynb", &notebook);
    let ended = run(cellar_with_guests(["run", "--inplace"]).arg(&path));
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let saved: Value = serde_json::from_str(&fs::read_to_string(&path).expect("read")).expect("JSON");
    assert_eq!(saved["metadata"]["title"], "kept");
    let cells = &saved["cells"];
    assert_eq!((&cells[0]["metadata"]["kept"], &cells[0]["source"]), (&json!(true), &json!(["# Title\n", "text"])));
    let outputs = |place: usize| cells[place]["outputs"].as_array().expect("outputs");
    let streams: Vec<_> = outputs(1).iter().filter(|output| output["output_type"] == "stream").collect();
    assert_eq!((&streams[0]["name"], &streams[0]["text"]), (&json!("stdout"), &json!(["a\n", "b\n"])));
    assert_eq!((&streams[1]["name"], &streams[1]["text"]), (&json!("stderr"), &json!(["c\n"])));
    assert_eq!(cells[1]["execution_count"], 1);
    assert!(outputs(2).is_empty() && outputs(5).is_empty());
    // As the kernel has it: values have a number, and lists and plain objects are shown as their language prints them.
    let value = outputs(1).last().expect("a value");
    assert_eq!((&value["output_type"], &value["execution_count"]), (&json!("execute_result"), &json!(1)));
    assert_eq!(outputs(3)[0]["data"], json!({"text/plain": ["{'n': 2}"]}));
    assert_eq!(outputs(3)[0]["output_type"], "display_data");
    let error = outputs(4).last().expect("an error");
    assert_eq!((&error["output_type"], &error["ename"]), (&json!("error"), &json!("ZeroDivisionError")));
    let before = fs::read(&path).expect("read");
    run(cellar_with_guests(["run", "--json"]).arg(&path));
    assert_eq!(fs::read(&path).expect("read"), before, "a run without --inplace leaves the file alone");
}

/// A cell that shows without end fills neither the file nor memory.
#[test]
fn what_is_shown_without_end_is_cut_and_the_file_says_so() {
    const NOTEBOOK_BYTES_MAX: u64 = 100 << 20;
    let floods = [
        "from IPython.display import HTML\nwhile True: display(HTML('x' * 4_000_000))",
        "import sys\nwhile True:\n    print('o' * 10_000)\n    print('e' * 10_000, file=sys.stderr)",
        "handles = [display({'n': 1}, display_id=True) for _ in range(900)]\nwhile True:\n    for handle in handles: handle.update({'n': 'x' * 1_000_000})",
    ];
    for flood in floods {
        let folder = tempfile::tempdir().expect("a folder");
        let notebook =
            json!({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [code(flood), code("'alive'")]});
        let path = write(&folder, "flood.ipynb", &notebook);
        let ended = run(cellar_with_guests(["run", "--inplace", "--timeout", "3", "--keep-going"]).arg(&path));
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let bytes = fs::metadata(&path).expect("a file").len();
        assert!(bytes < NOTEBOOK_BYTES_MAX, "{bytes} bytes");
        let saved: Value = serde_json::from_str(&fs::read_to_string(&path).expect("read")).expect("JSON");
        let outputs = saved["cells"][0]["outputs"].as_array().expect("outputs");
        assert!(outputs.iter().any(|output| output["output_type"] == "error"), "{flood}");
    }
}

#[test]
fn a_notebook_of_javascript_runs_as_javascript() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = json!({"kernelspec": {"display_name": "Deno", "name": "deno", "language": "javascript"}});
    let cells = json!([code("const n = 40;\nn + 2")]);
    let path =
        write(&folder, "b.ipynb", &json!({"nbformat": 4, "nbformat_minor": 4, "metadata": kernel, "cells": cells}));
    let ended = run(cellar_with_guests(["run", "--plain"]).arg(&path));
    assert!(ended.stdout.contains("JavaScript") && ended.stdout.contains("42"), "{}", ended.stdout);
}

#[test]
fn what_is_no_notebook_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |notebook: &Value, word: &str| {
        let path = write(&folder, "c.ipynb", notebook);
        let ended = run(cellar_with_guests(["run"]).arg(&path));
        assert_eq!(ended.code, 2, "{notebook}");
        assert!(ended.stderr.contains(word) && ended.stderr.contains("c.ipynb"), "{}", ended.stderr);
    };
    check(&json!([]), "not a notebook");
    check(&json!({"nbformat": 9, "nbformat_minor": 0, "cells": []}), "not a notebook");
    check(&json!({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": []}), "no code");
    let julia = json!({"kernelspec": {"display_name": "Julia", "name": "julia-1.9", "language": "julia"}});
    check(&json!({"nbformat": 4, "nbformat_minor": 4, "metadata": julia, "cells": [code("1")]}), "julia");
    let path = folder.path().join("cells.py");
    fs::write(&path, "1").expect("written");
    let ended = run(cellar_with_guests(["run", "--inplace"]).arg(&path));
    assert!(ended.code == 2 && ended.stderr.contains("--inplace is for notebooks"), "{}", ended.stderr);
}
