//! Files of sessions in this process, by their paths in the sandbox.

use cellar_embed::{FileError, Files as Tree, ListedFile};
use pyo3::{
    exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyOSError, PyPermissionError},
    prelude::*,
    types::PyBytes,
};

use crate::state::Local;

/// Name, kind, size in bytes and seconds since the Unix epoch of a change.
type Listed = (String, &'static str, Option<u64>, Option<u64>);

/// Files of the sessions of one connection.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Files(pub(crate) Local);

#[pymethods]
impl Files {
    /// The bytes of a file.
    fn read<'py>(&self, py: Python<'py>, session: &str, path: &str) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.on_files(py, session, path, |files| files.read(path))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a file, and makes the folders that it is in.
    fn write(&self, py: Python<'_>, session: &str, path: &str, bytes: &[u8]) -> PyResult<()> {
        self.on_files(py, session, path, |files| files.write(path, bytes))
    }

    /// The entries of a folder.
    fn list(&self, py: Python<'_>, session: &str, path: &str) -> PyResult<Vec<Listed>> {
        let entries = self.on_files(py, session, path, |files| files.list(path))?;
        let listed = |ListedFile { name, kind, size, modified }| (name, kind, size, modified);
        Ok(entries.into_iter().map(listed).collect())
    }

    /// Removes a file, or a folder that is empty.
    fn remove(&self, py: Python<'_>, session: &str, path: &str) -> PyResult<()> {
        self.on_files(py, session, path, |files| files.remove(path))
    }
}

impl Files {
    fn on_files<T: Send>(
        &self,
        py: Python<'_>,
        session: &str,
        path: &str,
        work: impl FnOnce(Tree<'_>) -> Result<T, FileError> + Send,
    ) -> PyResult<T> {
        let session = self.0.session(session)?;
        py.detach(|| work(Tree(&session))).map_err(|error| {
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
