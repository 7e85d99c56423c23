//! The captured state of a session: what a snapshot holds, and its bytes.
//!
//! A kernel between two entries has no native frame, so its linear memory and what the host keeps for it are all there
//! is: closures, generators, pending promises and awaiting cells are in that memory. Of the memory only the pages that
//! differ from the baked image are kept.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cellar_core::{cell::Language, event::Fetch, files::open_plain, limits::CALLS_QUEUED_MAX, origin::Origin};
use cellar_files::OpenFile;
use cellar_results::artifacts::ArtifactKeys;
use serde::{Deserialize, Serialize};

use crate::formats::{header::FormatError, remembered::Remembered, stranger::bounded};

mod format;
mod image;
mod pages;
mod runs;
#[cfg(test)]
mod tests;

pub(crate) use format::{BYTES_MAX, SNAPSHOT};
pub(crate) use image::Image;
pub(crate) use pages::{Collector, PAGE_BYTES, Pages, fingerprint};

/// Calls whose completion a kernel has not seen: those that wait, and those that were answered meanwhile.
const CALLS_MAX: usize = 4 * CALLS_QUEUED_MAX;
/// Cells that a kernel has, or has given up.
const CELLS_MAX: usize = 4_096;
/// Fetches that a kernel remembers.
const FETCHES_MAX: usize = 1_000;
/// Names of a kernel that have an origin.
pub(crate) const ORIGINS_MAX: usize = 10_000;
/// Files that a kernel has open: as many as a configuration may grant, and the root.
const FILES_MAX: usize = (64 << 10) + 1;

/// The state of a session at one moment: its kernels, their cells, what they have open. Not its files, which are
/// granted again by whoever restores it. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) session: String,
    /// Since the Unix epoch.
    pub(crate) taken_at_nanos: u64,
    pub(crate) next_cell: u32,
    /// Bytes and names that the session has added to its folders.
    pub(crate) disk_usage: (u64, u64),
    /// Kernels made of it get new seeds.
    pub(crate) is_fork: bool,
    /// Notes and summary of the session, which belong to none of its kernels.
    pub(crate) remembered: Remembered,
    /// Keys to the session's artifacts, as it holds them itself. Any other session that goes on from this inherits.
    pub(crate) artifacts: Option<ArtifactKeys>,
    pub(crate) kernels: Vec<Arc<KernelImage>>,
}

/// The state of one kernel.
#[derive(Debug)]
pub(crate) struct KernelImage {
    pub(crate) state: KernelState,
    pub(crate) pages: Pages,
}

/// Host side of a kernel. All times are the guest's own, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelState {
    /// Its short code.
    pub(crate) language: String,
    /// SHA-256 of the baked component.
    pub(crate) guest: String,
    /// Version of the kernel world.
    pub(crate) world: String,
    /// Time of the capture, since the Unix epoch.
    pub(crate) wall_clock: u64,
    /// Time of the capture, on the guest's monotonic clock.
    pub(crate) monotonic_clock: u64,
    pub(crate) cpu_time: u64,
    pub(crate) memory_peak: u64,
    pub(crate) wake_at: Option<u64>,
    pub(crate) next_call: u64,
    /// Calls whose completion the guest has not seen, and the cells that made them.
    #[serde(deserialize_with = "bounded::<_, _, CALLS_MAX>")]
    pub(crate) calls: Vec<(u64, u32)>,
    #[serde(deserialize_with = "bounded::<_, _, CELLS_MAX>")]
    pub(crate) cells: Vec<CellState>,
    /// Cells that were given up although the guest never reported their end.
    #[serde(deserialize_with = "bounded::<_, _, CELLS_MAX>")]
    pub(crate) abandoned: Vec<u32>,
    pub(crate) deepest: u32,
    /// Fingerprint of what it was configured with, but for the seed.
    pub(crate) configuration: u128,
    /// Lowest first, each once.
    #[serde(deserialize_with = "bounded::<_, _, FILES_MAX>")]
    pub(crate) files: Vec<OpenFile>,
    /// Fetches that its cells have made, oldest first.
    #[serde(deserialize_with = "bounded::<_, _, FETCHES_MAX>")]
    pub(crate) fetches: Vec<Fetch>,
    /// Origins of its names.
    #[serde(deserialize_with = "bounded::<_, _, ORIGINS_MAX>")]
    pub(crate) origins: Vec<StampedState>,
    /// Cells with a gate, those that have ended among them: what goes on of them loads no dataset in another life.
    #[serde(deserialize_with = "bounded::<_, _, CELLS_MAX>")]
    pub(crate) gated: Vec<u32>,
}

/// The names of one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StampedState {
    pub(crate) origin: Origin,
    #[serde(deserialize_with = "bounded::<_, _, ORIGINS_MAX>")]
    pub(crate) names: Vec<String>,
}

