//! Errors of fetches, in words for a cell.

use std::time::Duration;

/// Maximum number of names that a message lists.
const NAMES_MAX: usize = 20;

/// Error of a fetch.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    /// Class of the error.
    pub fault: FetchFault,
    /// Message: the attempt, the problem, and the remedy. It contains no credential, no address and no path.
    pub message: String,
}

/// Class of a [`FetchError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFault {
    /// The connector or the fetch does not exist.
    Unknown,
    /// The arguments are invalid.
    Invalid,
    /// The request is not allowed.
    Denied,
    /// The fetch exceeds its limit of rows, bytes or seconds.
    Limit,
    /// The source refused or did not answer.
    Failed,
}

impl FetchError {
    /// An error of this class.
    pub fn new(fault: FetchFault, message: impl Into<String>) -> FetchError {
        FetchError { fault, message: message.into() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> FetchError {
        FetchError::new(FetchFault::Failed, message)
    }

    pub(crate) fn timeout(after: Duration) -> FetchError {
        let message = format!(
            "the source did not answer within {} s, which is all that a fetch may take (`timeout` of the connector); ask for less",
            after.as_secs_f64()
        );
        FetchError::new(FetchFault::Limit, message)
    }

    /// Prefixes the message with the name of the fetch.
    pub(crate) fn of(self, name: &str) -> FetchError {
        if self.message.contains(name) {
            return self;
        }
        FetchError { message: format!("{name}: {}", self.message), ..self }
    }
}

/// Returns the end of a message about an unknown name: the nearest known name, and all known names.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let distance = |other: &&&str| strsim::damerau_levenshtein(name, other);
    let nearest = known.iter().min_by_key(distance).filter(|other| distance(other) <= 2.max(name.len() / 4));
    let mut text = nearest.map(|nearest| format!("; did you mean `{nearest}`")).unwrap_or_default();
    if !known.is_empty() {
        let more = known.len().saturating_sub(NAMES_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let listed = known.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
        text.push_str(&format!("; known are: {listed}{more}"));
    }
    text
}
