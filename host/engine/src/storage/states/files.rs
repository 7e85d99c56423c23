//! The files of a session at one instant: what its own folders hold, contents by their hashes.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt as _},
};
use cellar_core::time::wall_nanos;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use twox_hash::XxHash3_128;

use crate::{
    formats::stranger::bounded,
    storage::workspace::{OwnFolder, flatten},
};

/// Names of all of a session's own folders.
const ENTRIES_MAX: usize = 1_000_000;
/// Age of a change that a look at a file is sure to tell from a later one: clocks of file systems are coarse.
const SETTLED: Duration = Duration::from_millis(100);
/// Bytes that are hashed at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// Prefix of the names of contents that have no hash yet.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// Tells contents apart. Not a defence: a session that makes two of its files collide damages nobody but itself.
pub(super) type Hash = u128;

/// Contents of a session's own folders at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Files {
    /// Folders that were looked at, by their names.
    #[serde(deserialize_with = "bounded::<_, _, 2>")]
    pub(super) folders: Vec<String>,
    /// Nanoseconds since the Unix epoch.
    scanned_at: u64,
    /// Folders before what is in them.
    #[serde(deserialize_with = "bounded::<_, _, ENTRIES_MAX>")]
    entries: Vec<FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileEntry {
    /// Place of its folder in [`Files::folders`].
    folder: u8,
    path: Vec<u8>,
    kind: EntryKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum EntryKind {
    Folder {
        mode: u32,
    },
    Link {
        target: Vec<u8>,
    },
    File {
        hash: Hash,
        mode: u32,
        modified: u64,
        stamp: Stamp,
    },
    /// Another name of the file at this place of the list.
    Again {
        place: u32,
    },
}

/// Marks of a file that change when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change.
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns true if the file was not changed shortly before that time.
    fn is_settled(&self, at: u64) -> bool {
        let (seconds, nanos) = self.changed;
        let changed = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000);
        let changed = changed.saturating_add(u64::try_from(nanos).unwrap_or(0));
        changed.saturating_add(u64::try_from(SETTLED.as_nanos()).unwrap_or(u64::MAX)) < at
    }
}

/// Files as they were found. Contents that are new were copied, and are hashed when there is time.
#[derive(Debug)]
pub(crate) struct Scan {
    files: Files,
    copies: Vec<(usize, NamedTempFile)>,
}

