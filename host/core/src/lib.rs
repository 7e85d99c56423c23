//! The plain data that every crate of Cellar speaks of: cells, events, outcomes, MIME bundles and limits, and the few
//! helpers that all of them share. Nothing here touches a disk, a network or a guest.

pub mod cell;
pub mod event;
pub mod limits;
pub mod mime;
pub mod origin;
pub mod outcome;
pub mod sync;
pub mod text;
pub mod time;
