//! `cellar dataset` and `cellar session origin`: tables that are published under a name, and where the names of a session come from.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    fs::File,
    io,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cellar_config::Config;
use cellar_engine::{
    CellId,
    artifacts::datasets::{DatasetVersion, Datasets, Publication},
    origin::{DerivedFrom, Origin},
};
use cellar_wire::{DatasetJson, OriginJson, OriginsJson};

use crate::{
    args::{DatasetArguments, DatasetCommand, DatasetPublish, Folders, OriginArguments},
    artifacts, output,
    report::{CliError, EXIT_COMPLETE},
    sessions::{self, age_text, size_text},
    table::table,
    terminal::escaped,
};

/// Lines of the tree of one name.
const TREE_LINES_MAX: usize = 1_000;

/// Runs a command on the datasets of the store.
///
/// # Errors
/// The store fails, or has no such dataset.
pub(crate) fn dataset(folders: &Folders, arguments: &DatasetArguments) -> Result<u8, CliError> {
    let config = arguments.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    let store = artifacts::store(folders, &config.artifacts)?;
    let datasets = store.datasets();
    match &arguments.command {
        DatasetCommand::Publish(arguments) => {
            publish(&datasets, arguments)?;
            artifacts::settled(&store);
        }
        DatasetCommand::List { json } => tell(*json, &datasets.list()?)?,
        DatasetCommand::Show { name, json } => tell(*json, &datasets.versions(name)?)?,
        DatasetCommand::Get { name, file, version_number } => {
            let (_, mut from) = datasets.open(name, *version_number)?;
            if file == Path::new("-") {
                output::copy(&mut from, false)?;
            } else {
                let mut save = || io::copy(&mut from, &mut File::create(file)?);
                save().map_err(|source| CliError::Save { path: file.clone(), source })?;
            }
        }
        DatasetCommand::Delete { names } => {
            for name in names {
                datasets.remove(name)?;
            }
            artifacts::settled(&store);
        }
    }
    Ok(EXIT_COMPLETE)
}

fn publish(datasets: &Datasets, arguments: &DatasetPublish) -> Result<(), CliError> {
    let cannot_read = |source| CliError::Read { path: arguments.file.clone(), source };
    let mut from: Box<dyn io::Read> = match arguments.file.as_path() == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(cellar_core::files::open_input(&arguments.file).map_err(cannot_read)?),
    };
    let mut writer = datasets.writer(&arguments.name)?;
    let mut piece = vec![0; 256 << 10];
    loop {
        match from.read(&mut piece).map_err(cannot_read)? {
            0 => break,
            length => writer.write(&piece[..length])?,
        }
    }
    let DatasetPublish { publisher, keep, .. } = arguments;
    let version = writer.publish(Publication { publisher: publisher.clone(), origin: None, keep: *keep })?;
    match arguments.json {
        true => output::print_json(&DatasetJson::from(&version)),
        false => output::print(&line(&version, SystemTime::now())),
    }
}

fn tell(json: bool, versions: &[DatasetVersion]) -> Result<(), CliError> {
    if json {
        return output::print_json(&versions.iter().map(DatasetJson::from).collect::<Vec<_>>());
    }
    let now = SystemTime::now();
    let row = |version: &DatasetVersion| {
        let DatasetVersion { name, version: number, rows, column_count, size_bytes, publisher, .. } = version;
        let from = version.origin.as_ref().map(from_text).unwrap_or_default();
        let shape = format!("{rows} rows, {column_count} columns");
        let (age, size) = (published(version, now), size_text(*size_bytes));
        [name.clone(), number.to_string(), age, size, shape, publisher.clone(), from]
    };
    let rows: Vec<_> = versions.iter().map(row).collect();
    let header = ["NAME", "VERSION", "PUBLISHED", "SIZE", "TABLE", "BY", "FROM"];
    output::print(&table(header, &rows, "no datasets; `cellar dataset publish` makes one"))
}

fn published(version: &DatasetVersion, now: SystemTime) -> String {
    let published_at = UNIX_EPOCH.checked_add(Duration::from_nanos(version.published_at)).unwrap_or(UNIX_EPOCH);
    age_text(now.duration_since(published_at).unwrap_or_default().as_secs())
}

/// The cell that published a version, and what it had used.
fn from_text(origin: &Origin) -> String {
    let mut text = format!("<cell {}> in {}", origin.cell, origin.language.title());
    sources(origin, &mut text);
    text
}

