//! Turns: which kernels run the code of guests now, when more want to than there are processor cores.
//!
//! A kernel has a turn while its task is polled within the guest, up to a tick of the epoch, and takes it without waiting as
//! long as there is a core for it. Otherwise turns go by *virtual time*: each [share](CpuShare) has used so much processor
//! time by its weight, and the share that has used least is next; within a share, so is the kernel that has used least. So
//! it does not matter how many loops somebody runs. Who has done nothing meanwhile has saved nothing up: it begins where
//! those are that are at work. A share that is not ahead of any other needs not wait for the end of somebody's tick: a few
//! of its kernels may run beside those that have the cores.
//!
//! How long a kernel has waited is counted, because that time is not its cells'.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use cellar_core::sync::{cores, lock};

/// Weight of a share for which none was chosen.
pub const WEIGHT: u32 = 100;
/// The largest weight.
pub const WEIGHT_MAX: u32 = 10_000;
/// Kernels of one share that may run beside others, for each core.
const BESIDE: usize = 2;

/// A part of a host's processor time, by weight: that of all sessions that have it. A cheap handle.
#[derive(Clone, Debug)]
pub struct CpuShare(Arc<Share>);

#[derive(Debug)]
struct Share {
    turns: Arc<Turns>,
    number: u64,
    weight: u64,
    used_nanos: AtomicU64,
}

/// Share for which a kernel has room, or waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Number of the share; 0 for none.
    pub(crate) share: u64,
    pub(crate) weight: u64,
}

/// The turns of a host.
#[derive(Debug)]
pub(crate) struct Turns(Mutex<Table>);

#[derive(Debug)]
struct Table {
    cores: usize,
    /// Kernels that have a turn.
    running: usize,
    /// Kernels that wait for one.
    waiting: usize,
    accounts: HashMap<u64, Account>,
    /// Shares that have kernels which run or wait.
    active: BTreeSet<u64>,
    /// Usage with which a share begins that has done nothing: no share at work has used less, or had when this was last updated.
    floor: u64,
    /// Counter for the numbers of shares, and for the order of those who wait.
    count: u64,
    origin: Instant,
}

/// Usage of a share, and its kernels that run or wait.
#[derive(Debug)]
struct Account {
    weight: u64,
    /// Nanoseconds by weight, but for those of kernels that run.
    used: u64,
    running: usize,
    /// The sum of the moments when its kernels began that run, in nanoseconds.
    began: u128,
    /// Waiting kernels, by the usage of each, then in the order in which they came.
    waiting: BTreeMap<(u64, u64), Arc<Place>>,
    /// Usage with which a kernel begins that has done nothing.
    floor: u64,
}

/// The place of one kernel. What changes in it changes while the table is locked.
#[derive(Debug, Default)]
struct Place(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Nanoseconds of processor time.
    used: u64,
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Out,
    Waiting {
        since: Instant,
        /// Key in the account's queue.
        key: (u64, u64),
        waker: Waker,
    },
    /// It was given a turn at a moment, and has not noticed.
    Given { since: Instant, began: u64 },
    /// It has noticed, and lets everything else of its thread go first, once: without that, kernels that follow one another
    /// would leave the thread no time to look whether a socket has something.
    Ready { began: u64 },
    /// It has had a turn since a moment, in nanoseconds.
    Running { began: u64 },
}

/// The turns of one kernel.
#[derive(Debug)]
pub(crate) struct Turn {
    share: CpuShare,
    place: Arc<Place>,
    waited_nanos: AtomicU64,
}

impl Turns {
    pub(crate) fn new() -> Arc<Turns> {
        Turns::of(cores())
    }

    fn of(cores: usize) -> Arc<Turns> {
        Arc::new(Turns(Mutex::new(Table {
            cores,
            running: 0,
            waiting: 0,
            accounts: HashMap::new(),
            active: BTreeSet::new(),
            floor: 0,
            count: 0,
            origin: Instant::now(),
        })))
    }

    /// Returns the number of shares.
    pub(crate) fn shares(&self) -> usize {
        lock(&self.0).accounts.len()
    }

    /// A share of this weight.
    pub(crate) fn share(self: &Arc<Turns>, weight: u32) -> CpuShare {
        let mut table = lock(&self.0);
        table.count = table.count.saturating_add(1);
        let (number, weight) = (table.count, u64::from(weight.clamp(1, WEIGHT_MAX)));
        let account = Account { weight, used: table.floor, running: 0, began: 0, waiting: BTreeMap::new(), floor: 0 };
        table.accounts.insert(number, account);
        CpuShare(Arc::new(Share { turns: self.clone(), number, weight, used_nanos: AtomicU64::new(0) }))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.turns.0).accounts.remove(&self.number);
    }
}

