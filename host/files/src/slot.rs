//! Open descriptors: their nodes, and how they were opened.

use std::sync::Arc;

use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};

use super::error::FileError;
use super::handle::Handle;
use super::listing::Listing;
use super::stat::Stat;
use super::tree::Right;

/// Number of an open file or folder.
pub type Descriptor = u32;

/// The descriptor of the root folder, which is always open. Those below it are the guest's own streams, so that files
/// get the numbers from 4 on.
pub const ROOT: Descriptor = 3;

/// Options of opening. Mirrors `open-flags` of the kernel world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct OpenHow {
    /// Make the file if it is missing.
    pub create: bool,
    /// Fail unless it is a folder.
    pub directory: bool,
    /// With `create`: fail if it is there.
    pub exclusive: bool,
    /// Empty the file.
    pub truncate: bool,
    /// Follow the last name if it is a symbolic link.
    pub follow_symlinks: bool,
    /// Allow reading.
    pub read: bool,
    /// Allow writing.
    pub write: bool,
    /// The guest will write at the end only. Implies `write`.
    pub append: bool,
}

impl OpenHow {
    pub(super) fn writes(self) -> bool {
        self.write || self.append
    }

    /// Returns true if such an opening needs the right to change the file.
    pub(super) fn changes(self) -> bool {
        self.writes() || self.truncate
    }

    /// Returns the options that still matter after the opening.
    pub(super) fn lasting(self) -> Self {
        Self { create: false, exclusive: false, truncate: false, ..self }
    }
}

/// An open descriptor, as a snapshot keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// Its number.
    pub descriptor: Descriptor,
    /// Absolute guest path.
    pub path: String,
    /// Options of its opening, without those that only mattered then.
    pub how: OpenHow,
    /// The path no longer names this file: it was removed, replaced or moved. It cannot be opened again.
    pub stale: bool,
}

/// Node that a descriptor refers to.
#[derive(Debug)]
pub(super) enum Node {
    File(Handle),
    /// `dir` is absent for a folder that the tree makes up.
    Folder {
        dir: Option<Arc<Dir>>,
        listing: Option<Listing>,
    },
    /// Could not be opened again after a restore. It keeps its number until the guest closes it, lest the guest take
    /// a new file for the lost one.
    Lost {
        error: FileError,
        stale: bool,
    },
}

#[derive(Debug)]
pub(super) struct Slot {
    /// In the tree's form; kept up to date when this kernel moves it.
    pub(super) path: String,
    pub(super) how: OpenHow,
    /// Right to change it, as far as the opening determined it.
    pub(super) right: Right,
    pub(super) node: Node,
}

impl Slot {
    pub(super) fn folder(path: String, how: OpenHow, right: Right, dir: Option<Arc<Dir>>) -> Self {
        Self { path, how: how.lasting(), right, node: Node::Folder { dir, listing: None } }
    }

    /// # Errors
    /// `IsDirectory`, or why the file was lost.
    pub(super) fn file(&self) -> Result<&Handle, FileError> {
        match &self.node {
            Node::File(file) => Ok(file),
            Node::Folder { .. } => Err(FileError::IsDirectory),
            Node::Lost { error, .. } => Err(*error),
        }
    }

    /// # Errors
    /// `BadDescriptor` when it was not opened for writing, or as [`Slot::file`].
    pub(super) fn file_to_write(&self) -> Result<&Handle, FileError> {
        let file = self.file()?;
        if self.how.writes() { Ok(file) } else { Err(FileError::BadDescriptor) }
    }

    pub(super) fn stat(&self) -> Result<Stat, FileError> {
        match &self.node {
            Node::File(file) => Stat::of(file),
            Node::Folder { dir: Some(dir), .. } => Stat::of(dir),
            Node::Folder { dir: None, .. } => Ok(Stat::of_ancestor(&self.path)),
            Node::Lost { error, .. } => Err(*error),
        }
    }
}
