//! `cellar sessions`, `snapshot`, `restore` and `fork`: the sessions that `--session` keeps.

use std::{
    fmt::Write as _,
    io::{self, BufReader},
    path::Path,
    time::SystemTime,
};

use cellar_core::files::replace;
use cellar_engine::{
    Error, Snapshot,
    store::{SessionStore, StoredInfo},
};

use crate::{
    args::{Folders, ForkArguments, RestoreArguments, SessionsArguments, SnapshotArguments},
    artifacts, output,
    report::{CliError, EXIT_COMPLETE},
    terminal::{Look, escaped, padded, width},
};
use cellar_config::ArtifactsTable;
use cellar_wire::{StoredSessionJson, unix_seconds};

/// Opens the folder of stored sessions.
///
/// # Errors
/// No folder was named and the user has none, or it cannot be made.
pub(crate) fn store(folders: &Folders) -> Result<SessionStore, CliError> {
    Ok(cellar_config::Folders::from(folders).sessions()?)
}

/// Lists the stored sessions, or removes some.
///
/// # Errors
/// The store cannot be read, or a session that is to go is not there or in use.
pub(crate) fn sessions(folders: &Folders, arguments: &SessionsArguments) -> Result<u8, CliError> {
    let store = store(folders)?;
    if !arguments.delete.is_empty() {
        let artifacts = artifacts::store(folders, &ArtifactsTable::default())?;
        for name in &arguments.delete {
            store.remove(name)?;
            artifacts.forget_session(name)?;
        }
        return Ok(EXIT_COMPLETE);
    }
    let sessions = store.list()?;
    match arguments.json {
        true => output::print_json(&sessions.iter().map(json).collect::<Vec<_>>())?,
        false => output::print(&table(&sessions, SystemTime::now()))?,
    }
    Ok(EXIT_COMPLETE)
}

fn json(info: &StoredInfo) -> StoredSessionJson {
    StoredSessionJson {
        name: info.name.clone(),
        stored_at: info.stored_at.map(unix_seconds),
        state_bytes: info.state_bytes,
        languages: info.languages.iter().map(|language| language.code()).collect(),
        is_live: info.is_live,
        problem: info.problem.as_ref().map(ToString::to_string),
    }
}

fn table(sessions: &[StoredInfo], now: SystemTime) -> String {
    let mut text = String::new();
    let columns = sessions.iter().map(|session| width(&session.name)).max().unwrap_or(0);
    for session in sessions {
        let languages: Vec<&str> = session.languages.iter().map(|language| language.code()).collect();
        let state = match (&session.problem, session.stored_at) {
            (Some(problem), _) => escaped(&problem.to_string()).into_owned(),
            (None, None) => "nothing stored yet".to_owned(),
            (None, Some(at)) => {
                let age = now.duration_since(at).unwrap_or_default().as_secs();
                format!("{:>9}  {:>8}  {}", age_text(age), size_text(session.state_bytes), languages.join(" "))
            }
        };
        let live = if session.is_live { "  in use" } else { "" };
        let _ = writeln!(text, "{}  {state}{live}", padded(&escaped(&session.name), columns));
    }
    text
}

pub(crate) fn age_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Writes the stored state of a session into a file.
///
/// # Errors
/// The session is not there or has no state, or the file cannot be written.
pub(crate) fn snapshot(folders: &Folders, arguments: &SnapshotArguments) -> Result<u8, CliError> {
    let snapshot = store(folders)?.load(&arguments.session)?;
    let snapshot = snapshot.ok_or_else(|| {
        CliError::usage(format!("nothing was stored of session `{}` yet", arguments.session), "run a cell in it first")
    })?;
    if arguments.file == Path::new("-") {
        if Look::of_stdout().is_terminal {
            return Err(CliError::usage(
                "a snapshot is no text for a terminal",
                "name a file, or pipe it to a program",
            ));
        }
        output::print_data(&snapshot.to_bytes())?;
    } else {
        write_snapshot(&snapshot, &arguments.file)?;
    }
    Ok(EXIT_COMPLETE)
}

/// Writes a snapshot into a file.
///
/// # Errors
/// The file cannot be written; it is as it was then.
pub(crate) fn write_snapshot(snapshot: &Snapshot, path: &Path) -> Result<(), CliError> {
    write_file(path, &snapshot.to_bytes()).map_err(|source| CliError::Save { path: path.to_owned(), source })
}

/// Reads a snapshot from a file, or from standard input.
///
/// # Errors
/// The file cannot be read, or is no snapshot.
pub(crate) fn read_snapshot(path: &Path) -> Result<Snapshot, CliError> {
    let read = match path == Path::new("-") {
        true => Snapshot::read_from(io::stdin().lock()),
        false => Snapshot::open_file(path).and_then(|file| Snapshot::read_from(BufReader::new(file))),
    };
    let read = read.map_err(|source| CliError::Read { path: path.to_owned(), source })?;
    Ok(read.map_err(Error::from)?)
}

/// Writes a file so that it is whole or as it was.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The new file would take the place of a device or a pipe, for everybody who uses that.
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it is no plain file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // What goes wrong with it is told without a name that nobody gave.
    folder.metadata()?;
    replace(path, bytes)
}

/// Makes a session of a snapshot, or takes one back to it.
///
/// # Errors
/// The file is no snapshot, or the session is there already or in use.
pub(crate) fn restore(folders: &Folders, arguments: &RestoreArguments) -> Result<u8, CliError> {
    let snapshot = read_snapshot(&arguments.file)?;
    let store = store(folders)?;
    let name = arguments.session.as_deref().unwrap_or(snapshot.session());
    let home = if arguments.force { store.claim(name)? } else { store.claim_new(name)? };
    // Others may be made of the same file.
    home.save(&snapshot.forked().named(name))?;
    Ok(EXIT_COMPLETE)
}

/// Makes a session of another one.
///
/// # Errors
/// The one is not there, the other is, or a folder fails.
pub(crate) fn fork(folders: &Folders, arguments: &ForkArguments) -> Result<u8, CliError> {
    store(folders)?.fork(&arguments.session, &arguments.new)?;
    Ok(EXIT_COMPLETE)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{fs::FileTypeExt as _, net::UnixListener},
    };

    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        assert_eq!(
            [size_text(0), size_text(1), size_text(999_001), size_text(12_345_678)],
            ["0 kB", "1 kB", "1000 kB", "12.3 MB"]
        );
        assert_eq!(
            [age_text(59), age_text(60), age_text(7_200), age_text(180_000)],
            ["59 s ago", "1 min ago", "2 h ago", "2 d ago"]
        );
    }

    #[test]
    fn a_file_is_replaced_and_what_is_none_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, socket, link) = (folder.path().join("f"), folder.path().join("s"), folder.path().join("l"));
        write_file(&file, b"one").expect("written");
        write_file(&file, b"two").expect("written again");
        assert_eq!(fs::read(&file).expect("the file"), b"two");
        let _listening = UnixListener::bind(&socket).expect("a socket");
        std::os::unix::fs::symlink(&socket, &link).expect("a link");
        for path in [&socket, &link, &folder.path().to_owned()] {
            assert_eq!(write_file(path, b"x").expect_err("no file").to_string(), "it is no plain file");
        }
        assert!(fs::symlink_metadata(&socket).expect("still there").file_type().is_socket());
        assert!(fs::symlink_metadata(&link).expect("still there").is_symlink());
    }
}
