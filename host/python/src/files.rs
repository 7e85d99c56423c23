//! Files of sessions in this process, by their paths in the sandbox.

use cellar_files::{Descriptor, FileError, FileKind, Files as Tree, OpenHow, ROOT};
use pyo3::{
    exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyOSError, PyPermissionError},
    prelude::*,
    types::PyBytes,
};

use crate::state::Local;

/// Bytes of a piece that is read or written.
const PIECE_BYTES: usize = 1 << 20;

/// Name, kind, size in bytes and seconds since the Unix epoch of a change.
type Listed = (String, &'static str, Option<u64>, Option<u64>);

/// Files of the sessions of one connection.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Files(pub(crate) Local);

#[pymethods]
impl Files {
    /// The bytes of a file.
    fn read<'py>(&self, py: Python<'py>, session: &str, path: &str) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.on_files(py, session, path, |files| {
            let file = files.open(ROOT, path, OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() })?;
            let read = read_all(files, file);
            files.close(file)?;
            read
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a file, and makes the folders that it is in.
    fn write(&self, py: Python<'_>, session: &str, path: &str, bytes: &[u8]) -> PyResult<()> {
        self.on_files(py, session, path, |files| {
            make_folders(files, path.rsplit_once('/').unwrap_or_default().0)?;
            let how =
                OpenHow { create: true, truncate: true, write: true, follow_symlinks: true, ..OpenHow::default() };
            let file = files.open(ROOT, path, how)?;
            let written = write_all(files, file, bytes);
            files.close(file)?;
            written
        })
    }

    /// The entries of a folder.
    fn list(&self, py: Python<'_>, session: &str, path: &str) -> PyResult<Vec<Listed>> {
        self.on_files(py, session, path, |files| {
            let how = OpenHow { directory: true, read: true, follow_symlinks: true, ..OpenHow::default() };
            let folder = files.open(ROOT, path, how)?;
            let entries = entries(files, folder);
            files.close(folder)?;
            entries
        })
    }

    /// Removes a file, or a folder that is empty.
    fn remove(&self, py: Python<'_>, session: &str, path: &str) -> PyResult<()> {
        self.on_files(py, session, path, |files| match files.stat_at(ROOT, path, false)?.kind {
            FileKind::Directory => files.remove_directory(ROOT, path),
            _ => files.remove_file(ROOT, path),
        })
    }
}

impl Files {
    fn on_files<T: Send>(
        &self,
        py: Python<'_>,
        session: &str,
        path: &str,
        work: impl FnOnce(&mut Tree) -> Result<T, FileError> + Send,
    ) -> PyResult<T> {
        let session = self.0.session(session)?;
        py.detach(|| work(&mut session.files())).map_err(|error| {
            let message = format!("{error}: `{path}`");
            match error {
                FileError::NotFound => PyFileNotFoundError::new_err(message),
                FileError::IsDirectory => PyIsADirectoryError::new_err(message),
                FileError::ReadOnly | FileError::NotPermitted => PyPermissionError::new_err(message),
                _ => PyOSError::new_err(message),
            }
        })
    }
}

fn read_all(files: &mut Tree, file: Descriptor) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    loop {
        let piece = files.read(file, bytes.len() as u64, u32::try_from(PIECE_BYTES).unwrap_or(u32::MAX))?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece);
    }
}

fn write_all(files: &mut Tree, file: Descriptor, mut bytes: &[u8]) -> Result<(), FileError> {
    let mut offset: u64 = 0;
    while !bytes.is_empty() {
        let written = files.write(file, offset, &bytes[..bytes.len().min(PIECE_BYTES)])?;
        bytes = &bytes[usize::try_from(written).unwrap_or(bytes.len()).min(bytes.len())..];
        offset = offset.saturating_add(written.into());
    }
    Ok(())
}

fn make_folders(files: &mut Tree, path: &str) -> Result<(), FileError> {
    let mut places = path.match_indices('/').map(|(place, _)| place).skip(1).chain([path.len()]);
    places.try_for_each(|end| match files.create_directory(ROOT, &path[..end]) {
        Err(FileError::Exists | FileError::Busy) => Ok(()),
        Err(FileError::ReadOnly) if files.stat_at(ROOT, &path[..end], true).is_ok() => Ok(()),
        made => made,
    })
}

fn entries(files: &mut Tree, folder: Descriptor) -> Result<Vec<Listed>, FileError> {
    let mut entries = Vec::new();
    loop {
        let piece = files.read_directory(folder, entries.len() as u64)?;
        if piece.is_empty() {
            return Ok(entries);
        }
        for entry in piece {
            let stat = files.stat_at(folder, &entry.name, false).ok();
            let kind = match stat.as_ref().map_or(entry.kind, |stat| stat.kind) {
                FileKind::RegularFile => "file",
                FileKind::Directory => "folder",
                FileKind::SymbolicLink => "link",
                _ => "other",
            };
            let modified = stat.as_ref().map(|stat| stat.modified / 1_000_000_000);
            entries.push((entry.name, kind, stat.filter(|_| kind == "file").map(|stat| stat.size), modified));
        }
    }
}
