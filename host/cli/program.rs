//! Programs as those who start them see them: their arguments, their exit status, and what they may have looked for in vain.

use std::path::{Path, PathBuf};

use cellar_engine::{
    Outcome,
    event::Scalar,
    outcome::{Failure, FailureKind},
};

use crate::{report::EXIT_CELL_FAILED, terminal::escaped};

/// Environment variable by which a guest is given the arguments of a program, a JSON array; cells do not see it.
const ARGUMENTS: &str = "CELLAR_ARGUMENTS";
/// Status of a program that ran past its time limit, as `timeout` has it.
pub(crate) const EXIT_TIMEOUT: u8 = 124;
/// Status of a program that ran out of memory, as shells report one that the kernel killed for it.
pub(crate) const EXIT_MEMORY: u8 = 137;
/// Operation of the status event that tells of a failed `!` command.
const COMMAND_FAILED: &str = "command_failed";
/// Beginning of the message of a cell that ended itself with a status.
const EXITED: &str = "the cell exited with status ";
/// Endings that imports leave out.
const ENDINGS: [&str; 10] = ["", ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".jsx", ".json"];

/// The variable, `NAME=VALUE`, that gives a program its arguments, with its own name before them.
pub(crate) fn arguments_variable(name: &str, arguments: &[String]) -> String {
    let all: Vec<&str> = std::iter::once(name).chain(arguments.iter().map(String::as_str)).collect();
    format!("{ARGUMENTS}={}", serde_json::json!(all))
}

/// The way in which a program ended itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// With a status.
    Status(u8),
    /// With a message, which stands for status 1.
    Message(String),
}

/// The exit that a failure stands for: `sys.exit` or `process.exit`.
pub(crate) fn exit_of(failure: &Failure) -> Option<Exit> {
    if failure.kind != FailureKind::Raised || failure.name != "SystemExit" {
        return None;
    }
    let number = failure.message.strip_prefix(EXITED).unwrap_or(&failure.message);
    // A text that reads as a status comes in quotes.
    let text = number.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    if let Some(text) = text.filter(|text| text.parse::<i64>().is_ok()) {
        return Some(Exit::Message(text.to_owned()));
    }
    // A shell sees the lowest eight bits.
    let status = number.parse::<i64>().ok().and_then(|status| u8::try_from(status & 0xff).ok());
    Some(status.map_or_else(|| Exit::Message(failure.message.clone()), Exit::Status))
}

/// Exit status of a program whose cell ended so; `None` if it goes on.
pub(crate) fn status_of(outcome: &Outcome) -> Option<u8> {
    let failure = outcome.failure()?;
    Some(match (failure.kind, exit_of(&failure)) {
        (_, Some(Exit::Status(status))) => status,
        (FailureKind::Timeout, _) => EXIT_TIMEOUT,
        (FailureKind::Memory, _) => EXIT_MEMORY,
        _ => EXIT_CELL_FAILED,
    })
}

/// Exit status of a `!` command that has failed, if this status event tells of one.
pub(crate) fn failed_command(op: &str, fields: &[(String, Scalar)]) -> Option<u8> {
    let status = fields.iter().find_map(|(name, value)| match value {
        Scalar::Integer(status) if name == "status" => Some(*status),
        _ => None,
    });
    status.filter(|_| op == COMMAND_FAILED).map(|status| u8::try_from(status & 0xff).unwrap_or(EXIT_CELL_FAILED))
}

/// Says that a file or a module that a program has not found lies beside it, and how cells get to see it.
pub(crate) fn hint(failure: &Failure, folder: &Path) -> Option<String> {
    let name = missing(failure)?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let here = Path::new(".");
    let found = [folder, here].into_iter().find_map(|folder| Some((folder, beside(folder, &name)?)));
    let (folder, found) = found?;
    let shown = folder.display().to_string();
    Some(format!(
        "`{}` lies in `{}`, which cells do not see: run again with --workspace {}, which they may also write to, or with \
         --mount {}:/workspace",
        escaped(&found),
        escaped(&shown),
        escaped(&shown),
        escaped(&shown),
    ))
}