impl CpuShare {
    /// Processor time that its kernels have used in the code of guests.
    pub fn used(&self) -> Duration {
        Duration::from_nanos(self.0.used_nanos.load(Ordering::Relaxed))
    }

    /// Charges work that was done for a kernel outside of its turn.
    pub(crate) fn charge(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.used_nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(account) = lock(&self.0.turns.0).accounts.get_mut(&self.0.number) {
            account.used = account.used.saturating_add(by_weight(nanos, account.weight));
        }
    }

    /// Returns the claim of its kernels to room.
    pub(crate) fn claim(&self) -> Claim {
        Claim { share: self.0.number, weight: self.0.weight }
    }

    /// The turns of a kernel.
    pub(crate) fn turn(&self) -> Turn {
        Turn { share: self.clone(), place: Arc::default(), waited_nanos: AtomicU64::new(0) }
    }
}

impl Account {
    fn is_active(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }

    /// Returns its usage by weight, with that of its kernels that run.
    fn used_at(&self, now: u64) -> u64 {
        let since = u128::from(now).saturating_mul(self.running as u128).saturating_sub(self.began);
        self.used.saturating_add(by_weight(u64::try_from(since).unwrap_or(u64::MAX), self.weight))
    }
}

fn by_weight(nanos: u64, weight: u64) -> u64 {
    nanos.saturating_mul(u64::from(WEIGHT)).checked_div(weight).unwrap_or_default()
}

impl Table {
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The least that any other share at work has used.
    fn least_of_others(&self, share: u64, now: u64) -> Option<u64> {
        let others = self.active.iter().filter(|number| **number != share);
        others.filter_map(|number| Some(self.accounts.get(number)?.used_at(now))).min()
    }

    /// The least that was charged to any other share at work. What kernels use that run is not in it: until that is charged it is
    /// thought to be all of the time that has passed, which is too much where others have had the processor meanwhile. Who began
    /// with that would be ahead, and would wait.
    fn least_charged_to_others(&self, share: u64) -> Option<u64> {
        let others = self.active.iter().filter(|number| **number != share);
        others.filter_map(|number| Some(self.accounts.get(number)?.used)).min()
    }

    /// Returns true if a kernel that has used so much may begin at once.
    fn may_begin(&self, share: u64, used: u64, now: u64) -> bool {
        // THREAT: T09
        if self.running < self.cores && self.waiting == 0 {
            return true;
        }
        let Some(account) = self.accounts.get(&share) else { return true };
        account.running < self.cores.saturating_mul(BESIDE)
            && account.waiting.first_key_value().is_none_or(|((first, _), _)| used <= *first)
            && self.least_of_others(share, now).is_none_or(|least| account.used_at(now) <= least)
    }

    /// A kernel of a share wants to work that has used so much. Returns what it counts as having used.
    fn join(&mut self, share: u64, used: u64) -> u64 {
        if self.active.insert(share) {
            self.floor = self.floor.max(self.least_charged_to_others(share).unwrap_or_default());
            let floor = self.floor;
            if let Some(account) = self.accounts.get_mut(&share) {
                account.used = account.used.max(floor);
            }
        }
        self.accounts.get(&share).map_or(used, |account| used.max(account.floor))
    }

    fn begin(&mut self, share: u64, now: u64) -> Phase {
        if let Some(account) = self.accounts.get_mut(&share) {
            account.running = account.running.saturating_add(1);
            account.began = account.began.saturating_add(u128::from(now));
        }
        self.running = self.running.saturating_add(1);
        Phase::Running { began: now }
    }

    fn end(&mut self, share: u64, began: u64, used: u64) {
        if let Some(account) = self.accounts.get_mut(&share) {
            account.running = account.running.saturating_sub(1);
            account.began = account.began.saturating_sub(u128::from(began));
            account.used = account.used.saturating_add(by_weight(used, account.weight));
        }
        self.running = self.running.saturating_sub(1);
    }

    fn line_up(&mut self, share: u64, place: &Arc<Place>, used: u64, waker: Waker) -> Phase {
        self.count = self.count.saturating_add(1);
        let key = (used, self.count);
        if let Some(account) = self.accounts.get_mut(&share) {
            account.waiting.insert(key, place.clone());
            self.waiting = self.waiting.saturating_add(1);
        }
        Phase::Waiting { since: Instant::now(), key, waker }
    }

