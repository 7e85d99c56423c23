//! The processes that this program starts: commands that are granted to cells, and itself, for work on strangers' data.
//!
//! A [`Recipe`] says what is run; [`start`] runs it, and [`Process`] is what runs. Whatever way a process ends, or is given
//! up, so does all that it started in its process group.
//!
//! A server that confines itself may start nothing afterwards. Before, it starts a [helper](use_helper) that does: this
//! same program, which is not confined, and which runs the recipes that it was told at the beginning and nothing else.
//!
//! What draws a picture or reads a file format is no program of ours, and a few kilobytes can keep it busy for minutes or
//! have it ask for all memory. A process of its own has bounds of its own, which the system keeps, and ends with whoever
//! waits. Such a [job](start_job) is this same program as well, and what it does begins with [`bound`].

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod helper;
mod job;
mod passing;
mod process;

pub use helper::{HELP, help, use_helper};
pub use job::{bound, job_recipe, offer, start_job};
pub use passing::{pass, take};
pub use process::{Input, Process, Recipe, start};
