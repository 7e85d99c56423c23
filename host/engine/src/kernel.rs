//! One interpreter: its guest, its store, what it imports, and how it is entered.

pub(crate) mod backlog;
#[cfg(feature = "bake")]
pub(crate) mod bake;
pub(crate) mod bindings;
pub(crate) mod calls;
pub(crate) mod capture;
pub(crate) mod engines;
pub(crate) mod file_imports;
pub(crate) mod guest;
pub(crate) mod hearer;
pub(crate) mod host;
pub(crate) mod image;
pub(crate) mod imports;
pub(crate) mod input;
pub(crate) mod instance;
pub(crate) mod introspection;
pub(crate) mod manifest;
pub(crate) mod memo;
pub(crate) mod memory;
pub(crate) mod meter;
pub(crate) mod origins;
pub(crate) mod record;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod threads;
pub(crate) mod turns;
