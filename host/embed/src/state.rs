//! Questions about sessions in this process, and their sleep.

use std::{fmt, sync::Arc};

use cellar_core::looks::Variable;
use cellar_engine::{Language, Session};
use cellar_hub::Hub;

use crate::{EmbedError, functions::Functions};

/// Sessions of a connection that are in this process. A cheap handle.
#[derive(Clone)]
pub struct Local {
    hub: Hub,
    pub(crate) functions: Arc<Functions>,
    process: u32,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("functions", &self.functions).finish_non_exhaustive()
    }
}

impl Local {
    pub(crate) fn new(hub: Hub, functions: Arc<Functions>) -> Local {
        Local { hub, functions, process: std::process::id() }
    }

    /// Returns the session of this name.
    ///
    /// # Errors
    /// There is none, or this process is a child of the one that has it.
    pub fn session(&self, name: &str) -> Result<Session, EmbedError> {
        EmbedError::check_process(self.process)?;
        Ok(self.hub.session(name)?.session)
    }

    /// The names of a session, in a language: `py` or `js`.
    ///
    /// # Errors
    /// There is no such session or language, or its kernel has died.
    pub async fn variables(&self, session: &str, language: &str) -> Result<Vec<Variable>, EmbedError> {
        Ok(self.session(session)?.variables(language_of(language)?).await?)
    }

    /// Completions at a cursor, which is a number of characters.
    ///
    /// # Errors
    /// There is no such session or language, or its kernel has died.
    pub async fn complete(
        &self,
        session: &str,
        language: &str,
        code: &str,
        cursor: u32,
    ) -> Result<Vec<String>, EmbedError> {
        let found = self.session(session)?.complete(language_of(language)?, code, cursor).await?;
        Ok(found.items.into_iter().map(|one| one.text).collect())
    }

    /// Gives the memory of a session back until it is used again; what is kept in a store is on the disk then.
    ///
    /// # Errors
    /// There is no such session, or its state cannot be kept.
    pub async fn hibernate(&self, session: &str) -> Result<(), EmbedError> {
        Ok(self.session(session)?.hibernate().await?)
    }

    /// Ends the recording of a session. Blocks while the disk works.
    ///
    /// # Errors
    /// There is no such session, or the file cannot be written.
    pub fn end_recording(&self, session: &str) -> Result<(), EmbedError> {
        Ok(self.session(session)?.end_recording()?)
    }
}

fn language_of(code: &str) -> Result<Language, EmbedError> {
    let found = [Language::Python, Language::JavaScript].into_iter().find(|language| language.code() == code);
    found.ok_or_else(|| EmbedError::new("usage", format!("`{code}` is neither `py` nor `js`")))
}
