//! Errors of drawing charts.

use std::time::Duration;

use cellar_engine::outcome::{Failure, FailureKind};

use crate::{SPECIFICATION_BYTES_MAX, SVG_BYTES_MAX};

/// Error of drawing a chart, or of converting it to a PNG.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named in the messages")]
pub enum ChartError {
    /// The specification exceeds the maximum size.
    #[error(
        "the specification has {bytes} bytes with its data, at most {SPECIFICATION_BYTES_MAX} are drawn; \
         aggregate or sample the data first"
    )]
    TooLarge { bytes: usize },

    /// Vega, or the reader of JSON, makes nothing of it.
    #[error("the specification cannot be drawn: {0}")]
    Specification(String),

    /// The specification refers to a resource that it does not contain.
    #[error("{0}")]
    Resource(String),

    /// Drawing exceeded its timeout.
    #[error("drawing the chart took longer than {timeout:?}; aggregate or sample the data first")]
    Timeout { timeout: Duration },

    /// Drawing exceeded its memory.
    #[error("drawing the chart took too much memory; aggregate or sample the data first")]
    Memory,

    /// The SVG exceeds the maximum size.
    #[error("the chart is larger than {SVG_BYTES_MAX} bytes as an SVG; aggregate or sample the data first")]
    Output,

    /// The guest drew an element that charts must not contain.
    #[error("the chart holds what charts must not hold: {0}")]
    Svg(String),

    /// The conversion to a PNG would take too long, or the PNG would be too large.
    #[error("the chart was not made a PNG: {0}")]
    Png(String),

    /// There is no font.
    #[error("the chart was not made a PNG: this machine has no font; install one, such as Debian's `fonts-liberation`")]
    NoFont,

    /// The kernel that drew the chart, or the conversion to a PNG, crashed.
    #[error("drawing the chart failed: {0}")]
    Crash(String),

    /// The engine could not start the kernel.
    #[error("charts cannot be drawn")]
    Engine(#[from] cellar_engine::Error),
}

impl ChartError {
    /// A name as exceptions have, for clients to match on.
    pub fn name(&self) -> &'static str {
        match self {
            ChartError::TooLarge { .. } => "ChartTooLarge",
            ChartError::Specification(_) => "ChartSpecificationError",
            ChartError::Resource(_) => "ChartResourceError",
            ChartError::Timeout { .. } => "ChartTimeout",
            ChartError::Memory => "ChartOutOfMemory",
            ChartError::Output => "ChartOutputTooLarge",
            ChartError::Svg(_) => "ChartContentError",
            ChartError::Png(_) => "ChartRasterError",
            ChartError::NoFont => "ChartFontError",
            ChartError::Crash(_) => "ChartCrash",
            ChartError::Engine(_) => "ChartGuestError",
        }
    }

    /// Converts a failure of the guest.
    pub(crate) fn of(failure: &Failure, timeout: Duration) -> ChartError {
        // What the guest says is cut: it may be as long as the specification.
        let message: String = failure.message.chars().take(500).collect();
        match (failure.kind, failure.name.as_str()) {
            (FailureKind::Timeout, _) => ChartError::Timeout { timeout },
            (FailureKind::Memory, _) => ChartError::Memory,
            (FailureKind::Output, _) => ChartError::Output,
            (FailureKind::Raised, "ChartResourceError") => ChartError::Resource(message),
            (FailureKind::Raised, "ChartSpecificationError") => ChartError::Specification(message),
            _ => ChartError::Crash(format!("{}: {message}", failure.name)),
        }
    }
}
