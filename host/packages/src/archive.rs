//! Archives of strangers, unpacked: sizes and counts are bounded, paths stay within, links are refused, and nothing is run.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;

use crate::PackageError;

/// Bytes of an archive.
pub(crate) const ARCHIVE_BYTES_MAX: u64 = 64 << 20;
/// Files in a package.
const FILES_MAX: usize = 20_000;
/// Bytes of all files of a package.
const FILES_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a path in an archive.
const PATH_MAX: usize = 512;
/// Folders that a path leads through.
const DEPTH_MAX: usize = 32;
/// Extensions of files with native code.
const NATIVE: [&str; 5] = [".so", ".pyd", ".dylib", ".dll", ".node"];
/// Names of devices, which are files on some systems whatever their extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
/// The end of the directory of a wheel: its signature, and its bytes without a comment.
const DIRECTORY_END: &[u8] = b"PK\x05\x06";
const DIRECTORY_END_BYTES: usize = 22;

/// Unpacks one package into a folder.
pub(crate) struct Unpacking<'a> {
    name: &'a str,
    folder: &'a Path,
    /// Paths as systems compare them that know no case.
    seen: HashSet<String>,
    entries: usize,
    left: u64,
}

impl<'a> Unpacking<'a> {
    pub(crate) fn new(name: &'a str, folder: &'a Path) -> Unpacking<'a> {
        Unpacking { name, folder, seen: HashSet::new(), entries: 0, left: FILES_BYTES_MAX }
    }

    /// Unpacks a wheel. Files that would be installed beside the modules (scripts, headers, data), and bytecode, are left
    /// out.
    ///
    /// # Errors
    /// `Archive`, `Native`, `Store`.
    pub(crate) fn wheel(mut self, path: &Path) -> Result<(), PackageError> {
        let mut file = self.open(path)?;
        let listed = listed(&mut file).map_err(PackageError::store(path))?;
        if listed.is_none_or(|listed| listed > FILES_MAX) {
            return Err(self.refused(format_args!("it is no wheel, or has more than {FILES_MAX} files")));
        }
        let mut archive = zip::ZipArchive::new(file).map_err(|error| self.refused(error))?;
        if listed != Some(archive.len()) {
            return Err(self.refused("it has two files of one name"));
        }
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index).map_err(|error| self.refused(error))?;
            self.count()?;
            // What Unix calls a regular file or a folder, if it says what it is.
            let kind = entry.unix_mode().unwrap_or_default() & 0o170_000;
            if ![0, 0o100_000, 0o040_000].contains(&kind) {
                return Err(self.refused(format_args!("`{}` is a link or a device", entry.name().escape_debug())));
            }
            let path = self.inner(entry.name())?;
            if entry.is_dir() {
                continue;
            }
            if let Some(path) = of_wheel(&path) {
                self.write(&path, &mut entry)?;
            }
        }
        Ok(())
    }

    /// Unpacks an npm package: a compressed tar whose paths begin with a folder that is not part of the package.
    ///
    /// # Errors
    /// `Archive`, `Native`, `Store`.
    pub(crate) fn tarball(mut self, path: &Path) -> Result<(), PackageError> {
        let file = self.open(path)?;
        // A bound on all that is unpacked, headers and padding included.
        let bytes = GzDecoder::new(file).take(FILES_BYTES_MAX.saturating_add((FILES_MAX as u64).saturating_mul(2048)));
        let mut archive = tar::Archive::new(bytes);
        for entry in archive.entries().map_err(|error| self.refused(error))? {
            let mut entry = entry.map_err(|error| self.refused(error))?;
            self.count()?;
            let bytes = entry.path_bytes().into_owned();
            let text = String::from_utf8(bytes).map_err(|_| self.refused("a path is not UTF-8"))?;
            let kind = entry.header().entry_type();
            if kind.is_dir() || kind.is_pax_global_extensions() {
                continue;
            }
            if !kind.is_file() {
                return Err(self.refused(format_args!("`{}` is no file", text.escape_debug())));
            }
            let path = self.inner(&text)?;
            let mut parts = path.components();
            parts.next();
            let path = parts.as_path().to_owned();
            // Bundled dependencies are not what the lock file says of them.
            if path.as_os_str().is_empty() || path.starts_with("node_modules") {
                continue;
            }
            if path.ends_with("binding.gyp") {
                return Err(self.native(&path));
            }
            self.write(&path, &mut entry)?;
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<File, PackageError> {
        let file = File::open(path).map_err(PackageError::store(path))?;
        let size = file.metadata().map_err(PackageError::store(path))?.len();
        if size > ARCHIVE_BYTES_MAX {
            return Err(self.refused(format_args!("it has {size} bytes, at most {ARCHIVE_BYTES_MAX} are taken")));
        }
        Ok(file)
    }

    fn refused(&self, why: impl std::fmt::Display) -> PackageError {
        PackageError::Archive { name: self.name.to_owned(), why: why.to_string() }
    }

    fn native(&self, path: &Path) -> PackageError {
        PackageError::Native { name: self.name.to_owned(), found: path.display().to_string() }
    }

    fn count(&mut self) -> Result<(), PackageError> {
        self.entries = self.entries.saturating_add(1);
        if self.entries > FILES_MAX {
            return Err(self.refused(format_args!("it has more than {FILES_MAX} files")));
        }
        Ok(())
    }

    /// A path of an archive, if it stays within.
    fn inner(&self, text: &str) -> Result<PathBuf, PackageError> {
        let trimmed = text.strip_prefix("./").unwrap_or(text).trim_end_matches('/');
        let is_part = |part: &str| !part.is_empty() && !part.ends_with(['.', ' ']) && !is_device(part);
        let is_plain = |it: char| !it.is_control() && !"\\:*?\"<>|".contains(it);
        let depth = trimmed.split('/').count();
        if trimmed.len() > PATH_MAX
            || depth > DEPTH_MAX
            || !trimmed.chars().all(is_plain)
            || !trimmed.split('/').all(is_part)
        {
            let shown: String = text.chars().take(PATH_MAX).collect();
            return Err(self.refused(format_args!("its path `{}` is not allowed", shown.escape_debug())));
        }
        Ok(PathBuf::from(trimmed))
    }

    fn write(&mut self, path: &Path, from: &mut impl Read) -> Result<(), PackageError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if NATIVE.iter().any(|end| name.ends_with(end)) || name.contains(".so.") {
            return Err(self.native(path));
        }
        if !self.seen.insert(path.to_string_lossy().to_lowercase()) {
            return Err(self.refused(format_args!("it has two files `{}`", path.display())));
        }
        let target = self.folder.join(path);
        let folder = target.parent().unwrap_or(self.folder);
        let taken = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                self.refused(format_args!("`{}` is a file and a folder", path.display()))
            }
            _ => PackageError::store(&target)(error),
        };
        fs::create_dir_all(folder).map_err(&taken)?;
        let mut file = File::create_new(&target).map_err(&taken)?;
        let written =
            io::copy(&mut from.take(self.left.saturating_add(1)), &mut file).map_err(|error| self.refused(error))?;
        match self.left.checked_sub(written) {
            Some(left) => self.left = left,
            None => return Err(self.refused(format_args!("its files have more than {FILES_BYTES_MAX} bytes"))),
        }
        Ok(())
    }
}

