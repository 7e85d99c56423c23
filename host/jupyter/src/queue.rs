//! What is on its way to one client: bounded in number and in bytes. A client that takes nothing holds up whoever has
//! something for it, and is cut off in the end.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::timeout,
};

/// Messages that wait for one client, and KiB of them: a larger one waits alone.
const OUTGOING_MAX: usize = 1_024;
const OUTGOING_KIB_MAX: usize = 32 << 10;
/// Time that a client may take nothing while something waits for it that has no room. It is cut off then.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The room that so many bytes take, in KiB; something, even when there are none.
pub(crate) fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.saturating_add(1).div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

/// The side of whoever has something for a client.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    outgoing: mpsc::Sender<(T, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    cut: watch::Sender<bool>,
}

/// The side of the client's connection.
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

    /// Puts a message of so many bytes behind the others; whether the client is still there.
    ///
    /// # Cancel safety
    /// Cancel safe: then it is not put there.
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

    /// Says that the client has gone, to whoever waits for room.
    pub(crate) fn close(&self) {
        self.room.close();
    }

    /// Waits until all was written.
    pub(crate) async fn written(&self) {
        let all = u32::try_from(OUTGOING_KIB_MAX).unwrap_or(u32::MAX);
        // All of the room is free then.
        let _ = self.room.acquire_many(all).await;
    }
}

impl<T> Outgoing<T> {
    /// What is to be written next, with the room that it takes until then; none when nobody has anything for the client
    /// any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(T, OwnedSemaphorePermit)> {
        self.queue.recv().await
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Comes when the client is cut off.
    pub(crate) fn cut(&self) -> watch::Receiver<bool> {
        self.cut.clone()
    }
}
