//! A run as JSON: `{"cells": [{"language", "code", "title"?, "timeout"?, "reset"?}]}`.

use std::time::Duration;

use cellar_core::{
    cell::{Cell, Language},
    limits,
    run::RunOptions,
    text::nearest,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, json};

use crate::{
    check::{At, Invalid, Problems},
    json,
    lineage::{DRY_RUN, PRODUCER, SEEN, run_options},
    object::{Kind, Member, Object, Text, described, member},
};

/// Bytes of a run as JSON.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of a title: it is a label.
const TITLE_BYTES_MAX: usize = 1_000;
/// Names of each language that a request may have. The first is the code, which is written.
pub(super) const LANGUAGE_NAMES: [(Language, [&str; 2]); 2] =
    [(Language::Python, ["py", "python"]), (Language::JavaScript, ["js", "javascript"])];
/// The languages a request may name. The probe is for the engine's own tests.
pub(super) const LANGUAGES: [Language; 2] = [LANGUAGE_NAMES[0].0, LANGUAGE_NAMES[1].0];
/// A run.
pub(crate) static RUN: Object = Object::new("run", "A run, as it is asked for.", &[CELLS]);
/// The cells of a run.
pub(crate) const CELLS: Member =
    member("cells", Kind::Cells, "They run in order. The first that fails is the last that runs.")
        .required("an array of at least one cell");
/// The cells of a run that may have one cell in their place.
pub(super) const CELLS_OR_ONE: Member =
    member("cells", Kind::Cells, "They run in order. The first that fails is the last that runs.");
/// A run in a session of another process, which says what it says of itself besides.
static RUN_ELSEWHERE: Object = Object::new(
    "RunElsewhere",
    "A run in a session of another process.",
    &[CELLS, PRODUCER, member(DRY_RUN_KEY, Kind::Flag, DRY_RUN), SEEN],
);
const DRY_RUN_KEY: &str = "dry_run";
/// One cell.
static CELL: Object = Object::new(
    "CellJson",
    "One unit of source.",
    &[
        member("language", Kind::Language, "").required("\"py\" or \"js\""),
        member("code", Kind::Text(Text::ANY.at_most(limits::CODE_BYTES_MAX).described()), "").required("a string"),
        member("title", Kind::Text(Text::ANY.at_most(TITLE_BYTES_MAX).described()), "A short label."),
        member("timeout", Kind::Timeout, "Seconds that it may take, with fractions."),
        member("reset", Kind::Flag, "Whether its language gets a fresh kernel first."),
    ],
);

/// A time in seconds: a whole number where it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_nanos() {
            0 => serializer.serialize_u64(self.0.as_secs()),
            _ => serializer.serialize_f64(self.0.as_secs_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map(Seconds).map_err(D::Error::custom)
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let (least, most) = (limits::TIMEOUT_MIN.as_secs_f64(), limits::TIMEOUT_MAX.as_secs());
        json_schema!({"type": "number", "minimum": least, "maximum": most})
    }
}
/// Keys of a cell, in the order of its members.
pub(super) const CELL_KEYS: [&str; 5] = ["language", "code", "title", "timeout", "reset"];
/// Members of one cell that stand in the place of `cells`.
pub(super) const CELL_LANGUAGE: Member =
    member("language", Kind::Language, "The language of the only cell, in the place of `cells`.");
pub(super) const CELL_CODE: Member =
    member("code", Kind::Text(Text::ANY.at_most(limits::CODE_BYTES_MAX).described()), "The source of the only cell.");
pub(super) const CELL_TITLE: Member =
    member("title", Kind::Text(Text::ANY.at_most(TITLE_BYTES_MAX).described()), "A short label of the only cell.");
pub(super) const CELL_TIMEOUT: Member = member("timeout", Kind::Timeout, "Seconds that the only cell may take.");

/// A cell as it is written.
#[derive(Debug, Serialize)]
pub(super) struct CellJson {
    language: String,
    code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Seconds>,
    reset: bool,
}

described!(CellJson: CELL, RunJson: RUN);

/// A run as it is described.
pub(super) struct RunJson;

