//! Tools as cells see them.

use serde::{Deserialize, Serialize};

/// A tool as cells see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The `name` in `tool.<name>(…)`.
    pub name: String,
    /// Description for people and models.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Option<String>,
}
