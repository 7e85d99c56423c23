//! Calls on the host that look up one name in an open folder, or open what was looked up. None follows a link, and none opens
//! or wakes anything but a regular file or a folder.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Timestamps};
use rustix::path::DecInt;

use super::error::FileError;
use super::stat::{FileKind, Stat};

/// File or folder that is pinned without being opened: it can be inspected, entered and opened later, and stays the same
/// whatever becomes of its name.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) file: OwnedFd,
    pub(super) stat: Stat,
}

const SEE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags of every opening: else a terminal could become the host's own, and a FIFO in the place of a file would block.
const OPEN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Mode of a new file, before the host's umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// # Errors
/// What the host says.
pub(super) fn stat(folder: &Dir, name: &str) -> Result<Stat, FileError> {
    Ok(Stat::from_host(&rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// # Errors
/// What the host says.
pub(super) fn see(folder: &Dir, name: &str) -> Result<Seen, FileError> {
    let file = rustix::fs::openat(folder, name, SEE, Mode::empty())?;
    Ok(Seen { stat: Stat::of(&file)?, file })
}

/// Goes over several names at once, none of them a link.
///
/// # Errors
/// What the host says; it may be unable, and then the names are to be walked one by one.
pub(super) fn see_below(folder: &Dir, names: &str) -> Result<Seen, FileError> {
    let file = rustix::fs::openat2(folder, names, SEE, Mode::empty(), beneath())?;
    Ok(Seen { stat: Stat::of(&file)?, file })
}

/// Opens what is thought to be a regular file, without looking at it first and over several names at once, none of
/// them a link. What was opened may be something else: the caller looks at it.
///
/// # Errors
/// What the host says; it may be unable, and then the names are to be walked one by one.
pub(super) fn open_below(folder: &Dir, names: &str, (read, write): (bool, bool)) -> Result<OwnedFd, FileError> {
    Ok(rustix::fs::openat2(folder, names, OPEN | access(read, write), Mode::empty(), beneath())?)
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// The target of a link; an empty name means the open link itself.
///
/// # Errors
/// `NotCapable` for an absolute target; `Invalid` when it is no link; `NotSupported` when it is not Unicode.
pub(super) fn read_link(folder: impl AsFd, name: &str) -> Result<String, FileError> {
    let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
    let target = target.into_string().map_err(|_| FileError::NotSupported)?;
    if target.starts_with('/') { Err(FileError::NotCapable) } else { Ok(target) }
}

/// Makes a file that is not there.
///
/// # Errors
/// `Exists`, or what the host says.
pub(super) fn make(folder: &Dir, name: &str, read: bool) -> Result<OwnedFd, FileError> {
    let flags = OPEN | OFlags::CREATE | OFlags::EXCL | access(read, true);
    Ok(rustix::fs::openat(folder, name, flags, FILE_MODE)?)
}

/// Opens a folder that is held already.
///
/// # Errors
/// What the host says.
pub(super) fn open_folder(folder: impl AsFd) -> Result<Dir, FileError> {
    let opened = rustix::fs::openat(folder, ".", OPEN | OFlags::DIRECTORY, Mode::empty())?;
    Ok(Dir::from_std_file(opened.into()))
}

/// Opens a regular file that was seen. `names` is the way that led to it, for hosts that do not show open files in
/// `/proc`; there, what is opened may be another file, which the caller finds out by looking at it.
///
/// # Errors
/// What the host says.
pub(super) fn open_file(
    seen: &Seen,
    names: Option<(&Dir, &str)>,
    (read, write): (bool, bool),
) -> Result<OwnedFd, FileError> {
    debug_assert_eq!(seen.stat.kind, FileKind::RegularFile);
    let flags = OPEN | access(read, write);
    Ok(match (open_files(), names) {
        // The entry is a link of the kernel's, to be followed; what it leads to was seen and is no link.
        (Some(open), _) => {
            rustix::fs::openat(open, DecInt::from_fd(&seen.file), flags.difference(OFlags::NOFOLLOW), Mode::empty())?
        }
        (None, Some((folder, name))) if name.contains('/') => {
            rustix::fs::openat2(folder, name, flags, Mode::empty(), beneath())?
        }
        (None, Some((folder, name))) => rustix::fs::openat(folder, name, flags, Mode::empty())?,
        (None, None) => return Err(FileError::NotSupported),
    })
}

/// Sets the times of what was seen, which is no link, without opening it. `names` as for [`open_file`].
///
/// # Errors
/// What the host says.
pub(super) fn set_times(seen: &Seen, names: Option<(&Dir, &str)>, times: &Timestamps) -> Result<(), FileError> {
    match (open_files(), names) {
        (Some(open), _) => Ok(rustix::fs::utimensat(open, DecInt::from_fd(&seen.file), times, AtFlags::empty())?),
        (None, Some((folder, name))) => Ok(rustix::fs::utimensat(folder, name, times, AtFlags::SYMLINK_NOFOLLOW)?),
        (None, None) => Err(FileError::NotSupported),
    }
}

fn access(read: bool, write: bool) -> OFlags {
    match (read, write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    }
}

/// The folder in which the kernel shows what this process has open, where there is one.
fn open_files() -> Option<&'static OwnedFd> {
    static OPEN_FILES: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()?;
        rustix::fs::fstatfs(&folder).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC).then_some(folder)
    };
    OPEN_FILES.get_or_init(open).as_ref()
}
