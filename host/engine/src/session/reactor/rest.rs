//! Work of a kernel between cells: it takes checkpoints, hibernates and wakes up.
//!
//! A checkpoint costs about a third of a millisecond, and more the more memory has changed since the last one. The kernel
//! takes one when it has been idle for a while, and before a cell that comes at once, as far as a small share of the kernel's
//! time pays for it, and a share of the host's processors or of what the kernel's own cells have computed: with many kernels
//! that are never idle for long, checkpoints would cost more than the cells. Another thread compresses it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_core::{
    event::{HostStatus, Scalar},
    time::later,
};
use tokio::sync::oneshot;

use super::Reactor;
use crate::{
    contract::{config::Rests, error::Error},
    formats::snapshot::KernelImage,
    kernel::{
        capture::state_of,
        instance::Death,
        scheduling::{Credit, earlier, thread_time},
    },
    session::saved::{Kept, failed},
};

/// Inverse share of a kernel's time that may go into checkpoints before cells.
const SHARE: u32 = 50;
/// Inverse share of the processor time of a kernel's cells that may go into checkpoints, whatever the other kernels of the
/// host take.
const SHARE_OF_WORK: u32 = 10;
/// Expected cost of the first checkpoint.
const COST_EXPECTED: Duration = Duration::from_micros(300);
/// Cost of a checkpoint for each MiB by which the kernel's memory has grown.
const GROWTH_COST: Duration = Duration::from_millis(1);
/// Multiple of the cost of the last checkpoint that an idle kernel waits before the next one, so that a large memory is not
/// captured at each short pause.
const PATIENCE: u32 = 20;
/// Time that a kernel keeps its capacity while others wait for it.
const TURN: Duration = Duration::from_millis(100);
/// Pause before the next attempt to hibernate a kernel that could not.
const SLEEPLESS: Duration = Duration::from_secs(5);
/// Kernels that die in a row without a cell that succeeds, from which on messages say how to get rid of the checkpoint: it
/// may be the cause.
const DEATHS_SUSPECT: u32 = 3;

/// Checkpoint and hibernation state of a kernel.
#[derive(Debug)]
pub(super) struct Rest {
    rules: Rests,
    /// True if the guest was entered since its state was last captured.
    is_dirty: bool,
    /// Time at which the kernel got its capacity.
    pub(super) awake_since: Instant,
    /// Time at which the guest was last entered.
    quiet_since: Instant,
    /// The number of the last cell that was started.
    pub(super) last_cell: u32,
    credit: Credit,
    /// Processor time of its cells at the last capture.
    captured_at: Duration,
    cost: Duration,
    /// Size of its memory at the last capture; `None` until it is known.
    captured_bytes: Option<u64>,
    /// Time before which it does not try to hibernate again.
    sleepless_until: Option<Instant>,
    /// It is so because threads work for its cells.
    awaits_threads: bool,
}

impl Rest {
    pub(super) fn new(rules: Rests) -> Rest {
        let now = Instant::now();
        Rest {
            rules,
            is_dirty: false,
            awake_since: now,
            quiet_since: now,
            last_cell: 0,
            credit: Credit::new(rules.checkpoint_credit, SHARE, 1),
            captured_at: Duration::ZERO,
            cost: COST_EXPECTED,
            captured_bytes: None,
            sleepless_until: None,
            awaits_threads: false,
        }
    }

    /// Records that the guest was entered.
    pub(super) fn stirred(&mut self) {
        self.is_dirty = true;
        self.quiet_since = Instant::now();
    }

    /// Records that nothing since the last checkpoint is a reason for another.
    pub(super) fn settled(&mut self) {
        self.is_dirty = false;
    }

    fn checkpoint_at(&self) -> Option<Instant> {
        let after = self.rules.checkpoint_after.filter(|_| self.is_dirty)?;
        Some(later(self.quiet_since, after.max(self.cost.saturating_mul(PATIENCE))))
    }

    fn sleep_at(&self) -> Option<Instant> {
        Some(later(self.quiet_since, self.rules.hibernate_after?))
    }

    /// Estimates the cost of the next checkpoint: the cost of the last one, and more if the memory has grown since, for
    /// example by a large table.
    fn cost_expected(&mut self, memory_bytes: u64) -> Duration {
        let grown = memory_bytes.saturating_sub(*self.captured_bytes.get_or_insert(memory_bytes)) >> 20;
        GROWTH_COST.saturating_mul(u32::try_from(grown).unwrap_or(u32::MAX)).saturating_add(self.cost)
    }

    /// Returns true if checkpoints are on, the state has changed, and the kernel's credit pays for a checkpoint before a
    /// waiting cell.
    fn can_afford(&mut self, cost: Duration) -> bool {
        self.rules.checkpoint_after.is_some() && self.is_dirty && self.credit.affords(cost, Instant::now())
    }
}