impl Files {
    /// Hashes of the contents, some more than once.
    pub(super) fn hashes(&self) -> impl Iterator<Item = Hash> + '_ {
        self.entries.iter().filter_map(|entry| match entry.kind {
            EntryKind::File { hash, .. } => Some(hash),
            _ => None,
        })
    }

    /// Bytes of the files, each counted once however many names it has.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |entry: &FileEntry| match entry.kind {
            EntryKind::File { stamp, .. } => stamp.bytes,
            _ => 0,
        };
        self.entries.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Contents of each name, in a form that is equal where these are.
    pub(crate) fn contents(&self) -> HashMap<String, (u8, u128)> {
        let mut all = HashMap::with_capacity(self.entries.len());
        for entry in &self.entries {
            let folder = self.folders.get(usize::from(entry.folder)).map_or("", String::as_str);
            let path = format!("/{folder}/{}", String::from_utf8_lossy(&entry.path));
            let contents = match &entry.kind {
                EntryKind::Folder { .. } => (0, 0),
                EntryKind::Link { target } => (1, XxHash3_128::oneshot(target)),
                EntryKind::File { hash, .. } => (2, *hash),
                EntryKind::Again { place } => match self.entries.get(*place as usize).map(|first| &first.kind) {
                    Some(EntryKind::File { hash, .. }) => (2, *hash),
                    _ => (2, 0),
                },
            };
            all.insert(path, contents);
        }
        all
    }

    /// Looks at folders, of which those without a path are empty, and copies into `contents` what `earlier` has not. Nothing is followed out of the folders.
    ///
    /// # Errors
    /// `QuotaExceeded` when there are too many names; errors of the host, such as one for a tree too deep for its paths.
    pub(crate) fn scan(
        folders: &[(OwnFolder, Option<PathBuf>)],
        earlier: Option<&Files>,
        contents: &Path,
    ) -> io::Result<Scan> {
        let mut scanner = Scanner {
            known: earlier.map(Files::by_path).unwrap_or_default(),
            settled_at: earlier.map_or(0, |earlier| earlier.scanned_at),
            contents,
            seen: HashMap::new(),
            scan: Scan { files: Files { scanned_at: wall_nanos(), ..Files::default() }, copies: Vec::new() },
        };
        for (folder, path) in folders {
            scanner.folder(folder.name(), path.as_deref())?;
        }
        Ok(scanner.scan)
    }

    fn by_path(&self) -> HashMap<(&str, &[u8]), (Hash, Stamp)> {
        let mut known = HashMap::new();
        for entry in &self.entries {
            if let EntryKind::File { hash, stamp, .. } = entry.kind
                && let Some(folder) = self.folders.get(usize::from(entry.folder))
            {
                known.insert((folder.as_str(), &*entry.path), (hash, stamp));
            }
        }
        known
    }

    /// Makes folders hold what they held then. Folders that were not looked at stay as they are. May be done again when
    /// it was cut short.
    ///
    /// # Errors
    /// Errors of the host; then folders may be half of this state.
    pub(crate) fn restore(&self, folders: &[(OwnFolder, PathBuf)], contents: &Path) -> io::Result<()> {
        let mut first: HashMap<usize, PathBuf> = HashMap::new();
        for (number, name) in self.folders.iter().enumerate() {
            let Some((_, root)) = folders.iter().find(|(folder, _)| folder.name() == name) else { continue };
            self.clear(number, root)?;
            for (place, entry) in self.entries.iter().enumerate().filter(|(_, e)| usize::from(e.folder) == number) {
                let path = root.join(OsStr::from_bytes(&entry.path));
                self.put(entry, &path, contents, &first)?;
                first.insert(place, path);
            }
        }
        Ok(())
    }

    /// Removes what a folder has and had not then.
    fn clear(&self, number: usize, root: &Path) -> io::Result<()> {
        let entries = self.entries.iter().filter(|entry| usize::from(entry.folder) == number);
        let wanted: HashMap<&[u8], bool> =
            entries.map(|entry| (&*entry.path, matches!(entry.kind, EntryKind::Folder { .. }))).collect();
        let mut unseen = vec![PathBuf::new()];
        while let Some(folder) = unseen.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let (path, is_folder) = (folder.join(entry.file_name()), entry.file_type()?.is_dir());
                match wanted.get(path.as_os_str().as_bytes()) {
                    Some(true) if is_folder => unseen.push(path),
                    Some(false) if !is_folder => {}
                    _ if is_folder => {
                        flatten(&entry.path())?;
                        fs::remove_dir_all(entry.path())?;
                    }
                    _ => fs::remove_file(entry.path())?,
                }
            }
        }
        Ok(())
    }

    fn put(&self, entry: &FileEntry, path: &Path, contents: &Path, first: &HashMap<usize, PathBuf>) -> io::Result<()> {
        let there = path.symlink_metadata().ok();
        match &entry.kind {
            EntryKind::Folder { mode } => {
                if there.is_none() {
                    fs::create_dir(path)?;
                }
                fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o700))
            }
            EntryKind::Link { target } => {
                let target = OsStr::from_bytes(target);
                if there.is_some_and(|there| there.is_symlink()) && fs::read_link(path)? == target {
                    return Ok(());
                }
                remove(path)?;
                std::os::unix::fs::symlink(target, path)
            }
            EntryKind::Again { place } => {
                let Some(first) = first.get(&(*place as usize)) else {
                    // Its other names are in a folder that stays as it is.
                    let file = self.entries.get(*place as usize).filter(|file| file.kind != entry.kind);
                    return self.put(file.ok_or(io::ErrorKind::InvalidData)?, path, contents, first);
                };
                remove(path)?;
                fs::hard_link(first, path)
            }
            EntryKind::File { hash, mode, modified, stamp } => {
                let is_same = |there: &fs::Metadata| Stamp::of(there) == *stamp && stamp.is_settled(self.scanned_at);
                if there.as_ref().is_some_and(is_same) {
                    return Ok(());
                }
                let folder = path.parent().ok_or(io::ErrorKind::InvalidData)?;
                let mut copy = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
                io::copy(&mut File::open(contents.join(name(*hash)))?, copy.as_file_mut())?;
                copy.as_file().set_permissions(fs::Permissions::from_mode(*mode))?;
                // Programs such as `make` compare these times.
                let modified = UNIX_EPOCH.checked_add(Duration::from_nanos(*modified));
                modified.map(|modified| copy.as_file().set_modified(modified)).transpose()?;
                copy.persist(path)?;
                Ok(())
            }
        }
    }
}

