//! The result of a run, folded from its events.
//!
//! A caller that does not follow the event stream reads [`RunResult`] at the end. It is built from events only, in bounded
//! memory, so that it can be rebuilt wherever the events are available: in another process, or later. Read
//! [`RunResult::apply`] first.

mod calls;
mod fetches;
mod images;
mod line;
mod origins;
mod room;
mod shown;
mod status;
mod tokens;
mod typed;
mod window;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cellar_core::{
    cell::{Cell, CellId, Language},
    event::{Event, EventKind, Fetch, HostStatus, KeptText, background_lines},
    mime::MimeBundle,
    origin::Origin,
    outcome::{Failure, Outcome, Usage},
};

use window::Window;

pub use cellar_core::mime::Image;
pub use images::file_of;
pub use room::RESULTS_BYTES_MAX;
use room::Room;
use shown::Totals;
pub use status::StatusEvent;
pub use tokens::{TOKENS_MAX, TOKENS_SHOWN, estimated_tokens};
pub use typed::*;
pub use window::{LIVE_TAIL_BYTES, Shown, TruncatedBy, Truncation, WINDOW_BYTES, WINDOW_LINES};

/// Policy on the part of a long output that a result shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputPolicy {
    /// Head and tail, [`WINDOW_BYTES`] and [`WINDOW_LINES`] together.
    #[default]
    Window,
    /// The whole output of up to [`TOKENS_MAX`] tokens; of a longer one the first [`TOKENS_SHOWN`], and a reference to the
    /// rest.
    Tokens,
}

impl OutputPolicy {
    /// Returns true if a result may omit a part of a text of this size.
    pub fn may_cut(self, bytes: u64, lines: u64) -> bool {
        match self {
            OutputPolicy::Window => bytes > WINDOW_BYTES as u64 || lines > WINDOW_LINES as u64,
            // Every token has a byte at least.
            OutputPolicy::Tokens => bytes > TOKENS_MAX as u64,
        }
    }
}

/// Maximum number of displays in a result.
pub const DISPLAYS_MAX: usize = 1_000;
/// Maximum size of the displays in a result, in bytes.
pub const DISPLAYS_BYTES_MAX: usize = 128 << 20;
/// Maximum number of status events in a result.
pub const STATUSES_MAX: usize = 1_000;
/// Maximum size of the status events in a result, in bytes.
pub const STATUSES_BYTES_MAX: usize = 4 << 20;

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Name of the session.
    pub session: String,
    /// Cells in order, including those that never ran.
    pub cells: Vec<CellResult>,
    /// True if a cell failed or the run was cancelled. `false` until the run has finished.
    pub is_error: bool,
    /// True if the last event has arrived.
    pub is_finished: bool,
    /// Number of status events that were dropped because the result was full.
    pub statuses_left_out: u64,
    /// Number of images that were [made smaller](RunResult::fit_images).
    pub images_smaller: u64,
    /// Number of fetches that were dropped because the result was full.
    pub fetches_left_out: u64,
    /// Origins of the names that the run has bound and not deleted, if the run names its producer.
    pub origins: BTreeMap<String, Arc<Origin>>,
    /// Whole text of a run of several cells, if the result shows only a part of it.
    pub kept: Option<KeptText>,
    /// Consumption of [`DISPLAYS_MAX`], [`DISPLAYS_BYTES_MAX`], [`STATUSES_MAX`] and [`STATUSES_BYTES_MAX`].
    used: Used,
    calls: calls::Open,
    policy: OutputPolicy,
}

#[derive(Clone, Debug, Default)]
struct Used {
    displays: usize,
    display_bytes: Room,
    statuses: usize,
    status_bytes: usize,
    fetches: fetches::Used,
}

/// Status of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellStatus {
    /// The cell has not started; once the run has finished, it never will.
    Pending,
    /// The cell is running.
    Running,
    /// The cell ran to its end.
    Complete,
    /// The cell failed or was stopped.
    Error,
}

impl CellStatus {
    /// Returns the word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            CellStatus::Pending => "pending",
            CellStatus::Running => "running",
            CellStatus::Complete => "complete",
            CellStatus::Error => "error",
        }
    }
}

