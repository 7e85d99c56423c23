//! Delivery of what tasks of the engine have come to, to the thread of the event loop.

use std::sync::Arc;

use cellar_embed::{EmbedError, FileError};
use napi::{
    Status,
    bindgen_prelude::{Buffer, Either, FnArgs},
    threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode},
};

/// A value: text, which is JSON, or bytes.
pub(crate) type Value = Either<String, Buffer>;

/// Ticket, value, and an error as JSON.
type Delivery = FnArgs<(u32, Option<Value>, Option<String>)>;

/// Function of the package that takes deliveries. It does not keep the event loop alive, and waits for nothing.
pub(crate) type Callback = ThreadsafeFunction<Delivery, (), Delivery, Status, false, true>;

/// Deliverer for the event loop of one thread.
#[derive(Clone)]
pub(crate) struct Deliver(pub(crate) Arc<Callback>);

impl Deliver {
    /// Delivers a value by its ticket. An event loop that has ended takes none.
    pub(crate) fn value(&self, ticket: u32, value: Option<Value>) {
        self.0.call(FnArgs::from((ticket, value, None)), ThreadsafeFunctionCallMode::NonBlocking);
    }

    /// Delivers lines of JSON, or that there will be none.
    pub(crate) fn line(&self, ticket: u32, line: Option<Vec<u8>>) {
        self.value(ticket, line.map(|line| Either::A(text(line))));
    }

    /// Delivers an end.
    pub(crate) fn end(&self, ticket: u32, end: Result<Option<Value>, Failure>) {
        match end {
            Ok(value) => self.value(ticket, value),
            Err(Failure(error)) => {
                self.0.call(FnArgs::from((ticket, None, Some(error))), ThreadsafeFunctionCallMode::NonBlocking);
            }
        }
    }
}

/// Makes text of a line, which is UTF-8 already.
pub(crate) fn text(line: Vec<u8>) -> String {
    String::from_utf8(line).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// An error as JSON: its code, its message and a hint.
pub(crate) struct Failure(String);

impl From<EmbedError> for Failure {
    fn from(EmbedError { code, message, hint }: EmbedError) -> Failure {
        Failure(serde_json::json!({ "code": code, "message": message, "hint": hint }).to_string())
    }
}

impl Failure {
    /// An error of the files of a session.
    pub(crate) fn of_file(error: FileError, path: &str) -> Failure {
        EmbedError::new(errno(error), format!("{error}: `{path}`")).into()
    }
}

/// The word that Node has for an error of files.
fn errno(error: FileError) -> &'static str {
    match error {
        FileError::Access => "EACCES",
        FileError::Exists => "EEXIST",
        FileError::FileTooLarge => "EFBIG",
        FileError::Invalid => "EINVAL",
        FileError::IsDirectory => "EISDIR",
        FileError::Loop => "ELOOP",
        FileError::NameTooLong => "ENAMETOOLONG",
        FileError::NotDirectory => "ENOTDIR",
        FileError::NotEmpty => "ENOTEMPTY",
        FileError::NotFound => "ENOENT",
        FileError::NotPermitted | FileError::NotCapable => "EPERM",
        FileError::Quota => "EDQUOT",
        FileError::ReadOnly => "EROFS",
        _ => "EIO",
    }
}
