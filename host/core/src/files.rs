//! Files that are replaced whole, and files that are opened without waiting for anybody.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// `O_NONBLOCK` of Linux: opening a pipe does not wait for its other end.
const NONBLOCK: i32 = 0o4000;
/// `ENXIO` of Linux: nobody reads a pipe, or there is a socket.
const ENXIO: i32 = 6;
/// Folders of what a process has open already, such as a shell's `<(…)`.
const OPEN_ALREADY: [&str; 3] = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];

/// Permissions of a file that its owner alone reads and writes.
pub const PRIVATE: u32 = 0o600;

/// Promise about a file that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It is on the disk, and so is its name: a machine that loses power has it.
    Synced,
    /// It outlives this process. A machine that loses power may have the file as it was, or an empty one.
    Cached,
}

/// Replaces a file by one for its owner alone, and syncs it. Readers find the file as it was or as it is now, whatever
/// happens meanwhile. Blocks.
///
/// # Errors
/// The file is as it was, but for an error of the last sync.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, bytes, PRIVATE, Durability::Synced)
}

/// Like [`replace`], with the caller's permissions and durability.
///
/// # Errors
/// As [`replace`].
pub fn replace_with(path: &Path, bytes: &[u8], mode: u32, durability: Durability) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Nobody else reads it before it is whole. Whoever lists the folder leaves out names with a dot.
    let mut file = tempfile::Builder::new().prefix(".").tempfile_in(folder)?;
    file.write_all(bytes)?;
    if mode != PRIVATE {
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    if durability == Durability::Synced {
        file.as_file().sync_all()?;
    }
    file.persist(path)?;
    match durability {
        Durability::Synced => File::open(folder)?.sync_all(),
        Durability::Cached => Ok(()),
    }
}

/// Opens a plain file as `options` say. What is there under its name may be a pipe, whose other end nobody holds, or a device
/// without an end: it is never waited for, and refused. Blocks.
///
/// # Errors
/// As [`OpenOptions::open`]; `InvalidInput` for what is no plain file.
pub fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // THREAT: T18
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file");
    let opened = options.custom_flags(NONBLOCK).open(path);
    // A pipe that nobody reads cannot be opened to write, nor a socket at all.
    let is_none = |error: &io::Error| error.raw_os_error() == Some(ENXIO);
    let file = opened.map_err(|error| if is_none(&error) { no_file() } else { error })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

/// Opens a plain file for reading, or what this process has open already, which may be a pipe that somebody writes to. Blocks.
///
/// # Errors
/// As [`open_plain`].
pub fn open_input(path: &Path) -> io::Result<File> {
    match OPEN_ALREADY.iter().any(|open| path.starts_with(open)) {
        true => File::open(path),
        false => open_plain(path, File::options().read(true)),
    }
}

/// Write permission of everybody, and the bit by which each may still rename and remove their own files only.
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Returns true if every user of the machine may write to a file that is open.
///
/// # Errors
/// It cannot be looked at.
pub fn is_writable_by_all(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.is_file() && found.permissions().mode() & WRITABLE_BY_ALL != 0)
}

/// A folder above `path` in which every user of the machine may put something else in its place, if there is one. Blocks.
///
/// # Errors
/// The path leads nowhere.
pub fn exposed_above(path: &Path) -> io::Result<Option<PathBuf>> {
    let path = path.canonicalize()?;
    for folder in path.ancestors().skip(1) {
        let mode = folder.symlink_metadata()?.permissions().mode();
        if mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0 {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kept");
        replace(&path, b"one").expect("made");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, PRIVATE);
        let before = File::open(&path).expect("open");
        replace_with(&path, b"two", 0o644, Durability::Cached).expect("replaced");
        assert_eq!(io::read_to_string(before).expect("read"), "one", "a reader keeps what it has opened");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o644);
        replace(&folder.path().join("none/kept"), b"").expect_err("no folder");
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn folders_in_which_all_may_replace_a_file_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (open, inner) = (folder.path().join("open"), folder.path().join("open/inner"));
        fs::create_dir_all(&inner).expect("folders");
        let set = |mode| fs::set_permissions(&open, Permissions::from_mode(mode)).expect("set");
        for (mode, expected) in [(0o755, false), (0o777, true), (0o1777, false), (0o702, true), (0o770, false)] {
            set(mode);
            let found = exposed_above(&inner).expect("it is there");
            assert_eq!(found.as_deref(), expected.then_some(open.canonicalize().expect("there").as_path()), "{mode:o}");
        }
        set(0o755);
        assert!(exposed_above(&open.join("none")).is_err());
    }

    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert!(open_plain(&pipe, OpenOptions::new().write(true)).is_err());
        assert!(open_plain(&file, OpenOptions::new().write(true).create(true)).is_ok());
        assert!(open_plain(&file, OpenOptions::new().read(true)).is_ok() && open_input(&file).is_ok());
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let opened = open_plain(path, OpenOptions::new().read(true));
            assert!(opened.is_err() && open_input(path).is_err(), "{}", path.display());
        }
        assert!(open_input(Path::new("/dev/fd/0")).is_ok());
    }
}