    /// Notes that a share has changed, and gives turns to those who wait while there are cores. Returns their wakers.
    fn settle(&mut self, share: u64, now: u64) -> Vec<Waker> {
        if let Some(account) = self.accounts.get(&share) {
            if self.active.len() == 1 && self.active.contains(&share) {
                self.floor = self.floor.max(account.used);
            }
            if !account.is_active() {
                self.active.remove(&share);
            }
        }
        let mut given = Vec::new();
        while self.running < self.cores && self.waiting > 0 {
            let waiting = self.active.iter().filter_map(|number| Some((*number, self.accounts.get(number)?)));
            let waiting = waiting.filter(|(_, account)| !account.waiting.is_empty());
            let Some((number, _)) = waiting.min_by_key(|(_, account)| account.used_at(now)) else { break };
            let first = self.accounts.get_mut(&number).and_then(|account| {
                let ((used, _), place) = account.waiting.pop_first()?;
                account.floor = account.floor.max(used);
                Some(place)
            });
            let Some(place) = first else { break };
            self.waiting = self.waiting.saturating_sub(1);
            self.begin(number, now);
            let mut state = lock(&place.0);
            if let Phase::Waiting { since, waker, .. } = std::mem::take(&mut state.phase) {
                state.phase = Phase::Given { since, began: now };
                given.push(waker);
            }
        }
        given
    }
}

impl Turn {
    /// Waits for a turn.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let share = self.share.0.number;
        let mut table = lock(&self.share.0.turns.0);
        let mut state = lock(&self.place.0);
        match state.phase {
            Phase::Running { .. } => return Poll::Ready(()),
            Phase::Ready { began } => {
                state.phase = Phase::Running { began };
                return Poll::Ready(());
            }
            Phase::Given { since, began } => {
                state.phase = Phase::Ready { began };
                let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.waited_nanos.fetch_add(waited, Ordering::Relaxed);
            }
            Phase::Waiting { ref mut waker, .. } => {
                waker.clone_from(context.waker());
                return Poll::Pending;
            }
            Phase::Out => {
                let now = table.now();
                state.used = table.join(share, state.used);
                if table.may_begin(share, state.used, now) {
                    state.phase = table.begin(share, now);
                    return Poll::Ready(());
                }
                state.phase = table.line_up(share, &self.place, state.used, context.waker().clone());
                return Poll::Pending;
            }
        }
        drop((state, table));
        let _ = std::pin::pin!(tokio::task::yield_now()).poll(context);
        Poll::Pending
    }

    /// Returns the share whose turns these are.
    pub(crate) fn share(&self) -> &CpuShare {
        &self.share
    }

    /// Notes that the kernel has worked for so many nanoseconds. If it `goes_on`, it keeps its turn if nobody else wants it, and joins the
    /// queue otherwise.
    pub(crate) fn end(&self, used: u64, goes_on: Option<&Waker>) {
        let share = self.share.0.number;
        self.share.0.used_nanos.fetch_add(used, Ordering::Relaxed);
        let mut table = lock(&self.share.0.turns.0);
        let mut state = lock(&self.place.0);
        let Phase::Running { began } = state.phase else { return };
        let now = table.now();
        table.end(share, began, used);
        state.used = state.used.saturating_add(used);
        state.phase = match goes_on {
            None => Phase::Out,
            Some(_) if table.waiting == 0 && table.running < table.cores => table.begin(share, now),
            Some(waker) => table.line_up(share, &self.place, state.used, waker.clone()),
        };
        drop(state);
        wake(table.settle(share, now), table);
    }

    /// Gives up the turn, or the place in the line.
    pub(crate) fn leave(&self) {
        let share = self.share.0.number;
        let mut table = lock(&self.share.0.turns.0);
        match std::mem::take(&mut lock(&self.place.0).phase) {
            Phase::Out => return,
            Phase::Waiting { key, .. } => {
                if table.accounts.get_mut(&share).is_some_and(|account| account.waiting.remove(&key).is_some()) {
                    table.waiting = table.waiting.saturating_sub(1);
                }
            }
            Phase::Given { began, .. } | Phase::Ready { began } | Phase::Running { began } => {
                table.end(share, began, 0);
            }
        }
        let now = table.now();
        wake(table.settle(share, now), table);
    }

    /// Takes the time that the kernel has waited since the last call.
    pub(crate) fn take_waited(&self) -> Duration {
        if self.waited_nanos.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.waited_nanos.swap(0, Ordering::Relaxed))
    }
}

