//! Questions about a session, which its kernels answer between two steps of their cells.

use cellar_core::{
    cell::Language,
    limits::CODE_BYTES_MAX,
    looks::{Completeness, Completions, Variable},
    mime::MimeBundle,
};

use cellar_stubs::Catalog;

use super::{Command, Session, builtin::catalog};
use crate::{
    contract::error::Error,
    kernel::border::{Answer, Question},
};

impl Session {
    /// The functions that its cells may call, with their types. Waits for the servers that tools are on.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn catalog(&self) -> Catalog {
        catalog(&*self.inner.config.bridges).await
    }

    /// The names that cells of a language have bound, at most [`NAMES_MAX`](cellar_core::limits::NAMES_MAX).
    ///
    /// This, like [`value`](Session::value), [`complete`](Session::complete) and [`inspect`](Session::inspect), looks
    /// into the kernel between two steps of its cells: while a cell awaits it is answered at once, while one computes
    /// it waits for its turn. The user's code may have a say in the answer (`__repr__`, a getter), for
    /// [`LOOK_TIMEOUT`](cellar_core::limits::LOOK_TIMEOUT) at most; what it prints or calls then is dropped. A session with
    /// no kernel of the language gets one.
    ///
    /// # Errors
    /// When the language is not available; `Look` when the answer took too long or was too large, or the kernel died
    /// over it.
    ///
    /// # Cancel safety
    /// Dropping the future takes the question back, unless it is being answered.
    pub async fn variables(&self, language: Language) -> Result<Vec<Variable>, Error> {
        match self.look(language, Question::Variables).await? {
            Answer::Variables(list) => Ok(list),
            _ => Err(no_answer(language)),
        }
    }

    /// One value as a MIME bundle, as `display` would show it; `None` when there is no such name. At most
    /// [`Limits::display_bytes`](cellar_core::limits::Limits::display_bytes). See [`variables`](Session::variables).
    ///
    /// # Errors
    /// As [`variables`](Session::variables).
    pub async fn value(&self, language: Language, name: &str) -> Result<Option<MimeBundle>, Error> {
        check_code(name)?;
        self.look_for_bundle(language, Question::Value(name.to_owned())).await
    }

    /// Completions of `code` at `cursor`, which counts characters; one beyond the end is the end. See
    /// [`variables`](Session::variables).
    ///
    /// # Errors
    /// As [`variables`](Session::variables), and `Request` for code that is too long.
    pub async fn complete(&self, language: Language, code: &str, cursor: u32) -> Result<Completions, Error> {
        check_code(code)?;
        match self.look(language, Question::Complete(code.to_owned(), cursor)).await? {
            Answer::Completions(list) => Ok(list),
            _ => Err(no_answer(language)),
        }
    }

    /// Checks whether `code` is a complete cell, as a prompt does at the end of a line. Runs none of it. See
    /// [`variables`](Session::variables).
    ///
    /// # Errors
    /// As [`complete`](Session::complete).
    pub async fn is_complete(&self, language: Language, code: &str) -> Result<Completeness, Error> {
        check_code(code)?;
        match self.look(language, Question::IsComplete(code.to_owned())).await? {
            Answer::Completeness(found) => Ok(found),
            _ => Err(no_answer(language)),
        }
    }

    /// Help on what stands at `cursor`, which counts characters; `None` when there is nothing to say. See
    /// [`variables`](Session::variables).
    ///
    /// # Errors
    /// As [`complete`](Session::complete).
    pub async fn inspect(&self, language: Language, code: &str, cursor: u32) -> Result<Option<MimeBundle>, Error> {
        check_code(code)?;
        self.look_for_bundle(language, Question::Inspect(code.to_owned(), cursor)).await
    }

    async fn look_for_bundle(&self, language: Language, question: Question) -> Result<Option<MimeBundle>, Error> {
        match self.look(language, question).await? {
            Answer::Bundle(Some(bundle)) => Ok(Some(self.rendered(bundle).await)),
            Answer::Bundle(None) => Ok(None),
            _ => Err(no_answer(language)),
        }
    }

    async fn look(&self, language: Language, question: Question) -> Result<Answer, Error> {
        let answer = self.ask(language, |reply| Command::Look(question, reply)).await?;
        answer.map_err(|reason| Error::Look { language, reason })
    }
}

fn check_code(code: &str) -> Result<(), Error> {
    let size = code.len();
    if size <= CODE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Request(format!("{size} bytes of code cannot be looked at, at most {CODE_BYTES_MAX} are allowed")))
}

/// Error for a kernel that went away before it answered.
pub(super) fn no_answer(language: Language) -> Error {
    Error::Look { language, reason: "its kernel went away before it answered".to_owned() }
}
