//! What runs come to: a result folded from events, the store of artifacts, tables as files, and what a model is given.

pub mod artifacts;
pub mod renderer;
pub mod result;
pub mod tables;
