//! Output of code of a session while none of its cells runs: timers, tasks, promises that nobody awaits. It waits for the session's
//! next cell, in bounded memory, and its text is sent at once to listeners.

use std::{collections::VecDeque, sync::Mutex};

use cellar_core::{
    cell::CellId,
    event::EventKind,
    limits::{BACKGROUND_BYTES_MAX, BACKGROUND_DISPLAYS_BYTES_MAX, BACKGROUND_HEARD_MAX},
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

/// Output that waits for the next cell.
#[derive(Debug)]
pub(crate) enum Late {
    Text(Background),
    /// A display of code that this cell began, and bytes of text before it that are not kept.
    Display {
        cell: CellId,
        event: EventKind,
        left_out: u64,
    },
}

impl Late {
    /// Returns the events by which the cell at `index` of a run tells of it: of a display, its writer first.
    pub(crate) fn events(self, index: usize) -> [Option<EventKind>; 2] {
        let text = |Background { cell, is_stderr, text, left_out }| EventKind::Background {
            index,
            cell,
            is_stderr,
            text,
            left_out,
        };
        let (cell, event, left_out) = match self {
            Late::Text(told) => return [Some(text(told)), None],
            Late::Display { cell, event, left_out } => (cell, event, left_out),
        };
        let mark = text(Background { cell, is_stderr: false, text: String::new(), left_out });
        let display = match event {
            EventKind::Display { data, display_id, is_value, .. } => {
                EventKind::Display { index, data, display_id, is_value }
            }
            EventKind::UpdateDisplay { data, display_id, .. } => EventKind::UpdateDisplay { index, data, display_id },
            other => other,
        };
        [Some(mark), Some(display)]
    }
}

/// Output of a session's code between cells.
#[derive(Debug)]
pub(crate) struct Backlog {
    held: Mutex<Held>,
    heard: broadcast::Sender<Background>,
}

#[derive(Debug, Default)]
struct Held {
    entries: VecDeque<Late>,
    /// Bytes of its texts, and of its displays.
    bytes: usize,
    display_bytes: usize,
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

    /// Tells listeners of a text that is in the events of a run.
    pub(crate) fn announce(&self, cell: u32, is_stderr: bool, text: &str) {
        let text = prefix(text, BACKGROUND_BYTES_MAX as u64).to_owned();
        let _ = self.heard.send(Background { cell: CellId(cell), is_stderr, text, left_out: 0 });
    }

    /// Takes in a display. One that is only text is text, and so is one that is too large.
    pub(crate) fn display(&self, cell: u32, event: EventKind) {
        let (EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. }) = &event else { return };
        let text = data.shown_text().map(|text| format!("{text}\n"));
        let bytes = data.weight_bytes();
        if !data.is_structured() {
            return self.write(cell, false, &text.unwrap_or_default());
        }
        if bytes > BACKGROUND_DISPLAYS_BYTES_MAX {
            let limit = BACKGROUND_DISPLAYS_BYTES_MAX;
            let note = format!("a display of {bytes} bytes was left out; between cells at most {limit} are kept\n");
            return self.write(cell, true, &note);
        }
        if let Some(text) = text {
            self.announce(cell, false, &text);
        }
        lock(&self.held).push_display(CellId(cell), event, bytes);
    }

    /// Takes the output since the last call.
    pub(crate) fn take(&self) -> Vec<Late> {
        let mut held = std::mem::take(&mut *lock(&self.held));
        if let Some(Late::Text(Background { left_out, .. }) | Late::Display { left_out, .. }) = held.entries.front_mut()
        {
            *left_out = held.left_out;
        }
        held.entries.into()
    }

    /// Subscribes to text that is written from now on.
    pub(crate) fn listen(&self) -> BackgroundReader {
        BackgroundReader(self.heard.subscribe())
    }
}

