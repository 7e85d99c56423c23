//! Ends of cells that do not end by themselves, and the reports on every end.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{Command, Reactor, finished, room::Commands};
use crate::{
    kernel::{
        border::{stop_kind, stop_name, types::StopReason},
        calls::Lineage,
        instance::{Death, LOST},
        record::Entry,
    },
    session::Session,
};
use cellar_core::{
    cell::Language,
    event::{HostStatus, Scalar},
    limits::Limits,
    outcome::{Failure, FailureKind, Outcome, Usage},
    time::later,
};

/// Abandoned cells, whose end the guest has not reported.
const ABANDONED_MAX: usize = 1_024;

/// Message of guests for a cell that exceeded its time limit.
const PAST_LIMIT: &str = "the cell ran past its time limit";
/// The same for a cell that was interrupted.
const INTERRUPTED: &str = "the cell was interrupted";
/// The same, where its session has given its kernel up.
pub(super) const RESET: &str = "the kernel was reset";

/// Adds the time limit to the message of a guest, which does not know it, and how a cell gets more.
fn name_time_limit(failure: &mut Failure, limit: Duration, limits: &Limits) {
    let of = if failure.message == PAST_LIMIT { format!(" of {} s", limit.as_secs_f64()) } else { String::new() };
    add_to_message(failure, &(of + &limits.more_time(limit)));
}

/// Adds the memory limit to the message of a cell that ran out of memory, and how to get more.
fn name_memory_limit(failure: &mut Failure, limits: &Limits, was_pool: bool) {
    let note = match was_pool {
        true => "; the memory that the session shares with others is used up".to_owned(),
        false => limits.more_memory(),
    };
    add_to_message(failure, &note);
}

/// Adds to the message of a failure, and to the traceback, where that has it.
fn add_to_message(failure: &mut Failure, note: &str) {
    let Failure { name, message, traceback, .. } = failure;
    let headline = format!("{name}: {message}");
    if let Some(start) = traceback.rfind(&headline) {
        traceback.insert_str(start.saturating_add(headline.len()), note);
    } else if traceback.trim_end().ends_with(name.as_str()) {
        traceback.truncate(traceback.trim_end().len());
        traceback.push_str(&format!(": {message}{note}"));
    } else if !traceback.is_empty() {
        traceback.push_str(note);
    }
    message.push_str(note);
}

/// Tells of a cell that was stopped because its session has given its kernel up.
pub(super) fn reset(failure: &mut Failure) {
    failure.state_kept = false;
    if failure.message == INTERRUPTED {
        let told = format!("{}: {RESET}", failure.name);
        failure.traceback = failure.traceback.replacen(&format!("{}: {INTERRUPTED}", failure.name), &told, 1);
        failure.message = RESET.to_owned();
    } else if !failure.message.contains(RESET) {
        add_to_message(failure, &format!("; {RESET}"));
    }
}

/// Closes the queue and refuses all commands in it with this outcome.
pub(super) async fn refuse(commands: &mut Commands, outcome: &Outcome) {
    commands.close();
    while let Some(command) = commands.recv().await {
        refuse_one(command, outcome);
    }
}

fn refuse_one(command: Command, outcome: &Outcome) {
    match command {
        Command::Start { cell, .. } => cell.finish(outcome.clone(), Usage::default()),
        Command::Look(_, reply) => {
            let reason = outcome.failure().map(|failure| failure.message);
            // Whoever asked may have gone away; that is no concern here.
            let _ = reply.send(Err(reason.unwrap_or_default()));
        }
        Command::Clear(_)
        | Command::Snapshot(_)
        | Command::Hold { .. }
        | Command::Checkpoint(_)
        | Command::Sleep(_) => {}
    }
}

/// Forwards a cell that never began to the next kernel of its language. Returns any other command, and a cell for which there
/// is no kernel.
fn hand_on(session: &Session, language: Language, command: Command) -> Option<Command> {
    let Command::Start { cell, .. } = &command else { return Some(command) };
    let stop = cell.stop.flag.clone();
    let mut command = Some(command);
    // Without a kernel, the command stays here.
    let _ = session.kernel(language, |kernel| {
        if let Ok(place) = kernel.commands.try_reserve()
            && let Some(command) = command.take()
        {
            stop.watch(kernel.link.resident.wake.clone());
            place.send(command);
        }
    });
    command
}

