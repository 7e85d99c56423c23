//! A file of entries, one JSON object a line.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Mutex,
};

use cellar_core::sync::lock;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::{AuditEntry, AuditKind, AuditSink};
use crate::contract::error::Error;

/// An append-only file that only its owner may read; processes may share it. Each entry is one write: entries of several
/// writers do not mix, and one that has been written outlives this process. With `syncs`, the entries of runs (not of
/// calls) are on the disk before anything goes on, and so outlive the machine.
///
/// A file that would grow past its bound is renamed to `NAME.1`, what was that to `NAME.2`, and so on; the oldest goes. All writers follow,
/// those of other processes as well. Whatever else renames the file is followed likewise.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    syncs: bool,
    bounds: AuditBounds,
    end: Mutex<End>,
}

/// Bounds of an audit log: `kept_max` files besides the one that is written to, each of at most `bytes_max` bytes, unless a
/// single line has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditBounds {
    /// Bytes of a file.
    pub bytes_max: u64,
    /// Older files that stay.
    pub kept_max: u32,
}

impl Default for AuditBounds {
    fn default() -> AuditBounds {
        AuditBounds { bytes_max: 256 << 20, kept_max: 15 }
    }
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
        let file = open(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        Ok(AuditFile { path, syncs, bounds: AuditBounds::default(), end: Mutex::new(End { file, is_torn: false }) })
    }

    /// The same with other bounds.
    pub fn with_bounds(self, bounds: AuditBounds) -> AuditFile {
        AuditFile { bounds, ..self }
    }

    /// Has `end` be the file at the path, with room for `bytes` more, locked until it is closed or unlocked.
    fn claim(&self, end: &mut End, bytes: u64) -> io::Result<()> {
        // THREAT: T22
        for _ in 0..CLAIMS_MAX {
            flock(&end.file, FlockOperation::LockExclusive)?;
            let (own, named) = (end.file.metadata()?, self.path.symlink_metadata());
            let is_own = named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
            if is_own && (own.len() == 0 || own.len().saturating_add(bytes) <= self.bounds.bytes_max) {
                return Ok(());
            }
            if is_own && let Err(error) = self.rotate() {
                flock(&end.file, FlockOperation::Unlock)?;
                return Err(error);
            }
            // Another one has the path now, or nothing has. The lock goes with the former file.
            *end = End { file: open(&self.path)?, is_torn: false };
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is renamed again and again"))
    }

    /// Renames the file, which is locked, and those before it.
    fn rotate(&self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.bounds.kept_max == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (1..self.bounds.kept_max).rev() {
            match fs::rename(numbered(number), numbered(number.saturating_add(1))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, numbered(1))
    }
}

/// Times that a writer looks for the file at the path, before it gives up.
const CLAIMS_MAX: usize = 16;

/// Opens a file to append to, or makes it for its owner alone.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
    }
}

impl AuditSink for AuditFile {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut end = lock(&self.end);
        self.claim(&mut end, (line.len() as u64).saturating_add(1))?;
        if end.is_torn {
            line.insert(0, b'\n');
        }
        let written = append(&mut end.file, &line);
        let unlocked = flock(&end.file, FlockOperation::Unlock);
        // A line of which nothing was written leaves the end as it was.
        end.is_torn = match &written {
            Ok(()) => false,
            Err(torn) => torn.bytes > 0 || end.is_torn,
        };
        written.map_err(|torn| torn.error)?;
        unlocked?;
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
    use crate::audit::CallEntry;

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

    fn entry(session: &str) -> AuditEntry {
        let call = CallEntry {
            cell: None,
            call: 1,
            bridge: "tool".to_owned(),
            name: "capital".to_owned(),
            outcome: "ok".to_owned(),
            duration_ms: 1.0,
            request_bytes: 2,
            response_bytes: 7,
        };
        let (time, session) = ("2026-01-01T00:00:00Z".to_owned(), session.to_owned());
        AuditEntry { time, session, actor: None, tenant: None, run: None, kind: AuditKind::Call(call) }
    }

    #[test]
    fn a_log_stays_within_its_bounds_whoever_writes_and_loses_no_line_that_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let bounds = AuditBounds { bytes_max: 2_000, kept_max: 3 };
        let logs: Vec<AuditFile> =
            (0..4).map(|_| AuditFile::open(&path, false).expect("a log").with_bounds(bounds)).collect();
        std::thread::scope(|scope| {
            for (writer, log) in logs.iter().enumerate() {
                scope.spawn(move || {
                    for number in 0..100 {
                        log.write(&entry(&format!("w{writer}-{number:03}"))).expect("written");
                    }
                });
            }
        });
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a.jsonl", "a.jsonl.1", "a.jsonl.2", "a.jsonl.3"]);
        let mut last = [None; 4];
        for name in names.iter().rev().take(3).chain(["a.jsonl".to_owned()].iter()) {
            let text = fs::read_to_string(folder.path().join(name)).expect("a log");
            assert!(text.len() <= 2_000 && text.ends_with('\n'), "{name}: {}", text.len());
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).expect("whole lines");
                let (writer, number) =
                    line["session"].as_str().and_then(|name| name[1..].split_once('-')).expect("a name");
                let (writer, number): (usize, usize) =
                    (writer.parse().expect("a number"), number.parse().expect("a number"));
                // Each writer's last lines, one after another.
                assert!(last[writer].is_none_or(|last| last + 1 == number), "{name}: {line}");
                last[writer] = Some(number);
            }
        }
        assert!(last.iter().flatten().any(|number| *number == 99), "{last:?}");
    }

    #[test]
    fn a_log_that_was_renamed_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, gone) = (folder.path().join("a.jsonl"), folder.path().join("b.jsonl"));
        let log = AuditFile::open(&path, false).expect("a log");
        log.write(&entry("one")).expect("written");
        fs::rename(&path, &gone).expect("renamed");
        log.write(&entry("two")).expect("written");
        assert!(fs::read_to_string(&gone).expect("a log").contains("\"one\""));
        assert!(fs::read_to_string(&path).expect("a log").contains("\"two\""));
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
