//! Replay as a kernel sees it: the kernel gets the recorded answers.

use std::time::{Duration, Instant};

use cellar_core::event::EventKind;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::mpsc;

use super::{Fall, Import, Item, mark};
use crate::formats::tape::{Cursor, RECORDING, ReplayError};

/// Progress of a kernel that is replayed.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It made this event again.
    Said(EventKind),
    /// It came back from an entry, or died in it, as it had.
    Left,
}

/// The stream of a kernel that is replayed.
#[derive(Debug)]
pub(crate) struct Playback {
    cursor: Cursor,
    stream: u32,
    /// The item that comes next, if it was looked at already.
    next: Option<(Item, Vec<u8>)>,
    progress: mpsc::Sender<Progress>,
    error: Option<ReplayError>,
    /// The last entry ended as it had.
    has_left: bool,
    /// Time when an item was last taken.
    moved: Instant,
    /// Longest time that the guest may go on without taking an item.
    patience: Duration,
}

impl Playback {
    /// Plays the stream from where the cursor is.
    pub(crate) fn new(cursor: Cursor, stream: u32, progress: mpsc::Sender<Progress>, patience: Duration) -> Playback {
        Playback { cursor, stream, next: None, progress, error: None, has_left: false, moved: Instant::now(), patience }
    }

    /// Returns the next item without taking it; `None` at the end, or after an error.
    fn peek(&mut self) -> Option<&Item> {
        if self.next.is_none() && self.error.is_none() {
            self.next = self.read().unwrap_or_else(|error| {
                self.error = Some(error);
                None
            });
        }
        self.next.as_ref().map(|(item, _)| item)
    }

    fn read(&mut self) -> Result<Option<(Item, Vec<u8>)>, ReplayError> {
        let Some(bytes) = self.cursor.next_of(self.stream)? else { return Ok(None) };
        let (item, more) = item_of(&bytes)?;
        let more = more.to_vec();
        Ok(Some((item, more)))
    }

    /// Takes what comes next.
    pub(crate) fn take(&mut self) -> Option<(Item, Vec<u8>)> {
        self.peek()?;
        self.moved = Instant::now();
        self.next.take()
    }

    /// Takes the end of a cell that comes next.
    pub(crate) fn take_ended(&mut self) -> Option<u32> {
        let Some(Item::Ended(cell)) = self.peek() else { return None };
        let cell = *cell;
        self.take();
        Some(cell)
    }

    /// Returns true if an entry has ended as recorded since the last call.
    pub(crate) fn has_left(&mut self) -> bool {
        std::mem::take(&mut self.has_left)
    }

    /// Takes why the replay failed.
    pub(crate) fn error(&mut self) -> Option<ReplayError> {
        self.error.take()
    }

    /// Sends progress to the replay. Returns false if nobody receives it any more.
    pub(crate) async fn tell(&self, progress: Progress) -> bool {
        self.progress.send(progress).await.is_ok()
    }

    /// Returns true if the guest has nothing more to do: it was killed here, the recording ends, it diverged, or nobody receives its
    /// progress.
    pub(crate) fn is_over(&mut self, cell: u32) -> bool {
        if self.moved.elapsed() > self.patience && self.error.is_none() {
            let found = format!("has asked for nothing in {:?}", self.patience);
            self.diverged(cell, found);
        }
        self.error.is_some() || self.progress.is_closed() || self.is_at_end()
    }

    /// Returns true if the recording has nothing more of what the guest did in this entry.
    fn is_at_end(&mut self) -> bool {
        matches!(self.peek(), None | Some(Item::Gone | Item::Died { was_killed: true }))
    }

    /// Notes that the guest did something else than what comes next.
    fn diverged(&mut self, cell: u32, found: String) {
        let place = if cell == 0 { "code of no cell".to_owned() } else { format!("<cell {cell}>") };
        let expected = self.peek().map_or_else(|| "nothing more".to_owned(), describe);
        if self.error.is_none() {
            self.error = Some(ReplayError::Diverged { place, expected, found });
        }
    }

