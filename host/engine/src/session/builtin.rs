//! Calls that every session answers itself before it asks the embedder: `tool.read`, the packs `selfref` and `tools`, its disk, files of
//! tables, charts and datasets, and cached fetches.

mod bridges;
mod catalog;
mod fetches;
mod reading;
mod selfref;
mod tables;

pub(crate) use bridges::SessionBridges;
pub use catalog::catalog;
pub use selfref::selfref_pack;
