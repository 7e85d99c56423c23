//! Notes that the cells of a session leave for later, and a summary of its past work. They belong to none of its kernels: resets leave
//! them; snapshots and forks have copies.

use std::fmt::Write as _;

use cellar_core::limits::{EXPERIENCES_MAX, REMEMBERED_BYTES_MAX};
use serde::{Deserialize, Serialize};

use super::stranger::bounded;

/// Items of one list of a summary: no more than those that fit when all of them are empty.
const LINES_MAX: usize = REMEMBERED_BYTES_MAX / size_of::<String>();

/// The notes and the summary of a session. A reset leaves them; snapshots and forks have copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The notes, oldest first.
    #[serde(deserialize_with = "bounded::<_, _, EXPERIENCES_MAX>")]
    pub experiences: Vec<Experience>,
    /// Summary of the work up to the last milestone.
    pub summary: Option<Summary>,
    /// The number of the last cell that the summary covers; 0 without one.
    pub covered: u32,
    /// Number of notes that were ever added.
    count: u32,
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experience {
    /// `exp_1` and so on; never used again.
    pub id: String,
    /// Lesson that was learnt.
    pub text: String,
}

/// Summary of the work up to a milestone, in the place of its details.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of the call in the cell")]
pub struct Summary {
    pub goal: String,
    pub instruction: String,
    #[serde(deserialize_with = "bounded::<_, _, LINES_MAX>")]
    pub discoveries: Vec<String>,
    #[serde(deserialize_with = "bounded::<_, _, LINES_MAX>")]
    pub completed: Vec<String>,
    pub current_status: String,
    #[serde(deserialize_with = "bounded::<_, _, LINES_MAX>")]
    pub likely_next_work: Vec<String>,
    #[serde(deserialize_with = "bounded::<_, _, LINES_MAX>")]
    pub relevant_files_directories: Vec<String>,
}

impl Remembered {
    /// Adds a note.
    ///
    /// # Errors
    /// When there are too many, or too much is in them, in words.
    pub(crate) fn remember(&mut self, text: String) -> Result<&Experience, String> {
        if self.experiences.len() >= EXPERIENCES_MAX {
            return Err(format!("{EXPERIENCES_MAX} experiences are remembered already; forget some first"));
        }
        self.check_room(text.len())?;
        // A snapshot may say any number.
        self.count = self.count.wrapping_add(1);
        let place = self.experiences.len();
        self.experiences.push(Experience { id: format!("exp_{}", self.count), text });
        Ok(&self.experiences[place])
    }

    /// Drops a note. Returns true if there was one.
    pub(crate) fn forget(&mut self, id: &str) -> bool {
        let before = self.experiences.len();
        self.experiences.retain(|experience| experience.id != id);
        self.experiences.len() < before
    }

    /// Sums up all up to a cell, and adds notes: all of it, or nothing.
    ///
    /// # Errors
    /// As [`Remembered::remember`].
    pub(crate) fn compact(&mut self, summary: Summary, notes: Vec<String>, covered: u32) -> Result<(), String> {
        let mut next = Remembered { summary: None, covered, ..self.clone() };
        next.check_room(summary.bytes())?;
        next.summary = Some(summary);
        for note in notes {
            next.remember(note)?;
        }
        *self = next;
        Ok(())
    }

    /// Returns the same without what exceeds the bounds: a snapshot may hold anything.
    pub(crate) fn bounded(mut self) -> Remembered {
        self.experiences.truncate(EXPERIENCES_MAX);
        if self.check_room(0).is_err() {
            self.experiences.clear();
            self.summary = None;
        }
        self
    }

    fn check_room(&self, more: usize) -> Result<(), String> {
        let notes: usize = self.experiences.iter().map(|experience| experience.text.len()).sum();
        let bytes = notes.saturating_add(self.summary.as_ref().map_or(0, Summary::bytes)).saturating_add(more);
        if bytes <= REMEMBERED_BYTES_MAX {
            return Ok(());
        }
        Err(format!("that would be {bytes} bytes to remember, at most {REMEMBERED_BYTES_MAX} are allowed"))
    }
}

impl Summary {
    fn bytes(&self) -> usize {
        let lists = [&self.discoveries, &self.completed, &self.likely_next_work, &self.relevant_files_directories];
        let items = lists.into_iter().flatten().map(|item| item.len().saturating_add(size_of::<String>()));
        let texts = [&self.goal, &self.instruction, &self.current_status].into_iter().map(String::len);
        items.chain(texts).fold(0, usize::saturating_add)
    }

    /// The summary as Markdown, for a conversation that goes on from it.
    pub fn to_markdown(&self) -> String {
        let list = |items: &[String]| items.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n");
        let sections = [
            ("Goal", self.goal.clone()),
            ("Instruction", self.instruction.clone()),
            ("Discoveries", list(&self.discoveries)),
            ("Completed", list(&self.completed)),
            ("Current status", self.current_status.clone()),
            ("Likely next work", list(&self.likely_next_work)),
            ("Relevant files and directories", list(&self.relevant_files_directories)),
        ];
        let mut text = String::new();
        for (title, body) in sections {
            let body = if body.is_empty() { "none" } else { &body };
            let _ = write!(text, "## {title}\n\n{body}\n\n");
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_have_names_that_are_never_used_again() {
        let mut remembered = Remembered::default();
        let first = remembered.remember("a".to_owned()).expect("room").id.clone();
        assert!(remembered.forget(&first) && !remembered.forget(&first));
        assert_eq!(remembered.remember("b".to_owned()).expect("room").id, "exp_2");
    }

    #[test]
    fn what_is_too_much_changes_nothing() {
        let mut remembered = Remembered::default();
        remembered.remember("a".to_owned()).expect("room");
        let before = remembered.clone();
        let large = Summary { goal: "x".repeat(REMEMBERED_BYTES_MAX), ..Summary::default() };
        assert!(remembered.compact(large, Vec::new(), 3).is_err());
        assert!(remembered.compact(Summary::default(), vec!["x".repeat(REMEMBERED_BYTES_MAX)], 3).is_err());
        assert_eq!(remembered, before);
        remembered.compact(Summary::default(), vec!["b".to_owned()], 3).expect("room");
        assert_eq!((remembered.covered, remembered.experiences.len()), (3, 2));
    }
}