impl Reactor {
    /// Returns true if the kernel may hibernate now. It may not before its seed has ended: its names may be incomplete.
    pub(super) fn may_sleep(&self) -> bool {
        let is_sleepless = self.rest.sleepless_until.is_some_and(|until| Instant::now() < until);
        !self.kernel.is_asleep() && self.seeding.is_none() && !is_sleepless
    }

    /// Returns true if the kernel has had its capacity for so long that others get their turn. A kernel with memory that
    /// takes long to capture keeps it for longer.
    pub(super) fn had_its_turn(&self) -> bool {
        self.rest.awake_since.elapsed() >= TURN.max(self.rest.cost.saturating_mul(PATIENCE))
    }

    /// Returns the time of an idle kernel's next checkpoint or hibernation; `None` if there is none.
    pub(super) fn rest_at(&self) -> Option<Instant> {
        if self.kernel.is_asleep() {
            return None;
        }
        earlier(self.rest.checkpoint_at(), self.rest.sleep_at())
    }

    /// Hibernates or takes a checkpoint, whichever is due.
    pub(super) async fn rest(&mut self) -> Result<(), Death> {
        if self.rest.sleep_at().is_some_and(|at| at <= Instant::now()) {
            self.sleep().await.map(drop)
        } else {
            self.checkpoint().await
        }
    }

    /// Takes a checkpoint before a cell, if the state has changed and the checkpoint is cheap enough.
    pub(super) async fn checkpoint_before_cell(&mut self) -> Result<(), Death> {
        let memory_bytes = self.kernel.data().limiter.peak_bytes;
        let cost = self.rest.cost_expected(memory_bytes);
        if self.rest.can_afford(cost) && (self.has_worked(cost) || self.setting.sweep.affords(cost)) {
            self.checkpoint().await?;
        }
        Ok(())
    }

    /// Returns true if its cells have computed enough since the last checkpoint to pay for another.
    fn has_worked(&self, cost: Duration) -> bool {
        let worked = self.kernel.cpu_time().saturating_sub(self.rest.captured_at);
        cost.saturating_mul(SHARE_OF_WORK) <= worked
    }

    /// Captures the kernel's present state, unless it is asleep. Sends no notification: its session stores it now.
    pub(super) async fn save(&mut self) -> Result<Result<(), Error>, Death> {
        if self.kernel.is_asleep() {
            return Ok(Ok(()));
        }
        let image = match self.capture().await? {
            Ok(image) => image,
            Err(error) => return Ok(Err(error)),
        };
        self.hold(image);
        self.rest.is_dirty = false;
        Ok(Ok(()))
    }

    /// Checks that the guest has no threads: a capture would lose their native stacks.
    ///
    /// # Errors
    /// `Threads` when it has some.
    pub(super) fn check_threads(&mut self) -> Result<(), Error> {
        match self.kernel.data().binding.threads.count() {
            0 => Ok(()),
            count => Err(Error::Threads { language: self.guest.language, count }),
        }
    }

    /// Returns true if threads work for cells that have not ended.
    fn has_busy_threads(&mut self) -> bool {
        self.check_threads().is_err() && !self.kernel.data().cells.is_empty()
    }

    /// Lets the kernel sleep again when the threads have ended that kept it from that.
    pub(super) fn note_threads(&mut self) {
        if self.rest.awaits_threads && !self.has_busy_threads() {
            self.rest.awaits_threads = false;
            self.rest.sleepless_until = None;
        }
    }

    async fn checkpoint(&mut self) -> Result<(), Death> {
        if self.has_busy_threads() {
            // It is tried again when the guest has been entered again.
            self.rest.is_dirty = false;
            return Ok(());
        }
        let began = thread_time();
        match self.capture().await? {
            Ok(image) => {
                self.hold(image);
                self.setting.session.settle();
            }
            // It is tried again after the next cell.
            Err(error) => tracing::warn!(error = cellar_core::text::describe(&error), "no checkpoint"),
        }
        self.rest.is_dirty = false;
        self.rest.captured_bytes = Some(self.kernel.data().limiter.peak_bytes);
        // Processor time: what the machine does besides is no reason to take fewer.
        self.rest.cost = Duration::from_nanos(thread_time().saturating_sub(began));
        self.rest.captured_at = self.kernel.cpu_time();
        self.rest.credit.spend(self.rest.cost);
        self.setting.sweep.spend(self.rest.cost);
        Ok(())
    }

    /// Captures the kernel's present state and keeps it, and returns when the session releases the kernel.
    pub(super) async fn be_held(
        &mut self,
        reply: oneshot::Sender<Result<Arc<KernelImage>, Error>>,
        released: oneshot::Receiver<()>,
    ) -> Result<(), Death> {
        let captured = match self.check_threads() {
            Ok(()) => self.capture().await?,
            Err(error) => Err(error),
        };
        if let Ok(image) = &captured
            && !self.kernel.is_asleep()
        {
            self.hold(image.clone());
        }
        let is_held = captured.is_ok();
        if reply.send(captured).is_ok() && is_held {
            // It is released by being dropped as well.
            let _ = released.await;
        }
        Ok(())
    }

