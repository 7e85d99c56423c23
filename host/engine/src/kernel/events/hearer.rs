//! Reader of a cell's run, for events in the run's name from outside of the cell's kernel.

use std::sync::{Arc, Mutex, MutexGuard};

use cellar_core::{event::EventKind, sync::lock};
use tokio::sync::mpsc::error::TrySendError;

use super::unread::Queue;
use crate::kernel::record::RunRecord;

/// Sender of events to the run of a cell, from outside of its kernel, as long as the cell runs.
#[derive(Clone, Debug)]
pub(crate) struct Hearer {
    /// Index of the cell in its run.
    pub(crate) index: usize,
    way: Arc<Mutex<Option<Way>>>,
}

#[derive(Debug)]
struct Way {
    events: Queue,
    record: Option<RunRecord>,
}

impl Way {
    /// Sends an event if there is capacity for it, and returns it otherwise.
    fn try_send(&self, event: EventKind) -> Result<(), TrySendError<Box<EventKind>>> {
        self.events.try_send(event, |event| {
            if let Some(record) = &self.record {
                record.told(event);
            }
        })
    }
}

/// Kernel's end of a [`Hearer`], which sends nothing any more once this is dropped.
#[derive(Debug)]
pub(crate) struct Gate(Hearer);

/// Guard that holds back events of others for the run.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "it is held, not read")] MutexGuard<'a, Option<Way>>);

impl Gate {
    pub(crate) fn new(index: usize, events: Queue, record: Option<RunRecord>) -> Gate {
        Gate(Hearer { index, way: Arc::new(Mutex::new(Some(Way { events, record }))) })
    }

    pub(crate) fn hearer(&self) -> Hearer {
        self.0.clone()
    }

    /// Sends an event if there is capacity for it, and drops it otherwise.
    pub(crate) fn try_tell(&self, event: EventKind) {
        if let Some(way) = &*lock(&self.0.way) {
            // An event that is dropped is not worth a wait here.
            let _ = way.try_send(event);
        }
    }

    /// Locks out other senders, so that events are recorded and sent in one order.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn(lock(&self.0.way))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        *lock(&self.0.way) = None;
    }
}

impl Hearer {
    /// Sends an event to the run, and waits while its reader is behind. Returns the event if nobody reads it: the cell has ended, or its
    /// reader has gone.
    ///
    /// # Cancel safety
    /// Cancel safe: an event that was not sent is dropped.
    pub(crate) async fn hear(&self, event: EventKind) -> Result<(), Box<EventKind>> {
        let mut event = event;
        loop {
            let events = match &*lock(&self.way) {
                None => return Err(Box::new(event)),
                Some(way) => {
                    match way.try_send(event) {
                        Ok(()) => return Ok(()),
                        Err(TrySendError::Closed(back)) => return Err(back),
                        Err(TrySendError::Full(back)) => event = *back,
                    }
                    way.events.clone()
                }
            };
            events.room(&event).await;
        }
    }
}
