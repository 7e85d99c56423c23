//! Wait of a kernel for capacity when its host has none left: in a queue, as long as its request may wait, and still
//! receiving commands. Nothing is lost by it: a cell that may not wait any longer ends alone, and its kernel stays
//! hibernated.

use std::{
    collections::{HashMap, VecDeque},
    pin::{Pin, pin},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use cellar_core::{
    event::{HostStatus, Scalar},
    limits::{CELLS_LIVE_MAX, CELLS_WAITING_MAX, LOOK_TIMEOUT, ROOM_WAIT, ROOM_WAIT_TOLD},
    outcome::{Failure, FailureCode, Outcome, Usage},
    time::later,
};
use tokio::sync::mpsc;

use super::{Command, Reactor, never_began};
use crate::{
    contract::error::Error,
    kernel::{
        border::types::StopReason,
        instance::Death,
        record::Entry,
        scheduling::{Room, Sweep, earlier},
        state::{KernelLink, LiveCell},
    },
    session::saved::wake,
};

/// Commands that a kernel receives early while it waits for capacity. Others stay in their channel.
const EARLY_MAX: usize = 64;

/// The commands of a kernel, in order.
pub(super) struct Commands {
    sent: mpsc::Receiver<Command>,
    /// Commands received before the kernel had capacity, oldest first.
    early: VecDeque<Early>,
    /// Cells that wait until their kernel has fewer, oldest first.
    waiting: VecDeque<Command>,
}

/// Command received before its kernel had capacity.
struct Early {
    command: Command,
    since: Instant,
    /// True if its run was notified that it waits.
    is_told: bool,
}

impl From<Command> for Early {
    fn from(command: Command) -> Early {
        Early { command, since: Instant::now(), is_told: false }
    }
}

impl From<mpsc::Receiver<Command>> for Commands {
    fn from(sent: mpsc::Receiver<Command>) -> Commands {
        Commands { sent, early: VecDeque::new(), waiting: VecDeque::new() }
    }
}

impl Commands {
    /// Receives the next command; `None` when all senders are gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn recv(&mut self) -> Option<Command> {
        match self.early.pop_front() {
            Some(early) => Some(early.command),
            None => self.sent.recv().await,
        }
    }

    /// Makes a command the next one again.
    fn put_back(&mut self, command: Command) {
        self.early.push_front(command.into());
    }

    /// Takes in no more. Those that wait for a place come first then.
    pub(super) fn close(&mut self) {
        self.sent.close();
        for command in std::mem::take(&mut self.waiting).into_iter().rev() {
            self.put_back(command);
        }
    }

    /// Has a cell wait for a place, if not too many do.
    pub(super) fn wait_for_place(&mut self, command: Command) {
        if self.waiting.len() < CELLS_WAITING_MAX {
            self.waiting.push_back(command);
            return;
        }
        if let Command::Start { cell, .. } = command {
            let message = format!("{CELLS_WAITING_MAX} cells wait for their turn; more can when some have begun");
            let failure = Failure::refused(FailureCode::Busy, "KernelError", message);
            cell.finish(Outcome::Failed(Box::new(failure)), Usage::default());
        }
    }

    /// Returns the next cell that has waited for a place, if its kernel has fewer than it may have. Ends those that nobody wants any more.
    pub(super) fn next_waiting(&mut self, live: usize) -> Option<Command> {
        self.end_stopped();
        if live < CELLS_LIVE_MAX { self.waiting.pop_front() } else { None }
    }

    /// Ends the cells that wait for a place and were stopped.
    fn end_stopped(&mut self) {
        for command in std::mem::take(&mut self.waiting) {
            match command {
                Command::Start { cell, .. } if cell.stop.flag.is_set() => {
                    cell.finish(Outcome::Failed(Box::new(never_began())), Usage::default());
                }
                command => self.waiting.push_back(command),
            }
        }
    }

    /// The first command, if it needs no kernel that is awake.
    fn take_sleeper(&mut self) -> Option<Command> {
        let is_sleeper = |command: &Command| {
            matches!(command, Command::Snapshot(_) | Command::Hold { .. } | Command::Checkpoint(_) | Command::Sleep(_))
        };
        self.early.pop_front_if(|early| is_sleeper(&early.command)).map(|early| early.command)
    }

    /// Ends the commands that were cancelled or have waited for as long as they may, and notifies the runs of waiting cells.
    /// Returns the time of the next such check.
    fn weed(&mut self, kernels_max: usize) -> Option<Instant> {
        self.end_stopped();
        let now = Instant::now();
        let mut next = None;
        for mut early in std::mem::take(&mut self.early) {
            match early.command {
                Command::Start { cell, .. } if cell.stop.flag.is_set() => {
                    cell.finish(Outcome::Failed(Box::new(never_began())), Usage::default());
                    continue;
                }
                Command::Start { cell, .. } if now >= later(cell.began, cell.time.room_left) => {
                    let outcome = Outcome::Failed(Box::new(no_room(kernels_max, cell.time.room_left)));
                    cell.finish(outcome, Usage::default());
                    continue;
                }
                Command::Start { ref cell, .. } => {
                    next = earlier(next, Some(later(cell.began, cell.time.room_left)));
                    if !early.is_told && now >= later(early.since, ROOM_WAIT_TOLD) {
                        tell(cell, kernels_max);
                        early.is_told = true;
                    } else if !early.is_told {
                        next = earlier(next, Some(later(early.since, ROOM_WAIT_TOLD)));
                    }
                }
                Command::Look(_, ref reply) if reply.is_closed() => continue,
                Command::Look(_, reply) if now >= later(early.since, LOOK_TIMEOUT) => {
                    // Whoever asked may have gone away; that is no concern here.
                    let _ = reply.send(Err(Error::KernelsExhausted.to_string()));
                    continue;
                }
                Command::Look(..) => next = earlier(next, Some(later(early.since, LOOK_TIMEOUT))),
                Command::Hold { ref reply, .. } if reply.is_closed() => continue,
                Command::Snapshot(reply) | Command::Hold { reply, .. } if now >= later(early.since, ROOM_WAIT) => {
                    let _ = reply.send(Err(Error::KernelsExhausted));
                    continue;
                }
                Command::Checkpoint(reply) | Command::Sleep(reply) if now >= later(early.since, ROOM_WAIT) => {
                    let _ = reply.send(Err(Error::KernelsExhausted));
                    continue;
                }
                Command::Clear(_) if now >= later(early.since, ROOM_WAIT) => continue,
                Command::Snapshot(_)
                | Command::Hold { .. }
                | Command::Checkpoint(_)
                | Command::Sleep(_)
                | Command::Clear(_) => {
                    next = earlier(next, Some(later(early.since, ROOM_WAIT)));
                }
            }
            self.early.push_back(early);
        }
        next
    }

    /// Waits for capacity, a command, a stop or `until`.
    async fn wait(
        &mut self,
        line: Pin<&mut impl Future<Output = Room>>,
        link: &KernelLink,
        until: Option<Instant>,
    ) -> Option<Room> {
        let sleep = async {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            room = line => return Some(room),
            () = link.resident.wake.notified() => {}
            Some(command) = self.sent.recv(), if self.early.len() < EARLY_MAX => self.early.push_back(command.into()),
            () = sleep => {}
        }
        None
    }

    /// Waits for capacity for the first kernel of a session's language; `None` if the session closed the kernel before.
    pub(super) async fn first_room(&mut self, sweep: &Sweep, link: &KernelLink) -> Option<Room> {
        if let Some(room) = sweep.free_room(link.resident.claim) {
            return Some(room);
        }
        let mut line = pin!(sweep.room(link.resident.claim));
        while !link.closing.load(Ordering::Relaxed) {
            let until = self.weed(sweep.kernels_max);
            if let Some(room) = self.wait(line.as_mut(), link, until).await {
                return Some(room);
            }
        }
        None
    }
}

