//! HTTP below all interfaces: a request that was let through ([`Call`]), the state that requests share ([`State`]), bodies,
//! files, connections and WebSockets, counts and traces.

pub(crate) mod answers;
pub(crate) mod body;
mod call;
mod connections;
mod declared;
pub(crate) mod files;
mod lasting;
mod listen;
pub(crate) mod metrics;
mod shares;
mod stalls;
mod state;
mod traces;
pub(crate) mod websocket;

use axum_core::{body::Body, response::Response};
use http::Request;

pub(crate) use call::{
    Buffered, Call, FREE_BYTES, QUOTAS_IN_FRONT, check_values, decoded, is_read, names, no_buffers, read_body,
};
pub(crate) use declared::Declared;
pub(crate) use lasting::while_granted;
pub(crate) use listen::{Carried, Listening, accept};
pub(crate) use shares::{Permit, Shares};
pub(crate) use state::{Lifecycle, State};
pub(crate) use traces::{Labels, Traces};

/// A server as connections know it.
pub(crate) trait Respond: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn respond(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}
