//! Running other programs: silent when they succeed, with the end of what they said when they fail.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Lines of a failed program's output that are shown.
const LINES_SHOWN: usize = 40;

/// Runs `command` to its end, with its output in the file `log`.
///
/// # Errors
/// When it cannot be started or does not exit with success; the message carries the last lines of the log.
pub(crate) fn run(command: &mut Command, log: &Path) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = File::create(log).with_context(|| format!("could not create `{}`", log.display()))?;
    let status = command
        .stdin(std::process::Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("could not start `{program}`"))?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    bail!("`{program}` failed ({status}); the end of `{}`:\n{tail}", log.display())
}
