//! Channels between the kernels of a session: between a cell and the processes that it starts, and among these.
//!
//! A channel is a queue of texts. As a *pipe* it is a stream without message bounds, which ends when it has no writer any
//! more; as a *box* it holds messages. Guests build the primitives of their languages on these: the pipes of `subprocess` and
//! `child_process`, the queues, locks and shared values of `multiprocessing`. The texts are the guests' own; the host does
//! not parse them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cellar_core::{
    limits::{CHANNEL_BYTES_MAX, CHANNELS_BYTES_MAX, CHANNELS_MAX, TIMEOUT_MAX},
    sync::lock,
    text::prefix,
    time::later,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::contract::bridge::{CallError, CallErrorKind};

/// Bytes that a message counts besides its text.
const MESSAGE_BYTES: usize = 64;
/// Bytes of a pipe that are given to a reader at once.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Pipes that one call reads. Every change of any channel checks them again.
const PIPES_READ_MAX: usize = 64;

/// The channels of a session and all that its cells make of it.
#[derive(Debug, Default)]
pub(super) struct Channels {
    all: Mutex<All>,
    /// Notifies waiters of a change in any channel.
    changed: Notify,
}

#[derive(Debug, Default)]
struct All {
    last: u64,
    bytes: usize,
    open: BTreeMap<u64, Channel>,
}

#[derive(Debug)]
struct Channel {
    /// The session that made it, with which it ends.
    owner: Arc<str>,
    texts: VecDeque<String>,
    bytes: usize,
    /// Messages that it holds at most; a pipe has none.
    room: Option<usize>,
    is_read: bool,
    is_written: bool,
}

/// Requests of a guest to channels. Times are in milliseconds; a request without one waits without limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "do")]
pub(super) enum Asked {
    /// Makes `count` pipes.
    Pipes { count: usize },
    /// Makes a box with capacity for `room` messages.
    Box { room: Option<usize> },
    /// Writes to a pipe as much as fits, and reads from other pipes, once either is possible.
    Transfer {
        #[serde(default)]
        write: Option<(u64, String)>,
        #[serde(default)]
        read: Vec<u64>,
        #[serde(default)]
        within: Option<u64>,
    },
    /// Closes an end of a pipe.
    Close { pipe: u64, reading: bool },
    /// Puts a message into a box.
    Put { into: u64, message: String, within: Option<u64> },
    /// Takes the first message of a box; with `keep` it stays there.
    Take { from: u64, within: Option<u64>, keep: bool },
    /// Returns the number of messages in a box.
    Count { of: u64 },
    /// Forgets channels.
    Forget { channels: Vec<u64> },
}

/// Result of an attempt.
enum Tried {
    Done(Value),
    /// Nothing to take, or no capacity.
    Later,
}

fn limit(message: String) -> CallError {
    CallError::new(CallErrorKind::Limit, message)
}

fn unknown(number: u64) -> CallError {
    CallError::new(CallErrorKind::Unknown, format!("there is no channel {number} any more"))
}

fn invalid(message: String) -> CallError {
    CallError::new(CallErrorKind::Invalid, message)
}

