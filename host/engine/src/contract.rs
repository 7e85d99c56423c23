//! Contract with the embedder: the configuration, the calls that it answers, and errors.

pub(crate) mod bridge;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod processes;
pub(crate) mod tables;
