//! Jupyter notebooks: their cells into a run, and what the run showed back into them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use cellar_core::files::{Durability, replace_with};
use cellar_engine::{
    Cell, Event, EventKind, GuestName, Language, Outcome,
    event::{background_lines, fork_lines},
    limits::REQUEST_VALUES_MAX,
    mime::{MimeBundle, MimeData, json_values},
    outcome::Failure,
};
use cellar_jupyter::{guest_named, shown};
use nbformat::{
    Notebook as Document,
    v4::{Cell as NotebookCell, Notebook as Notebook4, Output},
};
use serde_json::{Value, json};

use crate::report::CliError;

/// Bytes that values of a large notebook have in the mean: each takes many times as much where it is read.
const VALUE_BYTES_MEAN: usize = 8;
/// The tag of cells that are not run, as nbclient knows it.
const SKIP_TAG: &str = "skip-execution";

/// A notebook, and the outputs that its cells get.
#[derive(Debug)]
pub(crate) struct Notebook {
    path: PathBuf,
    document: Notebook4,
    /// Places in the document of the cells that run.
    places: Vec<usize>,
    cells: Vec<Cell>,
    /// Outputs of each of them.
    outputs: Vec<Outputs>,
    /// Capacity that the file has left for outputs.
    room: Room,
}

impl Notebook {
    /// Reads a notebook of format 3 or 4.
    ///
    /// # Errors
    /// It is no notebook, or is in a language that does not run here.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Notebook, CliError> {
        let refuse = |what: String| {
            let hint = "open it in Jupyter and save it as a notebook of Python or JavaScript, format 4";
            CliError::usage(format!("`{}` is not a notebook that can run: {what}", path.display()), hint)
        };
        let text = std::str::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
        let (values, most) = (json_values(bytes), REQUEST_VALUES_MAX.max(bytes.len() / VALUE_BYTES_MEAN));
        if values > most {
            return Err(refuse(format!("it has {values} values in {} bytes, at most {most} are read", bytes.len())));
        }
        let document = match nbformat::parse_notebook(text).map_err(|error| refuse(error.to_string()))? {
            Document::V4(notebook) => notebook,
            Document::V4QuirksMode(quirks) => quirks.repair(),
            Document::Legacy(old) => {
                nbformat::upgrade_legacy_notebook(old).map_err(|error| refuse(error.to_string()))?
            }
            Document::V3(old) => nbformat::upgrade_v3_notebook(old).map_err(|error| refuse(error.to_string()))?,
            other => return Err(refuse(format!("its format is not known: {other:?}"))),
        };
        let language = language(&document).map_err(refuse)?;
        let (mut places, mut cells) = (Vec::new(), Vec::new());
        for (place, cell) in document.cells.iter().enumerate() {
            let NotebookCell::Code { metadata, source, .. } = cell else { continue };
            let code = source.concat();
            let is_skipped = metadata.tags.as_ref().is_some_and(|tags| tags.iter().any(|tag| tag == SKIP_TAG));
            if code.trim().is_empty() || is_skipped {
                continue;
            }
            let own = metadata.additional.get("vscode").and_then(|editor| editor["languageId"].as_str());
            let language = own.map_or(Ok(language), |name| {
                named(name).ok_or_else(|| refuse(format!("cell {} is written in {name}", place.saturating_add(1))))
            })?;
            places.push(place);
            cells.push(Cell::new(language, code));
        }
        if cells.is_empty() {
            return Err(refuse("it has no code".to_owned()));
        }
        let outputs = places.iter().map(|_| Outputs::default()).collect();
        Ok(Notebook { path: path.to_owned(), document, places, cells, outputs, room: Room::default() })
    }

    /// The cells to run.
    pub(crate) fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The guest of the kernel that the notebook names, if that is one of Cellar's; true besides if it has cells in Python.
    pub(crate) fn guest(&self) -> (Option<GuestName>, bool) {
        let kernel = self.document.metadata.kernelspec.as_ref();
        let has_python = self.cells.iter().any(|cell| cell.language == Language::Python);
        (kernel.and_then(|kernel| guest_named(&kernel.name)), has_python)
    }

    /// Takes the next event of the run of these cells.
    pub(crate) fn event(&mut self, event: &Event) {
        let place = match &event.kind {
            EventKind::CellStarted { index, .. }
            | EventKind::Stdout { index, .. }
            | EventKind::Stderr { index, .. }
            | EventKind::Background { index, .. }
            | EventKind::Display { index, .. }
            | EventKind::UpdateDisplay { index, .. }
            | EventKind::ClearOutput { index, .. }
            | EventKind::Fork { index, .. }
            | EventKind::CellFinished { index, .. } => *index,
            _ => return,
        };
        // A display is replaced wherever it is.
        if let EventKind::UpdateDisplay { data, display_id, .. } = &event.kind {
            let room = &mut self.room;
            return self.outputs.iter_mut().for_each(|outputs| outputs.update(data, display_id, room));
        }
        if let Some(outputs) = self.outputs.get_mut(place) {
            outputs.event(&event.kind, &mut self.room);
        }
    }

    /// Writes the notebook with its new outputs in the place of the old file, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save(mut self) -> Result<(), CliError> {
        for (place, outputs) in self.places.iter().zip(self.outputs) {
            let Some(NotebookCell::Code { execution_count, outputs: kept, .. }) = self.document.cells.get_mut(*place)
            else {
                continue;
            };
            // A cell that did not run has no output, as after "run all" in Jupyter.
            *execution_count = outputs.number.and_then(|number| i32::try_from(number).ok());
            *kept = outputs
                .items
                .into_iter()
                .filter_map(|item| serde_json::from_value::<Output>(item.value).ok())
                .collect();
        }
        let path = self.path;
        let text = nbformat::serialize_notebook(&Document::V4(self.document)).map_err(|error| {
            CliError::usage(format!("cannot write `{}`: {error}", path.display()), "open it in Jupyter")
        })?;
        let write = || {
            // The file behind a link, not the link.
            let path = fs::canonicalize(&path)?;
            let mode = fs::metadata(&path)?.permissions().mode();
            replace_with(&path, text.as_bytes(), mode, Durability::Synced)
        };
        write().map_err(|source| CliError::Save { path: path.clone(), source })
    }
}

