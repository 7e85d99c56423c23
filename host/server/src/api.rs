//! The interface of this server's own: `/v1`, and its description.

pub(crate) mod admin;
pub(crate) mod calls;
pub(crate) mod files;
pub(crate) mod looks;
pub(crate) mod openapi;
pub(crate) mod operations;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod stdio;
pub(crate) mod stores;
pub(crate) mod stream;
mod tar;
