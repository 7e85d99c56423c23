//! Recording of a session, and its replay.
//!
//! Guests are deterministic: equal inputs give equal outputs. So a recording has the inputs of its kernels: why each was entered, and what
//! each import answered. It has no outputs of guests, but a fingerprint of each event: a replay has the guest make the event again, and
//! fails if it differs. Events of the host's own (ends, with their times, and calls that came back) are recorded as they are.
//!
//! Every kernel has a stream of items; the items of all stand in the order in which they came about, so that runs that
//! interleave do so again.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use cellar_core::{event::EventKind, sync::lock};
use serde::{Deserialize, Serialize};

use crate::{
    contract::error::Error,
    formats::{
        snapshot::fingerprint,
        tape::{End, Head, Writer, bytes_of},
    },
    kernel::border::types::{self, StopReason},
};

mod playback;
#[cfg(test)]
mod tests;

pub(crate) use playback::{Playback, Progress, item_of};

/// The stream of what belongs to no kernel.
pub(crate) const SESSION: u32 = 0;
/// Bytes of a part of an image.
const PART_BYTES: usize = 1 << 20;

/// Head of an item, which stands before its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Item {
    /// Event of the host that was sent to a run, and follows.
    Told { run: u32 },
    /// A kernel begins.
    Born(Birth),
    /// A part of the image that it begins with, which follows.
    Image,
    /// It was configured as follows.
    Configure,
    /// It was given the seed that follows.
    Reseed,
    /// It was entered for the [`Entry`] that follows, with this cell as it then was.
    Enter(Option<CellHead>),
    /// Its names and tasks were forgotten.
    Clear,
    /// It was asked the query that follows.
    Look,
    /// The guest came back. What it reported has this fingerprint.
    Left(u64),
    /// It did not come back.
    Died { was_killed: bool },
    /// An import was answered as follows. Its arguments have this fingerprint.
    Answer(Import, u64),
    /// Event of the guest that was sent to a run, as a fingerprint.
    Said { run: u32, event: u64 },
    /// Event of the guest that was sent to no run.
    Unsaid,
    /// A cell ended.
    Ended(u32),
    /// The kernel has nothing more to do.
    Gone,
}

/// Properties with which a kernel begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Birth {
    /// Short code of its language.
    pub(crate) language: String,
    /// True if the kernel counts fuel.
    pub(crate) has_fuel: bool,
    /// Parts of the image that it goes on from; 0 is none.
    pub(crate) image_parts: u32,
}

/// State of a cell that its kernel must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellHead {
    pub(crate) index: usize,
    pub(crate) output_left: Option<u64>,
    pub(crate) fuel_left: Option<u64>,
    pub(crate) depth: u32,
    pub(crate) is_muted: bool,
}

/// A reason to enter a guest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Entry {
    Seed(Vec<(String, String)>, types::Cell),
    Start(types::Cell),
    /// Resumes on behalf of the first completion's cell.
    Resume(u32, Vec<types::Completion>),
    Interrupt(u32, StopReason),
}

impl Entry {
    /// The cell that the guest works for, as far as is known; 0 is none.
    pub(crate) fn cell(&self) -> u32 {
        match self {
            Entry::Seed(_, cell) | Entry::Start(cell) => cell.id,
            Entry::Resume(cell, _) | Entry::Interrupt(cell, _) => *cell,
        }
    }
}

/// Names the imports whose answers are recorded.
macro_rules! imports {
    ($($variant:ident $name:literal,)*) => {
        /// An import whose answers the guest cannot know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum Import { $($variant,)* }

        impl Import {
            /// Returns its name in the world.
            fn name(self) -> &'static str {
                match self { $(Import::$variant => $name,)* }
            }
        }
    };
}

