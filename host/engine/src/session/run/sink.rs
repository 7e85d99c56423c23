//! Destination of a cell's text besides its events: none while a result shows it whole, else an artifact.
//!
//! Writing happens on another thread, one batch at a time. Meanwhile the next batch gathers. A run whose disk is slower than
//! its guest waits, and with it the guest.

use cellar_core::{
    event::{EventKind, KeptText, background_lines},
    text::prefix,
};
use cellar_results::{
    artifacts::{Artifact, ArtifactError, ArtifactWriter, Description},
    result::OutputPolicy,
};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::session::Session;

/// Bytes that are written at once.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that may wait to be written.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Gathers the text of a cell, or of all cells of a run, and writes what a result may not show whole.
#[derive(Debug)]
pub(super) struct Sink {
    session: Session,
    policy: OutputPolicy,
    /// Text that was not written yet.
    waiting: String,
    /// Bytes and line ends seen.
    bytes: u64,
    newlines: u64,
    ends_line: bool,
    clear_is_due: bool,
    /// True if a value has more characters than a result shows of it.
    has_cut_value: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was written yet.
    Unopened,
    Open(Box<Spill>),
    Busy(JoinHandle<Result<Box<Spill>, ArtifactError>>),
    /// It could not be kept.
    Failed,
}

#[derive(Debug)]
struct Spill {
    writer: ArtifactWriter,
    /// True if the artifact was full and text was left out.
    is_full: bool,
    /// True for a temporary store: references to its artifacts must include the path.
    is_temporary: bool,
}

impl Sink {
    pub(super) fn new(session: &Session) -> Sink {
        Sink {
            policy: session.output_policy(),
            session: session.clone(),
            waiting: String::new(),
            bytes: 0,
            newlines: 0,
            ends_line: true,
            clear_is_due: false,
            has_cut_value: false,
            state: State::Unopened,
        }
    }

    /// Takes in the text of an event, as a result would show it.
    pub(super) fn add(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } => self.push(text),
            EventKind::Background { cell, text, left_out, .. } => {
                self.push_lines(&background_lines(*cell, text, *left_out));
            }
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => {
                if let Some(text) = data.visible_text() {
                    self.has_cut_value |= data.is_cut();
                    self.push_lines(text);
                } else if self.clear_is_due {
                    self.clear(false);
                }
            }
            _ => {}
        }
    }

    /// Adds `text` as lines of its own.
    pub(super) fn push_lines(&mut self, text: &str) {
        if !self.ends_line && !self.clear_is_due {
            self.push("\n");
        }
        self.push(text);
        if !text.ends_with('\n') {
            self.push("\n");
        }
    }

    fn push(&mut self, text: &str) {
        if self.clear_is_due {
            self.clear(false);
        }
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        self.newlines = self.newlines.saturating_add(text.bytes().filter(|byte| *byte == b'\n').count() as u64);
        self.ends_line = text.ends_with('\n');
        if !matches!(self.state, State::Failed) && !self.session.answers_a_call() {
            self.waiting.push_str(text);
        }
    }

    /// Begins again, at once or with the next text.
    pub(super) fn clear(&mut self, wait: bool) {
        self.clear_is_due = wait;
        if !wait {
            *self = Sink::new(&self.session);
        }
    }

    /// Waits until the buffer has capacity for more text.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call still waits for a batch that is being written.
    pub(super) async fn room(&mut self) {
        while self.waiting.len() >= BATCH_BYTES {
            match &mut self.state {
                State::Busy(job) => {
                    if self.waiting.len() < WAITING_BYTES_MAX && !job.is_finished() {
                        return;
                    }
                    let written = job.await;
                    self.state = self.opened(written.map_err(std::io::Error::from));
                }
                State::Failed => self.waiting = String::new(),
                State::Unopened | State::Open(_) => self.write(),
            }
        }
    }

    /// Finishes the artifact and returns it once it is stored; `None` if a result shows all text, or if it could not be written.
    pub(super) async fn end(&mut self) -> Option<KeptText> {
        let lines = self.newlines.saturating_add(u64::from(!self.ends_line));
        if !self.has_cut_value && !self.policy.may_cut(self.bytes, lines) {
            return None;
        }
        if let State::Busy(job) = &mut self.state {
            let written = job.await;
            self.state = self.opened(written.map_err(std::io::Error::from));
        }
        let spill = match std::mem::replace(&mut self.state, State::Failed) {
            State::Unopened => None,
            State::Open(spill) => Some(spill),
            State::Busy(_) | State::Failed => return None,
        };
        let (session, text) = (self.session.clone(), std::mem::take(&mut self.waiting));
        let sealed = spawn_blocking(move || {
            let spill = Spill::write(spill, &session, &text)?;
            let (is_complete, is_temporary) = (!spill.is_full, spill.is_temporary);
            let description = Description { mime_type: "text/plain", title: Some("output") };
            let artifact: Artifact = spill.writer.finish(description)?;
            let path = is_temporary.then_some(artifact.path);
            Ok(KeptText { id: artifact.id, bytes: artifact.size_bytes, is_complete, path })
        });
        self.checked(sealed.await.map_err(std::io::Error::from))
    }

    /// Begins to write what waits.
    fn write(&mut self) {
        let spill = match std::mem::replace(&mut self.state, State::Failed) {
            State::Open(spill) => Some(spill),
            _ => None,
        };
        let (session, text) = (self.session.clone(), std::mem::take(&mut self.waiting));
        self.state = State::Busy(spawn_blocking(move || Spill::write(spill, &session, &text)));
    }

    fn opened(&self, written: std::io::Result<Result<Box<Spill>, ArtifactError>>) -> State {
        self.checked(written).map_or(State::Failed, State::Open)
    }

    /// A text that cannot be kept is cut all the same; the host's log says why.
    fn checked<T>(&self, done: std::io::Result<Result<T, ArtifactError>>) -> Option<T> {
        let error: Box<dyn std::error::Error> = match done {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => Box::new(error),
            Err(error) => Box::new(error),
        };
        tracing::warn!(session = self.session.id(), error, "a long output cannot be kept");
        None
    }
}

impl Spill {
    fn write(spill: Option<Box<Spill>>, session: &Session, text: &str) -> Result<Box<Spill>, ArtifactError> {
        let mut spill = match spill {
            Some(spill) => spill,
            None => {
                let artifacts = session.artifacts()?;
                let is_temporary = artifacts.is_temporary();
                Box::new(Spill { writer: artifacts.writer()?, is_full: false, is_temporary })
            }
        };
        if !spill.is_full {
            let piece = prefix(text, spill.writer.room());
            spill.is_full = match spill.writer.write(piece.as_bytes()) {
                Ok(()) => piece.len() < text.len(),
                // Something else that is on its way in has taken the room.
                Err(ArtifactError::TooLarge { .. }) => true,
                Err(error) => return Err(error),
            };
        }
        Ok(spill)
    }
}
