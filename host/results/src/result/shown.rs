//! The combined text of a run: a part for each cell, and what its failure means for the others.

use cellar_core::{cell::Language, event::KeptText, outcome::Failure};

use super::{
    CellResult, CellStatus, OutputPolicy, RunResult, Shown, TruncatedBy, Truncation,
    tokens::estimated_tokens,
    window::{Gap, Share, Window, divide},
};

/// Maximum length in bytes of a line of a traceback that is shown as a whole.
const ERROR_LINE_BYTES_MAX: usize = 4 << 10;
/// Maximum number of cells of a run that each keep a part of a window that is too small for all of them.
const SHARES_MAX: usize = 64;
/// Smallest part of the window, in bytes, that an output is cut to.
const SHARE_BYTES_MIN: usize = 1_000;
/// Size in bytes of a part of a window from which the reference to the whole text stands in it.
const SHARE_WITH_PLACE_BYTES: usize = 1_200;

impl RunResult {
    /// The combined text of all cells, as a model or a person reads it, within [`WINDOW_BYTES`](super::window::WINDOW_BYTES)
    /// and [`WINDOW_LINES`](super::window::WINDOW_LINES). Never empty: a run that showed nothing says so.
    pub fn shown(&self) -> Shown {
        self.shown_in(Share::WHOLE)
    }

    /// The same, of no more than about so many [tokens](estimated_tokens).
    pub fn shown_in_tokens(&self, tokens: usize) -> Shown {
        let mut share = Share::WHOLE;
        loop {
            let shown = self.shown_in(share);
            let estimate = estimated_tokens(&shown.text);
            if estimate <= tokens || share.bytes <= SHARE_BYTES_MIN {
                return shown;
            }
            let fits = shown.text.len().saturating_mul(tokens).checked_div(estimate).unwrap_or(0);
            share.bytes = fits.min(share.bytes.saturating_sub(share.bytes / 16)).max(SHARE_BYTES_MIN);
        }
    }

    /// The same, in a part of the window.
    fn shown_in(&self, share: Share) -> Shown {
        let mut cut = Totals::default();
        let mut blocks = Vec::new();
        for (index, result) in self.cells.iter().enumerate() {
            let output = result.output();
            cut.add(&output);
            let block = self.block(index, result, &output.text);
            let start = block.find(&output.text).unwrap_or_default() as u64;
            if !block.is_empty() {
                let gaps = output.gaps.iter().map(|gap| Gap { at: start.saturating_add(gap.at), ..*gap }).collect();
                blocks.push((block, gaps));
            }
        }
        let has_text = self.cells.iter().any(|result| result.failure.is_some() || result.shows_text());
        if blocks.is_empty() || !has_text {
            return Shown::whole(self.placeholder());
        }
        let place = self.kept_text().map(KeptText::place);
        cut.apply(match self.shown_in_shares(share, &blocks, place.as_deref()) {
            Some(shown) => shown,
            None => self.shown_together(share, blocks, place.as_deref()),
        })
    }

    /// The blocks of all cells, one after another.
    fn shown_together(&self, share: Share, blocks: Vec<(String, Vec<Gap>)>, place: Option<&str>) -> Shown {
        // Tokens are counted over the whole text, bytes are not.
        let policy = if share == Share::WHOLE { self.policy } else { OutputPolicy::Window };
        let mut window = Window::new(policy);
        for (block, gaps) in blocks {
            if !window.is_empty() {
                window.push("\n\n");
            }
            if self.cells.len() > 1 {
                window.headline(block.lines().next().unwrap_or_default());
            }
            window.push_shown(&block, gaps);
        }
        if policy == OutputPolicy::Tokens { window.shown(place) } else { window.shown_within(share, place) }
    }

