//! Durations of a build's steps: kept in the cache as they end, shown by `make times`, and used to tell how long a
//! build is going to take.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Steps of a build that run at once, on two cores.
pub(crate) const AT_ONCE: f64 = 2.0;

/// Steps that took less are not kept.
const SECONDS_MIN: f64 = 1.0;

/// Bytes of the file of steps, after which it starts anew.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Marks of the table in a file.
const BEGIN: &str = "<!-- times -->\n";
const END: &str = "<!-- /times -->\n";

/// A step that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The product that it was done for.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Wall-clock time; others ran beside it.
    pub(crate) seconds: f64,
}

static FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Returns the path of the steps in the cache.
fn file(cache: &Path) -> PathBuf {
    cache.join("steps.jsonl")
}

/// Keeps the steps that end from now on.
pub(crate) fn keep_in(cache: &Path) {
    let path = file(cache);
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > FILE_BYTES_MAX) {
        let _ = fs::remove_file(&path);
    }
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
}

/// Keeps a step. A cache that cannot be written is no reason to stop a build.
pub(crate) fn append(step: &Step) {
    let path = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(path), true) = (path.as_ref(), step.seconds >= SECONDS_MIN) else { return };
    let Ok(mut line) = serde_json::to_vec(step) else { return };
    line.push(b'\n');
    // One write a line: other builders append too.
    let _ = OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| file.write_all(&line));
}

/// The last time that each step was done, in the order in which they were first.
fn steps(text: &str) -> Vec<Step> {
    let (mut found, mut places) = (Vec::<Step>::new(), BTreeMap::new());
    for step in text.lines().filter_map(|line| serde_json::from_str::<Step>(line).ok()) {
        let place = *places.entry((step.name.clone(), step.title.clone())).or_insert(found.len());
        match found.get_mut(place) {
            Some(known) => *known = step,
            None => found.push(step),
        }
    }
    found
}

/// The steps of the last builds: those in the cache, or those in the checkout where it has none.
pub(crate) fn known(root: &Path, cache: &Path) -> Vec<Step> {
    let kept = steps(&fs::read_to_string(file(cache)).unwrap_or_default());
    if !kept.is_empty() {
        return kept;
    }
    let page = fs::read_to_string(root.join("host/FIGURES.md")).unwrap_or_default();
    page.split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(END))
        .map_or_else(Vec::new, |(table, _)| of_table(table))
}

/// The steps of a table in Markdown.
fn of_table(table: &str) -> Vec<Step> {
    let row = |line: &str| {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let (name, title, seconds) = (cells.next()?, cells.next()?, cells.next()?.parse().ok()?);
        Some(Step { name: name.to_owned(), title: title.to_owned(), seconds })
    };
    table.lines().filter_map(row).collect()
}

/// The table of the last builds.
///
/// # Errors
/// Nothing was built with this cache.
pub(crate) fn table(cache: &Path) -> Result<String> {
    let path = file(cache);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("nothing was built yet: there is no `{}`", path.display()))?;
    let mut table = String::from("| what | step | s |\n|---|---|---|\n");
    let steps = steps(&text);
    for Step { name, title, seconds } in &steps {
        writeln!(table, "| {name} | {title} | {seconds:.0} |")?;
    }
    let sum: f64 = steps.iter().map(|step| step.seconds).sum();
    writeln!(table, "| all | one after the other | {sum:.0} |")?;
    Ok(table)
}

/// Writes the table into a file, in the place of the last one.
///
/// # Errors
/// The file has no place for it, or cannot be written.
pub(crate) fn record(table: &str, path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("could not read `{}`", path.display()))?;
    fs::write(path, replaced(&text, table)?).with_context(|| format!("could not write `{}`", path.display()))
}

fn replaced(text: &str, table: &str) -> Result<String> {
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.with_context(|| format!("the file has no {} and {}", BEGIN.trim(), END.trim()))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_time_of_each_step_is_what_a_page_has_and_what_is_read_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let lines = [("numpy", "compile", 90.0), ("pandas", "compile", 300.0), ("numpy", "compile", 100.0)];
        let lines = lines.map(|(name, title, seconds)| {
            serde_json::to_string(&Step { name: name.into(), title: title.into(), seconds }).unwrap() + "\n"
        });
        fs::write(file(folder.path()), lines.concat()).unwrap();
        let table = table(folder.path()).unwrap();
        assert!(table.contains("| numpy | compile | 100 |\n| pandas | compile | 300 |\n| all |"), "{table}");
        let page = replaced(&format!("before\n{BEGIN}old\n{END}after\n"), &table).unwrap();
        assert_eq!(page, format!("before\n{BEGIN}{table}{END}after\n"));
        assert_eq!(of_table(&table)[1], Step { name: "pandas".into(), title: "compile".into(), seconds: 300.0 });
        replaced("a page without a place", &table).unwrap_err();
    }
}
