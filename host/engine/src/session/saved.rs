//! State that outlives a kernel: checkpoints, snapshots, stored sessions, recordings.

mod checkpoint;
mod recording;
pub(crate) mod replay;
mod state;

pub(crate) use checkpoint::{Kept, Slot, configured_as, failed, revive, wake};
pub(crate) use recording::begin as begin_recording;
