//! The calls of one kernel that its guest has begun and has not seen the end of.
//!
//! A call never runs on the guest's stack: it is polled once while the guest is suspended (`scheduling/offhand.rs`), and runs as a task of
//! its own if it has no answer then. So a bridge may use as much stack as it likes, and a bridge that panics fails its call
//! alone. Dropping [`Calls`] aborts whatever still runs.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_core::{
    event::{Bridge, Fetch},
    limits::{AGENT_DEPTH_MAX, CALL_BYTES_MAX, CALLS_BYTES_MAX, CALLS_QUEUED_MAX, TABLE_BYTES_MAX},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{AbortHandle, Id, JoinError, JoinSet},
};

use super::{Block, KeptSlot};
use crate::{
    contract::bridge::{CallError, CallErrorKind, CallFuture, CallResult, Response},
    kernel::scheduling::{Job, panicked},
};

/// Limits the calls that run at the same time, over all kernels of a session. Each depth of agents has as many: an
/// agent holds its own while the cells that it runs need more.
#[derive(Clone, Debug)]
pub(crate) struct Permits(Arc<[Arc<Semaphore>]>);

impl Permits {
    pub(crate) fn new(calls_in_flight: usize) -> Permits {
        Permits((0..=AGENT_DEPTH_MAX).map(|_| Arc::new(Semaphore::new(calls_in_flight))).collect())
    }

    /// Waits for a permit for a call by code at this depth.
    pub(crate) async fn one(&self, depth: u32) -> Option<OwnedSemaphorePermit> {
        self.at(depth).acquire_owned().await.ok()
    }

    /// Returns the semaphore for calls by code at this depth.
    fn at(&self, depth: u32) -> Arc<Semaphore> {
        self.0[depth.min(AGENT_DEPTH_MAX) as usize].clone()
    }
}

/// Origin of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOrigin {
    pub(crate) call: u64,
    pub(crate) cell: u32,
    pub(crate) bridge: Bridge,
    /// Bytes of its arguments.
    pub(crate) size_bytes: usize,
    /// True if no events of the call go to a run.
    pub(crate) is_unheard: bool,
}

/// State of a call from its beginning.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) began: Instant,
    pub(crate) kept: Option<KeptSlot>,
    pub(crate) is_process: bool,
}

