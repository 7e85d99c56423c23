//! Code of guests: their manifests, baking and compiling, and loading into an engine.

#[cfg(feature = "bake")]
mod bake;
mod engines;
mod former;
mod image;
mod listed;
mod manifest;
mod processor;
#[cfg(feature = "bake")]
mod safepoints;

#[cfg(feature = "bake")]
pub(crate) use bake::compile_missing;
#[cfg(feature = "bake")]
pub use bake::{BakeOptions, BakeReport, bake};
pub(crate) use engines::Engines;
pub(crate) use former::former_build;
pub(crate) use image::{Artifacts, Flavour, compiling_engine, guest_mounts, linker};
