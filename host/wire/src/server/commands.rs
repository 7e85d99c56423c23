//! Commands of the shell: what is asked for, and what they come to.

use std::time::Duration;

use cellar_core::event::KeptText;
use schemars::JsonSchema;
use serde::Serialize;

use super::{bodies::NEW_COMMAND, environment, read};
use crate::{check::Invalid, event::KeptJson};

/// Command to run in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandBody {
    /// The line.
    pub command: String,
    /// Folder, relative to the workspace unless absolute.
    pub cwd: Option<String>,
    /// Environment variables, beside those of the session.
    pub environment: Vec<(String, String)>,
    /// Time that it may take.
    pub timeout: Option<Duration>,
    /// Standard input.
    pub stdin: Option<String>,
    /// True to continue the command when its reader disconnects.
    pub is_kept: bool,
}

/// Result of a command.
#[derive(Debug, Default, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandJson {
    pub run: String,
    /// Its exit status; null when it was ended.
    pub exit_code: Option<i32>,
    /// Text that it wrote, without the middle where that is long.
    pub stdout: String,
    pub stderr: String,
    /// True if the middle of one of them is left out.
    pub is_cut: bool,
    /// Why it was ended.
    pub error: Option<String>,
    pub duration_ms: u64,
    /// Where all of its output is, when it is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<KeptJson>,
}

impl CommandJson {
    /// Names the artifact with all of the output.
    pub fn keep(&mut self, kept: &KeptText) {
        self.artifact = Some(KeptJson::from(kept));
    }
}

/// Reads a command.
///
/// # Errors
/// Every fault, with its path and what was expected there.
pub fn command_body(bytes: &[u8]) -> Result<CommandBody, Invalid> {
    read(&NEW_COMMAND, bytes, |members, problems| {
        let command = members.text("command", problems);
        let cwd = members.text("cwd", problems);
        let environment = environment(members, problems);
        let timeout = members.timeout("timeout", problems);
        let stdin = members.text("stdin", problems);
        let is_kept = members.word("onDisconnect", problems) == Some("continue");
        Some(CommandBody { command: command?, cwd, environment, timeout, stdin, is_kept })
    })
}
