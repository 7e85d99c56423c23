//! The folders of a session that are its own, and what is done with whole folders.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt},
    path::{Path, PathBuf},
    sync::Mutex,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _},
};
use cellar_core::sync::lock;
use rustix::fs::OFlags;
use tempfile::TempDir;

/// A folder that a session has to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnFolder {
    /// Its private workspace. A session has none that was given a folder for it.
    Workspace,
    /// Folder for its temporary files.
    Temporary,
}

impl OwnFolder {
    /// All of them.
    pub const ALL: [OwnFolder; 2] = [OwnFolder::Workspace, OwnFolder::Temporary];

    /// Its name in the folder that holds them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OwnFolder::Workspace => "workspace",
            OwnFolder::Temporary => "tmp",
        }
    }
}

/// Contents of some folders: bytes of their files, each counted once however many names it has, and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) bytes: u64,
    pub(crate) names: u64,
}

impl Contents {
    /// Returns the usage of a session that has these contents in its own folders and reports so many bytes and names: the larger of each.
    pub(crate) fn at_least(self, (bytes, names): (u64, u64)) -> (u64, u64) {
        (self.bytes.max(bytes), self.names.max(names))
    }

    /// Counts what is in folders of a session, without following links.
    ///
    /// # Errors
    /// Errors of the host, such as one for a tree too deep for its paths.
    pub(crate) fn of(folders: &[PathBuf]) -> io::Result<Contents> {
        let mut contents = Contents::default();
        let mut seen: HashSet<(u64, u64)> = HashSet::new();
        for folder in folders {
            let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
            let mut unseen = vec![PathBuf::from(".")];
            while let Some(inner) = unseen.pop() {
                for entry in folder.read_dir(&inner)? {
                    let entry = entry?;
                    contents.names = contents.names.saturating_add(1);
                    let metadata = entry.metadata()?;
                    if metadata.is_dir() {
                        unseen.push(inner.join(entry.file_name()));
                    } else if metadata.is_file()
                        && (metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino())))
                    {
                        contents.bytes = contents.bytes.saturating_add(metadata.len());
                    }
                }
            }
        }
        Ok(contents)
    }
}

/// A folder on the host for this user only, with folders of a session in it, made when the first of them is needed; removed
/// when dropped.
pub(crate) struct PrivateFolder {
    folders: Vec<OwnFolder>,
    made: Mutex<Option<TempDir>>,
}

impl PrivateFolder {
    /// Creates one with such folders, all empty, in the host's folder for temporary files.
    pub(crate) fn new(folders: &[OwnFolder]) -> PrivateFolder {
        PrivateFolder { folders: folders.to_vec(), made: Mutex::new(None) }
    }

    fn make(folders: &[OwnFolder]) -> io::Result<TempDir> {
        let private = || fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("cellar-").permissions(private()).tempdir()?;
        for folder in folders {
            fs::DirBuilder::new().mode(0o700).create(made.path().join(folder.name()))?;
        }
        Ok(made)
    }

    /// Makes one with copies of such folders, of at most so many bytes.
    pub(crate) fn copy_of(folders: &[(OwnFolder, PathBuf)], bytes_max: u64) -> io::Result<(PrivateFolder, Contents)> {
        let names: Vec<OwnFolder> = folders.iter().map(|(folder, _)| *folder).collect();
        let made = PrivateFolder::new(&names);
        let pair = |(folder, from): &(OwnFolder, PathBuf)| Ok((from.clone(), made.path(*folder)?));
        let pairs = folders.iter().map(pair).collect::<io::Result<Vec<_>>>()?;
        let contents = copy_trees(&pairs, bytes_max)?;
        Ok((made, contents))
    }

    /// Path of one of its folders, if they are made.
    pub(crate) fn made(&self, folder: OwnFolder) -> Option<PathBuf> {
        lock(&self.made).as_ref().map(|root| root.path().join(folder.name()))
    }

