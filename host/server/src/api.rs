//! The interface of this server's own: `/v1`, and its description. [`operations`] has the one list of what may be asked.

mod admin;
mod approvals;
mod calls;
mod commands;
mod datasets;
mod files;
mod looks;
mod openapi;
mod operations;
mod runs;
mod sessions;
mod states;
mod stdio;
mod stores;
mod stream;
mod tar;

pub(crate) use openapi::show as describe;
pub(crate) use operations::{find, label};

/// Beginning of its paths.
pub(crate) const PREFIX: &str = "/v1/";
