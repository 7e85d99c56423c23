//! The reader of a cell's run, as it is reached by what goes on in the run's name outside of the cell's kernel.

use std::sync::{Arc, Mutex, MutexGuard};

use cellar_core::{event::EventKind, sync::lock};
use tokio::sync::mpsc::error::TrySendError;

use super::unread::Queue;
use crate::kernel::record::RunRecord;

/// Tells the run of a cell what happens elsewhere, as long as the cell runs.
#[derive(Clone, Debug)]
pub(crate) struct Hearer {
    /// Place of the cell in its run.
    pub(crate) index: usize,
    way: Arc<Mutex<Option<Way>>>,
}

#[derive(Debug)]
struct Way {
    events: Queue,
    record: Option<RunRecord>,
}

/// The kernel's end of a [`Hearer`]: nothing is heard through it any more once this is dropped.
#[derive(Debug)]
pub(crate) struct Gate(Hearer);

/// Holds back what others tell the run.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "it is held, not read")] MutexGuard<'a, Option<Way>>);

impl Gate {
    pub(crate) fn new(index: usize, events: Queue, record: Option<RunRecord>) -> Gate {
        Gate(Hearer { index, way: Arc::new(Mutex::new(Some(Way { events, record }))) })
    }

    pub(crate) fn hearer(&self) -> Hearer {
        self.0.clone()
    }

    /// Nobody else tells the run anything meanwhile: what is recorded and what is sent keep one order.
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
    /// Tells the run of an event, and waits while its reader is behind. Gives the event back when nobody hears it: the
    /// cell has ended, or its reader has gone.
    ///
    /// # Cancel safety
    /// Cancel safe: an event that was not told is dropped.
    pub(crate) async fn hear(&self, event: EventKind) -> Result<(), Box<EventKind>> {
        let mut event = event;
        loop {
            let events = match &*lock(&self.way) {
                None => return Err(Box::new(event)),
                Some(Way { events, record }) => {
                    let told = events.try_send(event, |event| {
                        if let Some(record) = record {
                            record.told(event);
                        }
                    });
                    match told {
                        Ok(()) => return Ok(()),
                        Err(TrySendError::Closed(back)) => return Err(back),
                        Err(TrySendError::Full(back)) => event = *back,
                    }
                    events.clone()
                }
            };
            events.room(&event).await;
        }
    }
}
