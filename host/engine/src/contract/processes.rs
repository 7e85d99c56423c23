//! Calls about processes and the channels between them, as data. Only sessions answer them.

use std::time::Duration;

use cellar_core::cell::Language;
use serde::{Deserialize, Serialize};

/// Request for a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRequest {
    /// Language of the process.
    pub language: Language,
    /// The cell that reads the order and does what it says.
    pub code: String,
    /// Given to the process as it is.
    pub order: String,
    /// Environment variables, all of them.
    pub environment: Vec<(String, String)>,
    /// Timeout; without it the limits of the session apply alone.
    pub timeout: Option<Duration>,
    /// Pipes of the process.
    pub pipes: Pipes,
}

/// The pipes of a process. Their other ends are its starter's, and these ends are closed when it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipes {
    /// Pipe that it reads.
    pub input: Option<u64>,
    /// Pipe for its standard output, as `err` is for standard error; that output is left out of the answer.
    pub out: Option<u64>,
    /// Pipe for its standard error.
    pub err: Option<u64>,
}

/// A call of the interface `processes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessCall {
    /// Runs a process.
    Run(Box<ProcessRequest>),
    /// Returns the order of this process.
    Order,
    /// Keeps a reply for the starter of this process.
    Reply(String),
    /// A request to the channels of the session.
    Channel(ChannelCall),
}

/// A request to channels. Without a timeout it waits without limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the calls in the world")]
pub enum ChannelCall {
    /// Makes `count` pipes.
    MakePipes { count: usize },
    /// Makes a box for at most `capacity` messages.
    MakeBox { capacity: Option<u64> },
    /// Writes to a pipe as much as fits, and reads from other pipes, once either is possible.
    Transfer { write: Option<(u64, String)>, read: Vec<u64>, timeout: Option<Duration> },
    /// Closes an end of a pipe.
    Close { pipe: u64, end: PipeEnd },
    /// Puts a message into a box.
    Put { into: u64, message: String, timeout: Option<Duration> },
    /// Takes the first message of a box; with `keep` it stays there.
    Take { from: u64, keep: bool, timeout: Option<Duration> },
    /// Returns the number of messages in a box.
    Count { of: u64 },
    /// Drops channels.
    Forget { channels: Vec<u64> },
}

/// An end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PipeEnd {
    Reading,
    Writing,
}

impl ProcessCall {
    /// Returns the name of the call in events and logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ProcessCall::Run(_) => "process.run",
            ProcessCall::Order => "process.order",
            ProcessCall::Reply(_) => "process.reply",
            ProcessCall::Channel(_) => "process.channel",
        }
    }

    /// Returns the bytes of the texts and lists of the call.
    pub(crate) fn size_bytes(&self) -> usize {
        let numbers = |list: &[u64]| size_of_val(list);
        match self {
            ProcessCall::Run(request) => {
                let pairs = request.environment.iter().map(|(name, value)| name.len().saturating_add(value.len()));
                pairs.fold(request.code.len().saturating_add(request.order.len()), usize::saturating_add)
            }
            ProcessCall::Reply(text) => text.len(),
            ProcessCall::Channel(ChannelCall::Put { message, .. }) => message.len(),
            ProcessCall::Channel(ChannelCall::Transfer { write, read, .. }) => {
                numbers(read).saturating_add(write.as_ref().map_or(0, |(_, text)| text.len()))
            }
            ProcessCall::Channel(ChannelCall::Forget { channels }) => numbers(channels),
            ProcessCall::Order | ProcessCall::Channel(_) => 0,
        }
    }
}

/// Result of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Exit status; absent when the host ended the process.
    pub status: Option<i32>,
    /// Output that went into no pipe, in order.
    pub output: Vec<(OutputStream, String)>,
    /// Reason for which the host ended it.
    pub failure: Option<ProcessFailure>,
    /// Reply to its starter.
    pub reply: Option<String>,
}

/// A stream that a process prints to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Failure of a process that is not its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFailure {
    /// Class of the failure.
    pub kind: ProcessFailureKind,
    /// Message for people.
    pub message: String,
}

/// Class of a [`ProcessFailure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessFailureKind {
    /// It ran longer than its request allows.
    Timeout,
    /// It printed more than a process may.
    Output,
    /// It was not started.
    NotStarted,
    /// It was ended for another reason.
    Killed,
}

/// Answer of the channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelAnswer {
    /// Numbers of new pipes.
    Pipes(Vec<u64>),
    /// Number of a new box.
    Box(u64),
    /// Result of a transfer.
    Transferred(Transferred),
    /// True if a message was put into a box in time.
    Put(bool),
    /// The message that was taken; `None` if there was none in time.
    Taken(Option<String>),
    /// Number of messages in a box.
    Count(u64),
    /// Done, with nothing to return.
    Done,
}

/// Result of a transfer between pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    /// Rest of the text that was to be written; `None` if there was none to write.
    pub rest: Option<String>,
    /// True if the pipe that was to be written has no reader.
    pub is_broken: bool,
    /// Pieces that were read.
    pub read: Vec<PipeText>,
}

/// Text read from a pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeText {
    /// Number of the pipe.
    pub pipe: u64,
    /// The text; empty if only the end was read.
    pub text: String,
    /// True if the pipe has no writer and no text any more.
    pub has_ended: bool,
}

impl ChannelAnswer {
    /// Bytes of payload.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            ChannelAnswer::Pipes(pipes) => size_of_val(pipes.as_slice()),
            ChannelAnswer::Transferred(done) => {
                let read = done.read.iter().map(|piece| piece.text.len());
                read.fold(done.rest.as_ref().map_or(0, String::len), usize::saturating_add)
            }
            ChannelAnswer::Taken(message) => message.as_ref().map_or(0, String::len),
            ChannelAnswer::Box(_) | ChannelAnswer::Put(_) | ChannelAnswer::Count(_) | ChannelAnswer::Done => 0,
        }
    }
}

impl ProcessEnd {
    /// Bytes of payload.
    pub(crate) fn size_bytes(&self) -> usize {
        let texts = self.output.iter().map(|(_, text)| text.len());
        texts.fold(self.reply.as_ref().map_or(0, String::len), usize::saturating_add)
    }
}