impl Channels {
    /// Executes a request of a kernel of the session `owner`.
    ///
    /// # Cancel safety
    /// Data that was written, put or taken before the future is dropped stays so.
    pub(super) async fn ask(&self, asked: &str, owner: &str) -> Result<Value, CallError> {
        let asked: Asked =
            serde_json::from_str(asked).map_err(|error| invalid(format!("the arguments do not fit: {error}")))?;
        let until = |within: &Option<u64>| {
            within.map(|within| later(Instant::now(), Duration::from_millis(within).min(TIMEOUT_MAX)))
        };
        match &asked {
            Asked::Pipes { count } => {
                let pipes: Vec<u64> = (0..*count.min(&CHANNELS_MAX)).map(|_| self.make(owner, None)).collect();
                Ok(json!({"pipes": pipes}))
            }
            Asked::Box { room } => Ok(json!({"box": self.make(owner, Some(room.unwrap_or(usize::MAX)))})),
            Asked::Transfer { read, .. } if read.len() > PIPES_READ_MAX => {
                Err(limit(format!("at most {PIPES_READ_MAX} pipes are read at a time")))
            }
            Asked::Transfer { write, read, within } => {
                let write = write.as_ref().map(|(pipe, text)| (*pipe, text.as_str()));
                let done = self.when(until(within), || self.transfer(write, read)).await?;
                Ok(done.unwrap_or_else(|| json!({"rest": write.map(|(_, text)| text), "read": []})))
            }
            Asked::Close { pipe, reading } => {
                self.close(*pipe, *reading);
                Ok(Value::Null)
            }
            Asked::Put { into, message, within } => {
                let done = self.when(until(within), || self.put(*into, message)).await?;
                Ok(json!({"done": done.is_some()}))
            }
            Asked::Take { from, within, keep } => {
                let done = self.when(until(within), || self.take(*from, *keep)).await?;
                Ok(json!({"message": done}))
            }
            Asked::Count { of } => {
                let mut all = lock(&self.all);
                let count = all.of_box(*of)?.texts.len();
                Ok(json!({"count": count}))
            }
            Asked::Forget { channels } => {
                self.forget(channels);
                Ok(Value::Null)
            }
        }
    }

