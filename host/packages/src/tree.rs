//! Folders of files: their hash, and whether they may be changed.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of a file.
pub(crate) fn hash_of<D: sha2::Digest + io::Write>(path: &Path) -> io::Result<Vec<u8>> {
    let mut digest = D::new();
    io::copy(&mut File::open(path)?, &mut digest)?;
    Ok(digest.finalize().to_vec())
}

/// All files below a folder, relative to it, in order. Anything but files and folders is an error.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut next) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(at) = next.pop() {
        for entry in fs::read_dir(folder.join(&at))? {
            let entry = entry?;
            let (path, kind) = (at.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                next.push(path);
            } else if kind.is_file() {
                found.push(path);
            } else {
                return Err(io::Error::other(format!("`{}` is neither file nor folder", path.display())));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the hash of a folder: of all paths, with the hashes of their files.
pub(crate) fn hash(folder: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    for path in files(folder)? {
        let name = path.as_os_str().as_encoded_bytes();
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(hash_of::<Sha256>(&folder.join(&path))?);
    }
    Ok(hex(&digest.finalize()))
}

/// Makes a folder and its files read-only for everybody, or the folders writable for their owner.
pub(crate) fn seal(folder: &Path, is_sealed: bool) -> io::Result<()> {
    let (of_folder, of_file) = if is_sealed { (0o555, 0o444) } else { (0o755, 0o644) };
    let mut next = vec![folder.to_owned()];
    while let Some(at) = next.pop() {
        // A folder must be open before what is in it can be reached or taken out of it.
        if !is_sealed {
            fs::set_permissions(&at, Permissions::from_mode(of_folder))?;
        }
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                next.push(entry.path());
            } else if kind.is_file() && is_sealed {
                fs::set_permissions(entry.path(), Permissions::from_mode(of_file))?;
            }
        }
        if is_sealed {
            fs::set_permissions(&at, Permissions::from_mode(of_folder))?;
        }
    }
    Ok(())
}

/// Removes a folder that may be sealed, if it exists.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    seal(folder, false)?;
    fs::remove_dir_all(folder)
}

/// Adds the files of one folder to another one: as hard links if the system supports them, else as copies. Existing files
/// stay.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    for path in files(from)? {
        let target = to.join(&path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::hard_link(from.join(&path), &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => fs::copy(from.join(&path), &target).map(drop)?,
            Ok(()) => {}
        }
    }
    Ok(())
}
