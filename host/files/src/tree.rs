//! The virtual tree: which mount a guest path belongs to, decided without asking the host more than it must.
//!
//! Inside the tree a path is kept in one form: each name with a slash before it, nothing else, so the root is `""`.
//! There is no way from such a path to a host path: the part below a mount point is always resolved by cap-std against
//! the open folder, which refuses to leave it.

use std::sync::Arc;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt as _};
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{AtFlags, OFlags};

use super::error::FileError;
use super::listing::DirectoryEntry;
use super::mount::OpenMount;
use super::stat::{FileKind, Stat, ancestor_inode};

/// Longest path, longest name, and most symbolic links on the way: Linux's own limits, so that the guest meets the same
/// ones wherever the folder lies.
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;
const LINKS_MAX: usize = 40;

/// # Errors
/// The path is empty, too long, or holds a NUL.
pub(super) fn check(path: &str) -> Result<(), FileError> {
    if path.is_empty() {
        Err(FileError::NotFound)
    } else if path.contains('\0') {
        Err(FileError::Invalid)
    } else if path.len() > PATH_MAX || path.split('/').any(|name| name.len() > NAME_MAX) {
        Err(FileError::NameTooLong)
    } else {
        Ok(())
    }
}

/// Adds the names of `path` to a path in the tree's form.
pub(super) fn push_names(to: &mut String, path: &str) {
    for name in names(path) {
        to.push('/');
        to.push_str(name);
    }
}

fn names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// The rest of `path` below `folder`: `""` for the folder itself, else with a slash before it.
pub(super) fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    path.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where a path leads. Its last name need not exist.
#[derive(Debug)]
pub(super) enum Place {
    /// A folder that exists only because a mount point lies below it.
    Ancestor(String),
    /// In a mount.
    Mounted(Spot),
}

/// A place in a mount.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) mount: OpenMount,
    /// Whole guest path, in the tree's form.
    pub(super) path: String,
    /// Is the last name to be followed if it is a symbolic link?
    pub(super) follow: bool,
    /// The path ended in `/`, `.` or `..`: only a folder will do.
    pub(super) folder: bool,
    /// The path ended in `.` or `..`: that is no name to make, move or remove.
    pub(super) dots: bool,
    /// It is a mount point, or holds one: it can be neither moved nor removed.
    pub(super) pinned: bool,
}

/// A name in an open folder. Because the name is one plain name, `*at` calls on it that follow no link cannot leave
/// the folder, and all calls on one `Entry` mean the same folder whatever is renamed meanwhile.
pub(super) struct Entry<'s> {
    pub(super) folder: Arc<Dir>,
    pub(super) name: &'s str,
}

impl Entry<'_> {
    /// # Errors
    /// `NotFound`, or what else the host says.
    pub(super) fn stat(&self) -> Result<Stat, FileError> {
        let stat = rustix::fs::statat(&*self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Stat::from_host(&stat))
    }
}

impl Spot {
    pub(super) fn is_mount_point(&self) -> bool {
        self.path == self.mount.point()
    }

    /// The path for cap-std.
    fn relative(&self) -> &str {
        self.path.get(self.mount.point().len() + 1..).unwrap_or(".")
    }

    /// Opens the place without ever waiting for it: a FIFO would wait for its other end, a terminal could become
    /// the host's own.
    ///
    /// # Errors
    /// What the host says; `NotCapable` when a link leads out of the mount.
    pub(super) fn open(&self, options: &mut OpenOptions) -> Result<File, FileError> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
        options.follow(if self.follow { FollowSymlinks::Yes } else { FollowSymlinks::No });
        Ok(self.mount.dir().open_with(self.relative(), options)?)
    }

    /// # Errors
    /// What the host says; `NotCapable` when a link leads out of the mount.
    pub(super) fn stat(&self) -> Result<Stat, FileError> {
        let dir = self.mount.dir();
        let metadata =
            if self.follow { dir.metadata(self.relative())? } else { dir.symlink_metadata(self.relative())? };
        let stat = Stat::from_metadata(&metadata);
        if self.folder && stat.kind != FileKind::Directory { Err(FileError::NotDirectory) } else { Ok(stat) }
    }

    /// Opens the folder that holds the last name.
    ///
    /// # Errors
    /// `Busy` for a mount point, `Invalid` for a path that ends in `.` or `..`, or what the host says.
    pub(super) fn entry(&self) -> Result<Entry<'_>, FileError> {
        if self.dots {
            return Err(FileError::Invalid);
        }
        if self.is_mount_point() {
            return Err(FileError::Busy);
        }
        let (folder, name) = match self.relative().rsplit_once('/') {
            Some((parent, name)) => (Arc::new(self.mount.dir().open_dir(parent)?), name),
            None => (Arc::clone(self.mount.dir()), self.relative()),
        };
        Ok(Entry { folder, name })
    }

    /// # Errors
    /// `NotCapable` for an absolute target, which would tell the guest about the host; `Invalid` when it is no link.
    pub(super) fn read_link(&self) -> Result<String, FileError> {
        let target = self.mount.dir().read_link(self.relative())?;
        target.into_os_string().into_string().map_err(|_| FileError::NotSupported)
    }

    /// Names between the mount point and the folder that holds the last name.
    pub(super) fn depth(&self) -> usize {
        names(self.relative()).count().saturating_sub(1)
    }
}

