//! The one error of the file tree, and how the host's errors become it.

use std::io;

use rustix::io::Errno;

/// Error of a file operation, as the guest sees it. Mirrors `error-code` of the kernel world.
///
/// It contains no path on purpose: the guest knows the path it gave, and must not learn the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FileError {
    /// The host's permission bits forbid it.
    #[error("permission denied")]
    Access,
    /// No such descriptor, or one that was not opened for this.
    #[error("bad descriptor")]
    BadDescriptor,
    /// The name is in use, such as a mount point.
    #[error("resource busy")]
    Busy,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// Past the largest offset, or a folder with too many entries to list.
    #[error("file too large")]
    FileTooLarge,
    /// A signal came first.
    #[error("interrupted")]
    Interrupted,
    /// An argument makes no sense.
    #[error("invalid argument")]
    Invalid,
    /// The host failed in a way that has no better word.
    #[error("input/output error")]
    Io,
    /// A file was needed and a folder found.
    #[error("is a directory")]
    IsDirectory,
    /// Too many symbolic links, or one where none may be followed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// A name or a path is over the limit.
    #[error("name too long")]
    NameTooLong,
    /// The path leads out of every granted folder.
    #[error("path leads out of every granted folder")]
    NotCapable,
    /// A folder was needed and something else found.
    #[error("not a directory")]
    NotDirectory,
    /// The folder has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// Never allowed here, such as opening a device.
    #[error("operation not permitted")]
    NotPermitted,
    /// The host's file system cannot do it.
    #[error("not supported")]
    NotSupported,
    /// The session's bytes or files are used up, or the host's disk is full.
    #[error("quota exceeded")]
    Quota,
    /// The folder was granted for reading alone.
    #[error("read-only file system")]
    ReadOnly,
    /// The host allows no more names for this file.
    #[error("too many links")]
    TooManyLinks,
    /// All descriptors are in use.
    #[error("too many open files")]
    TooManyOpen,
    /// The two names lie in different mounts.
    #[error("cross-device link")]
    CrossDevice,
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS => Self::Access,
            Errno::BADF => Self::BadDescriptor,
            Errno::BUSY | Errno::TXTBSY => Self::Busy,
            Errno::EXIST => Self::Exists,
            Errno::FBIG | Errno::OVERFLOW => Self::FileTooLarge,
            Errno::INTR => Self::Interrupted,
            Errno::INVAL | Errno::ILSEQ => Self::Invalid,
            Errno::ISDIR => Self::IsDirectory,
            Errno::LOOP => Self::Loop,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::NOENT => Self::NotFound,
            // ENXIO and ENODEV: a socket, a FIFO without reader, a device without driver.
            Errno::PERM | Errno::NXIO | Errno::NODEV => Self::NotPermitted,
            Errno::NOTSUP | Errno::NOSYS | Errno::NOTTY => Self::NotSupported,
            Errno::NOSPC | Errno::DQUOT => Self::Quota,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::MFILE | Errno::NFILE => Self::TooManyOpen,
            Errno::XDEV => Self::CrossDevice,
            _ => Self::Io,
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        if let Some(errno) = Errno::from_io_error(&error) {
            return errno.into();
        }
        match error.kind() {
            // cap-std reports a path that leaves its folder in this way: denied, and no error number.
            io::ErrorKind::PermissionDenied => Self::NotCapable,
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::InvalidInput => Self::Invalid,
            _ => Self::Io,
        }
    }
}