/// Result of one cell.
#[derive(Clone, Debug)]
pub struct CellResult {
    /// The requested cell.
    pub cell: Cell,
    /// Number of the cell in the session, once it has started.
    pub id: Option<CellId>,
    /// Status of the cell.
    pub status: CellStatus,
    /// Duration of the execution.
    pub duration: Option<Duration>,
    /// Resource usage.
    pub usage: Option<Usage>,
    /// Failure of the cell.
    pub failure: Option<Failure>,
    /// Whole text of the cell, if the result shows only a part of it.
    pub kept: Option<KeptText>,
    /// Status events of its helpers and the host, and its finished calls.
    pub statuses: Vec<StatusEvent>,
    /// Fetches from connectors.
    pub fetches: Vec<Fetch>,
    /// Values whose text says less than they have, because a printer or the result has shortened it.
    pub values_shortened: usize,
    /// Displays in order of arrival, each with the text before it.
    displays: Vec<Display>,
    /// Text after the last display.
    text: Window,
    /// True if a `clear_output(wait=True)` takes effect with the next output.
    clear_is_due: bool,
    /// True if its text has only the beginning of a value.
    has_cut_value: bool,
    /// The cell whose code wrote the end of its text after it had ended, if that is so.
    late: Option<CellId>,
    /// True if it ran on another kernel than the cells of its language before it.
    is_elsewhere: bool,
    policy: OutputPolicy,
}

#[derive(Clone, Debug)]
struct Display {
    text_before: Window,
    id: Option<String>,
    bundle: MimeBundle,
    /// Bytes that the display takes of the room.
    bytes: usize,
}

impl RunResult {
    /// Creates a result with this policy on long outputs.
    pub fn with_policy(policy: OutputPolicy) -> RunResult {
        RunResult { policy, ..RunResult::default() }
    }