/// The language of a notebook's cells; Python where it does not say, as Jupyter has it.
fn language(document: &Notebook4) -> Result<Language, String> {
    let metadata = &document.metadata;
    let kernel = metadata.kernelspec.as_ref();
    let name = kernel
        .and_then(|kernel| kernel.language.as_deref())
        .or(metadata.language_info.as_ref().map(|info| info.name.as_str()))
        .or(kernel.map(|kernel| kernel.name.as_str()));
    let Some(name) = name else { return Ok(Language::Python) };
    named(name).ok_or_else(|| format!("it is written in {name}"))
}

fn named(name: &str) -> Option<Language> {
    match name.to_lowercase().trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "python" | "ipython" => Some(Language::Python),
        "javascript" | "js" | "deno" | "node" | "nodejs" => Some(Language::JavaScript),
        _ => None,
    }
}

/// The outputs of one cell, as the file has them.
#[derive(Debug, Default)]
struct Outputs {
    number: Option<u32>,
    items: Vec<Item>,
    /// A `clear_output(wait=True)` is due with the next output.
    clear_is_due: bool,
    /// Something found no room, and it was said so.
    is_cut: bool,
}

/// Capacity of a notebook's file, in bytes and outputs. The file is read whole by every program that opens it, and a
/// cell may display without end.
#[derive(Debug)]
struct Room {
    bytes: usize,
    items: usize,
}

/// Bytes that all outputs of a notebook have together, binary data as base64.
const OUTPUTS_BYTES_MAX: usize = 64 << 20;
/// Outputs that a notebook may have.
const OUTPUTS_MAX: usize = 10_000;
/// Bytes counted for an output besides its content.
const OUTPUT_BYTES: usize = 128;

impl Default for Room {
    fn default() -> Room {
        Room { bytes: OUTPUTS_BYTES_MAX, items: OUTPUTS_MAX }
    }
}

impl Room {
    /// Takes so many bytes and one output of the capacity. Returns false if they do not fit.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes).filter(|_| self.items > 0);
        if let Some(left) = left {
            (self.bytes, self.items) = (left, self.items.saturating_sub(1));
        }
        left.is_some()
    }

    /// Takes room for more text of an output.
    fn extend(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }

    fn give_back(&mut self, items: &[Item]) {
        self.bytes = self.bytes.saturating_add(items.iter().map(|item| item.bytes).sum::<usize>());
        // What says that there was no room took none.
        self.items = self.items.saturating_add(items.iter().filter(|item| item.bytes > 0).count());
    }
}

/// Bytes that a bundle takes in memory, and at most in the file.
fn bytes_of(data: &MimeBundle) -> usize {
    let base64 = data.0.iter().map(|(_, data)| match data {
        MimeData::Binary(bytes) => bytes.len().div_ceil(3).saturating_mul(4).saturating_sub(bytes.len()),
        MimeData::Text(_) => 0,
    });
    base64.fold(data.weight_bytes().saturating_add(OUTPUT_BYTES), usize::saturating_add)
}

