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
    limits::{CALL_BYTES_MAX, CALLS_QUEUED_MAX},
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
    by_task: HashMap<Id, u64>,
    /// Calls that ended without a task: refused or cancelled.
    ended: VecDeque<CallEnd>,
}

impl Calls {
    pub(crate) fn new(permits: Arc<Semaphore>) -> Calls {
        Calls {
            permits,
            next_call: 1,
            running: JoinSet::new(),
            open: HashMap::new(),
            by_task: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// A number for a new call.
    pub(crate) fn number(&mut self) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        call
    }

    /// Begins a call whose completion will come out of [`Calls::next`].
    ///
    /// # Errors
    /// When the guest keeps beginning calls although they are being refused: it must be stopped.
    pub(crate) fn start(&mut self, call: u64, cell: u32, future: CallFuture) -> Result<(), TooManyCalls> {
        if self.ended.len() >= CALLS_QUEUED_MAX {
            return Err(TooManyCalls);
        }
        if self.open.len() >= CALLS_QUEUED_MAX {
            let message = format!("more than {CALLS_QUEUED_MAX} bridge calls are waiting for an answer");
            let result = Err(CallError::new(CallErrorKind::Limit, message));
            self.ended.push_back(CallEnd { call, cell, duration: Duration::ZERO, result, reported: false });
            return Ok(());
        }
        let task = self.running.spawn(with_permit(self.permits.clone(), future));
        self.by_task.insert(task.id(), call);
        self.open.insert(call, OpenCall { cell, began: Instant::now(), task });
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

    /// Gives up a call. No completion comes.
    pub(crate) fn forget(&mut self, call: u64) {
        if let Some(open) = self.open.remove(&call) {
            self.by_task.remove(&open.task.id());
            open.task.abort();
        }
    }

    /// Cancels the open calls of a cell; returns their ends, to be reported and given to [`Calls::deliver`].
    pub(crate) fn cancel_cell(&mut self, cell: u32) -> Vec<CallEnd> {
        let calls: Vec<u64> = self.open.iter().filter(|(_, open)| open.cell == cell).map(|(call, _)| *call).collect();
        let cancel = |call| {
            let open = self.open.remove(&call)?;
            self.by_task.remove(&open.task.id());
            open.task.abort();
            let result = Err(CallError::new(CallErrorKind::Cancelled, "the cell was stopped"));
            Some(CallEnd { call, cell, duration: open.began.elapsed(), result, reported: false })
        };
        calls.into_iter().filter_map(cancel).collect()
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
            let (id, result) = match joined {
                Ok((id, result)) => (id, result),
                Err(error) => (error.id(), failed(error)),
            };
            // A call that was given up has no entry.
            if let Some(end) = self.by_task.remove(&id).and_then(|call| self.close(call, result)) {
                return end;
            }
        }
    }

    /// Another call that has ended already.
    pub(crate) fn try_next(&mut self) -> Option<CallEnd> {
        loop {
            if let Some(end) = self.ended.pop_front() {
                return Some(end);
            }
            let (id, result) = match self.running.try_join_next_with_id()? {
                Ok((id, result)) => (id, result),
                Err(error) => (error.id(), failed(error)),
            };
            if let Some(end) = self.by_task.remove(&id).and_then(|call| self.close(call, result)) {
                return Some(end);
            }
        }
    }

    fn close(&mut self, call: u64, result: CallResult) -> Option<CallEnd> {
        let open = self.open.remove(&call)?;
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