/// A run as a request.
pub fn run_json(cells: &[Cell]) -> Value {
    let cell = |cell: &Cell| CellJson {
        language: cell.language.code().to_owned(),
        code: cell.code.to_string(),
        title: cell.title.clone(),
        timeout: cell.timeout.map(Seconds),
        reset: cell.reset,
    };
    json!({"cells": cells.iter().map(cell).collect::<Vec<_>>()})
}

/// A run in a session of another process as a request.
pub fn run_elsewhere_json(cells: &[Cell], options: &RunOptions) -> Value {
    let mut run = run_json(cells);
    run["dry_run"] = options.dry_run.into();
    if let Some(producer) = &options.producer {
        run["producer"] = producer.as_str().into();
    }
    if let Some(seen) = &options.seen {
        run["seen"] = seen.iter().map(|(kind, name)| json!([kind, name])).collect();
    }
    run
}

/// Reads a run in a session of another process.
///
/// # Errors
/// As [`run_from_json`].
pub fn run_elsewhere_from_json(bytes: &[u8], what: &str) -> Result<(Vec<Cell>, RunOptions), Invalid> {
    read(bytes, what, |at, problems| {
        let members = RUN_ELSEWHERE.read(at, None, problems)?;
        let options = run_options(&members, DRY_RUN_KEY, problems);
        let cells = cells(&members.get("cells", problems)?, problems)?;
        Some((cells, options?))
    })
}

/// Reads a run. `what` names it in messages: "the run in `a.json`".
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn run_from_json(bytes: &[u8], what: &str) -> Result<Vec<Cell>, Invalid> {
    read(bytes, what, run)
}

fn read<T>(bytes: &[u8], what: &str, read: impl FnOnce(&At<'_>, &mut Problems) -> Option<T>) -> Result<T, Invalid> {
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
    let found = read(&At::root(&node, "$"), &mut problems);
    problems.finish(what, found)
}

fn run(at: &At<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let members = RUN.read(at, None, problems)?;
    cells(&members.get("cells", problems)?, problems)
}

/// The cells of a run.
pub(super) fn cells(at: &At<'_>, problems: &mut Problems) -> Option<Vec<Cell>> {
    let items = at.items("cell", problems)?;
    if items.len() > limits::CELLS_MAX {
        let most = limits::CELLS_MAX;
        problems.add(&at.path, format_args!("expected at most {most} cells, found {}", items.len()));
        return None;
    }
    // All cells are looked at, and one bad cell refuses the run.
    let cells: Vec<_> = items.iter().map(|item| cell(item, problems)).collect();
    cells.into_iter().collect()
}

/// One cell. A member that is wrong is noted, which refuses the whole.
pub(super) fn cell(at: &At<'_>, problems: &mut Problems) -> Option<Cell> {
    let members = CELL.read(at, None, problems)?;
    let language = members.language("language", problems);
    let code = members.text("code", problems);
    let title = members.text("title", problems);
    let timeout = members.timeout("timeout", problems);
    let reset = members.boolean("reset", problems).unwrap_or_default();
    let code = code?;
    // What a file of source begins with is no part of the source.
    let code = code.strip_prefix('\u{feff}').unwrap_or(&code).into();
    Some(Cell { language: language?, code, title, timeout, reset })
}

pub(super) fn language(at: &At<'_>, problems: &mut Problems) -> Option<Language> {
    let name = match at.node {
        json::Node::Text(name) => name.as_str(),
        _ => "",
    };
    let found = language_of(name);
    if found.is_none() {
        let hint = language_meant(name).map(|code| format!("; did you mean \"{code}\"?")).unwrap_or_default();
        problems.add(&at.path, format_args!("expected {}, found {}{hint}", language_codes(), at.found()));
    }
    found
}

/// The language of this name, if a request may use it.
pub fn language_of(name: &str) -> Option<Language> {
    LANGUAGE_NAMES.into_iter().find(|(_, names)| names.contains(&name)).map(|(language, _)| language)
}

/// The language that is named, or all.
pub(super) fn languages(named: Option<&At<'_>>, problems: &mut Problems) -> Option<Vec<Language>> {
    match named {
        None => Some(LANGUAGES.to_vec()),
        Some(at) => language(at, problems).map(|only| vec![only]),
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
