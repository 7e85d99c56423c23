//! Line below the transcript that shows what runs, for people who watch.

use std::{
    borrow::Cow,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::words::one_line;

/// Interval at which the line is redrawn; also the time that a cell runs before the line appears.
const TICK: Duration = Duration::from_millis(150);
/// Characters of the latest output that it shows.
const LATEST_CHARS_MAX: usize = 60;

/// The line. It is absent without a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    is_wanted: bool,
    bar: Option<ProgressBar>,
    started: Option<Instant>,
    what: String,
    calls: usize,
    latest: String,
    /// Text that the next tick draws. Only ticks draw, so a cell that ends before the first leaves no flicker.
    line: Arc<Mutex<String>>,
}

impl Progress {
    pub(crate) fn new(is_wanted: bool) -> Progress {
        let (what, latest) = (String::new(), String::new());
        Progress { is_wanted, bar: None, started: None, what, calls: 0, latest, line: Arc::default() }
    }

    /// Starts the line of a cell.
    pub(crate) fn start(&mut self, what: String) {
        self.started = Some(Instant::now());
        self.what = what;
        self.calls = 0;
        self.latest.clear();
    }

    /// The cell has ended.
    pub(crate) fn end(&mut self) {
        self.started = None;
        self.hide();
    }

    /// Counts a bridge call that has begun.
    pub(crate) fn call_started(&mut self) {
        self.calls = self.calls.saturating_add(1);
        self.say();
    }

    /// Counts a bridge call that has returned.
    pub(crate) fn call_finished(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        self.say();
    }

    /// Sets the latest line that the cell printed, where that is not on the screen.
    pub(crate) fn latest(&mut self, line: Option<&str>) {
        if self.is_wanted {
            self.latest = line.map(|line| one_line(line).chars().take(LATEST_CHARS_MAX).collect()).unwrap_or_default();
            self.say();
        }
    }

    /// Hides the line, so that something else can be written.
    pub(crate) fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Shows the line again, below the text written since.
    pub(crate) fn show(&mut self) {
        let (true, Some(started), None) = (self.is_wanted, self.started, &self.bar) else { return };
        self.say();
        let line = Arc::clone(&self.line);
        let write = move |_: &ProgressState, out: &mut dyn Write| {
            // A line that cannot be drawn is drawn at the next tick.
            let _ = out.write_str(&line.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {line} {elapsed:.dim}") else { return };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let bar = bar.with_style(style.with_key("line", write)).with_elapsed(started.elapsed());
        bar.enable_steady_tick(TICK);
        self.bar = Some(bar);
    }

    fn say(&self) {
        let calls = match self.calls {
            0 => Cow::Borrowed(""),
            1 => Cow::Borrowed(" · 1 call"),
            calls => Cow::Owned(format!(" · {calls} calls")),
        };
        let latest = if self.latest.is_empty() { String::new() } else { format!(" · {}", self.latest) };
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = format!("{}{calls}{latest}", self.what);
    }
}
