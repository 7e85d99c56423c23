//! JavaScript's suites. Each test runs in a session of its own.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use cellar_engine::{Cell, EventKind, GuestName, Host, Language, Limits, Outcome, SessionConfig, config::FolderGrants};
use futures::StreamExt;
use libtest_mimic::{Failed, Trial};
use serde::Serialize;

use crate::{
    Selection,
    expected::{List, Verdict},
    open_host, root, suite_folder,
};

/// The cell before the harness.
const SHELL: &str = include_str!("../../fixtures/conformance/test262_shell.js");
/// A function that runs one test.
const RUNNER: &str = include_str!("../../fixtures/conformance/run_test262.js");
/// File that the tests of a folder include.
const HARNESS: &str = "shell.js";
/// Lists what cannot stand in the tests themselves.
const RAW: &str = "jstests.list";
/// Ends the name of a file that tests import.
const FIXTURE: &str = "_FIXTURE";

/// ECMA's tests of the language and its built-in objects.
pub(crate) fn test262(selection: Selection) -> Result<Vec<Trial>, String> {
    let list: &'static List = Box::leak(Box::new(List::load(&root().join("fixtures/conformance/test262.toml"))?));
    let rest = if selection == Selection::All { list.rest.as_slice() } else { &[] };
    let trial = |folder: &'static String| {
        Trial::test(format!("test262::{folder}"), move || {
            let suite = Suite::open(list)?;
            let mut verdicts = BTreeMap::new();
            suite.run(&suite.top.join(folder), &mut verdicts)?;
            let count = |wanted: fn(&Verdict) -> bool| verdicts.values().filter(|verdict| wanted(verdict)).count();
            let _ = writeln!(
                std::io::stdout(),
                "{folder}: {} passed, {} failed, {} skipped",
                count(|verdict| *verdict == Verdict::Passed),
                count(|verdict| matches!(verdict, Verdict::Failed(_))),
                count(|verdict| *verdict == Verdict::Skipped),
            );
            list.compare(&[&format!("{folder}/")], &verdicts).map_err(Failed::from)
        })
    };
    Ok(list.quick.iter().chain(rest).map(trial).collect())
}

/// State that all tests of a folder share.
struct Suite {
    list: &'static List,
    top: PathBuf,
    /// Prefixes, by path, of tests that must begin with their first character.
    raw: BTreeMap<String, String>,
    host: Host,
    runtime: tokio::runtime::Runtime,
}

/// Input of the runner.
#[derive(Serialize)]
struct Test<'a> {
    source: &'a str,
    module: Option<String>,
    error: Option<&'a str>,
    r#async: bool,
}

impl Suite {
    fn open(list: &'static List) -> Result<Self, Failed> {
        let top = suite_folder("test262")?;
        let raw = fs::read_to_string(top.join(RAW))?;
        let raw = raw.lines().filter_map(|line| {
            let line = line.split('#').next()?.trim();
            let (header, path) = line.rsplit_once(' ')?;
            Some((path.to_owned(), header.to_owned()))
        });
        Ok(Self {
            list,
            raw: raw.collect(),
            host: open_host(GuestName::JavaScript)?,
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?,
            top,
        })
    }

    /// Runs what is in a folder and those below.
    fn run(&self, folder: &Path, verdicts: &mut BTreeMap<String, Verdict>) -> Result<(), Failed> {
        let mut files = Vec::new();
        // Modules import each other, their fixtures and themselves from the working directory.
        let workspace = tempfile::tempdir()?;
        fs::write(workspace.path().join("package.json"), r#"{"type": "module"}"#)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                self.run(&path, verdicts)?;
                continue;
            }
            fs::copy(&path, workspace.path().join(&name))?;
            let is_test = name.ends_with(".js") && !name.contains(FIXTURE);
            if is_test && !matches!(name.as_str(), HARNESS | "browser.js") {
                files.push((name, path));
            }
        }
        let harness = self.harness(folder)?;
        for (name, path) in files {
            let identity = path.strip_prefix(&self.top)?.to_string_lossy().into_owned();
            // A test whose text is no UTF-8 is about how files are decoded.
            let source = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            let verdict = self.verdict(&identity, &name, &source, &harness, workspace.path())?;
            verdicts.insert(identity, verdict);
        }
        Ok(())
    }

    /// Returns the sources to evaluate before the tests of a folder.
    fn harness(&self, folder: &Path) -> Result<Vec<String>, Failed> {
        let mut found = vec![SHELL.to_owned(), fs::read_to_string(self.top.join(HARNESS))?];
        let mut place = self.top.clone();
        for part in folder.strip_prefix(&self.top)? {
            place.push(part);
            if let Ok(text) = fs::read_to_string(place.join(HARNESS)) {
                found.push(text);
            }
        }
        Ok(found)
    }

    fn verdict(
        &self,
        identity: &str,
        name: &str,
        source: &str,
        harness: &[String],
        workspace: &Path,
    ) -> Result<Verdict, Failed> {
        if self.list.skips(&features(source), source) {
            return Ok(Verdict::Skipped);
        }
        let raw = self.raw.get(identity);
        let first = source.lines().next().unwrap_or_default();
        let header = raw.map_or_else(|| first.strip_prefix("// |reftest|").unwrap_or_default(), String::as_str);
        let header = header.split("-- ").next().unwrap_or_default();
        let words = || header.split_whitespace();
        let module = words().any(|word| word == "module");
        let test = Test {
            source,
            module: module.then(|| format!("./{name}")),
            error: words().find_map(|word| word.strip_prefix("error:")),
            r#async: words().any(|word| word == "async"),
        };
        let mut cells: Vec<_> = harness.iter().map(|part| Cell::new(Language::JavaScript, part.as_str())).collect();
        cells
            .push(Cell::new(Language::JavaScript, format!("{}({})", RUNNER.trim_end(), serde_json::to_string(&test)?)));
        let config = SessionConfig {
            folders: FolderGrants { workspace: Some(workspace.to_owned()), ..FolderGrants::default() },
            limits: Limits { timeout: Duration::from_secs(60), ..Limits::default() },
            ..SessionConfig::default()
        };
        self.runtime.block_on(self.run_cells(config, cells))
    }

    async fn run_cells(&self, config: SessionConfig, cells: Vec<Cell>) -> Result<Verdict, Failed> {
        let session = self.host.session(config)?;
        let mut run = session.run(cells)?;
        let mut said = String::new();
        while let Some(event) = run.next().await {
            match event.kind {
                EventKind::Stdout { text, .. } => said += &text,
                EventKind::CellFinished { outcome: Outcome::Failed(failure), .. } if said.is_empty() => {
                    said = failure.message;
                }
                _ => {}
            }
        }
        Ok(if said.trim_end().ends_with("passed") { Verdict::Passed } else { Verdict::Failed(said) })
    }
}

/// The features that a test says it needs, in either form of YAML's lists.
fn features(source: &str) -> Vec<&str> {
    let Some((_, rest)) = source.split_once("\nfeatures:") else { return Vec::new() };
    let rest = rest.trim_start_matches(' ');
    let list = match rest.strip_prefix('[') {
        Some(list) => list.split(']').next().unwrap_or_default(),
        None => {
            let end = rest
                .match_indices('\n')
                .map(|(at, _)| at)
                .find(|&at| at > 0 && !rest.get(at + 1..).is_some_and(|line| line.trim_start().starts_with("- ")));
            rest.get(..end.unwrap_or(0)).unwrap_or_default()
        }
    };
    list.split([',', '\n']).map(|name| name.trim().trim_start_matches("- ")).filter(|name| !name.is_empty()).collect()
}