impl Scan {
    /// Hashes new contents and gives them their names in `contents`. Returns what the folders held, and the sizes of what was
    /// hashed.
    ///
    /// # Errors
    /// Errors of the host.
    pub(super) fn finish(self, contents: &Path, is_synced: bool) -> io::Result<(Files, Vec<(Hash, u64)>)> {
        let Scan { mut files, copies } = self;
        let mut found_all = Vec::new();
        for (place, mut copy) in copies {
            let (found, bytes) = hash_of(copy.reopen()?)?;
            if let Some(FileEntry { kind: EntryKind::File { hash, stamp, .. }, .. }) = files.entries.get_mut(place) {
                *hash = found;
                if stamp.bytes != bytes {
                    // It was written to by somebody else while it was copied.
                    (stamp.bytes, stamp.changed) = (bytes, (0, 0));
                }
            }
            found_all.push((found, bytes));
            let path = contents.join(name(found));
            if path.exists() {
                continue;
            }
            if is_synced {
                copy.as_file_mut().sync_all()?;
            }
            copy.persist(&path)?;
        }
        Ok((files, found_all))
    }
}

/// A look at folders that is under way.
struct Scanner<'a> {
    known: HashMap<(&'a str, &'a [u8]), (Hash, Stamp)>,
    /// Time of the look that `known` is of.
    settled_at: u64,
    contents: &'a Path,
    /// Places of files with several names.
    seen: HashMap<(u64, u64), u32>,
    scan: Scan,
}

impl Scanner<'_> {
    fn folder(&mut self, name: &'static str, root: Option<&Path>) -> io::Result<()> {
        let number = u8::try_from(self.scan.files.folders.len()).unwrap_or(u8::MAX);
        self.scan.files.folders.push(name.to_owned());
        let Some(root) = root else { return Ok(()) };
        let root = Dir::open_ambient_dir(root, ambient_authority())?;
        let mut unseen = vec![PathBuf::new()];
        while let Some(folder) = unseen.pop() {
            let entries = match folder.as_os_str().is_empty() {
                true => root.read_dir(".")?,
                false => root.read_dir(&folder)?,
            };
            for entry in entries {
                let entry = entry?;
                if self.scan.files.entries.len() >= ENTRIES_MAX {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
                let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
                let found = if kind.is_dir() {
                    let mode = cap_std::fs::PermissionsExt::mode(&entry.metadata()?.permissions());
                    unseen.push(path.clone());
                    Some(EntryKind::Folder { mode: mode & 0o7777 })
                } else if kind.is_symlink() {
                    let target: OsString = root.read_link_contents(&path)?.into();
                    Some(EntryKind::Link { target: target.into_vec() })
                } else if kind.is_file() {
                    self.file(name, &root, &path)?
                } else {
                    None
                };
                let path = path.into_os_string().into_vec();
                self.scan.files.entries.extend(found.map(|kind| FileEntry { folder: number, path, kind }));
            }
        }
        Ok(())
    }

    fn file(&mut self, folder: &'static str, root: &Dir, path: &Path) -> io::Result<Option<EntryKind>> {
        let mut options = OpenOptions::new();
        // A file of a moment ago may be a FIFO now, which is not to be waited for.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let mut file = root.open_with(path, &options)?.into_std();
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let place = self.scan.files.entries.len();
        if metadata.nlink() > 1 {
            let number = u32::try_from(place).unwrap_or(u32::MAX);
            let first = *self.seen.entry((metadata.dev(), metadata.ino())).or_insert(number);
            if first != number {
                return Ok(Some(EntryKind::Again { place: first }));
            }
        }
        let stamp = Stamp::of(&metadata);
        let modified = u64::try_from(metadata.mtime()).unwrap_or(0).saturating_mul(1_000_000_000);
        let modified = modified.saturating_add(u64::try_from(metadata.mtime_nsec()).unwrap_or(0));
        let mode = metadata.permissions().mode() & 0o7777;
        let known = self.known.get(&(folder, path.as_os_str().as_bytes()));
        let known = known.filter(|(_, before)| *before == stamp && stamp.is_settled(self.settled_at));
        let hash = match known {
            Some((hash, _)) => *hash,
            None => {
                let mut copy = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(self.contents)?;
                // By reference where the disk can, and by the kernel where it cannot.
                io::copy(&mut file, copy.as_file_mut())?;
                self.scan.copies.push((place, copy));
                0
            }
        };
        Ok(Some(EntryKind::File { hash, mode, modified, stamp }))
    }
}

/// Name of the file with contents of this hash.
pub(super) fn name(hash: Hash) -> String {
    format!("{hash:032x}")
}

/// Hash that the name of a file of contents says.
pub(super) fn hash_in(name: &str) -> Option<Hash> {
    (name.len() == 32).then(|| Hash::from_str_radix(name, 16).ok()).flatten()
}

fn hash_of(mut file: File) -> io::Result<(Hash, u64)> {
    let mut hasher = XxHash3_128::new();
    let (mut buffer, mut bytes) = (vec![0; BUFFER_BYTES], 0_u64);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((hasher.finish_128(), bytes));
        }
        hasher.write(&buffer[..read]);
        bytes = bytes.saturating_add(read as u64);
    }
}

/// Removes a name that may not be there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