#[derive(Debug)]
struct Item {
    value: Value,
    /// The stream that it is part of.
    stream: Option<&'static str>,
    display_id: Option<String>,
    /// Bytes that it takes of the capacity.
    bytes: usize,
}

impl Outputs {
    fn event(&mut self, kind: &EventKind, room: &mut Room) {
        match kind {
            EventKind::CellStarted { cell, .. } => self.number = Some(cell.0),
            EventKind::Stdout { text, .. } => self.print("stdout", text, room),
            EventKind::Stderr { text, .. } => self.print("stderr", text, room),
            EventKind::Background { cell, text, left_out, .. } => {
                self.print("stderr", &background_lines(*cell, text, *left_out), room);
            }
            EventKind::Fork { fork, kind, .. } => {
                if let Some(lines) = fork_lines(fork, kind) {
                    self.print("stderr", &lines, room);
                }
            }
            EventKind::Display { data, display_id, is_value, .. } => {
                let number = self.number;
                let value = || {
                    let mut value = json!({"output_type": "display_data", "metadata": {}, "data": shown(data)});
                    if *is_value {
                        value["output_type"] = "execute_result".into();
                        value["execution_count"] = number.into();
                    }
                    value
                };
                self.add(bytes_of(data), None, display_id.clone(), value, room);
            }
            EventKind::ClearOutput { wait, .. } => {
                self.clear_is_due = *wait;
                if !wait {
                    self.clear(room);
                }
            }
            EventKind::CellFinished { outcome: Outcome::Failed(failure), .. } => {
                let texts = [&failure.name, &failure.message, &failure.traceback];
                let bytes = texts.iter().fold(OUTPUT_BYTES, |bytes, text| bytes.saturating_add(text.len()));
                self.add(bytes, None, None, || error(failure), room);
            }
            _ => {}
        }
    }

    fn clear(&mut self, room: &mut Room) {
        room.give_back(&self.items);
        self.items.clear();
        self.is_cut = false;
    }

    /// Adds an output, or says once that there was no room for more.
    fn add(
        &mut self,
        bytes: usize,
        stream: Option<&'static str>,
        display_id: Option<String>,
        value: impl FnOnce() -> Value,
        room: &mut Room,
    ) {
        if std::mem::take(&mut self.clear_is_due) {
            self.clear(room);
        }
        if room.take(bytes) {
            return self.items.push(Item { value: value(), stream, display_id, bytes });
        }
        self.say_full();
    }

    fn say_full(&mut self) {
        if !std::mem::replace(&mut self.is_cut, true) {
            let mib = OUTPUTS_BYTES_MAX >> 20;
            let text = format!("[more was shown; a notebook keeps {mib} MiB in {OUTPUTS_MAX} outputs]\n");
            let value = json!({"output_type": "stream", "name": "stderr", "text": text});
            self.items.push(Item { value, stream: None, display_id: None, bytes: 0 });
        }
    }

    /// Appends text to the last output if that is of the same stream, and begins a new output otherwise.
    fn print(&mut self, stream: &'static str, text: &str, room: &mut Room) {
        if !self.clear_is_due
            && let Some(Item { value, stream: Some(last), bytes, .. }) = self.items.last_mut()
            && *last == stream
            && let Some(Value::String(before)) = value.get_mut("text")
        {
            if !room.extend(text.len()) {
                return self.say_full();
            }
            before.push_str(text);
            *bytes = bytes.saturating_add(text.len());
            return;
        }
        let value = || json!({"output_type": "stream", "name": stream, "text": text});
        self.add(text.len().saturating_add(OUTPUT_BYTES), Some(stream), None, value, room);
    }

    fn update(&mut self, data: &MimeBundle, display_id: &str, room: &mut Room) {
        let wanted = bytes_of(data);
        let mut is_full = false;
        for item in self.items.iter_mut().filter(|item| item.display_id.as_deref() == Some(display_id)) {
            room.bytes = room.bytes.saturating_add(item.bytes);
            // One that finds no room keeps what it showed, which fits in what was given back.
            let fits = room.extend(wanted);
            if fits {
                item.value["data"] = shown(data).into();
                item.bytes = wanted;
            } else {
                room.bytes = room.bytes.saturating_sub(item.bytes);
                is_full = true;
            }
        }
        if is_full {
            self.say_full();
        }
    }
}

fn error(failure: &Failure) -> Value {
    let lines: Vec<&str> = failure.traceback.trim_end().lines().collect();
    json!({"output_type": "error", "ename": failure.name, "evalue": failure.message, "traceback": lines})
}
