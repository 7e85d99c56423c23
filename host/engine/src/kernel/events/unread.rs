//! Accounting of the memory that the events of all runs of this process take until their readers have read them.
//!
//! Each run has a short queue, but there may be thousands of runs, and an event may be a picture of megabytes. So that readers who do not
//! read cost no memory, the bytes of an event of some size are counted before it is queued, and its guest waits while there is no
//! capacity. Capacity goes to [accounts](Unread), each of which leaves as much free as it has: one whose readers have stopped holds up no
//! other. The runs of an account share what it has, but each gets on by itself with what it prints and with displays of up to 1 MiB: only
//! larger ones wait while others of the same account, whose readers have stopped, hold all of it.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use cellar_core::{
    event::EventKind,
    limits::{
        EVENT_BYTES_COUNTED, EVENT_BYTES_HUGE, EVENT_BYTES_LARGE, EVENTS_QUEUED_MAX, LARGE_EVENTS_MAX, UNREAD_BYTES_MAX,
    },
    sync::lock,
};
use tokio::sync::{
    Notify,
    mpsc::{self, error::TrySendError},
};

/// Account of the unread bytes of a group of sessions, such as those of a tenant. A cheap handle; [`Unread::default`] is the account of
/// all sessions of the process that have no other.
#[derive(Clone, Debug)]
pub struct Unread(Arc<Account>);

#[derive(Debug)]
struct Account {
    bound: Arc<Bound>,
    /// Bytes of this account. Taken after the lock of the bound.
    held: Mutex<usize>,
}

#[derive(Debug)]
struct Bound {
    bytes_max: usize,
    /// Bytes of all accounts.
    held: Mutex<usize>,
    /// Notifies waiters that there is more capacity.
    freed: Notify,
}

impl Default for Unread {
    fn default() -> Unread {
        static USUAL: OnceLock<Unread> = OnceLock::new();
        USUAL.get_or_init(|| Unread::bounded(UNREAD_BYTES_MAX)).clone()
    }
}

impl Unread {
    /// Creates an account with a bound of so many bytes, for itself and those [beside](Unread::beside) it.
    pub fn bounded(bytes_max: usize) -> Unread {
        Unread::within(Arc::new(Bound { bytes_max, held: Mutex::new(0), freed: Notify::new() }))
    }

    /// Creates a further account within the same bound, for another group of sessions.
    pub fn beside(&self) -> Unread {
        Unread::within(self.0.bound.clone())
    }

    fn within(bound: Arc<Bound>) -> Unread {
        Unread(Arc::new(Account { bound, held: Mutex::new(0) }))
    }

    /// Returns the bytes that are counted.
    pub fn size_bytes(&self) -> usize {
        *lock(&self.0.held)
    }

    /// Counts an event of a queue with so many bytes counted already, or returns `None` if it must wait. Small events are counted as
    /// nothing: the queues of their runs bound them.
    fn count(&self, event: &EventKind, of_queue: &Arc<AtomicUsize>) -> Option<UnreadBytes> {
        let bytes = event.size_bytes();
        if bytes < EVENT_BYTES_COUNTED {
            return Some(UnreadBytes(None));
        }
        let bound = &self.0.bound;
        let mut all = lock(&bound.held);
        let mut own = lock(&self.0.held);
        let left = bound.bytes_max.saturating_sub(all.saturating_add(bytes));
        let is_alone = of_queue.load(Ordering::Relaxed) == 0;
        // An account that has nothing may have anything, and a queue that has nothing one event, so that everybody gets on.
        let has_room = *own == 0
            || (is_alone && bytes <= EVENT_BYTES_HUGE)
            || own.saturating_add(bytes) <= left
            // A reader who reads is not held up by others of the same account who do not.
            || (is_alone && all.saturating_add(bytes) <= bound.bytes_max);
        has_room.then(|| {
            (*all, *own) = (all.saturating_add(bytes), own.saturating_add(bytes));
            of_queue.fetch_add(bytes, Ordering::Relaxed);
            UnreadBytes(Some(Counted { account: self.clone(), of_queue: of_queue.clone(), bytes }))
        })
    }

    /// Waits until there may be room for an event.
    async fn room(&self, event: &EventKind, of_queue: &Arc<AtomicUsize>) {
        let mut freed = pin!(self.0.bound.freed.notified());
        loop {
            // What is freed from here on is heard of.
            freed.as_mut().enable();
            if self.count(event, of_queue).is_some() {
                return;
            }
            freed.as_mut().await;
            freed.set(self.0.bound.freed.notified());
        }
    }
}

/// Bytes of an event that are counted as unread until this is dropped.
#[derive(Debug, Default)]
pub struct UnreadBytes(Option<Counted>);

#[derive(Debug)]
struct Counted {
    account: Unread,
    of_queue: Arc<AtomicUsize>,
    bytes: usize,
}

impl UnreadBytes {
    /// Returns the bytes that are counted; 0 for a small event.
    pub fn size_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |counted| counted.bytes)
    }
}

impl Drop for UnreadBytes {
    fn drop(&mut self) {
        let Some(Counted { account, of_queue, bytes }) = &self.0 else { return };
        let bound = &account.0.bound;
        let mut all = lock(&bound.held);
        let mut own = lock(&account.0.held);
        (*all, *own) = (all.saturating_sub(*bytes), own.saturating_sub(*bytes));
        of_queue.fetch_sub(*bytes, Ordering::Relaxed);
        drop((all, own));
        bound.freed.notify_waiters();
    }
}

