//! A run as JSON: `{"cells": [{"language", "code", "title"?, "timeout"?, "reset"?}]}`.

use std::time::Duration;

use cellar_core::{
    cell::{Cell, Language},
    limits,
    text::nearest,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    check::{At, Fields, Invalid, Problems},
    json,
};

/// Bytes of a run as JSON.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of a title: it is a label.
const TITLE_BYTES_MAX: usize = 1_000;
/// The languages a request may name. The probe is for the engine's own tests.
pub(super) const LANGUAGES: [Language; 2] = [Language::Python, Language::JavaScript];
/// Fields of a cell.
const CELL_FIELDS: [&str; 5] = ["language", "code", "title", "timeout", "reset"];

/// A run, as it is asked for. It is read by hand, for the sake of the messages; this is what is written, and what the
/// schema is made of.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct RunJson {
    /// They run in order. The first that fails is the last that runs.
    #[schemars(length(min = 1, max = limits::CELLS_MAX))]
    cells: Vec<CellJson>,
}

/// One unit of source.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct CellJson {
    #[schemars(extend("enum" = LANGUAGES.map(Language::code)))]
    language: String,
    #[schemars(length(max = limits::CODE_BYTES_MAX))]
    code: String,
    /// A short label.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, length(max = TITLE_BYTES_MAX), extend("type" = "string"))]
    title: Option<String>,
    /// Seconds that it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, range(min = limits::TIMEOUT_MIN.as_secs(), max = limits::TIMEOUT_MAX.as_secs()), extend("type" = "integer"))]
    timeout: Option<u64>,
    /// Whether its language gets a fresh kernel first.
    #[schemars(default)]
    reset: bool,
}

/// A run as a request.
pub fn run_json(cells: &[Cell]) -> Value {
    let cell = |cell: &Cell| CellJson {
        language: cell.language.code().to_owned(),
        code: cell.code.to_string(),
        title: cell.title.clone(),
        timeout: cell.timeout.map(|timeout| timeout.as_secs()),
        reset: cell.reset,
    };
    json!(RunJson { cells: cells.iter().map(cell).collect() })
}

/// Reads a run. `what` names it in messages: "the run in `a.json`".
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn run_from_json(bytes: &[u8], what: &str) -> Result<Vec<Cell>, Invalid> {
    let mut problems = Problems::default();
    if bytes.len() > REQUEST_BYTES_MAX {
        problems.add("$", format_args!("expected at most {REQUEST_BYTES_MAX} bytes, found {}", bytes.len()));
        return problems.finish(what, None);
    }
    let node = match json::parse(bytes) {
        Ok(node) => node,
        Err(fault) => {
            problems.add("$", fault);
            return problems.finish(what, None);
        }
    };
    let cells = run(&At::root(&node, "$"), &mut problems);
    problems.finish(what, cells)
}

fn run(at: &At<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let fields = at.fields(&["cells"], problems)?;
    run_fields(&fields, problems)
}

/// The cells of a run among other fields.
pub(super) fn run_fields(fields: &Fields<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let cells = fields.required("cells", "an array of at least one cell", problems)?;
    let items = cells.items("cell", problems)?;
    if items.len() > limits::CELLS_MAX {
        let most = limits::CELLS_MAX;
        problems.add(&cells.path, format_args!("expected at most {most} cells, found {}", items.len()));
        return None;
    }
    // All cells are looked at, and one bad cell refuses the run.
    let cells: Vec<_> = items.iter().map(|item| cell(item, problems)).collect();
    cells.into_iter().collect()
}

pub(super) fn cell(at: &At<'_>, problems: &mut Problems) -> Option<Cell> {
    let fields = at.fields(&CELL_FIELDS, problems)?;
    let language = fields.required("language", &language_codes(), problems).and_then(|at| language(&at, problems));
    let code = fields.required("code", "a string", problems).and_then(|at| code(&at, problems));
    let title = fields.get("title").map(|at| title(&at, problems));
    let seconds = limits::TIMEOUT_MIN.as_secs()..=limits::TIMEOUT_MAX.as_secs();
    let timeout = fields.get("timeout").map(|at| at.integer(seconds, problems).map(Duration::from_secs));
    let reset = fields.get("reset").map(|at| at.boolean(problems));
    Some(Cell {
        language: language?,
        code: code?.into(),
        title: lift(title)?,
        timeout: lift(timeout)?,
        reset: lift(reset)?.unwrap_or_default(),
    })
}

/// A member that may be absent, but not wrong.
fn lift<T>(member: Option<Option<T>>) -> Option<Option<T>> {
    match member {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

pub(super) fn language(at: &At<'_>, problems: &mut Problems) -> Option<Language> {
    let name = match at.node {
        json::Node::Text(name) => name.as_str(),
        _ => "",
    };
    let found = LANGUAGES.into_iter().find(|language| language.code() == name);
    if found.is_none() {
        let hint = language_meant(name).map(|code| format!("; did you mean \"{code}\"?")).unwrap_or_default();
        problems.add(&at.path, format_args!("expected {}, found {}{hint}", language_codes(), at.found()));
    }
    found
}

/// The language that is named, or all.
pub(super) fn languages(fields: &Fields<'_>, problems: &mut Problems) -> Option<Vec<Language>> {
    match fields.get("language") {
        None => Some(LANGUAGES.to_vec()),
        Some(at) => language(&at, problems).map(|only| vec![only]),
    }
}

/// The code of a language that was given another of its names.
pub fn language_meant(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    match name.as_str() {
        "py" | "python" | "python3" | "ipython" => Some("py"),
        "js" | "javascript" | "node" | "ecmascript" | "mjs" | "typescript" | "ts" => Some("js"),
        _ => nearest(&name, &["python", "javascript"]).and_then(language_meant),
    }
}

/// The codes a request may use, for messages and help.
fn language_codes() -> String {
    LANGUAGES.map(|language| format!("\"{language}\"")).join(" or ")
}

fn code(at: &At<'_>, problems: &mut Problems) -> Option<String> {
    let code = bounded_text(at, limits::CODE_BYTES_MAX, problems)?;
    // What a file of source begins with is no part of the source.
    Some(code.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(code))
}

fn title(at: &At<'_>, problems: &mut Problems) -> Option<String> {
    bounded_text(at, TITLE_BYTES_MAX, problems)
}

fn bounded_text(at: &At<'_>, bytes_max: usize, problems: &mut Problems) -> Option<String> {
    let text = at.text(problems)?;
    if text.len() > bytes_max {
        problems.add(&at.path, format_args!("expected at most {bytes_max} bytes, found {}", text.len()));
        return None;
    }
    Some(text.to_owned())
}
