//! Sessions and runs over HTTP and the Model Context Protocol, for many tenants.
//!
//! A [`Server`] translates requests into the words of `cellar_hub`: it has no run path, no table of sessions and no
//! journal of its own. Each tenant has a hub of its own, on one host, so that what is another's is not there. Tokens say
//! who asks: see [`TokenFile`]. The pages for operators and clients are in this crate's README. Read [`Server`] first.

// Guests, callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod access;
mod api;
mod configuration;
mod e2b;
mod http;
mod jupyter;
mod local;
mod mcp;
mod problem;
mod router;
mod server;
mod tenant;
mod workers;

pub use access::{NewToken, Scope, Token, TokenError, TokenFile, mint};
pub use configuration::{
    ConfineError, Confined, Isolation, LISTEN, OWN_TENANT, ServeError, ServerConfig, StoreClaim, TENANTS, WorkerConfig,
};
pub use mcp::serve_mcp;
pub use server::Server;
pub use tenant::{Quota, TenantConfig};
pub use workers::serve_worker;
