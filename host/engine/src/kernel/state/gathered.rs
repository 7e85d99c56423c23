//! Text on its way out: pieces that follow one another closely leave as one event.
//!
//! What a cell writes is held until the guest is left, another event comes, the other stream is written, there is much
//! of it, or it has waited for [`PATIENCE`], whichever is first. Nothing is ever held while no guest code runs.

use std::time::{Duration, Instant};

use cellar_core::{cell::CellId, event::EventKind};
use tokio::sync::mpsc::error::TrySendError;

use super::{StoreData, sending::Maker};

/// Longest wait, as far as the guest polls. Guests may gather text themselves, which must fit into 50 ms with this.
const PATIENCE: Duration = Duration::from_millis(8);
/// Largest text of one event, in bytes.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// Text that was not sent yet.
#[derive(Debug)]
pub(super) struct Gathered {
    /// The live cell whose run it goes to.
    cell: u32,
    /// The cell that began what writes, if that has outlived it.
    late: Option<CellId>,
    is_stderr: bool,
    text: String,
    since: Instant,
}

impl Gathered {
    fn event(self, index: usize) -> EventKind {
        printed(index, self.late, self.is_stderr, self.text)
    }
}

/// The event of a text that was written. `late` is the cell that began what has written it, if that has outlived it.
fn printed(index: usize, late: Option<CellId>, is_stderr: bool, text: String) -> EventKind {
    match (late, is_stderr) {
        (Some(cell), is_stderr) => EventKind::Background { index, cell, is_stderr, text, left_out: 0 },
        (None, true) => EventKind::Stderr { index, text },
        (None, false) => EventKind::Stdout { index, text },
    }
}

impl StoreData {
    /// Takes in a text that a cell writes. An empty one of code that has outlived its cell stands before a display.
    pub(crate) async fn print(&mut self, cell: u32, is_stderr: bool, text: &str) {
        let late = self.is_late(cell).then_some(CellId(cell));
        if late.is_some() && !text.is_empty() {
            self.binding.backlog.announce(cell, is_stderr, text);
        }
        if self.binding.tape.is_on() || text.is_empty() {
            // When text leaves is a matter of time, and what is recorded must come again.
            let text = text.to_owned();
            return self.send(cell, |index| printed(index, late, is_stderr, text)).await;
        }
        let Some(cell) = self.route(cell) else { return };
        let is_of = |held: &Gathered| (held.cell, held.late, held.is_stderr) == (cell, late, is_stderr);
        if self.gathered.as_ref().is_some_and(|held| !is_of(held)) {
            self.flush_text().await;
        }
        let mut rest = text;
        while !rest.is_empty() {
            let held = self.gathered.get_or_insert_with(|| Gathered {
                cell,
                late,
                is_stderr,
                text: String::new(),
                since: Instant::now(),
            });
            let (piece, left) = rest.split_at(rest.floor_char_boundary(TEXT_BYTES_MAX.saturating_sub(held.text.len())));
            held.text.push_str(piece);
            rest = left;
            if !rest.is_empty() {
                self.flush_text().await;
            }
        }
    }

    /// Sends the text that is held. Waits for the reader as [`StoreData::send`] does.
    pub(crate) async fn flush_text(&mut self) {
        self.tell_of_fetch().await;
        if let Some(held) = self.gathered.take() {
            let cell = held.cell;
            self.emit(cell, Maker::Guest, |index| held.event(index)).await;
        }
    }

    /// Sends the text that is held of a cell that ends, if its reader has capacity.
    pub(super) fn send_text_of(&mut self, cell: u32) {
        let Some(held) = self.gathered.take_if(|held| held.cell == cell) else { return };
        if let Some(live) = self.cells.get(&cell) {
            live.reader.try_tell(held.event(live.reader.index));
        }
    }

    /// Sends text that has waited for long, if the reader has capacity. Called wherever the guest polls the host.
    pub(crate) fn flush_old_text(&mut self) {
        if self.fetched.is_some() {
            return;
        }
        let Some(held) = self.gathered.take_if(|held| held.since.elapsed() >= PATIENCE) else { return };
        let Some(live) = self.cells.get(&held.cell).filter(|live| !live.reader.is_muted) else { return };
        let (cell, late, is_stderr, since) = (held.cell, held.late, held.is_stderr, held.since);
        match live.reader.events.try_send(held.event(live.reader.index), |_| {}) {
            Err(TrySendError::Full(event)) => {
                if let EventKind::Stdout { text, .. }
                | EventKind::Stderr { text, .. }
                | EventKind::Background { text, .. } = *event
                {
                    self.gathered = Some(Gathered { cell, late, is_stderr, text, since });
                }
            }
            Err(TrySendError::Closed(_)) => live.stop.flag.set(),
            Ok(()) => {}
        }
    }
}