imports! {
    WallClock "control.wall-clock",
    MonotonicClock "control.monotonic-clock",
    CpuClock "control.cpu-clock",
    Random "control.random",
    ShouldStop "control.should-stop",
    SleepUntil "control.sleep-until",
    ToolsGranted "tools.granted",
    PrimitivesGranted "primitives.granted",
    FetchesGranted "fetches.granted",
    Call "call",
    StartCall "start-call",
    Take "fetches.take",
    Open "files.open",
    Close "files.close",
    Read "files.read",
    Write "files.write",
    Append "files.append",
    Sync "files.sync",
    Stat "files.stat",
    StatAt "files.stat-at",
    SetSize "files.set-size",
    SetTimes "files.set-times",
    SetTimesAt "files.set-times-at",
    ReadDirectory "files.read-directory",
    CreateDirectory "files.create-directory",
    RemoveDirectory "files.remove-directory",
    RemoveFile "files.remove-file",
    Rename "files.rename",
    Link "files.link",
    Symlink "files.symlink",
    ReadLink "files.read-link",
    InputRequest "input-request",
    Wait "control.wait",
    Threads "control.threads",
    TakeAnswer "tools.take-answer",
}

/// Fingerprint of a value.
pub(crate) fn mark(value: &impl Serialize) -> u64 {
    fingerprint(&bytes_of(value)) as u64
}

/// Recording of a session, to which its kernels and its runs add what they are given.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    kernels: AtomicU32,
    runs: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    writer: Writer,
    end: End,
    /// Result of the recording once nothing more is recorded: its bytes, or an error.
    ended: Option<Result<u64, io::Error>>,
}

impl Recorder {
    /// Begins a recording of at most so many bytes.
    ///
    /// # Errors
    /// `Recording` when the file cannot be written.
    pub(crate) fn create(path: &Path, head: &Head, bytes_max: u64) -> Result<Recorder, Error> {
        let failed = |source| Error::Recording { doing: "write", path: path.to_owned(), source };
        let writer = Writer::create(path, head, bytes_max).map_err(failed)?;
        Ok(Recorder {
            path: path.to_owned(),
            kernels: AtomicU32::new(SESSION + 1),
            runs: AtomicU32::new(1),
            state: Mutex::new(State { writer, end: End::default(), ended: None }),
        })
    }

    /// A stream for a new kernel.
    pub(crate) fn kernel(self: &Arc<Recorder>) -> Tape {
        Tape::Recording(KernelRecord { recorder: self.clone(), stream: self.kernels.fetch_add(1, Ordering::Relaxed) })
    }

    /// A number for a new run.
    pub(crate) fn run(self: &Arc<Recorder>) -> RunRecord {
        RunRecord { recorder: self.clone(), run: self.runs.fetch_add(1, Ordering::Relaxed) }
    }

    /// Notes that a kernel of this language is of this build.
    fn uses(&self, guest: (String, String)) {
        let state = &mut *lock(&self.state);
        if !state.end.guests.contains(&guest) {
            state.end.guests.push(guest);
        }
    }

    fn add(&self, stream: u32, item: &Item, more: &[u8]) {
        let body = bytes_of(item);
        let state = &mut *lock(&self.state);
        if state.ended.is_none()
            && let Err(error) = state.writer.add(stream, &body, more)
        {
            state.ended = Some(Err(error));
        }
    }

    /// Ends the recording; what comes later is not in it.
    ///
    /// # Errors
    /// `Recording` when it could not be written, or not to its end because it had become too large.
    pub(crate) fn end(&self) -> Result<(), Error> {
        let state = &mut *lock(&self.state);
        let ended = match state.ended.take() {
            Some(ended) => ended,
            None => state.writer.end(&state.end),
        };
        let result = match &ended {
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            Ok(bytes) if state.writer.is_full() => Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is full with {bytes} bytes; what came before can be replayed"),
            )),
            Ok(_) => Ok(()),
        };
        state.ended = Some(ended);
        result.map_err(|source| Error::Recording { doing: "write", path: self.path.clone(), source })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if lock(&self.state).ended.is_none()
            && let Err(error) = self.end()
        {
            tracing::warn!(error = cellar_core::text::describe(&error), "a recording is not complete");
        }
    }
}

