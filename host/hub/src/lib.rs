//! The sessions and the runs of one host, shared by every front end.
//!
//! A [`Hub`] owns sessions by name and every run in them. A run is [driven](Driving) to its end, and its events go
//! into a [journal](Journal): any number of readers follow it from any event, while it runs and afterwards. The reader
//! that [owns](RunHandle::own) a run slows its guest when it lags; a [watcher](RunHandle::watch) that lags is told of a
//! gap. What happens to a run whose owner goes away is its [disconnect policy](OnDisconnect). Every stream ends with
//! `RunFinished`.
//!
//! Calls of the tools that a caller declared, and requests for input, go to whoever [answers](Answerer) for the session. Calls that
//! wait for a person's decision are files of a store, [`Approvals`].
//!
//! [`Lines`] is the protocol of programs that speak to a hub by lines of JSON, over whatever carries lines.
//!
//! Front ends translate: they have no run path, no table of sessions and no journal of their own. Read [`Hub`] first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod answers;
mod approvals;
mod bounds;
mod error;
mod figures;
mod hub;
mod journal;
mod journals;
mod layer;
mod lines;
mod own;
mod run;
mod states;
mod turn;

pub use answers::{Answerer, Ask};
pub use approvals::{Approvals, CALLS_FOLDER, DecideError, approver};
pub use bounds::{Admission, Bounds, QuotaError};
pub use error::HubError;
pub use figures::{CellKey, DURATION_BOUNDS, Histogram};
pub use hub::{Hub, HubConfig, Keep, OpenRequest, SessionEntry};
pub use journal::{JOURNAL_BYTES_MAX, JOURNAL_EVENTS_MAX, Journal};
pub use journals::Journals;
pub use layer::{Layer, ToolAnswer};
pub use lines::{Line, LineError, LineRead, Lines, Place, TASKS_MAX, pages};
pub use own::OwnSession;
pub use run::{Delivery, Driving, OnDisconnect, Reader, RunHandle, RunRequest};
pub use states::{state_diff_json, state_json, states_json};
