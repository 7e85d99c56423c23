//! Text that code of a session writes while none of its cells runs: timers, tasks, promises that nobody awaits. It waits for the session's
//! next cell, in bounded memory, and is sent at once to listeners.

use std::{collections::VecDeque, sync::Mutex};

use cellar_core::{
    cell::CellId,
    limits::{BACKGROUND_BYTES_MAX, BACKGROUND_HEARD_MAX},
    sync::lock,
    text::prefix,
};
use tokio::sync::broadcast;

/// Text that was written between cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Background {
    /// The cell that began what has written it; 0 when that is not known.
    pub cell: CellId,
    /// True if the text went to standard error.
    pub is_stderr: bool,
    /// Text that was written.
    pub text: String,
    /// Bytes before it that are not kept.
    pub left_out: u64,
}

/// Texts that a session's code has written between cells.
#[derive(Debug)]
pub(crate) struct Backlog {
    held: Mutex<Held>,
    heard: broadcast::Sender<Background>,
}

#[derive(Debug, Default)]
struct Held {
    texts: VecDeque<Background>,
    bytes: usize,
    /// Bytes of the texts that were dropped to make room.
    left_out: u64,
}

impl Default for Backlog {
    fn default() -> Backlog {
        Backlog { held: Mutex::default(), heard: broadcast::Sender::new(BACKGROUND_HEARD_MAX) }
    }
}

impl Backlog {
    /// Takes in a text. The oldest go when there is no room.
    pub(crate) fn write(&self, cell: u32, is_stderr: bool, text: &str) {
        let mut rest = text;
        let mut held = lock(&self.held);
        while !rest.is_empty() {
            let piece = prefix(rest, BACKGROUND_BYTES_MAX as u64);
            rest = &rest[piece.len()..];
            let background = Background { cell: CellId(cell), is_stderr, text: piece.to_owned(), left_out: 0 };
            // It fails when nobody listens.
            let _ = self.heard.send(background.clone());
            held.push(background);
        }
    }

    /// Takes the texts that were written since the last call.
    pub(crate) fn take(&self) -> Vec<Background> {
        let mut held = std::mem::take(&mut *lock(&self.held));
        if let Some(first) = held.texts.front_mut() {
            first.left_out = held.left_out;
        }
        held.texts.into()
    }

    /// Subscribes to text that is written from now on.
    pub(crate) fn listen(&self) -> BackgroundReader {
        BackgroundReader(self.heard.subscribe())
    }
}

impl Held {
    fn push(&mut self, text: Background) {
        self.bytes = self.bytes.saturating_add(text.text.len());
        match self.texts.back_mut() {
            Some(last)
                if (last.cell, last.is_stderr) == (text.cell, text.is_stderr) && self.bytes <= BACKGROUND_BYTES_MAX =>
            {
                last.text.push_str(&text.text);
            }
            _ => self.texts.push_back(text),
        }
        while self.bytes > BACKGROUND_BYTES_MAX || self.texts.len() > BACKGROUND_HEARD_MAX {
            let Some(first) = self.texts.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(first.text.len());
            self.left_out = self.left_out.saturating_add(first.text.len() as u64);
        }
    }
}

/// Reader of what code of a session writes while none of its cells runs; see [`Session::background`](crate::Session::background).
#[derive(Debug)]
pub struct BackgroundReader(broadcast::Receiver<Background>);

impl BackgroundReader {
    /// Returns the next text; `None` when the session has ended. A reader that lags misses the oldest texts, which the session's next cell
    /// still gets.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Background> {
        loop {
            match self.0.recv().await {
                Ok(text) => return Some(text),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_joined_and_the_oldest_go_and_are_counted() {
        let backlog = Backlog::default();
        backlog.write(1, false, "a");
        backlog.write(1, false, "b");
        backlog.write(2, true, "c");
        let told: Vec<_> = backlog.take().into_iter().map(|each| (each.cell.0, each.is_stderr, each.text)).collect();
        assert_eq!(told, [(1, false, "ab".to_owned()), (2, true, "c".to_owned())]);
        assert!(backlog.take().is_empty());
        backlog.write(1, false, &"x".repeat(BACKGROUND_BYTES_MAX));
        backlog.write(2, false, "last");
        let told = backlog.take();
        assert_eq!((told.len(), told[0].text.as_str(), told[0].left_out), (1, "last", BACKGROUND_BYTES_MAX as u64));
        for cell in 0..10 * BACKGROUND_HEARD_MAX as u32 {
            backlog.write(cell, false, "x");
        }
        assert_eq!(backlog.take().len(), BACKGROUND_HEARD_MAX);
    }
}
