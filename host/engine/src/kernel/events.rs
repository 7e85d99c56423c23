//! Events on their way from a kernel to their readers: the bytes that wait for all readers of the process, the reader of one run, and text
//! that is written while no cell runs.

mod backlog;
mod hearer;
mod unread;

pub use backlog::{Background, BackgroundReader};
pub(crate) use backlog::{Backlog, Late};
pub(crate) use hearer::{Gate, Hearer};
pub(crate) use unread::{Queue, Queued};
pub use unread::{Unread, UnreadBytes};
