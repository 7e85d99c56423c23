//! The list of the machine code that came with a package: `code.sha256` beside its guests, in the format of `sha256sum`.
//!
//! The program that came with it knows the digest of the list, and the list those of the files. Comparing a file with its digest takes
//! some tens of milliseconds, so it is done once where that can be noted: a note in the cache names the file as it was then, by its inode
//! and by the time of its last change, which only the clock sets. A file that belongs to root is not compared by other users: only
//! root could have changed it since it was installed, and root can change this program as well.

use std::{
    fs::{self, DirBuilder, File},
    io::Read,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use cellar_core::{files::replace, text::hex};
use sha2::{Digest, Sha256};

use super::image::check_trusted;
use crate::contract::config::HostConfig;

/// The list, in the folder of the guests.
const LIST_FILE: &str = "code.sha256";
/// Largest list, in bytes.
const LIST_BYTES_MAX: u64 = 1 << 16;
/// Largest note, in bytes.
const NOTE_BYTES_MAX: u64 = 1 << 10;

/// The code that came with the program.
#[derive(Debug)]
pub(super) struct Listed {
    guests: PathBuf,
    /// SHA-256 of the list.
    digest: [u8; 32],
}

impl Listed {
    /// The list of a host, if its guests came with the program.
    pub(super) fn of(config: &HostConfig) -> Option<Listed> {
        config.code_list.map(|digest| Listed { guests: config.guests.clone(), digest })
    }

    /// Returns the SHA-256 that the list has for a file. Cheap: the file is not read.
    ///
    /// # Errors
    /// The list is not that of this program, or does not name the file.
    pub(super) fn check_name(&self, path: &Path) -> Result<String, String> {
        let place = self.guests.join(LIST_FILE);
        let failed = |error: std::io::Error| format!("`{}`: {error}", place.display());
        let mut list = Vec::new();
        File::open(&place).map_err(failed)?.take(LIST_BYTES_MAX).read_to_end(&mut list).map_err(failed)?;
        if Sha256::digest(&list)[..] != self.digest {
            return Err(format!("`{}` is of another package than this program", place.display()));
        }
        let list = String::from_utf8(list).unwrap_or_default();
        let name = path.strip_prefix(&self.guests).unwrap_or(path).to_string_lossy();
        let entry = list.lines().filter_map(|line| line.split_once("  ")).find(|(_, listed)| *listed == name);
        let (digest, _) =
            entry.ok_or_else(|| format!("`{}` did not come with this program: it is not listed", path.display()))?;
        Ok(digest.to_owned())
    }

    /// Compares a file with the list. Notes in the folder that this was done, if that can be written.
    ///
    /// # Errors
    /// As for `check_name`; the file has another digest.
    pub(super) fn check(&self, path: &Path, file: &File, notes: &Path) -> Result<(), String> {
        let digest = self.check_name(path)?;
        let metadata = file.metadata().map_err(|error| format!("`{}`: {error}", path.display()))?;
        let is_roots = metadata.uid() == 0 && !rustix::process::geteuid().is_root();
        let note = Note::of(path, &digest, &metadata, notes);
        if is_roots || note.is_kept() {
            return Ok(());
        }
        let mut sha = Sha256::new();
        std::io::copy(&mut &*file, &mut sha).map_err(|error| format!("`{}`: {error}", path.display()))?;
        if hex(&sha.finalize()) != digest {
            return Err(format!("`{}` is not as it came with this program: its digest is another", path.display()));
        }
        note.keep();
        Ok(())
    }
}

/// Note that a file has the digest that the list says.
struct Note {
    place: PathBuf,
    text: String,
}

impl Note {
    fn of(path: &Path, digest: &str, file: &fs::Metadata, folder: &Path) -> Note {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (inode, device, size) = (file.ino(), file.dev(), file.size());
        let changed = format!("{}.{:09}", file.ctime(), file.ctime_nsec());
        let text = format!("{digest} {device} {inode} {size} {changed}\n");
        Note { place: folder.join(format!("{name}.checked")), text }
    }

    /// Returns true if this user has noted it.
    fn is_kept(&self) -> bool {
        let read = || -> Option<String> {
            let file = File::open(&self.place).ok()?;
            check_trusted(&file).ok()?;
            check_trusted(&File::open(self.place.parent()?).ok()?).ok()?;
            let mut text = String::new();
            file.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
            Some(text)
        };
        read().is_some_and(|text| text == self.text)
    }

    /// Notes it. Where nothing can be written, the file is compared again the next time.
    fn keep(&self) {
        let Some(folder) = self.place.parent() else { return };
        if DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok() {
            let _ = replace(&self.place, self.text.as_bytes());
        }
    }
}