    /// Returns the recorded answer of an import.
    ///
    /// # Errors
    /// When the guest must end here, or makes another call than the recorded one.
    pub(crate) fn answer<T: DeserializeOwned>(
        &mut self,
        cell: u32,
        import: Import,
        arguments: &impl Serialize,
    ) -> wasmtime::Result<T> {
        if self.error.is_none() && !self.is_at_end() {
            match self.peek() {
                Some(Item::Answer(recorded, marked)) if *recorded == import => {
                    if *marked == mark(arguments) {
                        return self.taken();
                    }
                    self.diverged(cell, format!("called {} with other arguments", import.name()));
                }
                _ => self.diverged(cell, format!("called {}", import.name())),
            }
        }
        Err(wasmtime::Error::msg("the replay ends here"))
    }

    fn taken<T: DeserializeOwned>(&mut self) -> wasmtime::Result<T> {
        let (_, more) = self.take().unwrap_or((Item::Gone, Vec::new()));
        postcard::from_bytes(&more).map_err(|error| {
            self.error = Some(RECORDING.corrupt(format!("an answer cannot be read ({error})")).into());
            wasmtime::Error::msg("the replay ends here")
        })
    }

    /// Compares an event of the guest with the recording, and sends it to the replay if they agree.
    pub(crate) async fn said(&mut self, cell: u32, event: EventKind) {
        if self.error.is_some() || self.is_at_end() {
            return;
        }
        match self.peek() {
            Some(Item::Said { event: recorded, .. }) if *recorded == mark(&event) => {
                self.take();
                // That nobody is there is noticed at the next step.
                self.tell(Progress::Said(event)).await;
            }
            Some(Item::Unsaid) => drop(self.take()),
            Some(Item::Said { .. }) => self.diverged(cell, format!("said something else: {}", shown(&event))),
            _ => self.diverged(cell, format!("said {}", shown(&event))),
        }
    }

    /// Compares how an entry ended with how it did. Where the guest was killed, it may have come further.
    pub(super) fn left(&mut self, cell: u32, result: Result<u64, Fall<'_>>) {
        if self.error.is_some() {
            return;
        }
        match (self.peek(), result) {
            (None | Some(Item::Gone), _) => {}
            (Some(Item::Died { was_killed: true }), _) | (Some(Item::Died { .. }), Err(_)) => {
                self.next = Some((Item::Gone, Vec::new()));
                self.has_left = true;
            }
            (Some(Item::Left(recorded)), Ok(found)) if *recorded == found => {
                self.take();
                self.has_left = true;
            }
            (Some(Item::Left(_)), Ok(_)) => self.diverged(cell, "reported another end of a cell".to_owned()),
            (_, Ok(_)) => self.diverged(cell, "came back".to_owned()),
            (_, Err(fall)) => self.diverged(cell, format!("died: {}", fall.message)),
        }
    }
}

/// An item and what follows it.
pub(crate) fn item_of(bytes: &[u8]) -> Result<(Item, &[u8]), ReplayError> {
    postcard::take_from_bytes(bytes)
        .map_err(|error| RECORDING.corrupt(format!("an item cannot be read ({error})")).into())
}

fn describe(item: &Item) -> String {
    match item {
        Item::Answer(import, _) => format!("a call of {}", import.name()),
        Item::Said { .. } | Item::Unsaid => "something said".to_owned(),
        Item::Left(_) => "its return".to_owned(),
        Item::Died { .. } => "its death".to_owned(),
        Item::Gone => "its end".to_owned(),
        Item::Ended(cell) => format!("the end of <cell {cell}>"),
        Item::Configure | Item::Reseed | Item::Enter(_) | Item::Clear | Item::Look => "its next entry".to_owned(),
        Item::Told { .. } | Item::Born(_) | Item::Image => "its beginning".to_owned(),
    }
}

/// An event, cut to a length that fits a message.
fn shown(event: &EventKind) -> String {
    let text = format!("{event:?}");
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
