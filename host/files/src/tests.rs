//! Tests of the file tree. Each makes its own host folders; [`Bed`] is what they share.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::*;

mod escape;
mod operations;
mod quotas;
mod races;
mod random_paths;
mod restore;

/// Text that no read may ever return. It lies beside the mounts.
const SECRET: &str = "the secret";

/// `granted/` is mounted at `/workspace` for writing and `library/` at `/usr/lib/words` for reading. `secret.txt`
/// and `private/secret.txt` lie beside them.
struct Bed {
    host: TempDir,
    quota: Arc<Quota>,
    files: Files,
}

impl Bed {
    fn new() -> Self {
        Self::with(FileLimits::default(), &[])
    }

    /// With more mounts: host folder below the bed, guest path, access.
    fn with(limits: FileLimits, more: &[(&str, &str, Access)]) -> Self {
        let host = tempfile::tempdir().unwrap();
        for folder in ["granted", "library", "private"] {
            fs::create_dir(host.path().join(folder)).unwrap();
        }
        fs::write(host.path().join("secret.txt"), SECRET).unwrap();
        fs::write(host.path().join("private/secret.txt"), SECRET).unwrap();
        fs::write(host.path().join("library/words.txt"), "words").unwrap();
        // The second kernel has it as a folder of the host, whose files are looked at before they are opened.
        let own =
            Mount { host: host.path().join("granted"), guest: "/workspace".to_owned(), access: Access::ReadWrite };
        let mut mounts =
            vec![own.open_own().unwrap(), mount(&host.path().join("library"), "/usr/lib/words", Access::ReadOnly)];
        for (folder, guest, access) in more {
            fs::create_dir_all(host.path().join(folder)).unwrap();
            mounts.push(mount(&host.path().join(folder), guest, *access));
        }
        let quota = Quota::new(limits);
        let files = Files::new(mounts, Arc::clone(&quota));
        Self { host, quota, files }
    }

    /// A second kernel of the same session, with only the workspace.
    fn second_kernel(&self) -> Files {
        Files::new(vec![mount(&self.granted(""), "/workspace", Access::ReadWrite)], Arc::clone(&self.quota))
    }

    /// The folder that may be read alone.
    fn library(&self) -> OpenMount {
        mount(&self.host.path().join("library"), "/usr/lib/words", Access::ReadOnly)
    }

    /// A host path in the writable folder.
    fn granted(&self, path: &str) -> PathBuf {
        self.host.path().join("granted").join(path)
    }
}

fn mount(host: &Path, guest: &str, access: Access) -> OpenMount {
    Mount { host: host.to_owned(), guest: guest.to_owned(), access }.open().unwrap()
}

const READ: OpenHow = OpenHow {
    create: false,
    directory: false,
    exclusive: false,
    truncate: false,
    follow_symlinks: true,
    read: true,
    write: false,
    append: false,
};
const WRITE: OpenHow = OpenHow { write: true, create: true, ..READ };
const FRESH: OpenHow = OpenHow { exclusive: true, ..WRITE };

/// Short forms for what most tests do.
impl Files {
    fn get(&mut self, path: &str) -> Result<String, FileError> {
        self.get_at(ROOT, path)
    }

    fn get_at(&mut self, dir: Descriptor, path: &str) -> Result<String, FileError> {
        let file = self.open(dir, path, READ)?;
        let data = self.read(file, 0, 1 << 20);
        self.close(file)?;
        Ok(String::from_utf8(data?).unwrap())
    }

    fn put_file(&mut self, path: &str, data: &[u8]) -> Result<(), FileError> {
        let file = self.open(ROOT, path, OpenHow { truncate: true, ..WRITE })?;
        let written = self.write(file, 0, data);
        self.close(file)?;
        assert_eq!(written?, u32::try_from(data.len()).unwrap());
        Ok(())
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        let dir = self.open(ROOT, path, OpenHow { directory: true, ..READ }).unwrap();
        let mut names = Vec::new();
        loop {
            let piece = self.read_directory(dir, names.len() as u64).unwrap();
            if piece.is_empty() {
                self.close(dir).unwrap();
                return names;
            }
            names.extend(piece.into_iter().map(|entry| entry.name));
        }
    }
}
