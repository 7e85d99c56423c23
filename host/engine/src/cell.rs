//! Cells and runs: what a caller asks for.
//!
//! Plain data, checked elsewhere: the wire layer refuses malformed requests, [`crate::Session::run`] refuses what a
//! session may not do.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Number of a cell in its session, from 1, in the order in which cells start. Also the cell's file name in
/// tracebacks: `<cell 7>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellId(pub u32);

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which interpreter a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Language {
    /// CPython; `py` on the wire.
    Python,
    /// QuickJS; `js` on the wire.
    JavaScript,
    /// The toy language that the engine's own tests are written in; `probe`. Never accepted from the wire.
    Probe,
}

impl Language {
    /// Every language, in a fixed order.
    pub const ALL: [Language; 3] = [Language::Python, Language::JavaScript, Language::Probe];

    /// The short code used on the wire and on the command line.
    pub fn code(self) -> &'static str {
        match self {
            Language::Python => "py",
            Language::JavaScript => "js",
            Language::Probe => "probe",
        }
    }

    /// The name of the guest that runs it, which is also the name of the guest's folder.
    pub fn guest_name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::Probe => "probe",
        }
    }

    /// The name people use.
    pub fn title(self) -> &'static str {
        match self {
            Language::Python => "Python",
            Language::JavaScript => "JavaScript",
            Language::Probe => "probe",
        }
    }

    /// The language with this short code.
    pub fn from_code(code: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|language| language.code() == code)
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A run's name in logs, `r-` and 16 hexadecimal digits: made up, and different for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunId(pub(crate) u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r-{:016x}", self.0)
    }
}

/// The number of the cell that makes the names a session begins with.
pub(crate) const SEED_CELL: u32 = u32::MAX;

/// One unit of source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The interpreter it is for.
    pub language: Language,
    /// The source, verbatim.
    pub code: String,
    /// A short label for people.
    pub title: Option<String>,
    /// Wall-clock time the cell may take; `None` takes the session's [`crate::Limits::timeout`]. A longer one than
    /// the session's maximum is cut to it.
    pub timeout: Option<Duration>,
    /// Give the language a fresh kernel before the cell runs.
    pub reset: bool,
}

impl Cell {
    /// A cell with the session's defaults.
    pub fn new(language: Language, code: impl Into<String>) -> Cell {
        Cell { language, code: code.into(), title: None, timeout: None, reset: false }
    }
}