/// Returns the number of entries according to the central directory of a wheel. Returns `None` if there is no directory, or
/// if the count is stored elsewhere (ZIP64).
fn listed(file: &mut File) -> io::Result<Option<usize>> {
    let size = file.metadata()?.len();
    let tail = size.min((DIRECTORY_END_BYTES + usize::from(u16::MAX)) as u64);
    file.seek(SeekFrom::Start(size.saturating_sub(tail)))?;
    let mut bytes = Vec::new();
    file.take(tail).read_to_end(&mut bytes)?;
    file.rewind()?;
    let starts = (0..=bytes.len().saturating_sub(DIRECTORY_END_BYTES)).rev();
    let end = starts.filter_map(|at| bytes.get(at..)).find(|end| end.starts_with(DIRECTORY_END));
    let count = end.and_then(|end| end.get(10..12)?.try_into().ok()).map(u16::from_le_bytes);
    // The largest number stands for one that is elsewhere.
    Ok(count.filter(|&count| count < u16::MAX).map(usize::from))
}

/// Returns true if a name is a device name, whatever its extension: `con`, `aux.py`, `com1`.
fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_lowercase();
    let numbered = stem.strip_suffix(|last: char| last.is_ascii_digit());
    DEVICES.contains(&stem.as_str()) || matches!(numbered, Some("com" | "lpt"))
}

/// Returns the path of a wheel's file among modules. Returns `None` for a file that does not belong there.
fn of_wheel(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let first = parts.next()?.as_os_str().to_str()?;
    let path = if first.ends_with(".data") {
        let kind = parts.next()?.as_os_str();
        (kind == "purelib" || kind == "platlib").then(|| parts.as_path().to_owned())?
    } else {
        path.to_owned()
    };
    let is_bytecode = path.extension().is_some_and(|end| end == "pyc");
    (!is_bytecode && !path.as_os_str().is_empty()).then_some(path)
}

#[cfg(test)]
mod tests;
