//! Time and memory of kernels: the one epoch ticker of a host, stop flags, processor time, the memory limiter.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use cellar_core::{limits::EPOCH_TICK, sync::lock};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use wasmtime::ResourceLimiter;

use super::{beats::Beat, offhand::Offhand, turns::Turn};

/// Has `tick` advance the epoch of every engine of a host, until there are none any more.
///
/// There is one ticker, and stores compare clocks instead of counting ticks: the epoch belongs to the engine, so a
/// ticker per run would shorten every other run's deadline.
pub(crate) fn start_ticker(tick: impl Fn() -> Option<()> + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("cellar-epoch".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(EPOCH_TICK);
            if tick().is_none() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Flag that requests the stop of one run. Held by the run, read by the kernel that works for it.
#[derive(Debug)]
pub(crate) struct StopFlag {
    stopped: AtomicBool,
    /// Wakes the kernel that works for the run; replaced when the run moves to another one.
    kernel: std::sync::Mutex<Option<Arc<Notify>>>,
    /// Wakes what goes on besides the kernel.
    others: Notify,
}

impl StopFlag {
    pub(crate) fn new() -> Arc<StopFlag> {
        let (stopped, kernel) = (AtomicBool::new(false), std::sync::Mutex::new(None));
        Arc::new(StopFlag { stopped, kernel, others: Notify::new() })
    }

    /// Returns true if the stop was requested.
    pub(crate) fn is_set(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Requests the stop. The kernel notices at its next poll, or at once when it waits.
    pub(crate) fn set(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(kernel) = &*lock(&self.kernel) {
            kernel.notify_one();
        }
        self.others.notify_waiters();
    }

    /// Waits until the stop is requested.
    pub(crate) async fn stopped(&self) {
        let notified = self.others.notified();
        let mut notified = std::pin::pin!(notified);
        // From here on nothing is missed.
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }

    /// Names the kernel to wake.
    pub(crate) fn watch(&self, kernel: Arc<Notify>) {
        *lock(&self.kernel) = Some(kernel);
    }
}

/// Monotonic time as one guest sees it, in nanoseconds. It goes on over a restore, also in another process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GuestClock {
    /// Nanoseconds that the guest's clock is ahead of this process's.
    ahead: i64,
}

/// This process's clock shows a second when it is first read, so that no guest sees a time of 0.
static ORIGIN: LazyLock<Instant> = LazyLock::new(|| Instant::now() - Duration::from_secs(1));

impl GuestClock {
    /// A clock that shows `nanos` now.
    pub(crate) fn showing(nanos: u64) -> GuestClock {
        GuestClock { ahead: i64::try_from(nanos).unwrap_or(i64::MAX).saturating_sub(since_origin(Instant::now())) }
    }

    /// Returns the nanoseconds that it shows at an instant.
    pub(crate) fn nanos(self, instant: Instant) -> u64 {
        u64::try_from(since_origin(instant).saturating_add(self.ahead)).unwrap_or(0)
    }

    /// Returns the instant at which it shows `nanos`; `None` is never.
    pub(crate) fn instant(self, nanos: u64) -> Option<Instant> {
        let since = i64::try_from(nanos).ok()?.saturating_sub(self.ahead);
        ORIGIN.checked_add(Duration::from_nanos(u64::try_from(since).unwrap_or(0)))
    }
}

fn since_origin(instant: Instant) -> i64 {
    i64::try_from(instant.saturating_duration_since(*ORIGIN).as_nanos()).unwrap_or(i64::MAX)
}

/// Processor time that a kernel has used, over whatever threads it ran on.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    /// Nanoseconds of finished polls.
    total: AtomicU64,
    /// Thread time at which the poll that now runs began.
    began: AtomicU64,
    /// See [`CpuMeter::yields`].
    is_yielding: AtomicBool,
    /// Slot in which the kernel's imports leave calls that may be answered at once.
    pub(crate) offhand: Offhand,
}

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

impl CpuMeter {
    /// The meter of a kernel that has used so much already.
    pub(crate) fn starting_at(total: Duration) -> Arc<CpuMeter> {
        let nanos = u64::try_from(total.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(CpuMeter { total: AtomicU64::new(nanos), ..CpuMeter::default() })
    }

    /// Time of finished polls.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    /// Time up to now; only meaningful on the thread that polls the kernel.
    pub(crate) fn now(&self) -> u64 {
        let running = thread_time().saturating_sub(self.began.load(Ordering::Relaxed));
        self.total.load(Ordering::Relaxed).saturating_add(running)
    }

    /// Notes that the guest is about to be left because of a tick, and goes on as soon as it may.
    pub(crate) fn yields(&self) {
        self.is_yielding.store(true, Ordering::Relaxed);
    }
}

/// The way into a guest: what the polls of an entry are counted by, and the turns that they need.
#[derive(Clone)]
pub(crate) struct WayIn {
    pub(crate) meter: Arc<CpuMeter>,
    /// Turn of the kernel; absent for a kernel without a session.
    pub(crate) turn: Option<Arc<Turn>>,
    /// Safepoint byte; present for a guest with safepoints.
    pub(crate) beat: Option<Arc<Beat>>,
}

impl WayIn {
    /// Polls `future` when the kernel has a turn, and counts that.
    pub(crate) fn measure<F: Future>(&self, future: F) -> Measured<F> {
        if let Some(beat) = &self.beat {
            beat.enter();
        }
        Measured { way: self.clone(), future: Box::pin(future) }
    }
}

/// A future whose polls are counted; see [`WayIn::measure`].
pub(crate) struct Measured<F> {
    way: WayIn,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Measured { way: WayIn { meter, turn, .. }, future } = &mut *self;
        if let Some(turn) = turn {
            ready!(turn.poll(cx));
        }
        let began = thread_time();
        meter.began.store(began, Ordering::Relaxed);
        meter.is_yielding.store(false, Ordering::Relaxed);
        meter.offhand.open();
        let mut began = began;
        let poll = loop {
            let poll = future.as_mut().poll(cx);
            if poll.is_ready() {
                break poll;
            }
            let Some(took) = meter.offhand.serve(cx) else { break poll };
            // What a bridge does is not the kernel's work. Its processor time is not looked at, which would take longer than
            // most answers do.
            began = began.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            meter.began.store(began, Ordering::Relaxed);
        };
        meter.offhand.close();
        let used = thread_time().saturating_sub(began);
        meter.total.fetch_add(used, Ordering::Relaxed);
        let is_yielding = poll.is_pending() && meter.is_yielding.load(Ordering::Relaxed);
        if let Some(turn) = turn {
            turn.end(used, is_yielding.then_some(cx.waker()));
        }
        poll
    }
}

impl<F> Drop for Measured<F> {
    fn drop(&mut self) {
        if let Some(turn) = &self.way.turn {
            turn.leave();
        }
        if let Some(beat) = &self.way.beat {
            beat.leave();
        }
    }
}

/// Usage of the processes of a cell and of their processes. It is part of the cell's usage.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    fuel: AtomicU64,
    cpu_nanos: AtomicU64,
}

