//! Tests that run cells on the Python and the JavaScript guest.

mod bridges;
mod cli;
mod memory;
mod node;
mod oracle;
mod snapshots;
