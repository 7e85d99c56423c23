//! What an embedder says to the engine, and what it hears: its configuration, the calls that it answers, and errors.

pub(crate) mod bridge;
pub(crate) mod config;
pub(crate) mod error;
