//! Files of sessions in this process, by their paths in the sandbox.

use cellar_files::{Descriptor, FileError, FileKind, Files as Tree, ListedFile, OpenHow, ROOT};
use pyo3::{
    exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyOSError, PyPermissionError},
    prelude::*,
    types::PyBytes,
};

use crate::state::Local;

/// Bytes of a piece that is read.
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
            files.make_folders(path.rsplit_once('/').unwrap_or_default().0)?;
            let how =
                OpenHow { create: true, truncate: true, write: true, follow_symlinks: true, ..OpenHow::default() };
            let file = files.open(ROOT, path, how)?;
            let written = files.write_all(file, 0, bytes);
            files.close(file)?;
            written.map(drop)
        })
    }

    /// The entries of a folder.
    fn list(&self, py: Python<'_>, session: &str, path: &str) -> PyResult<Vec<Listed>> {
        self.on_files(py, session, path, |files| {
            let how = OpenHow { directory: true, read: true, follow_symlinks: true, ..OpenHow::default() };
            let folder = files.open(ROOT, path, how)?;
            let entries = files.entries(folder);
            files.close(folder)?;
            let listed = |ListedFile { name, kind, size, modified }| (name, kind, size, modified);
            Ok(entries?.into_iter().map(listed).collect())
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
