//! Cells that wait while the guest works for another one, and must stop.
//!
//! A guest is entered for one thing at a time, so it cannot be told to stop a waiting cell before it comes back, which may take
//! as long as the other cell's time limit. The calls of such a cell are cancelled at once: where the guest works for one of
//! them, as for the cells of a sub-agent, that ends too, and the guest stops the waiting cell itself. A cell that has still not
//! ended a moment later is ended by the host, and the guest hears of it when it comes back.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use cellar_core::{
    event::EventKind,
    outcome::{Failure, Outcome, Usage},
    time::later,
};

use super::{LiveCell, StoreData, word};
use crate::kernel::{
    border::{stop_kind, stop_name, types::StopReason},
    calls::CallEnd,
    record::Tape,
};

/// Time that a guest has to come back and stop a waiting cell itself.
const PATIENCE: Duration = Duration::from_millis(100);

impl StoreData {
    /// Returns the time at which a wait on behalf of `cell` must check again, for its own deadline or for another waiting cell.
    pub(crate) fn look_at(&self, cell: u32) -> Instant {
        let waiting = self.cells.iter().filter(|(id, cell)| self.waits(**id) && cell.asks.is_empty());
        let due = |cell: &LiveCell| match cell.stop.overdue_since {
            Some(since) => later(since, PATIENCE),
            None => cell.stop.give_up.unwrap_or(cell.time.deadline),
        };
        waiting.map(|(_, cell)| due(cell)).fold(self.deadline(cell), Instant::min)
    }

    /// Cancels the calls of waiting cells that must stop, and ends those that the guest did not stop in time.
    pub(crate) fn end_overdue(&mut self) {
        if self.cells.len() < 2 || self.binding.tape.is_replaying() {
            return;
        }
        let now = Instant::now();
        let is_due = |cell: &LiveCell| cell.is_due(now) && (cell.asks.is_empty() || cell.stop.flag.is_set());
        let due: Vec<u32> =
            self.cells.iter().filter(|(id, cell)| self.waits(**id) && is_due(cell)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(cell) = self.cells.get_mut(&id) else { continue };
            match cell.stop.overdue_since {
                None => {
                    cell.stop.overdue_since = Some(now);
                    self.cancel_waiting(id);
                }
                Some(since) if now.saturating_duration_since(since) >= PATIENCE => self.end_waiting(id),
                Some(_) => {}
            }
        }
    }

    /// In a replay, ends the cells that the host had ended here.
    pub(crate) fn end_recorded(&mut self) {
        while let Tape::Replaying(playback) = &mut self.binding.tape
            && let Some(cell) = playback.take_ended()
        {
            self.cells.remove(&cell);
        }
    }

    /// Takes the cells that the host has ended since this was last called, and why.
    pub(crate) fn take_ended(&mut self) -> Vec<(u32, StopReason)> {
        std::mem::take(&mut self.ended)
    }

    /// Returns true if a cell waits while the guest works for another one, and the host may end it.
    fn waits(&self, id: u32) -> bool {
        id != self.executing && self.cells.contains_key(&self.executing) && !self.is_looking && !self.holds_ends
    }

    /// Cancels the calls of a cell.
    fn cancel_waiting(&mut self, id: u32) {
        let mut ends = self.binding.calls.cancel_cell(id);
        for end in &mut ends {
            self.report_cancelled(end);
        }
        self.binding.calls.deliver(ends);
    }

    /// Logs the end of a cancelled call, and reports it to its run as far as the reader has capacity.
    fn report_cancelled(&mut self, end: &mut CallEnd) {
        end.reported = true;
        let (call, duration) = (end.call, end.duration);
        self.binding.open_calls.cancelled(call, duration);
        let Some(cell) = self.cells.get_mut(&end.cell) else { return };
        cell.asks.remove(&call);
        let error = end.result.as_ref().err().map(|error| word(&error.message));
        let index = cell.reader.index;
        cell.reader.try_tell(EventKind::CallFinished { index, call, duration, error });
    }

    /// Ends a cell that the guest goes on with.
    fn end_waiting(&mut self, id: u32) {
        // It may have made calls since.
        self.cancel_waiting(id);
        self.send_text_of(id);
        let reason = self.stop_reason(id, None);
        let Some(cell) = self.cells.remove(&id) else { return };
        let reason = reason.or(cell.stop.told).unwrap_or(StopReason::Interrupted);
        self.binding.tape.ended(id);
        self.ended.push((id, reason));
        let limit = match reason {
            StopReason::Timeout => format!("ran past its time limit of {} s", cell.time.timeout.as_secs_f64()),
            StopReason::Interrupted if self.binding.link.closing.load(Ordering::Relaxed) => {
                "was interrupted by a reset of its kernel".to_owned()
            }
            StopReason::Interrupted => "was interrupted".to_owned(),
            StopReason::Fuel | StopReason::Output => "used up what it was given".to_owned(),
        };
        let more = match reason {
            StopReason::Timeout => self.binding.limits.more_time(cell.time.timeout),
            _ => String::new(),
        };
        let message = format!(
            "the cell {limit} while it waited; another cell was running, and its own code stops behind that{more}"
        );
        let mut failure = Failure::new(stop_kind(reason), stop_name(reason), message);
        failure.state_kept = !self.binding.link.closing.load(Ordering::Relaxed);
        let usage = self.usage_of(&cell);
        cell.finish(Outcome::Failed(Box::new(failure)), usage);
    }

    /// Returns the processor time, fuel and memory of a cell that ends now.
    pub(crate) fn usage_of(&self, cell: &LiveCell) -> Usage {
        let fuel = self.binding.limits.fuel.zip(cell.budget.fuel_left);
        let fuel = fuel.map(|(limit, left)| limit.saturating_sub(left).saturating_add(cell.budget.spent.fuel()));
        let cpu = self.cpu.total().saturating_sub(cell.budget.cpu_before).saturating_add(cell.budget.spent.cpu());
        Usage { fuel, cpu, memory_peak_bytes: self.limiter.peak_bytes }
    }
}
