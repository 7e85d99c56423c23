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
use tokio::sync::Notify;

use crate::contract::bridge::{CallError, CallErrorKind, ChannelAnswer, ChannelCall, PipeEnd, PipeText, Transferred};

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

/// Result of an attempt.
enum Tried<T> {
    Done(T),
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
    pub(super) async fn ask(&self, call: ChannelCall, owner: &str) -> Result<ChannelAnswer, CallError> {
        let until = |timeout: Option<Duration>| timeout.map(|timeout| later(Instant::now(), timeout.min(TIMEOUT_MAX)));
        match call {
            ChannelCall::MakePipes { count } => {
                let pipes = (0..count.min(CHANNELS_MAX)).map(|_| self.make(owner, None)).collect();
                Ok(ChannelAnswer::Pipes(pipes))
            }
            ChannelCall::MakeBox { capacity } => {
                let room = capacity.and_then(|capacity| usize::try_from(capacity).ok()).unwrap_or(usize::MAX);
                Ok(ChannelAnswer::Box(self.make(owner, Some(room))))
            }
            ChannelCall::Transfer { read, .. } if read.len() > PIPES_READ_MAX => {
                Err(limit(format!("at most {PIPES_READ_MAX} pipes are read at a time")))
            }
            ChannelCall::Transfer { write, read, timeout } => {
                let write = write.as_ref().map(|(pipe, text)| (*pipe, text.as_str()));
                let done = self.when(until(timeout), || self.transfer(write, &read)).await?;
                let rest = write.map(|(_, text)| text.to_owned());
                Ok(ChannelAnswer::Transferred(done.unwrap_or(Transferred { rest, ..Transferred::default() })))
            }
            ChannelCall::Close { pipe, end } => {
                self.close(pipe, end);
                Ok(ChannelAnswer::Done)
            }
            ChannelCall::Put { into, message, timeout } => {
                let done = self.when(until(timeout), || self.put(into, &message)).await?;
                Ok(ChannelAnswer::Put(done.is_some()))
            }
            ChannelCall::Take { from, keep, timeout } => {
                Ok(ChannelAnswer::Taken(self.when(until(timeout), || self.take(from, keep)).await?))
            }
            ChannelCall::Count { of } => {
                let mut all = lock(&self.all);
                let count = all.of_box(of)?.texts.len();
                Ok(ChannelAnswer::Count(u64::try_from(count).unwrap_or(u64::MAX)))
            }
            ChannelCall::Forget { channels } => {
                self.forget(&channels);
                Ok(ChannelAnswer::Done)
            }
        }
    }

    /// Tries until something comes of it, again when anything has changed. `None` when the time is over.
    async fn when<T>(
        &self,
        until: Option<Instant>,
        mut attempt: impl FnMut() -> Result<Tried<T>, CallError>,
    ) -> Result<Option<T>, CallError> {
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
    pub(super) fn make(&self, owner: &str, room: Option<usize>) -> u64 {
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
    fn transfer(&self, write: Option<(u64, &str)>, read: &[u64]) -> Result<Tried<Transferred>, CallError> {
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
                found.push(PipeText { pipe: *number, text: String::new(), has_ended: true });
                continue;
            };
            let text = pipe.piece();
            let has_ended = pipe.texts.is_empty() && !pipe.is_written;
            all.bytes = all.bytes.saturating_sub(text.len());
            has_changed |= !text.is_empty();
            if has_ended {
                all.open.remove(number);
            }
            if !text.is_empty() || has_ended {
                found.push(PipeText { pipe: *number, text, has_ended });
            }
        }
        drop(all);
        if has_changed {
            self.changed.notify_waiters();
        }
        if !has_changed && !is_broken && found.is_empty() {
            return Ok(Tried::Later);
        }
        Ok(Tried::Done(Transferred { rest: rest.map(str::to_owned), is_broken, read: found }))
    }

    /// Writes to a pipe until all of it is taken. Returns false if the pipe has no reader.
    pub(super) async fn write(&self, pipe: u64, text: &str) -> bool {
        let mut rest = text.to_owned();
        while !rest.is_empty() {
            match self.when(None, || self.transfer(Some((pipe, &rest)), &[])).await {
                Ok(Some(done)) if !done.is_broken => rest = done.rest.unwrap_or_default(),
                _ => return false,
            }
        }
        true
    }

