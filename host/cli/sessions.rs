//! `cellar session`: the sessions that `--session` keeps.

use std::{
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
    args::{Folders, ForkArguments, RestoreArguments, SessionCommand, SnapshotArguments},
    artifacts, datasets, output,
    report::{CliError, EXIT_COMPLETE},
    states,
    table::table,
    terminal::Look,
    upgrade::upgrade,
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

/// Runs a command on the stored sessions.
///
/// # Errors
/// The store fails, has no such session, or has it in use.
pub(crate) fn session(folders: &Folders, command: &SessionCommand) -> Result<u8, CliError> {
    match command {
        SessionCommand::List { json } => list(folders, *json)?,
        SessionCommand::Remove { names } => remove(folders, names)?,
        SessionCommand::Snapshot(arguments) => snapshot(folders, arguments)?,
        SessionCommand::Restore(arguments) => restore(folders, arguments)?,
        SessionCommand::Fork(arguments) => fork(folders, arguments)?,
        SessionCommand::Origin(arguments) => datasets::origin(folders, arguments)?,
        SessionCommand::Log(arguments) => states::log(folders, arguments)?,
        SessionCommand::Back(arguments) => states::back(folders, arguments)?,
        SessionCommand::Branch(arguments) => states::branch(folders, arguments)?,
        SessionCommand::Diff(arguments) => states::diff(folders, arguments)?,
        SessionCommand::Name(arguments) => states::name(folders, arguments)?,
        SessionCommand::Pin(arguments) => states::pin(folders, arguments)?,
        SessionCommand::Forget(arguments) => states::forget(folders, arguments)?,
        SessionCommand::Upgrade(arguments) => upgrade(folders, arguments)?,
    }
    Ok(EXIT_COMPLETE)
}

fn list(folders: &Folders, as_json: bool) -> Result<(), CliError> {
    let sessions = store(folders)?.list()?;
    match as_json {
        true => output::print_json(&sessions.iter().map(json).collect::<Vec<_>>()),
        false => output::print(&listed(&sessions, SystemTime::now())),
    }
}

fn remove(folders: &Folders, names: &[String]) -> Result<(), CliError> {
    let store = store(folders)?;
    let artifacts = artifacts::store(folders, &ArtifactsTable::default())?;
    for name in names {
        store.remove(name)?;
        artifacts.forget_session(name)?;
    }
    Ok(())
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

fn listed(sessions: &[StoredInfo], now: SystemTime) -> String {
    let row = |session: &StoredInfo| {
        let languages: Vec<&str> = session.languages.iter().map(|language| language.code()).collect();
        let (age, size, what) = match (&session.problem, session.stored_at) {
            (Some(problem), _) => (String::new(), String::new(), problem.to_string()),
            (None, None) => (String::new(), String::new(), "nothing stored yet".to_owned()),
            (None, Some(at)) => {
                let age = now.duration_since(at).unwrap_or_default().as_secs();
                (age_text(age), size_text(session.state_bytes), languages.join(" "))
            }
        };
        let live = if session.is_live { "in use" } else { "" };
        [session.name.clone(), age, size, what, live.to_owned()]
    };
    let rows: Vec<_> = sessions.iter().map(row).collect();
    table(["NAME", "STORED", "SIZE", "LANGUAGES", ""], &rows, "no sessions are kept; --session NAME keeps one")
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
fn snapshot(folders: &Folders, arguments: &SnapshotArguments) -> Result<(), CliError> {
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
    Ok(())
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
fn restore(folders: &Folders, arguments: &RestoreArguments) -> Result<(), CliError> {
    let snapshot = read_snapshot(&arguments.file)?;
    let store = store(folders)?;
    let name = arguments.session.as_deref().unwrap_or(snapshot.session());
    let home = if arguments.force { store.claim(name)? } else { store.claim_new(name)? };
    // Others may be made of the same file.
    home.save(&snapshot.forked().named(name))?;
    Ok(())
}

/// Makes a session of another one.
///
/// # Errors
/// The one is not there, the other is, or a folder fails.
fn fork(folders: &Folders, arguments: &ForkArguments) -> Result<(), CliError> {
    store(folders)?.fork(&arguments.session, &arguments.new)?;
    Ok(())
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
