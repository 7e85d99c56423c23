//! Beginning of the files of this engine: eight bytes that tell their kind, the version of the format, and a head.
//!
//! ```text
//! magic      8 bytes  "cellar" 0x1A and a letter
//! version    u32      everything is little-endian
//! head       u32      length of the head
//! head       postcard
//! ```

use std::fmt;

use cellar_core::cell::Language;
use serde::{Serialize, de::DeserializeOwned};

/// Magic, version and length of the head.
pub(crate) const PREFIX_BYTES: usize = 16;

/// A kind of file. Its name is what messages call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind {
    pub(crate) name: &'static str,
    /// The last byte of its magic.
    pub(crate) letter: u8,
    /// Changes with every change to the format.
    pub(crate) version: u32,
}

/// Reason why a file is not one of its kind that this host can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum FormatError {
    /// It is something else.
    #[error("this is not a {0}")]
    Other(FileKind),
    /// It was written by another version of Cellar.
    #[error("the {kind} has format version {found}, this build reads version {wanted}", wanted = kind.version)]
    Version { kind: FileKind, found: u32 },
    /// It was changed.
    #[error("the {kind} is damaged: {why}")]
    Corrupt { kind: FileKind, why: String },
    /// It was made with another build of a guest.
    #[error("the {kind} was made with the {} guest {found}, this host has {wanted}", language.title())]
    Guest { kind: FileKind, language: Language, found: String, wanted: String },
    /// It was made for another version of the kernel world.
    #[error("the {kind} was made for cellar:kernel@{found}, this host speaks cellar:kernel@{wanted}")]
    World { kind: FileKind, found: String, wanted: &'static str },
    /// It has a kernel of a language that is not known here.
    #[error("the {kind} has a kernel of the unknown language `{code}`")]
    Language { kind: FileKind, code: String },
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
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

    /// Checks magic and version; returns the length of the head, or nothing when the file ends before it.
    pub(crate) fn head_bytes(self, bytes: &[u8]) -> Result<Option<usize>, FormatError> {
        if bytes.get(..8).is_some_and(|magic| magic != self.magic()) {
            return Err(FormatError::Other(self));
        }
        match u32_at(bytes, 8) {
            Some(found) if found != self.version => Err(FormatError::Version { kind: self, found }),
            _ => Ok(u32_at(bytes, 12).map(|length| length as usize)),
        }
    }

    /// A file of this kind was changed.
    pub(crate) fn corrupt(self, why: impl Into<String>) -> FormatError {
        FormatError::Corrupt { kind: self, why: why.into() }
    }

    /// The language that a file of this kind names by its short code.
    pub(crate) fn language(self, code: &str) -> Result<Language, FormatError> {
        Language::from_code(code).ok_or_else(|| FormatError::Language { kind: self, code: code.to_owned() })
    }

    /// Checks that a file of this kind was made for the kernel world of this host, by their versions.
    pub(crate) fn check_world(self, found: &str, wanted: &'static str) -> Result<(), FormatError> {
        match found == wanted {
            true => Ok(()),
            false => Err(FormatError::World { kind: self, found: found.to_owned(), wanted }),
        }
    }

    /// Checks that a file of this kind was made with the guest that this host has, by their digests.
    pub(crate) fn check_guest(self, language: Language, found: &str, wanted: &str) -> Result<(), FormatError> {
        match found == wanted {
            true => Ok(()),
            false => {
                Err(FormatError::Guest { kind: self, language, found: found.to_owned(), wanted: wanted.to_owned() })
            }
        }
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
    Some(u32::from_le_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}
