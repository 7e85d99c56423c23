//! Python's suites. Each module runs in sessions of its own: in one, and when a test kills its kernel in another from
//! the next test on. What became of each test is read from a file in the workspace.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf, time::Duration};

use cellar_engine::{
    Cell, EventKind, GuestName, Host, Language, Limits, Outcome, SessionConfig,
    config::{FolderGrants, KernelOptions},
    outcome::FailureKind,
};
use futures::StreamExt;
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;

use crate::{
    Selection,
    expected::{List, Verdict},
    open_host, root, suite_folder,
};

/// Begins every cell: says what became of tests.
const NOTES: &str = include_str!("../../fixtures/conformance/notes.py");
/// Runs the tests of one module of CPython's own.
const RUN_LIBRARY: &str = include_str!("../../fixtures/conformance/run_library.py");
/// Runs the tests of one file of a package.
const RUN_PACKAGE: &str = include_str!("../../fixtures/conformance/run_package.py");
/// Runner of the data guest: the same behind a preamble.
const RUN_DATA: &str = concat!(
    include_str!("../../fixtures/conformance/run_data.py"),
    include_str!("../../fixtures/conformance/run_package.py")
);
/// File to which the cell writes the results.
const RESULTS: &str = ".results.ndjson";
/// Kernels that one module may cost.
const DEATHS_MAX: usize = 8;

/// CPython's own tests of its standard library.
pub(crate) fn library(selection: Selection) -> Result<Vec<Trial>, String> {
    trials("python-library", selection, |list, module| {
        let packages = suite_folder("python-library")?;
        let name = format!("test.{module}");
        let verdicts = run(GuestName::Python, RUN_LIBRARY, &name, &[packages])?;
        list.compare(&[&format!("{name}."), &format!("{module}:")], &qualified(module, verdicts)).map_err(Failed::from)
    })
}

/// The own tests of popular packages, installed as users install them. A file of tests stands for a module.
pub(crate) fn packages(selection: Selection) -> Result<Vec<Trial>, String> {
    trials("python-packages", selection, |list, file| {
        check_file(list, file, "python-packages", GuestName::Python, RUN_PACKAGE)
    })
}

/// The own tests of NumPy and pandas, in the data guest.
pub(crate) fn data(selection: Selection) -> Result<Vec<Trial>, String> {
    trials("python-data", selection, |list, file| {
        check_file(list, file, "python-data", GuestName::PythonData, RUN_DATA)
    })
}

/// The own tests of what else the data guest has.
pub(crate) fn data_packages(selection: Selection) -> Result<Vec<Trial>, String> {
    trials("python-data-packages", selection, |list, file| {
        check_file(list, file, "python-data-packages", GuestName::PythonData, RUN_DATA)
    })
}

/// Runs a file of tests of a suite, or all of a folder.
fn check_file(list: &List, file: &str, suite: &str, guest: GuestName, runner: &str) -> Result<(), Failed> {
    let suite = suite_folder(suite)?;
    let verdicts = run(guest, runner, file, &[suite.join("packages"), suite.join("tests")])?;
    if verdicts.is_empty() {
        return Err(format!("`{file}` holds no tests").into());
    }
    // pytest begins an identity with the file as its package sees it.
    let (package, _) = file.split_once('/').ok_or("a file is listed with its package before it")?;
    let verdicts = verdicts.into_iter().map(|(test, verdict)| (format!("{package}/{test}"), verdict)).collect();
    list.compare(&[&format!("{file}::"), &format!("{file}/")], &verdicts).map_err(Failed::from)
}

/// A trial for each module in the list of a suite.
fn trials(
    suite: &'static str,
    selection: Selection,
    check: fn(&List, &str) -> Result<(), Failed>,
) -> Result<Vec<Trial>, String> {
    let list = List::load(&root().join("fixtures/conformance").join(suite).with_extension("toml"))?;
    let list: &'static List = Box::leak(Box::new(list));
    let rest = if selection == Selection::All { list.rest.as_slice() } else { &[] };
    let trial = |module: &'static String| Trial::test(format!("{suite}::{module}"), move || check(list, module));
    Ok(list.quick.iter().chain(rest).map(trial).collect())
}

