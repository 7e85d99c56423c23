//! Where the state and the files of sessions lie.

pub(crate) mod vault;
pub(crate) mod workspace;