fn line(version: &DatasetVersion, now: SystemTime) -> String {
    let age = published(version, now);
    let DatasetVersion { name, version: number, rows, column_count, size_bytes, publisher, .. } = version;
    let (size, publisher) = (size_text(*size_bytes), escaped(publisher));
    let mut text = format!("{name}  version {number}  {age}  {size}  {rows} rows, {column_count} columns  {publisher}");
    if let Some(origin) = &version.origin {
        let _ = write!(text, "  {}", from_text(origin));
    }
    text + "\n"
}

/// Prints the origins of the names of a stored session.
///
/// # Errors
/// The session is not there, or its state cannot be read; `Usage` for a name that has no origin.
pub(crate) fn origin(folders: &Folders, arguments: &OriginArguments) -> Result<(), CliError> {
    let snapshot = sessions::store(folders)?.load(&arguments.session)?;
    let former = snapshot.as_ref().map(|snapshot| snapshot.former_origins()).unwrap_or_default();
    let mut found = snapshot.map(|snapshot| snapshot.origins()).unwrap_or_default();
    let tree = Tree::new(found.iter().map(|(_, origin)| origin).chain(&former).cloned());
    let language = arguments.language.map(cellar_engine::Language::from);
    found.retain(|origin| language.is_none_or(|wanted| origin.1.language == wanted));
    if let Some(name) = &arguments.name {
        found.retain(|origin| origin.0 == *name);
        if found.is_empty() {
            let message = format!("`{name}` has no origin in session `{}`", arguments.session);
            return Err(CliError::usage(message, "names get one in runs with --producer"));
        }
    }
    match arguments.json {
        true => {
            let named = found.into_iter().map(|(name, origin)| (name, OriginJson::from(&origin)));
            output::print_json(&OriginsJson::new(named, former.iter().map(OriginJson::from)))
        }
        false if found.is_empty() => output::print("no name has an origin; names get one in runs with --producer\n"),
        false => output::print(&found.iter().map(|(name, origin)| tree.drawn(name, origin)).collect::<String>()),
    }
}

/// Origins by their cell, to find what each derives from.
struct Tree(HashMap<CellId, Origin>);

impl Tree {
    fn new(origins: impl Iterator<Item = Origin>) -> Tree {
        Tree(origins.map(|origin| (origin.cell, origin)).collect())
    }

    /// A name with all that it derives from, a line each. What stands above already is not drawn again.
    fn drawn(&self, name: &str, origin: &Origin) -> String {
        let mut text = told(name, origin);
        self.draw_sources(origin, "", &mut HashSet::from([origin.cell]), &mut text);
        text
    }

    fn draw_sources(&self, origin: &Origin, indent: &str, drawn: &mut HashSet<CellId>, text: &mut String) {
        let last = origin.derived_from.len().saturating_sub(1);
        for (place, DerivedFrom { name, producer, cell }) in origin.derived_from.iter().enumerate() {
            let (branch, below) = if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let known = self.0.get(cell);
            let line = match known {
                Some(origin) => told(name, origin),
                None => format!("{}  {}  <cell {cell}>\n", escaped(name), escaped(producer)),
            };
            let is_new = drawn.insert(*cell);
            let _ = match (text.lines().count() < TREE_LINES_MAX, is_new) {
                (false, _) => return,
                (true, true) => write!(text, "{indent}{branch}{line}"),
                (true, false) => writeln!(text, "{indent}{branch}{}  <cell {cell}>, see above", escaped(name)),
            };
            if let Some(origin) = known.filter(|_| is_new) {
                self.draw_sources(origin, &format!("{indent}{below}"), drawn, text);
            }
        }
    }
}

fn told(name: &str, origin: &Origin) -> String {
    let Origin { producer, cell, language, .. } = origin;
    let mut text = format!("{}  {}  <cell {cell}> in {}", escaped(name), escaped(producer), language.title());
    sources(origin, &mut text);
    text + "\n"
}

/// Appends the datasets that the run had loaded, and its fetches.
fn sources(origin: &Origin, text: &mut String) {
    for dataset in &origin.datasets {
        let _ = write!(text, "  {} version {}", escaped(&dataset.name), dataset.version);
    }
    for fetch in &origin.fetches {
        let _ = write!(text, "  {}.{}", escaped(&fetch.connector), escaped(&fetch.fetch));
    }
}
