//! Questions about sessions in this process, and their sleep.

use std::sync::Arc;

use cellar_engine::{Language, Session};
use cellar_hub::Hub;
use pyo3::{exceptions::PyValueError, prelude::*};
use tokio::runtime::Handle;

use crate::{check_process, embed_refused, functions::Functions, refused};

/// Name, type, size and preview of a variable.
type Seen = (String, String, Option<u64>, String);

/// Sessions of a connection that are in this process.
#[derive(Clone)]
pub(crate) struct Local {
    handle: Handle,
    hub: Hub,
    pub(crate) functions: Arc<Functions>,
    process: u32,
}

impl Local {
    pub(crate) fn new(handle: Handle, hub: Hub, functions: Arc<Functions>) -> Local {
        Local { handle, hub, functions, process: std::process::id() }
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(crate) fn session(&self, name: &str) -> PyResult<Session> {
        check_process(self.process)?;
        Ok(self.hub.session(name).map_err(|error| embed_refused(error.into()))?.session)
    }
}

/// State of the sessions of one connection.
#[pyclass(frozen, module = "cellar._cellar")]
pub(crate) struct Sessions(pub(crate) Local);

#[pymethods]
impl Sessions {
    /// The names of a session: each with its type, its size and a preview.
    fn variables(&self, py: Python<'_>, session: &str, language: &str) -> PyResult<Vec<Seen>> {
        let language = language_of(language)?;
        let variables = self.ask(py, session, async move |session| session.variables(language).await)?;
        Ok(variables.into_iter().map(|one| (one.name, one.type_name, one.size, one.preview)).collect())
    }

    /// Completions at a cursor, which is a number of characters.
    fn complete(
        &self,
        py: Python<'_>,
        session: &str,
        language: &str,
        code: String,
        cursor: u32,
    ) -> PyResult<Vec<String>> {
        let language = language_of(language)?;
        let found = self.ask(py, session, async move |session| session.complete(language, &code, cursor).await)?;
        Ok(found.items.into_iter().map(|one| one.text).collect())
    }

    /// Gives the memory of a session back until it is used again; what is kept in a store is on the disk then.
    fn hibernate(&self, py: Python<'_>, session: &str) -> PyResult<()> {
        self.ask(py, session, async |session| session.hibernate().await)
    }

    /// Ends the recording of a session.
    fn end_recording(&self, py: Python<'_>, session: &str) -> PyResult<()> {
        self.ask(py, session, async |session| session.end_recording())
    }
}

impl Sessions {
    /// Asks a session, without the interpreter's lock.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        session: &str,
        question: impl AsyncFnOnce(Session) -> Result<T, cellar_engine::Error> + Send,
    ) -> PyResult<T> {
        let session = self.0.session(session)?;
        let answered = py.detach(|| self.0.handle.block_on(question(session)));
        answered.map_err(|error| refused(error.code(), &error))
    }
}

fn language_of(code: &str) -> PyResult<Language> {
    let found = [Language::Python, Language::JavaScript].into_iter().find(|language| language.code() == code);
    found.ok_or_else(|| PyValueError::new_err(format!("`{code}` is neither `py` nor `js`")))
}
