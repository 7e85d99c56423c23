//! Tests that run cells on the Python and the JavaScript guest.

mod agents;
mod bridges;
mod charts;
mod cli;
mod completion;
mod continuity;
mod data;
mod floods;
mod hostile;
mod input;
mod mcp;
mod memory;
mod node;
mod notebook;
mod oracle;
mod outputs;
mod recordings;
mod runtime;
mod secrets;
mod snapshots;
mod soak;
mod stdio;
mod stored;
mod tables;
mod terminal;
mod urls;
