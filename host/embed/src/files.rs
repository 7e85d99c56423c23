//! Files of sessions in this process, by their paths in the sandbox.

use cellar_engine::Session;
use cellar_files::{Descriptor, FileError, FileKind, Files as Tree, ListedFile, OpenHow, ROOT};

/// Bytes of a piece that is read.
const PIECE_BYTES: u32 = 1 << 20;

/// Files of a session. All methods block while the disk works.
#[derive(Debug)]
pub struct Files<'a>(pub &'a Session);

impl Files<'_> {
    /// Reads a file whole.
    ///
    /// # Errors
    /// It is not there, or none.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let mut files = self.0.files();
        let file = files.open(ROOT, path, OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() })?;
        let read = read_all(&mut files, file);
        files.close(file)?;
        read
    }

    /// Writes a file, and makes the folders that it is in.
    ///
    /// # Errors
    /// The folder was granted for reading alone, or the quota is used up.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        let mut files = self.0.files();
        files.make_folders(path.rsplit_once('/').unwrap_or_default().0)?;
        let how = OpenHow { create: true, truncate: true, write: true, follow_symlinks: true, ..OpenHow::default() };
        let file = files.open(ROOT, path, how)?;
        let written = files.write_all(file, 0, bytes);
        files.close(file)?;
        written.map(drop)
    }

    /// Lists the entries of a folder.
    ///
    /// # Errors
    /// It is not there, or none.
    pub fn list(&self, path: &str) -> Result<Vec<ListedFile>, FileError> {
        let mut files = self.0.files();
        let how = OpenHow { directory: true, read: true, follow_symlinks: true, ..OpenHow::default() };
        let folder = files.open(ROOT, path, how)?;
        let entries = files.entries(folder);
        files.close(folder)?;
        entries
    }

    /// Removes a file, or a folder that is empty.
    ///
    /// # Errors
    /// It is not there, has entries, or was granted for reading alone.
    pub fn remove(&self, path: &str) -> Result<(), FileError> {
        let mut files = self.0.files();
        match files.stat_at(ROOT, path, false)?.kind {
            FileKind::Directory => files.remove_directory(ROOT, path),
            _ => files.remove_file(ROOT, path),
        }
    }
}

fn read_all(files: &mut Tree, file: Descriptor) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    loop {
        let piece = files.read(file, bytes.len() as u64, PIECE_BYTES)?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece);
    }
}
