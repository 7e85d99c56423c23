//! Files and folders as a whole, for a host that reads and writes those of a session.

use super::{Descriptor, FileError, FileKind, Files, ROOT};

/// Bytes that are written at once.
const PIECE_BYTES: usize = 256 << 10;

/// Entry of a folder, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// Name.
    pub name: String,
    /// Kind: `file`, `folder`, `link` or `other`.
    pub kind: &'static str,
    /// Size of a file in bytes.
    pub size: Option<u64>,
    /// Time of the last change in seconds since the Unix epoch.
    pub modified: Option<u64>,
}

impl Files {
    /// Lists the entries of a folder. Blocks.
    ///
    /// # Errors
    /// As [`Files::read_directory`].
    pub fn entries(&mut self, folder: Descriptor) -> Result<Vec<ListedFile>, FileError> {
        let mut entries = Vec::new();
        loop {
            let piece = self.read_directory(folder, entries.len() as u64)?;
            if piece.is_empty() {
                return Ok(entries);
            }
            for entry in piece {
                let stat = self.stat_at(folder, &entry.name, false).ok();
                let kind = match stat.as_ref().map_or(entry.kind, |stat| stat.kind) {
                    FileKind::RegularFile => "file",
                    FileKind::Directory => "folder",
                    FileKind::SymbolicLink => "link",
                    FileKind::Unknown => "other",
                };
                let modified = stat.as_ref().map(|stat| stat.modified / 1_000_000_000);
                let size = stat.filter(|_| kind == "file").map(|stat| stat.size);
                entries.push(ListedFile { name: entry.name, kind, size, modified });
            }
        }
    }

    /// Writes all of these bytes from an offset on, and returns that behind them. Blocks.
    ///
    /// # Errors
    /// As [`Files::write`]; a part may be written.
    pub fn write_all(&mut self, file: Descriptor, mut offset: u64, mut bytes: &[u8]) -> Result<u64, FileError> {
        while !bytes.is_empty() {
            let written = self.write(file, offset, &bytes[..bytes.len().min(PIECE_BYTES)])?;
            bytes = &bytes[usize::try_from(written).unwrap_or(bytes.len()).min(bytes.len())..];
            offset = offset.saturating_add(written.into());
        }
        Ok(offset)
    }

    /// Makes a folder and those above it that are not there. Blocks.
    ///
    /// # Errors
    /// As [`Files::create_directory`], but for folders that are there.
    pub fn make_folders(&mut self, path: &str) -> Result<(), FileError> {
        let mut places = path.match_indices('/').map(|(place, _)| place).skip(1).chain([path.len()]);
        places.try_for_each(|end| match self.create_directory(ROOT, &path[..end]) {
            Err(FileError::Exists | FileError::Busy) => Ok(()),
            // The folder of a mount is there, whether or not one may write beside it.
            Err(FileError::ReadOnly) if self.stat_at(ROOT, &path[..end], true).is_ok() => Ok(()),
            made => made,
        })
    }
}
