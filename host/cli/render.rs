//! Transcript of a run for people: cells, what they print and show, how they end.
//!
//! Everything is written as it happens, long output by its first and last lines. Lines that begin in the first column
//! are the transcript's own; what cells print and show is indented ([`Layout`]), and passes through a [`Cleaner`]. On a
//! terminal, source has colours, Markdown is laid out, JSON is a tree or a table, images are drawn where the terminal
//! can, and a line below says what runs.

mod data;
mod graphics;
pub(crate) mod highlight;
mod layout;
mod markdown;
mod preview;
mod progress;
mod words;

use std::{
    borrow::Cow,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cellar_engine::{
    Cell, Event, EventKind, Language,
    event::{background_lines, fork_lines},
    mime::{MimeBundle, MimeData},
    outcome::Failure,
    results::Image,
};

use crate::{
    args::OutputArguments,
    program::{Exit, exit_of},
    report::CliError,
    terminal::{Cleaner, Look, columns, escaped, harmless},
};
use highlight::Highlighter;
use layout::{INDENT, Layout};
use preview::{Preview, first_lines};
use progress::Progress;
use words::{more_lines, one_line, size, time};

/// Lines of source that are shown, and on a terminal of output.
const LINES: usize = 10;
/// Lines of a JSON display that a file gets.
const JSON_LINES_MAX: usize = 100;
/// Mark of a line among a cell's text that is the transcript's own. A cell cannot print it: a [`Cleaner`] escapes it.
const OWN: char = '\u{1}';

const DIM: Style = Style::new().dimmed();
const HEADER: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const STDERR: Style = AnsiColor::Yellow.on_default();

/// Appearance of a transcript.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Capabilities of the stream.
    pub(crate) look: Look,
    /// Columns of the terminal.
    pub(crate) width: usize,
    /// Lines of a cell's source; `None` for all.
    pub(crate) code_lines: Option<usize>,
    /// Lines of a cell's output between two displays; `None` for all.
    pub(crate) output_lines: Option<usize>,
    /// Source in colours, Markdown laid out, trees, images, and a line that says what runs.
    pub(crate) is_rich: bool,
    /// Cells with their numbers and source, and how they ended. Without it, a failure is all that is told of a cell.
    pub(crate) has_frames: bool,
    /// Folder in which images are saved; `None` if they are not saved.
    pub(crate) images: Option<PathBuf>,
}

impl Options {
    /// Returns the options for standard output: its capabilities, as far as `output` wants them.
    pub(crate) fn of_stdout(output: OutputArguments, images: Option<PathBuf>) -> Options {
        let look = Look::of_stdout();
        let lines = |default: Option<usize>| match output.lines {
            Some(0) => None,
            Some(lines) => Some(lines),
            None => default,
        };
        Options {
            look: Look { has_colors: look.has_colors && !output.plain, ..look },
            width: columns(),
            code_lines: lines(Some(LINES)),
            output_lines: lines(look.is_terminal.then_some(LINES)),
            is_rich: look.is_terminal && !output.plain,
            has_frames: true,
            images,
        }
    }
}

/// Writes the transcript of one run.
#[derive(Debug)]
pub(crate) struct Transcript<W> {
    out: W,
    options: Options,
    cleaner: Cleaner,
    preview: Preview,
    progress: Progress,
    images_shown: usize,
    cells: Vec<Cell>,
    /// Cells that have started.
    started: usize,
    layout: Layout,
    /// True if what the cell has printed so far ended with its line.
    is_text_line_start: bool,
}

