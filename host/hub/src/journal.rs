//! The latest events of a run, in bounded memory.

use std::{collections::VecDeque, sync::Arc};

use cellar_engine::{Event, EventKind, config::UnreadBytes};

use crate::journals::Account;

/// Events that a journal keeps of a run.
pub const JOURNAL_EVENTS_MAX: usize = 10_000;
/// Bytes of the events that a journal keeps of a run, but for a last one that alone has more. Fewer where many runs are under
/// way, or kept; see [`Journals`](crate::Journals).
pub const JOURNAL_BYTES_MAX: usize = 16 << 20;
/// Bytes that a journal may keep however many runs are under way, as long as all journals together stay within their
/// bound.
pub(crate) const JOURNAL_BYTES_LEAST: usize = 256 << 10;

/// Bytes of a representation of a display that a journal keeps for later readers when it is short of room.
pub(crate) const INLINE_BYTES_MAX: usize = 64 << 10;

/// Bytes of displays that are stored elsewhere for the later readers of a run.
pub(crate) const ELSEWHERE_BYTES_MAX: usize = 64 << 20;

/// The latest events of a run. Their numbers follow one another, and the first that is kept may not be the first of the
/// run.
#[derive(Debug)]
pub struct Journal {
    events: VecDeque<Arc<Event>>,
    /// Unread bytes of events that the owner has not read yet, by event number.
    unread: VecDeque<(u64, UnreadBytes)>,
    /// Number of the first event that is kept.
    first: u64,
    bytes: usize,
    is_ended: bool,
    /// Account that counts the bytes.
    account: Account,
}

/// Result of a look-up of an event by its number.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The event.
    Event(Arc<Event>),
    /// It is not kept any more. The first that is has this number.
    Gone(u64),
    /// It has not happened yet.
    NotYet,
    /// The run ended before it.
    End,
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.account.take(self.bytes);
    }
}

impl Journal {
    pub(crate) fn new(account: Account) -> Journal {
        Journal { events: VecDeque::new(), unread: VecDeque::new(), first: 0, bytes: 0, is_ended: false, account }
    }

    /// Keeps the unread bytes of the next event until its owner has [read](Journal::read) it.
    pub(crate) fn owe(&mut self, unread: UnreadBytes) {
        if unread.size_bytes() > 0 {
            self.unread.push_back((self.next_seq(), unread));
        }
    }

    /// Notes that the owner has read all events before this one, or that there is no owner (`u64::MAX`); releases their
    /// unread bytes.
    pub(crate) fn read(&mut self, until: u64) {
        let read = self.unread.iter().take_while(|(seq, _)| *seq < until).count();
        self.unread.drain(..read);
    }

    /// Adds the next event. [`Journal::trim`] makes room again.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.count(size_of_event(&event), 0);
        self.is_ended |= matches!(event.kind, EventKind::RunFinished { .. });
        self.events.push_back(event);
    }

    /// Returns the oldest large display before `keep_from` while the journal exceeds `bytes_max`: it is to be stored
    /// elsewhere and [replaced](Journal::replace).
    pub(crate) fn oldest_large(&self, keep_from: u64, bytes_max: usize) -> Option<Arc<Event>> {
        let before = usize::try_from(keep_from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if self.bytes <= bytes_max {
            return None;
        }
        self.events.iter().take(before).find(|event| is_large(event)).cloned()
    }

    /// Replaces the event of the same number.
    pub(crate) fn replace(&mut self, event: Arc<Event>) {
        let place = event.seq.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(held) = place.and_then(|place| self.events.get_mut(place)) {
            let (came, gone) = (size_of_event(&event), size_of_event(held));
            *held = event;
            self.count(came, gone);
        }
    }

    fn count(&mut self, came: usize, gone: usize) {
        self.bytes = self.bytes.saturating_add(came).saturating_sub(gone);
        self.account.add(came);
        self.account.take(gone);
    }

    /// Evicts the oldest events before `keep_from` while the journal has more events or bytes than it may; keeps at
    /// least one.
    pub(crate) fn trim(&mut self, keep_from: u64, bytes_max: usize) {
        while self.events.len() > 1 && self.first < keep_from && self.is_full(bytes_max) {
            let Some(gone) = self.events.pop_front() else { break };
            self.count(0, size_of_event(&gone));
            self.first = self.first.saturating_add(1);
        }
    }

    /// Returns true if it keeps more events or bytes than it may.
    fn is_full(&self, bytes_max: usize) -> bool {
        self.events.len() > JOURNAL_EVENTS_MAX || self.bytes > bytes_max
    }

    /// Returns true if the run has ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Number of the next event.
    pub fn next_seq(&self) -> u64 {
        self.first.saturating_add(self.events.len() as u64)
    }

    /// Bytes of what is kept.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn at(&self, seq: u64) -> Found {
        let Some(place) = seq.checked_sub(self.first) else { return Found::Gone(self.first) };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match self.events.get(place) {
            Some(event) => Found::Event(event.clone()),
            None if self.is_ended => Found::End,
            None => Found::NotYet,
        }
    }
}

