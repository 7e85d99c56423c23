//! What every session answers of itself, before the embedder is asked: `tool.read`, the pack `selfref`, its disk, files of
//! tables, charts and datasets, and fetches that it remembers.

mod bridges;
mod fetches;
mod own_calls;
mod reading;
mod selfref;

pub(crate) use bridges::SessionBridges;
pub use selfref::selfref_pack;
