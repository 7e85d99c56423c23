//! HTTP below all interfaces: connections, bodies, WebSockets, and counts and traces of requests.

pub(crate) mod body;
pub(crate) mod listen;
pub(crate) mod metrics;
pub(crate) mod traces;
pub(crate) mod websocket;
