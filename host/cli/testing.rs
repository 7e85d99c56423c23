//! `cellar test`: files of tests, each in a sandbox of its own, several at a time.

mod files;
mod report;
mod tap;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cellar_config::{Overrides, SessionRequest};
use cellar_engine::{Cell, EventKind, Language, Outcome, config::RunOptions, mime::MimeData};
use futures::{StreamExt, stream};
use serde::Deserialize;

use crate::{
    args::{Folders, TestArguments},
    output,
    program::arguments_variable,
    report::{CliError, EXIT_CELL_FAILED, EXIT_COMPLETE, EXIT_USAGE},
    run::next_event,
    setup,
    signals::Interrupts,
};
use files::{TestFile, find};

/// Source of the cells that run tests.
const PYTEST: &str = include_str!("testing/pytest.py");
const NODE: &str = include_str!("testing/node.js");
/// Type of the display by which the cell of pytest says what came of the tests.
const RESULTS: &str = "application/vnd.cellar.tests+json";
/// Bytes of the output of a file that are kept for reports.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Folder of the guest that the tests lie in.
const WORKSPACE: &str = "/workspace";

/// Outcome of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Passed,
    Failed,
    /// It could not be run.
    Error,
    Skipped,
}

/// A test that has run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Test {
    name: String,
    outcome: Verdict,
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u64>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    detail: String,
}

impl Test {
    fn is_failed(&self) -> bool {
        matches!(self.outcome, Verdict::Failed | Verdict::Error)
    }
}

/// Display of the cell of pytest.
#[derive(Deserialize)]
struct Results {
    tests: Vec<Test>,
}

/// Outcome of the files of one sandbox.
#[derive(Debug)]
struct Suite {
    /// The file, or all of them.
    name: String,
    tests: Vec<Test>,
    output: String,
    time: Duration,
}

impl Suite {
    fn is_failed(&self) -> bool {
        self.tests.iter().any(Test::is_failed)
    }
}

/// Runs tests.
///
/// # Errors
/// No test is found, a report cannot be written, or the engine fails. A failed test is an exit code.
pub(crate) async fn test(folders: &Folders, arguments: TestArguments) -> Result<u8, CliError> {
    let root = arguments.granted.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let found = find(&root, &arguments.paths)?;
    if found.is_empty() {
        let hint = "files of tests are called test_NAME.py, NAME_test.py or NAME.test.js; name others one by one";
        return Err(CliError::usage("there are no files of tests", hint));
    }
    let jobs = arguments.jobs.or(std::thread::available_parallelism().ok()).map_or(1, usize::from);
    let began = Instant::now();
    let batches = batches(found, arguments.together);
    let mut suites = Vec::new();
    let mut running = stream::iter(&batches).map(|batch| run_batch(folders, &arguments, &root, batch)).buffered(jobs);
    let mut interrupts = Interrupts::listen().map_err(CliError::Start)?;
    loop {
        tokio::select! {
            suite = running.next() => match suite {
                Some(suite) => {
                    let suite = suite?;
                    if !arguments.tap {
                        output::print(&report::text(&suite, arguments.coverage))?;
                        output::print_data(report::annotations(&suite).as_bytes())?;
                    }
                    suites.push(suite);
                }
                None => break,
            },
            code = interrupts.next() => return Ok(code),
        }
    }
    drop(running);
    write(arguments.junit.as_deref(), || report::junit(&suites))?;
    write(arguments.code_quality.as_deref(), || report::code_quality(&suites))?;
    match arguments.tap {
        true => output::print(&report::tap(&suites))?,
        false => output::print(&report::summary(&suites, began.elapsed()))?,
    }
    let has_tests = suites.iter().any(|suite| !suite.tests.is_empty());
    Ok(match suites.iter().any(Suite::is_failed) {
        true => EXIT_CELL_FAILED,
        false if has_tests => EXIT_COMPLETE,
        false => EXIT_USAGE,
    })
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<(), CliError> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text()).map_err(|source| CliError::Save { path: path.to_owned(), source })
}

/// Files for each sandbox, all of one language.
fn batches(files: Vec<TestFile>, together: bool) -> Vec<Vec<TestFile>> {
    if !together {
        return files.into_iter().map(|file| vec![file]).collect();
    }
    let (python, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.language == Language::Python);
    [python, others].into_iter().filter(|files| !files.is_empty()).collect()
}

async fn run_batch(
    folders: &Folders,
    arguments: &TestArguments,
    root: &Path,
    files: &[TestFile],
) -> Result<Suite, CliError> {
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let language = files.first().map_or(Language::Python, |file| file.language);
    let order = serde_json::json!({
        "files": names, "arguments": arguments.arguments, "coverage": arguments.coverage, "type": RESULTS,
    });
    let mut overrides = Overrides::from(&arguments.granted);
    if overrides.workspace.is_none() {
        // Tests see the folder, and do not change it.
        overrides.mounts.push(format!("{}:{WORKSPACE}", root.display()));
    }
    overrides.environment.push(arguments_variable("cellar test", &[order.to_string()]));
    let opened = setup::open_session(folders, SessionRequest { overrides, ..SessionRequest::default() }).await?;
    let code = if language == Language::Python { PYTEST } else { NODE };
    let began = Instant::now();
    let run = opened.start(vec![Cell::new(language, code)], false, RunOptions::default())?;
    let mut reader = run.own(0);
    let (mut output, mut tests, mut ended) = (String::new(), None, None);
    while let Some(event) = next_event(&run, &mut reader).await? {
        match &event.kind {
            EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } => keep(&mut output, text),
            EventKind::Display { data, .. } => tests = results(data).or(tests),
            EventKind::CellFinished { outcome, .. } => ended = Some(outcome.clone()),
            _ => {}
        }
    }
    let tests = tests.unwrap_or_else(|| if language == Language::Python { Vec::new() } else { tap::tests(&output) });
    let name = names.join(" ");
    let mut suite = Suite { tests, output, time: began.elapsed(), name };
    let first = names.first().copied().unwrap_or_default();
    for test in &mut suite.tests {
        test.file.get_or_insert_with(|| first.to_owned());
    }
    if let Some(failure) = ended.as_ref().and_then(Outcome::failure).filter(|_| !suite.is_failed()) {
        // What came before the tests, or ended them.
        suite.tests.push(Test {
            name: format!("{first} (the file itself)"),
            outcome: Verdict::Error,
            seconds: 0.0,
            file: Some(first.to_owned()),
            line: None,
            message: format!("{}: {}", failure.name, failure.message),
            detail: failure.traceback.clone(),
        });
    }
    Ok(suite)
}

/// Appends text to what is kept of an output.
fn keep(output: &mut String, text: &str) {
    let room = OUTPUT_BYTES_MAX.saturating_sub(output.len());
    output.push_str(&text[..text.floor_char_boundary(room)]);
}

/// The tests that a display tells of, if it is that of the cell of pytest.
fn results(data: &cellar_engine::mime::MimeBundle) -> Option<Vec<Test>> {
    let (_, found) = data.0.iter().find(|(name, _)| name == RESULTS)?;
    let MimeData::Text(text) = found else { return None };
    serde_json::from_str::<Results>(text).ok().map(|results| results.tests)
}
