//! Files that are replaced whole.

use std::{
    fs::{File, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

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
}