impl Held {
    fn push(&mut self, text: Background) {
        self.bytes = self.bytes.saturating_add(text.text.len());
        match self.entries.back_mut() {
            Some(Late::Text(last))
                if (last.cell, last.is_stderr) == (text.cell, text.is_stderr) && self.bytes <= BACKGROUND_BYTES_MAX =>
            {
                last.text.push_str(&text.text);
            }
            _ => self.entries.push_back(Late::Text(text)),
        }
        self.make_room();
    }

    fn push_display(&mut self, cell: CellId, event: EventKind, bytes: usize) {
        self.display_bytes = self.display_bytes.saturating_add(bytes);
        self.entries.push_back(Late::Display { cell, event, left_out: 0 });
        self.make_room();
    }

    /// Drops the oldest until all is within the bounds.
    fn make_room(&mut self) {
        while self.bytes > BACKGROUND_BYTES_MAX
            || self.display_bytes > BACKGROUND_DISPLAYS_BYTES_MAX
            || self.entries.len() > BACKGROUND_HEARD_MAX
        {
            let Some(first) = self.entries.pop_front() else { break };
            let (bytes, sum) = match first {
                Late::Text(text) => (text.text.len(), &mut self.bytes),
                Late::Display { event, .. } => match event {
                    EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => {
                        (data.weight_bytes(), &mut self.display_bytes)
                    }
                    _ => continue,
                },
            };
            *sum = sum.saturating_sub(bytes);
            self.left_out = self.left_out.saturating_add(bytes as u64);
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
    use cellar_core::mime::{MimeBundle, MimeData};

    use super::*;

    fn texts(backlog: &Backlog) -> Vec<Background> {
        let text = |late| match late {
            Late::Text(text) => text,
            Late::Display { .. } => panic!("a text"),
        };
        backlog.take().into_iter().map(text).collect()
    }

    fn picture(bytes: usize) -> EventKind {
        let data = MimeBundle(vec![("image/png".to_owned(), MimeData::Binary(vec![0; bytes]))]);
        EventKind::Display { index: 0, data, display_id: None, is_value: false }
    }

    #[test]
    fn displays_are_kept_within_their_own_bound() {
        let backlog = Backlog::default();
        backlog.write(1, false, "before");
        for _ in 0..3 {
            backlog.display(1, picture(BACKGROUND_DISPLAYS_BYTES_MAX / 2 - 9));
        }
        let told = backlog.take();
        let is_display = |late: &Late| matches!(late, Late::Display { .. });
        assert!(told.len() == 2 && told.iter().all(is_display), "{}", told.len());
        let Late::Display { left_out, .. } = told[0] else { panic!("a display") };
        assert_eq!(left_out, 6 + BACKGROUND_DISPLAYS_BYTES_MAX as u64 / 2);
        backlog.display(1, picture(BACKGROUND_DISPLAYS_BYTES_MAX + 1));
        assert!(texts(&backlog)[0].text.contains("was left out"));
    }

    #[test]
    fn texts_are_joined_and_the_oldest_go_and_are_counted() {
        let backlog = Backlog::default();
        backlog.write(1, false, "a");
        backlog.write(1, false, "b");
        backlog.write(2, true, "c");
        let told: Vec<_> = texts(&backlog).into_iter().map(|each| (each.cell.0, each.is_stderr, each.text)).collect();
        assert_eq!(told, [(1, false, "ab".to_owned()), (2, true, "c".to_owned())]);
        assert!(backlog.take().is_empty());
        backlog.write(1, false, &"x".repeat(BACKGROUND_BYTES_MAX));
        backlog.write(2, false, "last");
        let told = texts(&backlog);
        assert_eq!((told.len(), told[0].text.as_str(), told[0].left_out), (1, "last", BACKGROUND_BYTES_MAX as u64));
        for cell in 0..10 * BACKGROUND_HEARD_MAX as u32 {
            backlog.write(cell, false, "x");
        }
        assert_eq!(backlog.take().len(), BACKGROUND_HEARD_MAX);
    }
}
