//! Answers to questions about a session: names, completions, whole cells.

/// A name that cells have bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// What the language calls its type.
    pub type_name: String,
    /// Length, or bytes where it is an array of numbers; `None` for what has neither.
    pub size: Option<u64>,
    /// The beginning of its text.
    pub preview: String,
}

/// Completions at a cursor. Positions count characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Where the text begins that an item replaces.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
    /// What may stand there, best first.
    pub items: Vec<Completion>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What to put in.
    pub text: String,
    /// `function`, `class`, `module`, `keyword`, `property`, `variable`.
    pub kind: String,
}

/// Whether a text is a whole cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// It is.
    Complete,
    /// It goes on, and its next line is indented with this.
    Incomplete(String),
    /// No text behind it makes a cell of it.
    Invalid,
}
