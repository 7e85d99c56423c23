//! Place of the lines of a program whose sandboxes are in its own process.

pub(crate) use cellar_embed::InProcess;
