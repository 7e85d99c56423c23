//! The tests of the command line and of what crosses process borders, in one binary so that the engine is linked once.
//!
//! Modules under `guests` need the Python and the JavaScript guest; all others need no guest at all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use tikv_jemallocator::Jemalloc;

mod artifact_reach;
mod artifacts;
mod audit;
mod builds;
mod datasets;
mod forged;
mod guests;
mod hub;
mod interleaving;
mod introspection;
mod kernels;
mod malformed;
mod output;
mod remote;
mod sessions;
mod stops;
mod stubs;
mod support;
mod tidy;
mod turns;

/// Allocator of the command line.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;
