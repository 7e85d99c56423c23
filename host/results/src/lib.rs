//! Results of runs: a result folded from events, the store of artifacts, tables as files, and the text for a model.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod artifacts;
pub mod pictures;
pub mod renderer;
pub mod result;
pub mod tables;
