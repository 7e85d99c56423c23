//! Storage of the state and the files of sessions.

pub(crate) mod states;
pub(crate) mod vault;
pub(crate) mod workspace;
