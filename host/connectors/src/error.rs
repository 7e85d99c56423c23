//! What goes wrong with a fetch, in words for a cell.

use std::time::Duration;

/// Names that a message lists.
const NAMES_MAX: usize = 20;

/// Why there are no rows.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    /// Whose fault it is.
    pub fault: FetchFault,
    /// What was tried, what was found, what to do. It has no credential, no address and no path in it.
    pub message: String,
}

/// Class of a [`FetchError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFault {
    /// There is no such connector or fetch.
    Unknown,
    /// The arguments do not fit.
    Invalid,
    /// What was asked for is not allowed.
    Denied,
    /// More rows, bytes or seconds than a fetch may take.
    Limit,
    /// The source said no, or nothing.
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

    /// The same with the name of the fetch before it.
    pub(crate) fn of(self, name: &str) -> FetchError {
        if self.message.contains(name) {
            return self;
        }
        FetchError { message: format!("{name}: {}", self.message), ..self }
    }
}

/// The end of a message about an unknown name: the nearest that there is, and all.
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