/// The mounts of one kernel as one tree.
#[derive(Debug)]
pub(super) struct Tree {
    mounts: Vec<OpenMount>,
}

/// One step of a walk that follows links by hand.
enum Step {
    Name(String),
    /// One up, but not above the first so many names: a link may not lead out of its mount, even into another one,
    /// and above the root there is only the root.
    Up {
        floor: usize,
        linked: bool,
    },
}

impl Tree {
    /// Of two mounts at the same point the later one wins.
    pub(super) fn new(mounts: Vec<OpenMount>) -> Self {
        let mut kept: Vec<OpenMount> = Vec::with_capacity(mounts.len());
        for mount in mounts {
            kept.retain(|other| other.point() != mount.point());
            kept.push(mount);
        }
        Self { mounts: kept }
    }

    /// Finds where `path` leads from `base`, a folder in the tree's form.
    ///
    /// `..` after a symbolic link means the parent of what the link leads to, as everywhere; the walk that this needs
    /// is also taken when mounts are nested, because a link could otherwise reach what the inner mount hides.
    ///
    /// # Errors
    /// `NotCapable` when it leads out of every mount; `NotFound` and the like when a folder on a walked way is missing.
    pub(super) fn resolve(&self, base: &str, path: &str, follow: bool) -> Result<Place, FileError> {
        check(path)?;
        let base = if path.starts_with('/') { "" } else { base };
        let last = path.rsplit('/').next().unwrap_or_default();
        let dots = last == "." || last == "..";
        let folder = dots || last.is_empty();
        let follow = follow || folder;

        let climbs = names(path).any(|name| name == "..");
        let mut place = if climbs {
            self.walk(base, path, follow)?
        } else {
            let mut joined = String::with_capacity(base.len() + path.len() + 1);
            joined.push_str(base);
            push_names(&mut joined, path);
            match self.mount_of(&joined) {
                Some(mount) if self.has_below(mount.point()) => self.walk(base, path, follow)?,
                _ => self.place(joined, follow)?,
            }
        };
        if let Place::Mounted(spot) = &mut place {
            (spot.folder, spot.dots) = (folder, dots);
        }
        Ok(place)
    }

    /// The same place with every link on the way followed, for making the file that a dangling link names.
    ///
    /// # Errors
    /// As [`Tree::resolve`].
    pub(super) fn resolve_fully(&self, spot: &Spot) -> Result<Place, FileError> {
        self.walk("", &spot.path, true)
    }

    /// Names that the tree adds to the folder at `path`: mount points and their ancestors right below it.
    pub(super) fn children(&self, path: &str) -> Vec<DirectoryEntry> {
        let mut children: Vec<DirectoryEntry> = Vec::new();
        for mount in &self.mounts {
            let Some(name) = below(mount.point(), path).and_then(|rest| names(rest).next()) else { continue };
            if children.iter().any(|child| child.name == name) {
                continue;
            }
            let child = format!("{path}/{name}");
            let inode = match self.mounts.iter().find(|mount| mount.point() == child) {
                Some(mount) => mount.inode(),
                None => ancestor_inode(&child),
            };
            children.push(DirectoryEntry { name: name.to_owned(), inode, kind: FileKind::Directory });
        }
        children
    }

    /// The innermost mount that holds `path`.
    fn mount_of(&self, path: &str) -> Option<&OpenMount> {
        let holding = self.mounts.iter().filter(|mount| below(path, mount.point()).is_some());
        holding.max_by_key(|mount| mount.point().len())
    }

