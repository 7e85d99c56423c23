//! What helpers and the engine reported.

use cellar_core::event::Scalar;

/// What a helper or the engine did.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusEvent {
    /// What was done: `read`, `write`, `tree`.
    pub op: String,
    /// To what, and how much.
    pub fields: Vec<(String, Scalar)>,
}
