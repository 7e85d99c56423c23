//! The files that the engine writes, as bytes: snapshots, recordings, and what both begin with.

pub(crate) mod header;
pub(crate) mod remembered;
pub(crate) mod snapshot;
pub(crate) mod stranger;
pub(crate) mod tape;
