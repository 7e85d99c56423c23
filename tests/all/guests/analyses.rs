//! Analyses of real data, in the data guest and natively: see `fixtures/oracle/README.md`.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use similar::TextDiff;

use crate::support::{cellar_with_guests, native_python, root, run};

/// Returns the output of a program in the data guest.
fn printed_here(program: &Path, data: &Path) -> String {
    let mount = format!("{}:/data", data.display());
    let mut command = cellar_with_guests(["run"]);
    command.arg(program).args(["--events", "--guest", "python-data", "--env", "DATA=/data", "--mount", &mount]);
    let ended = run(&mut command);
    let events: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("events are JSON")).collect();
    let failed = events.iter().find_map(|event| event["error"]["traceback"].as_str()).unwrap_or_default();
    assert_eq!(ended.code, 0, "{}{failed}", ended.stderr);
    let text = |event: &Value| event["text"].as_str().unwrap_or_default().to_owned();
    events.iter().filter(|event| event["type"] == "stdout" || event["type"] == "stderr").map(text).collect()
}

#[test]
fn analyses_of_real_data_print_what_they_print_natively() {
    let (native, data) = (native_python("python-data"), root().join("target/datasets"));
    let folder = fs::read_dir(root().join("fixtures/oracle/analyses")).expect("a folder");
    let programs: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    assert!(programs.len() > 5, "{programs:?}");
    let differences = programs.iter().filter_map(|program| {
        let here = printed_here(program, &data);
        let there = run(Command::new(&native).arg(program).env("DATA", &data).stdin(std::process::Stdio::null()));
        assert_eq!((there.code, there.stderr.as_str()), (0, ""), "{}", program.display());
        let diff = TextDiff::from_lines(&there.stdout, &here).unified_diff().header("native", "here").to_string();
        (here != there.stdout).then(|| format!("{}\n{diff}", program.display()))
    });
    let differences: Vec<String> = differences.collect();
    assert!(differences.is_empty(), "{} analyses differ\n\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn the_example_runs_as_the_readme_shows() {
    let cellar = env!("CARGO_BIN_EXE_cellar");
    let mut example = Command::new(root().join("fixtures/analysis/run"));
    let ended = run(example.arg(cellar).arg(root().join("target/datasets")).current_dir(root()));
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    for expected in [
        "342 penguins of 3 species\n  |  | species | island |",
        "| Gentoo | 123 | 47.5 | 217.2 | 5076.0 |",
        "mass = 49.7 g/mm x flipper -5781 g, correlation 0.871",
        "Gentoo: 23.4 g/mm\n  Adelie: 19.5 g/mm\n  Chinstrap: 19.1 g/mm",
        "by island: {'Biscoe': 167, 'Dream': 124, 'Torgersen': 51}",
        "[image/png, ",
        "CellTimeout: the cell ran past its time limit",
        "stopped after many steps; still 342 penguins here",
    ] {
        assert!(ended.stdout.contains(expected), "no `{expected}` in\n{}", ended.stdout);
    }
}

#[test]
fn the_example_of_lineage_tells_where_its_tables_come_from() {
    let mut example = Command::new(root().join("fixtures/lineage/run"));
    example.env("CELLAR_GUESTS", root().join("target/guests")).env("NO_COLOR", "1");
    let cellar = env!("CARGO_BIN_EXE_cellar");
    let ended = run(example.arg(cellar).arg(root().join("target/datasets")).current_dir(root()));
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    for expected in [
        "market.prices: 255 rows, 3 columns in ",
        "lake.employment: 120 rows, 3 columns in ",
        "255 prices, 120 months of employment",
        "[image/png, ",
        "market.prices: 255 rows, 3 columns, cached in ",
        "shares were lowest in July 2006, at 84%; construction fell to 72%",
        "crisis  report.py  <cell 1> in Python  shares_and_jobs version 1\n",
        "crisis  market.py  <cell 3> in Python  market.prices  lake.employment\n",
    ] {
        assert!(ended.stdout.contains(expected), "no `{expected}` in\n{}", ended.stdout);
    }
}