    /// Takes the next event of the run. Events with an index that the run does not have are ignored.
    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { session, cells } => {
                *self = RunResult {
                    session: session.clone(),
                    cells: cells.iter().map(|cell| CellResult::new(cell.clone(), self.policy)).collect(),
                    ..RunResult::with_policy(self.policy)
                };
            }
            EventKind::Display { index, data, display_id, .. } => self.display(*index, data, display_id.as_deref()),
            EventKind::UpdateDisplay { index, data, display_id } => self.update(*index, data, display_id),
            EventKind::ClearOutput { index, wait: true } => {
                if let Some(cell) = self.cells.get_mut(*index) {
                    cell.clear_is_due = true;
                }
            }
            EventKind::ClearOutput { index, wait: false } => self.clear(*index),
            EventKind::Stdout { index, text } | EventKind::Stderr { index, text } => self.write(*index, text),
            EventKind::Background { index, cell, text, left_out, .. } => {
                self.write_late(*index, *cell, text, *left_out);
            }
            EventKind::Status { index, op, fields } => {
                if let Some(cell) = self.cells.get_mut(*index).filter(|_| op == HostStatus::KernelReplaced.as_str()) {
                    cell.is_elsewhere = true;
                }
                self.status(*index, op, fields);
            }
            EventKind::CellStarted { index, cell } => {
                if let Some(result) = self.cells.get_mut(*index) {
                    result.id = Some(*cell);
                    result.status = CellStatus::Running;
                }
            }
            EventKind::CellFinished { index, outcome, duration, usage, kept } => {
                if let Some(result) = self.cells.get_mut(*index) {
                    result.finish(outcome, *duration, *usage);
                    result.kept.clone_from(kept);
                }
            }
            EventKind::RunFinished { is_error, kept } => {
                self.is_error = *is_error;
                self.kept.clone_from(kept);
                self.is_finished = true;
            }
            EventKind::Fetched { index, fetch, .. } => self.fetched(*index, fetch),
            EventKind::Bound { origin, names, deleted, .. } => self.bound(origin, names, deleted),
            EventKind::CallStarted { index, call, bridge, name } => self.call_started((*index, *call), *bridge, name),
            EventKind::CallFinished { index, call, duration, error } => {
                self.call_finished((*index, *call), *duration, error.as_deref());
            }
            // What forks say is theirs: their maker gathers it. What they fetch is the run's.
            EventKind::Fork { index, kind, .. } if let EventKind::Fetched { fetch, .. } = &**kind => {
                self.fetched(*index, fetch);
            }
            EventKind::InputRequest { .. } | EventKind::Fork { .. } => {}
        }
    }

    /// Returns the languages of the cells that have begun, in the order of their first use.
    pub fn languages(&self) -> Vec<Language> {
        let mut languages = Vec::new();
        let has_run = |result: &&CellResult| result.id.is_some() || result.status == CellStatus::Complete;
        for result in self.cells.iter().filter(has_run) {
            if !languages.contains(&result.cell.language) {
                languages.push(result.cell.language);
            }
        }
        languages
    }

    /// Returns the combined text of all cells; see [`RunResult::shown`].
    pub fn text(&self) -> String {
        self.shown().text
    }

    /// Returns the whole combined text, if a part of it is not shown.
    pub fn kept_text(&self) -> Option<&KeptText> {
        match self.cells.as_slice() {
            [cell] => cell.kept.as_ref(),
            _ => self.kept.as_ref(),
        }
    }

    /// Returns the end of the text so far, at most [`LIVE_TAIL_BYTES`], for readers that follow a running cell.
    pub fn live_tail(&self) -> String {
        let mut tail = String::new();
        for result in self.cells.iter().rev() {
            let room = LIVE_TAIL_BYTES.saturating_sub(tail.len());
            tail.insert_str(0, &result.live_tail(room));
            if tail.len().saturating_add(WINDOW_BYTES) > LIVE_TAIL_BYTES {
                break;
            }
        }
        tail
    }

    /// Returns all images, in order.
    pub fn images(&self) -> impl Iterator<Item = Image<'_>> {
        self.cells.iter().flat_map(CellResult::images)
    }

    /// Returns all JSON displays, in order, each as a JSON text.
    pub fn jsons(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().flat_map(|result| result.bundles().filter_map(MimeBundle::json))
    }

    /// Returns all Markdown displays, in order.
    pub fn markdowns(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().flat_map(|result| result.bundles().filter_map(MimeBundle::markdown))
    }

    fn write(&mut self, index: usize, text: &str) {
        self.clear_if_due(index);
        if let Some(result) = self.cells.get_mut(index) {
            result.text.push(text);
            result.late = None;
        }
    }

    /// Adds what code wrote that had outlived its cell, as lines of its own. Where it goes on, it is named once.
    fn write_late(&mut self, index: usize, cell: CellId, text: &str, left_out: u64) {
        self.clear_if_due(index);
        let Some(result) = self.cells.get_mut(index) else { return };
        let goes_on = result.late == Some(cell) && left_out == 0 && !text.is_empty();
        let lines = if goes_on { text.to_owned() } else { background_lines(cell, text, left_out) };
        result.text.push_lines(&lines);
        result.late = Some(cell).filter(|_| !text.is_empty());
    }

    /// Returns the size in bytes of the displays in the result.
    pub fn display_bytes(&self) -> usize {
        self.used.display_bytes.bytes()
    }

    fn display(&mut self, index: usize, bundle: &MimeBundle, id: Option<&str>) {
        self.clear_if_due(index);
        let Some(result) = self.cells.get_mut(index) else { return };
        result.late = None;
        result.values_shortened = result.values_shortened.saturating_add(usize::from(bundle.is_shortened()));
        let plain = bundle.shown_text().filter(|_| id.is_none() && !bundle.is_structured());
        if let Some(text) = plain {
            result.text.push_lines(&text);
            result.has_cut_value |= bundle.is_cut();
            return;
        }
        let bytes = bundle.weight_bytes();
        let all = self.used.display_bytes.bytes().saturating_add(bytes);
        if self.used.displays == DISPLAYS_MAX || all > DISPLAYS_BYTES_MAX || !self.used.display_bytes.resize(all) {
            let note = format!("[a display of {bytes} bytes was left out: the result of this run is full]");
            result.text.push_lines(&note);
            return;
        }
        self.used.displays = self.used.displays.saturating_add(1);
        let mut text_before = std::mem::replace(&mut result.text, Window::new(self.policy));
        text_before.shrink();
        result.displays.push(Display { text_before, id: id.map(str::to_owned), bundle: bundle.clone(), bytes });
    }

    /// Replaces the displays with this id, whichever cell made them. An id of an earlier run is shown as a new display,
    /// since the result of that run is out of reach.
    fn update(&mut self, index: usize, bundle: &MimeBundle, wanted: &str) {
        let (mut is_found, weight) = (false, bundle.weight_bytes());
        for display in self.cells.iter_mut().flat_map(|result| &mut result.displays) {
            if display.id.as_deref() != Some(wanted) {
                continue;
            }
            is_found = true;
            let bytes = self.used.display_bytes.bytes().saturating_sub(display.bytes).saturating_add(weight);
            if bytes <= DISPLAYS_BYTES_MAX && self.used.display_bytes.resize(bytes) {
                display.bundle.clone_from(bundle);
                display.bytes = weight;
            }
        }
        if !is_found {
            self.display(index, bundle, Some(wanted));
        }
    }

    fn clear_if_due(&mut self, index: usize) {
        if self.cells.get(index).is_some_and(|result| result.clear_is_due) {
            self.clear(index);
        }
    }

    fn clear(&mut self, index: usize) {
        let Some(result) = self.cells.get_mut(index) else { return };
        result.clear_is_due = false;
        self.used.displays = self.used.displays.saturating_sub(result.displays.len());
        let bytes: usize = result.displays.iter().map(|display| display.bytes).sum();
        // Less is never refused.
        self.used.display_bytes.resize(self.used.display_bytes.bytes().saturating_sub(bytes));
        result.displays.clear();
        result.text = Window::new(self.policy);
    }
}

