//! Granting a folder: the one place where a host path is opened with ambient authority.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};

use super::error::FileError;
use super::host;
use super::quota::FileId;
use super::stat::{FileKind, Stat};
use super::tree;

/// Access of a guest to a granted folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Look, never change.
    #[default]
    ReadOnly,
    /// Look and change, within the session's quota.
    ReadWrite,
}

/// A host folder to be granted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mount {
    /// The host folder.
    pub host: PathBuf,
    /// Guest path: absolute, without `..`.
    pub guest: String,
    /// Access of the guest.
    pub access: Access,
}

/// Error of granting a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The guest path is not one the tree can have.
    #[error("cannot mount `{}` at `{guest}`: a guest path is absolute and has no `..` or NUL", .host.display())]
    GuestPath {
        /// The host folder.
        host: PathBuf,
        /// The guest path at fault.
        guest: String,
    },
    /// The host folder could not be opened.
    #[error("cannot open the folder `{}` to mount it at `{guest}`", .host.display())]
    Open {
        /// The host folder.
        host: PathBuf,
        /// Intended guest path.
        guest: String,
        /// Error of the host.
        #[source]
        source: io::Error,
    },
    /// The folder is a window into the host's kernel: its files reach far more than the folder.
    #[error("cannot mount `{}` at `{guest}`: it holds kernel interfaces, not files", .host.display())]
    KernelInterface {
        /// The host folder.
        host: PathBuf,
        /// Intended guest path.
        guest: String,
    },
}

impl Mount {
    /// Opens the folder. Done once per session; the kernels of the session share the result.
    ///
    /// # Errors
    /// The guest path is malformed, the host folder cannot be opened, or it is `/proc` or its like.
    pub fn open(&self) -> Result<OpenMount, MountError> {
        self.open_as(false)
    }

    /// Opens a folder in which only guests make files. It has no FIFO and no device, so its files are opened without a check
    /// of their kind.
    ///
    /// # Errors
    /// As [`Mount::open`].
    pub fn open_own(&self) -> Result<OpenMount, MountError> {
        self.open_as(true)
    }

    fn open_as(&self, is_own: bool) -> Result<OpenMount, MountError> {
        let (host, guest) = (self.host.clone(), self.guest.clone());
        let Some(point) = mount_point(&guest) else {
            return Err(MountError::GuestPath { host, guest });
        };
        let folder = match Folder::open(&host) {
            Ok(folder) => folder,
            Err(source) => return Err(MountError::Open { host, guest, source }),
        };
        if is_kernel_interface(&folder.dir) {
            return Err(MountError::KernelInterface { host, guest });
        }
        let opened = Opened { access: self.access, is_own, folder: OnceLock::from(folder), maker: None };
        Ok(OpenMount { point: point.into(), opened: Arc::new(opened) })
    }
}

/// Makes a folder that only guests will make files in, or finds it made.
type Maker = Box<dyn Fn() -> io::Result<PathBuf> + Send + Sync>;

/// A granted folder, open. Cheap to clone; it holds the folder itself, so that renaming it on the host changes
/// nothing for the guest.
#[derive(Clone)]
pub struct OpenMount {
    point: Arc<str>,
    opened: Arc<Opened>,
}

struct Opened {
    access: Access,
    /// Only guests make files in it.
    is_own: bool,
    /// Empty until it is needed, of one that is made then.
    folder: OnceLock<Folder>,
    maker: Option<Maker>,
}

/// An open folder.
struct Folder {
    device: u64,
    inode: u64,
    dir: Arc<Dir>,
}

impl Folder {
    fn open(host: &Path) -> io::Result<Folder> {
        let dir = Dir::open_ambient_dir(host, ambient_authority())?;
        let metadata = dir.dir_metadata()?;
        Ok(Folder { device: metadata.dev(), inode: metadata.ino(), dir: Arc::new(dir) })
    }
}

impl OpenMount {
    /// An empty folder to read and write that is made when a guest first looks into it, as [`Mount::open_own`] opens one. `make`
    /// makes it, or finds it made, and says where. `None` when the guest path is malformed.
    #[must_use]
    pub fn made_later(
        guest: &str,
        make: impl Fn() -> io::Result<PathBuf> + Send + Sync + 'static,
    ) -> Option<OpenMount> {
        let opened =
            Opened { access: Access::ReadWrite, is_own: true, folder: OnceLock::new(), maker: Some(Box::new(make)) };
        Some(OpenMount { point: mount_point(guest)?.into(), opened: Arc::new(opened) })
    }

    /// # Errors
    /// What the host says of a folder that could not be made.
    fn folder(&self) -> Result<&Folder, FileError> {
        let Opened { folder, maker, .. } = &*self.opened;
        if let Some(folder) = folder.get() {
            return Ok(folder);
        }
        let made = maker.as_ref().ok_or(FileError::NotFound)?().and_then(|path| Folder::open(&path))?;
        Ok(folder.get_or_init(|| made))
    }

