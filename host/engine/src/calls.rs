//! Bridge calls of one kernel: begun by the guest, answered by the session's [`Bridges`](crate::bridge::Bridges).
//!
//! Every call runs as a task of its own and never on the guest's stack: a bridge may use as much stack as it likes,
//! and a bridge that panics fails its call alone. Dropping [`Calls`] aborts whatever still runs.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::Semaphore,
    task::{AbortHandle, Id, JoinError, JoinSet},
};

use crate::{
    bridge::{CallError, CallErrorKind, CallFuture, Response},
    limits::{CALL_BYTES_MAX, CALLS_BYTES_MAX, CALLS_QUEUED_MAX},
};

/// What a call came to.
pub(crate) type CallResult = Result<Response, CallError>;

/// A call that ended.
#[derive(Debug)]
pub(crate) struct CallEnd {
    pub(crate) call: u64,
    /// The cell that made it.
    pub(crate) cell: u32,
    pub(crate) duration: Duration,
    pub(crate) result: CallResult,
    /// Whether its run has heard of it.
    pub(crate) reported: bool,
}

/// A call whose completion the guest has not seen.
#[derive(Debug)]
struct OpenCall {
    cell: u32,
    /// Bytes of its arguments.
    size_bytes: usize,
    began: Instant,
    task: AbortHandle,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Limits the calls that run at the same time, over all kernels of the session.
    permits: Arc<Semaphore>,
    next_call: u64,
    running: JoinSet<CallResult>,
    open: HashMap<u64, OpenCall>,
    /// Bytes of the arguments of all open calls.
    open_bytes: usize,
    by_task: HashMap<Id, u64>,
    /// Calls that ended and were not handed out: refused, cancelled, or taken in by [`Calls::reap`].
    ended: VecDeque<CallEnd>,
}

impl Calls {
    pub(crate) fn new(permits: Arc<Semaphore>) -> Calls {
        Calls {
            permits,
            next_call: 1,
            running: JoinSet::new(),
            open: HashMap::new(),
            open_bytes: 0,
            by_task: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Goes on with the numbers of a kernel that was captured. The calls that it had under way are lost: the guest,
    /// which still awaits them, is told that they were cancelled.
    pub(crate) fn go_on_from(&mut self, next_call: u64, lost: &[(u64, u32)]) {
        self.next_call = next_call;
        let lost = lost.iter().take(CALLS_QUEUED_MAX).map(|(call, cell)| CallEnd {
            call: *call,
            cell: *cell,
            duration: Duration::ZERO,
            result: Err(CallError::new(
                CallErrorKind::Cancelled,
                "the session was restored while the call was under way",
            )),
            reported: true,
        });
        self.deliver(lost);
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

    /// A number for a new call.
    pub(crate) fn number(&mut self) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        call
    }

    /// Begins a call whose completion will come out of [`Calls::next`]. `size_bytes` is that of its arguments.
    ///
    /// # Errors
    /// When the guest keeps beginning calls although they are being refused: it must be stopped.
    pub(crate) fn start(
        &mut self,
        call: u64,
        cell: u32,
        size_bytes: usize,
        future: CallFuture,
    ) -> Result<(), TooManyCalls> {
        self.reap();
        let unanswered = self.open.len() + self.ended.len();
        if unanswered >= 2 * CALLS_QUEUED_MAX {
            return Err(TooManyCalls);
        }
        // Tasks of calls that were given up count until the runtime has got round to ending them.
        let message = if unanswered.max(self.running.len()) >= CALLS_QUEUED_MAX {
            format!("more than {CALLS_QUEUED_MAX} bridge calls are waiting for an answer")
        } else if self.open_bytes + size_bytes > CALLS_BYTES_MAX {
            format!("the bridge calls that wait for an answer have more than {CALLS_BYTES_MAX} bytes of arguments")
        } else {
            let task = self.running.spawn(with_permit(self.permits.clone(), future));
            self.by_task.insert(task.id(), call);
            self.open_bytes += size_bytes;
            self.open.insert(call, OpenCall { cell, size_bytes, began: Instant::now(), task });
            return Ok(());
        };
        let result = Err(CallError::new(CallErrorKind::Limit, message));
        self.ended.push_back(CallEnd { call, cell, duration: Duration::ZERO, result, reported: false });
        Ok(())
    }

    /// Runs a call to its end. The guest is suspended meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the call.
    pub(crate) fn block_on(&self, future: CallFuture) -> impl Future<Output = CallResult> + Send + 'static {
        let mut task = JoinSet::new();
        task.spawn(with_permit(self.permits.clone(), future));
        async move { task.join_next().await.map_or_else(|| Err(aborted()), |joined| joined.unwrap_or_else(failed)) }
    }

    /// Gives up a call. No completion comes; the end is to be reported.
    pub(crate) fn cancel(&mut self, call: u64, why: &str) -> Option<CallEnd> {
        let open = self.open.get(&call)?;
        self.by_task.remove(&open.task.id());
        open.task.abort();
        self.close(call, Err(CallError::new(CallErrorKind::Cancelled, why)))
    }

    /// Cancels the open calls of a cell; returns their ends, to be reported and given to [`Calls::deliver`].
    pub(crate) fn cancel_cell(&mut self, cell: u32) -> Vec<CallEnd> {
        let calls: Vec<u64> = self.open.iter().filter(|(_, open)| open.cell == cell).map(|(call, _)| *call).collect();
        calls.into_iter().filter_map(|call| self.cancel(call, "the cell was stopped")).collect()
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
    fn joined(&mut self, joined: Result<(Id, CallResult), JoinError>) -> Option<CallEnd> {
        let (id, result) = match joined {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), failed(error)),
        };
        let call = self.by_task.remove(&id)?;
        self.close(call, result)
    }

    fn close(&mut self, call: u64, result: CallResult) -> Option<CallEnd> {
        let open = self.open.remove(&call)?;
        self.open_bytes -= open.size_bytes;
        Some(CallEnd { call, cell: open.cell, duration: open.began.elapsed(), result, reported: false })
    }
}

/// The guest begins calls faster than refusals can be delivered.
#[derive(Debug, thiserror::Error)]
#[error("the guest began more than {} bridge calls without awaiting any", 2 * CALLS_QUEUED_MAX)]
pub(crate) struct TooManyCalls;

async fn with_permit(permits: Arc<Semaphore>, future: CallFuture) -> CallResult {
    let Ok(_permit) = permits.acquire_owned().await else { return Err(aborted()) };
    let response = future.await?;
    if response.size_bytes() > CALL_BYTES_MAX {
        let message = format!("the answer has {} bytes, at most {CALL_BYTES_MAX} are allowed", response.size_bytes());
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
    Err(CallError::new(CallErrorKind::Failed, "the host failed while answering the call"))
}
