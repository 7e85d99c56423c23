//! File of a recording: a sequence of items, each of which belongs to a stream, written as they come.
//!
//! ```text
//! prefix     16 bytes "cellar" 0x1A 'r', version, length of the head (see [`crate::formats::header`])
//! head       postcard what [`Head`] says
//! checksum   16 bytes XXH3-128 of all before
//! frames, each:
//!   tag      1 byte   'i' for items, 'e' for the end
//!   packed   u32      length of what follows
//!   plain    u32      length of the items when unpacked; 0 at the end
//!   items    zstd     each: stream (varint), length (varint), so many bytes
//!   or end   postcard what [`End`] says; nothing comes after it
//!   checksum 16 bytes XXH3-128 of the checksum before and of all since
//! ```
//!
//! As each checksum covers the one before it, frames cannot change places. They find damage, not malice: whoever can
//! write a recording can write any. A reader checks all of them before it plays the first item, and trusts nothing.

use cellar_core::limits::Limits;
use cellar_results::artifacts::ArtifactKey;
use serde::{Deserialize, Serialize};

use crate::formats::header::{FileKind, FormatError};

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::{Cursor, OpenError, TapeFile};
pub(crate) use write::{Writer, bytes_of};

/// The version changes with every change to this format or to what stands in the items.
pub(crate) const RECORDING: FileKind = FileKind { name: "recording", letter: b'r', version: 8 };
const CHECKSUM_BYTES: usize = 16;
/// Tag and both lengths.
const FRAME_HEAD_BYTES: usize = 9;
const ITEMS: u8 = b'i';
const END: u8 = b'e';
/// Items are packed and written when there are so many bytes of them.
const FRAME_BYTES: usize = 256 << 10;
/// Largest frame, packed or not. A frame has one item of any size at most, and no item is larger than the answers of
/// all calls of a kernel.
const FRAME_BYTES_MAX: usize = 512 << 20;
/// Largest head or end.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// Head of a recording, before the first item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) session: String,
    /// Nanoseconds since the Unix epoch.
    pub(crate) began: u64,
    /// Version of the kernel world.
    pub(crate) world: String,
    pub(crate) limits: Limits,
    /// Makes the ids of its artifacts what they were.
    pub(crate) artifacts: ArtifactKey,
}

/// End of a recording, after the last item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// The guests whose kernels it has: short code of the language, SHA-256 of the baked component.
    pub(crate) guests: Vec<(String, String)>,
    /// It was ended before its session because it had become too large.
    pub(crate) is_full: bool,
}

/// Reason why a recording cannot be replayed, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum ReplayError {
    /// It is none, or none that this host can play.
    #[error(transparent)]
    File(#[from] FormatError),
    /// It has no end.
    #[error(
        "the recording is cut off after {bytes} bytes: the process that wrote it was killed, still writes it, or the file was copied in part"
    )]
    CutOff { bytes: u64 },
    /// The guest did something else than it did when it was recorded.
    #[error("the replay diverged in {place}: the recording has {expected}, the guest {found}")]
    Diverged { place: String, expected: String, found: String },
    /// The recording went on for longer than its file.
    #[error("the recording ends here because it had reached its limit of {bytes} bytes; the session went on")]
    Full { bytes: u64 },
}
