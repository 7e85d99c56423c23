//! Cells and runs: what a caller asks for.
//!
//! Plain data, checked elsewhere: the wire layer refuses malformed requests, `Session::run` refuses what a
//! session may not do.

use std::{fmt, sync::Arc, time::Duration};

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

/// Language of a cell.
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

    /// The guest that runs it where no other was chosen.
    pub fn guest(self) -> GuestName {
        match self {
            Language::Python => GuestName::Python,
            Language::JavaScript => GuestName::JavaScript,
            Language::Probe => GuestName::Probe,
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
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r-{:016x}", self.0)
    }
}

/// The number of the cell that makes the names a session begins with.
pub const SEED_CELL: u32 = u32::MAX;

/// An interpreter with what is in its image. A language may have several; a session has one of each language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuestName {
    /// CPython and its library.
    Python,
    /// The same with NumPy, pandas and what reads documents and draws charts.
    PythonData,
    /// QuickJS.
    JavaScript,
    /// The same with Vega, which draws charts. No session has it for its cells.
    JavaScriptCharts,
    /// The toy language of the engine's own tests.
    Probe,
}

impl GuestName {
    /// Every guest, in a fixed order.
    pub const ALL: [GuestName; 5] = [
        GuestName::Python,
        GuestName::PythonData,
        GuestName::JavaScript,
        GuestName::JavaScriptCharts,
        GuestName::Probe,
    ];

    /// The short name, which is also that of its folder.
    pub fn name(self) -> &'static str {
        match self {
            GuestName::Python => "python",
            GuestName::PythonData => "python-data",
            GuestName::JavaScript => "javascript",
            GuestName::JavaScriptCharts => "javascript-charts",
            GuestName::Probe => "probe",
        }
    }

    /// The language it runs.
    pub fn language(self) -> Language {
        match self {
            GuestName::Python | GuestName::PythonData => Language::Python,
            GuestName::JavaScript | GuestName::JavaScriptCharts => Language::JavaScript,
            GuestName::Probe => Language::Probe,
        }
    }

    /// The guest of this name.
    pub fn from_name(name: &str) -> Option<GuestName> {
        GuestName::ALL.into_iter().find(|guest| guest.name() == name)
    }
}

impl fmt::Display for GuestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One unit of source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Language of the cell.
    pub language: Language,
    /// The source, verbatim. Clones of the cell share it.
    #[serde(with = "crate::text::shared")]
    pub code: Arc<str>,
    /// A short label for people.
    pub title: Option<String>,
    /// Wall-clock timeout of the cell; `None` takes the session's [`Limits::timeout`](crate::limits::Limits::timeout). One
    /// longer than the session's maximum is cut to that, and the run reports it.
    pub timeout: Option<Duration>,
    /// Give the language a fresh kernel before the cell runs.
    pub reset: bool,
}

impl Cell {
    /// A cell with the session's defaults.
    pub fn new(language: Language, code: impl Into<Arc<str>>) -> Cell {
        Cell { language, code: code.into(), title: None, timeout: None, reset: false }
    }
}
