//! The virtual tree: which mount a guest path belongs to, and the walk to what it names.
//!
//! Inside the tree a path is kept in one form: each name with a slash before it, nothing else, so the root is `""`.
//! A path is walked name by name, each looked up in the open folder before it, and links are followed by the walk
//! itself. What may be changed follows from the folders that were opened on the way, never from their names: who enters
//! the root of another mount, by whatever name, is in that mount from there on.

use std::borrow::Cow;
use std::sync::Arc;

use cap_std::fs::Dir;

use super::error::FileError;
use super::host::{self, Seen};
use super::listing::DirectoryEntry;
use super::mount::OpenMount;
use super::stat::{FileKind, Stat, ancestor_inode};

/// Longest path, longest name, and most symbolic links on the way: Linux's own limits, so that the guest meets the same
/// ones wherever the folder lies.
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;
const LINKS_MAX: usize = 40;

/// Most names that one walk looks up, with those of links and those that `..` makes it look up again.
const STEPS_MAX: usize = 16_384;

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

/// Usual folders in the root of a machine. A path there that no mount holds is refused; elsewhere it is missing.
const ROOT_FOLDERS: [&str; 20] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root", "run", "sbin",
    "srv", "sys", "tmp", "usr", "var",
];

fn names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// The rest of `path` below `folder`: `""` for the folder itself, else with a slash before it.
pub(super) fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    path.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Target of a path. Its last name need not exist.
#[derive(Debug)]
pub(super) enum Place {
    /// A folder that exists only because a mount point lies below it.
    Ancestor(String),
    /// In a mount.
    Mounted(Spot),
}

/// Purpose of resolving a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seek {
    /// To make, remove or read the name itself; what it names is not looked at.
    Name,
    /// To see what it is.
    Look,
    /// To open it, for reading alone.
    Read,
    /// To open it and change it, or to make it.
    Write,
}

/// Right to change the target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Write,
    Read,
    /// The folders on the way were not looked at, because nothing was to be changed.
    Unasked,
}

impl Right {
    fn of(writable: bool) -> Self {
        if writable { Self::Write } else { Self::Read }
    }
}

/// Object at the end of a walk.
#[derive(Debug)]
pub(super) enum Found {
    /// Not looked at.
    Unseen,
    Missing,
    Stat(Stat),
    Seen(Seen),
}

/// The last step of a walk.
#[derive(Debug)]
enum At {
    /// In this folder, the name that the path ends in.
    Entry(Arc<Dir>),
    /// Below the mount's folder, the names that the path ends in from this byte on. None of them is a link.
    Below(usize),
    /// The folder itself: a mount point, or what `..` led to.
    Folder(Arc<Dir>),
}

/// Position in a mount.
#[derive(Debug)]
pub(super) struct Spot {
    /// Mount whose root was entered last.
    pub(super) mount: OpenMount,
    pub(super) right: Right,
    /// Whole guest path, in the tree's form.
    pub(super) path: String,
    /// True if the path ended in `/`, `.` or `..`: only a folder will do.
    pub(super) folder: bool,
    /// True if the path ended in `.` or `..`: that is no name to make, move or remove.
    pub(super) dots: bool,
    /// True if it is a mount point, or holds one: it can be neither moved nor removed.
    pub(super) pinned: bool,
    pub(super) mount_point: bool,
    pub(super) found: Found,
    at: At,
}

/// A name in an open folder. Because the name is one plain name, `*at` calls on it that follow no link cannot leave
/// the folder, and all calls on one `Entry` mean the same folder whatever is renamed meanwhile.
pub(super) struct Entry<'s> {
    pub(super) folder: &'s Dir,
    pub(super) name: &'s str,
}

impl Entry<'_> {
    /// # Errors
    /// `NotFound`, or what else the host says.
    pub(super) fn stat(&self) -> Result<Stat, FileError> {
        host::stat(self.folder, self.name)
    }
}

impl Spot {
    /// # Errors
    /// `ReadOnly` when it may not be changed.
    pub(super) fn writable(&self) -> Result<(), FileError> {
        if self.right == Right::Write { Ok(()) } else { Err(FileError::ReadOnly) }
    }

