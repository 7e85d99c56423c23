//! The private workspace of a session: a temporary folder that goes with it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use cap_std::{ambient_authority, fs::Dir};
use tempfile::TempDir;

/// A folder for this user only, removed when dropped.
pub(crate) struct PrivateFolder(TempDir);

impl PrivateFolder {
    /// Makes an empty one where temporary files go.
    pub(crate) fn new() -> io::Result<PrivateFolder> {
        let private = fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().prefix("cellar-").permissions(private).tempdir().map(PrivateFolder)
    }

    /// Makes one with the same files as another folder.
    pub(crate) fn copy_of(folder: &Path) -> io::Result<PrivateFolder> {
        let copy = PrivateFolder::new()?;
        copy_tree(folder, copy.path())?;
        Ok(copy)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Err(error) = flatten(self.path()) {
            tracing::warn!(%error, "a private workspace cannot be emptied");
        }
    }
}

/// Makes every folder under `root` a child of `root`. Cells nest folders deeper than a recursive removal has file
/// descriptors and stack for, and deeper than a path can say.
pub(crate) fn flatten(root: &Path) -> io::Result<()> {
    let mut unseen: Vec<PathBuf> = folders_in(root)?;
    let mut number = 0_u64;
    while let Some(folder) = unseen.pop() {
        for inner in folders_in(&folder)? {
            // A name that cells can have taken is found taken, and the next one is tried.
            let flat = loop {
                number += 1;
                let flat = root.join(format!("flat-{number}"));
                if flat.symlink_metadata().is_err() {
                    break flat;
                }
            };
            fs::rename(&inner, &flat)?;
            unseen.push(flat);
        }
    }
    Ok(())
}

/// Copies the files, folders and links below `from` into the empty folder `to`. Nothing is followed out of `from`, though
/// cells may change it meanwhile. Hard links become files of their own.
///
/// # Errors
/// What the host says, of a tree too deep for its paths among them.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) =
        (Dir::open_ambient_dir(from, ambient_authority())?, Dir::open_ambient_dir(to, ambient_authority())?);
    let mut unseen = vec![PathBuf::from(".")];
    while let Some(folder) = unseen.pop() {
        for entry in from.read_dir(&folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
            if kind.is_dir() {
                to.create_dir(&path)?;
                unseen.push(path);
            } else if kind.is_symlink() {
                to.symlink_contents(from.read_link_contents(&path)?, &path)?;
            } else if kind.is_file() {
                from.copy(&path, &to, &path)?;
            }
        }
    }
    Ok(())
}

fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_however_deep_and_is_for_its_user_only() {
        let folder = PrivateFolder::new().expect("a folder");
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        // Each round puts all folders so far under one that is 400 deep.
        for round in 0..4 {
            let deep = path.join("d/".repeat(400));
            fs::create_dir_all(&deep).expect("folders");
            if let Ok(older) = path.join("older").canonicalize() {
                fs::rename(older, deep.join("older")).expect("moved");
            }
            fs::write(path.join("flat-1"), "taken").expect("a file");
            fs::rename(path.join("d"), path.join("older")).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        drop(folder);
        assert!(!path.exists());
    }
}
