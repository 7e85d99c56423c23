//! The plain data that every crate of Cellar speaks of: cells, events, outcomes, MIME bundles and limits, and the few
//! helpers that all of them share. Nothing here touches a network or a guest, and nothing but `files` a disk.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod audit;
pub mod budget;
pub mod cell;
pub mod event;
pub mod exact;
pub mod files;
pub mod limits;
pub mod looks;
pub mod mime;
pub mod origin;
pub mod outcome;
pub mod run;
pub mod sync;
pub mod text;
pub mod time;
pub mod tool;
