//! Files that are replaced whole, and files that are opened without waiting for anybody.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// `O_NONBLOCK` of Linux: opening a pipe does not wait for its other end.
const NONBLOCK: i32 = 0o4000;
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

/// Opens a regular file for reading. A pipe or a device is refused at once, instead of waiting for what it has. Blocks.
///
/// # Errors
/// As [`File::open`]; `InvalidInput` for what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // THREAT: T18
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Like [`open_regular`], but for what this process has open already, which may be a pipe that somebody writes to. Blocks.
///
/// # Errors
/// As [`open_regular`].
pub fn open_input(path: &Path) -> io::Result<File> {
    if OPEN_ALREADY.iter().any(|open| path.starts_with(open)) { File::open(path) } else { open_regular(path) }
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
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        fs::write(&file, "text").expect("written");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        assert!(open_regular(&file).is_ok() && open_input(&file).is_ok());
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            assert!(open_regular(path).is_err() && open_input(path).is_err(), "{}", path.display());
        }
        assert!(open_input(Path::new("/dev/fd/0")).is_ok());
    }
}
