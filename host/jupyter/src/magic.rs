//! `%cellar`: commands of this kernel beyond running cells. They are answered here; no guest sees them.

use std::{
    fs::{self, DirBuilder},
    io::{self, BufReader},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use cellar_config::Folders;
use cellar_core::files::replace;
use cellar_engine::{Error, Language, Session, Snapshot, states::StateList};

/// First word of every magic of this kernel.
const WORD: &str = "%cellar";
/// Folder of the snapshots, in the folder of the sessions, by a name that no session can have.
const SNAPSHOTS: &str = ".snapshots";
/// Extension of a snapshot's file.
const ENDING: &str = ".snapshot";
/// Characters of a name, at most.
const NAME_CHARACTERS_MAX: usize = 100;

const HELP: &str = "\
%cellar back [N]        undo: memory and private files as they were before the last N cells, 1 unless given
%cellar states          list the states that are kept: every end of a cell is one
%cellar to STATE        go back to a state, or forth, by its number or name
%cellar snapshot NAME   keep the state of this notebook: names, closures, generators, whatever lives in memory
%cellar restore NAME    go back to a state that was kept, in this notebook or in another one; files stay as they are
%cellar snapshots       list the states that are kept
%cellar fork NAME       make a session of the state and the private files; `cellar repl --session NAME` goes on with it
%cellar reset           begin afresh; files stay
";

/// Reason for which a magic fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MagicError {
    /// The line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The engine failed or refused.
    #[error(transparent)]
    Engine(#[from] Error),
    /// A file of a snapshot cannot be used.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    /// The folder of the sessions is not known.
    #[error("{0}")]
    Folder(String),
}

impl MagicError {
    /// Returns the name of the error as clients show it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            MagicError::Usage(_) => "UsageError",
            _ => "CellarError",
        }
    }
}

/// Checks whether a cell is for this kernel and not for its guest.
pub(crate) fn is_magic(code: &str) -> bool {
    let rest = code.trim_start().strip_prefix(WORD);
    rest.is_some_and(|rest| rest.chars().next().is_none_or(char::is_whitespace))
}