    /// Is this an absolute path without `..` that no mount holds, whatever links there are?
    pub(super) fn is_nowhere(&self, path: &str) -> bool {
        let mut plain = String::with_capacity(path.len());
        push_names(&mut plain, path);
        path.starts_with('/') && names(path).all(|name| name != "..") && self.mount_of(&plain).is_none()
    }

    /// Does a mount point lie below `path`?
    fn has_below(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| below(mount.point(), path).is_some_and(|rest| !rest.is_empty()))
    }

    fn place(&self, path: String, follow: bool) -> Result<Place, FileError> {
        let has_below = self.has_below(&path);
        match self.mount_of(&path) {
            Some(mount) => {
                let pinned = has_below || mount.point() == path;
                let mount = mount.clone();
                Ok(Place::Mounted(Spot { mount, path, follow, folder: false, dots: false, pinned }))
            }
            // The root is there even when nothing is mounted.
            None if has_below || path.is_empty() => Ok(Place::Ancestor(path)),
            None => Err(FileError::NotCapable),
        }
    }

    /// Goes name by name and follows each link itself. The result has no link in it, unless its last name is one that
    /// is not to be followed. Should another kernel of the session put a link on the way meanwhile, cap-std still
    /// keeps the result inside its mount.
    fn walk(&self, base: &str, path: &str, follow: bool) -> Result<Place, FileError> {
        let typed = |name: &str| match name {
            ".." => Step::Up { floor: 0, linked: false },
            name => Step::Name(name.to_owned()),
        };
        let mut steps: Vec<Step> = names(path).rev().map(typed).chain(names(base).rev().map(typed)).collect();
        let mut at = String::with_capacity(base.len() + path.len() + 1);
        let mut links = 0;
        while let Some(step) = steps.pop() {
            let name = match step {
                Step::Name(name) => name,
                Step::Up { floor, linked } => {
                    if linked && at.matches('/').count() <= floor {
                        return Err(FileError::NotCapable);
                    }
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
            };
            let parent = at.len();
            at.push('/');
            at.push_str(&name);
            let last = steps.is_empty();
            let Some(target) = self.look(&at, last, follow)? else { continue };
            links += 1;
            if links > LINKS_MAX {
                return Err(FileError::Loop);
            }
            let floor = self.mount_of(&at).map_or(0, |mount| mount.point().matches('/').count());
            at.truncate(parent);
            steps.extend(names(&target).rev().map(|name| match name {
                ".." => Step::Up { floor, linked: true },
                name => Step::Name(name.to_owned()),
            }));
        }
        self.place_walked(at)
    }

    /// Looks at one place on a walk. The target, if it is a link to be followed.
    fn look(&self, at: &str, last: bool, follow: bool) -> Result<Option<String>, FileError> {
        let Place::Mounted(spot) = self.place(at.to_owned(), false)? else { return Ok(None) };
        if spot.is_mount_point() {
            return Ok(None);
        }
        let parent = at.get(..at.rfind('/').unwrap_or(0)).unwrap_or_default();
        if !spot.pinned && self.has_below(parent) && parent != spot.mount.point() {
            // In a folder that may be the tree's own, where nothing of the outer mount is to be seen.
            if let Place::Ancestor(_) = self.place_walked(parent.to_owned())? {
                return Err(FileError::NotCapable);
            }
        }
        match spot.stat() {
            Ok(stat) if stat.kind == FileKind::SymbolicLink && !spot.pinned => {
                if last && !follow {
                    return Ok(None);
                }
                spot.read_link().map(Some)
            }
            Ok(stat) if stat.kind == FileKind::Directory || last || spot.pinned => Ok(None),
            Ok(_) => Err(FileError::NotDirectory),
            Err(FileError::NotFound) if last || spot.pinned => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The end of a walk. Nothing is left to follow there. An ancestor of a mount point that the outer mount lacks, or
    /// has as something else than a folder, is the tree's own.
    fn place_walked(&self, at: String) -> Result<Place, FileError> {
        match self.place(at, false)? {
            Place::Mounted(spot) if spot.pinned && !spot.is_mount_point() => {
                if spot.stat().is_ok_and(|stat| stat.kind == FileKind::Directory) {
                    Ok(Place::Mounted(spot))
                } else {
                    Ok(Place::Ancestor(spot.path))
                }
            }
            place => Ok(place),
        }
    }
}
