//! Queue of messages to one client, bounded in number and in bytes. A client that does not read makes the senders wait,
//! and is disconnected in the end.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::timeout,
};

/// Messages that wait for one client, and KiB of them; a larger message waits alone.
const OUTGOING_MAX: usize = 1_024;
const OUTGOING_KIB_MAX: usize = 32 << 10;
/// Time for which a sender waits for capacity while the client does not read. The client is disconnected then.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the capacity that a message of this many bytes takes, in KiB; at least 1, even for an empty one.
pub(crate) fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.saturating_add(1).div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

/// Sending half.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    outgoing: mpsc::Sender<(T, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    cut: watch::Sender<bool>,
}

/// Receiving half, for the client's connection.
#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    queue: mpsc::Receiver<(T, OwnedSemaphorePermit)>,
    cut: watch::Receiver<bool>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> (Queue<T>, Outgoing<T>) {
        let (outgoing, queue) = mpsc::channel(OUTGOING_MAX);
        let (sender, cut) = watch::channel(false);
        let room = Arc::new(Semaphore::new(OUTGOING_KIB_MAX));
        (Queue { outgoing, room, cut: sender }, Outgoing { queue, cut })
    }

    /// Queues a message of this many bytes. Returns false if the client has gone, or is disconnected because it does
    /// not read.
    ///
    /// # Cancel safety
    /// Cancel safe: the message is not queued then.
    pub(crate) async fn send(&self, message: T, bytes: usize) -> bool {
        let most = u32::try_from(OUTGOING_KIB_MAX).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(kib(bytes).min(most));
        let sent = timeout(STALL_TIMEOUT, async {
            let Ok(permit) = room.await else { return false };
            self.outgoing.send((message, permit)).await.is_ok()
        });
        match sent.await {
            Ok(is_there) => is_there,
            Err(_) => {
                self.cut.send_replace(true);
                false
            }
        }
    }

    /// Closes the queue, because the client has gone; senders that wait for capacity are woken.
    pub(crate) fn close(&self) {
        self.room.close();
    }

    /// Waits until all messages were written.
    pub(crate) async fn written(&self) {
        let all = u32::try_from(OUTGOING_KIB_MAX).unwrap_or(u32::MAX);
        // All of the room is free then.
        let _ = self.room.acquire_many(all).await;
    }
}

impl<T> Outgoing<T> {
    /// Returns the next message to write, with its permit, which is held until the message was written; none when there
    /// are no senders any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(T, OwnedSemaphorePermit)> {
        self.queue.recv().await
    }

    /// Returns true if no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns a receiver that turns true when the client is to be disconnected.
    pub(crate) fn cut(&self) -> watch::Receiver<bool> {
        self.cut.clone()
    }
}