impl<W: Write> Transcript<W> {
    pub(crate) fn new(out: W, options: Options) -> Transcript<W> {
        Transcript {
            out,
            // A transcript in a file is read on terminals, too.
            cleaner: Cleaner::new(Look { is_terminal: true, ..options.look }),
            layout: Layout::new(options.look.is_terminal.then_some(options.width)),
            preview: Preview::new(
                options.output_lines,
                options.look.is_terminal.then(|| options.width.saturating_sub(INDENT.len())),
            ),
            progress: Progress::new(options.is_rich && Look::of_stderr().is_terminal),
            options,
            images_shown: 0,
            cells: Vec::new(),
            started: 0,
            is_text_line_start: true,
        }
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
            EventKind::Background { cell, text, left_out, .. } => {
                self.text(&background_lines(*cell, text, *left_out), Some(STDERR))
            }
            EventKind::Fork { fork, kind, .. } => match fork_lines(fork, kind) {
                Some(lines) => self.text(&lines, Some(DIM)),
                None => Ok(()),
            },
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => self.display(data),
            EventKind::Status { op, fields, .. } => self.aside(&words::status(op, fields)),
            EventKind::CallStarted { .. } => {
                self.progress.call_started();
                Ok(())
            }
            EventKind::CallFinished { duration, error, .. } => {
                self.progress.call_finished();
                let Some(error) = error else { return Ok(()) };
                let first = error.lines().next().unwrap_or_default();
                self.aside(&format!("· call failed after {}: {}", time(*duration), one_line(first)))
            }
            EventKind::Fetched { fetch, .. } => {
                let line = format!("· {} in {}", one_line(&fetch.summary()), time(fetch.duration));
                self.aside(&line)
            }
            EventKind::Bound { .. } => Ok(()),
            EventKind::InputRequest { prompt, .. } => {
                self.progress.end();
                self.note(DIM, &format!("· waits for input: {}", one_line(prompt)))
            }
            EventKind::CellFinished { outcome, duration, .. } => {
                self.progress.end();
                match outcome.failure() {
                    None if !self.options.has_frames => self.flush(),
                    None => self.note(GOOD, &format!("✓ {}", time(*duration))).and_then(|()| self.write("\n")),
                    Some(failure) => self.fail(&failure, *duration),
                }
            }
            EventKind::RunFinished { .. } => self.finish(),
            EventKind::ClearOutput { .. } => Ok(()),
        }
    }

    fn start(&mut self, index: usize) -> Result<(), CliError> {
        self.started = self.started.saturating_add(1);
        let Some(cell) = self.cells.get(index).cloned() else { return Ok(()) };
        let number = format!("[{}/{}]", index.saturating_add(1), self.cells.len());
        let title = cell.title.as_deref().map(|title| format!(" · {}", one_line(title))).unwrap_or_default();
        let header = format!("{number} {}{title}", cell.language.title());
        if self.options.has_frames {
            self.frame(&header, &cell)?;
        }
        self.progress.start(if self.options.has_frames { header } else { cell.language.title().to_owned() });
        self.progress.show();
        Ok(())
    }

    /// The header of a cell and its first lines.
    fn frame(&mut self, header: &str, cell: &Cell) -> Result<(), CliError> {
        self.note(HEADER, header)?;
        let lines = cell.code.trim_end().lines().map(one_line).collect();
        let (lines, more) = first_lines(lines, self.options.code_lines);
        let mut highlighter = self.highlighter(cell.language);
        let bar = self.options.look.paint(DIM, "│ ");
        for line in lines {
            let line = match &mut highlighter {
                Some(highlighter) => format!("{bar}{}", highlighter.paint(&line)),
                None => self.options.look.paint(DIM, &format!("│ {line}")),
            };
            self.own(&line)?;
        }
        more.map_or(Ok(()), |more| self.note(DIM, &more))
    }

    fn highlighter(&self, language: Language) -> Option<Highlighter> {
        let is_wanted = self.options.is_rich && self.options.look.has_colors;
        is_wanted.then(|| Highlighter::new(language)).flatten()
    }

    /// Shows text that a cell prints.
    fn text(&mut self, text: &str, style: Option<Style>) -> Result<(), CliError> {
        let clean = self.cleaner.clean(text);
        let clean_end = clean.ends_with('\n');
        let look = self.options.look;
        let painted = match style {
            Some(style) if look.has_colors => clean.split_inclusive('\n').map(|line| look.paint(style, line)).collect(),
            _ => clean,
        };
        self.is_text_line_start = if painted.is_empty() { self.is_text_line_start } else { clean_end };
        let now = self.preview.push(&painted).to_owned();
        self.show(&now)?;
        self.progress.latest(self.preview.last().map(|line| line.trim_start_matches(OWN)));
        Ok(())
    }

    /// Shows a line among a cell's output that the cell did not print.
    fn aside(&mut self, line: &str) -> Result<(), CliError> {
        let end = match std::mem::replace(&mut self.is_text_line_start, true) {
            true => String::new(),
            false => format!("{}\n", self.cleaner.finish()),
        };
        let line = format!("{end}{OWN}{}\n", self.options.look.paint(DIM, line));
        let now = self.preview.push(&line).to_owned();
        self.show(&now)
    }

    /// Shows text of a cell, and the lines among it that are marked as the transcript's own.
    fn show(&mut self, text: &str) -> Result<(), CliError> {
        if text.is_empty() {
            return Ok(());
        }
        let mut laid = String::with_capacity(text.len().saturating_add(text.len() / 8));
        for line in text.split_inclusive('\n') {
            match line.strip_prefix(OWN) {
                Some(own) => laid.push_str(&self.layout.own(own.trim_end_matches('\n'))),
                None => laid.push_str(&self.layout.cell(line)),
            }
        }
        self.write(&laid)?;
        if self.layout.is_line_start() {
            self.progress.show();
        }
        Ok(())
    }

    fn display(&mut self, bundle: &MimeBundle) -> Result<(), CliError> {
        self.flush()?;
        // Data is a tree where that can be drawn, and otherwise what its language prints, if it prints anything: never both.
        let data = if bundle.image().is_none() && bundle.markdown().is_none() { bundle.json() } else { None };
        let tree = data.and_then(|json| self.tree(json));
        if let Some(image) = bundle.image() {
            self.image(&image)?;
        }
        match (tree, bundle.visible_text(), data) {
            (Some(tree), _, _) => self.block_lines(tree)?,
            (None, Some(text), _) => self.block(text, bundle.markdown().is_some())?,
            (None, None, Some(json)) => self.block_lines(pretty(json))?,
            (None, None, None) => {}
        }
        self.progress.show();
        Ok(())
    }

    /// Shows a value that no cell displayed.
    ///
    /// # Errors
    /// As [`Transcript::event`].
    pub(crate) fn show_bundle(&mut self, bundle: &MimeBundle) -> Result<(), CliError> {
        self.display(bundle)
    }

    /// JSON as lines of a tree or a table, where the reader is a terminal.
    fn tree(&self, json: &str) -> Option<Vec<String>> {
        let width = self.options.width.saturating_sub(INDENT.len());
        self.options.is_rich.then(|| data::lines(json, self.options.look, width)).flatten()
    }

    /// Text of a display.
    fn block(&mut self, text: &str, is_markdown: bool) -> Result<(), CliError> {
        let rendered = match is_markdown && self.options.is_rich {
            true => markdown::render(text, self.options.look, self.options.width.saturating_sub(INDENT.len())),
            false => None,
        };
        let text = rendered.unwrap_or_else(|| self.cleaner.clean(text));
        let reset = self.cleaner.finish();
        self.block_lines(text.lines().map(str::to_owned).collect())?;
        self.write(reset)
    }

    fn block_lines(&mut self, lines: Vec<String>) -> Result<(), CliError> {
        let (lines, more) = first_lines(lines, self.options.output_lines);
        for line in lines {
            self.show(&format!("{line}\n"))?;
        }
        more.map_or(Ok(()), |more| self.note(DIM, &more))
    }

    fn image(&mut self, image: &Image<'_>) -> Result<(), CliError> {
        self.images_shown = self.images_shown.saturating_add(1);
        self.progress.hide();
        let bytes = image_bytes(image);
        let is_drawn = self.options.is_rich && graphics::draw(&bytes, self.options.width);
        if self.options.is_rich && !is_drawn && self.options.images.is_none() {
            // A person wants to see it, and cannot here: its place is worth a file.
            let folder = tempfile::Builder::new().prefix("cellar-images-").tempdir();
            self.options.images = folder.ok().map(tempfile::TempDir::keep);
        }
        let path = match &self.options.images {
            Some(folder) => Some(save(image, folder, self.images_shown)?),
            None => None,
        };
        match is_drawn && path.is_none() {
            true => Ok(()),
            false => self.note(DIM, &image_line(image, path.as_deref())),
        }
    }

    fn fail(&mut self, failure: &Failure, duration: Duration) -> Result<(), CliError> {
        if let Some(exit) = exit_of(failure) {
            let how = match exit {
                Exit::Status(status) => format!("✗ exited with status {status} after {}", time(duration)),
                Exit::Message(message) => format!("✗ exited after {}: {}", time(duration), one_line(&message)),
            };
            return self.note(BAD, &how).and_then(|()| self.write("\n"));
        }
        self.note(
            BAD,
            &format!("✗ {} after {}: {}", failure.kind.as_str(), time(duration), one_line(&failure.summary())),
        )?;
        if let Some(snippet) = &failure.snippet {
            let number = failure.line.map(|line| line.to_string()).unwrap_or_default();
            self.note(DIM, &format!("{number} │ {}", one_line(snippet)))?;
            if let Some(pointer) = &failure.pointer {
                self.note(BAD, &format!("{} │ {}", " ".repeat(number.len()), one_line(pointer)))?;
            }
        }
        // The last line of a traceback is the summary; one frame is the snippet.
        let is_frame = |line: &&str| line.starts_with("  File \"") || line.starts_with("    at ");
        if failure.traceback.lines().filter(is_frame).count() > 1 || failure.snippet.is_none() {
            let traceback = self.cleaner.clean(failure.traceback.trim_end());
            for line in traceback.lines().filter(|line| !failure.summary().starts_with(line)) {
                self.note(DIM, &format!("  {line}"))?;
            }
        }
        if self.options.has_frames { self.write("\n") } else { Ok(()) }
    }

    /// Shows how many cells did not run because of a failure.
    fn finish(&mut self) -> Result<(), CliError> {
        match self.cells.len().saturating_sub(self.started) {
            0 => Ok(()),
            1 => self.note(DIM, "1 cell did not run"),
            left => self.note(DIM, &format!("{left} cells did not run")),
        }
    }

    /// A line that is not the cell's.
    fn note(&mut self, style: Style, line: &str) -> Result<(), CliError> {
        self.flush()?;
        let line = self.options.look.paint(style, line);
        self.own(&line)
    }

    /// A line of the transcript's own, where a line begins.
    fn own(&mut self, line: &str) -> Result<(), CliError> {
        let line = self.layout.own(&harmless(line));
        self.write(&line)
    }

    /// Shows the output that was held back, and ends its line.
    fn flush(&mut self) -> Result<(), CliError> {
        let (more, rest) = self.preview.finish();
        self.progress.latest(None);
        if let Some(more) = more {
            let hint = if rest.is_empty() { "" } else { " above these" };
            let line = self.options.look.paint(DIM, &format!("{more}{hint}; --lines 0 shows all"));
            self.end_line()?;
            self.own(&line)?;
        }
        self.is_text_line_start = true;
        self.show(&rest)?;
        self.end_line()
    }

    /// Ends a line and a colour that the cell left open.
    fn end_line(&mut self) -> Result<(), CliError> {
        let reset = self.cleaner.finish();
        let end = if self.layout.is_line_start() { String::new() } else { self.layout.cell("\n") };
        self.write(&format!("{reset}{end}"))
    }

    fn write(&mut self, text: &str) -> Result<(), CliError> {
        if text.is_empty() {
            return Ok(());
        }
        self.progress.hide();
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(CliError::Output)
    }
}

/// Returns the line that stands for an image: its type, its size, and its path if it was saved.
pub(crate) fn image_line(image: &Image<'_>, path: Option<&Path>) -> String {
    let size = size(image_bytes(image).len());
    match path {
        Some(path) => format!("[{}, {size}, saved as {}]", image.mime_type, escaped(&path.to_string_lossy())),
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

/// A JSON text on lines, for a file.
fn pretty(json: &str) -> Vec<String> {
    let value: Result<serde_json::Value, _> = serde_json::from_str(json);
    let text = value.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| json.to_owned());
    let mut lines: Vec<String> = text.lines().take(JSON_LINES_MAX).map(|line| escaped(line).into_owned()).collect();
    let more = text.lines().count().saturating_sub(lines.len());
    if more > 0 {
        lines.push(more_lines(more));
    }
    lines
}

#[cfg(test)]
mod tests;