    /// Tries until something comes of it, again when anything has changed. `None` when the time is over.
    async fn when(
        &self,
        until: Option<Instant>,
        mut attempt: impl FnMut() -> Result<Tried, CallError>,
    ) -> Result<Option<Value>, CallError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the try, so that no change is missed that comes right after it.
            changed.as_mut().enable();
            if let Tried::Done(value) = attempt()? {
                return Ok(Some(value));
            }
            match until {
                None => changed.await,
                Some(until) => {
                    if tokio::time::timeout_at(until.into(), changed).await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Makes a channel. At the maximum it drops the oldest channel: guests do not report when the last user of a channel is
    /// gone.
    fn make(&self, owner: &str, room: Option<usize>) -> u64 {
        let mut all = lock(&self.all);
        if all.open.len() >= CHANNELS_MAX
            && let Some((_, oldest)) = all.open.pop_first()
        {
            all.bytes = all.bytes.saturating_sub(oldest.bytes);
            self.changed.notify_waiters();
        }
        all.last = all.last.saturating_add(1);
        let number = all.last;
        let (owner, texts) = (owner.into(), VecDeque::new());
        all.open.insert(number, Channel { owner, texts, bytes: 0, room, is_read: true, is_written: true });
        number
    }

    /// Tries a transfer once. A pipe without a reader takes nothing and is reported as broken; one that has ended is reported
    /// as ended.
    fn transfer(&self, write: Option<(u64, &str)>, read: &[u64]) -> Result<Tried, CallError> {
        let mut all = lock(&self.all);
        let mut rest = write.map(|(_, text)| text);
        let (mut is_broken, mut has_changed) = (false, false);
        let is_box = |number: u64| all.open.get(&number).is_some_and(|channel| channel.room.is_some());
        if let Some(number) =
            write.iter().map(|(number, _)| *number).chain(read.iter().copied()).find(|each| is_box(*each))
        {
            return Err(invalid(format!("channel {number} is a box, and no pipe")));
        }
        if let Some((number, text)) = write {
            let left = CHANNELS_BYTES_MAX.saturating_sub(all.bytes);
            match all.open.get_mut(&number) {
                Some(pipe) if pipe.is_read && pipe.is_written => {
                    let taken = prefix(text, left.min(CHANNEL_BYTES_MAX.saturating_sub(pipe.bytes)) as u64);
                    pipe.add(taken);
                    all.bytes = all.bytes.saturating_add(taken.len());
                    rest = Some(&text[taken.len()..]);
                    has_changed = !taken.is_empty() || text.is_empty();
                }
                _ => is_broken = true,
            }
        }
        let mut found = Vec::new();
        for number in read {
            let Some(pipe) = all.open.get_mut(number) else {
                found.push(json!([number, "", true]));
                continue;
            };
            let text = pipe.piece();
            let has_ended = pipe.texts.is_empty() && !pipe.is_written;
            if !text.is_empty() || has_ended {
                found.push(json!([number, text, has_ended]));
            }
            all.bytes = all.bytes.saturating_sub(text.len());
            has_changed |= !text.is_empty();
            if has_ended {
                all.open.remove(number);
            }
        }
        drop(all);
        if has_changed {
            self.changed.notify_waiters();
        }
        if !has_changed && !is_broken && found.is_empty() {
            return Ok(Tried::Later);
        }
        Ok(Tried::Done(json!({"rest": rest, "broken": is_broken, "read": found})))
    }

    /// Writes to a pipe until all of it is taken. Returns false if the pipe has no reader.
    pub(super) async fn write(&self, pipe: u64, text: &str) -> bool {
        let mut rest = text.to_owned();
        while !rest.is_empty() {
            match self.when(None, || self.transfer(Some((pipe, &rest)), &[])).await {
                Ok(Some(done)) if done["broken"] == Value::Bool(false) => {
                    rest = done["rest"].as_str().unwrap_or_default().to_owned();
                }
                _ => return false,
            }
        }
        true
    }

    /// Closes an end of a pipe. Its readers can still read what was written.
    pub(super) fn close(&self, number: u64, reading: bool) {
        let mut all = lock(&self.all);
        if let Some(pipe) = all.open.get_mut(&number) {
            match reading {
                true => pipe.is_read = false,
                false => pipe.is_written = false,
            }
            if !pipe.is_read
                && let Some(pipe) = all.open.remove(&number)
            {
                all.bytes = all.bytes.saturating_sub(pipe.bytes);
            }
        }
        drop(all);
        self.changed.notify_waiters();
    }

    fn put(&self, number: u64, message: &str) -> Result<Tried, CallError> {
        let mut all = lock(&self.all);
        let bytes = message.len().saturating_add(MESSAGE_BYTES);
        if bytes > CHANNELS_BYTES_MAX {
            return Err(limit(format!("a message between processes has at most {CHANNELS_BYTES_MAX} bytes")));
        }
        let left = CHANNELS_BYTES_MAX.saturating_sub(all.bytes);
        let channel = all.of_box(number)?;
        if channel.texts.len() >= channel.room.unwrap_or_default() || bytes > left {
            return Ok(Tried::Later);
        }
        channel.bytes = channel.bytes.saturating_add(bytes);
        channel.texts.push_back(message.to_owned());
        all.bytes = all.bytes.saturating_add(bytes);
        drop(all);
        self.changed.notify_waiters();
        Ok(Tried::Done(Value::Null))
    }

    fn take(&self, number: u64, keep: bool) -> Result<Tried, CallError> {
        let mut all = lock(&self.all);
        let channel = all.of_box(number)?;
        let Some(first) = channel.texts.front() else { return Ok(Tried::Later) };
        if keep {
            return Ok(Tried::Done(Value::String(first.clone())));
        }
        let message = channel.texts.pop_front().unwrap_or_default();
        let bytes = message.len().saturating_add(MESSAGE_BYTES);
        channel.bytes = channel.bytes.saturating_sub(bytes);
        all.bytes = all.bytes.saturating_sub(bytes);
        drop(all);
        self.changed.notify_waiters();
        Ok(Tried::Done(Value::String(message)))
    }

    /// Forgets the channels that a session has made: it has ended.
    pub(super) fn forget_of(&self, owner: &str) {
        let all = lock(&self.all);
        let own = all.open.iter().filter(|(_, channel)| &*channel.owner == owner);
        let own: Vec<u64> = own.map(|(number, _)| *number).collect();
        drop(all);
        self.forget(&own);
    }

    fn forget(&self, channels: &[u64]) {
        let mut all = lock(&self.all);
        for number in channels {
            let bytes = all.open.remove(number).map_or(0, |channel| channel.bytes);
            all.bytes = all.bytes.saturating_sub(bytes);
        }
        drop(all);
        self.changed.notify_waiters();
    }
}

impl All {
    /// A channel that holds messages. What pipes hold is counted otherwise.
    fn of_box(&mut self, number: u64) -> Result<&mut Channel, CallError> {
        let channel = self.open.get_mut(&number).ok_or_else(|| unknown(number))?;
        match channel.room {
            Some(_) => Ok(channel),
            None => Err(invalid(format!("channel {number} is a pipe, and no box"))),
        }
    }
}

impl Channel {
    /// Adds to what a pipe has.
    fn add(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        match self.texts.back_mut() {
            Some(last) if last.len().saturating_add(text.len()) <= PIECE_BYTES_MAX => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.texts.push_back(text.to_owned()),
        }
    }

    /// The next piece of a pipe; empty when there is none.
    fn piece(&mut self) -> String {
        let piece = self.texts.pop_front().unwrap_or_default();
        self.bytes = self.bytes.saturating_sub(piece.len());
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(future)
    }

    async fn ask(channels: &Channels, asked: Value) -> Value {
        channels.ask(&asked.to_string(), "s").await.expect("an answer")
    }

    #[test]
    fn a_pipe_gives_what_was_written_and_ends_with_its_writer() {
        run(async {
            let channels = Channels::default();
            assert_eq!(ask(&channels, json!({"do": "pipes", "count": 2})).await, json!({"pipes": [1, 2]}));
            let read = ask(&channels, json!({"do": "transfer", "read": [1, 2]}));
            let write = ask(&channels, json!({"do": "transfer", "write": [2, "a☃"]}));
            let (read, written) = tokio::join!(read, write);
            assert_eq!(read["read"], json!([[2, "a☃", false]]));
            assert_eq!((&written["rest"], &written["broken"]), (&json!(""), &json!(false)));
            ask(&channels, json!({"do": "transfer", "write": [2, "end"]})).await;
            ask(&channels, json!({"do": "close", "pipe": 2, "reading": false})).await;
            let end = ask(&channels, json!({"do": "transfer", "read": [2]})).await;
            assert_eq!(end["read"], json!([[2, "end", true]]));
            let write = ask(&channels, json!({"do": "transfer", "write": [2, "x"]})).await;
            assert_eq!(write["broken"], true);
            let nothing = ask(&channels, json!({"do": "transfer", "read": [1], "within": 1})).await;
            assert_eq!(nothing["read"], json!([]));
        });
    }

    #[test]
    fn a_pipe_and_all_channels_are_bounded() {
        run(async {
            let channels = Channels::default();
            let text = "☃".repeat(CHANNEL_BYTES_MAX / 2);
            ask(&channels, json!({"do": "pipes", "count": 8})).await;
            let rest = ask(&channels, json!({"do": "transfer", "write": [1, text]})).await["rest"].clone();
            let taken = text.len() - rest.as_str().map_or(0, str::len);
            assert!(taken <= CHANNEL_BYTES_MAX && taken + 3 > CHANNEL_BYTES_MAX, "{taken}");
            let full = ask(&channels, json!({"do": "transfer", "write": [1, "x".repeat(4)], "within": 1})).await;
            assert_eq!(full["rest"].as_str().map(str::len), Some(3), "a byte had room");
            for pipe in 2..=CHANNELS_BYTES_MAX / CHANNEL_BYTES_MAX {
                ask(&channels, json!({"do": "transfer", "write": [pipe, "x".repeat(CHANNEL_BYTES_MAX)]})).await;
            }
            let full = ask(&channels, json!({"do": "transfer", "write": [8, "x"], "within": 1})).await;
            assert_eq!(full["rest"], "x", "all channels together are full");
            channels.forget_of("s");
            assert_eq!(lock(&channels.all).bytes, 0);
            ask(&channels, json!({"do": "pipes", "count": CHANNELS_MAX})).await;
            let first = lock(&channels.all).open.keys().next().copied();
            ask(&channels, json!({"do": "box", "room": null})).await;
            channels.forget_of("another");
            let all = lock(&channels.all);
            assert_eq!((all.open.len(), all.open.keys().next().copied()), (CHANNELS_MAX, first.map(|first| first + 1)));
        });
    }

    #[test]
    fn a_box_holds_messages_in_order_and_no_more_than_it_has_room_for() {
        run(async {
            let channels = Channels::default();
            assert_eq!(ask(&channels, json!({"do": "box", "room": 2})).await, json!({"box": 1}));
            for message in ["a", "b"] {
                assert_eq!(ask(&channels, json!({"do": "put", "into": 1, "message": message})).await["done"], true);
            }
            assert_eq!(
                ask(&channels, json!({"do": "put", "into": 1, "message": "c", "within": 1})).await["done"],
                false
            );
            assert_eq!(ask(&channels, json!({"do": "count", "of": 1})).await["count"], 2);
            let waits = ask(&channels, json!({"do": "put", "into": 1, "message": "c"}));
            let takes = async {
                assert_eq!(ask(&channels, json!({"do": "take", "from": 1, "keep": true})).await["message"], "a");
                ask(&channels, json!({"do": "take", "from": 1, "keep": false})).await["message"].clone()
            };
            let (put, taken) = tokio::join!(waits, takes);
            assert_eq!((put["done"].clone(), taken), (json!(true), json!("a")));
            ask(&channels, json!({"do": "forget", "channels": [1]})).await;
            let gone = channels.ask("{\"do\": \"count\", \"of\": 1}", "s").await.expect_err("forgotten");
            assert_eq!(gone.kind, CallErrorKind::Unknown);
        });
    }

    #[test]
    fn a_pipe_is_no_box_and_a_box_no_pipe_and_their_bytes_add_up() {
        run(async {
            let channels = Channels::default();
            ask(&channels, json!({"do": "pipes", "count": 1})).await;
            ask(&channels, json!({"do": "box", "room": 2})).await;
            ask(&channels, json!({"do": "transfer", "write": [1, "piece"]})).await;
            ask(&channels, json!({"do": "put", "into": 2, "message": "message"})).await;
            let held = lock(&channels.all).bytes;
            for asked in [
                json!({"do": "take", "from": 1, "within": 1, "keep": false}),
                json!({"do": "take", "from": 1, "within": 1, "keep": true}),
                json!({"do": "put", "into": 1, "message": "x", "within": 1}),
                json!({"do": "count", "of": 1}),
                json!({"do": "transfer", "write": [2, "x"], "within": 1}),
                json!({"do": "transfer", "read": [1, 2], "within": 1}),
                json!({"do": "transfer", "write": [2, "x"], "read": [1], "within": 1}),
            ] {
                let refused = channels.ask(&asked.to_string(), "s").await.expect_err("the other kind of channel");
                assert_eq!(refused.kind, CallErrorKind::Invalid, "{asked}");
                assert_eq!(lock(&channels.all).bytes, held, "{asked}");
            }
            let many = json!({"do": "transfer", "read": vec![1; PIPES_READ_MAX + 1]});
            let refused = channels.ask(&many.to_string(), "s").await.expect_err("too many");
            assert_eq!(refused.kind, CallErrorKind::Limit);
            ask(&channels, json!({"do": "forget", "channels": [1, 1, 2, 3]})).await;
            assert_eq!(lock(&channels.all).bytes, 0);
        });
    }
}