    /// The blocks of several cells that do not fit into the window together, each with its own part of it, so that none of them
    /// vanishes. `None` if all fit, or if there are too many.
    fn shown_in_shares(&self, share: Share, blocks: &[(String, Vec<Gap>)], place: Option<&str>) -> Option<Shown> {
        let is_whole = share == Share::WHOLE;
        if (is_whole && self.policy != OutputPolicy::Window) || !(2..=SHARES_MAX).contains(&blocks.len()) {
            return None;
        }
        let windows: Vec<Window> = blocks
            .iter()
            .map(|(block, gaps)| {
                let mut window = Window::new(OutputPolicy::Window);
                window.push_shown(block, gaps.iter().copied());
                window
            })
            .collect();
        // Between two of them is an empty line.
        let between = blocks.len().saturating_sub(1);
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let bytes: Vec<usize> = windows.iter().map(|window| count(window.total_bytes())).collect();
        let lines: Vec<usize> = windows.iter().map(|window| count(window.total_lines())).collect();
        let (bytes_max, lines_max) =
            (share.bytes.saturating_sub(between.saturating_mul(2)), share.lines.saturating_sub(between));
        let sum = |sizes: &[usize]| sizes.iter().copied().fold(0, usize::saturating_add);
        if sum(&bytes) <= bytes_max && sum(&lines) <= lines_max {
            return None;
        }
        let shares = divide(bytes_max, &bytes).into_iter().zip(divide(lines_max, &lines));
        let mut all = Joined::default();
        for (window, (bytes, lines)) in windows.iter().zip(shares) {
            let share = Share { bytes, lines };
            // Many references would leave no room for text.
            let place = place.filter(|_| bytes >= SHARE_WITH_PLACE_BYTES || !all.is_cut());
            all.push(window.shown_within(share, place), window);
        }
        Some(all.shown())
    }

    /// Returns a cell's part of the combined text; empty if the cell showed none.
    fn block(&self, index: usize, result: &CellResult, output: &str) -> String {
        let failure = result.failure.as_ref().map(|failure| self.failure_text(index, failure));
        let parts = [Some(output.to_owned()), failure];
        let body = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        if self.cells.len() == 1 {
            return body;
        }
        let body = match result.images().count() {
            _ if !body.is_empty() => body,
            0 => return body,
            images => format!("(displayed {images} image(s))"),
        };
        // The header is one line, whatever the title has.
        let words = |title: &str| title.split_whitespace().collect::<Vec<_>>().join(" ");
        let title = result.cell.title.as_deref().map(words).filter(|title| !title.is_empty());
        let title = title.map(|title| format!(" {title}")).unwrap_or_default();
        format!("[{}/{}]{title}\n{body}", index.saturating_add(1), self.cells.len())
    }

    /// Returns the traceback, and the consequences of the failure for the other cells.
    fn failure_text(&self, index: usize, failure: &Failure) -> String {
        let traceback = failure.traceback.trim_end();
        let what = if traceback.is_empty() { failure.summary() } else { with_short_lines(traceback) };
        let total = self.cells.len();
        let is_pending = |result: &CellResult| result.status == CellStatus::Pending;
        let later = match self.cells.iter().skip(index.saturating_add(1)).position(is_pending) {
            Some(0) if index.saturating_add(2) == total => format!("; cell {total} did not run"),
            Some(0) => format!("; cells {} to {total} did not run", index.saturating_add(2)),
            _ => String::new(),
        };
        let earlier = if failure.state_kept { self.what_is_kept(index) } else { String::new() };
        if total == 1 { what } else { format!("{what}\n\nCell {} failed{later}{earlier}.", index.saturating_add(1)) }
    }

    /// Returns a sentence on what the cells before a failed one have made; empty if there are none.
    fn what_is_kept(&self, index: usize) -> String {
        let earlier = &self.cells[..index];
        let is_of = |language: Language| move |result: &&CellResult| result.cell.language == language;
        // Of a language all is kept, or nothing for sure since a cell has begun with a new kernel.
        let is_gone = |language: Language| {
            let mut cells = self.cells[..=index].iter().filter(is_of(language));
            cells.next();
            let was_lost = |result: &CellResult| result.failure.as_ref().is_some_and(|failure| !failure.state_kept);
            cells.any(|result| result.cell.reset || result.is_elsewhere)
                || earlier.iter().filter(is_of(language)).any(was_lost)
        };
        let mut languages = Vec::new();
        for result in earlier {
            if !languages.contains(&result.cell.language) {
                languages.push(result.cell.language);
            }
        }
        let (gone, kept): (Vec<Language>, Vec<Language>) =
            languages.into_iter().partition(|language| is_gone(*language));
        let titles = |languages: &[Language]| {
            languages.iter().map(|language| language.title()).collect::<Vec<_>>().join(" and ")
        };
        match (kept.as_slice(), gone.as_slice()) {
            ([], []) => String::new(),
            (_, []) => ". What earlier cells made is kept".to_owned(),
            ([], gone) => format!(". What earlier cells made is not kept: {} has a new kernel", titles(gone)),
            (kept, gone) => {
                format!(". What earlier cells made in {} is kept; {} has a new kernel", titles(kept), titles(gone))
            }
        }
    }