    /// Keeps what was captured while the kernel goes on.
    fn hold(&mut self, image: Arc<KernelImage>) {
        let last_cell = self.rest.last_cell;
        self.setting.slot.set(Kept { image, is_fork: false, is_checkpoint: true, last_cell, deaths: 0 });
    }

    /// Captures all state. Between two entries there is none outside of memory but what the host keeps. What has not
    /// changed since the last checkpoint is not copied again.
    pub(super) async fn capture(&mut self) -> Result<Result<Arc<KernelImage>, Error>, Death> {
        let digest = match self.guest.digest() {
            Ok(digest) => digest.to_owned(),
            Err(error) => return Ok(Err(error)),
        };
        if self.kernel.is_asleep() {
            let kept = self.setting.slot.load().await.map_err(failed)?;
            return Ok(kept
                .map(|kept| kept.image)
                .ok_or_else(|| Error::SessionClosed("a kernel that was reset".to_owned())));
        }
        let kept = self.setting.slot.peek();
        let written = self.kernel.written().await?;
        let image = match self.guest.image() {
            Ok(image) => image,
            Err(error) => return Ok(Err(error)),
        };
        let earlier = kept.as_ref().map(|kept| &kept.image.pages);
        let pages = self.kernel.capture(image, earlier, &written).await?;
        let mut state = state_of(self.kernel.data(), self.guest.language, &digest, self.due.wake_at);
        state.configuration = self.configured_as;
        state.abandoned = self.due.abandoned.iter().copied().collect();
        Ok(Ok(Arc::new(KernelImage { state, pages })))
    }

    /// Releases the kernel's memory. Timers and calls that it awaits go on; the next entry wakes it.
    pub(super) async fn sleep(&mut self) -> Result<Result<(), Error>, Death> {
        if self.kernel.is_asleep() {
            return Ok(Ok(()));
        }
        if self.has_busy_threads() {
            self.rest.quiet_since = Instant::now();
            self.rest.sleepless_until = Some(later(Instant::now(), SLEEPLESS));
            self.rest.awaits_threads = true;
            self.setting.sweep.woke(&self.link.resident);
            return Ok(self.check_threads());
        }
        let captured = self.capture().await?;
        // Where it failed, it is not tried again at once.
        self.rest.quiet_since = Instant::now();
        let image = match captured {
            Ok(image) => image,
            Err(error) => {
                tracing::warn!(error = cellar_core::text::describe(&error), "a kernel cannot go to sleep");
                self.rest.sleepless_until = Some(later(Instant::now(), SLEEPLESS));
                self.setting.sweep.woke(&self.link.resident);
                return Ok(Err(error));
            }
        };
        let last_cell = self.rest.last_cell;
        let kept = Kept { image, is_fork: false, is_checkpoint: false, last_cell, deaths: 0 };
        let sleeper = self.setting.slot.set_sleeper(kept);
        // Its room goes to the next kernel when what is too much is packed: what is not packed is bounded.
        let over = self.setting.sweep.recent.take_in(Box::new(sleeper));
        if !over.is_empty()
            && let Err(error) = tokio::task::spawn_blocking(move || over.iter().for_each(|one| one.pack())).await
            && !error.is_cancelled()
        {
            tracing::warn!(%error, "the state of a kernel was not packed");
        }
        self.setting.session.settle();
        self.kernel.data().binding.files.close_all();
        // The guest learns of it when it is entered again.
        self.kernel.data().binding.threads.reserve(0);
        self.kernel.sleep();
        self.setting.sweep.slept(&self.link.resident);
        self.rest.is_dirty = false;
        Ok(Ok(()))
    }

    /// Describes the fate of the session's state when the kernel dies, and returns the age of the checkpoint that it goes
    /// back to.
    pub(super) fn fate(&self) -> (String, Option<Duration>) {
        let title = self.guest.language.title();
        let lost = format!("the session's {title} state is lost");
        let Some((last_cell, age, deaths)) = self.setting.slot.blame() else { return (lost, None) };
        if self.is_suspect {
            self.setting.slot.clear();
            return (format!("{lost}, its checkpoint too: the kernel died of it before it ran a cell"), None);
        }
        let which = match last_cell {
            0 => "that it began with".to_owned(),
            cell => format!("after <cell {cell}>"),
        };
        let hint = match deaths {
            ..DEATHS_SUSPECT => String::new(),
            _ => format!("; {deaths} kernels in a row have died, reset the session if that goes on"),
        };
        (format!("the session's {title} state goes back to the checkpoint {which}{hint}"), Some(age))
    }

    /// Reports to a cell's run which checkpoint its session goes back to.
    pub(super) async fn report_fate(&mut self, id: u32, age: Duration) {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let fields = vec![("checkpoint_age_ms".to_owned(), Scalar::Integer(age))];
        self.kernel.data().report_status(id, HostStatus::KernelRestored, fields).await;
    }
}