/// Failure of a cell that has waited for capacity for as long as it may.
fn no_room(kernels_max: usize, waited: Duration) -> Failure {
    let message = format!(
        "all {kernels_max} kernels of this host were in use for {waited:?}, the time that the cell may take; raise \
         `kernels` in [host], or end other cells first"
    );
    Failure::refused(FailureCode::Busy, "KernelError", message)
}

/// Notifies a cell's run that it waits for capacity. Does not wait for a slow reader.
fn tell(cell: &LiveCell, kernels_max: usize) {
    let fields = vec![("kernels".to_owned(), Scalar::Integer(i64::try_from(kernels_max).unwrap_or(i64::MAX)))];
    let event = HostStatus::KernelAwaited.event(cell.reader.index, fields);
    if !cell.reader.is_muted {
        let _ = cell.reader.events.try_send(event, |event| {
            if let Some(record) = &cell.reader.record {
                record.told(event);
            }
        });
    }
}

impl Reactor {
    /// Makes a command the next one again.
    pub(super) fn put_back(&mut self, command: Command) {
        self.commands.put_back(command);
    }

    /// Waits for capacity and wakes the kernel, if it sleeps. Returns true if it is awake, false if the session closed it
    /// meanwhile.
    pub(super) async fn wake_up(&mut self) -> Result<bool, Death> {
        if !self.kernel.is_asleep() {
            return Ok(true);
        }
        let Some(room) = self.room().await? else { return Ok(false) };
        let lost = wake(&mut self.kernel, &self.guest, room, &self.setting.slot).await?;
        self.rest.awake_since = Instant::now();
        self.setting.sweep.woke(&self.link.resident);
        self.due.notices.extend(lost.into_iter().map(|fields| (HostStatus::FileLost, fields)));
        for (cell, reason) in std::mem::take(&mut self.due.owed) {
            self.enter(Entry::Interrupt(cell, reason)).await?;
        }
        Ok(true)
    }