/// The file or the module that was not found, as a relative path without its ending.
fn missing(failure: &Failure) -> Option<String> {
    let quoted = |text: &str| Some(text.split_once('\'')?.1.split_once('\'')?.0.to_owned());
    let message = failure.message.as_str();
    let name = match failure.name.as_str() {
        "FileNotFoundError" => quoted(message.rsplit_once(": ")?.1),
        "ModuleNotFoundError" => quoted(message).map(|module| module.split('.').next().unwrap_or_default().to_owned()),
        _ if message.starts_with("ENOENT") => quoted(message),
        _ if message.starts_with("Cannot find module ") => quoted(message),
        _ => None,
    }?;
    let name = name.strip_prefix("/workspace/").or(name.strip_prefix("./")).unwrap_or(&name).to_owned();
    let is_plain = Path::new(&name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    (is_plain && !name.is_empty()).then_some(name)
}

/// The name of what lies there, with its ending.
fn beside(folder: &Path, name: &str) -> Option<String> {
    let names = ENDINGS.into_iter().map(|ending| format!("{name}{ending}"));
    names.into_iter().find(|name| folder.join(name).exists())
}

/// Folder that a program lies in; that of standard input is the current one.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(name: &str, message: &str) -> Failure {
        Failure::new(FailureKind::Raised, name, message.to_owned())
    }

    #[test]
    fn programs_end_with_the_status_that_they_choose() {
        let of = |kind, name: &str, message: &str| {
            status_of(&Outcome::Failed(Box::new(Failure::new(kind, name, message.to_owned()))))
        };
        assert_eq!(status_of(&Outcome::Complete), None);
        assert_eq!([status_of(&Outcome::Exited(5)), status_of(&Outcome::Exited(-1))], [Some(5), Some(255)]);
        assert_eq!(of(FailureKind::Raised, "SystemExit", "3"), Some(3));
        assert_eq!(of(FailureKind::Raised, "SystemExit", "bad"), Some(1));
        assert_eq!(of(FailureKind::Raised, "SystemExit", "'3'"), Some(1));
        assert_eq!(of(FailureKind::Raised, "ValueError", "3"), Some(1));
        assert_eq!(of(FailureKind::Timeout, "CellTimeout", ""), Some(124));
        assert_eq!(of(FailureKind::Memory, "MemoryError", ""), Some(137));
    }

    #[test]
    fn what_lies_beside_a_program_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["data.csv", "helper.py", "b.mjs"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        std::fs::create_dir(folder.path().join("package")).expect("made");
        for (name, message, found) in [
            ("FileNotFoundError", "[Errno 2] No such file or directory: 'data.csv'", "data.csv"),
            ("FileNotFoundError", "[Errno 2] No such file or directory: '/workspace/data.csv'", "data.csv"),
            ("ModuleNotFoundError", "No module named 'helper'", "helper.py"),
            ("ModuleNotFoundError", "No module named 'package.part'; words", "package"),
            ("Error", "ENOENT: no such file or directory, open './data.csv'", "data.csv"),
            ("Error", "Cannot find module '/workspace/b.mjs' imported from /workspace/<cell>", "b.mjs"),
            ("Error", "Cannot find module './b'", "b.mjs"),
        ] {
            let hint = hint(&failure(name, message), folder.path()).expect(message);
            assert!(hint.starts_with(&format!("`{found}` lies in ")), "{hint}");
        }
        for (name, message) in [
            ("FileNotFoundError", "[Errno 2] No such file or directory: 'other.csv'"),
            ("FileNotFoundError", "[Errno 2] No such file or directory: '../data.csv'"),
            ("FileNotFoundError", "[Errno 2] No such file or directory: '/etc/passwd'"),
            ("ValueError", "no 'data.csv'"),
        ] {
            assert_eq!(hint(&failure(name, message), folder.path()), None, "{message}");
        }
    }
}
