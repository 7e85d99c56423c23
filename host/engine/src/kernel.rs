//! One interpreter: its guest, its store, what it imports, and how it is entered.
//!
//! The folders of its source are its layers; the block `kernel-layers` in `host/ARCHITECTURE.md` has their order.

pub(crate) mod border;
pub(crate) mod calls;
pub(crate) mod capture;
pub(crate) mod code;
pub(crate) mod events;
pub(crate) mod host;
pub(crate) mod imports;
pub(crate) mod instance;
pub(crate) mod origins;
pub(crate) mod record;
pub(crate) mod scheduling;
pub(crate) mod state;