/// Wakes those who were given a turn, after the table was unlocked: they may lock it.
fn wake(given: Vec<Waker>, table: MutexGuard<'_, Table>) {
    drop(table);
    given.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Notes that somebody was woken.
    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A kernel that works whenever it may.
    struct Worker {
        turn: Turn,
        woken: Arc<Woken>,
        /// Ticks that it has worked for.
        ticks: u64,
        has_turn: bool,
    }

    const TICK: u64 = 10_000_000;

    impl Worker {
        fn of(share: &CpuShare) -> Worker {
            Worker { turn: share.turn(), woken: Arc::default(), ticks: 0, has_turn: false }
        }

        fn poll(&mut self) -> bool {
            let waker = Waker::from(self.woken.clone());
            self.has_turn = self.turn.poll(&mut Context::from_waker(&waker)).is_ready();
            self.has_turn
        }

        /// Works for a while, and goes on.
        fn work(&mut self, nanos: u64) {
            let waker = Waker::from(self.woken.clone());
            self.ticks += 1;
            self.turn.end(nanos, Some(&waker));
            self.has_turn = false;
        }
    }

    /// Has all that may work do so for one tick after the other.
    fn play(workers: &mut [&mut Worker], ticks: u64) {
        for _ in 0..ticks {
            for worker in workers.iter_mut() {
                // Who was given a turn lets others go first, once.
                let _ = worker.poll() || worker.poll();
            }
            workers.iter_mut().filter(|worker| worker.has_turn).for_each(|worker| worker.work(TICK));
        }
    }

    #[test]
    fn nobody_waits_while_there_are_cores() {
        let turns = Turns::of(2);
        let share = turns.share(WEIGHT);
        let (mut first, mut second) = (Worker::of(&share), Worker::of(&share));
        play(&mut [&mut first, &mut second], 50);
        assert_eq!((first.ticks, second.ticks), (50, 50));
        assert_eq!(share.used(), Duration::from_nanos(100 * TICK));
        assert_eq!(first.turn.take_waited(), Duration::ZERO);
    }

    #[test]
    fn shares_get_by_weight_whatever_number_of_kernels_each_has() {
        let turns = Turns::of(1);
        let (many, one, heavy) = (turns.share(WEIGHT), turns.share(WEIGHT), turns.share(2 * WEIGHT));
        let mut loops: Vec<Worker> = (0..20).map(|_| Worker::of(&many)).collect();
        let (mut single, mut double) = (Worker::of(&one), Worker::of(&heavy));
        let mut all: Vec<&mut Worker> = loops.iter_mut().collect();
        all.extend([&mut single, &mut double]);
        play(&mut all, 4_000);
        let of_many: u64 = loops.iter().map(|worker| worker.ticks).sum();
        let total = of_many + single.ticks + double.ticks;
        let part = |ticks: u64| ticks * 100 / total;
        assert!((22..=28).contains(&part(of_many)), "{of_many} of {total}");
        assert!((22..=28).contains(&part(single.ticks)), "{} of {total}", single.ticks);
        assert!((46..=54).contains(&part(double.ticks)), "{} of {total}", double.ticks);
        let (least, most) = (loops.iter().map(|each| each.ticks).min(), loops.iter().map(|each| each.ticks).max());
        assert!(most <= least.map(|least| least + 5), "those of one share get the same: {least:?} to {most:?}");
        assert!(single.turn.take_waited() > Duration::ZERO);
    }

    #[test]
    fn who_is_not_ahead_begins_at_once() {
        let turns = Turns::of(1);
        let (busy, quiet) = (turns.share(WEIGHT), turns.share(WEIGHT));
        let mut loops: Vec<Worker> = (0..20).map(|_| Worker::of(&busy)).collect();
        let mut all: Vec<&mut Worker> = loops.iter_mut().collect();
        play(&mut all, 100);
        for worker in &mut all {
            let _ = worker.poll() || worker.poll();
        }
        assert_eq!(all.iter().filter(|worker| worker.has_turn).count(), 1);
        let (mut cell, mut more) = (Worker::of(&quiet), Worker::of(&busy));
        assert!(cell.poll(), "nobody has used less");
        all.iter_mut().filter(|worker| worker.has_turn).for_each(|worker| worker.work(TICK));
        assert!(!more.poll(), "one that is ahead waits, also where it has little to do");
        cell.turn.end(1_000, None);
    }

    #[test]
    fn who_was_away_has_saved_nothing_up() {
        let turns = Turns::of(1);
        let (early, late) = (turns.share(WEIGHT), turns.share(WEIGHT));
        let mut worker = Worker::of(&early);
        play(&mut [&mut worker], 1_000);
        let mut other = Worker::of(&late);
        play(&mut [&mut worker, &mut other], 200);
        assert!(worker.ticks >= 1_090, "{} and {}", worker.ticks, other.ticks);
    }

    #[test]
    fn a_turn_that_is_given_up_is_the_next_ones() {
        let turns = Turns::of(1);
        let (a, b) = (turns.share(WEIGHT), turns.share(WEIGHT));
        let (mut first, mut second, mut third) = (Worker::of(&a), Worker::of(&b), Worker::of(&b));
        assert!(first.poll());
        // It is not ahead, so it runs beside the first.
        assert!(second.poll());
        second.work(TICK);
        assert!(!second.poll() && !third.poll());
        first.turn.leave();
        assert_eq!(third.woken.0.load(Ordering::Relaxed) + second.woken.0.load(Ordering::Relaxed), 1);
        second.turn.leave();
        third.turn.leave();
        let table = turns.0.lock().expect("the table");
        assert_eq!((table.running, table.waiting, table.active.len()), (0, 0, 0));
    }
}
