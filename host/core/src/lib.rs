//! The plain data that every crate of Cellar speaks of: cells, events, outcomes, MIME bundles and limits, and the few
//! helpers that all of them share. Nothing here touches a disk, a network or a guest.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod cell;
pub mod event;
pub mod limits;
pub mod mime;
pub mod origin;
pub mod outcome;
pub mod sync;
pub mod text;
pub mod time;