pub(super) fn death_outcome(death: &Death) -> Outcome {
    let mut failure = Failure::new(death.kind, death.name, death.message.clone());
    failure.state_kept = false;
    failure.code = death.code;
    Outcome::Failed(Box::new(failure))
}

impl Reactor {
    /// Stops the cells that wait although they must not any more. A cell that awaits something on its way out gets
    /// the grace for it.
    pub(super) async fn stop_cells(&mut self) -> Result<(), Death> {
        let now = Instant::now();
        let data = self.kernel.data();
        let due: Vec<u32> = data.cells.iter().filter(|(_, cell)| cell.is_due(now)).map(|(id, _)| *id).collect();
        if due.is_empty() || !self.wake_up().await? {
            return Ok(());
        }
        for id in due {
            let data = self.kernel.data();
            let Some(reason) = data.stop_reason(id, None) else { continue };
            let give_up = later(Instant::now(), data.binding.limits.grace);
            match data.cells.get_mut(&id) {
                Some(cell) if cell.stop.give_up.is_some() => self.abandon(id, reason).await,
                Some(cell) => {
                    cell.stop.give_up = Some(give_up);
                    cell.stop.told = cell.stop.told.or(Some(reason));
                    self.cancel_calls(id).await;
                    self.enter(Entry::Interrupt(id, reason)).await?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Cancels the calls of a cell that is stopped. The guest is notified after it was told to stop.
    async fn cancel_calls(&mut self, id: u32) {
        let mut ends = self.kernel.data().binding.calls.cancel_cell(id);
        for end in &mut ends {
            self.kernel.data().report_end(end).await;
        }
        self.kernel.data().binding.calls.deliver(ends);
    }

    /// Ends a cell that does not end itself. Its kernel lives on.
    pub(super) async fn abandon(&mut self, id: u32, reason: StopReason) {
        let message = "the cell went on awaiting after it was told to stop, and was given up";
        self.abandon_as(id, Failure::new(stop_kind(reason), stop_name(reason), message)).await;
    }

    /// Ends a cell that its guest knows as one that goes on.
    pub(super) async fn abandon_as(&mut self, id: u32, failure: Failure) {
        self.note_abandoned(id);
        self.end_cell(id, Outcome::Failed(Box::new(failure))).await;
    }

    /// Notes a cell that has ended although its guest goes on with it.
    pub(super) fn note_abandoned(&mut self, id: u32) {
        if self.due.abandoned.len() >= ABANDONED_MAX {
            self.due.abandoned.pop_front();
        }
        self.due.abandoned.push_back(id);
    }

    /// Ends the cells that awaited when all tasks were forgotten.
    pub(super) async fn end_cleared(&mut self) {
        self.due.wake_at = None;
        let cells: Vec<u32> = self.kernel.data().cells.keys().copied().collect();
        for id in cells {
            let message = "the names and tasks of its kernel were cleared";
            let failure = Failure::new(FailureKind::Interrupted, "CellInterrupted", message);
            self.end_cell(id, Outcome::Failed(Box::new(failure))).await;
        }
    }

    pub(super) async fn end_cell(&mut self, id: u32, mut outcome: Outcome) {
        if let Some(failure) = self.swallowed(id, &outcome) {
            outcome = Outcome::Failed(Box::new(failure));
        }
        self.end_processes(id).await;
        if let Outcome::Failed(failure) = &mut outcome {
            // After a stop, the stop is reported, whatever exception the cell raised while it unwound.
            if failure.kind == FailureKind::Raised
                && let Some(reason) = self.kernel.data().stop_reason(id, None)
            {
                failure.kind = stop_kind(reason);
            }
            if failure.kind != FailureKind::Raised {
                self.cancel_calls(id).await;
            }
            let is_closing = self.link.closing.load(Ordering::Relaxed);
            let data = self.kernel.data();
            let limits = &data.binding.limits;
            match (failure.kind, data.cells.get(&id)) {
                (FailureKind::Timeout, Some(cell)) => name_time_limit(failure, cell.time.timeout, limits),
                (FailureKind::Memory, _) => name_memory_limit(failure, limits, data.limiter.refused_by_pool),
                _ => {}
            }
            if is_closing {
                reset(failure);
            }
        } else {
            self.tell_of_open_calls(id).await;
        }
        let data = self.kernel.data();
        let Some(cell) = data.cells.remove(&id) else { return };
        data.binding.tape.ended(id);
        if outcome.is_success() {
            self.setting.slot.absolve();
        }
        finished(&mut self.setting.storing).await;
        let usage = self.kernel.data().usage_of(&cell);
        cell.finish(outcome, usage);
    }

    /// Ends the processes of a cell that ends before them, and notifies its run. The guest is notified when it is entered
    /// next.
    async fn end_processes(&mut self, id: u32) {
        let mut ends = self.kernel.data().binding.calls.cancel_processes(id);
        if ends.is_empty() {
            return;
        }
        for end in &mut ends {
            self.kernel.data().report_end(end).await;
        }
        let count = Scalar::Integer(i64::try_from(ends.len()).unwrap_or(i64::MAX));
        self.kernel.data().binding.calls.deliver(ends);
        let fields = vec![("count".to_owned(), count)];
        self.kernel.data().report_status(id, HostStatus::ProcessesEnded, fields).await;
    }

    /// Tells the run of a cell that ended without awaiting all of its calls.
    async fn tell_of_open_calls(&mut self, id: u32) {
        let count = self.kernel.data().binding.calls.open_of(id);
        if count > 0 {
            let fields = vec![("count".to_owned(), Scalar::Integer(i64::try_from(count).unwrap_or(i64::MAX)))];
            self.kernel.data().report_status(id, HostStatus::CallsOpen, fields).await;
        }
    }

    /// Returns the failure of a cell that was stopped, caught the stop and ended in another way.
    fn swallowed(&mut self, id: u32, outcome: &Outcome) -> Option<Failure> {
        let data = self.kernel.data();
        let cell = data.cells.get(&id).filter(|_| !matches!(outcome, Outcome::Failed(_)))?;
        let limits = &data.binding.limits;
        let reason = cell.stop.told.or_else(|| cell.budget.output_left.is_none().then_some(StopReason::Output))?;
        let what = match reason {
            StopReason::Timeout => format!("{PAST_LIMIT} of {} s", cell.time.timeout.as_secs_f64()),
            StopReason::Interrupted => INTERRUPTED.to_owned(),
            StopReason::Fuel => "the cell used up its fuel".to_owned(),
            StopReason::Output => {
                format!("the cell printed more than {} MiB, the rest is lost", limits.output_bytes >> 20)
            }
        };
        let how = if cell.stop.told.is_some() { "; it caught that, and went on to its end" } else { "" };
        Some(Failure::new(stop_kind(reason), stop_name(reason), format!("{what}{how}")))
    }

    /// Ends every cell of a dead kernel: the culprit with the cause, the others as interrupted. Cells that never began run on the
    /// next kernel, as those do that come a moment later.
    pub(super) async fn bury(&mut self, death: &Death) {
        self.commands.close();
        let mut death = death.clone();
        let mut age = None;
        let culprit = self.kernel.data().executing;
        let cells: Vec<u32> = self.kernel.data().cells.keys().copied().collect();
        let mut next = None;
        // A kernel that its session has given up has no state to go back to.
        if !self.link.closing.load(Ordering::Relaxed) {
            let (fate, since) = self.fate();
            (death.message, age) = (format!("{}, {fate}", death.message), since);
            // One that died before any cell of the session began would not be the last to do so, and somebody must be told.
            let had_begun = self.was_used && self.seeding.is_none() && !self.is_suspect && !cells.is_empty();
            next = self.setting.session.upgrade(Lineage::default()).filter(|_| had_begun);
        }
        let death = &death;
        // Before anybody hears of it, who would send more.
        while let Some(command) = self.commands.recv().await {
            let left = match &next {
                Some(session) => hand_on(session, self.guest.language, command),
                None => Some(command),
            };
            if let Some(command) = left {
                refuse_one(command, &death_outcome(death));
            }
        }
        // Telling the cells may wait for readers, and must not keep the session open meanwhile.
        drop(next);
        for id in cells {
            let bystander = Death {
                kind: FailureKind::Interrupted,
                name: "CellInterrupted",
                message: format!("the kernel died under it: {}", death.message),
                code: LOST,
            };
            let death = if id == culprit || death.kind == FailureKind::Interrupted { death } else { &bystander };
            let fields = vec![("reason".to_owned(), Scalar::Text(death.message.clone()))];
            self.kernel.data().report_status(id, HostStatus::KernelLost, fields).await;
            if let Some(age) = age {
                self.report_fate(id, age).await;
            }
            self.end_cell(id, death_outcome(death)).await;
        }
    }
}