/// Recorder of the events that are sent to a run.
#[derive(Clone, Debug)]
pub(crate) struct RunRecord {
    recorder: Arc<Recorder>,
    run: u32,
}

impl RunRecord {
    /// Records that an event of the host was sent to the run.
    pub(crate) fn told(&self, event: &EventKind) {
        self.recorder.add(SESSION, &Item::Told { run: self.run }, &bytes_of(event));
    }
}

/// Recorder of a kernel's inputs, and of fingerprints of its events. Records the kernel's end when it is dropped.
#[derive(Debug)]
pub(crate) struct KernelRecord {
    recorder: Arc<Recorder>,
    stream: u32,
}

impl Drop for KernelRecord {
    fn drop(&mut self) {
        self.add(&Item::Gone, &[]);
    }
}

impl KernelRecord {
    fn add(&self, item: &Item, more: &[u8]) {
        self.recorder.add(self.stream, item, more);
    }

    /// Records the answer of an import, with a fingerprint of its arguments.
    pub(crate) fn answer(&self, import: Import, arguments: &impl Serialize, answer: &impl Serialize) {
        self.add(&Item::Answer(import, mark(arguments)), &bytes_of(answer));
    }

    /// Records that an event of the guest was sent to a run, or to none.
    pub(crate) fn said(&self, run: Option<&RunRecord>, event: &EventKind) {
        let item = run.map_or(Item::Unsaid, |run| Item::Said { run: run.run, event: mark(event) });
        self.add(&item, &[]);
    }
}

/// Part that a kernel has in a recording.
#[derive(Debug, Default)]
pub(crate) enum Tape {
    /// It is neither recorded nor replayed.
    #[default]
    Off,
    /// It is recorded.
    Recording(KernelRecord),
    /// It replays a recorded kernel, and gets what that one got.
    Replaying(Box<Playback>),
}

impl Tape {
    /// Returns true if the kernel is recorded or replayed.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self, Tape::Off)
    }

    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self, Tape::Replaying(_))
    }

    /// Records the beginning of the kernel: the build of its guest, and the image that it goes on from, if any.
    pub(crate) fn born(&self, mut birth: Birth, digest: &str, image: Option<&[u8]>) {
        let Tape::Recording(record) = self else { return };
        record.recorder.uses((birth.language.clone(), digest.to_owned()));
        let parts = image.unwrap_or_default().chunks(PART_BYTES);
        birth.image_parts = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        record.add(&Item::Born(birth), &[]);
        parts.for_each(|part| record.add(&Item::Image, part));
    }

    /// Notes that the guest is about to be entered.
    pub(crate) fn enter(&self, item: Item, more: &impl Serialize) {
        if let Tape::Recording(record) = self {
            record.add(&item, &bytes_of(more));
        }
    }

    /// Notes that the guest returned a value with this fingerprint, or died. `cell` is the one whose code ran last.
    pub(crate) fn left(&mut self, cell: u32, result: Result<u64, Fall<'_>>) {
        match self {
            Tape::Off => {}
            Tape::Recording(record) => record.add(
                &match result {
                    Ok(mark) => Item::Left(mark),
                    Err(fall) => Item::Died { was_killed: fall.was_killed },
                },
                &[],
            ),
            Tape::Replaying(playback) => playback.left(cell, result),
        }
    }

    /// Notes that a cell ended.
    pub(crate) fn ended(&self, cell: u32) {
        if let Tape::Recording(record) = self {
            record.add(&Item::Ended(cell), &[]);
        }
    }
}

/// Death of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fall<'a> {
    /// True if the host killed it, at a moment of the host's choosing.
    pub(crate) was_killed: bool,
    pub(crate) message: &'a str,
}