/// Carries out a cell that [is for this kernel](is_magic), and returns a report for the user.
///
/// # Errors
/// The cell makes no sense, or its command fails.
pub(crate) async fn run(
    code: &str,
    session: &Session,
    language: Language,
    folders: &Folders,
) -> Result<String, MagicError> {
    let usage = |what: String| MagicError::Usage(format!("{what}\n{HELP}"));
    let mut lines = code.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next().unwrap_or_default();
    if lines.next().is_some() {
        return Err(usage("%cellar stands alone in its cell".to_owned()));
    }
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    match words[..] {
        [] | ["help"] => Ok(HELP.to_owned()),
        ["back"] => go_to(session, "~1").await,
        ["back", steps] if steps.bytes().all(|byte| byte.is_ascii_digit()) => {
            go_to(session, &format!("~{steps}")).await
        }
        ["to", state] => go_to(session, state).await,
        ["states"] => Ok(states(&session.states().await?)),
        ["snapshot", name] => {
            let path = file(folders, name)?;
            let snapshot = session.snapshot().await?;
            let bytes = blocking(move || {
                let bytes = snapshot.to_bytes();
                write(&path, &bytes).map_err(|source| MagicError::File { doing: "write", path, source })?;
                Ok(bytes.len())
            });
            Ok(format!("the state is kept as `{name}` ({} KiB)\n", bytes.await?.div_ceil(1 << 10)))
        }
        ["restore", name] => {
            let path = file(folders, name)?;
            let read = blocking(move || {
                let file = Snapshot::open_file(&path).and_then(|file| Snapshot::read_from(BufReader::new(file)));
                match file {
                    Ok(read) => Ok(Some(read.map_err(Error::from)?)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(source) => Err(MagicError::File { doing: "read", path, source }),
                }
            });
            let snapshot = read.await?;
            let snapshot = snapshot
                .ok_or_else(|| MagicError::Usage(format!("no state is kept as `{name}`; see %cellar snapshots")))?;
            session.rewind(&snapshot)?;
            Ok(format!("this notebook goes on from `{name}`\n"))
        }
        ["snapshots"] => {
            let folder = folder(folders)?;
            blocking(move || list(&folder).map_err(|source| MagicError::File { doing: "list", path: folder, source }))
                .await
        }
        ["fork", name] => {
            let folders = folders.clone();
            let own = name.to_owned();
            let home = blocking(move || {
                let store = folders.sessions().map_err(|error| MagicError::Folder(error.to_string()))?;
                Ok(store.claim_new(&own)?)
            });
            session.fork_into(home.await?).await?;
            Ok(format!("the session `{name}` begins here; go on with `cellar repl --session {name}`\n"))
        }
        ["reset"] => {
            session.reset(language);
            Ok("this notebook begins afresh\n".to_owned())
        }
        ["to"] => Err(usage(format!("{line} needs a state; see %cellar states"))),
        ["snapshot" | "restore" | "fork"] => Err(usage(format!("{line} needs a name"))),
        _ => Err(usage(format!("there is no `{line}`"))),
    }
}

/// Goes to a state. Returns a report that names what does not change.
async fn go_to(session: &Session, state: &str) -> Result<String, MagicError> {
    let outside = session.states().await?.outside;
    let info = session.back(state).await?;
    let stays = match outside.is_empty() {
        true => String::new(),
        false => format!("; granted folders stay as they are: {}", outside.join(", ")),
    };
    let cell = info.cell.map(|cell| format!(", the end of cell {cell}")).unwrap_or_default();
    Ok(format!("this notebook is at state {}{cell}{stays}\n", info.number))
}

/// Lists states, one a line.
fn states(list: &StateList) -> String {
    if list.states.is_empty() {
        return "no states are kept yet\n".to_owned();
    }
    let mut text = String::new();
    for state in &list.states {
        let mark = if list.current == Some(state.number) { "*" } else { " " };
        let cell = state.cell.map(|cell| format!("cell {cell}")).unwrap_or_default();
        let parent = state.parent.map(|parent| format!("from {parent}")).unwrap_or_default();
        let name = state.name.as_deref().unwrap_or_default();
        let line = format!("{mark} {:>4}  {parent:<10}  {cell:<10}  {name}", state.number);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MagicError> + Send + 'static,
) -> Result<T, MagicError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| MagicError::Folder("a thread of the kernel failed".to_owned()))?
}

fn folder(folders: &Folders) -> Result<PathBuf, MagicError> {
    let store = folders.store().map_err(|error| MagicError::Folder(format!("{error}; say --store DIR")))?;
    Ok(store.join(SNAPSHOTS))
}

/// Returns the path of a snapshot.
fn file(folders: &Folders, name: &str) -> Result<PathBuf, MagicError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > NAME_CHARACTERS_MAX || name.starts_with(['.', '-']) || !name.chars().all(is_plain) {
        return Err(MagicError::Usage(format!(
            "`{name}` cannot name a state: a name has 1 to {NAME_CHARACTERS_MAX} letters, digits, `.`, `-` and `_`, and begins with \
             none of `.` and `-`"
        )));
    }
    Ok(folder(folders)?.join(format!("{name}{ENDING}")))
}

/// Writes a file atomically, for this user alone.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    replace(path, bytes)
}

/// Returns the names of the snapshots, one a line.
fn list(folder: &Path) -> io::Result<String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok("no state is kept\n".to_owned()),
        Err(error) => return Err(error),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(ENDING).map(str::to_owned)).collect();
    names.sort_unstable();
    Ok(if names.is_empty() { "no state is kept\n".to_owned() } else { names.join("\n") + "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_this_kernel_are_taken() {
        for code in ["%cellar", " \n%cellar snapshot a\n", "%cellar\tx"] {
            assert!(is_magic(code), "{code:?}");
        }
        for code in ["%cellars", "x = 1\n%cellar", "%%cellar", "%time 1", ""] {
            assert!(!is_magic(code), "{code:?}");
        }
    }

    #[test]
    fn names_stay_in_their_folder() {
        let folders = Folders { store: Some("/store".into()), ..Folders::default() };
        assert!(file(&folders, "a.b-c_1").is_ok_and(|path| path == Path::new("/store/.snapshots/a.b-c_1.snapshot")));
        for name in ["../x", ".x", "-x", "a/b", "é", &"x".repeat(101)] {
            assert!(file(&folders, name).is_err(), "{name}");
        }
    }
}
