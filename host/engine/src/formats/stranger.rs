//! Checks for all files that a stranger may have written: they are plain files, and their lists are bounded.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    marker::PhantomData,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};

/// Opens a file as `options` say. What is there under its name may be a pipe, whose other end nobody holds, or a device
/// without an end: it is never waited for, and refused.
///
/// # Errors
/// It cannot be opened, or is no plain file.
pub(crate) fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file");
    let opened = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    // A pipe that nobody reads cannot be opened to write, nor a socket at all.
    let is_none = |error: &io::Error| error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
    let file = opened.map_err(|error| if is_none(&error) { no_file() } else { error })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

/// A list of at most `MAX` items. A longer one is refused when it has come so far, before more memory is spent on it.
///
/// # Errors
/// An item is wrong, or there are too many.
pub(crate) fn bounded<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Bounded::<T, MAX>(PhantomData))
}

struct Bounded<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Bounded<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() >= MAX {
                return Err(A::Error::custom(format!("a list has more than {MAX} items")));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Short {
        #[serde(deserialize_with = "bounded::<_, _, 3>")]
        items: Vec<u8>,
    }

    #[test]
    fn a_list_ends_where_it_must() {
        let read = |bytes: &[u8]| postcard::from_bytes::<Short>(bytes);
        assert_eq!(read(&[3, 1, 2, 3]).expect("three items").items, [1, 2, 3]);
        assert!(read(&[4, 1, 2, 3, 4]).is_err());
    }

    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).expect("a pipe");
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            assert!(open_plain(path, OpenOptions::new().read(true)).is_err(), "{}", path.display());
        }
        assert!(open_plain(&pipe, OpenOptions::new().write(true)).is_err());
        let file = folder.path().join("file");
        assert!(open_plain(&file, OpenOptions::new().write(true).create(true)).is_ok());
    }
}