    /// # Errors
    /// `NotFound`, `NotDirectory` when only a folder will do, or what the host says.
    pub(super) fn stat(&self) -> Result<Stat, FileError> {
        let stat = match (&self.found, &self.at) {
            (Found::Missing, _) => return Err(FileError::NotFound),
            (Found::Stat(stat), _) | (Found::Seen(Seen { stat, .. }), _) => *stat,
            (Found::Unseen, At::Folder(dir)) => Stat::of(dir)?,
            (Found::Unseen, _) => self.entry()?.stat()?,
        };
        if self.folder && stat.kind != FileKind::Directory { Err(FileError::NotDirectory) } else { Ok(stat) }
    }

    /// The folder, when the path led to one without naming it.
    pub(super) fn as_folder(&self) -> Option<&Arc<Dir>> {
        if let At::Folder(dir) = &self.at { Some(dir) } else { None }
    }

    /// The folder that holds the last name, and the name.
    ///
    /// # Errors
    /// `Busy` for a mount point, `Invalid` for a path that ends in `.` or `..`.
    pub(super) fn entry(&self) -> Result<Entry<'_>, FileError> {
        if self.dots {
            return Err(FileError::Invalid);
        }
        match &self.at {
            At::Entry(folder) => Ok(Entry { folder, name: self.path.rsplit('/').next().unwrap_or_default() }),
            At::Below(_) | At::Folder(_) if self.mount_point => Err(FileError::Busy),
            At::Below(_) | At::Folder(_) => Err(FileError::Invalid),
        }
    }

    /// The open folder and the names from there that led to what was seen.
    pub(super) fn names(&self) -> Option<(&Dir, &str)> {
        match &self.at {
            At::Entry(folder) => Some((folder, self.path.rsplit('/').next()?)),
            At::Below(from) => Some((self.mount.dir().ok()?, self.path.get(*from..)?)),
            At::Folder(_) => None,
        }
    }

    /// # Errors
    /// `NotCapable` for an absolute target, which would tell the guest about the host; `Invalid` when it is no link.
    pub(super) fn read_link(&self) -> Result<String, FileError> {
        if self.as_folder().is_some() {
            return Err(FileError::Invalid);
        }
        let entry = self.entry()?;
        host::read_link(entry.folder, entry.name)
    }
}

/// The mounts of one kernel as one tree.
#[derive(Debug)]
pub(super) struct Tree {
    mounts: Vec<OpenMount>,
    /// True if a mount may not be changed.
    guarded: bool,
}

/// A path without links, `..` and mount points, as far as names tell.
pub(super) struct Straight<'t> {
    pub(super) mount: &'t OpenMount,
    /// Right to change what lies in folders that were not looked at.
    right: Right,
    /// Whole guest path, in the tree's form.
    pub(super) at: String,
    /// Offset in `at` of the names below the mount's folder.
    from: usize,
}

impl Straight<'_> {
    /// Names below the mount's folder.
    pub(super) fn names(&self) -> &str {
        self.at.get(self.from..).unwrap_or_default()
    }

    /// Right to change a regular file there. A file in the mount's own folder is reached through no other folder.
    pub(super) fn file_right(&self) -> Right {
        if self.names().contains('/') { self.right } else { Right::of(self.mount.is_writable()) }
    }
}

/// One step of a walk.
enum Step<'p> {
    Name(Cow<'p, str>),
    /// One up, but not above the first so many names: a link may not lead out of its mount, even into another one,
    /// and above the root there is only the root.
    Up {
        floor: usize,
        linked: bool,
    },
}

/// An open folder on a walk.
struct Reached {
    dir: Arc<Dir>,
    mount: OpenMount,
    writable: bool,
}

/// Options of a walk.
#[derive(Clone, Copy)]
struct Ask {
    seek: Seek,
    follow: bool,
    folder: bool,
    dots: bool,
}

impl Tree {
    /// Creates the tree. Of two mounts at the same point the later one wins.
    pub(super) fn new(mounts: Vec<OpenMount>) -> Self {
        let mut kept: Vec<OpenMount> = Vec::with_capacity(mounts.len());
        for mount in mounts {
            kept.retain(|other| other.point() != mount.point());
            kept.push(mount);
        }
        let guarded = kept.iter().any(|mount| !mount.is_writable());
        Self { mounts: kept, guarded }
    }