impl CellResult {
    fn new(cell: Cell, policy: OutputPolicy) -> CellResult {
        CellResult {
            cell,
            policy,
            id: None,
            status: CellStatus::Pending,
            duration: None,
            usage: None,
            failure: None,
            kept: None,
            statuses: Vec::new(),
            fetches: Vec::new(),
            has_cut_value: false,
            values_shortened: 0,
            displays: Vec::new(),
            text: Window::new(policy),
            clear_is_due: false,
            late: None,
            is_elsewhere: false,
        }
    }

    /// Returns 0 when the cell ran to its end, 1 when it failed, `None` before.
    pub fn exit_code(&self) -> Option<i32> {
        match self.status {
            CellStatus::Pending | CellStatus::Running => None,
            CellStatus::Complete => Some(0),
            CellStatus::Error => Some(1),
        }
    }

    /// Returns true if part of the output is Markdown.
    pub fn has_markdown(&self) -> bool {
        self.bundles().any(|bundle| bundle.markdown().is_some())
    }

    /// Returns the printed and displayed text, without blank lines around it and without its traceback.
    pub fn output(&self) -> Shown {
        let mut window = Window::new(self.policy);
        let mut totals = Totals::default();
        let place = self.kept.as_ref().map(KeptText::place);
        let mut add = |window: &mut Window, text: &Window| {
            let shown = text.shown(place.as_deref());
            totals.add(&shown);
            window.push_shown(&shown.text, shown.gaps);
        };
        let mut is_behind_markdown = false;
        for display in &self.displays {
            add(&mut window, &display.text_before);
            is_behind_markdown &= display.text_before.is_empty();
            if let Some(text) = display.bundle.shown_text() {
                let is_markdown = display.bundle.markdown().is_some();
                if is_markdown && is_behind_markdown {
                    // Two tables without an empty line between them are one.
                    window.push("\n");
                }
                window.push_lines(&text);
                is_behind_markdown = is_markdown;
            }
        }
        add(&mut window, &self.text);
        let mut shown = totals.apply(window.shown(place.as_deref()));
        let trimmed = shown.text.trim_end().trim_start_matches(['\n', '\r']);
        if trimmed.len() < shown.text.len() {
            let start = shown.text.trim_end().len().saturating_sub(trimmed.len()) as u64;
            shown.gaps.iter_mut().for_each(|gap| gap.at = gap.at.saturating_sub(start));
            shown.text = trimmed.to_owned();
        }
        shown
    }

    /// The end of its text, in pieces from the last display on while they have room.
    fn live_tail(&self, bytes: usize) -> String {
        let mut tail = self.text.live_tail(bytes);
        for display in self.displays.iter().rev() {
            let mut window = Window::default();
            window.push(&display.text_before.live_tail(bytes));
            if let Some(text) = display.bundle.shown_text() {
                window.push_lines(&text);
            }
            if window.total_bytes().saturating_add(tail.len() as u64) > bytes as u64 {
                break;
            }
            tail.insert_str(0, &window.live_tail(bytes));
        }
        tail
    }

    /// Returns its images, in order.
    pub fn images(&self) -> impl Iterator<Item = Image<'_>> {
        self.bundles().filter_map(MimeBundle::image)
    }

    /// Returns its displays, in order.
    pub fn bundles(&self) -> impl Iterator<Item = &MimeBundle> {
        self.displays.iter().map(|display| &display.bundle)
    }

    /// Returns true if the output contains text.
    fn shows_text(&self) -> bool {
        let texts = self.displays.iter().map(|display| &display.text_before).chain([&self.text]);
        texts.into_iter().any(|text| !text.is_empty()) || self.bundles().any(|bundle| bundle.visible_text().is_some())
    }

    /// Returns true if there is visible output.
    fn has_output(&self) -> bool {
        !self.displays.is_empty() || !self.text.shown(None).text.trim().is_empty()
    }

    fn finish(&mut self, outcome: &Outcome, duration: Duration, usage: Usage) {
        self.status = if outcome.is_success() { CellStatus::Complete } else { CellStatus::Error };
        self.duration = Some(duration);
        self.usage = Some(usage);
        self.failure = outcome.failure();
    }
}

#[cfg(test)]
mod tests;