    /// Returns the same grant at a further mount point. Both show the same folder, and files can be moved between the two.
    /// `None` when the guest path is malformed.
    #[must_use]
    pub fn also_at(&self, guest: &str) -> Option<OpenMount> {
        Some(OpenMount { point: mount_point(guest)?.into(), opened: Arc::clone(&self.opened) })
    }

    /// Returns true if this guest path is the mount point, or below it.
    pub fn holds(&self, guest: &str) -> bool {
        mount_point(guest).is_some_and(|point| tree::below(&point, &self.point).is_some())
    }

    /// Returns true if this guest path is the mount point, or if one of the two lies below the other.
    pub fn collides_with(&self, guest: &str) -> bool {
        let Some(point) = mount_point(guest) else { return false };
        tree::below(&point, &self.point).is_some() || tree::below(&self.point, &point).is_some()
    }

    /// The guest path of the mount point.
    pub fn guest(&self) -> &str {
        if self.point.is_empty() { "/" } else { &self.point }
    }

    /// The mount point without its last slash, so `""` for the root.
    pub(super) fn point(&self) -> &str {
        &self.point
    }

    /// Access of the guest.
    pub fn access(&self) -> Access {
        self.opened.access
    }

    /// The device of the folder. A file on another one lies in a file system that the host has mounted below it.
    fn device(&self) -> Option<u64> {
        self.opened.folder.get().map(|folder| folder.device)
    }

    /// Identifies the folder whatever its names; `None` if it was not opened yet.
    pub(super) fn id(&self) -> Option<FileId> {
        self.opened.folder.get().map(|folder| FileId { device: folder.device, inode: folder.inode })
    }

    /// # Errors
    /// What the host says of a folder that could not be made.
    pub(super) fn inode(&self) -> Result<u64, FileError> {
        self.folder().map(|folder| folder.inode)
    }

    /// # Errors
    /// What the host says of a folder that could not be made.
    pub(super) fn dir(&self) -> Result<&Arc<Dir>, FileError> {
        self.folder().map(|folder| &folder.dir)
    }

    /// Returns true for the same grant, at any mount point, and not merely the same folder.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }

    /// Returns true if names may be moved from here to there. They may within a grant, and between folders in which only
    /// guests make files: no host program is affected.
    pub(super) fn moves_to(&self, other: &Self) -> bool {
        self.is(other) || (self.opened.is_own && other.opened.is_own)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.opened.access == Access::ReadWrite
    }

    /// Opens what is thought to be a regular file below the folder, over several names, none of them a link. The host's files
    /// are pinned and checked before they are opened: to open a FIFO would wake its other end.
    ///
    /// # Errors
    /// Error of the host, which may not support this; then the names are to be walked one by one. `NotPermitted` for anything
    /// but a regular file.
    pub(super) fn open_below(&self, names: &str, access: (bool, bool)) -> Result<OwnedFd, FileError> {
        let dir = self.dir()?;
        if self.opened.is_own {
            return host::open_below(dir, names, access);
        }
        let seen = host::see_below(dir, names)?;
        match seen.stat.kind {
            FileKind::RegularFile => host::open_file(&seen, Some((dir, names)), access),
            _ => Err(FileError::NotPermitted),
        }
    }
}

impl fmt::Debug for OpenMount {
    /// Leaves the host path out: this may be printed where a tenant can read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenMount")
            .field("point", &self.point)
            .field("access", &self.opened.access)
            .finish_non_exhaustive()
    }
}

/// The guest path in the tree's own form, or `None` if it has none.
fn mount_point(guest: &str) -> Option<String> {
    if !guest.starts_with('/') || tree::check(guest).is_err() || guest.split('/').any(|name| name == "..") {
        return None;
    }
    let mut point = String::with_capacity(guest.len());
    tree::push_names(&mut point, guest);
    Some(point)
}

/// Returns true if an opened file belongs to the host's kernel rather than to the granted folder. Only a file on another
/// device can.
pub(super) fn is_foreign(mount: &OpenMount, stat: &Stat, file: impl AsFd) -> bool {
    Some(stat.device) != mount.device() && is_kernel_interface(file)
}

/// Returns true for a file system whose files are the kernel's own interfaces. Their "regular files" block, act on being
/// read, or show another process's memory, so none is ever opened, wherever it is mounted.
#[cfg(target_os = "linux")]
fn is_kernel_interface(file: impl AsFd) -> bool {
    /// From `linux/magic.h`: proc, sysfs, debugfs, tracefs, securityfs, selinuxfs, cgroup, cgroup2, bpf, pstore,
    /// configfs, efivarfs, binfmt_misc.
    const MAGIC: [u32; 13] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0xf97c_ff8c,
        0x0027_e0eb,
        0x6367_7270,
        0xcafe_4a11,
        0x6165_676c,
        0x6265_6570,
        0xde5e_81e4,
        0x4249_4e4d,
    ];
    // The type of `f_type` differs between machines; the numbers are 32 bits wide on all of them.
    rustix::fs::fstatfs(file).is_ok_and(|found| MAGIC.contains(&(found.f_type as u32)))
}

/// Other systems have no such file systems in reach of a granted folder.
#[cfg(not(target_os = "linux"))]
fn is_kernel_interface(_: impl AsFd) -> bool {
    false
}
