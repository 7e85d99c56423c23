//! Where the text of a cell goes besides its events: nowhere while a result shows it whole, else into an artifact.
//!
//! Writing happens on another thread, one batch at a time. While a batch is under way another one gathers; a run whose
//! disk is slower than its guest waits, and with it the guest.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    artifacts::{Artifact, ArtifactError, ArtifactWriter, Description},
    event::{EventKind, KeptText},
    result::OutputPolicy,
    session::Session,
};

/// Bytes that are written at once.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that may wait to be written.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// See the module's documentation.
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
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was written yet.
    Unopened,
    Open(Box<Spill>),
    Busy(JoinHandle<Result<Box<Spill>, ArtifactError>>),
    Sealing(JoinHandle<Result<KeptText, ArtifactError>>),
    /// It could not be kept.
    Failed,
}

#[derive(Debug)]
struct Spill {
    writer: ArtifactWriter,
    /// What did not fit was left out.
    is_full: bool,
    /// Whoever is told of it must be told where it is.
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
            state: State::Unopened,
        }
    }

    /// Takes in the text of an event, as a result would show it.
    pub(super) fn add(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } => self.push(text),
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => {
                if let Some(text) = data.visible_text() {
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
        self.bytes += text.len() as u64;
        self.newlines += text.bytes().filter(|byte| *byte == b'\n').count() as u64;
        self.ends_line = text.ends_with('\n');
        if !matches!(self.state, State::Failed) {
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

    /// Ready when there is room for more.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.waiting.len() >= BATCH_BYTES {
            match std::mem::replace(&mut self.state, State::Failed) {
                State::Unopened => self.write(None),
                State::Open(spill) => self.write(Some(spill)),
                State::Busy(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Ready(written) => self.state = self.opened(written.map_err(std::io::Error::from)),
                    Poll::Pending => {
                        self.state = State::Busy(job);
                        return if self.waiting.len() < WAITING_BYTES_MAX { Poll::Ready(()) } else { Poll::Pending };
                    }
                },
                state @ State::Sealing(_) => {
                    self.state = state;
                    return Poll::Ready(());
                }
                State::Failed => self.waiting = String::new(),
            }
        }
        Poll::Ready(())
    }

    /// What was kept, once it is safely there; nothing where a result shows it all.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<KeptText>> {
        let lines = self.newlines + u64::from(!self.ends_line);
        if !self.policy.may_cut(self.bytes, lines) {
            return Poll::Ready(None);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Failed) {
                State::Unopened => self.seal(None),
                State::Open(spill) => self.seal(Some(spill)),
                State::Busy(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Ready(written) => self.state = self.opened(written.map_err(std::io::Error::from)),
                    Poll::Pending => {
                        self.state = State::Busy(job);
                        return Poll::Pending;
                    }
                },
                State::Sealing(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Ready(sealed) => {
                        let sealed = sealed.map_err(std::io::Error::from);
                        return Poll::Ready(self.checked(sealed));
                    }
                    Poll::Pending => {
                        self.state = State::Sealing(job);
                        return Poll::Pending;
                    }
                },
                State::Failed => return Poll::Ready(None),
            }
        }
    }

    fn write(&mut self, spill: Option<Box<Spill>>) {
        let (session, text) = (self.session.clone(), std::mem::take(&mut self.waiting));
        self.state = State::Busy(spawn_blocking(move || Spill::write(spill, &session, &text)));
    }

    fn seal(&mut self, spill: Option<Box<Spill>>) {
        let (session, text) = (self.session.clone(), std::mem::take(&mut self.waiting));
        self.state = State::Sealing(spawn_blocking(move || {
            let spill = Spill::write(spill, &session, &text)?;
            let (is_complete, is_temporary) = (!spill.is_full, spill.is_temporary);
            let description = Description { session: session.id(), mime_type: "text/plain", title: Some("output") };
            let artifact: Artifact = spill.writer.finish(description)?;
            let path = is_temporary.then_some(artifact.path);
            Ok(KeptText { id: artifact.id, bytes: artifact.size_bytes, is_complete, path })
        }));
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
                let store = session.artifacts()?;
                let is_temporary = store.is_temporary();
                Box::new(Spill { writer: store.writer()?, is_full: false, is_temporary })
            }
        };
        if !spill.is_full {
            let piece = crate::outcome::prefix(text, spill.writer.room());
            spill.writer.write(piece.as_bytes())?;
            spill.is_full = piece.len() < text.len();
        }
        Ok(spill)
    }
}
