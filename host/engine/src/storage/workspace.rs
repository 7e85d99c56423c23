//! The private workspace of a session: a temporary folder that goes with it.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt},
    path::{Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use rustix::fs::OFlags;
use tempfile::TempDir;

/// What is in a folder: bytes of its files, each counted once however many names it has, and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) bytes: u64,
    pub(crate) names: u64,
}

impl Contents {
    /// What a session uses that has this in its private workspace, and says that it uses so many bytes and names.
    pub(crate) fn at_least(self, (bytes, names): (u64, u64)) -> (u64, u64) {
        (self.bytes.max(bytes), self.names.max(names))
    }

    /// Counts what is in a private workspace, without following links.
    ///
    /// # Errors
    /// What the host says, of a tree too deep for its paths among them.
    pub(crate) fn of(folder: &Path) -> io::Result<Contents> {
        let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
        let mut contents = Contents::default();
        let mut seen: HashSet<(u64, u64)> = HashSet::new();
        let mut unseen = vec![PathBuf::from(".")];
        while let Some(inner) = unseen.pop() {
            for entry in folder.read_dir(&inner)? {
                let entry = entry?;
                contents.names += 1;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    unseen.push(inner.join(entry.file_name()));
                } else if metadata.is_file() && (metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino())))
                {
                    contents.bytes = contents.bytes.saturating_add(metadata.len());
                }
            }
        }
        Ok(contents)
    }
}

/// A folder for this user only, removed when dropped.
pub(crate) struct PrivateFolder(TempDir);

impl PrivateFolder {
    /// Makes an empty one where temporary files go.
    pub(crate) fn new() -> io::Result<PrivateFolder> {
        let private = fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().prefix("cellar-").permissions(private).tempdir().map(PrivateFolder)
    }

    /// Makes one with the same files as another folder, of at most so many bytes.
    pub(crate) fn copy_of(folder: &Path, bytes_max: u64) -> io::Result<(PrivateFolder, Contents)> {
        let copy = PrivateFolder::new()?;
        let contents = copy_tree(folder, copy.path(), bytes_max)?;
        Ok((copy, contents))
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

/// Copies the files, folders and links below `from` into the empty folder `to`: at most `bytes_max` bytes. Nothing is
/// followed out of `from`, though cells may change it meanwhile. Names of one file become names of one copy, so that the
/// copy takes no more room than what it was made of.
///
/// # Errors
/// `QuotaExceeded` when there is more to copy; what the host says, of a tree too deep for its paths among them.
pub(crate) fn copy_tree(from: &Path, to: &Path, bytes_max: u64) -> io::Result<Contents> {
    let (from, to) =
        (Dir::open_ambient_dir(from, ambient_authority())?, Dir::open_ambient_dir(to, ambient_authority())?);
    let (mut left, mut names) = (bytes_max, 0);
    // Where the copy is of each file that has several names.
    let mut copies: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let mut unseen = vec![PathBuf::from(".")];
    while let Some(folder) = unseen.pop() {
        for entry in from.read_dir(&folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
            names += 1;
            if kind.is_dir() {
                to.create_dir(&path)?;
                unseen.push(path);
            } else if kind.is_symlink() {
                to.symlink_contents(from.read_link_contents(&path)?, &path)?;
            } else if kind.is_file() {
                copy_file(&from, &to, &path, &mut left, &mut copies)?;
            }
        }
    }
    Ok(Contents { bytes: bytes_max - left, names })
}

/// Copies one file, or gives its copy another name.
fn copy_file(
    from: &Dir,
    to: &Dir,
    path: &Path,
    left: &mut u64,
    copies: &mut HashMap<(u64, u64), PathBuf>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // What was a file a moment ago may be a FIFO now, which is not to be waited for.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = from.open_with(path, &options)?.into_std();
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let id = (metadata.dev(), metadata.ino());
    if let Some(copy) = copies.get(&id) {
        return to.hard_link(copy, to, path);
    }
    let mut copy = to.create(path)?.into_std();
    let copied = io::copy(&mut file.take(left.saturating_add(1)), &mut copy)?;
    *left = left.checked_sub(copied).ok_or(io::ErrorKind::QuotaExceeded)?;
    copy.set_permissions(metadata.permissions())?;
    if metadata.nlink() > 1 {
        copies.insert(id, path.to_owned());
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

    #[test]
    fn copies_hard_links_as_links_and_no_more_than_the_limit() {
        let (from, to) = (PrivateFolder::new().expect("a folder"), PrivateFolder::new().expect("a folder"));
        fs::write(from.path().join("a"), vec![1; 1000]).expect("a file");
        fs::create_dir(from.path().join("d")).expect("a folder");
        for link in ["b", "d/c"] {
            fs::hard_link(from.path().join("a"), from.path().join(link)).expect("a link");
        }
        fs::write(from.path().join("alone"), vec![2; 500]).expect("a file");
        let copied = copy_tree(from.path(), to.path(), 1500).expect("it fits");
        assert_eq!(copied, Contents { bytes: 1500, names: 5 });
        assert_eq!(Contents::of(to.path()).expect("it is counted"), copied);
        let inode = |name: &str| fs::metadata(to.path().join(name)).expect("it is there").ino();
        assert_eq!((inode("a"), inode("a")), (inode("b"), inode("d/c")));
        assert_ne!(inode("a"), inode("alone"));
        assert_eq!(fs::read(to.path().join("d/c")).expect("it is read"), vec![1; 1000]);
        let full = PrivateFolder::copy_of(from.path(), 1499).err().map(|error| error.kind());
        assert_eq!(full, Some(io::ErrorKind::QuotaExceeded));
    }
}