impl Spent {
    /// Fuel that was burned.
    pub(crate) fn fuel(&self) -> u64 {
        self.fuel.load(Ordering::Relaxed)
    }

    /// Processor time.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_nanos.load(Ordering::Relaxed))
    }

    /// Adds what one of them has used.
    pub(crate) fn add(&self, fuel: u64, cpu: Duration) {
        self.fuel.fetch_add(fuel, Ordering::Relaxed);
        self.cpu_nanos.fetch_add(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Memory that the kernels of many sessions may have together: what each that is awake has beyond its guest's image, which all kernels
/// map. A cell that wants more than is left fails to allocate. A cheap handle.
#[derive(Clone, Debug)]
pub struct MemoryBudget(pub(crate) Arc<MemoryPool>);

impl MemoryBudget {
    /// Creates a budget of so many bytes.
    pub fn new(limit_bytes: u64) -> MemoryBudget {
        MemoryBudget(Arc::new(MemoryPool::new(limit_bytes)))
    }

    /// Bytes that kernels have. They may be more than the limit: a kernel that wakes has what it had.
    pub fn used_bytes(&self) -> u64 {
        self.0.taken_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that they may have.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }
}

/// Memory that several kernels share: what they have beyond that of their guests' images, which all kernels map.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    limit_bytes: u64,
    taken_bytes: AtomicU64,
}

impl MemoryPool {
    pub(crate) fn new(limit_bytes: u64) -> MemoryPool {
        MemoryPool { limit_bytes, taken_bytes: AtomicU64::new(0) }
    }

    /// Takes so much, if it is there.
    fn take(&self, bytes: u64) -> bool {
        let taken = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.limit_bytes);
        self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Takes so much, whether it is there or not.
    fn take_anyway(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Lets linear memory grow to a limit, and refuses growth beyond it.
#[derive(Debug)]
pub(crate) struct MemoryLimiter {
    limit_bytes: u64,
    /// Pools that memory beyond the image is taken from: `pooled_bytes` from each.
    pools: Vec<Arc<MemoryPool>>,
    pooled_bytes: u64,
    /// The memory is made what it was, which the pools do not refuse.
    pub(crate) is_restoring: bool,
    /// The largest size so far.
    pub(crate) peak_bytes: u64,
    /// True if growth was refused since the flag was last cleared: distinguishes an abort for lack of memory from others.
    pub(crate) refused: bool,
    /// True if it was a pool that refused last.
    pub(crate) refused_by_pool: bool,
}

impl MemoryLimiter {
    pub(crate) fn new(limit_bytes: u64, pools: Vec<Arc<MemoryPool>>) -> MemoryLimiter {
        let (pooled_bytes, peak_bytes) = (0, 0);
        let (is_restoring, refused, refused_by_pool) = (false, false, false);
        MemoryLimiter { limit_bytes, pools, pooled_bytes, is_restoring, peak_bytes, refused, refused_by_pool }
    }

    /// Changes the limits of a kernel that passes to a session.
    pub(crate) fn set_limits(&mut self, limit_bytes: u64, pools: Vec<Arc<MemoryPool>>) {
        (self.limit_bytes, self.pools) = (limit_bytes, pools);
    }

    /// Notes that the memory is gone.
    pub(crate) fn release(&mut self) {
        let bytes = std::mem::take(&mut self.pooled_bytes);
        self.pools.iter().for_each(|pool| pool.give_back(bytes));
    }

    /// Takes so much from every pool, if each has it.
    fn take_pooled(&mut self, bytes: u64) -> bool {
        for (place, pool) in self.pools.iter().enumerate() {
            if self.is_restoring {
                pool.take_anyway(bytes);
            } else if !pool.take(bytes) {
                self.pools[..place].iter().for_each(|pool| pool.give_back(bytes));
                return false;
            }
        }
        self.pooled_bytes = self.pooled_bytes.saturating_add(bytes);
        true
    }
}

impl Drop for MemoryLimiter {
    fn drop(&mut self) {
        self.release();
    }
}

/// Largest table of a guest, in elements: one for each function whose address is taken. Guests do not grow theirs.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 100_000;

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let desired_bytes = u64::try_from(desired).unwrap_or(u64::MAX);
        if desired_bytes > self.limit_bytes || maximum.is_some_and(|maximum| desired > maximum) {
            (self.refused, self.refused_by_pool) = (true, false);
            return Ok(false);
        }
        // A memory begins as its image.
        let more = desired_bytes.saturating_sub(u64::try_from(current).unwrap_or(u64::MAX));
        if current > 0 && !self.take_pooled(more) {
            (self.refused, self.refused_by_pool) = (true, true);
            return Ok(false);
        }
        self.peak_bytes = self.peak_bytes.max(desired_bytes);
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}

/// The earlier of two moments, either of which may be absent.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
