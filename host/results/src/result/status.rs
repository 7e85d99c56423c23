//! Status events of helpers and the engine.

use cellar_core::event::Scalar;

use super::{RunResult, STATUSES_BYTES_MAX, STATUSES_MAX};

/// An operation of a helper or the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusEvent {
    /// Name of the operation: `read`, `write`, `tree`.
    pub op: String,
    /// Details of the operation, such as its object and amounts.
    pub fields: Vec<(String, Scalar)>,
}

impl RunResult {
    /// Adds a status event, if there is room for one more.
    pub(super) fn status(&mut self, index: usize, op: &str, fields: &[(String, Scalar)]) {
        let Some(result) = self.cells.get_mut(index) else { return };
        let field_bytes = |(name, value): &(String, Scalar)| name.len().saturating_add(value.size_bytes());
        let bytes = fields.iter().map(field_bytes).fold(op.len(), usize::saturating_add);
        if self.used.statuses == STATUSES_MAX || self.used.status_bytes.saturating_add(bytes) > STATUSES_BYTES_MAX {
            self.statuses_left_out = self.statuses_left_out.saturating_add(1);
            return;
        }
        self.used.statuses = self.used.statuses.saturating_add(1);
        self.used.status_bytes = self.used.status_bytes.saturating_add(bytes);
        result.statuses.push(StatusEvent { op: op.to_owned(), fields: fields.to_vec() });
    }
}