/// Reservation of bytes for an answer that the guest has not seen; released when dropped.
#[derive(Debug)]
struct Room {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    /// Reserves so many bytes, or returns `None` if all reservations would exceed [`CALLS_BYTES_MAX`].
    fn take(taken: &Arc<AtomicUsize>, bytes: usize) -> Option<Room> {
        let room = Room { taken: taken.clone(), bytes };
        (taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= CALLS_BYTES_MAX).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Answer, with the reservation of its bytes.
type Answer = (CallResult, Option<Room>);

/// A call that ended.
#[derive(Debug)]
pub(crate) struct CallEnd {
    pub(crate) call: u64,
    /// The cell that made it.
    pub(crate) cell: u32,
    pub(crate) duration: Duration,
    pub(crate) result: CallResult,
    /// True if the end of the call was reported to its run, or need not be.
    pub(crate) reported: bool,
    /// Slot with what the call kept.
    pub(crate) kept: Option<KeptSlot>,
    /// Description of the fetch, if the call was one.
    pub(crate) fetch: Option<Box<Fetch>>,
    /// Held until the guest has the answer.
    _room: Option<Room>,
}

impl CallEnd {
    /// Creates an end that reserves no bytes and is to be reported.
    pub(crate) fn new(call: u64, cell: u32, duration: Duration, result: CallResult) -> CallEnd {
        CallEnd { call, cell, duration, result, reported: false, kept: None, fetch: None, _room: None }
    }
}

/// A call whose completion the guest has not seen.
#[derive(Debug)]
struct OpenCall {
    cell: u32,
    bridge: Bridge,
    /// Bytes of its arguments.
    size_bytes: usize,
    began: Instant,
    task: AbortHandle,
    kept: Option<KeptSlot>,
    is_process: bool,
    is_unheard: bool,
}

/// The bridge calls of one kernel that have not been handed to its guest. Dropping this aborts those that run.
#[derive(Debug)]
pub(crate) struct Calls {
    permits: Permits,
    next_call: u64,
    running: JoinSet<Answer>,
    open: HashMap<u64, OpenCall>,
    /// Bytes of the arguments of all open calls.
    open_bytes: usize,
    /// Bytes of the answers that the guest has not seen.
    answer_bytes: Arc<AtomicUsize>,
    by_task: HashMap<Id, u64>,
    /// Calls that ended and were not handed out: refused, cancelled, or taken in by [`Calls::reap`].
    ended: VecDeque<CallEnd>,
}

impl Calls {
    pub(crate) fn new(permits: Permits) -> Calls {
        Calls {
            permits,
            next_call: 1,
            running: JoinSet::new(),
            open: HashMap::new(),
            open_bytes: 0,
            answer_bytes: Arc::default(),
            by_task: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Continues the numbers of a kernel that was captured. The calls that it had under way are lost: the guest, which still awaits them,
    /// gets them as cancelled.
    pub(crate) fn go_on_from(&mut self, next_call: u64, lost: &[(u64, u32)]) {
        self.next_call = next_call;
        let message = "the session was restored while the call was under way";
        let lost = lost.iter().take(CALLS_QUEUED_MAX).map(|(call, cell)| {
            let result = Err(CallError::new(CallErrorKind::Cancelled, message));
            CallEnd { reported: true, ..CallEnd::new(*call, *cell, Duration::ZERO, result) }
        });
        self.deliver(lost);
    }

    /// The open calls that may need the kernel itself.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let may_need = |(call, open): (&u64, &OpenCall)| Block::of(open.bridge, (open.cell, *call));
        self.open.iter().filter_map(may_need).collect()
    }

    /// The number of the next call.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_call
    }

    /// The calls whose completion the guest has not seen, with the cells that made them, in order.
    pub(crate) fn unseen(&self) -> Vec<(u64, u32)> {
        let open = self.open.iter().map(|(call, open)| (*call, open.cell));
        let mut unseen: Vec<_> = open.chain(self.ended.iter().map(|end| (end.call, end.cell))).collect();
        unseen.sort_unstable();
        unseen
    }

    /// Continues with this number. A replay takes each number from its recording.
    pub(crate) fn count_from(&mut self, next_call: u64) {
        self.next_call = next_call;
    }

    /// A number for a new call.
    pub(crate) fn number(&mut self) -> u64 {
        let call = self.next_call;
        self.next_call = self.next_call.saturating_add(1);
        call
    }

    /// Returns true if so many calls wait for an answer that no more can be begun.
    pub(crate) fn is_full(&mut self) -> bool {
        self.reap();
        self.open.len().saturating_add(self.ended.len()) >= CALLS_QUEUED_MAX
    }

    /// Waits until few tasks are left of calls that were given up: the runtime has to get round to ending them.
    ///
    /// # Cancel safety
    /// Cancel safe: what ended meanwhile comes out of [`Calls::next`].
    pub(crate) async fn settle(&mut self) {
        while self.running.len() >= CALLS_QUEUED_MAX.max(self.open.len().saturating_add(1)) {
            let Some(joined) = self.running.join_next_with_id().await else { return };
            let end = self.joined(joined);
            self.ended.extend(end);
        }
    }

    /// Returns the number of calls of a cell that were reported to its run as started and have not ended.
    pub(crate) fn open_of(&self, cell: u32) -> usize {
        self.open.values().filter(|open| open.cell == cell && !open.is_unheard).count()
    }

    /// Calls that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns a job that waits for a permit, unless the call `is_free`, and then answers the call.
    pub(crate) fn job(&self, depth: u32, is_free: bool, future: CallFuture) -> Job {
        let permits = if is_free { Arc::new(Semaphore::new(1)) } else { self.permits.at(depth) };
        Box::pin(with_permit(permits, future))
    }

    /// Returns the error of a call with so many bytes of arguments, if these exceed the bound with those of all open calls.
    pub(crate) fn refusal(&self, size_bytes: usize) -> Option<CallError> {
        let what = "the bridge calls that wait for an answer have more than";
        (self.open_bytes.saturating_add(size_bytes) > CALLS_BYTES_MAX)
            .then(|| CallError::new(CallErrorKind::Limit, format!("{what} {CALLS_BYTES_MAX} bytes of arguments")))
    }

    /// Refuses a call. Its completion will come out of [`Calls::next`], as that of every call that is begun.
    pub(crate) fn refuse(&mut self, from: CallOrigin, error: CallError) {
        let CallOrigin { call, cell, is_unheard, .. } = from;
        let end = CallEnd { reported: is_unheard, ..CallEnd::new(call, cell, Duration::ZERO, Err(error)) };
        self.ended.push_back(end);
    }

    /// Takes in the answer of a call that was there at once.
    pub(crate) fn answer(&mut self, from: CallOrigin, begun: &Beginning, result: CallResult) {
        let CallOrigin { call, cell, is_unheard, .. } = from;
        let (result, room) = with_room(&self.answer_bytes, result);
        let end = CallEnd::new(call, cell, begun.began.elapsed(), result);
        self.ended.push_back(CallEnd { kept: begun.kept.clone(), reported: is_unheard, _room: room, ..end });
    }

    /// Begins a call that takes its time.
    pub(crate) fn start(&mut self, from: CallOrigin, begun: Beginning, job: Job) {
        let CallOrigin { call, cell, bridge, size_bytes, is_unheard } = from;
        let Beginning { began, kept, is_process } = begun;
        let answer_bytes = self.answer_bytes.clone();
        let task = self.running.spawn(async move { with_room(&answer_bytes, job.await) });
        self.by_task.insert(task.id(), call);
        self.open_bytes = self.open_bytes.saturating_add(size_bytes);
        self.open.insert(call, OpenCall { cell, bridge, size_bytes, began, task, kept, is_process, is_unheard });
    }

    /// Runs a call to its end. The guest is suspended meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the call.
    pub(crate) async fn block_on(job: Job) -> CallResult {
        let mut task = JoinSet::new();
        task.spawn(job);
        task.join_next().await.map_or_else(|| Err(aborted()), |joined| joined.unwrap_or_else(failed))
    }

    /// The end of the call that was begun last, if it has ended already.
    pub(crate) fn take_last(&mut self, call: u64) -> Option<CallEnd> {
        self.ended.pop_back_if(|end| end.call == call)
    }

    /// Gives up a call. No completion comes; the end is to be reported.
    pub(crate) fn cancel(&mut self, call: u64, why: &str) -> Option<CallEnd> {
        let cancelled = Err(CallError::new(CallErrorKind::Cancelled, why));
        let Some(open) = self.open.get(&call) else {
            // Its answer was there at once, and nobody has seen it.
            let place = self.ended.iter().position(|end| end.call == call && !end.reported)?;
            let end = self.ended.remove(place)?;
            return Some(CallEnd { result: cancelled, _room: None, ..end });
        };
        self.by_task.remove(&open.task.id());
        open.task.abort();
        self.close(call, (cancelled, None))
    }

    /// Cancels the open calls of a cell. Returns their ends and those that were not reported yet, to be reported and
    /// given to [`Calls::deliver`].
    pub(crate) fn cancel_cell(&mut self, cell: u32) -> Vec<CallEnd> {
        self.reap();
        let is_unreported = |end: &CallEnd| end.cell == cell && !end.reported;
        let (ends, others) = std::mem::take(&mut self.ended).into_iter().partition(is_unreported);
        self.ended = others;
        let mut ends = Vec::from(ends);
        let calls: Vec<u64> = self.open.iter().filter(|(_, open)| open.cell == cell).map(|(call, _)| *call).collect();
        ends.extend(calls.into_iter().filter_map(|call| self.cancel(call, "the cell was stopped")));
        ends.sort_by_key(|end| end.call);
        ends
    }

    /// Cancels the processes of a cell that have not ended. Returns their ends, to be reported and given to
    /// [`Calls::deliver`].
    pub(crate) fn cancel_processes(&mut self, cell: u32) -> Vec<CallEnd> {
        self.reap();
        let is_its = |(_, open): &(&u64, &OpenCall)| open.cell == cell && open.is_process;
        let mut calls: Vec<u64> = self.open.iter().filter(is_its).map(|(call, _)| *call).collect();
        calls.sort_unstable();
        let why = "the cell that started the process has ended";
        calls.into_iter().filter_map(|call| self.cancel(call, why)).collect()
    }

    /// Makes an end the next one again.
    pub(crate) fn put_back(&mut self, end: CallEnd) {
        self.ended.push_front(end);
    }

    /// Queues ends for [`Calls::next`].
    pub(crate) fn deliver(&mut self, ends: impl IntoIterator<Item = CallEnd>) {
        self.ended.extend(ends);
    }

    /// The next call to end; waits for ever when none is open.
    ///
    /// # Cancel safety
    /// Cancel safe: an end that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> CallEnd {
        loop {
            if let Some(end) = self.ended.pop_front() {
                return end;
            }
            let joined = match self.running.join_next_with_id().await {
                Some(joined) => joined,
                None => std::future::pending().await,
            };
            if let Some(end) = self.joined(joined) {
                return end;
            }
        }
    }

    /// Another call that has ended already.
    pub(crate) fn try_next(&mut self) -> Option<CallEnd> {
        self.reap();
        self.ended.pop_front()
    }

    /// Takes in the tasks that have ended. Those of calls that were given up would pile up otherwise.
    fn reap(&mut self) {
        while let Some(joined) = self.running.try_join_next_with_id() {
            let end = self.joined(joined);
            self.ended.extend(end);
        }
    }

    /// The end of a call whose task ended; none for a call that was given up.
    fn joined(&mut self, joined: Result<(Id, Answer), JoinError>) -> Option<CallEnd> {
        let (id, answer) = match joined {
            Ok((id, answer)) => (id, answer),
            Err(error) => (error.id(), (failed(error), None)),
        };
        let call = self.by_task.remove(&id)?;
        self.close(call, answer)
    }

    fn close(&mut self, call: u64, (result, room): Answer) -> Option<CallEnd> {
        let open = self.open.remove(&call)?;
        self.open_bytes = self.open_bytes.saturating_sub(open.size_bytes);
        let end = CallEnd::new(call, open.cell, open.began.elapsed(), result);
        Some(CallEnd { kept: open.kept, reported: open.is_unheard, _room: room, ..end })
    }
}

/// Reserves the bytes of an answer until its guest takes it; replaces the answer by an error if they exceed the bound.
fn with_room(answer_bytes: &Arc<AtomicUsize>, result: CallResult) -> Answer {
    let size = match &result {
        Ok(response) => response.size_bytes(),
        Err(error) => error.message.len(),
    };
    match Room::take(answer_bytes, size) {
        Some(room) => (result, Some(room)),
        None => {
            let message = format!("the answers that wait for the cell have more than {CALLS_BYTES_MAX} bytes");
            (Err(CallError::new(CallErrorKind::Limit, message)), None)
        }
    }
}

async fn with_permit(permits: Arc<Semaphore>, future: CallFuture) -> CallResult {
    let Ok(_permit) = permits.acquire_owned().await else { return Err(aborted()) };
    let response = future.await?;
    // A guest takes a table in pieces.
    let limit = if matches!(response, Response::Table(_)) { TABLE_BYTES_MAX } else { CALL_BYTES_MAX };
    if response.size_bytes() > limit {
        let message = format!("the answer has {} bytes, at most {limit} are allowed", response.size_bytes());
        return Err(CallError::new(CallErrorKind::Limit, message));
    }
    Ok(response)
}

fn aborted() -> CallError {
    CallError::new(CallErrorKind::Cancelled, "the call was cancelled")
}

fn failed(error: JoinError) -> CallResult {
    if error.is_cancelled() {
        return Err(aborted());
    }
    tracing::error!(%error, "a bridge panicked");
    Err(panicked())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::bridge::Response;

    #[test]
    fn answers_that_wait_are_bounded_together() {
        let taken = Arc::<AtomicUsize>::default();
        let answer = || {
            let large = Response::Text("x".repeat(CALL_BYTES_MAX - 1_000));
            with_room(&taken, Ok(large))
        };
        let mut waiting: Vec<_> = (0..CALLS_BYTES_MAX / CALL_BYTES_MAX).map(|_| answer()).collect();
        assert!(waiting.iter().all(|(result, _)| result.is_ok()));
        let (refused, room) = answer();
        assert_eq!(refused.expect_err("no room").kind, CallErrorKind::Limit);
        drop(room);
        waiting.pop();
        assert!(answer().0.is_ok(), "the guest has seen one");
    }

    #[test]
    fn calls_of_a_cell_that_was_stopped_make_room_before_the_next_call() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut calls = Calls::new(Permits::new(1));
            for call in 1..=CALLS_QUEUED_MAX as u64 {
                let bridge = Bridge::Tool;
                let from = CallOrigin { call, cell: 1, bridge, size_bytes: 0, is_unheard: false };
                let begun = Beginning { began: Instant::now(), kept: None, is_process: false };
                let never = calls.job(0, false, Box::pin(std::future::pending()));
                calls.start(from, begun, never);
            }
            calls.settle().await;
            assert!(calls.is_full(), "as many wait as may");
            assert_eq!(calls.cancel_cell(1).len(), CALLS_QUEUED_MAX);
            calls.settle().await;
            assert!(!calls.is_full() && calls.running.len() < CALLS_QUEUED_MAX);
        });
    }
}