    /// Closes an end of a pipe. Its readers can still read what was written.
    pub(super) fn close(&self, number: u64, end: PipeEnd) {
        let mut all = lock(&self.all);
        if let Some(pipe) = all.open.get_mut(&number) {
            match end {
                PipeEnd::Reading => pipe.is_read = false,
                PipeEnd::Writing => pipe.is_written = false,
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

    fn put(&self, number: u64, message: &str) -> Result<Tried<()>, CallError> {
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
        Ok(Tried::Done(()))
    }

    fn take(&self, number: u64, keep: bool) -> Result<Tried<String>, CallError> {
        let mut all = lock(&self.all);
        let channel = all.of_box(number)?;
        let Some(first) = channel.texts.front() else { return Ok(Tried::Later) };
        if keep {
            return Ok(Tried::Done(first.clone()));
        }
        let message = channel.texts.pop_front().unwrap_or_default();
        let bytes = message.len().saturating_add(MESSAGE_BYTES);
        channel.bytes = channel.bytes.saturating_sub(bytes);
        all.bytes = all.bytes.saturating_sub(bytes);
        drop(all);
        self.changed.notify_waiters();
        Ok(Tried::Done(message))
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

    async fn ask(channels: &Channels, call: ChannelCall) -> ChannelAnswer {
        channels.ask(call, "s").await.expect("an answer")
    }

    fn write(pipe: u64, text: impl Into<String>) -> ChannelCall {
        ChannelCall::Transfer { write: Some((pipe, text.into())), read: Vec::new(), timeout: None }
    }

    fn read(pipes: &[u64]) -> ChannelCall {
        ChannelCall::Transfer { write: None, read: pipes.to_vec(), timeout: None }
    }

    fn put(into: u64, message: &str) -> ChannelCall {
        ChannelCall::Put { into, message: message.to_owned(), timeout: None }
    }

    fn take(from: u64, keep: bool) -> ChannelCall {
        ChannelCall::Take { from, keep, timeout: None }
    }

    /// The same call, given up after a millisecond.
    fn soon(mut call: ChannelCall) -> ChannelCall {
        if let ChannelCall::Transfer { timeout, .. }
        | ChannelCall::Put { timeout, .. }
        | ChannelCall::Take { timeout, .. } = &mut call
        {
            *timeout = Some(Duration::from_millis(1));
        }
        call
    }

    async fn transfer(channels: &Channels, call: ChannelCall) -> Transferred {
        match ask(channels, call).await {
            ChannelAnswer::Transferred(done) => done,
            other => panic!("{other:?}"),
        }
    }

    fn piece(pipe: u64, text: &str, has_ended: bool) -> PipeText {
        PipeText { pipe, text: text.to_owned(), has_ended }
    }

    #[test]
    fn a_pipe_gives_what_was_written_and_ends_with_its_writer() {
        run(async {
            let channels = Channels::default();
            assert_eq!(ask(&channels, ChannelCall::MakePipes { count: 2 }).await, ChannelAnswer::Pipes(vec![1, 2]));
            let reads = transfer(&channels, read(&[1, 2]));
            let writes = transfer(&channels, write(2, "a☃"));
            let (found, written) = tokio::join!(reads, writes);
            assert_eq!(found.read, [piece(2, "a☃", false)]);
            assert_eq!((written.rest.as_deref(), written.is_broken), (Some(""), false));
            transfer(&channels, write(2, "end")).await;
            ask(&channels, ChannelCall::Close { pipe: 2, end: PipeEnd::Writing }).await;
            assert_eq!(transfer(&channels, read(&[2])).await.read, [piece(2, "end", true)]);
            assert!(transfer(&channels, write(2, "x")).await.is_broken);
            assert_eq!(transfer(&channels, soon(read(&[1]))).await, Transferred::default());
        });
    }

    #[test]
    fn a_pipe_and_all_channels_are_bounded() {
        run(async {
            let channels = Channels::default();
            let text = "☃".repeat(CHANNEL_BYTES_MAX / 2);
            ask(&channels, ChannelCall::MakePipes { count: 8 }).await;
            let rest = transfer(&channels, write(1, &*text)).await.rest.expect("a rest");
            let taken = text.len() - rest.len();
            assert!(taken <= CHANNEL_BYTES_MAX && taken + 3 > CHANNEL_BYTES_MAX, "{taken}");
            let full = transfer(&channels, soon(write(1, "x".repeat(4)))).await;
            assert_eq!(full.rest.map(|rest| rest.len()), Some(3), "a byte had room");
            for pipe in 2..=CHANNELS_BYTES_MAX / CHANNEL_BYTES_MAX {
                transfer(&channels, write(pipe as u64, "x".repeat(CHANNEL_BYTES_MAX))).await;
            }
            let full = transfer(&channels, soon(write(8, "x"))).await;
            assert_eq!(full.rest.as_deref(), Some("x"), "all channels together are full");
            channels.forget_of("s");
            assert_eq!(lock(&channels.all).bytes, 0);
            ask(&channels, ChannelCall::MakePipes { count: CHANNELS_MAX }).await;
            let first = lock(&channels.all).open.keys().next().copied();
            ask(&channels, ChannelCall::MakeBox { capacity: None }).await;
            channels.forget_of("another");
            let all = lock(&channels.all);
            assert_eq!((all.open.len(), all.open.keys().next().copied()), (CHANNELS_MAX, first.map(|first| first + 1)));
        });
    }

    #[test]
    fn a_box_holds_messages_in_order_and_no_more_than_it_has_room_for() {
        run(async {
            let channels = Channels::default();
            assert_eq!(ask(&channels, ChannelCall::MakeBox { capacity: Some(2) }).await, ChannelAnswer::Box(1));
            for message in ["a", "b"] {
                assert_eq!(ask(&channels, put(1, message)).await, ChannelAnswer::Put(true));
            }
            assert_eq!(ask(&channels, soon(put(1, "c"))).await, ChannelAnswer::Put(false));
            assert_eq!(ask(&channels, ChannelCall::Count { of: 1 }).await, ChannelAnswer::Count(2));
            let waits = ask(&channels, put(1, "c"));
            let takes = async {
                let kept = ask(&channels, take(1, true)).await;
                assert_eq!(kept, ChannelAnswer::Taken(Some("a".to_owned())));
                ask(&channels, take(1, false)).await
            };
            let (is_put, taken) = tokio::join!(waits, takes);
            assert_eq!((is_put, taken), (ChannelAnswer::Put(true), ChannelAnswer::Taken(Some("a".to_owned()))));
            ask(&channels, ChannelCall::Forget { channels: vec![1] }).await;
            let gone = channels.ask(ChannelCall::Count { of: 1 }, "s").await.expect_err("forgotten");
            assert_eq!(gone.kind, CallErrorKind::Unknown);
        });
    }

    #[test]
    fn a_pipe_is_no_box_and_a_box_no_pipe_and_their_bytes_add_up() {
        run(async {
            let channels = Channels::default();
            ask(&channels, ChannelCall::MakePipes { count: 1 }).await;
            ask(&channels, ChannelCall::MakeBox { capacity: Some(2) }).await;
            transfer(&channels, write(1, "piece")).await;
            ask(&channels, put(2, "message")).await;
            let held = lock(&channels.all).bytes;
            let both = ChannelCall::Transfer { write: Some((2, "x".to_owned())), read: vec![1], timeout: None };
            for call in [
                take(1, false),
                take(1, true),
                put(1, "x"),
                ChannelCall::Count { of: 1 },
                write(2, "x"),
                read(&[1, 2]),
                both,
            ] {
                let refused = channels.ask(soon(call.clone()), "s").await.expect_err("the other kind of channel");
                assert_eq!(refused.kind, CallErrorKind::Invalid, "{call:?}");
                assert_eq!(lock(&channels.all).bytes, held, "{call:?}");
            }
            let many = read(&vec![1; PIPES_READ_MAX + 1]);
            let refused = channels.ask(many, "s").await.expect_err("too many");
            assert_eq!(refused.kind, CallErrorKind::Limit);
            ask(&channels, ChannelCall::Forget { channels: vec![1, 1, 2, 3] }).await;
            assert_eq!(lock(&channels.all).bytes, 0);
        });
    }
}
