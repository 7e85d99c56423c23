//! Events on their way to the reader of their run, which may be slow.

use std::{sync::atomic::Ordering, time::Instant};

use cellar_core::{
    event::{EventKind, HostStatus, Scalar},
    text::prefix,
    time::later,
};
use tokio::sync::mpsc::error::TrySendError;

use super::{LiveCell, StoreData};
use crate::kernel::{events::Gate, record::Tape, scheduling::earlier};

/// Bytes of any name or text in an event that counts neither as output nor as a display. Longer ones are cut.
const WORD_BYTES_MAX: u64 = 4 << 10;

/// `text` as it may stand in an event; see [`WORD_BYTES_MAX`].
pub(crate) fn word(text: &str) -> String {
    prefix(text, WORD_BYTES_MAX).to_owned()
}

/// Origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Guest,
    Host,
}

impl StoreData {
    /// Returns until when the kernel waits for the reader of the cell `id`; `None` for not at all. All cells of the kernel wait with it,
    /// so the wait ends a grace after any of them should have ended. `stopped` is when one was first seen stopped.
    fn patience(&self, id: u32, stopped: &mut Option<Instant>) -> Option<Instant> {
        let is_over = |live: &LiveCell| live.stop.flag.is_set();
        if self.binding.link.closing.load(Ordering::Relaxed) || self.cells.get(&id).is_none_or(is_over) {
            return None;
        }
        if self.cells.values().any(is_over) {
            stopped.get_or_insert_with(Instant::now);
        }
        let deadline = self.cells.values().map(|live| live.time.deadline).min();
        Some(later(earlier(*stopped, deadline)?, self.binding.limits.grace))
    }

    /// Sends an event that the guest made, behind the text that is held; waits while the reader is behind, but not longer than
    /// [`StoreData::patience`]. A run whose reader is too far behind for the other cells of its kernel is cancelled.
    pub(crate) async fn send(&mut self, cell: u32, event: impl FnOnce(usize) -> EventKind) {
        self.flush_text().await;
        self.emit(cell, Maker::Guest, event).await;
    }

    /// Sends an event that the host made, as [`StoreData::send`] does.
    pub(super) async fn tell(&mut self, cell: u32, event: impl FnOnce(usize) -> EventKind) {
        self.flush_text().await;
        self.emit(cell, Maker::Host, event).await;
    }

    pub(super) async fn emit(&mut self, cell: u32, maker: Maker, event: impl FnOnce(usize) -> EventKind) {
        self.end_recorded();
        let wake = self.binding.link.resident.wake.clone();
        let Some(id) = self.route(cell) else { return };
        let Some(mut event) =
            self.cells.get(&id).filter(|live| !live.reader.is_muted).map(|live| event(live.reader.index))
        else {
            return;
        };
        if let Tape::Replaying(playback) = &mut self.binding.tape {
            return playback.said(cell, event).await;
        }
        let mut stopped = None;
        loop {
            self.settle();
            let Some(live) = self.cells.get(&id) else { break };
            let turn = live.reader.gate.as_ref().map(Gate::turn);
            let tape = &self.binding.tape;
            let sent = live.reader.events.try_send(event, |event| match (tape, maker, &live.reader.record) {
                (Tape::Recording(tape), Maker::Guest, record) => tape.said(record.as_ref(), event),
                (_, Maker::Host, Some(record)) => record.told(event),
                _ => {}
            });
            match sent {
                Ok(()) => return,
                Err(TrySendError::Closed(back)) => {
                    event = *back;
                    live.stop.flag.set();
                    break;
                }
                Err(TrySendError::Full(back)) => event = *back,
            }
            drop(turn);
            let Some(until) = self.patience(id, &mut stopped) else { break };
            let now = Instant::now();
            if until <= now {
                if now < live.time.deadline {
                    live.stop.flag.set();
                }
                break;
            }
            tokio::select! {
                () = live.reader.events.room(&event) => {}
                () = wake.notified() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
        if let (Tape::Recording(tape), Maker::Guest) = (&self.binding.tape, maker) {
            tape.said(None, &event);
        }
    }

    /// Reports to the run of `cell` what the engine did.
    pub(crate) async fn report_status(&mut self, cell: u32, status: HostStatus, fields: Vec<(String, Scalar)>) {
        self.tell(cell, |index| status.event(index, fields)).await;
    }
}
