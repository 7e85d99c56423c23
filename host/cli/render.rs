//! A run as people read it: cells, what they print and show, how they end.
//!
//! Everything is written as it happens. Text of cells passes through a [`Cleaner`].

use std::{
    borrow::Cow,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_engine::{Cell, Event, EventKind, Failure, Image, MimeBundle, MimeData, Scalar};

use crate::{
    report::CliError,
    terminal::{Cleaner, Look},
};

/// Lines of a cell's source that are shown.
const CODE_LINES_MAX: usize = 10;
/// Lines of a JSON display that are shown.
const JSON_LINES_MAX: usize = 100;

const DIM: Style = Style::new().dimmed();
const HEADER: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const STDERR: Style = AnsiColor::Yellow.on_default();

/// Writes the transcript of one run.
#[derive(Debug)]
pub(crate) struct Transcript<W> {
    out: W,
    look: Look,
    cleaner: Cleaner,
    /// Where images are saved, if they are.
    images: Option<PathBuf>,
    images_saved: usize,
    cells: Vec<Cell>,
    /// Cells that have started.
    started: usize,
    is_line_start: bool,
}

impl<W: Write> Transcript<W> {
    pub(crate) fn new(out: W, look: Look, images: Option<PathBuf>) -> Transcript<W> {
        let cleaner = Cleaner::new(look);
        Transcript { out, look, cleaner, images, images_saved: 0, cells: Vec::new(), started: 0, is_line_start: true }
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// The output or an image cannot be written.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), CliError> {
        match &event.kind {
            EventKind::RunStarted { cells, .. } => {
                self.cells.clone_from(cells);
                Ok(())
            }
            EventKind::CellStarted { index, .. } => self.start(*index),
            EventKind::Stdout { text, .. } => self.text(text, None),
            EventKind::Stderr { text, .. } => self.text(text, Some(STDERR)),
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => self.display(data),
            EventKind::Status { op, fields, .. } => self.note(DIM, &status_line(op, fields)),
            EventKind::CallFinished { duration, error: Some(error), .. } => {
                let first = error.lines().next().unwrap_or_default();
                self.note(DIM, &format!("· call failed after {}: {first}", time(*duration)))
            }
            EventKind::InputRequest { prompt, .. } => self.note(DIM, &format!("· waits for input: {prompt}")),
            EventKind::CellFinished { outcome, duration, .. } => match outcome.failure() {
                None => self.note(GOOD, &format!("✓ {}", time(*duration))).and_then(|()| self.write("\n")),
                Some(failure) => self.fail(&failure, *duration),
            },
            EventKind::RunFinished { .. } => self.finish(),
            EventKind::ClearOutput { .. } | EventKind::CallStarted { .. } | EventKind::CallFinished { .. } => {
                self.out.flush().map_err(CliError::Output)
            }
        }
    }

    /// The cell's number, language, title and first lines.
    fn start(&mut self, index: usize) -> Result<(), CliError> {
        self.started += 1;
        let Some(cell) = self.cells.get(index).cloned() else { return Ok(()) };
        let number = format!("[{}/{}]", index + 1, self.cells.len());
        let title = cell.title.as_deref().map(|title| format!(" · {}", one_line(title))).unwrap_or_default();
        self.note(HEADER, &format!("{number} {}{title}", cell.language.title()))?;
        let lines: Vec<&str> = cell.code.trim_end().lines().collect();
        let more = lines.len().saturating_sub(CODE_LINES_MAX);
        // One line more is no longer than the line that stands for it.
        let shown = if more == 1 { lines.len() } else { lines.len() - more };
        for line in &lines[..shown] {
            let line = format!("  │ {}", one_line(line));
            self.note(DIM, &line)?;
        }
        if shown < lines.len() { self.note(DIM, &format!("  │ … {more} more lines")) } else { Ok(()) }
    }

    fn text(&mut self, text: &str, style: Option<Style>) -> Result<(), CliError> {
        if text.is_empty() {
            return Ok(());
        }
        let clean = self.cleaner.clean(text);
        self.is_line_start = clean.ends_with('\n') || (clean.is_empty() && self.is_line_start);
        match style {
            Some(style) => self.write(&self.look.paint(style, &clean)),
            None => self.write(&clean),
        }
    }

    fn display(&mut self, bundle: &MimeBundle) -> Result<(), CliError> {
        self.end_line()?;
        if let Some(image) = bundle.image() {
            self.image(&image)?;
        } else if let (None, Some(json)) = (bundle.markdown(), bundle.json()) {
            self.lines(&pretty(json))?;
        }
        if let Some(text) = bundle.visible_text() {
            self.lines(text)?;
        }
        Ok(())
    }

    fn image(&mut self, image: &Image<'_>) -> Result<(), CliError> {
        let path = match &self.images {
            Some(folder) => Some(save(image, folder, self.images_saved + 1)?),
            None => None,
        };
        self.images_saved += 1;
        self.note(DIM, &image_line(image, path.as_deref()))
    }

    fn fail(&mut self, failure: &Failure, duration: Duration) -> Result<(), CliError> {
        self.note(
            BAD,
            &format!("✗ {} after {}: {}", failure.kind.as_str(), time(duration), one_line(&failure.summary())),
        )?;
        if let Some(snippet) = &failure.snippet {
            let number = failure.line.map(|line| line.to_string()).unwrap_or_default();
            self.note(DIM, &format!("  {number} │ {}", one_line(snippet)))?;
            if let Some(pointer) = &failure.pointer {
                self.note(BAD, &format!("  {} │ {}", " ".repeat(number.len()), one_line(pointer)))?;
            }
        }
        // The last line of a traceback is the summary; one frame is the snippet.
        if failure.traceback.matches("<cell ").count() > 1 || failure.snippet.is_none() {
            let traceback = self.cleaner.clean(failure.traceback.trim_end());
            for line in traceback.lines().filter(|line| !failure.summary().starts_with(line)) {
                self.note(DIM, &format!("  {line}"))?;
            }
        }
        self.write("\n")
    }

    /// Says what a failure kept from running.
    fn finish(&mut self) -> Result<(), CliError> {
        match self.cells.len().saturating_sub(self.started) {
            0 => Ok(()),
            1 => self.note(DIM, "1 cell did not run"),
            left => self.note(DIM, &format!("{left} cells did not run")),
        }
    }

    /// Text of a cell on lines of its own.
    fn lines(&mut self, text: &str) -> Result<(), CliError> {
        self.text(text, None)?;
        self.end_line()
    }

    /// A line that is not the cell's.
    fn note(&mut self, style: Style, line: &str) -> Result<(), CliError> {
        self.end_line()?;
        let line = self.look.paint(style, line);
        self.write(&format!("{line}\n"))
    }

    /// Ends what the cell left open: a line, a colour.
    fn end_line(&mut self) -> Result<(), CliError> {
        let reset = self.cleaner.finish();
        let end = if std::mem::replace(&mut self.is_line_start, true) { "" } else { "\n" };
        self.write(&format!("{reset}{end}"))
    }

    fn write(&mut self, text: &str) -> Result<(), CliError> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(CliError::Output)
    }
}

