//! ZMTP, the protocol of ZeroMQ's sockets, as far as a Jupyter kernel speaks it: it binds, peers connect, nobody is
//! authenticated here (messages are signed instead), and every peer is answered over its own connection.
//!
//! Whoever reaches the port can talk to it before any signature is checked. So what a peer sends is bounded in number, in
//! bytes and in time before it is kept, and a peer that breaks a rule loses its connection, with the reason in the log.
//! Read [`Socket`] first.

mod frame;
mod socket;

pub(crate) use self::socket::{Incoming, Kind, Socket};

/// Bytes of a message, over all its frames.
pub(crate) const MESSAGE_BYTES_MAX: usize = 32 << 20;
