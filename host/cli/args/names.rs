//! Guests and languages, as they are typed.

use cellar_engine::{GuestName, Language};
use clap::ValueEnum;

/// A guest on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GuestCode {
    /// CPython and its library
    #[value(name = "python", alias = "py")]
    Python,
    /// The same with NumPy, pandas, and what reads documents and draws charts
    #[value(name = "python-data")]
    PythonData,
    /// QuickJS
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    /// The same with Vega, which draws charts
    #[value(name = "javascript-charts", hide = true)]
    JavaScriptCharts,
    /// The toy language of the engine's own tests
    #[value(name = "probe", hide = true)]
    Probe,
}

impl From<GuestCode> for GuestName {
    fn from(code: GuestCode) -> GuestName {
        match code {
            GuestCode::Python => GuestName::Python,
            GuestCode::PythonData => GuestName::PythonData,
            GuestCode::JavaScript => GuestName::JavaScript,
            GuestCode::JavaScriptCharts => GuestName::JavaScriptCharts,
            GuestCode::Probe => GuestName::Probe,
        }
    }
}

/// A language on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanguageCode {
    /// Python
    #[value(name = "py", alias = "python")]
    Python,
    /// JavaScript
    #[value(name = "js", alias = "javascript")]
    JavaScript,
    /// The toy language of the engine's own tests
    #[value(name = "probe", hide = true)]
    Probe,
}

impl From<LanguageCode> for Language {
    fn from(code: LanguageCode) -> Language {
        match code {
            LanguageCode::Python => Language::Python,
            LanguageCode::JavaScript => Language::JavaScript,
            LanguageCode::Probe => Language::Probe,
        }
    }
}