/// Returns true if an event is a display with a representation that is too large to keep in the journal.
fn is_large(event: &Event) -> bool {
    match &event.kind {
        EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => {
            data.0.iter().any(|(_, data)| data.len() > INLINE_BYTES_MAX)
        }
        _ => false,
    }
}

/// Bytes that an event takes, roughly.
fn size_of_event(event: &Event) -> usize {
    const BASE: usize = size_of::<Event>();
    /// Allowance for names, numbers and the like.
    const WORDS: usize = 256;
    let bytes = match &event.kind {
        EventKind::RunStarted { cells, .. } => cells.iter().map(|cell| cell.code.len()).sum(),
        kind => kind.size_bytes(),
    };
    bytes.saturating_add(BASE).saturating_add(WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journals;

    fn event(seq: u64, bytes: usize) -> Arc<Event> {
        Arc::new(Event { seq, kind: EventKind::Stdout { index: 0, text: "x".repeat(bytes) } })
    }

    fn end(seq: u64) -> Arc<Event> {
        Arc::new(Event { seq, kind: EventKind::RunFinished { is_error: false, kept: None } })
    }

    fn push(journal: &mut Journal, event: Arc<Event>, keep_from: u64) {
        journal.push(event);
        journal.trim(keep_from, JOURNAL_BYTES_MAX);
    }

    #[test]
    fn the_oldest_events_go_and_are_told_of() {
        let mut journal = Journal::new(Journals::default().account());
        for seq in 0..JOURNAL_EVENTS_MAX as u64 + 10 {
            push(&mut journal, event(seq, 1), u64::MAX);
        }
        assert!(matches!(journal.at(3), Found::Gone(10)));
        assert!(matches!(journal.at(10), Found::Event(found) if found.seq == 10));
        assert!(matches!(journal.at(JOURNAL_EVENTS_MAX as u64 + 10), Found::NotYet));
        push(&mut journal, end(JOURNAL_EVENTS_MAX as u64 + 10), u64::MAX);
        assert!(matches!(journal.at(JOURNAL_EVENTS_MAX as u64 + 11), Found::End));
    }

    #[test]
    fn bytes_are_bounded_and_what_is_owed_stays() {
        let mut journal = Journal::new(Journals::default().account());
        for seq in 0..100 {
            push(&mut journal, event(seq, 1 << 20), u64::MAX);
        }
        assert!(journal.size_bytes() <= JOURNAL_BYTES_MAX);
        let owed = journal.next_seq();
        for seq in owed..owed + 100 {
            push(&mut journal, event(seq, 1 << 20), owed);
        }
        assert!(matches!(journal.at(owed), Found::Event(_)), "the owner has not read it");
    }
}
