//! HTTP below all interfaces: a request that was let through ([`Call`]), the state that requests share ([`State`]), bodies,
//! files, connections and WebSockets, counts and traces.

pub(crate) mod answers;
pub(crate) mod body;
mod call;
pub(crate) mod files;
mod listen;
pub(crate) mod metrics;
mod state;
mod traces;
pub(crate) mod websocket;

use axum_core::{body::Body, response::Response};
use http::Request;

pub(crate) use call::{Call, QUOTAS_IN_FRONT, check_values, decoded, is_read, names, read_body};
pub(crate) use listen::{Listening, accept};
pub(crate) use state::{Lifecycle, State};
pub(crate) use traces::{Labels, Traces};

/// A server as connections know it.
pub(crate) trait Respond: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn respond(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}