/// A cell that awaits something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellState {
    pub(crate) id: u32,
    /// Time it may still take.
    pub(crate) time_left: u64,
    pub(crate) output_left: Option<u64>,
    pub(crate) fuel_left: Option<u64>,
    pub(crate) depth: u32,
}

impl KernelState {
    /// Returns its language, if that is known here.
    pub(crate) fn language(&self) -> Option<Language> {
        Language::from_code(&self.language)
    }
}

/// Reason why bytes are no snapshot that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum SnapshotError {
    /// They are none, or none that this host can use.
    #[error(transparent)]
    File(#[from] FormatError),
    /// They end early.
    #[error("the snapshot is truncated: {bytes} bytes are not all of it")]
    Truncated { bytes: u64 },
    /// It needs more than the session may have.
    #[error("the snapshot needs {wanted_bytes} bytes of memory, the session may have {limit_bytes}")]
    Memory { wanted_bytes: u64, limit_bytes: u64 },
}

impl Snapshot {
    /// The snapshot as bytes: compressed, with a checksum. Blocks for about a millisecond a MiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        format::encode(self)
    }

    /// Reads what [`Snapshot::to_bytes`] wrote.
    ///
    /// # Errors
    /// When the bytes are no snapshot of this version, end early or are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        format::decode(bytes)
    }

    /// The chunks of memory in what [`Snapshot::to_bytes`] wrote. Between them and the ends of it is what differs from state to
    /// state.
    pub(crate) fn chunks(bytes: &[u8]) -> Option<Vec<&[u8]>> {
        format::chunks(bytes)
    }

    /// Reads what [`Snapshot::to_bytes`] wrote, from wherever it comes. What does not begin as a snapshot is read no further.
    ///
    /// # Errors
    /// It cannot be read. What was read may be no snapshot, as [`Snapshot::from_bytes`] says.
    pub fn read_from(from: impl Read) -> io::Result<Result<Snapshot, SnapshotError>> {
        format::read(from)
    }

    /// Opens the file of a snapshot, to be read with [`Snapshot::read_from`].
    ///
    /// # Errors
    /// It cannot be opened, or is no plain file: a pipe without an end, or a device.
    pub fn open_file(path: &Path) -> io::Result<File> {
        open_plain(path, File::options().read(true))
    }

    /// The state of a session that has done nothing.
    pub(crate) fn empty(session: &str) -> Snapshot {
        Snapshot {
            session: session.to_owned(),
            taken_at_nanos: 0,
            next_cell: 1,
            disk_usage: (0, 0),
            is_fork: false,
            remembered: Remembered::default(),
            artifacts: None,
            kernels: Vec::new(),
        }
    }

    /// The state of one kernel of a session.
    pub(crate) fn of_kernel(image: Arc<KernelImage>) -> Snapshot {
        Snapshot { kernels: vec![image], ..Snapshot::empty("") }
    }

    /// The languages of a snapshot of which only the beginning is read, unchecked.
    pub(crate) fn read_head(from: impl Read) -> Result<Vec<Language>, SnapshotError> {
        format::languages(from)
    }

    /// The same state under another session's name.
    #[must_use]
    pub fn named(&self, session: &str) -> Snapshot {
        Snapshot { session: session.to_owned(), ..self.clone() }
    }

    /// The session it was taken of.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns the time when it was taken.
    pub fn taken_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_nanos(self.taken_at_nanos)).unwrap_or(UNIX_EPOCH)
    }

    /// The languages that have a kernel in it.
    pub fn languages(&self) -> Vec<Language> {
        self.kernels.iter().filter_map(|kernel| kernel.state.language()).collect()
    }

    /// The same state without the kernels of these languages, which begin as new.
    #[must_use]
    pub fn without(&self, languages: &[Language]) -> Snapshot {
        let is_kept = |kernel: &&Arc<KernelImage>| kernel.state.language().is_none_or(|one| !languages.contains(&one));
        Snapshot { kernels: self.kernels.iter().filter(is_kept).cloned().collect(), ..self.clone() }
    }

    /// Bytes of memory that differ from that of a new session.
    pub fn changed_bytes(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.pages.len().saturating_mul(PAGE_BYTES) as u64).sum()
    }

    /// Returns the keys to the artifacts that the session had when this was taken, for another one that goes on from it.
    pub(crate) fn inherited_artifacts(&self) -> Option<ArtifactKeys> {
        self.artifacts.as_ref().map(|keys| keys.inherited(self.taken_at_nanos))
    }

    /// The same state for another session: its kernels get new seeds, so that the two do not draw the same numbers.
    #[must_use]
    pub fn forked(&self) -> Snapshot {
        Snapshot { is_fork: true, ..self.clone() }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("session", &self.session).finish_non_exhaustive()
    }
}
