//! The packages that a session is granted, as folders that it sees.

use std::path::{Path, PathBuf};

use cellar_engine::files::{Access, Mount};
use cellar_packages::{PackageStore, Source};

use crate::SetupError;

/// Folder in which JavaScript finds packages, whatever folder a module is in.
const NODE_MODULES: &str = "/node_modules";

/// The store of packages: that in a folder which was named, or that of this user.
///
/// # Errors
/// `Folder`: none was named and the user has none.
pub fn package_store(named: Option<&Path>) -> Result<PackageStore, SetupError> {
    let usual = || Some(dirs::data_dir()?.join("cellar").join("packages"));
    let folder = named.map(Path::to_owned).or_else(usual);
    folder.map(PackageStore::new).ok_or(SetupError::Folder { what: "packages", flag: "--package-store" })
}

/// Folders with Python packages, those that were named before that of the store; and where npm packages are to be seen.
///
/// # Errors
/// `Package`: the store lacks a package that is named. `Folder`.
pub fn package_folders(
    store: Option<&Path>,
    sources: Vec<Source>,
) -> Result<(Vec<PathBuf>, Option<Mount>), SetupError> {
    let (mut folders, mut named) = (Vec::new(), Vec::new());
    for source in sources {
        match source {
            Source::Folder(folder) => folders.push(folder),
            Source::Named(wanted) => named.push(wanted),
        }
    }
    if named.is_empty() {
        return Ok((folders, None));
    }
    let granted = package_store(store)?.granted(&named)?;
    folders.extend(granted.python);
    let mount = |host| Mount { host, guest: NODE_MODULES.to_owned(), access: Access::ReadOnly };
    Ok((folders, granted.npm.map(mount)))
}
