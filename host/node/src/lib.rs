//! The engine as a module of Node. It carries the lines of `cellar stdio`, to a hub in this process or to a server; their meaning for
//! a program is in JavaScript, in the package beside this crate.
//!
//! Nothing here blocks the event loop: what has to wait is a task of the engine, and its end is delivered by a ticket, a number
//! that the package has chosen. Read `engine::Engine` first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(test, allow(dead_code, reason = "napi-derive registers nothing in a build of tests"))]

mod connection;
mod deliver;
mod engine;