/// An event on its way to the reader of its run.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) kind: EventKind,
    /// Bytes that are counted for the event.
    pub(crate) unread: UnreadBytes,
}

/// The way to the reader of a run.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    events: mpsc::Sender<Queued>,
    /// Account in which events are counted; absent where their readers count them.
    unread: Option<Unread>,
    /// Bytes of what went this way that are counted.
    counted: Arc<AtomicUsize>,
}

impl Queue {
    pub(crate) fn new(events: mpsc::Sender<Queued>, unread: Option<Unread>) -> Queue {
        Queue { events, unread, counted: Arc::default() }
    }

    /// Sends an event if there is capacity for it, and returns it otherwise. `before` is called first, because a reader may act on the
    /// event at once.
    pub(crate) fn try_send(
        &self,
        event: EventKind,
        before: impl FnOnce(&EventKind),
    ) -> Result<(), TrySendError<Box<EventKind>>> {
        let free = match self.events.try_reserve_many(places(&event)) {
            Ok(free) => free,
            Err(TrySendError::Full(())) => return Err(TrySendError::Full(Box::new(event))),
            Err(TrySendError::Closed(())) => return Err(TrySendError::Closed(Box::new(event))),
        };
        let counted = self
            .unread
            .as_ref()
            .map_or_else(|| Some(UnreadBytes::default()), |unread| unread.count(&event, &self.counted));
        let Some(unread) = counted else { return Err(TrySendError::Full(Box::new(event))) };
        before(&event);
        if let Some(place) = { free }.next() {
            place.send(Queued { kind: event, unread });
        }
        Ok(())
    }

    /// Waits until there may be capacity for an event, or the reader is gone.
    pub(crate) async fn room(&self, event: &EventKind) {
        let counted = async {
            if let Some(unread) = &self.unread {
                unread.room(event, &self.counted).await;
            }
        };
        tokio::select! {
            () = counted => {}
            () = self.events.closed() => return,
        }
        // Only whether there is room is asked for.
        let _ = self.events.reserve_many(places(event)).await;
    }
}

impl From<EventKind> for Queued {
    /// Wraps an event that is not counted: a small one, or one that its reader does not keep.
    fn from(kind: EventKind) -> Queued {
        Queued { kind, unread: UnreadBytes::default() }
    }
}

/// Places that must be free for an event. A large one waits until few are queued: events that wait have a bounded
/// size together.
fn places(event: &EventKind) -> usize {
    match event.size_bytes() {
        size if size > EVENT_BYTES_HUGE => EVENTS_QUEUED_MAX,
        size if size > EVENT_BYTES_LARGE => EVENTS_QUEUED_MAX - LARGE_EVENTS_MAX + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn text(bytes: usize) -> EventKind {
        EventKind::Stdout { index: 0, text: "x".repeat(bytes) }
    }

    /// As many events of so many bytes as there is room for.
    fn all(account: &Unread, of_queue: &Arc<AtomicUsize>, bytes: usize) -> Vec<UnreadBytes> {
        std::iter::from_fn(|| account.count(&text(bytes), of_queue)).collect()
    }

    #[test]
    fn an_account_leaves_as_much_as_it_has_and_who_has_nothing_gets_on() {
        let one = Unread::bounded(8 * MIB);
        let (other, third) = (one.beside(), one.beside());
        let queues: [Arc<AtomicUsize>; 5] = Default::default();
        let (ones, others) = (all(&one, &queues[0], MIB), all(&other, &queues[1], MIB));
        assert_eq!((ones.len(), others.len()), (4, 2));
        // One who reads is not held up by another of the same account, as long as there is any room.
        let read = one.count(&text(MIB), &queues[2]);
        assert!(read.is_some() && one.count(&text(MIB), &queues[2]).is_none());
        let large = third.count(&text(9 * MIB), &queues[3]);
        assert!(large.is_some(), "it has nothing, and may have one");
        assert!(third.count(&text(MIB), &queues[3]).is_none() && one.count(&text(MIB), &queues[0]).is_none());
        assert!(one.count(&text(EVENT_BYTES_HUGE + 1), &Arc::default()).is_none(), "there is no room at all");
        // Another run of the same account gets on all the same, with one event at a time that is not huge.
        let printed = one.count(&text(EVENT_BYTES_HUGE), &queues[4]);
        assert!(printed.is_some() && one.count(&text(EVENT_BYTES_HUGE), &queues[4]).is_none());
        drop((ones, others, read, large, printed));
        assert_eq!((one.size_bytes(), all(&other, &queues[1], MIB).len()), (0, 4));
    }

    #[test]
    fn small_events_count_as_nothing() {
        let unread = Unread::bounded(0);
        let held: Vec<_> = (0..100).map(|_| unread.count(&text(EVENT_BYTES_COUNTED - 1), &Arc::default())).collect();
        assert!(held.iter().all(Option::is_some));
        assert_eq!(unread.size_bytes(), 0);
    }

    #[tokio::test]
    async fn who_waits_is_told_of_room() {
        let (unread, of_queue) = (Unread::bounded(MIB), Arc::default());
        let (held, event) = (unread.count(&text(MIB), &of_queue), text(MIB));
        let mut room = pin!(unread.room(&event, &of_queue));
        assert!(futures::poll!(&mut room).is_pending());
        drop(held);
        room.await;
        assert!(unread.count(&event, &of_queue).is_some());
    }
}
