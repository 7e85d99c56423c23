//! Answers to the requests of cells for input.

use cellar_core::limits::CALL_BYTES_MAX;

use super::Session;
use crate::contract::{
    bridge::{Call, CallError, CallErrorKind, denied},
    error::Error,
};

impl Session {
    /// Answers a request for input, which a run told of by an `InputRequest` event: with a line, without its end.
    ///
    /// # Errors
    /// `InputRequest` when it is not open any more: answered, timed out, or its cell has ended; `Request` when the
    /// line is too long.
    pub fn submit_input(&self, request_id: &str, line: String) -> Result<(), Error> {
        if line.len() > CALL_BYTES_MAX {
            let message = format!("a line of input has at most {CALL_BYTES_MAX} bytes, not {}", line.len());
            return Err(Error::Request(message));
        }
        self.answer_input(request_id, Ok(line))
    }

    /// Tells the cell that asked that there is no more input: the end of the file, as its language has it.
    ///
    /// # Errors
    /// `InputRequest` when the request is not open any more.
    pub fn end_input(&self, request_id: &str) -> Result<(), Error> {
        let end = CallError::new(CallErrorKind::Failed, "EOF when reading a line");
        self.answer_input(request_id, Err(end))
    }

    /// Refuses a request for input: the cell gets the same error as in a session without input.
    ///
    /// # Errors
    /// `InputRequest` when the request is not open any more.
    pub fn refuse_input(&self, request_id: &str) -> Result<(), Error> {
        self.answer_input(request_id, Err(denied(&Call::Input { prompt: String::new() })))
    }

    fn answer_input(&self, request_id: &str, answer: Result<String, CallError>) -> Result<(), Error> {
        let answered = self.inner.cells.input.answer(request_id, answer);
        if answered { Ok(()) } else { Err(Error::InputRequest(request_id.to_owned())) }
    }
}
