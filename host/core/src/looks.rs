//! Answers to questions about a session: names, completions, whole cells.

/// A name that cells have bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// Name of its type in the language.
    pub type_name: String,
    /// Length, or bytes where it is an array of numbers; `None` for what has neither.
    pub size: Option<u64>,
    /// The beginning of its text.
    pub preview: String,
}

/// Completions at a cursor. Positions count characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Position at which the replaced text begins.
    pub start: u32,
    /// Position at which the replaced text ends.
    pub end: u32,
    /// Candidates, best first.
    pub items: Vec<Completion>,
}

/// Completion candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Text to insert.
    pub text: String,
    /// `function`, `class`, `module`, `keyword`, `property`, `variable`.
    pub kind: String,
}

/// Completeness of a text as a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// The text is a complete cell.
    Complete,
    /// The cell goes on. Its next line is indented with this text.
    Incomplete(String),
    /// No continuation makes a cell of it.
    Invalid,
}