    /// Returns the path of one of its folders, which must be among those it was given. Makes them at first use.
    ///
    /// # Errors
    /// Errors of the host when they cannot be made.
    pub(crate) fn path(&self, folder: OwnFolder) -> io::Result<PathBuf> {
        let mut made = lock(&self.made);
        let root = match &mut *made {
            Some(root) => root,
            none => none.insert(PrivateFolder::make(&self.folders)?),
        };
        Ok(root.path().join(folder.name()))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Some(made) = &*lock(&self.made)
            && let Err(error) = flatten(made.path())
        {
            tracing::warn!(%error, "the private folders of a session cannot be emptied");
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
                number = number.saturating_add(1);
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

/// Copies the files, folders and links below the first of each pair into the empty folder that is the second: at most
/// `bytes_max` bytes. Nothing is followed out of them, though cells may change them meanwhile. Names of one file become
/// names of one copy, so that the copy takes no more room than what it was made of.
///
/// # Errors
/// `QuotaExceeded` when there is more to copy; errors of the host, such as one for a tree too deep for its paths.
pub(crate) fn copy_trees(pairs: &[(PathBuf, PathBuf)], bytes_max: u64) -> io::Result<Contents> {
    let mut copier = Copier { left: bytes_max, names: 0, copies: HashMap::new() };
    for (from, to) in pairs {
        let open = |folder| Dir::open_ambient_dir(folder, ambient_authority());
        copier.tree(&open(from)?, to, &open(to)?)?;
    }
    Ok(Contents { bytes: bytes_max.saturating_sub(copier.left), names: copier.names })
}

/// Copy in progress: the bytes that may still be copied, and the names that were.
struct Copier {
    /// Bytes that may still be copied.
    left: u64,
    names: u64,
    /// Path on the host of the copy of each file that has several names.
    copies: HashMap<(u64, u64), PathBuf>,
}

impl Copier {
    fn tree(&mut self, from: &Dir, to_path: &Path, to: &Dir) -> io::Result<()> {
        let mut unseen = vec![PathBuf::from(".")];
        while let Some(folder) = unseen.pop() {
            for entry in from.read_dir(&folder)? {
                let entry = entry?;
                let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
                self.names = self.names.saturating_add(1);
                if kind.is_dir() {
                    to.create_dir(&path)?;
                    unseen.push(path);
                } else if kind.is_symlink() {
                    to.symlink_contents(from.read_link_contents(&path)?, &path)?;
                } else if kind.is_file() {
                    self.file(from, to_path, to, &path)?;
                }
            }
        }
        Ok(())
    }

    /// Copies one file, or gives its copy another name.
    fn file(&mut self, from: &Dir, to_path: &Path, to: &Dir, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        // What was a file a moment ago may be a FIFO now, which is not to be waited for.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = from.open_with(path, &options)?.into_std();
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(());
        }
        let id = (metadata.dev(), metadata.ino());
        // Nobody but this function has the copies yet, so their paths are as good as descriptors.
        if let Some(copy) = self.copies.get(&id) {
            return fs::hard_link(copy, to_path.join(path));
        }
        let mut copy = to.create(path)?.into_std();
        let copied = io::copy(&mut file.take(self.left.saturating_add(1)), &mut copy)?;
        self.left = self.left.checked_sub(copied).ok_or(io::ErrorKind::QuotaExceeded)?;
        copy.set_permissions(metadata.permissions())?;
        if metadata.nlink() > 1 {
            self.copies.insert(id, to_path.join(path));
        }
        Ok(())
    }
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
        let folder = PrivateFolder::new(&OwnFolder::ALL);
        let path = folder.path(OwnFolder::Workspace).expect("a folder");
        let root = path.parent().expect("it has one").to_owned();
        for private in [&root, &path, &folder.path(OwnFolder::Temporary).expect("a folder")] {
            assert_eq!(fs::metadata(private).expect("it is there").permissions().mode() & 0o777, 0o700);
        }
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
        assert!(!root.exists());
    }

    #[test]
    fn is_made_when_it_is_needed_and_once() {
        let folder = PrivateFolder::new(&OwnFolder::ALL);
        assert!(lock(&folder.made).is_none(), "nobody has needed it");
        let [workspace, again] = [(); 2].map(|()| folder.path(OwnFolder::Workspace).expect("a folder"));
        assert_eq!(workspace, again);
        assert!(workspace.is_dir() && folder.path(OwnFolder::Temporary).is_ok_and(|path| path.is_dir()));
    }

    #[test]
    fn copies_hard_links_as_links_and_no_more_than_the_limit() {
        let from = PrivateFolder::new(&OwnFolder::ALL);
        let folders: Vec<_> =
            OwnFolder::ALL.into_iter().map(|folder| (folder, from.path(folder).expect("a folder"))).collect();
        let [workspace, temporary] = OwnFolder::ALL.map(|folder| from.path(folder).expect("a folder"));
        fs::write(workspace.join("a"), vec![1; 1000]).expect("a file");
        fs::create_dir(workspace.join("d")).expect("a folder");
        for link in [workspace.join("b"), workspace.join("d/c"), temporary.join("e")] {
            fs::hard_link(workspace.join("a"), link).expect("a link");
        }
        fs::write(temporary.join("alone"), vec![2; 500]).expect("a file");
        let (to, copied) = PrivateFolder::copy_of(&folders, 1500).expect("it fits");
        assert_eq!(copied, Contents { bytes: 1500, names: 6 });
        let copies: Vec<PathBuf> =
            OwnFolder::ALL.into_iter().map(|folder| to.path(folder).expect("a folder")).collect();
        assert_eq!(Contents::of(&copies).expect("it is counted"), copied);
        let inode = |name: &str| fs::metadata(copies[0].join(name)).expect("it is there").ino();
        assert_eq!((inode("a"), inode("a"), inode("a")), (inode("b"), inode("d/c"), inode("../tmp/e")));
        assert_ne!(inode("a"), inode("../tmp/alone"));
        assert_eq!(fs::read(copies[0].join("d/c")).expect("it is read"), vec![1; 1000]);
        let full = PrivateFolder::copy_of(&folders, 1499).err().map(|error| error.kind());
        assert_eq!(full, Some(io::ErrorKind::QuotaExceeded));
    }
}
