//! A file of entries, one JSON object a line.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use cellar_core::sync::lock;
use rustix::fs::OFlags;

use super::{AuditEntry, AuditKind, AuditSink};
use crate::contract::error::Error;

/// An append-only file that only its owner may read; processes may share it. Each entry is one write: entries of several
/// writers do not mix, and one that has been written outlives this process. With `syncs`, the entries of runs (not of
/// calls) are on the disk before anything goes on, and so outlive the machine.
///
/// It is never renamed or cut here; `logrotate` wants its `copytruncate`.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    syncs: bool,
    end: Mutex<End>,
}

#[derive(Debug)]
struct End {
    file: File,
    /// The last line was not written to its end, because the disk was full: the next one begins on a line of its own.
    is_torn: bool,
}

impl AuditFile {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// `Audit` when it cannot be written to, or is no plain file.
    pub fn open(path: &Path, syncs: bool) -> Result<AuditFile, Error> {
        let failed = |source| Error::Audit { path: path.to_owned(), source };
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32);
        let file = options.open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")));
        }
        let path = path.canonicalize().map_err(failed)?;
        Ok(AuditFile { path, syncs, end: Mutex::new(End { file, is_torn: false }) })
    }
}

impl AuditSink for AuditFile {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut end = lock(&self.end);
        let mut line = if end.is_torn { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut line, entry)?;
        line.push(b'\n');
        let written = append(&mut end.file, &line);
        // A line of which nothing was written leaves the end as it was.
        end.is_torn = match &written {
            Ok(()) => false,
            Err(torn) => torn.bytes > 0 || end.is_torn,
        };
        written.map_err(|torn| torn.error)?;
        if self.syncs && !matches!(entry.kind, AuditKind::Call(_)) {
            end.file.sync_data()?;
        }
        Ok(())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// A write that failed after so many bytes.
struct Torn {
    bytes: usize,
    error: io::Error,
}

/// Appends a line: with one write, unless the disk takes only a part of it.
fn append(file: &mut impl Write, line: &[u8]) -> Result<(), Torn> {
    let mut bytes = 0;
    while bytes < line.len() {
        match file.write(&line[bytes..]) {
            Ok(0) => return Err(Torn { bytes, error: io::ErrorKind::WriteZero.into() }),
            Ok(count) => bytes = usize::saturating_add(bytes, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Torn { bytes, error }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_does_not_fit_is_known_to_be_torn() {
        assert!(append(&mut Full(5), b"line\n").is_ok());
        assert_eq!(append(&mut Full(3), b"line\n").err().map(|torn| torn.bytes), Some(3));
        assert_eq!(append(&mut Full(0), b"line\n").err().map(|torn| torn.bytes), Some(0));
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("a.jsonl"), folder.path().join("b.jsonl"));
        assert!(AuditFile::open(&file, false).is_ok());
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        for path in [&link, folder.path(), Path::new("/dev/null"), &folder.path().join("no/such")] {
            assert!(AuditFile::open(path, false).is_err(), "{}", path.display());
        }
    }
}