/// What stands for an image: type, size, and where it was saved.
pub(crate) fn image_line(image: &Image<'_>, path: Option<&Path>) -> String {
    let size = size(image_bytes(image).len());
    match path {
        Some(path) => format!("[{}, {size}, saved as {}]", image.mime_type, path.display()),
        None => format!("[{}, {size}]", image.mime_type),
    }
}

/// The image's file. Text in a raster image's place is base64.
fn image_bytes<'a>(image: &Image<'a>) -> Cow<'a, [u8]> {
    match image.data {
        MimeData::Binary(bytes) => Cow::Borrowed(bytes),
        MimeData::Text(text) if image.mime_type == "image/svg+xml" => Cow::Borrowed(text.as_bytes()),
        MimeData::Text(text) => STANDARD.decode(text).map_or(Cow::Borrowed(text.as_bytes()), Cow::Owned),
    }
}

fn save(image: &Image<'_>, folder: &Path, number: usize) -> Result<PathBuf, CliError> {
    let extension = match image.mime_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        _ => "bin",
    };
    let path = folder.join(format!("image-{number}.{extension}"));
    let saved = fs::create_dir_all(folder).and_then(|()| fs::write(&path, image_bytes(image)));
    match saved {
        Ok(()) => Ok(path),
        Err(source) => Err(CliError::Save { path, source }),
    }
}

fn pretty(json: &str) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_str(json);
    let text = value.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| json.to_owned());
    let more = text.lines().count().saturating_sub(JSON_LINES_MAX);
    if more == 0 {
        return text;
    }
    let shown: Vec<&str> = text.lines().take(JSON_LINES_MAX).collect();
    format!("{}\n… {more} more lines", shown.join("\n"))
}

fn status_line(op: &str, fields: &[(String, Scalar)]) -> String {
    let value = |scalar: &Scalar| match scalar {
        Scalar::Text(text) => text.clone(),
        Scalar::Integer(number) => number.to_string(),
        Scalar::Number(number) => number.to_string(),
        Scalar::Boolean(value) => value.to_string(),
    };
    let mut line = format!("· {op}");
    for (name, scalar) in fields {
        match name.as_str() {
            "path" | "message" => line.push_str(&format!(" {}", value(scalar))),
            _ => line.push_str(&format!(" {name}={}", value(scalar))),
        }
    }
    one_line(&line)
}

/// `text` without what would break its line or steer a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).collect()
}

fn time(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 0.01 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{:.2} ms", seconds * 1e3),
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests;