/// Tests whose identity does not begin with their module's (those that it imports from another) get it put before.
fn qualified(module: &str, verdicts: BTreeMap<String, Verdict>) -> BTreeMap<String, Verdict> {
    let prefix = format!("test.{module}.");
    let qualify = |(test, verdict): (String, Verdict)| {
        let test = if test.starts_with(&prefix) { test } else { format!("{module}:{test}") };
        (test, verdict)
    };
    verdicts.into_iter().map(qualify).collect()
}

/// A line of the results.
#[derive(Deserialize)]
struct Line(String, String, String);

/// Runs all tests of a module with one of the runners.
fn run(
    guest: GuestName,
    runner: &str,
    module: &str,
    packages: &[PathBuf],
) -> Result<BTreeMap<String, Verdict>, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let host = open_host(guest)?;
    let mut verdicts = BTreeMap::new();
    for _ in 0..=DEATHS_MAX {
        let workspace = tempfile::tempdir()?;
        let config = SessionConfig {
            folders: FolderGrants {
                workspace: Some(workspace.path().to_owned()),
                packages: packages.to_vec(),
                ..FolderGrants::default()
            },
            limits: limits(),
            kernels: KernelOptions { guests: vec![guest], ..KernelOptions::default() },
            ..SessionConfig::default()
        };
        let ending = runtime.block_on(run_cell(&host, config, source(runner, module, &verdicts)))?;
        let mut running = None;
        let text = std::fs::read_to_string(workspace.path().join(RESULTS)).unwrap_or_default();
        for line in text.lines() {
            let Line(test, outcome, detail) = serde_json::from_str(line)?;
            match outcome.as_str() {
                "finished" => return Ok(verdicts),
                "started" => running = Some(test),
                "passed" => drop(verdicts.insert(test, Verdict::Passed)),
                "skipped" => drop(verdicts.insert(test, Verdict::Skipped)),
                _ => drop(verdicts.insert(test, Verdict::Failed(detail))),
            }
        }
        let Some(test) = running.filter(|test| !verdicts.contains_key(test)) else {
            let fault = verdicts.iter().find(|(_, verdict)| matches!(verdict, Verdict::Failed(_)));
            return Err(format!("the tests could not be run: {ending}\n{fault:#?}").into());
        };
        verdicts.insert(test, Verdict::Failed(ending));
    }
    Err(format!("more than {DEATHS_MAX} tests end their kernel or their cell: {verdicts:#?}").into())
}

/// The cell: which module, what need not be run again, and the runner.
fn source(runner: &str, module: &str, done: &BTreeMap<String, Verdict>) -> String {
    let mut source = format!("MODULE = {module:?}\nDONE = [");
    for test in done.keys() {
        let _ = write!(source, "{}, ", serde_json::Value::from(test.as_str()));
    }
    source + "]\n" + NOTES + runner
}

fn limits() -> Limits {
    Limits { timeout: Duration::from_secs(600), memory_bytes: 2 << 30, disk_bytes: 2 << 30, ..Limits::default() }
}

/// Runs a cell, and describes how it ended.
async fn run_cell(host: &Host, config: SessionConfig, source: String) -> Result<String, Failed> {
    let session = host.session(config)?;
    let mut run = session.run(vec![Cell::new(Language::Python, source)])?;
    let mut ending = "it did not end".to_owned();
    while let Some(event) = run.next().await {
        if let EventKind::CellFinished { outcome, .. } = event.kind {
            ending = match outcome {
                Outcome::Failed(failure) if matches!(failure.kind, FailureKind::Raised) => failure.traceback,
                Outcome::Failed(failure) => failure.message,
                other => format!("{other:?}"),
            };
        }
    }
    Ok(ending)
}