    /// Waits for capacity for a kernel that sleeps. Extends the deadlines of its cells by that time, which each cell may
    /// spend once; a cell that is to stop waits no longer than the grace.
    async fn room(&mut self) -> Result<Option<Room>, Death> {
        if let Some(room) = self.setting.sweep.free_room(self.link.resident.claim) {
            return Ok(Some(room));
        }
        let (sweep, link) = (self.setting.sweep.clone(), self.link.clone());
        let mut line = pin!(sweep.room(link.resident.claim));
        let began = Instant::now();
        let told_at = later(began, ROOM_WAIT_TOLD);
        let mut is_told = false;
        let grace = self.kernel.data().binding.limits.grace;
        // When each of the cells that must stop is given up.
        let mut stopped: HashMap<u32, Instant> = HashMap::new();
        let overdue = |(id, cell): (&u32, &LiveCell)| {
            Some((*id, cell.is_due(began).then(|| cell.stop.give_up.unwrap_or(later(began, grace)))?))
        };
        stopped.extend(self.kernel.data().cells.iter().filter_map(overdue));
        let room = loop {
            if link.closing.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let now = Instant::now();
            let (mut until, mut over) = (None, Vec::new());
            for (id, cell) in &self.kernel.data().cells {
                if cell.stop.flag.is_set() {
                    stopped.entry(*id).or_insert(later(now, grace));
                }
                let limit = match stopped.get(id) {
                    Some(give_up) => *give_up,
                    None if cell.time.rests_since.is_some() => continue,
                    None => later(began, cell.time.room_left),
                };
                until = earlier(until, Some(limit));
                if limit <= now {
                    over.push(*id);
                }
            }
            for id in over {
                self.give_up(id, now.saturating_duration_since(began)).await;
            }
            if !is_told && now >= told_at {
                is_told = true;
                self.kernel.data().cells.values().for_each(|cell| tell(cell, sweep.kernels_max));
            } else if !is_told {
                until = earlier(until, Some(told_at));
            }
            while let Some(command) = self.commands.take_sleeper() {
                self.while_asleep(command).await?;
            }
            let until = earlier(until, self.commands.weed(sweep.kernels_max));
            if let Some(room) = self.commands.wait(line.as_mut(), &link, until).await {
                break room;
            }
        };
        let waited = began.elapsed();
        for (id, cell) in &mut self.kernel.data().cells {
            if !stopped.contains_key(id) && cell.stop.give_up.is_none() && cell.time.rests_since.is_none() {
                cell.time.deadline = later(cell.time.deadline, waited);
                cell.time.room_left = cell.time.room_left.saturating_sub(waited);
            }
        }
        Ok(Some(room))
    }

    /// Carries out a command that needs no guest.
    async fn while_asleep(&mut self, command: Command) -> Result<(), Death> {
        // Whoever asked may have gone away; that is no concern here.
        match command {
            Command::Snapshot(reply) => drop(reply.send(self.capture().await?)),
            Command::Hold { reply, released } => self.be_held(reply, released).await?,
            Command::Checkpoint(reply) | Command::Sleep(reply) => drop(reply.send(Ok(()))),
            command => self.put_back(command),
        }
        Ok(())
    }

    /// Ends a cell of a kernel that sleeps and has no capacity. The guest is notified when it wakes.
    async fn give_up(&mut self, id: u32, waited: Duration) {
        let data = self.kernel.data();
        let is_stopped = data.cells.get(&id).is_some_and(|cell| cell.is_due(Instant::now()));
        match data.stop_reason(id, None).filter(|_| is_stopped) {
            Some(reason) => {
                self.due.owed.push((id, reason));
                self.abandon(id, reason).await;
            }
            None => {
                self.due.owed.push((id, StopReason::Timeout));
                let failure = no_room(self.setting.sweep.kernels_max, waited);
                self.abandon_as(id, failure).await;
            }
        }
    }
}
