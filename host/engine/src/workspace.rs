//! The private workspace of a session: a temporary folder that goes with it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// A folder for this user only, removed when dropped.
pub(crate) struct PrivateFolder(TempDir);

impl PrivateFolder {
    /// Makes an empty one where temporary files go.
    pub(crate) fn new() -> io::Result<PrivateFolder> {
        let private = fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().prefix("cellar-").permissions(private).tempdir().map(PrivateFolder)
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
fn flatten(root: &Path) -> io::Result<()> {
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
