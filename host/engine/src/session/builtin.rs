//! Calls that every session answers itself before it asks the embedder: `tool.read`, the pack `selfref`, its disk, files of
//! tables, charts and datasets, and cached fetches.

mod bridges;
mod fetches;
mod reading;
mod selfref;
mod tables;

pub(crate) use bridges::SessionBridges;
pub use selfref::selfref_pack;