    /// Finds where `path` leads from `base`, a folder in the tree's form.
    ///
    /// `..` after a symbolic link means the parent of what the link leads to, as everywhere.
    ///
    /// # Errors
    /// `NotCapable` when it leads out of every mount; `NotFound` for a path that no machine has, and the like when a folder on
    /// the way is missing.
    pub(super) fn resolve(&self, base: &str, path: &str, follow: bool, seek: Seek) -> Result<Place, FileError> {
        check(path)?;
        let base = if path.starts_with('/') { "" } else { base };
        let last = path.rsplit('/').next().unwrap_or_default();
        let dots = last == "." || last == "..";
        let folder = dots || last.is_empty();
        let ask = Ask { seek, follow: follow || folder, folder, dots };
        if let Some(spot) = self.shortcut(base, path, ask)? {
            return Ok(Place::Mounted(spot));
        }
        match self.walk(base, path, ask) {
            Err(FileError::NotCapable) if self.is_absent(path, seek) => Err(FileError::NotFound),
            found => found,
        }
    }

    /// A path that the host can go all the way in one call: it has no `..` and no mount point lies below its mount.
    pub(super) fn straight(&self, base: &str, path: &str) -> Option<Straight<'_>> {
        if path.ends_with('/') || path.ends_with("/.") || path == "." {
            return None;
        }
        let base = if path.starts_with('/') { "" } else { base };
        let mut at = String::with_capacity(base.len().saturating_add(path.len()).saturating_add(1));
        at.push_str(base);
        for name in names(path) {
            if name == ".." {
                return None;
            }
            at.push('/');
            at.push_str(name);
        }
        let mount = self.mount_of(&at)?;
        let from = mount.point().len().saturating_add(1);
        if from > at.len() || self.has_below(mount.point()) {
            return None;
        }
        let right = match mount.is_writable() {
            true if self.guarded => Right::Unasked,
            writable => Right::of(writable),
        };
        Some(Straight { mount, right, at, from })
    }

    /// Lets the host go all the way in one call, where the folders on the way make no difference: nothing is to be
    /// changed, or nothing may be in any case. Not where there is a link on the way.
    fn shortcut(&self, base: &str, path: &str, ask: Ask) -> Result<Option<Spot>, FileError> {
        if ask.seek == Seek::Name {
            return Ok(None);
        }
        let Some(Straight { mount, right, at, from }) = self.straight(base, path) else { return Ok(None) };
        if ask.seek == Seek::Write && right == Right::Unasked {
            return Ok(None);
        }
        let Some(below) = at.get(from..) else { return Ok(None) };
        let found = if ask.seek == Seek::Look && !below.contains('/') {
            match host::stat(mount.dir()?, below) {
                Ok(stat) if stat.kind == FileKind::SymbolicLink && ask.follow => return Ok(None),
                Ok(stat) => Found::Stat(stat),
                Err(error) => return Err(error),
            }
        } else {
            match host::see_below(mount.dir()?, below) {
                Ok(seen) if seen.stat.kind == FileKind::SymbolicLink && ask.follow => return Ok(None),
                Ok(seen) => Found::Seen(seen),
                Err(FileError::NotFound) if ask.seek != Seek::Write => return Err(FileError::NotFound),
                Err(_) => return Ok(None),
            }
        };
        let (mount, at_point) = (mount.clone(), At::Below(from));
        Ok(Some(Spot {
            mount,
            right,
            path: at,
            folder: false,
            dots: false,
            pinned: false,
            mount_point: false,
            found,
            at: at_point,
        }))
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
            let mount = self.mounts.iter().find(|mount| mount.point() == child);
            let inode = mount.and_then(|mount| mount.inode().ok()).unwrap_or_else(|| ancestor_inode(&child));
            children.push(DirectoryEntry { name: name.to_owned(), inode, kind: FileKind::Directory });
        }
        children
    }

    /// The innermost mount that holds `path`.
    fn mount_of(&self, path: &str) -> Option<&OpenMount> {
        let holding = self.mounts.iter().filter(|mount| below(path, mount.point()).is_some());
        holding.max_by_key(|mount| mount.point().len())
    }

    /// The rest of `path` below `folder`, both by name, where one grant may have several places.
    pub(super) fn below_in_grant<'p>(&self, path: &'p str, folder: &str) -> Option<&'p str> {
        let (mount, other) = (self.mount_of(path)?, self.mount_of(folder)?);
        let (inner, outer) = (path.get(mount.point().len()..)?, folder.get(other.point().len()..)?);
        if mount.is(other) { below(inner, outer) } else { below(path, folder) }
    }

    /// Returns true if the innermost mount that holds this path may not be changed. It goes by name alone, so use it only to
    /// choose between two errors.
    pub(super) fn is_read_only_by_name(&self, base: &str, path: &str) -> bool {
        let mut at = if path.starts_with('/') { String::new() } else { base.to_owned() };
        push_names(&mut at, path);
        self.mount_of(&at).is_some_and(|mount| !mount.is_writable())
    }

    /// Names between the mount point and the folder that holds the last name.
    pub(super) fn depth(&self, path: &str) -> usize {
        let point = self.mount_of(path).map_or(0, |mount| depth(mount.point()));
        depth(path).saturating_sub(point).saturating_sub(1)
    }

    /// Returns true for an absolute path without `..` that no mount holds, whatever links there are.
    pub(super) fn is_nowhere(&self, path: &str) -> bool {
        let mut plain = String::with_capacity(path.len());
        push_names(&mut plain, path);
        path.starts_with('/') && names(path).all(|name| name != "..") && self.mount_of(&plain).is_none()
    }

    /// Returns true for a path that no machine has: it is missing, not refused. False for a new name in the root.
    fn is_absent(&self, path: &str, seek: Seek) -> bool {
        let mut names = names(path);
        let is_usual = names.next().is_none_or(|first| ROOT_FOLDERS.contains(&first));
        let is_made = matches!(seek, Seek::Name | Seek::Write) && names.next().is_none();
        !is_usual && !is_made && self.is_nowhere(path)
    }

    /// Returns true if a mount point lies below `path`.
    fn has_below(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| below(mount.point(), path).is_some_and(|rest| !rest.is_empty()))
    }

    /// Returns true for the root of a mount, whatever its name.
    pub(super) fn is_root(&self, stat: &Stat) -> bool {
        stat.kind == FileKind::Directory && self.mounts.iter().any(|mount| mount.id() == Some(stat.id()))
    }

    /// Returns the mount of an object found in an open folder, and true if it may be changed. Entering the root of another
    /// mount can only take the right to change away: a guest that was granted more has it at that mount's own point.
    fn enter(&self, from: &Reached, stat: &Stat) -> (OpenMount, bool) {
        let mut entered = (from.mount.clone(), from.writable);
        if stat.kind == FileKind::Directory {
            for mount in self.mounts.iter().filter(|mount| mount.id() == Some(stat.id())) {
                entered = (mount.clone(), entered.1 && mount.is_writable());
            }
        }
        entered
    }

    /// The folder that is mounted there.
    ///
    /// # Errors
    /// What the host says of one that could not be made.
    fn point(&self, at: &str) -> Result<Option<Reached>, FileError> {
        let Some(mount) = self.mounts.iter().find(|mount| mount.point() == at) else { return Ok(None) };
        let dir = Arc::clone(mount.dir()?);
        Ok(Some(Reached { dir, mount: mount.clone(), writable: mount.is_writable() }))
    }

    /// Goes name by name. Each is looked up in the folder that was opened before it, without following, so whatever is
    /// moved meanwhile, the walk is in the folder that it has open. `..` begins again from the root with what is left.
    #[expect(clippy::too_many_lines, reason = "one loop, each of whose steps may change all that it keeps")]
    fn walk(&self, base: &str, path: &str, mut ask: Ask) -> Result<Place, FileError> {
        fn typed(name: &str) -> Step<'_> {
            match name {
                ".." => Step::Up { floor: 0, linked: false },
                name => Step::Name(Cow::Borrowed(name)),
            }
        }
        let mut steps: Vec<Step<'_>> = names(path).rev().map(typed).chain(names(base).rev().map(typed)).collect();
        let mut at = String::with_capacity(base.len().saturating_add(path.len()).saturating_add(1));
        let mut here = self.point("")?;
        let (mut links, mut taken) = (0, 0);
        while let Some(step) = steps.pop() {
            taken = usize::saturating_add(taken, 1);
            if taken > STEPS_MAX {
                return Err(FileError::Loop);
            }
            let name = match step {
                Step::Name(name) => name,
                Step::Up { floor, linked } => {
                    if linked && depth(&at) <= floor {
                        return Err(FileError::NotCapable);
                    }
                    at.truncate(at.rfind('/').unwrap_or(0));
                    if !matches!(steps.last(), Some(Step::Up { .. })) {
                        steps.extend(names(&at).rev().map(|name| Step::Name(Cow::Owned(name.to_owned()))));
                        at.clear();
                        here = self.point("")?;
                    }
                    continue;
                }
            };
            let parent = at.len();
            at.push('/');
            at.push_str(&name);
            if let Some(reached) = self.point(&at)? {
                here = Some(reached);
                continue;
            }
            let pinned = self.has_below(&at);
            let Some(folder) = &here else {
                if pinned {
                    continue;
                }
                return Err(FileError::NotCapable);
            };
            if pinned {
                // What the outer mount lacks here, or has as something else than a folder, is the tree's own.
                let seen = host::see(&folder.dir, &name).ok().filter(|seen| seen.stat.kind == FileKind::Directory);
                here = seen.map(|seen| self.reached(folder, seen));
                continue;
            }
            let last = steps.is_empty();
            let found = if last { look(&folder.dir, &name, ask)? } else { Found::Seen(host::see(&folder.dir, &name)?) };
            match found {
                Found::Seen(seen) if seen.stat.kind == FileKind::SymbolicLink && (ask.follow || !last) => {
                    links = usize::saturating_add(links, 1);
                    if links > LINKS_MAX {
                        return Err(FileError::Loop);
                    }
                    let target = host::read_link(&seen.file, "")?;
                    let floor = self.mount_of(&at).map_or(0, |mount| depth(mount.point()));
                    at.truncate(parent);
                    ask.folder |= last && matches!(target.rsplit('/').next(), Some("" | "." | ".."));
                    steps.extend(names(&target).rev().map(|name| match name {
                        ".." => Step::Up { floor, linked: true },
                        name => Step::Name(Cow::Owned(name.to_owned())),
                    }));
                }
                found if last => return Ok(Place::Mounted(self.spot(folder, at, found, ask))),
                Found::Seen(seen) if seen.stat.kind == FileKind::Directory => here = Some(self.reached(folder, seen)),
                _ => return Err(FileError::NotDirectory),
            }
        }
        let Some(Reached { dir, mount, writable }) = here else { return Ok(Place::Ancestor(at)) };
        let mount_point = self.mounts.iter().any(|mount| mount.point() == at);
        Ok(Place::Mounted(Spot {
            mount,
            right: Right::of(writable),
            folder: ask.folder,
            dots: ask.dots,
            pinned: mount_point || self.has_below(&at),
            mount_point,
            found: Found::Unseen,
            at: At::Folder(dir),
            path: at,
        }))
    }

    fn reached(&self, from: &Reached, seen: Seen) -> Reached {
        let (mount, writable) = self.enter(from, &seen.stat);
        Reached { dir: Arc::new(Dir::from_std_file(seen.file.into())), mount, writable }
    }

    fn spot(&self, folder: &Reached, path: String, found: Found, ask: Ask) -> Spot {
        let (mount, writable) = match &found {
            Found::Stat(stat) | Found::Seen(Seen { stat, .. }) => self.enter(folder, stat),
            Found::Missing | Found::Unseen => (folder.mount.clone(), folder.writable),
        };
        Spot {
            mount,
            right: Right::of(writable),
            path,
            folder: ask.folder,
            dots: ask.dots,
            pinned: false,
            mount_point: false,
            found,
            at: At::Entry(Arc::clone(&folder.dir)),
        }
    }
}

/// Looks at the last name of a walk, as closely as it was asked for. A link that is to be followed is always opened.
fn look(folder: &Dir, name: &str, ask: Ask) -> Result<Found, FileError> {
    let found = match ask.seek {
        Seek::Name if !ask.follow => return Ok(Found::Unseen),
        Seek::Name | Seek::Look => match host::stat(folder, name) {
            Ok(stat) if stat.kind == FileKind::SymbolicLink && ask.follow => host::see(folder, name).map(Found::Seen),
            stat => stat.map(Found::Stat),
        },
        Seek::Read | Seek::Write => host::see(folder, name).map(Found::Seen),
    };
    match found {
        Err(FileError::NotFound) => Ok(Found::Missing),
        found => found,
    }
}

/// Names in a path in the tree's form.
fn depth(path: &str) -> usize {
    path.matches('/').count()
}
