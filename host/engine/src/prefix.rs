//! How the files of this engine begin: eight bytes that say what they are, the version of their format, and a head.
//!
//! ```text
//! magic      8 bytes  "cellar" 0x1A and a letter
//! version    u32      everything is little-endian
//! head       u32      length of the head
//! head       postcard
//! ```

use serde::{Serialize, de::DeserializeOwned};

/// Magic, version and length of the head.
pub(crate) const PREFIX_BYTES: usize = 16;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileKind {
    /// The last byte of its magic.
    pub(crate) letter: u8,
    /// Changes with every change to the format.
    pub(crate) version: u32,
}

/// Why a beginning is not one of the kind that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It is that of another kind of file.
    Other,
    /// It has this version.
    Version(u32),
    /// It ends early.
    Truncated,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        [b'c', b'e', b'l', b'l', b'a', b'r', 0x1A, self.letter]
    }

    /// A file that begins with this head.
    pub(crate) fn begin(self, head: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::from(self.magic());
        bytes.extend(self.version.to_le_bytes());
        bytes.extend([0; 4]);
        // Only fails when the sink does, and a vector does not.
        let mut bytes = postcard::to_extend(head, bytes).unwrap_or_default();
        let head_bytes = u32::try_from(bytes.len().saturating_sub(PREFIX_BYTES)).unwrap_or(u32::MAX);
        if let Some(length) = bytes.get_mut(12..PREFIX_BYTES) {
            length.copy_from_slice(&head_bytes.to_le_bytes());
        }
        bytes
    }

    /// Checks magic and version; returns the length of the head.
    pub(crate) fn head_bytes(self, bytes: &[u8]) -> Result<usize, Flaw> {
        if bytes.get(..8).is_some_and(|magic| magic != self.magic()) {
            return Err(Flaw::Other);
        }
        let version = u32_at(bytes, 8).ok_or(Flaw::Truncated)?;
        if version != self.version {
            return Err(Flaw::Version(version));
        }
        Ok(u32_at(bytes, 12).ok_or(Flaw::Truncated)? as usize)
    }
}

/// The head of this length in `bytes`, and what comes after it.
pub(crate) fn split_head<T: DeserializeOwned>(bytes: &[u8], head_bytes: usize) -> Option<(T, &[u8])> {
    let end = PREFIX_BYTES.checked_add(head_bytes)?;
    let head = bytes.get(PREFIX_BYTES..end)?;
    let (head, left) = postcard::take_from_bytes(head).ok()?;
    left.is_empty().then_some((head, &bytes[end..]))
}

/// The number that stands at an offset.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}