    /// Returns the text to show for a run without text output.
    fn placeholder(&self) -> String {
        let images = self.images().count();
        if images > 0 {
            format!("(displayed {images} image(s); no text output)")
        } else if self.jsons().next().is_some() || self.cells.iter().any(CellResult::has_output) {
            "(no text output)".to_owned()
        } else {
            "(no output)".to_owned()
        }
    }
}

/// A traceback whose lines leave room for each other: of a long line its beginning, which names the exception, and its end.
fn with_short_lines(traceback: &str) -> String {
    let mut text = String::new();
    for line in traceback.split_inclusive('\n') {
        if line.len() <= ERROR_LINE_BYTES_MAX {
            text.push_str(line);
            continue;
        }
        let head = &line[..line.floor_char_boundary(ERROR_LINE_BYTES_MAX / 2)];
        let tail = &line[line.ceil_char_boundary(line.len().saturating_sub(ERROR_LINE_BYTES_MAX / 4))..];
        let left_out = line.len().saturating_sub(head.len()).saturating_sub(tail.len());
        text.push_str(&format!("{head}[… {left_out} bytes left out …]{tail}"));
    }
    text
}

/// Texts that were truncated one by one, with an empty line between them.
#[derive(Debug, Default)]
struct Joined {
    text: String,
    gaps: Vec<Gap>,
    total: (u64, u64),
    output: (u64, u64),
    by: Option<TruncatedBy>,
}

impl Joined {
    fn is_cut(&self) -> bool {
        self.by.is_some()
    }

    fn push(&mut self, shown: Shown, window: &Window) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
            self.total = (self.total.0.saturating_add(2), self.total.1.saturating_add(1));
            self.output = (self.output.0.saturating_add(2), self.output.1.saturating_add(1));
        }
        let at = self.text.len() as u64;
        self.gaps.extend(shown.gaps.iter().map(|gap| Gap { at: at.saturating_add(gap.at), ..*gap }));
        let whole = (window.total_bytes(), window.total_lines());
        let output = shown.truncation.map_or(whole, |cut| (cut.output_bytes, cut.output_lines));
        let add = |sum: (u64, u64), more: (u64, u64)| (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
        (self.total, self.output) = (add(self.total, whole), add(self.output, output));
        self.by = self.by.or(shown.truncation.map(|cut| cut.by));
        self.text.push_str(shown.text.strip_suffix('\n').unwrap_or(&shown.text));
    }

    fn shown(self) -> Shown {
        let ((total_bytes, total_lines), (output_bytes, output_lines)) = (self.total, self.output);
        let truncation = self.by.map(|by| Truncation { by, total_bytes, total_lines, output_bytes, output_lines });
        Shown { text: self.text, truncation, gaps: self.gaps }
    }
}

/// Truncation of the parts of a text, before the whole was truncated.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Omitted bytes, minus the lines that stand for them.
    bytes: u64,
    lines: u64,
    by: Option<TruncatedBy>,
}

impl Totals {
    pub(super) fn add(&mut self, part: &Shown) {
        if let Some(cut) = part.truncation {
            let shown = Window::of(&part.text);
            self.bytes = self.bytes.saturating_add(cut.total_bytes.saturating_sub(shown.total_bytes()));
            self.lines = self.lines.saturating_add(cut.total_lines.saturating_sub(shown.total_lines()));
            self.by = self.by.or(Some(cut.by));
        }
    }

    /// Returns `whole`, with a truncation that includes the losses of its parts.
    pub(super) fn apply(self, mut whole: Shown) -> Shown {
        let cut = whole.truncation.or_else(|| {
            let text = Window::of(&whole.text);
            let (bytes, lines) = (text.total_bytes(), text.total_lines());
            self.by.map(|by| Truncation {
                by,
                total_bytes: bytes,
                total_lines: lines,
                output_bytes: bytes,
                output_lines: lines,
            })
        });
        whole.truncation = cut.map(|cut| Truncation {
            by: self.by.unwrap_or(cut.by),
            total_bytes: cut.total_bytes.saturating_add(self.bytes),
            total_lines: cut.total_lines.saturating_add(self.lines),
            ..cut
        });
        whole
    }
}
